//! Hosts that test the way to each other: three daemons and a plain iperf3 server, each in a network
//! namespace of its own, on links of one speed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::Promise;
use crate::harness::{BINARY, Page, disk_dir, must, until, until_within};
use crate::hosts::{Host, shape};

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

/// A switch with a link to each host, and one to this machine, to look at their pages.
struct Wires {
    id: u32,
    hub: Host,
    hosts: BTreeMap<&'static str, Host>,
}

impl Wires {
    fn new() -> Self {
        let (id, hub) = (std::process::id(), Host::namespace());
        hub.run("ip link add hub type bridge");
        hub.run("ip link set hub up");
        let hosts = DAEMONS.into_iter().chain([PASSIVE]).map(|name| (name, Host::namespace()));
        let wires = Self { id, hub, hosts: hosts.collect() };
        let hub = &wires.hub.name;
        let bucket = format!("tbf rate {LINE_BITS} burst 32kb latency 20ms");
        for (name, host) in &wires.hosts {
            host.run(&format!("ip link add eth0 type veth peer name to{name} netns {hub}"));
            host.run(&format!("ip addr add {}/24 dev eth0", wires.address(name)));
            wires.plug(name);
            host.run("ip link set eth0 up");
            shape(host, "eth0", &bucket);
            shape(&wires.hub, &format!("to{name}"), &bucket);
        }
        let own = format!("llp{}", wires.id);
        ip(&format!("link add {own} type veth peer name toroot netns {hub}"));
        ip(&format!("addr add {}/24 dev {own}", wires.address("254")));
        ip(&format!("link set {own} up"));
        wires.plug("root");
        wires
    }

    fn plug(&self, name: &str) {
        self.hub.run(&format!("ip link set to{name} master hub"));
        self.hub.run(&format!("ip link set to{name} up"));
    }

    /// In the range for benchmarks (RFC 2544), which nobody routes.
    fn address(&self, name: &str) -> String {
        format!("198.18.{}.{name}", self.id % 250)
    }
}

fn ip(arguments: &str) {
    must("ip", &arguments.split_whitespace().collect::<Vec<_>>());
}

/// A process on a host.
struct Inside(Child);

impl Inside {
    /// The host's turn is a lock under /run/lock: each host has its own.
    fn new(wires: &Wires, host: &str, command: &str, state: &Path) -> Self {
        let script = format!("mount -t tmpfs none /run/lock && exec {command}");
        let child = wires.hosts[host]
            .command("sh -c")
            .arg(script)
            .env("STATE_DIRECTORY", state)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A /proc without CPU and pressure: load of others must not keep tests from their slots.
fn quiet_proc(dir: &TempDir) -> String {
    let proc = dir.path().join("proc");
    std::fs::create_dir(&proc).unwrap();
    for name in ["diskstats", "sys"] {
        std::os::unix::fs::symlink(Path::new("/proc").join(name), proc.join(name)).unwrap();
    }
    proc.display().to_string()
}

fn daemon(wires: &Wires, host: &str, dir: &TempDir, proc: &str) -> Inside {
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
    let file = dir.path().join(format!("{host}.yml"));
    std::fs::write(&file, config).unwrap();
    let command = format!(
        "{BINARY} --config {} --path.procfs {proc} --listen {}:9847",
        file.display(),
        wires.address(host)
    );
    Inside::new(wires, host, &command, &dir.path().join(host))
}

fn page(wires: &Wires, host: &str) -> Option<Page> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(5))).build().into();
    let url = format!("http://{}:9847/metrics", wires.address(host));
    let text = agent.get(&url).call().ok()?.body_mut().read_to_string().ok()?;
    Some(Page::parse(text))
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
    let dir = disk_dir();
    let wires = Wires::new();
    let proc = quiet_proc(&dir);
    let _iperf3 = Inside::new(&wires, PASSIVE, "iperf3 -s", dir.path());
    let _daemons = DAEMONS.map(|host| daemon(&wires, host, &dir, &proc));
    let mut seen: BTreeSet<Test> = BTreeSet::new();
    let mut pages = BTreeMap::new();
    until_within(LONG_ENOUGH, "each host's tests with each peer", || {
        for host in DAEMONS {
            pages.insert(host, until("a page", || page(&wires, host)));
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
