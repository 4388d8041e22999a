//! Debian's iperf3 at the other end.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use loadline::base::units::{Bytes, Rate, Seconds};
use loadline::iperf::client::{self, Order, Watch};
use loadline::iperf::server::Admit;
use loadline::model::link::{
    LinkDirection, LinkFault, LinkInterval, LinkMeasured, LinkProfile, LinkReason,
};
use serde_json::Value;

use crate::{Ours, installed, mebibytes, patient, profile, test, until};

/// `iperf3 -s` on a port of its own.
pub(crate) struct Stock {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stock {
    pub(crate) fn new(more: &[&str]) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut child = Command::new("iperf3")
            .args(["-s", "--forceflush", "-p", &address.port().to_string()])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // A connection would do too, and leave the server waiting for its cookie.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = lines.any(|line| line.is_ok_and(|line| line.contains("listening")));
        assert!(listening, "iperf3 -s did not start");
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }
}

/// Our client asks a stock server for everything there is.
#[test]
fn our_client_and_a_stock_server_agree() {
    if !installed("iperf3") {
        return;
    }
    let stock = Stock::new(&[]);
    use LinkDirection::{Both, Reverse};
    // On a busy host a thread may wait for its first turn that long.
    let long = Seconds(4.0);
    let cases: [(&str, LinkProfile); 10] = [
        ("-P 1", profile()),
        ("-P 4 -C cubic", LinkProfile { streams: 4, congestion: cubic(), ..profile() }),
        ("-P 128", LinkProfile { streams: 128, runtime: long, ..profile() }),
        ("-R -C cubic", LinkProfile { direction: Reverse, congestion: cubic(), ..profile() }),
        ("-R -P 128", LinkProfile { direction: Reverse, streams: 128, runtime: long, ..profile() }),
        ("--bidir -P 4", LinkProfile { direction: Both, streams: 4, ..profile() }),
        ("--bidir -P 1", LinkProfile { direction: Both, ..profile() }),
        ("-O 1", LinkProfile { omit: Seconds(1.0), ..profile() }),
        (
            "-l 4k -w 64k",
            LinkProfile { block: Some(Bytes(4096)), window: Some(Bytes(65536)), ..profile() },
        ),
        (
            "-R -O 1 -b 80M",
            LinkProfile {
                direction: Reverse,
                omit: Seconds(1.0),
                pacing: Some(Rate(1e7)),
                ..profile()
            },
        ),
    ];
    for (name, asked) in cases {
        let measured =
            test(stock.address, &asked).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let streams = asked.streams as usize;
        for (wanted, flow) in [
            (asked.direction.forward(), &measured.forward),
            (asked.direction.reverse(), &measured.reverse),
        ] {
            assert_eq!(wanted, flow.is_some(), "{name}");
            let Some(flow) = flow else { continue };
            assert_eq!(flow.streams.len(), streams, "{name}");
            assert!(flow.received.0 > 0 && flow.receiver_time.0 > 0.0, "{name}: {flow:?}");
            assert!(flow.retransmits.is_some(), "{name}: senders count on both ends");
            assert!(
                flow.streams.iter().filter(|s| s.received.0 > 0).count() * 2 > streams,
                "{name}: most streams moved"
            );
        }
        if asked.congestion.is_some() {
            let flow = measured.forward.or(measured.reverse).unwrap();
            assert_eq!(flow.congestion.as_deref(), Some("cubic"), "{name}");
        }
        assert_eq!(measured.identity, None, "a stock server is no loadline");
    }
}

fn cubic() -> Option<String> {
    Some("cubic".into())
}

#[test]
fn our_client_ends_a_test_of_a_stock_server_by_bytes() {
    if !installed("iperf3") {
        return;
    }
    let stock = Stock::new(&[]);
    for direction in [LinkDirection::Forward, LinkDirection::Reverse, LinkDirection::Both] {
        for omit in [0.0, 1.0] {
            let bytes_max = Some(mebibytes(20));
            let (omit, runtime) = (Seconds(omit), Seconds(60.0));
            let asked = LinkProfile { direction, bytes_max, omit, runtime, ..profile() };
            let measured = test(stock.address, &asked).unwrap();
            if let Some(flow) = &measured.forward {
                let most = mebibytes(if omit.0 > 0.0 { 21 } else { 20 });
                assert!((mebibytes(20)..=most).contains(&flow.sent), "{direction:?}: {flow:?}");
            }
            if let Some(flow) = &measured.reverse {
                assert!(flow.received >= mebibytes(20), "{direction:?}");
            }
        }
    }
}

/// `.error` and the document; 3.12 exits with 0 either way.
pub(crate) fn stock_client(address: SocketAddr, more: &[&str]) -> (Option<String>, Value) {
    let output = Command::new("iperf3")
        .args(["-J", "-c", "127.0.0.1", "-p", &address.port().to_string()])
        .args(more)
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{more:?}: {error}: {output:?}"));
    (document["error"].as_str().map(str::to_owned), document)
}

