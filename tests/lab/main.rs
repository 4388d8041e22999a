//! The lab: scenarios whose answer is known by construction.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::too_many_arguments,
    unreachable_pub,
    reason = "tests"
)]

mod fio;
#[allow(dead_code, reason = "shared with the end-to-end tests, which use more of it")]
#[path = "../e2e/harness.rs"]
mod harness;
mod legs;
pub mod model;
mod oltp;
pub mod physics;
#[allow(dead_code, reason = "shared with the ground tests, which use more of it")]
#[path = "../ground/volume.rs"]
mod volume;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fio::Fio;
use harness::{Daemon, NO_PROBES, Page, Setup, until_within};

use model::Physics;
use physics::PhysicsDisk;

/// One disk at a time: they share two cores.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why the lab can't run here; printed, never silent.
fn cannot_run() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root");
    }
    if !std::path::Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse");
    }
    if !harness::installed("fio") { Some("fio is not installed") } else { None }
}

/// Reads completed so far, by the kernel's count.
fn reads_completed(disk: &PhysicsDisk) -> u64 {
    let stat = std::fs::read_to_string(format!("/sys/block/{}/stat", disk.name())).unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

/// Operations a second at `depth`, over the operations of 5 s as the model has it.
fn rate(disk: &PhysicsDisk, depth: usize, expected: f64) -> f64 {
    let fio = Fio::reads(&disk.device, depth);
    let reach = |reads: u64| {
        until_within(Duration::from_secs(60), "reads", || {
            (reads_completed(disk) >= reads).then(|| (Instant::now(), reads_completed(disk)))
        })
    };
    let (start, before) = reach(reads_completed(disk) + 2 * depth as u64 + 50);
    let (end, after) = reach(before + (expected * 5.0) as u64);
    drop(fio);
    (after - before) as f64 / (end - start).as_secs_f64()
}

#[test]
fn the_disk_does_what_its_model_says_at_every_depth() {
    if let Some(reason) = cannot_run() {
        println!("skipped: {reason}");
        return;
    }
    let _turn = turn();
    let mut table = BTreeMap::new();
    for heads in [1, 32] {
        let physics = Physics::constant(120.0, heads);
        let disk = PhysicsDisk::new(physics.clone());
        let stats = std::fs::read_to_string("/proc/diskstats").unwrap();
        assert!(stats.contains(&format!(" {} ", disk.name())), "it has its row");
        for depth in [1, 2, 8, 32] {
            let model = physics.rate(4096, depth);
            // A host with other work only slows it: the fastest of three.
            let mut fastest = 0.0_f64;
            for _ in 0..3 {
                fastest = fastest.max(rate(&disk, depth, model));
                if fastest > model * 0.98 {
                    break;
                }
            }
            table.insert((heads, depth), (fastest, model));
        }
    }
    for ((heads, depth), (rate, model)) in &table {
        println!("{heads} heads, depth {depth}: {rate:.1}/s of {model:.1}/s");
    }
    for ((heads, depth), (rate, model)) in table {
        assert!(
            (rate / model - 1.0).abs() < 0.02,
            "{heads} heads, depth {depth}: {rate} of {model}"
        );
    }
}

/// Growth of a counter between two pages.
fn grown(pages: (&Page, &Page), name: &str, label: &str) -> f64 {
    pages.1.get(name, &[label]).unwrap() - pages.0.get(name, &[label]).unwrap()
}

fn wait_for_reads(daemon: &Daemon, label: &str, more_than: f64) -> Page {
    let name = "loadline_disk_reads_completed_total";
    until_within(Duration::from_secs(60), "reads", || {
        let page = daemon.page();
        page.get(name, &[label]).is_some_and(|reads| reads > more_than).then_some(page)
    })
}

/// In flight while the daemon is held against the model.
const DEPTH: usize = 8;

#[test]
fn the_daemon_sees_what_the_disk_does() {
    if let Some(reason) = cannot_run() {
        println!("skipped: {reason}");
        return;
    }
    let _turn = turn();
    let physics = Physics::constant(120.0, 1);
    let disk = PhysicsDisk::new(physics.clone());
    let label = format!("device=\"{}\"", disk.name());
    let daemon = Setup::config(NO_PROBES).start();
    let fio = Fio::reads(&disk.device, DEPTH);
    // fio's start, and a host with other work, take from a window: one of three is whole.
    let mut before = wait_for_reads(&daemon, &label, 200.0);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let reads = before.get("loadline_disk_reads_completed_total", &[&label]).unwrap();
        let after = wait_for_reads(&daemon, &label, reads + 1000.0);
        seen = against_model((&before, &after), &label, physics.rate(4096, DEPTH));
        if seen.iter().all(|(_, ours, model)| (ours / model - 1.0).abs() < 0.03) {
            break;
        }
        before = after;
    }
    drop(fio);
    for (what, ours, model) in seen {
        assert!((ours / model - 1.0).abs() < 0.03, "{what}: {ours}, the model says {model}");
    }
}

