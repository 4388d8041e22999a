//! How many series a host has: docs/deploy.md promises it, pages are counted against that.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::check::Check;
use crate::files::{disk_dir, text, until, yaml};
use crate::harness::{Daemon, NO_PROBES, Setup};

pub const CHECKS: &[Check] = &[
    Check::new("hosts_of_ten_and_a_hundred_devices_keep_the_series_budget", devices),
    Check::new("a_probe_and_its_target_keep_the_series_budget", probe),
    Check::new("the_scrape_limit_is_above_what_a_host_may_have", limit),
];

/// The table of docs/deploy.md, "Series": what, and how many at most.
fn budget() -> BTreeMap<String, usize> {
    let doc = text("docs/deploy.md");
    let section = doc.split("\n## ").find(|s| s.starts_with("Series\n")).unwrap();
    section
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let (what, most) = (cells.next()?, cells.next()?);
            Some((what.to_owned(), most.trim_end_matches(" |").parse().ok()?))
        })
        .collect()
}

/// `n` disks and `n` links beside those of the fixture of a node.
fn fixture(dir: &Path, n: usize) {
    let node = crate::files::root().join("tests/fixtures/node/.");
    crate::files::must(Command::new("cp").arg("-a").arg(node).arg(dir));
    let file = |path: String, text: &str| {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let link = |to: &str, at: String| {
        std::os::unix::fs::symlink(dir.join(to), dir.join(at)).unwrap();
    };
    let mut diskstats = String::new();
    let mut netdev = std::fs::read_to_string(dir.join("proc/1/net/dev")).unwrap();
    for i in 0..n {
        let minor = 16 * (i + 1);
        diskstats += &format!("65 {minor} sdx{i} 100 0 800 50 100 0 800 50 0 60 100 0 0 0 0 0 0\n");
        let disk = format!("sys/devices/pci1/host{i}/block/sdx{i}");
        file(format!("{disk}/dev"), &format!("65:{minor}\n"));
        file(format!("{disk}/size"), "1000000\n");
        file(format!("{disk}/diskseq"), &format!("{}\n", i + 100));
        file(format!("{disk}/queue/rotational"), "1\n");
        link(&disk, format!("sys/block/sdx{i}"));
        netdev += &format!("  en{i}: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0\n");
        let net = format!("sys/devices/pci1/en{i}/net/en{i}");
        file(format!("{net}/speed"), "1000\n");
        file(format!("{net}/ifindex"), &format!("{}\n", i + 100));
        file(format!("{net}/type"), "1\n");
        link(&format!("sys/devices/pci1/en{i}"), format!("{net}/device"));
        link(&net, format!("sys/class/net/en{i}"));
    }
    let whole = std::fs::read_to_string(dir.join("proc/diskstats")).unwrap() + &diskstats;
    std::fs::write(dir.join("proc/diskstats"), whole).unwrap();
    for place in ["proc/1/net/dev", "proc/net/dev"] {
        std::fs::write(dir.join(place), &netdev).unwrap();
    }
}

/// The page, once it has a series that begins like this.
fn page_with(daemon: &Daemon, series: &str) -> String {
    until(series, || daemon.get("/metrics").ok().filter(|page| page.contains(series)))
}

fn series(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// Series of a device, or of the host where `having` is empty.
fn count(page: &str, having: &str) -> usize {
    let of_a_part =
        |line: &&str| ["device=\"", "target=\""].iter().any(|label| line.contains(label));
    match having {
        "" => series(page).filter(|line| !of_a_part(line)).count(),
        label => series(page).filter(|line| line.contains(label)).count(),
    }
}

fn devices() {
    let budget = budget();
    for n in [10, 100] {
        let dir = disk_dir();
        fixture(dir.path(), n);
        let at = dir.path().display();
        let args = vec![format!("--path.procfs={at}/proc"), format!("--path.sysfs={at}/sys")];
        let daemon = Setup { args, ..Setup::config(NO_PROBES) }.start();
        // From the second reading on there are windows.
        let page = page_with(&daemon, "loadline_nic_receive_bytes_per_second{");
        let host = count(&page, "");
        assert!(host <= budget["the host"], "the host: {host} series");
        for (what, kernel) in [("a disk", "sdx"), ("a link", "en")] {
            let label = format!("device=\"{kernel}");
            let each = count(&page, &format!("{label}0\""));
            let all = count(&page, &label);
            assert!(each > 0 && each <= budget[what], "{what}: {each} series");
            assert!(all <= n * budget[what], "{n} times {what}: {all} series");
        }
        let last = format!("device=\"sdx{}\"", n - 1);
        assert!(page.contains(&last), "the last of {n} disks has series too");
    }
}

fn probe() {
    let budget = budget();
    let dir = disk_dir();
    let config = format!(
        "targets: [{{name: t, path: {}, ballast: 64MiB}}]\n\
         probes: [{{name: commit, kind: latency, target: t, every: 10s}}]\n",
        dir.path().display()
    );
    let page = page_with(&Setup::config(config).start(), "loadline_verdict{");
    let probe = count(&page, "probe=\"commit\"");
    assert!(probe <= budget["a probe"], "a probe: {probe} series");
    // More than the counters that each probe has before its first run.
    assert!(probe > 60, "a probe: {probe} series");
    let target = series(&page)
        .filter(|line| line.contains("target=\"t\"") && !line.contains("probe="))
        .count();
    assert!(target > 0 && target <= budget["a target"], "a target: {target} series");
}

/// The server that the docs reckon with.
const SERVER: [(&str, usize); 5] =
    [("the host", 1), ("a disk", 12), ("a link", 4), ("a target", 1), ("a probe", 7)];

/// Caps of the configuration: `sample.devices_max` of each class as it comes, targets, probes, partners.
const CAPS: [(&str, usize); 6] = [
    ("the host", 1),
    ("a disk", 256),
    ("a link", 256),
    ("a target", 32),
    ("a probe", 64),
    ("a peer, at 4 streams", 16),
];

fn limit() {
    let budget = budget();
    let sum =
        |host: &[(&str, usize)]| -> usize { host.iter().map(|(what, n)| n * budget[*what]).sum() };
    let (server, most) = (sum(&SERVER), sum(&CAPS));
    let doc = text("docs/deploy.md").replace(',', "");
    for promised in [format!("at most {server}"), format!("{most} hence")] {
        assert!(doc.contains(&promised), "docs/deploy.md, Series: not `{promised}`");
    }
    let prometheus: serde_yaml::Value = yaml("deploy/prometheus/prometheus.yml");
    let limit = prometheus["scrape_configs"][0]["sample_limit"].as_u64().unwrap();
    assert!(most as u64 <= limit, "{most} series by the caps, {limit} in a scrape");
}
