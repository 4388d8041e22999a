//! The ballast file: written once, unique and whole; given back; nothing else ever left.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use loadline::base::fault::FaultKind;
use loadline::base::units::{Bytes, MIB};
use loadline::host::roots::Roots;
use loadline::model::job::Task;
use loadline::model::outcome::Reply;
use rustix::fs::FallocateFlags;

use crate::Promise;
use crate::fuse::{Faults, Fuse};
use crate::harness::{BINARY, Setup, disk_dir, until};
use crate::volume::{Volume, below};
use crate::worker::{
    FILE, fault, give_back, in_ballast, in_directory, laid_out, lay_out, leg, measured, work,
};

pub const PROMISES: &[Promise] = &[
    Promise::new("case_100_the_ballast_is_written_once_of_blocks_that_nothing_shrinks", unique),
    Promise::new("a_ballast_with_holes_or_unwritten_extents_is_none", holes),
    Promise::new("what_is_given_back_reaches_the_disk_below", discarded)
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
    Promise::new("under_the_reserve_the_ballast_is_given_back", under_reserve)
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
    Promise::new("case_097_killed_at_any_moment_a_run_by_hand_leaves_no_name", killed)
        .root()
        .needs(&["fusermount3"]),
    Promise::new("case_097_what_is_not_loadlines_own_survives_it", strangers)
        .root()
        .needs(&["fusermount3"]),
];

fn unique() {
    let dir = disk_dir();
    laid_out(dir.path());
    let file = dir.path().join(".loadline/ballast");
    let content = std::fs::read(&file).unwrap();
    let blocks = content[..FILE.0 as usize].chunks(4096);
    assert_eq!(blocks.clone().collect::<HashSet<_>>().len(), blocks.len(), "each is another");
    let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, &content[..MIB as usize]).unwrap();
    let packed = packer.finish().unwrap().len();
    assert!(packed as u64 > MIB / 100 * 99, "{packed} bytes of 1 MiB after compression");
    let before = std::fs::metadata(&file).unwrap();
    assert!(before.blocks() * 512 >= FILE.0 / 100 * 95, "it takes its room on the disk");
    let again = work(lay_out(dir.path()));
    assert!(matches!(again, Reply::LaidOut { written: Bytes(0) }), "{again:?}");
    let after = std::fs::metadata(&file).unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
}

fn seen(path: &std::path::Path) -> Option<Bytes> {
    let Roots { procfs, sysfs, rootfs } = Roots::default();
    let target = in_directory(path);
    match work(Task::Inspect { target, procfs, sysfs, rootfs }) {
        Reply::Inspected(inspection) => inspection.ballast,
        other => panic!("{other:?}"),
    }
}

fn holes() {
    let dir = disk_dir();
    laid_out(dir.path());
    assert_eq!(seen(dir.path()), Some(FILE));
    let file =
        std::fs::File::options().write(true).open(dir.path().join(".loadline/ballast")).unwrap();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(&file, hole, MIB, MIB).is_err() {
        return println!("skipped: no holes can be made there");
    }
    for what in ["a hole", "an unwritten extent"] {
        assert_eq!(seen(dir.path()), None, "{what}");
        let refused = fault(work(Task::Run(in_ballast(dir.path(), leg(1.0)))));
        assert_eq!(refused.kind, FaultKind::Missing, "{what}: {refused}");
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, MIB, MIB).unwrap();
    }
    laid_out(dir.path());
    measured(work(Task::Run(in_ballast(dir.path(), leg(1.0)))));
}

/// A loop device passes a discard on as a hole in its file.
fn discarded() {
    let volume = Volume::ext4(64);
    let used = || std::fs::metadata(&volume.disk.backing).unwrap().blocks() * 512;
    laid_out(volume.path());
    let full = used();
    assert!(full >= FILE.0, "{full}");
    work(give_back(volume.path()));
    let after = used();
    assert!(full - after >= FILE.0 / 100 * 95, "{full} bytes before, {after} after");
    assert_eq!(below(volume.path()), [] as [&str; 0]);
}

fn under_reserve() {
    let volume = Volume::ext4(128);
    let path = volume.path().display();
    let with = |reserve| {
        format!(
            "guard: {{reserve: {reserve}}}\n\
             targets: [{{name: t, path: {path}, ballast: 64MiB, writes: true}}]\n\
             probes: [{{name: p, kind: latency, target: t, every: 10s}}]\n"
        )
    };
    laid_out(volume.path());
    let daemon = Setup::config(with("100MiB")).start();
    until("the ballast to be given back", || below(volume.path()).is_empty().then_some(()));
    let full = &["probe=\"p\"", "reason=\"full\""];
    daemon.until_metric("loadline_probe_skips_total", full, |n| n >= 1.0);
    assert_eq!(below(volume.path()), [] as [&str; 0], "and it is not laid out again");
}

fn children(pid: u32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn kill_in(target: &std::path::Path, after: Duration) {
    let state = disk_dir();
    let mut command = Command::new(BINARY)
        .args(["probe", "disk", "--profile", "rand_rw", "--runtime", "9s", "--size", "32MiB"])
        .args(["--target", &target.display().to_string()])
        .env("STATE_DIRECTORY", state.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::park_timeout(after);
    let workers = children(command.id());
    for worker in &workers {
        let pid = rustix::process::Pid::from_raw(*worker).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    command.kill().unwrap();
    command.wait().unwrap();
    let gone =
        |pid: &i32| !std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| !c.is_empty());
    until("the workers to end", || workers.iter().all(gone).then_some(()));
}

fn killed() {
    let disk = disk_dir();
    // It has no unnamed files: there one name is needed for an instant.
    let fuse = Fuse::new(Faults::default());
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..5 {
        for path in [disk.path(), &fuse.path] {
            kill_in(path, Duration::from_millis(random.u64(20..400)));
            let left = below(path);
            let known = |name: &String| path == fuse.path && name == ".loadline-unnamed";
            assert!(left.iter().all(known), "round {round}: {left:?}");
        }
    }
    measured(work(Task::Run(crate::worker::unnamed(&fuse.path, leg(1.0)))));
    assert_eq!(below(&fuse.path), [] as [&str; 0], "the next run takes the name away");
}

fn strangers() {
    let fuse = Fuse::new(Faults::default());
    let kept = ["job1.0.0", ".loadline-unnamed/precious"].map(|name| fuse.path.join(name));
    std::fs::create_dir(fuse.path.join(".loadline-unnamed")).unwrap();
    for path in &kept {
        std::fs::write(path, "mine").unwrap();
    }
    let refused = fault(work(Task::Run(crate::worker::unnamed(&fuse.path, leg(1.0)))));
    assert_eq!(refused.kind, FaultKind::Refused, "{refused}");
    assert!(refused.text.contains(".loadline-unnamed"), "{refused}");
    laid_out(&fuse.path);
    work(give_back(&fuse.path));
    for path in &kept {
        assert_eq!(std::fs::read_to_string(path).unwrap(), "mine");
    }
}
