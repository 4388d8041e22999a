//! Peers that break the protocol, against our client: each a named reason, within its deadline.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loadline::base::units::Seconds;
use loadline::iperf::client::{self, Order, Patience, Watch};
use loadline::iperf::wire::framed;
use loadline::model::link::{
    LinkDirection, LinkFault, LinkInterval, LinkMeasured, LinkProfile, LinkReason,
};

use crate::{PATIENCE, Seen, mebibytes, patient, profile, watched};

/// A server that does as it is told with each connection, in order.
struct Fake {
    address: SocketAddr,
}

type Play = Arc<dyn Fn(usize, TcpStream) + Send + Sync>;

impl Fake {
    fn new(play: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let play: Play = Arc::new(play);
        std::thread::spawn(move || {
            for (n, socket) in listener.incoming().enumerate() {
                let (play, socket) = (Arc::clone(&play), socket.unwrap());
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                std::thread::spawn(move || play(n, socket));
            }
        });
        Self { address }
    }

    /// Says this once the cookie is there, and closes.
    fn saying(bytes: &'static [u8]) -> Self {
        Self::new(move |_, mut socket| {
            socket.read_exact(&mut [0; 37]).unwrap();
            let _ = socket.write_all(bytes);
        })
    }
}

fn hold(mut socket: TcpStream) {
    let _ = socket.read_to_end(&mut Vec::new());
}

fn message(socket: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut body).unwrap();
    body
}

fn fault(peer: SocketAddr, patience: Patience) -> LinkFault {
    let profile = LinkProfile { runtime: Seconds(0.05), ..profile() };
    let order = Order { addresses: &[peer], profile: &profile, identity: None, patience };
    client::run(&order, &mut Seen::default()).unwrap_err()
}

fn short() -> Patience {
    let short = Duration::from_millis(200);
    Patience { connect: PATIENCE, first_byte: short, step: short, results: short }
}

#[test]
fn silence_in_each_phase_is_a_timeout() {
    let quiet = Fake::new(|_, socket| hold(socket));
    let after_09 = Fake::new(|_, mut socket| {
        socket.write_all(&[9]).unwrap();
        hold(socket);
    });
    let after_0a = Fake::new(|n, mut socket| {
        if n == 0 {
            socket.write_all(&[9, 10]).unwrap();
        }
        hold(socket);
    });
    let no_results = Fake::new(|n, mut socket| {
        if n == 0 {
            socket.write_all(&[9, 10, 1, 2]).unwrap();
        }
        hold(socket);
    });
    for (name, fake, phase) in [
        ("a", &quiet, "handshake"),
        ("b", &after_09, "parameters"),
        ("c", &after_0a, "start"),
        ("d", &no_results, "results"),
    ] {
        let fault = fault(fake.address, short());
        assert_eq!(fault.reason, LinkReason::Timeout, "case 122 {name}: {fault}");
        assert!(fault.text.contains(phase), "case 122 {name}: {fault}");
    }
}

/// Stops once a peer has said all that it ever says.
struct UntilSilent(Arc<AtomicBool>);

impl Watch for UntilSilent {
    fn stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn began(&mut self, _: SocketAddr) {}

    fn interval(&mut self, _: &LinkInterval) {}
}

