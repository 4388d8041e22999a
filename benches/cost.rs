//! What sampling costs, beside node_exporter reading the same sources, and how it grows.
//!
//! `cargo bench --bench cost`. Ratios of CPU time, medians of alternating runs: the machine may be
//! noisy, its clock is not asked. Never part of CI.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use loadline::base::clock::{Clock, Moment, SystemClock};
use loadline::base::stats::median;
use loadline::base::units::{Bytes, Seconds};
use loadline::config::settings::SampleSettings;
use loadline::host::roots::Roots;
use loadline::judge::book::{Entry, Of, Resource, Way};
use loadline::judge::effective::{DiskCeilings, Effective, Side};
use loadline::judge::load::Live;
use loadline::model::live::DiskLive;
use loadline::model::metric::{Desc, Label, Point};
use loadline::model::outcome::OwnRuns;
use loadline::model::verdict::{Persistence, Trust, Unit};
use loadline::publish::metrics::render;
use loadline::sample::{Reading, SAMPLERS, Tick};

fn main() {
    beside_node_exporter();
    growth();
    a_large_page();
}

/// CPU seconds of a process so far, all threads, from the scheduler's own nanoseconds.
fn cpu_seconds(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<f64>().ok())
        .sum::<f64>()
        / 1e9
}

/// CPU seconds of this thread; the scheduler's file is brought up to date at ticks only.
fn own_cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn scrape(port: u16) -> usize {
    let url = format!("http://127.0.0.1:{port}/metrics");
    ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap().len()
}

