//! The real listener on a real port, against peers of the worst kind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loadline::base::clock::{Clock, ManualClock};
use loadline::base::stats::Histogram;
use loadline::base::units::Seconds;
use loadline::model::metric::{Desc, Label, Point};
use loadline::model::snapshot::Snapshot;
use loadline::publish::Published;
use loadline::web::listen::{self, Limits};
use loadline::web::routes;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use tokio::sync::oneshot;

static READS: Desc =
    Desc::counter("loadline_disk_reads_completed_total", &["device"], "reads completed", "test");
static BUSY: Desc =
    Desc::histogram("loadline_disk_window_busy_ratio", &["device"], "share \\ of\ntime", "test");
static UP: Desc = Desc::gauge("loadline_sampler_up", &["sampler"], "whether it reads", "test");

const HEALTHY: &[u8] = b"GET /-/healthy HTTP/1.1\r\nHost: h\r\n\r\n";

/// Limits under which only the cap can help within a test's time.
fn patient() -> Limits {
    let long = Duration::from_secs(600);
    Limits { first_request: long, request: long, write: long, idle: long, ..Limits::default() }
}

/// A server on its own thread and port; dropping it stops it.
struct Site {
    address: SocketAddr,
    clock: ManualClock,
    published: Arc<Published>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Site {
    fn start(limits: Limits) -> Self {
        let clock = ManualClock::starting_at(1_700_000_000);
        let published = Arc::new(Published::new(Seconds(1.0)));
        let listener = listen::bind("127.0.0.1:0", "--listen").unwrap();
        let address = listener.local_addr().unwrap();
        let router = routes::router(Arc::clone(&published), Arc::new(clock.clone()));
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            listen::serve(vec![listener], router, limits, async {
                let _ = stopped.await;
            })
        };
        let thread = Some(std::thread::spawn(serve));
        Self { address, clock, published, stop: Some(stop), thread }
    }

    /// A site that has published `devices` disks.
    fn with_disks(devices: usize, limits: Limits) -> Self {
        let site = Self::start(limits);
        site.publish(devices);
        site
    }

    fn publish(&self, devices: usize) {
        let mut busy = Histogram::new(&[0.25, 0.5, 0.98]);
        busy.observe(0.3, 7);
        let busy = Arc::new(busy);
        let mut points = Vec::new();
        for i in 0..devices {
            let device = Label::from(format!("sd{i}"));
            points.push(Point::number(&READS, &[&device], i as f64));
            points.push(Point::histogram(&BUSY, &[&device], Arc::clone(&busy)));
        }
        let itself = vec![Point::number(&UP, &[&"disk".into()], 1.0)];
        let at = self.clock.now();
        self.published.publish(Snapshot { at, points, itself, ..Snapshot::default() });
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// A request as typed, and all that comes back until the server closes.
    fn raw(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str, headers: &str) -> String {
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}\r\n"))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// As Prometheus scrapes: a client of its own, a whole answer, within its own time-out.
    fn scrape(&self) -> Result<String, ureq::Error> {
        let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10)));
        let agent: ureq::Agent = config.build().into();
        let answer = agent.get(self.url("/metrics")).call()?;
        answer.into_body().into_with_config().limit(1 << 30).read_to_string()
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sockets of this process with `port` as their local end: the server's side of connections.
fn served_sockets(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!(":{port:04X}");
    let held = |line: &&str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        // An inode of 0 is a connection that nobody holds a descriptor of any more.
        columns[1].ends_with(&local) && columns[3] != "0A" && columns[9] != "0"
    };
    table.lines().skip(1).filter(held).count()
}

/// Looks again and again for `condition`; the time is only a bound for a broken build.
fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A small request on a connection that stays open.
fn ask(stream: &mut TcpStream) {
    stream.write_all(HEALTHY).unwrap();
    let mut answer = [0; 1024];
    let length = stream.read(&mut answer).unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 200"));
}

