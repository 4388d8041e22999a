//! Both halves are loadline's.

use loadline::base::units::{Rate, Ratio, Seconds};
use loadline::model::link::{LinkDirection, LinkFlow, LinkProfile, LinkReason};

use crate::{Ours, Seen, mebibytes, profile, test, watched};

fn whole(flow: &LinkFlow, streams: usize) {
    assert_eq!(flow.streams.len(), streams);
    assert!(flow.received.0 > 0 && flow.received <= flow.sent, "{flow:?}");
    let sum = |of: fn(&loadline::model::link::LinkStream) -> u64| {
        flow.streams.iter().map(of).sum::<u64>()
    };
    assert_eq!((sum(|s| s.sent.0), sum(|s| s.received.0)), (flow.sent.0, flow.received.0));
    assert!(flow.retransmits.is_some() && flow.retransmit_ratio.is_some(), "{flow:?}");
    let rtt = flow.rtt.unwrap();
    assert!(rtt.min.0 <= rtt.median.0 && rtt.median.0 <= rtt.p99.0 && rtt.min.0 > 0.0);
    let share = |ratio: Option<Ratio>| (0.0..=1.0).contains(&ratio.unwrap().0);
    assert!(share(flow.busy) && share(flow.rwnd_limited) && share(flow.sndbuf_limited));
    assert!(flow.mss.is_some() && flow.congestion.is_some());
}

#[test]
fn each_direction_has_what_its_sender_knows() {
    let ours = Ours::patient();
    for direction in [LinkDirection::Forward, LinkDirection::Reverse, LinkDirection::Both] {
        let asked = LinkProfile { streams: 2, direction, ..profile() };
        let measured = test(ours.address, &asked).unwrap();
        assert_eq!(measured.forward.is_some(), direction.forward());
        assert_eq!(measured.reverse.is_some(), direction.reverse());
        measured.forward.iter().chain(&measured.reverse).for_each(|flow| whole(flow, 2));
        let theirs = measured.identity.as_ref().unwrap();
        assert_eq!((theirs.boot_id.as_str(), theirs.line.sends), ("far", Some(Rate(125e6))));
    }
    assert_eq!(ours.server.counts().get(&None), Some(&3));
}

#[test]
fn ids_skip_two_and_both_directions_are_never_mixed() {
    let ours = Ours::patient();
    let asked = LinkProfile { streams: 4, direction: LinkDirection::Both, ..profile() };
    let measured = test(ours.address, &asked).unwrap();
    let ids = |flow: &Option<LinkFlow>| -> Vec<u32> {
        flow.as_ref().unwrap().streams.iter().map(|s| s.id).collect()
    };
    assert_eq!(ids(&measured.forward), [1, 3, 4, 5]);
    assert_eq!(ids(&measured.reverse), [6, 7, 8, 9]);
}

#[test]
fn a_byte_bound_is_met_to_the_byte_where_it_can_be() {
    let ours = Ours::patient();
    for direction in [LinkDirection::Forward, LinkDirection::Reverse, LinkDirection::Both] {
        let bytes_max = Some(mebibytes(7));
        let asked =
            LinkProfile { streams: 3, direction, bytes_max, runtime: Seconds(60.0), ..profile() };
        let measured = test(ours.address, &asked).unwrap();
        for flow in measured.forward.iter().chain(&measured.reverse) {
            assert_eq!((flow.sent, flow.received), (mebibytes(7), mebibytes(7)), "{direction:?}");
        }
    }
}

#[test]
fn a_tiny_test_arrives_whole() {
    let ours = Ours::patient();
    let bytes_max = Some(loadline::base::units::Bytes(10 << 10));
    let measured = test(ours.address, &LinkProfile { bytes_max, ..profile() }).unwrap();
    assert_eq!(measured.forward.unwrap().received.0, 10 << 10, "case 125: never 0 of 10 KiB");
}