#[test]
fn a_client_stops_when_told_in_every_phase_and_not_when_patience_ends() {
    // What the peer says before it hears that the test is over, and what then.
    let phases: [(&[u8], &[u8]); 6] = [
        (&[], &[]),
        (&[9], &[]),
        (&[9, 10], &[]),
        (&[9, 10, 1], &[]),
        (&[9, 10, 1, 2], &[]),
        (&[9, 10, 1, 2], &[13]),
    ];
    for (said, then) in phases {
        let silent = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&silent);
        let fake = Fake::new(move |n, mut socket| {
            if n == 0 {
                socket.read_exact(&mut [0; 37]).unwrap();
                socket.write_all(said).unwrap();
                if said.contains(&2) {
                    message(&mut socket);
                    socket.read_exact(&mut [0]).unwrap();
                    socket.write_all(then).unwrap();
                }
                tell.store(true, Ordering::Release);
            }
            hold(socket);
        });
        let profile = LinkProfile { runtime: Seconds(0.05), ..profile() };
        let patience = patient();
        let addresses = &[fake.address];
        let order = Order { addresses, profile: &profile, identity: None, patience };
        let fault = client::run(&order, &mut UntilSilent(silent)).unwrap_err();
        assert_eq!(fault.reason, LinkReason::Stopped, "{said:?} {then:?}: {fault}");
    }
}

#[test]
fn a_client_that_has_sent_all_its_bytes_and_awaits_the_peers_still_stops_when_told() {
    let fake = Fake::new(|n, mut socket| {
        if n == 0 {
            socket.write_all(&[9, 10, 1, 2]).unwrap();
        }
        hold(socket);
    });
    let direction = LinkDirection::Both;
    let bytes_max = Some(mebibytes(1));
    let asked = LinkProfile { direction, bytes_max, runtime: Seconds(600.0), ..profile() };
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut seen = Seen { stop_after: Some(1), ..Seen::default() };
        tell.send(watched(fake.address, &asked, &mut seen)).unwrap();
    });
    let fault = told.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(fault.reason, LinkReason::Stopped, "{fault}");
}

#[test]
fn a_client_that_gives_up_says_so() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let fake = Fake::new(move |_, mut socket| {
        socket.write_all(&[9]).unwrap();
        socket.read_exact(&mut [0; 37]).unwrap();
        message(&mut socket);
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).unwrap();
        tell.lock().unwrap().send(rest).unwrap();
    });
    fault(fake.address, short());
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), [12], "CLIENT_TERMINATE and nothing else");
}

#[test]
fn nobody_there_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(fault(address, patient()).reason, LinkReason::Refused);
}

#[test]
fn a_way_that_leads_nowhere_is_a_timeout() {
    // A full queue drops SYNs, as a firewall does.
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let full = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&full, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&full, 0).unwrap();
    let full = TcpListener::from(full);
    let address = full.local_addr().unwrap();
    let soon = Duration::from_millis(200);
    let mut fill = Vec::new();
    while let Ok(socket) = TcpStream::connect_timeout(&address, soon) {
        fill.push(socket);
        assert!(fill.len() < 20, "the queue never fills");
    }
    let fault = fault(address, Patience { connect: soon, ..patient() });
    assert_eq!(fault.reason, LinkReason::Timeout, "case 122 d: {fault}");
}

