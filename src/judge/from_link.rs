//! Facts of a link run of our own, from what both ends counted.

use super::facts::{CpuFacts, DeviceFacts, Facts, LinkFacts, SecondLeg, Subject};
use crate::base::units::{Rate, Ratio};
use crate::model::link::{LinkCpu, LinkFlow, LinkMeasured};
use crate::model::path::DeclaredPath;
use crate::model::way::PeerWay;
use crate::probe::cpu::Shares;

/// A finished run in one direction, and all that is known around it.
#[derive(Clone, Copy, Debug)]
pub struct LinkRun<'a> {
    pub measured: &'a LinkMeasured,
    /// The peer sent; else this host did.
    pub reverse: bool,
    /// The same with twice the streams.
    pub second: Option<&'a LinkMeasured>,
    pub way: &'a PeerWay,
    pub path: &'a DeclaredPath,
    /// Of this host's CPUs meanwhile.
    pub cpus: Option<&'a Shares>,
    /// What others moved in that direction while it was quiet.
    pub foreign: Option<Rate>,
}

/// One thread at its end and several that happen to use as much together look the same up to here.
const ONE_THREAD: f64 = 1.05;

/// The facts of a run; `None` where nothing moved in that direction.
pub fn link(run: &LinkRun<'_>) -> Option<Facts> {
    let LinkRun { measured, reverse, second, way, .. } = *run;
    let flow = flow_of(measured, reverse)?;
    let rate = flow.rate()?;
    let streams = measured.profile.streams;
    let line = if reverse { &way.receive } else { &way.transmit };
    let second_leg = second.and_then(|second| {
        Some(SecondLeg {
            depth: Some(f64::from(second.profile.streams)),
            rate_per_second: flow_of(second, reverse)?.rate()?.0,
            latency_p50_seconds: None,
        })
    });
    let foreign = run.foreign.map(|others| others.0 / rate.0);
    Some(Facts {
        subject: Subject::Link,
        place: Some(measured.peer.clone()),
        depth: Some(f64::from(streams)),
        duration_seconds: Some(flow.receiver_time),
        goodput_bytes_per_second: Some(rate),
        second_leg,
        device: DeviceFacts { foreign_share: foreign, ..DeviceFacts::default() },
        cpu: cpu(run),
        link: LinkFacts {
            line_bytes_per_second: line.as_ref().map(|line| line.rate_of(streams)),
            line: line.clone(),
            retransmits: flow.retransmits,
            segment_payload_bytes: flow.mss,
            round_trip_seconds: flow.rtt.map(|rtt| rtt.median),
            // What was asked for: the kernel grants another, and tells only how long it was waited for.
            window_bytes: None,
            receive_window_limited_ratio: flow.rwnd_limited,
            send_buffer_limited_ratio: flow.sndbuf_limited,
        },
        path: run.path.clone(),
        ..Facts::default()
    })
}

fn flow_of(measured: &LinkMeasured, reverse: bool) -> Option<&LinkFlow> {
    if reverse { measured.reverse.as_ref() } else { measured.forward.as_ref() }
}

