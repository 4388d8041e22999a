//! Peers that break the protocol, against our client: each a named reason, within its deadline.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use loadline::base::units::Seconds;
use loadline::iperf::client::{self, Order, Patience, Watch};
use loadline::model::link::{LinkDirection, LinkInterval, LinkProfile, LinkReason};

use crate::fake::{Fake, fault, hold, message, short};
use crate::{PATIENCE, Seen, mebibytes, patient, profile, watched};

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