#[test]
fn what_a_server_says_of_itself_is_the_reason() {
    let cases: [(&'static [u8], LinkReason, &str); 15] = [
        (&[0xff], LinkReason::Busy, "busy"),
        (&[9, 0xff], LinkReason::Busy, "busy"),
        (&[0xfe, 0, 0, 0, 121, 0, 0, 0, 0], LinkReason::Busy, "busy"),
        // 3.12 to 3.18 send one word, 3.19 both.
        (&[9, 0xfe, 0, 0, 0, 0x8e], LinkReason::Denied, "error 142"),
        (&[9, 0xfe, 0, 0, 0, 0x8e, 0, 0, 0, 1], LinkReason::Denied, "errno 1"),
        (&[9, 0xfe, 0, 0, 0, 0x8d, 0, 0, 0, 0], LinkReason::Denied, "window"),
        (&[9, 0xfe, 0, 0, 0, 27, 0, 0, 0, 0], LinkReason::Denied, "limit"),
        (&[9, 0xfe, 0, 0, 0, 0x78, 0, 0, 0, 0x6e], LinkReason::Protocol, "error 120, errno 110"),
        (&[9, 0xfe], LinkReason::Protocol, "without a number"),
        (&[9, 0x0b], LinkReason::Protocol, "stopped"),
        (&[9, 0x07], LinkReason::Protocol, "byte 0x07"),
        (&[9, 0x0d], LinkReason::Protocol, "ExchangeResults in place of CreateStreams"),
        // An iperf2 server that thinks it is tested.
        (&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x13, 0x89], LinkReason::Protocol, "byte 0x00"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", LinkReason::Protocol, "no iperf3 answers there"),
        (b"\x15\x03\x01\x00\x02\x02\x46", LinkReason::Protocol, "no iperf3 answers there"),
    ];
    for (bytes, reason, text) in cases {
        let fault = fault(Fake::saying(bytes).address, patient());
        assert_eq!(fault.reason, reason, "{bytes:?}: {fault}");
        assert!(fault.text.contains(text), "{bytes:?}: {fault}");
    }
    let nothing = fault(Fake::saying(b"").address, patient());
    assert_eq!(nothing.reason, LinkReason::Protocol, "{nothing}");
}

#[test]
fn busy_is_heard_before_the_reset_that_follows_it() {
    // The cookie is left unread: closing resets, as stock servers do.
    let said = Fake::new(|_, mut socket| {
        socket.peek(&mut [0]).unwrap();
        socket.write_all(&[0xff]).unwrap();
    });
    let only_reset = Fake::new(|_, socket| {
        socket.peek(&mut [0]).unwrap();
    });
    for fake in [said, only_reset] {
        for _ in 0..20 {
            let fault = fault(fake.address, patient());
            assert_eq!(fault.reason, LinkReason::Busy, "{fault}");
        }
    }
}

/// A whole server for one stream that answers with these results.
fn answering(results: String) -> Fake {
    Fake::new(move |n, mut socket| {
        if n > 0 {
            return hold(socket);
        }
        socket.read_exact(&mut [0; 37]).unwrap();
        socket.write_all(&[9]).unwrap();
        message(&mut socket);
        socket.write_all(&[10, 1, 2]).unwrap();
        let mut end = [0];
        socket.read_exact(&mut end).unwrap();
        assert_eq!(end, [4]);
        socket.write_all(&[13]).unwrap();
        message(&mut socket);
        let mut answer = framed(&results);
        answer.push(14);
        socket.write_all(&answer).unwrap();
        hold(socket);
    })
}

fn results(streams: &str) -> String {
    format!(
        r#"{{"cpu_util_total":1,"cpu_util_user":0,"cpu_util_system":1,
        "sender_has_retransmits":18446744073709551615,"streams":[{streams}]}}"#
    )
}

fn tested(fake: &Fake) -> Result<LinkMeasured, LinkFault> {
    let asked = LinkProfile { runtime: Seconds(0.05), ..profile() };
    watched(fake.address, &asked, &mut Seen::default())
}

#[test]
fn a_rate_is_the_receivers_bytes_over_the_receivers_time() {
    let stream = r#"{"id":1,"bytes":125000000,"retransmits":18446744073709551615,
        "jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":2.5}"#;
    let flow = tested(&answering(results(stream))).unwrap().forward.unwrap();
    assert_eq!(flow.rate().unwrap().0, 5e7);
    // 3.1 doesn't tell its time, and a clock that was set in the test tells nonsense: ours has to do.
    let old = r#"{"id":1,"bytes":125000000,"retransmits":-1}"#.to_owned();
    let set = |from: &str, to: &str| {
        old.replace('}', &format!(",\"start_time\":{from},\"end_time\":{to}}}"))
    };
    for stream in [old.clone(), set("0", "-3600"), set("0", "1e9"), set("3600", "5"), set("0", "0")]
    {
        let flow = tested(&answering(results(&stream))).unwrap().forward.unwrap();
        assert_eq!(flow.receiver_time, flow.sender_time, "{stream}");
    }
}

