//! Our client stops when it is told, whatever its peer does.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use loadline::base::units::Seconds;
use loadline::iperf::client::{self, Order, Watch};
use loadline::model::link::{LinkDirection, LinkInterval, LinkProfile, LinkReason};

use crate::fake::{Fake, hold, message};
use crate::{PATIENCE, Seen, mebibytes, patient, profile, watched};

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