/// True when the server has ended the connection; reads away what it had sent before.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// A peer that asks for the page and takes next to nothing of it.
fn non_reader(site: &Site) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_recv_buffer_size(&socket, 2048).unwrap();
    connect(&socket, &site.address).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    stream
}

#[test]
fn five_hundred_bad_peers_do_not_cost_an_honest_scrape() {
    let mut site = Site::with_disks(10_000, patient());
    let mut peers = Vec::new();
    for i in 0..500 {
        peers.push(match i % 4 {
            0 => site.connect(),
            1 => {
                let mut dribbler = site.connect();
                dribbler.write_all(b"GET /met").unwrap();
                dribbler
            }
            2 => {
                let mut idle = site.connect();
                idle.write_all(HEALTHY).unwrap();
                idle
            }
            _ => non_reader(&site),
        });
        if i % 100 == 99 {
            // Dribblers go on dribbling; those whose seat is gone get an error.
            for mut dribbler in peers.iter().skip(1).step_by(4) {
                let _ = dribbler.write(b"r");
            }
            let page = site.scrape().unwrap();
            assert!(page.ends_with('\n') && page.contains("{device=\"sd9999\"} 9999\n"));
        }
    }
    let port = site.address.port();
    until("the cap", || served_sockets(port) <= patient().connections);
    drop(peers);
    until("giving back the descriptors", || served_sockets(port) == 0);
    assert!(site.scrape().is_ok());
    site.stop();
}

#[test]
fn each_kind_of_silence_ends_at_its_own_limit() {
    let short = Duration::from_millis(50);
    let off = patient();
    // Whether a request was answered before, and the part of the next that is sent.
    let cases: [(&str, Limits, bool, &str); 4] = [
        ("silent", Limits { first_request: short, ..off }, false, ""),
        ("dribbling", Limits { first_request: short, ..off }, false, "GET /metr"),
        ("idle", Limits { idle: short, ..off }, true, ""),
        ("dribbling later", Limits { request: short, ..off }, true, "GET /metr"),
    ];
    for (what, limits, answered, part) in cases {
        let site = Site::with_disks(1, limits);
        let mut peer = site.connect();
        if answered {
            ask(&mut peer);
        }
        peer.write_all(part.as_bytes()).unwrap();
        until(what, || is_closed(&peer));
    }
    let site = Site::with_disks(10_000, Limits { write: short, ..off });
    let peer = non_reader(&site);
    until("the answer to the non-reader", || served_sockets(site.address.port()) == 1);
    until("non-reading", || served_sockets(site.address.port()) == 0);
    drop(peer);
}

#[test]
fn a_connection_kept_alive_outlives_the_limit_of_a_request() {
    let short = Duration::from_millis(50);
    let site =
        Site::with_disks(1, Limits { first_request: short, request: short, ..Limits::default() });
    let mut kept = site.connect();
    let mut other = site.connect();
    ask(&mut kept);
    ask(&mut other);
    // The other shows that the limit has passed on this server, without a guess at time.
    other.write_all(b"GET /").unwrap();
    until("the limit of a request", || is_closed(&other));
    ask(&mut kept);
}

#[test]
fn the_least_active_connection_gives_way() {
    let site = Site::with_disks(1, Limits { connections: 2, ..Limits::default() });
    let (mut first, mut second) = (site.connect(), site.connect());
    ask(&mut first);
    ask(&mut second);
    ask(&mut first);
    let mut third = site.connect();
    ask(&mut third);
    until("giving way", || is_closed(&second));
    ask(&mut first);
}

#[test]
fn stopping_lets_an_answer_finish() {
    let long = Duration::from_secs(60);
    let mut site = Site::with_disks(10_000, Limits { stop: long, ..Limits::default() });
    let page = site.scrape().unwrap();
    let mut slow = site.connect();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut answer = vec![0; 1];
    slow.read_exact(&mut answer).unwrap();
    drop(site.stop.take());
    until("giving up the port", || TcpStream::connect(site.address).is_err());
    slow.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(page.as_bytes()));
    site.stop();
}