#[test]
fn a_stock_client_and_our_server_agree() {
    if !installed("iperf3") {
        return;
    }
    let ours = Ours::patient();
    let cases: [&[&str]; 10] = [
        &["-t", "1"],
        &["-t", "1", "-P", "4", "-C", "cubic"],
        &["-t", "1", "-P", "128"],
        &["-t", "1", "-R", "-C", "cubic"],
        &["-t", "1", "-R", "-P", "128"],
        &["-t", "1", "--bidir", "-P", "4"],
        &["-t", "1", "-O", "1", "-b", "80M"],
        &["-t", "1", "-l", "4k", "-w", "64k", "-N"],
        &["-n", "20M", "-P", "2"],
        &["-n", "20M", "-R"],
    ];
    for more in cases {
        let (error, document) = stock_client(ours.address, more);
        assert_eq!(error, None, "{more:?}");
        let end = &document["end"];
        assert!(end["sum_received"]["bytes"].as_u64() > Some(0), "{more:?}: {end}");
        assert!(end["sum_sent"]["retransmits"].is_u64(), "{more:?}: {end}");
        if more.contains(&"--bidir") {
            assert!(end["sum_received_bidir_reverse"]["bytes"].as_u64() > Some(0), "{end}");
            assert!(end["sum_sent_bidir_reverse"]["retransmits"].is_u64(), "{end}");
        }
        if more.contains(&"cubic") {
            assert_eq!(end["sender_tcp_congestion"], "cubic", "{more:?}");
        }
        if more.contains(&"-O") {
            let counted = end["sum_received"]["seconds"].as_f64().unwrap();
            let rate = end["sum_received"]["bits_per_second"].as_f64().unwrap();
            assert!(counted < 1.9 && rate < 100e6, "the omitted second is not counted: {end}");
        }
    }
    assert_eq!(ours.server.counts().get(&None), Some(&10));
}

#[test]
fn a_stock_client_is_refused_in_words_that_it_knows() {
    if !installed("iperf3") {
        return;
    }
    let ours = Ours::patient();
    let said = |more: &[&str]| stock_client(ours.address, more).0.unwrap_or_default();
    assert!(said(&["-u", "-t", "1"]).contains("not implemented"), "{}", said(&["-u"]));
    assert!(said(&["-t", "3600"]).contains("int_errno=37"), "{}", said(&["-t", "3600"]));
    assert!(
        said(&["-t", "1", "-B", "127.0.0.99"]).contains("authorization"),
        "{}",
        said(&["-t", "1", "-B", "127.0.0.99"])
    );
    // The slot of the test before may be free a moment after its client has gone.
    let mut turn = None;
    until("the slot", || {
        turn = ours.house.turn();
        turn.is_some()
    });
    assert!(said(&["-t", "1"]).contains("busy"), "{}", said(&["-t", "1"]));
}

/// Says when the test has begun, and ends it when told.
struct Telling {
    tell: Sender<()>,
    stop: Arc<AtomicBool>,
}

impl Watch for Telling {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn began(&mut self, _: SocketAddr) {
        let _ = self.tell.send(());
    }

    fn interval(&mut self, _: &LinkInterval) {}
}

/// Runs `meanwhile` in the midst of a test that would take a minute; it says whether to end that.
fn amid(peer: SocketAddr, meanwhile: impl FnOnce() -> bool) -> Result<LinkMeasured, LinkFault> {
    let (tell, began) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let mut watch = Telling { tell, stop: Arc::clone(&stop) };
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let profile = LinkProfile { streams: 2, runtime: Seconds(60.0), ..profile() };
            let order = Order {
                addresses: &[peer],
                profile: &profile,
                identity: None,
                patience: patient(),
            };
            client::run(&order, &mut watch)
        });
        let begun = began.recv();
        let ends = begun.is_err() || meanwhile();
        stop.store(ends, Ordering::Release);
        client.join().unwrap()
    })
}

#[test]
fn a_busy_stock_server_is_busy_and_nothing_else() {
    if !installed("iperf3") {
        return;
    }
    let stock = Stock::new(&[]);
    let ended = amid(stock.address, || {
        for _ in 0..10 {
            let fault = test(stock.address, &profile()).unwrap_err();
            assert_eq!(fault.reason, LinkReason::Busy, "{fault}");
        }
        true
    });
    assert_eq!(ended.unwrap_err().reason, LinkReason::Stopped);
}

#[test]
fn a_stock_server_that_is_killed_in_a_test_is_a_fault_and_no_number() {
    if !installed("iperf3") {
        return;
    }
    for (signal, text) in [("-INT", "stopped"), ("-KILL", "closed")] {
        let stock = Stock::new(&[]);
        let pid = stock.child.id().to_string();
        let ended = amid(stock.address, || {
            assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
            false
        });
        let fault = ended.unwrap_err();
        assert_eq!(fault.reason, LinkReason::Protocol, "{signal}: {fault}");
        assert!(fault.text.contains(text), "{signal}: {fault}");
    }
}

#[test]
fn a_stock_client_that_is_killed_in_a_test_frees_the_slot() {
    if !installed("iperf3") {
        return;
    }
    let ours = Ours::patient();
    for signal in ["-INT", "-KILL"] {
        let mut stock = Command::new("iperf3")
            .args(["-c", "127.0.0.1", "-t", "30", "-R", "-p", &ours.address.port().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the test", || ours.house.taken.load(Ordering::Acquire));
        let pid = stock.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        stock.wait().unwrap();
        until("the slot", || !ours.house.taken.load(Ordering::Acquire));
    }
    test(ours.address, &profile()).unwrap();
}
