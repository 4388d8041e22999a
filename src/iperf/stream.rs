//! One data connection: a thread that moves bytes until it is told to stop.
//!
//! A thread a stream, since one alone is the limit before the wire is (iperf3 came to the same in
//! 3.16). Senders hand the kernel large pieces of one block that nothing can compress; receivers
//! have the kernel drop what arrived (MSG_TRUNC, tcp(7)), which leaves out the copy and nothing else.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::control::Broken;
use super::info::Info;
use super::wire::BLOCK_BYTES_MAX;
use crate::base::units::Bytes;
use crate::host::sys;

const STACK_BYTES: usize = 128 << 10;
/// No errno: the peer ended the connection in order.
const CLOSED: i32 = -1;

/// What every data connection of a test is set to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tuning {
    pub window: Option<u64>,
    pub congestion: Option<String>,
    /// Bytes a second.
    pub pacing: Option<u64>,
    pub nodelay: bool,
    pub type_of_service: u8,
}

/// A setting that this kernel doesn't give.
#[derive(Debug)]
pub(super) enum Untunable {
    /// What each of both socket buffers can be.
    Window(u64),
    Congestion(io::Error),
    Other(io::Error),
}

impl Tuning {
    /// Sets a connection up.
    pub(super) fn apply(&self, socket: &TcpStream) -> Result<(), Untunable> {
        let other = |errno: Errno| Untunable::Other(errno.into());
        if let Some(window) = self.window {
            let bytes = window as usize;
            sockopt::set_socket_send_buffer_size(socket, bytes).map_err(other)?;
            sockopt::set_socket_recv_buffer_size(socket, bytes).map_err(other)?;
            // Cut at net.core.{w,r}mem_max, and told doubled (socket(7)).
            let sends = sockopt::socket_send_buffer_size(socket).map_err(other)?;
            let receives = sockopt::socket_recv_buffer_size(socket).map_err(other)?;
            let given = (sends.min(receives) / 2) as u64;
            if given < window {
                return Err(Untunable::Window(given));
            }
        }
        if self.nodelay {
            sockopt::set_tcp_nodelay(socket, true).map_err(other)?;
        }
        if self.type_of_service > 0 {
            // IPv4 on a dual-stack socket goes by IPv4's option (net/ipv6/ipv6_sockglue.c).
            let v4 = socket.local_addr().is_ok_and(|a| a.ip().to_canonical().is_ipv4());
            let set = if v4 {
                sockopt::set_ip_tos(socket, self.type_of_service)
            } else {
                sockopt::set_ipv6_tclass(socket, self.type_of_service.into())
            };
            set.map_err(other)?;
        }
        if let Some(rate) = self.pacing {
            sys::set_pacing(socket.as_fd(), rate).map_err(Untunable::Other)?;
        }
        if let Some(name) = &self.congestion {
            sockopt::set_tcp_congestion(socket, name)
                .map_err(|errno| Untunable::Congestion(errno.into()))?;
        }
        Ok(())
    }
}

/// A megabyte that no link compresses, filled once and shared by all streams.
fn payload() -> &'static [u8] {
    static PAYLOAD: OnceLock<Vec<u8>> = OnceLock::new();
    PAYLOAD.get_or_init(|| {
        let mut bytes = vec![0; BLOCK_BYTES_MAX as usize];
        fastrand::Rng::new().fill(&mut bytes);
        bytes
    })
}

/// What the streams of a test share.
pub(super) struct Gate {
    stopped: AtomicBool,
    /// Readable once stopped, so that senders that wait wake at once.
    bell: OwnedFd,
    /// Bytes that may still be sent; all ones is no bound.
    left: AtomicU64,
}