#[test]
fn the_omitted_time_is_in_no_number() {
    let ours = Ours::patient();
    let pacing = Some(Rate(20e6));
    let asked = LinkProfile { omit: Seconds(1.0), pacing, ..profile() };
    let mut seen = Seen::default();
    let measured = watched(ours.address, &asked, &mut seen).unwrap();
    let (omitted, counted): (Vec<_>, Vec<_>) = seen.intervals.iter().partition(|i| i.omitted);
    assert!(!omitted.is_empty() && !counted.is_empty());
    assert_eq!(counted[0].start, Seconds(0.0), "the clock of the intervals starts again");
    let flow = measured.forward.unwrap();
    let sum: u64 = counted.iter().map(|i| i.sum(true).0.0).sum();
    assert!(sum <= flow.sent.0, "{sum} {}", flow.sent.0);
    let all = sum + omitted.iter().map(|i| i.sum(true).0.0).sum::<u64>();
    assert!(flow.sent.0 < all, "the omitted bytes are left out");
    assert!(flow.receiver_time.0 < flow.sender_time.0 + 0.9, "{flow:?}");
}

#[test]
fn a_paced_stream_stays_under_its_rate_in_both_directions() {
    let ours = Ours::patient();
    for direction in [LinkDirection::Forward, LinkDirection::Reverse] {
        let pacing = Some(Rate(5e6));
        let asked = LinkProfile { direction, pacing, omit: Seconds(1.0), ..profile() };
        let measured = test(ours.address, &asked).unwrap();
        let flow = measured.forward.or(measured.reverse).unwrap();
        assert!(flow.rate().unwrap().0 < 7e6, "{direction:?}: {:?}", flow.rate());
    }
}

#[test]
fn congestion_control_is_set_on_the_sender_whichever_end_that_is() {
    let ours = Ours::patient();
    for direction in [LinkDirection::Forward, LinkDirection::Reverse] {
        for name in ["cubic", "reno"] {
            let congestion = Some(name.to_owned());
            let runtime = Seconds(0.1);
            let asked = LinkProfile { direction, congestion, runtime, ..profile() };
            let measured = test(ours.address, &asked).unwrap();
            let flow = measured.forward.or(measured.reverse).unwrap();
            assert_eq!(flow.congestion.as_deref(), Some(name), "{direction:?}");
        }
    }
    let congestion = Some("nosuch".to_owned());
    let fault = test(ours.address, &LinkProfile { congestion, ..profile() }).unwrap_err();
    assert_eq!(fault.reason, LinkReason::Denied, "{fault}");
}

#[test]
fn tests_follow_each_other_without_a_pause() {
    let ours = Ours::patient();
    for n in 0..20 {
        let asked = LinkProfile { runtime: Seconds(0.02), ..profile() };
        test(ours.address, &asked).unwrap_or_else(|fault| panic!("test {n}: {fault}"));
    }
}

#[test]
fn a_client_that_is_stopped_frees_the_server_at_once() {
    let ours = Ours::patient();
    let mut seen = Seen { stop_after: Some(1), ..Seen::default() };
    let asked = LinkProfile { runtime: Seconds(60.0), ..profile() };
    let fault = watched(ours.address, &asked, &mut seen).unwrap_err();
    assert_eq!(fault.reason, LinkReason::Stopped);
    crate::until("the slot", || {
        test(ours.address, &LinkProfile { runtime: Seconds(0.02), ..profile() }).is_ok()
    });
}

#[test]
fn a_server_that_stops_tells_its_client() {
    let ours = Ours::patient();
    let address = ours.address;
    let asked = LinkProfile { runtime: Seconds(60.0), ..profile() };
    std::thread::scope(|scope| {
        let client = scope.spawn(move || test(address, &asked));
        crate::until("the test to run", || {
            ours.house.taken.load(std::sync::atomic::Ordering::Acquire)
        });
        drop(ours);
        let fault = client.join().unwrap().unwrap_err();
        assert!(fault.reason == LinkReason::Protocol && fault.text.contains("stopped"), "{fault}");
    });
}

#[test]
fn a_server_cuts_a_test_at_its_byte_limit() {
    let limits = loadline::iperf::server::Limits {
        bytes_max: mebibytes(4),
        ..loadline::iperf::server::Limits::default()
    };
    let ours = Ours::new(limits);
    let asked = LinkProfile { runtime: Seconds(30.0), ..profile() };
    let fault = test(ours.address, &asked).unwrap_err();
    assert_eq!(fault.reason, LinkReason::Denied, "{fault}");
}