/// The busiest thread of either end, as far as it can be told, and this host's CPUs.
fn cpu(run: &LinkRun<'_>) -> CpuFacts {
    let measured = run.measured;
    let streams = f64::from(measured.profile.streams);
    let threads = |cpu: &LinkCpu| cpu.total / streams;
    // A stock server has one thread for all streams up to 3.15, one for each from 3.16 on, and
    // doesn't say which it is.
    let theirs = match (&measured.identity, measured.peer_cpu.total) {
        (None, total) if total <= ONE_THREAD => total,
        _ => threads(&measured.peer_cpu),
    };
    let interrupts = run.cpus.and_then(|cpus| cpus.interrupts).map_or(0.0, |share| share.0);
    let busiest = threads(&measured.own_cpu).max(theirs).max(interrupts);
    CpuFacts {
        busiest_ratio: (busiest > 0.0).then_some(Ratio(busiest.min(1.0))),
        allowed_ratio: run.cpus.and_then(|cpus| cpus.host),
        steal_ratio: run.cpus.and_then(|cpus| cpus.steal),
        throttled_ratio: run.cpus.and_then(|cpus| cpus.throttled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Seconds};
    use crate::judge::limits::judge;
    use crate::model::link::LinkProfile;
    use crate::model::samples::vxlan;
    use crate::model::verdict::Limit;

    fn measured(streams: u32, mbit: f64) -> LinkMeasured {
        let flow = LinkFlow {
            received: Bytes((mbit * 125e3 * 10.0) as u64),
            receiver_time: Seconds(10.0),
            mss: Some(Bytes(1398)),
            ..LinkFlow::default()
        };
        LinkMeasured {
            peer: "10.98.0.2:5201".into(),
            profile: LinkProfile::plain(streams, Seconds(10.0)),
            forward: Some(flow),
            reverse: None,
            own_cpu: LinkCpu { total: 0.4, ..LinkCpu::default() },
            peer_cpu: LinkCpu { total: 0.3, ..LinkCpu::default() },
            identity: None,
        }
    }

    fn facts(measured: &LinkMeasured, second: Option<&LinkMeasured>, way: &PeerWay) -> Facts {
        let path = &DeclaredPath::default();
        let (cpus, foreign) = (None, None);
        link(&LinkRun { measured, reverse: false, second, way, path, cpus, foreign }).unwrap()
    }

    #[test]
    fn a_way_that_was_followed_is_the_ceiling_of_the_run() {
        let verdict = judge(&facts(&measured(4, 907.0), Some(&measured(8, 908.0)), &vxlan()));
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Link, 1.0));
        let ceiling = verdict.ceiling.unwrap();
        assert_eq!(format!("{:.2}", ceiling.value * 8.0 / 1e6), "908.97");
        assert_eq!(ceiling.source, "eth0, 1 Gbit/s, VXLAN, MTU 1500");
    }

    #[test]
    fn what_is_declared_afterwards_wins_over_what_was_seen() {
        let mut later = facts(&measured(4, 907.0), None, &vxlan());
        later.path.link = Some(Rate(1.25e9));
        assert_eq!(judge(&later).limit, Limit::Unknown);
    }

    #[test]
    fn a_line_that_was_left_behind_is_dropped() {
        let verdict = judge(&facts(&measured(4, 2000.0), None, &vxlan()));
        assert!(verdict.because.iter().any(|fact| fact.contains("dropped")), "{verdict:?}");
    }

    #[test]
    fn a_thread_at_its_end_is_the_limit_where_no_rate_is_known() {
        let of = |own: f64, theirs: f64, streams| {
            let mut measured = measured(streams, 20_000.0);
            (measured.own_cpu.total, measured.peer_cpu.total) = (own, theirs);
            judge(&facts(&measured, None, &PeerWay::default())).limit
        };
        assert_eq!((of(0.99, 0.5, 1), of(0.5, 0.98, 1)), (Limit::Cpu, Limit::Cpu));
        assert_eq!(of(0.99, 0.5, 4), Limit::Unknown, "a quarter of a CPU for each of ours");
        assert_eq!(of(0.5, 1.6, 4), Limit::Unknown);
    }

    #[test]
    fn a_direction_in_which_nothing_moved_has_no_facts() {
        let (measured, way, path) = (measured(1, 900.0), vxlan(), DeclaredPath::default());
        let run = LinkRun {
            measured: &measured,
            reverse: true,
            second: None,
            way: &way,
            path: &path,
            cpus: None,
            foreign: Some(Rate(50e6)),
        };
        assert_eq!(link(&run), None);
        let contended = link(&LinkRun { reverse: false, ..run }).unwrap();
        assert_eq!(judge(&contended).limit, Limit::Contended);
    }
}