impl Gate {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            stopped: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            left: AtomicU64::new(u64::MAX),
        })
    }

    /// Bounds what is sent from now on.
    pub(super) fn bound(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Release);
    }

    /// All that may be sent was handed to the kernel.
    pub(super) fn is_spent(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Up to `want` bytes to send; none when the bound is reached.
    fn take(&self, want: u64) -> Grant {
        let mut bytes = want;
        let taken = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            bytes = want.min(left);
            (left != u64::MAX).then(|| left - bytes)
        });
        Grant { bytes, bounded: taken.is_ok() }
    }

    /// Returns what the kernel didn't accept.
    fn give_back(&self, grant: Grant, sent: usize) {
        if grant.bounded {
            self.left.fetch_add(grant.bytes.saturating_sub(sent as u64), Ordering::AcqRel);
        }
    }
}

/// Leave to send so much. One given before there was a bound is not counted against it: a bound that
/// begins after the omitted time may be passed by a block a stream.
#[derive(Clone, Copy)]
struct Grant {
    bytes: u64,
    bounded: bool,
}

/// A data connection and its thread.
pub(super) struct Stream {
    pub id: u32,
    pub sends: bool,
    socket: Arc<TcpStream>,
    moved: Arc<Moved>,
    gate: Arc<Gate>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Moved {
    bytes: AtomicU64,
    /// Why the connection ended: an errno, [`CLOSED`], or 0 while it didn't.
    ended: AtomicI32,
}

/// What a stream did so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub bytes: Bytes,
    /// Of senders only.
    pub info: Info,
}

impl Stream {
    /// Starts to move bytes.
    pub(super) fn start(
        (id, sends): (u32, bool),
        socket: TcpStream,
        block: u64,
        gate: &Arc<Gate>,
    ) -> io::Result<Self> {
        let (socket, moved) = (Arc::new(socket), Arc::<Moved>::default());
        let (own, counts, shut) = (Arc::clone(&socket), Arc::clone(&moved), Arc::clone(gate));
        let block = block.clamp(1, BLOCK_BYTES_MAX) as usize;
        let body = move || {
            if sends {
                send_until_stopped(&own, &counts, &shut, block);
            } else {
                receive_until_closed(&own, &counts, &shut, block);
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("stream-{id}"))
            .stack_size(STACK_BYTES)
            .spawn(body)?;
        Ok(Self { id, sends, socket, moved, gate: Arc::clone(gate), thread: Some(thread) })
    }

    /// Since the start.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.moved.bytes.load(Ordering::Acquire))
    }

    pub(super) fn sample(&self) -> Sample {
        let info =
            if self.sends { Info::of(&*self.socket).unwrap_or_default() } else { Info::default() };
        Sample { bytes: self.bytes(), info }
    }

    /// Why it ended, where it did.
    pub(super) fn ended(&self) -> Option<Broken> {
        match self.moved.ended.load(Ordering::Acquire) {
            0 => None,
            CLOSED => Some(Broken::Closed),
            errno => Some(io::Error::from_raw_os_error(errno).into()),
        }
    }

    pub(super) fn congestion(&self) -> Option<String> {
        sockopt::tcp_congestion(&*self.socket).ok()
    }

