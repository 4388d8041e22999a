//! The disk engine beside fio: both alternate on the same device and file, with the same engine,
//! depth and size, and the medians of the ratios are printed.
//!
//! `cargo bench --bench disk [-- memory zram physics root]`. Ratios, because the machine may be
//! noisy; its load is printed beside them. `LOADLINE_BENCH_PAIRS` and `LOADLINE_BENCH_SECONDS` make
//! runs more or longer. A part that can't run here says why. Never part of CI.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::too_many_arguments,
    unreachable_pub,
    unsafe_code,
    reason = "a benchmark, with the laboratory's disk"
)]

#[allow(dead_code, reason = "shared with the laboratory, which uses more of it")]
#[path = "../tests/lab/model.rs"]
mod model;
#[allow(dead_code, reason = "shared with the laboratory, which uses more of it")]
#[path = "../tests/lab/physics.rs"]
mod physics;

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use loadline::base::stats::median;
use loadline::base::units::{Bytes, MIB, Ratio, Seconds};
use loadline::model::job::{
    Access, EngineKind, Event, Job, Place, Profile, Region, Run, Target, Task, WIRE_VERSION, What,
};
use loadline::model::outcome::{Measured, Outcome, Reply};
use loadline::probe::disk::{Preset, shape};
use loadline::workload::ballast;
use loadline::workload::pattern::Filler;

const FILE: Bytes = Bytes(256 * MIB);

/// Says why where it can't run here.
type Part = fn() -> Result<(), String>;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let parts: [(&str, Part); 4] =
        [("memory", memory), ("zram", zram), ("physics", on_physics), ("root", root_disk)];
    for (name, part) in parts {
        if asked.is_empty() || asked.iter().any(|a| a == name) {
            println!("\n{name}: load {}", load());
            match part() {
                Ok(()) => println!("{name}: load {}", load()),
                Err(reason) => println!("skipped: {reason}"),
            }
        }
    }
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().to_owned()
}

fn number<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

// ---- one run of either ------------------------------------------------------------------------

/// What one run came to, in seconds.
#[derive(Clone, Copy, Debug)]
struct Seen {
    rate: f64,
    mean: f64,
    p99: f64,
    /// CPU of the whole process for one operation.
    cpu: f64,
}

#[derive(Clone, Copy, Debug)]
struct Usage {
    cpu: f64,
    resident_max: Bytes,
}

/// What a process said until its end, and what it and its threads used, the kernel's I/O workers
/// included.
fn finish(mut child: Child) -> (String, Usage) {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let mut status = 0;
    // SAFETY: plain old data that the kernel fills in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right types.
    let pid = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    assert_eq!(pid, child.id() as i32);
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    (text, Usage { cpu, resident_max: Bytes(usage.ru_maxrss as u64 * 1024) })
}

/// A worker of its own for one task.
fn worker(task: Task) -> (Reply, Usage) {
    let job = Job { v: WIRE_VERSION, polite: false, task };
    let mut child = Command::new(env!("CARGO_BIN_EXE_loadline"))
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Kept open until the end: end of file means stop.
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", serde_json::to_string(&job).unwrap()).unwrap();
    let (text, usage) = finish(child);
    drop(input);
    let last: Event = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let What::Outcome { reply } = last.what else { panic!("{text}") };
    (*reply, usage)
}

/// What a workload runs on.
struct Ground<'a> {
    target: &'a Target,
    region: Region,
    /// The same bytes for fio.
    path: PathBuf,
    bytes: Bytes,
}

fn ours(place: &Ground<'_>, profile: &Profile) -> (Measured, Usage) {
    let run = Run {
        kind: "disk".into(),
        target: place.target.clone(),
        region: place.region,
        legs: vec![profile.clone()],
        engine: Some(EngineKind::IoUring),
        seed: fastrand::u64(..),
        devices: Vec::new(),
        top: Vec::new(),
        reserve: Bytes(0),
        procfs: "/proc".into(),
        quiet: Seconds(0.0),
    };
    match worker(Task::Run(run)) {
        (Reply::Ran(Outcome::Done(mut done)), usage) => (done.legs.remove(0), usage),
        other => panic!("{other:?}"),
    }
}

fn ours_seen(place: &Ground<'_>, profile: &Profile) -> Seen {
    let (leg, usage) = ours(place, profile);
    let operations = leg.operations() as f64;
    // As fio counts: it leaves the flush out.
    let time = leg.elapsed.0 - leg.flush.map_or(0.0, |flush| flush.0);
    let sides = [&leg.reads, &leg.writes];
    let mean: f64 = sides
        .iter()
        .map(|side| side.latency_mean.map_or(0.0, |mean| mean.0) * side.operations as f64)
        .sum();
    let p99 = sides.iter().flat_map(|side| &side.latency).filter(|(q, _)| *q == 0.99);
    Seen {
        rate: operations / time,
        mean: mean / operations,
        p99: p99.map(|(_, at)| at.0).fold(f64::NAN, f64::max),
        cpu: usage.cpu / operations,
    }
}