#[test]
fn results_without_sense_are_a_fault_and_no_number() {
    let zero = r#"{"id":1,"bytes":0,"retransmits":-1}"#;
    let other = r#"{"id":2,"bytes":5,"retransmits":-1}"#;
    let below = r#"{"id":1,"bytes":-5,"retransmits":-1}"#;
    for (bad, text) in [
        (results(zero), "no byte arrived"),
        (results(other), "stream 1"),
        (results(below), "bytes"),
        (results(""), "stream 1"),
        ("{}".into(), "missing"),
        ("[]".into(), "object"),
        (results(zero).replace("streams", "smaerts"), "streams"),
    ] {
        let fault = tested(&answering(bad.clone())).unwrap_err();
        assert_eq!(fault.reason, LinkReason::Protocol, "{bad}: {fault}");
        assert!(fault.text.contains(text), "{bad}: {fault}");
    }
}

#[test]
fn oversized_results_are_refused_by_their_length() {
    let fake = Fake::new(|n, mut socket| {
        if n == 0 {
            socket.write_all(&[9, 10, 1, 2]).unwrap();
            let mut all = [0; 37];
            socket.read_exact(&mut all).unwrap();
            message(&mut socket);
            socket.read_exact(&mut [0]).unwrap();
            socket.write_all(&[13, 0x7f, 0xff, 0xff, 0xff]).unwrap();
        }
        hold(socket);
    });
    let fault = tested(&fake).unwrap_err();
    assert!(fault.reason == LinkReason::Protocol && fault.text.contains("bytes"), "{fault}");
}

#[test]
fn a_peer_that_dies_in_the_test_is_seen_at_once() {
    for direction in [LinkDirection::Forward, LinkDirection::Reverse, LinkDirection::Both] {
        let fake = Fake::new(|n, mut socket| {
            if n == 0 {
                socket.write_all(&[9, 10, 1, 2]).unwrap();
                return hold(socket);
            }
            // A data connection that ends while the control connection stays.
            socket.read_exact(&mut [0; 37]).unwrap();
        });
        let asked = LinkProfile { runtime: Seconds(3600.0), direction, ..profile() };
        let fault = watched(fake.address, &asked, &mut Seen::default()).unwrap_err();
        assert_eq!(fault.reason, LinkReason::Protocol, "{fault}");
        assert!(fault.text.contains("data connection"), "{fault}");
    }
}

#[test]
fn what_no_server_takes_is_refused_before_anything_is_sent() {
    let asked = LinkProfile { block: Some(mebibytes(2)), ..profile() };
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let fault = watched(nobody, &asked, &mut Seen::default()).unwrap_err();
    assert!(fault.text.contains("block"), "{fault}");
}

#[test]
fn a_peer_that_was_away_for_a_moment_is_asked_again() {
    // Stock servers close their port between two tests: whoever waits there is reset.
    let fake = Fake::new(|n, mut socket| {
        if n == 0 {
            socket.peek(&mut [0]).unwrap();
            return;
        }
        socket.read_exact(&mut [0; 37]).unwrap();
        socket.write_all(&[0xfe, 0, 0, 0, 0x8e]).unwrap();
    });
    assert_eq!(fault(fake.address, patient()).reason, LinkReason::Denied);
}

