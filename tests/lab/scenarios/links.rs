//! Links between hosts in network namespaces: wires, overlays, delays and policers.

use std::net::SocketAddr;
use std::time::Duration;

use loadline::base::units::{Bytes, KIB, Seconds};
use loadline::host::link_facts::Declared;
use loadline::host::roots::Roots;
use loadline::host::route::{Overrides, way_to};
use loadline::iperf::client::{self, Order, Patience, Watch};
use loadline::judge::from_link::{LinkRun, link};
use loadline::model::link::{LinkInterval, LinkMeasured, LinkProfile};
use loadline::model::outcome::{Done, Evidence};
use loadline::model::path::DeclaredPath;
use loadline::model::verdict::Limit;
use loadline::model::way::EndLine;
use loadline::probe::cpu::{Cpus, Shares};

use super::Scenario;
use super::hosts::{Delay, Host, cable, on_a_gigabit, shape, vxlan};
use super::measure::Sight;

const NEEDS: &[&str] = &["ip", "tc", "ss", "ethtool", "iperf3"];

pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("a_wire_of_a_gigabit", &[Limit::Link], gigabit).needs(NEEDS),
    Scenario::new("an_overlay_on_a_gigabit", &[Limit::Link], overlay).needs(NEEDS),
    Scenario::new("a_small_window_on_a_long_way", &[Limit::Window], window).needs(NEEDS),
    Scenario::new("a_policer_on_the_way", &[Limit::Throttle], policer).needs(NEEDS),
    // Both ends share the CPUs; where these are not quite full there is nothing to say, and no window.
    Scenario::new("a_cable_without_a_rate", &[Limit::Cpu, Limit::Unknown], cable_alone)
        .needs(NEEDS),
];

/// Payload of both, as a share of what they carry.
const FULL: f64 = 0.97;
const ROUND_TRIP: Seconds = Seconds(0.02);

fn profile(streams: u32) -> LinkProfile {
    LinkProfile {
        // A stock server leaves out whole seconds only.
        omit: Seconds(1.0),
        // What fills a queue of its own accord, whatever this host prefers.
        congestion: Some("cubic".into()),
        ..LinkProfile::plain(streams, Seconds(1.5))
    }
}

struct Quiet;

impl Watch for Quiet {
    fn stopped(&self) -> bool {
        false
    }

    fn began(&mut self, _: SocketAddr) {}

    fn interval(&mut self, _: &LinkInterval) {}
}

fn leg(peer: SocketAddr, profile: &LinkProfile) -> (LinkMeasured, Shares) {
    let (addresses, patience) = (&[peer][..], Patience::default());
    let order = Order { addresses, profile, identity: None, patience };
    let mut cpus = Cpus::find();
    let before = cpus.before("/proc".as_ref(), false);
    let measured = client::run(&order, &mut Quiet).unwrap_or_else(|fault| panic!("{fault}"));
    let after = cpus.after("/proc".as_ref(), false);
    (measured, cpus.shares(&before, &after, profile.runtime))
}

/// From `host` to `peer`, and again with twice the streams.
fn fill(host: &Host, peer: &str, profile: &LinkProfile) -> (Sight, LinkMeasured) {
    let peer = format!("{peer}:5201").parse().unwrap();
    let more =
        LinkProfile { streams: 2 * profile.streams, runtime: Seconds(1.0), ..profile.clone() };
    host.inside(|| {
        let (path, links) = (DeclaredPath::default(), Declared::new());
        let way = way_to(
            peer,
            &Roots::default(),
            &Overrides { path: &path, links: &links, peer: EndLine::default() },
        );
        let ((measured, cpus), (second, _)) = (leg(peer, profile), leg(peer, &more));
        let facts = link(&LinkRun {
            measured: &measured,
            reverse: false,
            second: Some(&second),
            way: &way,
            path: &path,
            cpus: Some(&cpus),
            foreign: None,
        });
        let evidence = Evidence { host_cpu: cpus.host, steal: cpus.steal, ..Evidence::default() };
        let done = Done { evidence, ..Done::default() };
        (Sight { facts: facts.expect("a flow"), done, broken: Vec::new() }, measured)
    })
}