fn wait_for(port: u16) {
    for _ in 0..200 {
        if ureq::get(format!("http://127.0.0.1:{port}/metrics")).call().is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("port {port} does not answer");
}

fn resident_bytes(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    text.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

/// Both daemons run; windows of each alternate. node_exporter works when it is scraped, loadline
/// samples each second whether it is scraped or not.
fn beside_node_exporter() {
    const WINDOW: Duration = Duration::from_secs(10);
    const SCRAPES: u32 = 20;
    let Ok(exporter) = Command::new("prometheus-node-exporter")
        .args(["--collector.disable-defaults", "--web.listen-address=127.0.0.1:19100"])
        .args(["--collector.diskstats", "--collector.netdev", "--collector.netclass"])
        .args(["--collector.netstat", "--collector.cpu", "--collector.pressure"])
        .args(["--collector.softnet", "--collector.stat"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
    else {
        println!("skipped: prometheus-node-exporter is not installed");
        return;
    };
    let exporter = Killed(exporter);
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("c.yml");
    std::fs::write(&config, "guard: {probes: false}\n").unwrap();
    let ours = Killed(
        Command::new(env!("CARGO_BIN_EXE_loadline"))
            .args(["--listen", "127.0.0.1:19847", "--config"])
            .arg(&config)
            .env("STATE_DIRECTORY", dir.path().join("s"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    wait_for(19100);
    wait_for(19847);
    let (mut samples, mut scrapes) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let before = cpu_seconds(ours.0.id());
        std::thread::sleep(WINDOW);
        samples.push((cpu_seconds(ours.0.id()) - before) / WINDOW.as_secs_f64());
        let before = cpu_seconds(exporter.0.id());
        for _ in 0..SCRAPES {
            scrape(19100);
        }
        scrapes.push((cpu_seconds(exporter.0.id()) - before) / f64::from(SCRAPES));
    }
    let before = cpu_seconds(ours.0.id());
    for _ in 0..4 {
        scrape(19847);
        std::thread::sleep(Duration::from_secs(15));
    }
    let scraped = (cpu_seconds(ours.0.id()) - before) / 60.0;
    let (sample, scrape) = (median(&samples).unwrap(), median(&scrapes).unwrap());
    println!(
        "loadline, one sample (1 Hz, everything else it does included): {:.0} us",
        sample * 1e6
    );
    println!(
        "node_exporter, one scrape of the same sources:                {:.0} us",
        scrape * 1e6
    );
    println!("ratio: {:.3} (to reach: 0.1)", sample / scrape);
    println!(
        "share of a core at 1 Hz, scraped every 15 s: {:.3} % (to reach: 0.1 %)",
        scraped * 100.0
    );
    println!("resident: {:.1} MiB (to reach: 20 MiB)", resident_bytes(ours.0.id()) / 1048576.0);
}

/// A root with `n` disks and `n` interfaces.
fn root(dir: &Path, n: usize) -> Roots {
    let file = |path: String, text: String| {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let link = |to: String, at: String| {
        let at = dir.join(at);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(dir.join(to), at).unwrap();
    };
    let mut diskstats = String::new();
    let mut netdev = String::from("head\nhead\n");
    for i in 0..n {
        diskstats += &format!("8 {i} sd{i} 100 0 800 50 100 0 800 50 0 60 100 0 0 0 0 0 0\n");
        let disk = format!("sys/devices/pci0/host{i}/block/sd{i}");
        file(format!("{disk}/queue/rotational"), "1\n".into());
        file(format!("{disk}/dev"), format!("8:{i}\n"));
        file(format!("{disk}/size"), "1000000\n".into());
        file(format!("{disk}/diskseq"), format!("{i}\n"));
        link(disk.clone(), format!("sys/block/sd{i}"));
        link(disk, format!("sys/class/block/sd{i}"));
        netdev += &format!("  eth{i}: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0\n");
        let net = format!("sys/devices/pci1/eth{i}/net/eth{i}");
        file(format!("{net}/speed"), "1000\n".into());
        file(format!("{net}/ifindex"), format!("{}\n", i + 2));
        file(format!("{net}/type"), "1\n".into());
        link(format!("sys/devices/pci1/eth{i}"), format!("{net}/device"));
        link(net, format!("sys/class/net/eth{i}"));
    }
    file("proc/diskstats".into(), diskstats);
    file("proc/1/net/dev".into(), netdev);
    file("proc/stat".into(), "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n".into());
    Roots { procfs: dir.join("proc"), sysfs: dir.join("sys"), rootfs: "/".into() }
}

/// All four ceilings of each disk in force.
fn ceilings(disks: &[DiskLive]) -> Effective {
    let entry = |disk: &DiskLive, way, unit, value| {
        let resource = Resource::Disk(disk.device.to_string());
        Some(Entry {
            of: Of { resource, way, unit },
            identity: disk.identity.to_string(),
            by: "knee@bench".into(),
            value,
            trust: Trust::Knee,
            kind: Persistence::Sustained,
            short_stroke: false,
            block: Bytes(4096),
            depth: 32.0,
            latency: Seconds(0.001),
            source: "a knee at depth 32".into(),
            at: Some(1_700_000_000.0),
            fallen: 0,
        })
    };
    let of = |disk: &DiskLive| {
        let side = |way| Side {
            operations: entry(disk, way, Unit::OperationsPerSecond, 10_000.0),
            bytes: entry(disk, way, Unit::BytesPerSecond, 500e6),
        };
        let [read, write] = Way::ALL.map(side);
        (disk.device.clone(), DiskCeilings { identity: disk.identity.to_string(), read, write })
    };
    Effective { disks: disks.iter().map(of).collect(), ..Effective::default() }
}

fn growth() {
    println!("\ndisks + links   us a tick   us a device   of it against ceilings   series");
    for n in [10, 100, 1000, 5000] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let roots = root(dir.path(), n);
        let settings = SampleSettings { devices_max: 10_000, ..SampleSettings::default() };
        let mut samplers: Vec<_> =
            SAMPLERS.iter().map(|kind| (kind.open)(&roots, &settings)).collect();
        let (own, mut live) = (OwnRuns::default(), Live::default());
        let start = SystemClock.now();
        let (mut costs, mut against) = (Vec::new(), Vec::new());
        let (mut series, mut in_force) = (0, Effective::default());
        for second in 0..12 {
            let at: Moment = start.plus(Duration::from_secs(second));
            let mut reading = Reading::default();
            let before = own_cpu_seconds();
            for sampler in &mut samplers {
                let _ = sampler.read(Tick { at, own: &own }, &mut reading);
            }
            let read = own_cpu_seconds();
            let out = (&mut reading.points, &mut reading.resources[..]);
            live.disks(&reading.disks, &in_force, out);
            let end = own_cpu_seconds();
            costs.push(end - before);
            against.push(end - read);
            series = reading.points.len();
            if in_force.disks.is_empty() {
                in_force = ceilings(&reading.disks);
            }
        }
        // The first ticks look at the static facts of each device.
        let [tick, against] = [&costs, &against].map(|all| median(&all[4..]).unwrap() * 1e6);
        let device = tick / (2 * n) as f64;
        println!("{:>13}   {tick:>9.0}   {device:>11.2}   {against:>22.0}   {series:>6}", 2 * n);
    }
}

fn a_large_page() {
    static BUSY: Desc = Desc::gauge("loadline_bench_ratio", &["device"], "a series", "bench");
    let points: Vec<Point> = (0..5000)
        .map(|i| {
            let label: Label = Arc::from(format!("device-{i}"));
            Point::number(&BUSY, &[&label], i as f64 / 7.0)
        })
        .collect();
    let costs: Vec<f64> = (0..21)
        .map(|_| {
            let before = own_cpu_seconds();
            assert!(!render(points.iter()).text.is_empty());
            own_cpu_seconds() - before
        })
        .collect();
    println!(
        "\na page of 5,000 series: {:.2} ms of CPU (to reach: 2)",
        median(&costs).unwrap() * 1e3
    );
}
