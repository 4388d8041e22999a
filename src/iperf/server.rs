//! The server's half: who may test and for how long, the one slot, and what came of it. One thread
//! keeps the door (`door`), a test has a thread of its own (`session`) and one a stream.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use super::door::Door;
use super::wire::Cookie;
use crate::base::fault::Fault;
use crate::base::units::{Bytes, Seconds};
use crate::model::link::{LinkIdentity, LinkReason};

/// Who may test, and when.
pub trait Admit: Send + Sync {
    /// A peer that is allowed to test with this host.
    fn knows(&self, peer: IpAddr) -> bool;
    /// The one test that this host may be in, until it is dropped; `None` while there is another.
    fn turn(&self) -> Option<Box<dyn Send>>;
    /// What this host tells a peer that told its own.
    fn identity(&self, peer: SocketAddr) -> Option<LinkIdentity>;
}

/// What a test here may take, and how long each part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    pub runtime_max: Seconds,
    /// Of both directions together, the omitted time's too.
    pub bytes_max: Bytes,
    /// Connections that are not part of a test.
    pub waiting_max: usize,
    pub cookie: Duration,
    pub parameters: Duration,
    pub streams: Duration,
    /// After the time that was asked for.
    pub end: Duration,
    pub results: Duration,
    /// For the last word, and to take an answer in before the connection is closed.
    pub leave: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            runtime_max: Seconds(60.0),
            bytes_max: Bytes(1 << 40),
            waiting_max: 256,
            cookie: Duration::from_secs(2),
            parameters: Duration::from_secs(2),
            streams: Duration::from_secs(10),
            end: Duration::from_secs(10),
            results: Duration::from_secs(10),
            leave: Duration::from_secs(1),
        }
    }
}

/// Ends of tests and refusals, by reason; `None` is a test that went well.
pub type Counts = BTreeMap<Option<LinkReason>, u64>;

/// A server on threads of its own; dropped, it tells a running test and ends.
pub struct Server {
    shared: Arc<Shared>,
    door: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on `listener` until dropped.
    ///
    /// # Errors
    /// Where there is no thread or no descriptor left.
    pub fn start(
        listener: TcpListener,
        admit: Arc<dyn Admit>,
        limits: Limits,
    ) -> Result<Self, Fault> {
        let no_server = |error: io::Error| Fault::os("no server for peers", &error);
        listener.set_nonblocking(true).map_err(no_server)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| no_server(errno.into()))?;
        let (leave, leaving) = channel();
        let shared = Arc::new(Shared {
            admit,
            limits,
            bell,
            leave,
            stopped: AtomicBool::new(false),
            running: Mutex::default(),
            counts: Mutex::default(),
            ended: AtomicU64::new(0),
        });
        let mut door = Door::new(listener, Arc::clone(&shared), leaving);
        let body = move || door.run();
        let door =
            std::thread::Builder::new().name("peers".into()).spawn(body).map_err(no_server)?;
        Ok(Self { shared, door: Some(door) })
    }

    pub fn counts(&self) -> Counts {
        lock(&self.shared.counts).clone()
    }

    /// Tests that got the slot and are over, whatever came of them; refusals are none.
    pub fn ended(&self) -> u64 {
        self.shared.ended.load(Ordering::Acquire)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.ring();
        if let Some(door) = self.door.take() {
            let _ = door.join();
        }
    }
}

/// What door and test share.
pub(super) struct Shared {
    pub admit: Arc<dyn Admit>,
    pub limits: Limits,
    /// Wakes the door.
    pub bell: OwnedFd,
    leave: Sender<TcpStream>,
    stopped: AtomicBool,
    pub running: Mutex<Option<Running>>,
    counts: Mutex<Counts>,
    /// Tests that began and are over.
    pub ended: AtomicU64,
}

/// The test that has the slot.
pub(super) struct Running {
    pub cookie: Cookie,
    /// Where its data connections go, in the order of their acceptance, while it waits for them.
    pub streams: Option<Sender<(u64, TcpStream)>>,
    /// To end the waiting for its client when the server ends.
    pub control: TcpStream,
    pub _turn: Box<dyn Send>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(super) fn count(&self, reason: Option<LinkReason>) {
        *lock(&self.counts).entry(reason).or_default() += 1;
    }

    /// No further data connection is expected.
    pub(super) fn has_all_streams(&self) {
        if let Some(running) = lock(&self.running).as_mut() {
            running.streams = None;
        }
    }

    /// Leaves a connection to the door, to be closed once the peer has taken in what was said.
    pub(super) fn let_leave(&self, socket: TcpStream) {
        let _ = self.leave.send(socket);
        self.ring();
    }
}

/// The slot of the one test, however that ends.
pub(super) struct Slot(pub Arc<Shared>);

impl Drop for Slot {
    fn drop(&mut self) {
        drop(lock(&self.0.running).take());
    }
}
