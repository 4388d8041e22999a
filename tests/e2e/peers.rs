//! Hosts that test the way to each other: three daemons and a plain iperf3 server, each in a network
//! namespace of its own, on links of one speed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Promise;
use crate::harness::{Page, until, until_within};
use crate::wires::{Inside, Wires};

pub const PROMISES: &[Promise] =
    &[Promise::new("all_pairs_of_a_mesh_are_measured_and_no_host_is_ever_in_two_tests", mesh)
        .root()
        .needs(&["ip", "tc", "iperf3"])];

/// What each link lets through, with Ethernet's headers, of one direction.
const LINE_BITS: f64 = 100e6;
/// Two cycles of three slots of twelve seconds, in which each end tests the other, and as many again.
const LONG_ENOUGH: Duration = Duration::from_secs(240);
const DAEMONS: [&str; 3] = ["1", "2", "3"];
const PASSIVE: &str = "4";

fn daemon(wires: &Wires, host: &str, flags: &str) -> Inside {
    let list: Vec<String> =
        DAEMONS.iter().map(|host| format!("\"{}\"", wires.address(host))).collect();
    let config = format!(
        "probes:\n\
         - {{name: mesh, kind: throughput, every: 10s,\n\
         \x20  throughput: {{streams: 2, runtime: 1s, omit: 0s, single: 1s}}}}\n\
         peers:\n  listen: :5201\n  list: [{}, {{address: \"{}\", passive: true}}]\n  \
         allow_same_kernel: true\n  any_clock: true\n",
        list.join(", "),
        wires.address(PASSIVE),
    );
    wires.daemon(host, &config, flags)
}

/// A test that took place: who made it, with whom, and from when to when (Unix time).
type Test = (String, String, u64, u64);

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

/// The last tests that a host's page tells of.
fn tests(wires: &Wires, host: &str, page: &Page) -> Vec<Test> {
    let made = |(other, peer): (&str, String)| {
        let label = format!("peer=\"{peer}\"");
        let ended = page.get("loadline_probe_last_run_timestamp_seconds", &[&label])?;
        let took = page.get("loadline_probe_run_seconds", &[&label])?;
        let began = milliseconds(ended - took);
        Some((host.to_owned(), other.to_owned(), began, milliseconds(ended)))
    };
    let others = DAEMONS.into_iter().chain([PASSIVE]).filter(|other| *other != host);
    others.map(|other| (other, wires.address(other))).filter_map(made).collect()
}

fn mesh() {
    let wires = Wires::between(&[&DAEMONS[..], &[PASSIVE]].concat(), LINE_BITS);
    let flags = wires.quiet();
    let _iperf3 = wires.run(PASSIVE, "iperf3 -s");
    let _daemons = DAEMONS.map(|host| daemon(&wires, host, &flags));
    let mut seen: BTreeSet<Test> = BTreeSet::new();
    let mut pages = BTreeMap::new();
    until_within(LONG_ENOUGH, "each host's tests with each peer", || {
        for host in DAEMONS {
            pages.insert(host, until("a page", || wires.page(host)));
            seen.extend(tests(&wires, host, &pages[host]));
        }
        let good = |host: &&str| {
            pages[*host].all("loadline_probe_last_success_timestamp_seconds", &["peer="]).len() == 3
        };
        std::thread::park_timeout(Duration::from_millis(500));
        DAEMONS.iter().all(good).then_some(())
    });
    none_overlap(&seen);
    for host in DAEMONS {
        families(&wires, host, &pages[host]);
    }
    let digests: BTreeSet<_> = pages
        .values()
        .flat_map(|page| page.all("loadline_mesh_list_info", &[]))
        .map(|(series, _)| series.to_owned())
        .collect();
    assert_eq!(digests.len(), 1, "all hosts keep one schedule: {digests:?}");
}

/// Of a peer; docs/deploy.md promises it at 4 streams, which are 4 series more than the 2 of these.
const SERIES_MAX: usize = 110 - 4;

