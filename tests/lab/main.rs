//! The lab: scenarios whose answer is known by construction.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::too_many_arguments,
    reason = "tests"
)]

pub mod model;
pub mod physics;

use std::collections::BTreeMap;

use model::Physics;
use physics::PhysicsDisk;

fn installed(program: &str) -> bool {
    std::process::Command::new(program).arg("--version").output().is_ok()
}

/// Why the lab can't run here; printed, never silent.
fn cannot_run() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root");
    }
    if !std::path::Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse");
    }
    if !installed("fio") { Some("fio is not installed") } else { None }
}

/// Random 4 KiB reads by fio at `depth`; operations a second.
fn fio_rate(disk: &PhysicsDisk, depth: usize, seconds: u32) -> f64 {
    let output = std::process::Command::new("fio")
        .args(["--name=x", "--filename", &disk.device, "--rw=randread", "--bs=4k"])
        .args(["--ioengine=libaio", "--direct=1", "--norandommap", "--randrepeat=0"])
        .args(["--time_based", "--output-format=json", "--ramp_time=1"])
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--runtime={seconds}"))
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    json["jobs"][0]["read"]["iops"].as_f64().unwrap()
}

#[test]
fn the_disk_does_what_its_model_says_at_every_depth() {
    if let Some(reason) = cannot_run() {
        println!("skipped: {reason}");
        return;
    }
    let mut table = BTreeMap::new();
    for heads in [1, 32] {
        let physics = Physics::constant(120.0, heads);
        let disk = PhysicsDisk::new(physics.clone());
        let stats = std::fs::read_to_string("/proc/diskstats").unwrap();
        assert!(stats.contains(&format!(" {} ", disk.name())), "it has its row");
        for depth in [1, 2, 8, 32] {
            let rate = fio_rate(&disk, depth, 6);
            table.insert((heads, depth), (rate, physics.rate(4096, depth)));
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
