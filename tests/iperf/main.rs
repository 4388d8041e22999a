//! Link probes against Debian's iperf3, and against peers that break the protocol.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests"
)]

mod command;
mod door;
mod fake;
mod fuzzed;
mod ours;
mod peers;
mod results;
mod stock;
mod stopping;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loadline::base::units::{Bytes, Rate, Seconds};
use loadline::iperf::client::{self, Order, Patience, Watch};
use loadline::iperf::server::{Admit, Limits, Server};
use loadline::model::link::{LinkFault, LinkIdentity, LinkInterval, LinkMeasured, LinkProfile};
use loadline::model::way::EndLine;

/// Longest wait for anything that should happen soon; reached only by a fault.
const PATIENCE: Duration = Duration::from_secs(60);

fn installed(program: &str) -> bool {
    let here = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !here {
        println!("skipped: {program} is not installed");
    }
    here
}

/// Half a second, one stream.
fn profile() -> LinkProfile {
    LinkProfile::plain(1, Seconds(0.5))
}

/// Keeps the intervals, and asks to stop after so many.
#[derive(Default)]
struct Seen {
    intervals: Vec<LinkInterval>,
    began: bool,
    stop_after: Option<usize>,
}

impl Watch for Seen {
    fn stopped(&self) -> bool {
        self.stop_after.is_some_and(|most| self.intervals.len() >= most)
    }

    fn began(&mut self, _: SocketAddr) {
        self.began = true;
    }

    fn interval(&mut self, interval: &LinkInterval) {
        self.intervals.push(interval.clone());
    }
}

fn patient() -> Patience {
    // The machine may be loaded; a test that waits for a deadline sets its own.
    Patience { connect: PATIENCE, first_byte: PATIENCE, step: PATIENCE, results: PATIENCE }
}

fn test(peer: SocketAddr, profile: &LinkProfile) -> Result<LinkMeasured, LinkFault> {
    watched(peer, profile, &mut Seen::default())
}

fn watched(
    peer: SocketAddr,
    profile: &LinkProfile,
    seen: &mut Seen,
) -> Result<LinkMeasured, LinkFault> {
    let (boot_id, list_digest) = ("near".into(), "d1".into());
    let identity = Some(LinkIdentity { boot_id, list_digest, ..LinkIdentity::default() });
    let order = Order { addresses: &[peer], profile, identity, patience: patient() };
    client::run(&order, seen)
}

/// Admits every address but those of 127.0.0.99, and one test at a time.
#[derive(Default)]
struct House {
    taken: Arc<AtomicBool>,
}

struct Taken(Arc<AtomicBool>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 99));

impl Admit for House {
    fn knows(&self, peer: IpAddr) -> bool {
        peer != STRANGER
    }

    fn turn(&self) -> Option<Box<dyn Send>> {
        let free = !self.taken.swap(true, Ordering::AcqRel);
        free.then(|| Box::new(Taken(Arc::clone(&self.taken))) as Box<dyn Send>)
    }

    fn identity(&self, _: SocketAddr) -> Option<LinkIdentity> {
        let line = EndLine { sends: Some(Rate(125e6)), receives: None };
        Some(LinkIdentity { boot_id: "far".into(), list_digest: "d2".into(), line })
    }
}

/// Our server on a port of its own.
struct Ours {
    server: Server,
    address: SocketAddr,
    house: Arc<House>,
}

impl Ours {
    fn new(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let house = Arc::new(House::default());
        let admit = Arc::clone(&house);
        let server = Server::start(listener, admit, limits).unwrap();
        Self { server, address, house }
    }

    fn patient() -> Self {
        Self::new(patient_limits())
    }
}

fn patient_limits() -> Limits {
    Limits {
        cookie: PATIENCE,
        parameters: PATIENCE,
        streams: PATIENCE,
        end: PATIENCE,
        results: PATIENCE,
        ..Limits::default()
    }
}

/// Polls until it holds.
fn until(awaited: &str, mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited for {awaited}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn mebibytes(n: u64) -> Bytes {
    Bytes(n << 20)
}