fn none_overlap(seen: &BTreeSet<Test>) {
    for host in DAEMONS.into_iter().chain([PASSIVE]) {
        let mut own: Vec<&Test> = seen.iter().filter(|t| t.0 == host || t.1 == host).collect();
        own.sort_by_key(|test| test.2);
        for pair in own.windows(2) {
            assert!(pair[0].3 < pair[1].2, "host {host} is in two tests: {pair:?}");
        }
        assert!(own.len() >= 3, "host {host}: {own:?}");
    }
}

fn families(wires: &Wires, host: &str, page: &Page) {
    for other in DAEMONS.into_iter().chain([PASSIVE]).filter(|other| *other != host) {
        let peer = format!("peer=\"{}\"", wires.address(other));
        let value = |name: &str, more: &str| {
            page.get(&format!("loadline_link_probe_{name}"), &[&peer, more])
        };
        for direction in ["transmit", "receive"] {
            let rate = value(&format!("{direction}_bytes_per_second"), "").unwrap() * 8.0;
            let line = rate / LINE_BITS;
            assert!((0.5..1.02).contains(&line), "{host} {direction} {other}: {line} of the line");
            let label = format!("direction=\"{direction}\"");
            let streams = page.all("loadline_link_probe_stream_bytes_per_second", &[&peer, &label]);
            let sum: f64 = streams.iter().map(|(_, rate)| rate * 8.0).sum();
            assert!(streams.len() == 2 && (sum / rate - 1.0).abs() < 0.01, "{streams:?}");
        }
        let rtt = value("rtt_seconds", "direction=\"transmit\",q=\"0.5\"").unwrap();
        assert!(rtt > 0.0 && rtt < 1.0, "{rtt}");
        assert!(value("retransmits_total", "direction=\"transmit\"").is_some());
        assert!(value("single_stream_bytes_per_second", "direction=\"transmit\"").is_some());
        judged(page, &peer);
        let series = page.text.lines().filter(|line| line.contains(&peer)).count();
        assert!(series <= SERIES_MAX, "{peer}: {series} series");
        let mismatch = (other != PASSIVE).then_some(0.0);
        assert_eq!(value("list_mismatch", ""), mismatch, "{host} and {other}");
    }
    let dropped = page.get("loadline_mesh_dropped_peers", &["reason=\"self\""]);
    assert_eq!((page.get("loadline_mesh_peers", &[]), dropped), (Some(4.0), Some(1.0)));
    let served = page.get("loadline_peer_tests_total", &["result=\"ok\""]).unwrap();
    assert!(served >= 3.0, "two peers made three legs each, of which one is whole: {served}");
}

/// What this end's token bucket lets out is the ceiling of one direction; of the other no rate is known.
fn judged(page: &Page, peer: &str) {
    let of = |name: &str, direction: &str, more: &str| {
        let direction = format!("direction=\"{direction}\"");
        page.get(&format!("loadline_{name}"), &[peer, &direction, more])
    };
    // The bucket counts Ethernet's headers and no more: 1448 of 1514 bytes are payload.
    let ceiling = of("link_probe_ceiling_bytes_per_second", "transmit", "").unwrap() * 8.0;
    assert!((ceiling / (LINE_BITS * 1448.0 / 1514.0) - 1.0).abs() < 1e-3, "{peer}: {ceiling}");
    assert_eq!(of("link_probe_line_bytes_per_second", "transmit", ""), Some(LINE_BITS / 8.0));
    let rate = page.get("loadline_link_probe_transmit_bytes_per_second", &[peer]).unwrap();
    let share = of("probe_ceiling_ratio", "transmit", "").unwrap();
    assert!((share / (rate * 8.0 / ceiling) - 1.0).abs() < 1e-3, "{peer}: {share}");
    for unknown in ["link_probe_ceiling_bytes_per_second", "probe_ceiling_ratio"] {
        assert_eq!(of(unknown, "receive", ""), None, "{peer}: nobody knows what its line carries");
    }
    for direction in ["transmit", "receive"] {
        let label = format!("direction=\"{direction}\"");
        let limits = page.all("loadline_verdict", &[peer, &label]);
        let sum: f64 = limits.iter().map(|(_, is_it)| is_it).sum();
        assert_eq!((limits.len(), sum), (14, 1.0), "{peer}: {limits:?}");
        assert!(of("verdict_confidence_ratio", direction, "").is_some());
    }
}