#[test]
fn a_sender_that_is_told_late_is_read_to_its_end() {
    // In reverse the server still sends when the client ends the test; it closes the data
    // connection before it says anything, and can't while its data isn't taken.
    let (tell, sent) = std::sync::mpsc::channel();
    let (tell, sent) = (std::sync::Mutex::new(tell), std::sync::Mutex::new(sent));
    let fake = Fake::new(move |n, mut socket| {
        socket.read_exact(&mut [0; 37]).unwrap();
        if n > 0 {
            socket.write_all(&vec![7; 64 << 20]).unwrap();
            return tell.lock().unwrap().send(()).unwrap();
        }
        socket.write_all(&[9]).unwrap();
        message(&mut socket);
        socket.write_all(&[10, 1, 2]).unwrap();
        let mut end = [0];
        socket.read_exact(&mut end).unwrap();
        sent.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        socket.write_all(&[13]).unwrap();
        let own = String::from_utf8(message(&mut socket)).unwrap();
        assert!(own.contains(r#""sender_has_retransmits":-1"#), "{own}");
        let mut answer = framed(&results(r#"{"id":1,"bytes":67108864,"retransmits":3}"#));
        answer.push(14);
        socket.write_all(&answer).unwrap();
        hold(socket);
    });
    let direction = LinkDirection::Reverse;
    let asked = LinkProfile { runtime: Seconds(0.001), direction, ..profile() };
    match watched(fake.address, &asked, &mut Seen::default()) {
        Ok(measured) => assert_eq!(measured.reverse.unwrap().retransmits, Some(3)),
        // So short a test may end before anything came.
        Err(fault) => assert!(fault.text.contains("no byte arrived"), "{fault}"),
    }
}

#[test]
fn data_connections_that_are_reset_at_the_end_are_no_fault_and_were_looked_at_before() {
    // A stock server closes them with data unread, and says only then that it is time for results.
    let (close, closing) = std::sync::mpsc::channel::<()>();
    let (tell, closed) = std::sync::mpsc::channel();
    let (close, tell) = (std::sync::Mutex::new(Some(close)), std::sync::Mutex::new(tell));
    let (closing, closed) = (std::sync::Mutex::new(closing), std::sync::Mutex::new(closed));
    let fake = Fake::new(move |n, mut socket| {
        socket.read_exact(&mut [0; 37]).unwrap();
        if n > 0 {
            let _ = closing.lock().unwrap().recv_timeout(PATIENCE);
            drop(socket);
            return tell.lock().unwrap().send(()).unwrap();
        }
        socket.write_all(&[9]).unwrap();
        message(&mut socket);
        socket.write_all(&[10, 1, 2]).unwrap();
        socket.read_exact(&mut [0]).unwrap();
        drop(close.lock().unwrap().take());
        closed.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        socket.write_all(&[13]).unwrap();
        message(&mut socket);
        let stream = r#"{"id":1,"bytes":1000,"retransmits":-1}"#;
        socket.write_all(&[framed(&results(stream)), vec![14]].concat()).unwrap();
        hold(socket);
    });
    let flow = tested(&fake).unwrap().forward.unwrap();
    assert!(
        flow.retransmits.is_some() && flow.congestion.is_some() && flow.rtt.is_some(),
        "{flow:?}"
    );
}

/// Opens a port that was shut when a client comes for the second time.
struct Opens {
    asked: std::cell::Cell<u32>,
    port: TcpListener,
}

impl Watch for Opens {
    fn stopped(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        if self.asked.get() == 2 {
            rustix::net::listen(&self.port, 8).unwrap();
        }
        false
    }

    fn began(&mut self, _: SocketAddr) {}

    fn interval(&mut self, _: &LinkInterval) {}
}

#[test]
fn a_port_that_is_shut_for_a_moment_is_tried_again() {
    // Stock servers open theirs anew between parameters and streams.
    use rustix::net::{AddressFamily, SocketType, bind, socket};
    let shut = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&shut, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = TcpListener::from(shut);
    let address = port.local_addr().unwrap();
    let server = port.try_clone().unwrap();
    let mut watch = Opens { asked: Default::default(), port };
    let patience = Patience { first_byte: Duration::from_millis(200), ..patient() };
    let asked = profile();
    let order = Order { addresses: &[address], profile: &asked, identity: None, patience };
    // Nobody answers behind the port, which is more than being refused.
    assert_eq!(client::run(&order, &mut watch).unwrap_err().reason, LinkReason::Timeout);
    drop(server);
}
