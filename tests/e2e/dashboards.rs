//! Every panel and variable of the dashboards, asked of a real Prometheus that scrapes real daemons.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::Promise;
use crate::harness::must;
use crate::model::Physics;
use crate::panels::{Asked, answers, asked, boards, complaint, filled, until_some};
use crate::physics::PhysicsDisk;
use crate::server::Prometheus;
use crate::volume::Mounted;
use crate::wires::{HERE, Inside, Wires};

pub const PROMISES: &[Promise] = &[Promise::new(
    "every_panel_and_variable_shows_what_daemons_export_and_nothing_without_them",
    all_panels,
)
.root()
.needs(&["prometheus", "losetup", "mkfs.ext4", "dd", "ip", "tc", "/dev/fuse"])];

/// What no scrape here can have, by the beginning of its name or of an expression, and why.
const ABSENT: &[(&str, &str)] = &[
    ("loadline:probe_operations_per_second", "records are of an hour and a week"),
    ("loadline_probe_io_limit_used_ratio", "no control group limits I/O here"),
    ("loadline_probe_cpu_steal_ratio", "needs a hypervisor"),
    ("loadline_cpu_throttled_seconds_total", "no control group limits CPUs here"),
    ("loadline_probe_cpu_throttled_ratio", "no control group limits CPUs here"),
    ("loadline_nic_allowance_exceeded_total", "needs a cloud's driver"),
    ("loadline_nic_busiest_member_utilization_ratio", "needs a bond"),
    ("loadline_disk_busy_unreliable", "not every disk has a busy time"),
    ("loadline_disk_leaf_info", "needs a stack of disks"),
    ("loadline_osd_", "needs a cluster: tests/ceph asks these of one"),
    ("ALERTS{", "nothing is wrong for as long as an alert waits"),
    ("increase(loadline_samples_late_total", "no trouble"),
    ("increase(loadline_lane_restarts_total", "no trouble"),
    ("increase(loadline_sampler_rejected_total", "no trouble"),
    ("increase(loadline_state_discarded_total", "no trouble"),
];

/// What takes longest to be there, on any of the hosts: a first pass and two more of the probe that
/// always may run, the end of a search, a test of each pair.
const AWAITED: &[&str] = &[
    "loadline_probe_runs_total{probe=\"commit\"} >= 3",
    "increase(loadline_probe_read_duration_seconds_count[5m]) > 0",
    "increase(loadline_probe_write_duration_seconds_count[5m]) > 0",
    "loadline_disk_ceiling_read_operations_per_second",
    "loadline_disk_ceiling_write_operations_per_second",
    "loadline_disk_ceiling_read_bytes_per_second",
    "loadline_disk_ceiling_write_bytes_per_second",
    "loadline_oltp_p99_latency_seconds",
    "loadline_link_probe_list_mismatch",
];

/// This machine, which exercises a disk, one with an application's load on another, and two that test
/// the way to each other.
const DISKS: &str = HERE;
const APPLICATION: &str = "1";
const PEERS: [&str; 2] = ["2", "3"];
const HOSTS: [&str; 4] = [DISKS, APPLICATION, PEERS[0], PEERS[1]];
/// Of each link.
const LINE_BITS: f64 = 100e6;

/// A file system on a disk that ends at a rate of its own, whatever the CPUs of this host do.
struct Volume {
    mounted: Mounted,
    disk: PhysicsDisk,
}

impl Volume {
    /// One head; a large request takes as long as its bytes, of which there are few a second.
    fn new() -> Self {
        let physics = Physics { bytes_per_second: 80e6, ..Physics::constant(800.0, 1) };
        let disk = PhysicsDisk::new(physics);
        let at_once = "lazy_itable_init=0,lazy_journal_init=0";
        let format = ["-q", "-F", "-O", "^has_journal", "-N", "4096", "-E", at_once, &disk.device];
        must("mkfs.ext4", &format);
        let mounted = Mounted::new(&["-o", "noatime,lazytime", &disk.device]);
        Self { mounted, disk }
    }
}

/// Probes that find the disk's four ceilings, one that is never let, and one whose target is gone.
fn of_disks(volume: &Volume) -> String {
    let (name, path) = (volume.disk.name(), volume.mounted.path.display());
    // The first run of writes on a new file teaches nothing yet.
    let often =
        [("rand_read", "1m"), ("seq_read", "1m"), ("rand_write", "10s"), ("seq_write", "10s")];
    let ends = often.map(|(profile, every)| {
        format!(
            "  - {{name: {profile}, kind: disk, target: t, every: {every},\n     \
             disk: {{profile: {profile}, runtime: 3s}}}}\n"
        )
    });
    format!(
        "guard: {{reserve: 16MiB}}\n\
         sample: {{disks: {{include: [{name}]}}}}\n\
         disks: {{{name}: {{media: ssd}}}}\n\
         targets:\n  \
         - {{name: t, path: {path}, ballast: 64MiB, budget: 8TiB}}\n  \
         - {{name: small, path: {path}/small, ballast: 1TiB}}\n  \
         - {{name: gone, path: {path}/gone}}\n\
         probes:\n  \
         - {{name: commit, kind: latency, target: t, every: 10s,\n     \
         latency: {{reads: 200, writes: 100}}}}\n  \
         - {{name: held, kind: latency, target: small, every: 10s}}\n  \
         - {{name: lost, kind: latency, target: gone, every: 10s}}\n{}",
        ends.concat()
    )
}