    /// A receiver takes what has arrived by now, and no more; a sender is woken by the gate.
    pub(super) fn no_more(&self) {
        if !self.sends {
            let _ = self.socket.shutdown(Shutdown::Read);
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread; it ends once the gate is shut and no more is to be received.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A sender that has used its bound up waits for the gate alone.
        self.gate.stop();
        let _ = self.socket.shutdown(Shutdown::Both);
        self.join();
    }
}

fn send_until_stopped(socket: &TcpStream, moved: &Moved, gate: &Gate, block: usize) {
    let payload = payload().get(..block).unwrap_or_default();
    while !gate.is_stopped() {
        let grant = gate.take(block as u64);
        let Some(piece) = payload.get(..grant.bytes as usize).filter(|piece| !piece.is_empty())
        else {
            // The bound is reached, unless another stream gives some back.
            wait(None, gate, Some(Duration::from_millis(5)));
            continue;
        };
        match send(socket, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => {
                moved.bytes.fetch_add(sent as u64, Ordering::AcqRel);
                gate.give_back(grant, sent);
            }
            Err(error) => {
                gate.give_back(grant, 0);
                match error {
                    Errno::AGAIN => wait(Some(socket), gate, None),
                    Errno::INTR => {}
                    _ => return moved.ended.store(error.raw_os_error(), Ordering::Release),
                }
            }
        }
    }
}

/// Until the socket takes more, the gate is shut, or time is up.
fn wait(socket: Option<&TcpStream>, gate: &Gate, patience: Option<Duration>) {
    let bell = PollFd::new(&gate.bell, PollFlags::IN);
    let patience = patience.and_then(|time| time.try_into().ok());
    let _ = match socket {
        Some(socket) => poll(&mut [bell, PollFd::new(socket, PollFlags::OUT)], patience.as_ref()),
        None => poll(&mut [bell], patience.as_ref()),
    };
}

/// Counts until the gate is shut, and goes on reading until the connection ends: a peer that still
/// sends must not be reset.
fn receive_until_closed(socket: &TcpStream, moved: &Moved, gate: &Gate, block: usize) {
    let mut buffer = vec![0; block];
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::TRUNC) {
            Ok((_, 0)) => return moved.ended.store(CLOSED, Ordering::Release),
            Ok((_, received)) => {
                if !gate.is_stopped() {
                    moved.bytes.fetch_add(received as u64, Ordering::AcqRel);
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return moved.ended.store(error.raw_os_error(), Ordering::Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_sender_that_waits_for_a_peer_that_reads_nothing_stops_when_told() {
        let (near, _far) = pair();
        let gate = Arc::new(Gate::new().unwrap());
        let mut stream = Stream::start((1, true), near, 65536, &gate).unwrap();
        // The buffers are full once nothing moves any more, or not yet: it makes no difference.
        while stream.sample().bytes.0 == 0 {
            std::thread::yield_now();
        }
        gate.stop();
        stream.join();
    }

    #[test]
    fn a_receiver_counts_what_came_before_it_was_told_and_ends() {
        let (near, far) = pair();
        let gate = Arc::new(Gate::new().unwrap());
        let mut stream = Stream::start((1, false), far, 4096, &gate).unwrap();
        io::Write::write_all(&mut &near, &[7; 10_000]).unwrap();
        stream.no_more();
        stream.join();
        assert_eq!(stream.sample().bytes, Bytes(10_000));
    }

    #[test]
    fn a_window_is_given_whole_or_not_at_all() {
        let (near, _far) = pair();
        let apply = |bytes| Tuning { window: Some(bytes), ..Tuning::default() }.apply(&near);
        let Err(Untunable::Window(most)) = apply(1 << 30) else {
            return println!("skipped: this kernel gives any window");
        };
        assert!(apply(most).is_ok(), "{most}");
        for more in [most + 1, most * 3 / 2, most * 2] {
            assert!(matches!(apply(more), Err(Untunable::Window(n)) if n == most), "{more}");
        }
    }

    #[test]
    fn the_payload_does_not_compress() {
        let mut packed =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut packed, payload()).unwrap();
        assert!(packed.finish().unwrap().len() >= payload().len());
    }

    proptest! {
        #[test]
        fn a_bound_is_met_and_never_passed(
            bound in 0u64..10_000,
            sends in prop::collection::vec((1u64..3000, 0u64..3000), 0..50),
        ) {
            let gate = Gate::new().unwrap();
            gate.bound(bound);
            let mut sent = 0;
            for (want, accepted) in sends {
                let grant = gate.take(want);
                let accepted = accepted.min(grant.bytes);
                sent += accepted;
                gate.give_back(grant, accepted as usize);
                prop_assert!(sent <= bound);
                prop_assert_eq!(gate.is_spent(), sent == bound);
            }
        }
    }
}