#[test]
fn stopping_waits_for_no_one_longer_than_its_limit() {
    let limits = Limits { stop: Duration::from_millis(200), ..Limits::default() };
    let mut site = Site::with_disks(10_000, limits);
    let silent = site.connect();
    let stuck = non_reader(&site);
    let mut idle = site.connect();
    ask(&mut idle);
    site.stop();
    assert!(is_closed(&idle) && is_closed(&silent));
    assert!(TcpListener::bind(site.address).is_ok(), "the port is free again");
    drop(stuck);
}

#[test]
fn gzip_holds_the_same_page() {
    let site = Site::with_disks(100, Limits::default());
    let plain = site.get("/metrics", "");
    let (head, body) = plain.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(head.contains("vary: accept-encoding"), "{head}");
    assert!(!head.contains("content-encoding"), "{head}");

    let mut stream = site.connect();
    let request =
        b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    assert!(String::from_utf8_lossy(&answer[..end]).contains("content-encoding: gzip"));
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(&answer[end + 4..]).read_to_string(&mut unpacked).unwrap();
    assert_eq!(unpacked, body);
}

#[test]
fn a_snapshot_that_grows_old_is_withheld_until_the_next() {
    let site = Site::with_disks(1, Limits::default());
    assert!(site.scrape().unwrap().contains("loadline_snapshot_stale 0\n"));
    site.clock.advance(Duration::from_secs(4));
    let stale = site.scrape().unwrap();
    assert!(stale.contains("loadline_snapshot_stale 1\n") && stale.contains("loadline_sampler_up"));
    assert!(!stale.contains("loadline_disk_"));
    site.publish(1);
    assert!(site.scrape().unwrap().contains("loadline_disk_reads_completed_total"));
}

#[test]
fn ready_follows_the_first_reading_and_healthy_does_not_wait() {
    let site = Site::start(Limits::default());
    assert!(site.get("/-/healthy", "").starts_with("HTTP/1.1 200"));
    assert!(site.get("/-/ready", "").starts_with("HTTP/1.1 503"));
    site.publish(1);
    assert!(site.get("/-/ready", "").starts_with("HTTP/1.1 200"));
}

#[test]
fn only_what_is_there_is_served_and_only_to_be_read() {
    let site = Site::with_disks(1, Limits::default());
    for path in ["/metrics/", "/-/reload", "/probe?target=/dev/sda", "/../etc/passwd", "/%00"] {
        assert!(site.get(path, "").starts_with("HTTP/1.1 404"), "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        let request = format!("{method} /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        assert!(site.raw(&request).starts_with("HTTP/1.1 405"), "{method}");
    }
    let head = site.raw("HEAD /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(head.contains("content-length: "), "{head}");
}

#[test]
fn every_answer_forbids_frames_scripts_guesses_and_caches() {
    let site = Site::with_disks(1, Limits::default());
    for path in ["/", "/metrics", "/-/healthy", "/-/ready", "/nowhere"] {
        let answer = site.get(path, "").to_ascii_lowercase();
        for header in [
            "x-content-type-options: nosniff\r\n",
            "x-frame-options: deny\r\n",
            "content-security-policy: default-src 'none'; style-src 'unsafe-inline'\r\n",
            "cache-control: no-store\r\n",
        ] {
            assert!(answer.contains(header), "{path}: {header}");
        }
    }
}

#[test]
fn what_is_no_request_is_refused_and_costs_nothing() {
    let site = Site::with_disks(1, Limits::default());
    let endless = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(200_000));
    for bad in ["\r\n\r\nnonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02", &endless]
    {
        let mut stream = site.connect();
        let _ = stream.write_all(bad.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        until("refusal", || is_closed(&stream));
    }
    assert!(site.scrape().is_ok());
}