/// fio at its best: registered buffers and files, no map, plain reads instead of vectors.
fn fio_seen(place: &Ground<'_>, profile: &Profile) -> Seen {
    let share = place.bytes.0 / u64::from(profile.jobs) / profile.block.0 * profile.block.0;
    let word = match (profile.access, profile.reads.0) {
        (Access::Sequential, 1.0) => "read",
        (Access::Sequential, _) => "write",
        (_, 1.0) => "randread",
        (_, 0.0) => "randwrite",
        _ => "randrw",
    };
    let child = Command::new("fio")
        .args(["--name=x", "--ioengine=io_uring", "--registerfiles=1", "--fixedbufs=1"])
        .args(["--norandommap=1", "--nonvectored=1", "--direct=1", "--thread", "--randrepeat=0"])
        .args(["--group_reporting", "--output-format=json", "--time_based", "--end_fsync=1"])
        .args(["--lat_percentiles=1", "--clat_percentiles=0", "--allow_file_create=0"])
        .args(["--overwrite=1", "--fallocate=none"])
        .arg(format!("--filename={}", place.path.display()))
        .arg(format!("--rw={word}"))
        .arg(format!("--rwmixread={}", (profile.reads.0 * 100.0).round()))
        .arg(format!("--bs={}", profile.block.0))
        .arg(format!("--iodepth={}", profile.depth))
        .arg(format!("--numjobs={}", profile.jobs))
        .arg(format!("--size={share}"))
        .arg(format!("--offset_increment={share}"))
        .arg(format!("--runtime={}", profile.runtime.0))
        .stdout(Stdio::piped())
        .spawn();
    let (text, usage) = finish(child.unwrap());
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap_or(0)..])
        .unwrap_or_else(|_| panic!("{text}"));
    let job = &json["jobs"][0];
    let of = |side: &str, key: &str| job[side][key].as_f64().unwrap();
    let sides = ["read", "write"];
    let operations: f64 = sides.iter().map(|side| of(side, "total_ios")).sum();
    let mean: f64 = sides
        .iter()
        .map(|s| job[s]["lat_ns"]["mean"].as_f64().unwrap() * of(s, "total_ios") / 1e9)
        .sum();
    let p99 = sides.iter().filter_map(|s| job[s]["lat_ns"]["percentile"]["99.000000"].as_f64());
    Seen {
        rate: sides.iter().map(|side| of(side, "iops")).sum(),
        mean: mean / operations,
        p99: p99.fold(f64::NAN, f64::max) / 1e9,
        cpu: usage.cpu / operations,
    }
}

// ---- pairs of runs ----------------------------------------------------------------------------

/// Medians over `pairs` of what loadline saw as a share of what fio saw.
fn compare(place: &Ground<'_>, profile: &Profile, pairs: usize) {
    let pairs = number("LOADLINE_BENCH_PAIRS", pairs);
    let seen: Vec<(Seen, Seen)> = (0..pairs)
        .map(|pair| {
            // Who is first alternates as well, against drift.
            if pair % 2 == 0 {
                let ours = ours_seen(place, profile);
                (ours, fio_seen(place, profile))
            } else {
                let fio = fio_seen(place, profile);
                (ours_seen(place, profile), fio)
            }
        })
        .collect();
    let ratio = |f: fn(&Seen) -> f64| {
        let ratios: Vec<f64> = seen.iter().map(|(ours, fio)| f(ours) / f(fio)).collect();
        let spread = |best: fn(f64, f64) -> f64| ratios.iter().copied().reduce(best).unwrap();
        let middle = median(&ratios).unwrap_or(f64::NAN);
        if middle.is_nan() {
            return "absent".to_owned(); // too few operations for this quantile
        }
        format!("{middle:.3} ({:.2}..{:.2})", spread(f64::min), spread(f64::max))
    };
    let middle = |f: &dyn Fn(&(Seen, Seen)) -> f64| {
        median(&seen.iter().map(f).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    println!(
        "{:<10} {pairs} pairs: rate {}, mean {}, p99 {}, CPU {}",
        profile.name,
        ratio(|s| s.rate),
        ratio(|s| s.mean),
        ratio(|s| s.p99),
        ratio(|s| s.cpu),
    );
    println!(
        "           loadline {:.0}/s, {:.1} us, CPU {:.2} us; fio {:.0}/s, {:.1} us, CPU {:.2} us",
        middle(&|(ours, _)| ours.rate),
        middle(&|(ours, _)| ours.mean * 1e6),
        middle(&|(ours, _)| ours.cpu * 1e6),
        middle(&|(_, fio)| fio.rate),
        middle(&|(_, fio)| fio.mean * 1e6),
        middle(&|(_, fio)| fio.cpu * 1e6),
    );
}

fn profile(preset: Preset, seconds: f64) -> Profile {
    let profile = shape(preset).legs.remove(0);
    let runtime = Seconds(number("LOADLINE_BENCH_SECONDS", seconds));
    Profile { runtime, bytes_max: Bytes(u64::MAX), ..profile }
}

fn needs(program: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop).map_err(|_| format!("{program} is not installed"))
}

fn needs_root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err("needs root".into()) }
}