fn of_an_application(volume: &Volume) -> String {
    format!(
        "guard: {{reserve: 16MiB}}\n\
         targets: [{{name: db, path: {}, ballast: 64MiB, budget: 2TiB}}]\n\
         probes:\n  - {{name: oltp, kind: oltp, target: db, every: 2m,\n     \
         oltp: {{limit: 100ms, runtime: 40s, bytes: 256MiB}}}}\n",
        volume.mounted.path.display()
    )
}

fn of_peers(wires: &Wires) -> String {
    let list = PEERS.map(|host| format!("\"{}\"", wires.address(host))).join(", ");
    format!(
        "links: {{eth0: {{rate: 100Mbit}}}}\n\
         probes:\n  - {{name: mesh, kind: throughput, every: 10s,\n     \
         throughput: {{streams: 2, runtime: 1s, omit: 0s, single: 1s}}}}\n\
         peers: {{listen: ':5201', list: [{list}], allow_same_kernel: true, any_clock: true}}\n"
    )
}

/// Load of others keeps none of them from its probes, but for one that sees all of this host.
fn daemons(wires: &Wires, [of_probes, of_load]: [&Volume; 2]) -> [Inside; 4] {
    std::fs::create_dir(of_probes.mounted.path.join("small")).unwrap();
    let (quiet, peers) = (wires.quiet(), of_peers(wires));
    [
        wires.daemon(DISKS, &of_disks(of_probes), &quiet),
        wires.daemon(APPLICATION, &of_an_application(of_load), &quiet),
        wires.daemon(PEERS[0], &peers, &quiet),
        wires.daemon(PEERS[1], &peers, ""),
    ]
}

/// Reads a disk until it is dropped.
struct Reading(Child);

impl Reading {
    fn of(disk: &PhysicsDisk) -> Self {
        let from = format!("if={}", disk.device);
        let again = "while dd \"$0\" of=/dev/null bs=64k count=200 iflag=direct; do :; done";
        let mut shell = Command::new("sh");
        Self(shell.args(["-c", again, &from]).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn all_panels() {
    let wires = Wires::between(&HOSTS[1..], LINE_BITS);
    let prometheus = Prometheus::scraping_at(&HOSTS.map(|host| wires.endpoint(host)));
    let volumes = [Volume::new(), Volume::new()];
    let _daemons = daemons(&wires, volumes.each_ref());
    prometheus.until_some(&format!("count(up{{job=\"loadline\"}} == 1) == {}", HOSTS.len()));
    let asked = asked();

    // A dashboard that is imported where no daemon is scraped: no error, and no zero that looks well.
    for query in &asked {
        let found = answers(&prometheus, query, 1000.0);
        assert_eq!(found, Ok(Vec::new()), "{}: without data", query.place);
    }

    let begun = Instant::now();
    for expression in AWAITED {
        prometheus.until_some(expression);
        println!("after {:.0?}: {expression}", begun.elapsed());
    }
    let _reading = Reading::of(&volumes[0].disk);
    prometheus.until_some("loadline_disk_read_latency_seconds");
    let (mut wrong, mut shown) = (unused(&asked), BTreeSet::new());
    for query in &asked {
        let reason = rightly_empty(&query.expression);
        match until_some(&prometheus, query, reason.is_none()) {
            Err(error) => wrong.push(format!("{}: {error}", query.place)),
            Ok(found) if found.is_empty() => match reason {
                Some(reason) => println!("empty: {}: {reason}", query.place),
                None => wrong.push(format!("{}: empty: {}", query.place, query.expression)),
            },
            Ok(found) => {
                shown.insert(&query.panel);
                let complaints = found.iter().filter_map(|series| complaint(series, query));
                wrong.extend(complaints.take(1).map(|text| format!("{}: {text}", query.place)));
            }
        }
    }
    let silent = asked.iter().filter(|query| !query.none && !shown.contains(&query.panel));
    wrong.extend(silent.map(|query| format!("{}: empty without a word (`none`)", query.panel)));
    wrong.extend(variables(&prometheus));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Reasons that excuse nothing any more.
fn unused(asked: &[Asked]) -> Vec<String> {
    let excuses = |name: &str| asked.iter().any(|query| query.expression.contains(name));
    let idle = ABSENT.iter().filter(|(name, _)| !excuses(name));
    idle.map(|(name, _)| format!("no panel asks for {name}")).collect()
}

fn rightly_empty(expression: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(name, _)| expression.contains(name)).map(|(_, why)| *why)
}

/// What is wrong with the values that can be chosen.
fn variables(prometheus: &Prometheus) -> Vec<String> {
    let mut wrong = Vec::new();
    for (board, json) in boards() {
        for variable in json["templating"]["list"].as_array().unwrap() {
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let inner = query.strip_prefix("label_values(").and_then(|q| q.strip_suffix(')'));
            let (selector, label) = inner.unwrap().rsplit_once(", ").unwrap();
            let path = format!("label/{label}/values");
            let values = prometheus.ask(&path, &[("match[]", &filled(selector))]).unwrap();
            let values: Vec<_> = values.as_array().unwrap().iter().collect();
            let place = format!("{board}: ${label}");
            if values.is_empty() && rightly_empty(selector).is_none() {
                wrong.push(format!("{place}: nothing to choose"));
            }
            if label == "instance" && values.len() != HOSTS.len() {
                wrong.push(format!("{place}: {values:?}, but there are {} daemons", HOSTS.len()));
            }
        }
    }
    wrong
}