/// The ceiling is as it was worked out, and all but reached.
fn full(peer: &str, mbit: f64) -> Sight {
    let [host, mut server] = on_a_gigabit();
    server.serve();
    let (sight, _) = fill(&host, peer, &profile(4));
    let line = sight.facts.link.line.clone();
    let ceiling = line.and_then(|line| line.ceiling(4, None)).map(|rate| rate.0);
    let share = sight.facts.bytes().zip(ceiling).map(|(bytes, ceiling)| bytes / ceiling);
    sight.near("the ceiling in Mbit/s", ceiling.map(|rate| rate * 8.0 / 1e6), mbit, 1e-5).within(
        "the share of it",
        share,
        FULL..=1.01,
    )
}

fn gigabit(_: u64) -> Sight {
    full("10.99.0.2", 941.48)
}

fn overlay(_: u64) -> Sight {
    full("10.98.0.2", 908.97)
}

/// Both hosts of a VXLAN send to a third, which holds what it passes on.
fn window(_: u64) -> Sight {
    let [host, mut server, between] = [Host::namespace(), Host::namespace(), Host::namespace()];
    cable(&host, &between, 96);
    cable(&server, &between, 95);
    vxlan(&host, ("n96x", "10.96.0.2"), (97, 1));
    vxlan(&server, ("n95x", "10.95.0.2"), (97, 2));
    for host in [&host, &server] {
        // Who passes packets on outside the kernel passes them on whole: with checksums, and no larger.
        host.run("ethtool -K vx97 tx off");
    }
    let hold = Duration::from_secs_f64(ROUND_TRIP.0 / 2.0);
    let _delay = Delay::on(&between, ["10.96.0.1", "10.95.0.1"], hold);
    server.serve();
    let small = LinkProfile { window: Some(Bytes(64 * KIB)), ..profile(1) };
    let (sight, measured) = fill(&host, "10.97.0.2", &small);
    let rtt = measured.forward.and_then(|flow| flow.rtt).map(|rtt| rtt.median.0);
    sight.within("the round trip", rtt, ROUND_TRIP.0..=2.0 * ROUND_TRIP.0)
}

/// A third host passes on so much and drops the rest; this one knows of no rate.
fn policer(_: u64) -> Sight {
    let [host, mut server, between] = [Host::namespace(), Host::namespace(), Host::namespace()];
    cable(&host, &between, 94);
    cable(&between, &server, 93);
    host.run("ip route add 10.93.0.0/24 via 10.94.0.2");
    server.run("ip route add 10.94.0.0/24 via 10.93.0.1");
    between.inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    shape(&between, "n93x", "tbf rate 100mbit burst 16kb limit 24kb");
    server.serve();
    let (sight, measured) = fill(&host, "10.93.0.2", &profile(4));
    let ratio = |resent: f64, bytes: f64| resent / (bytes / 1448.0);
    let flow = measured.forward.unwrap();
    let ours = flow.retransmits.map(|resent| ratio(resent as f64, flow.received.0 as f64));
    let (resent, bytes) = stock(&host, "10.93.0.2");
    sight.near("the share of segments sent again", ours, ratio(resent, bytes), 0.2)
}

/// Segments that iperf3 sends again, and bytes that arrive, on the same way.
fn stock(host: &Host, peer: &str) -> (f64, f64) {
    let output = host.command(&format!("iperf3 -J -c {peer} -P 4 -t 1 -O 1 -C cubic")).output();
    let json: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let number = |path: &str| json.pointer(path).and_then(serde_json::Value::as_f64).unwrap();
    (number("/end/sum_sent/retransmits"), number("/end/sum_received/bytes"))
}

fn cable_alone(_: u64) -> Sight {
    let [host, mut server] = [Host::namespace(), Host::namespace()];
    cable(&host, &server, 92);
    server.serve();
    let (sight, _) = fill(&host, "10.92.0.2", &profile(4));
    let unknown = sight.facts.link.line.is_none();
    sight.within("the unknown rate", Some(f64::from(u8::from(unknown))), 1.0..=1.0)
}
