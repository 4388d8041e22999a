//! Counters against the tools that people trust.

use std::process::{Command, Stdio};

use crate::Promise;
use crate::harness::{LoopDisk, NO_PROBES, Page, Setup, must};

pub const PROMISES: &[Promise] = &[
    Promise::new("disk_counters_agree_with_iostat_over_a_busy_20_s", iostat)
        .alone()
        .root()
        .needs(&["iostat", "fio", "losetup"]),
    Promise::new("link_counters_agree_with_sar_over_a_busy_20_s", sar)
        .root()
        .needs(&["sar", "ip", "ping"]),
];

const SECONDS: f64 = 20.0;

fn close(what: &str, ours: f64, theirs: f64) {
    let off = (ours - theirs).abs() / theirs.max(1e-9);
    assert!(off <= 0.03, "{what}: {ours} here, {theirs} there ({:.1} % off)", off * 100.0);
}

/// Growth of a counter between two pages.
fn grown(before: &Page, after: &Page, name: &str, label: &str) -> f64 {
    after.get(name, &[label]).unwrap() - before.get(name, &[label]).unwrap()
}

fn iostat() {
    let disk = LoopDisk::new(256);
    let label = format!("device=\"{}\"", disk.name());
    let daemon = Setup::config(NO_PROBES).start();
    daemon.until_metric("loadline_disk_reads_completed_total", &[&label], |_| true);
    let mut fio = Command::new("fio")
        .args(["--name=x", "--filename", &disk.device, "--rw=randrw", "--bs=16k"])
        .args([
            "--ioengine=libaio",
            "--direct=1",
            "--thread",
            "--iodepth=4",
            "--time_based",
            "--runtime=40",
        ])
        .args(["--rate_iops=300,150", "--size=128M"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let busy = "loadline_disk_read_operations_per_second";
    daemon.until_metric(busy, &[&label], |rate| rate > 100.0);
    let before = daemon.page();
    // The second report of `-y 20 1` covers the 20 s that follow.
    let report = must("iostat", &["-x", "-k", "-y", "-o", "JSON", disk.name(), "20", "1"]);
    let after = daemon.page();
    let _ = fio.kill();
    let _ = fio.wait();
    let json: serde_json::Value = serde_json::from_str(&report).unwrap();
    let theirs = &json["sysstat"]["hosts"][0]["statistics"][0]["disk"][0];
    let number = |key: &str| theirs[key].as_f64().unwrap();
    let ours = |name: &str| grown(&before, &after, name, &label) / SECONDS;
    close("reads/s", ours("loadline_disk_reads_completed_total"), number("r/s"));
    close("writes/s", ours("loadline_disk_writes_completed_total"), number("w/s"));
    close("read kB/s", ours("loadline_disk_read_bytes_total") / 1024.0, number("rkB/s"));
    close("written kB/s", ours("loadline_disk_written_bytes_total") / 1024.0, number("wkB/s"));
}

fn sar() {
    let _wire = Wire::new();
    let label = "device=\"llsar0\"";
    let config = format!("{NO_PROBES}links: {{llsar0: {{rate: 10Gbit}}}}\n");
    let daemon = Setup::config(config).start();
    daemon.until_metric("loadline_nic_transmit_bytes_total", &[label], |_| true);
    let mut flood = Command::new("ping")
        .args(["-f", "-q", "-s", "1200", "-i", "0.002", "-w", "40", "10.213.7.2"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    daemon.until_metric("loadline_nic_transmit_bytes_per_second", &[label], |rate| rate > 1e5);
    let before = daemon.page();
    let report = must("sar", &["-n", "DEV", "--iface=llsar0", "20", "1"]);
    let after = daemon.page();
    let _ = flood.kill();
    let _ = flood.wait();
    let line = report.lines().find(|l| l.contains("llsar0") && !l.contains("Average")).unwrap();
    let columns: Vec<&str> = line.split_whitespace().collect();
    let at = columns.iter().position(|c| *c == "llsar0").unwrap();
    let number = |n: usize| columns[at + n].replace(',', ".").parse::<f64>().unwrap();
    let ours = |name: &str| grown(&before, &after, name, label) / SECONDS;
    close("packets received", ours("loadline_nic_receive_packets_total"), number(1));
    close("packets sent", ours("loadline_nic_transmit_packets_total"), number(2));
    close("kB received", ours("loadline_nic_receive_bytes_total") / 1024.0, number(3));
    close("kB sent", ours("loadline_nic_transmit_bytes_total") / 1024.0, number(4));
}

/// A veth pair into a namespace that answers pings.
struct Wire;

impl Wire {
    fn new() -> Self {
        let wire = Self;
        must("ip", &["netns", "add", "llsar"]);
        must(
            "ip",
            &["link", "add", "llsar0", "type", "veth", "peer", "name", "llsar1", "netns", "llsar"],
        );
        must("ip", &["addr", "add", "10.213.7.1/24", "dev", "llsar0"]);
        must("ip", &["link", "set", "llsar0", "up"]);
        must("ip", &["-n", "llsar", "addr", "add", "10.213.7.2/24", "dev", "llsar1"]);
        must("ip", &["-n", "llsar", "link", "set", "llsar1", "up"]);
        wire
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", "llsar"]).status();
        let _ = Command::new("ip").args(["link", "del", "llsar0"]).stderr(Stdio::null()).status();
    }
}