/// What a window shows of the disk at [`DEPTH`], and what its model says.
fn against_model(pages: (&Page, &Page), label: &str, rate: f64) -> Vec<(&'static str, f64, f64)> {
    let time = grown(pages, "loadline_sampler_last_success_timestamp_seconds", "sampler=\"disk\"");
    let of = |name: &str| grown(pages, name, label);
    let reads = of("loadline_disk_reads_completed_total");
    let depth = DEPTH as f64;
    let seen = vec![
        ("busy", of("loadline_disk_busy_seconds_total") / time, 1.0),
        ("queue", of("loadline_disk_queue_time_seconds_total") / time, depth),
        ("await", of("loadline_disk_read_time_seconds_total") / reads, depth / rate),
        ("rate", reads / time, rate),
    ];
    for (what, ours, model) in &seen {
        println!("{what}: {ours:.4} of {model:.4}");
    }
    seen
}

#[test]
fn a_stall_is_named_while_it_lasts() {
    if let Some(reason) = cannot_run() {
        println!("skipped: {reason}");
        return;
    }
    let _turn = turn();
    let disk = PhysicsDisk::new(Physics::constant(120.0, 1));
    let label = format!("device=\"{}\"", disk.name());
    let daemon = Setup::config(NO_PROBES).start();
    let fio = Fio::reads(&disk.device, 4);
    wait_for_reads(&daemon, &label, 100.0);
    let stalled = |is: f64| {
        until_within(Duration::from_secs(8), "loadline_disk_stalled", || {
            let now = daemon.page().get("loadline_disk_stalled", &[&label])?;
            (now == is).then_some(())
        });
    };
    stalled(0.0);
    disk.commands.stalled.store(true, Ordering::Relaxed);
    stalled(1.0);
    disk.commands.stalled.store(false, Ordering::Relaxed);
    stalled(0.0);
    drop(fio);
}

#[test]
fn a_disk_that_goes_keeps_nobody_waiting_who_has_it_open() {
    if let Some(reason) = cannot_run() {
        println!("skipped: {reason}");
        return;
    }
    let _turn = turn();
    let disk = PhysicsDisk::new(Physics::constant(120.0, 1));
    let file = std::fs::File::open(&disk.device).unwrap();
    disk.commands.stalled.store(true, Ordering::Relaxed);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut block = [0; 4096];
        let mut reads = |offset| std::os::unix::fs::FileExt::read_at(&file, &mut block, offset);
        let _ = tell.send([0, 64 << 20].map(|offset| reads(offset).is_ok()));
    });
    let inflight = format!("/sys/block/{}/inflight", disk.name());
    until_within(Duration::from_secs(60), "a read in flight", || {
        let text = std::fs::read_to_string(&inflight).unwrap();
        (text.split_whitespace().next() != Some("0")).then_some(())
    });
    drop(disk);
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok([false; 2]));
}