/// A ballast file in `directory`, for both.
fn with_ballast(directory: &Path, then: impl FnOnce(&Ground<'_>)) -> Result<(), String> {
    let place = Place::Directory(directory.to_path_buf());
    let target = Target { name: "bench".into(), place };
    let (bytes, reserve, seed) = (FILE, Bytes(0), fastrand::u64(..));
    match worker(Task::LayOut { target: target.clone(), bytes, reserve, seed }).0 {
        Reply::LaidOut { .. } => {}
        other => return Err(format!("no ballast file in {}: {other:?}", directory.display())),
    }
    let path = directory.join(ballast::DIRECTORY).join(ballast::NAME);
    then(&Ground { target: &target, region: Region::Ballast(FILE), path, bytes: FILE });
    Ok(())
}

// ---- parts ------------------------------------------------------------------------------------

/// A disk in memory, of its own.
struct Zram(u32);

impl Zram {
    fn new() -> Result<Self, String> {
        let number = std::fs::read_to_string("/sys/class/zram-control/hot_add")
            .map_err(|error| format!("no zram here: {error}"))?;
        let disk = Self(number.trim().parse().unwrap());
        let size = FILE.0.to_string();
        std::fs::write(format!("/sys/block/zram{}/disksize", disk.0), size).unwrap();
        let device = std::fs::OpenOptions::new().write(true).open(disk.path()).unwrap();
        let (mut filler, mut block) = (Filler::new(7), vec![0; MIB as usize]);
        for offset in (0..FILE.0).step_by(MIB as usize) {
            filler.fill(&mut block);
            device.write_all_at(&block, offset).unwrap();
        }
        device.sync_all().unwrap();
        Ok(disk)
    }

    fn path(&self) -> PathBuf {
        format!("/dev/zram{}", self.0).into()
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", self.0.to_string());
    }
}

/// To reach: rate >= 1.02, CPU <= 0.85.
fn zram() -> Result<(), String> {
    needs_root()?;
    needs("fio")?;
    let disk = Zram::new()?;
    let target = Target { name: "zram".into(), place: Place::Device(disk.path()) };
    let place =
        Ground { target: &target, region: Region::WholeDevice, path: disk.path(), bytes: FILE };
    let profile = Profile { depth: 32, jobs: 1, ..profile(Preset::RandRead, 3.0) };
    compare(&place, &profile, 9);
    Ok(())
}

/// To reach: rate within 1 %, mean latency within 2 %.
fn on_physics() -> Result<(), String> {
    needs_root()?;
    needs("fio")?;
    if !Path::new("/dev/fuse").exists() {
        return Err("no /dev/fuse".into());
    }
    let disk = physics::PhysicsDisk::new(model::Physics::constant(120.0, 1));
    let mount = Mount::new(&disk.device)?;
    with_ballast(mount.0.path(), |place| {
        for preset in Preset::ALL {
            compare(place, &profile(preset, 10.0), 5);
        }
    })
}

/// A file system without a journal, so that only the file's own bytes are on the way.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(device: &str) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=1", device])
            .status()
            .map_err(|error| format!("mkfs.ext4: {error}"))?;
        let mounted = Command::new("mount")
            .args(["-o", "noatime,lazytime,noinit_itable", device])
            .arg(directory.path())
            .status()
            .map_err(|error| format!("mount: {error}"))?;
        if made.success() && mounted.success() {
            Ok(Self(directory))
        } else {
            Err("no ext4".into())
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// To reach: within 10 %. The disk under the build directory, as it is: fio beside itself is within
/// 3 % on a busy one only now and then.
fn root_disk() -> Result<(), String> {
    needs("fio")?;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
    with_ballast(directory.path(), |place| {
        for preset in [Preset::RandRead, Preset::SeqRead] {
            compare(place, &profile(preset, 3.0), 15);
        }
    })
}

/// Peak memory of a worker with 512 MiB of file and 32 MiB in flight. To reach: 48 MiB.
fn memory() -> Result<(), String> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
    let place = Place::Directory(directory.path().to_path_buf());
    let target = Target { name: "bench".into(), place };
    let bytes = Bytes(512 * MIB);
    let (region, path) = (Region::Unnamed(bytes), PathBuf::new());
    let place = Ground { target: &target, region, path, bytes };
    for reads in [1.0, 0.0] {
        let profile = Profile { reads: Ratio(reads), ..profile(Preset::SeqRead, 1.0) };
        let (leg, usage) = ours(&place, &profile);
        println!(
            "{} of 1 MiB at depth 32: {:.1} MiB at most (to reach: 48 MiB)",
            if reads == 1.0 { "reads" } else { "writes" },
            usage.resident_max.0 as f64 / MIB as f64,
        );
        assert!(leg.operations() > 0);
    }
    Ok(())
}
