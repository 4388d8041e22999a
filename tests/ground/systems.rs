//! Every kind of file system: measured direct, or said why not.

use std::path::Path;
use std::process::Command;

use loadline::base::fault::FaultKind;
use loadline::base::units::{Bytes, MIB, Seconds};
use loadline::model::job::{Profile, Region, Task, What};
use loadline::model::outcome::Reply;

use crate::Promise;
use crate::fuse::{Call, Faults, Fuse};
use crate::harness::{BINARY, disk_dir, loadline, must};
use crate::volume::{Disk, Mounted, Volume, below};
use crate::worker::{
    FILE, Worker, fault, give_back, in_ballast, in_directory, laid_out, leg, measured, run, target,
    unnamed, work,
};

pub const PROMISES: &[Promise] = &[
    Promise::new("ext4_is_measured_direct", ext4).root().needs(&["losetup", "mkfs.ext4"]),
    Promise::new("xfs_is_measured_direct", xfs).root().needs(&["losetup", "mkfs.xfs"]),
    Promise::new("case_093_btrfs_is_measured_direct_without_checksums", btrfs).root().needs(&[
        "losetup",
        "mkfs.btrfs",
        "lsattr",
    ]),
    Promise::new("case_093_btrfs_with_checksums_is_not_called_direct", btrfs_checksums)
        .root()
        .needs(&["losetup", "mkfs.btrfs"]),
    Promise::new("case_090_memory_is_refused_whatever_lies_over_it", memory)
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
    Promise::new("case_090_an_overlay_on_a_disk_is_measured_direct", overlay)
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
    Promise::new("blocks_under_a_sector_are_refused_by_name", big_sectors)
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
    Promise::new("blocks_under_an_unspoken_sector_are_refused_by_name", unspoken_sector)
        .root()
        .needs(&["fusermount3"]),
    Promise::new("fuse_with_direct_io_is_measured_direct", fuse).root().needs(&["fusermount3"]),
    Promise::new("case_089_without_direct_io_there_is_a_reason_and_no_file", fuse_without)
        .root()
        .needs(&["fusermount3"]),
    Promise::new("case_092_what_the_cache_answered_is_flagged", journalled)
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
];

/// A ballast file is laid out, read and written direct, and given back whole.
fn is_measured_direct(path: &Path) {
    laid_out(path);
    let mut opened = None;
    let worker = Worker::start(Command::new(BINARY), Task::Run(in_ballast(path, leg(0.5))));
    let done = measured(worker.listen(|_, what| {
        if let What::Opened { direct, .. } = what {
            opened = Some(*direct);
        }
    }));
    let leg = &done.legs[0];
    assert_eq!((opened, done.flags.direct), (Some(true), Some(true)));
    assert_eq!((done.flags.prefilled, leg.errors, leg.short_operations), (Some(true), 0, 0));
    assert!(leg.reads.operations > 0 && leg.writes.operations > 0, "{leg:?}");
    match work(give_back(path)) {
        Reply::GivenBack { freed } => assert!(freed >= FILE, "{freed}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(below(path), [] as [&str; 0]);
}

fn says(profile: Profile, path: &Path, words: &[&str]) {
    let fault = fault(work(Task::Run(unnamed(path, profile))));
    assert_eq!(fault.kind, FaultKind::Unsupported, "{fault}");
    assert!(words.iter().all(|word| fault.text.contains(word)), "{words:?}: {fault}");
    assert_eq!(below(path), [] as [&str; 0]);
}

/// It runs when that is asked for, and never under the name of direct.
fn runs_buffered(path: &Path) {
    let buffered = Profile { direct: false, ..leg(0.5) };
    let done = measured(work(Task::Run(unnamed(path, buffered))));
    assert_eq!((done.flags.direct, done.legs[0].direct), (Some(false), false));
    assert_eq!(below(path), [] as [&str; 0]);
}

fn ext4() {
    is_measured_direct(Volume::ext4(64).path());
}

fn xfs() {
    let disk = Disk::new(320, &[]);
    is_measured_direct(Volume::on(disk, &["mkfs.xfs", "-q", "-f"], "rw").path());
}

fn btrfs() {
    let volume = Volume::btrfs();
    laid_out(volume.path());
    let file = volume.path().join(".loadline/ballast").display().to_string();
    let attributes = must("lsattr", &[&file]);
    assert!(attributes.split(' ').next().unwrap().contains('C'), "{attributes}");
    work(give_back(volume.path()));
    is_measured_direct(volume.path());
}

/// As a copy or a restore leaves it: whole, and with checksums.
fn btrfs_checksums() {
    let volume = Volume::btrfs();
    laid_out(volume.path());
    let file = volume.path().join(".loadline/ballast");
    let copy = volume.path().join("copy");
    std::fs::write(&copy, std::fs::read(&file).unwrap()).unwrap();
    std::os::unix::fs::chown(&copy, Some(0), Some(0)).unwrap();
    std::fs::rename(&copy, &file).unwrap();
    must("sync", &["-f", &file.display().to_string()]);
    let refused = fault(work(Task::Run(in_ballast(volume.path(), leg(0.5)))));
    assert_eq!(refused.kind, FaultKind::Unsupported, "{refused}");
    assert!(refused.text.contains("checksums"), "{refused}");
    let buffered = Profile { direct: false, ..leg(0.5) };
    let done = measured(work(Task::Run(in_ballast(volume.path(), buffered))));
    assert_eq!(done.flags.direct, Some(false));
}

/// Exit code 1 and these words from the command by hand.
fn command_refuses(target: &str, word: &str) {
    let state = disk_dir();
    let ran = loadline(&["probe", "disk", "--target", target, "--runtime", "1s"], state.path());
    assert_eq!(ran.code, Some(1), "{target}: {}{}", ran.out, ran.err);
    assert!(ran.err.contains(word), "{target}: {}", ran.err);
}

fn overlay_on(upper: &Path) -> Mounted {
    let [lower, up, work] = ["lower", "upper", "work"].map(|name| {
        let dir = upper.join(name);
        std::fs::create_dir(&dir).unwrap();
        dir.display().to_string()
    });
    let options = format!("lowerdir={lower},upperdir={up},workdir={work}");
    Mounted::new(&["-t", "overlay", "overlay", "-o", &options])
}

fn memory() {
    let tmpfs = Mounted::new(&["-t", "tmpfs", "tmpfs"]);
    let overlay = overlay_on(&tmpfs.path);
    for path in [&overlay.path, &tmpfs.path.join("lower")] {
        command_refuses(&path.display().to_string(), "memory, not a disk");
        says(leg(0.5), path, &["memory, not a disk"]);
        runs_buffered(path);
    }
    let Some(zram) = Zram::new() else { return println!("skipped: no zram on this kernel") };
    command_refuses(&zram.device(), "memory, not a disk");
    must("mkfs.ext4", &["-q", "-F", &zram.device()]);
    let mounted = Mounted::new(&[&zram.device()]);
    command_refuses(&mounted.path.display().to_string(), "memory, not a disk");
}

/// A compressed disk in memory, removed when dropped.
struct Zram(String);

impl Zram {
    fn new() -> Option<Self> {
        let number = std::fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        let zram = Self(number.trim().into());
        std::fs::write(format!("/sys/block/zram{}/disksize", zram.0), "64M").ok()?;
        Some(zram)
    }

    fn device(&self) -> String {
        format!("/dev/zram{}", self.0)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = std::fs::write(format!("/sys/block/zram{}/reset", self.0), "1");
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

fn overlay() {
    let volume = Volume::ext4(64);
    is_measured_direct(&overlay_on(volume.path()).path);
}

fn block(bytes: u64) -> Profile {
    Profile { block: Bytes(bytes), ..leg(1.0) }
}

fn big_sectors() {
    let disk = Disk::new(64, &["--sector-size", "4096"]);
    let raw = |leg| run(target(crate::devices::place(&disk.device)), Region::WholeDevice, leg);
    let refused = fault(work(Task::Run(raw(block(512)))));
    assert_eq!(refused.kind, FaultKind::Unsupported, "{refused}");
    assert!(refused.text.contains("4 KiB, not 512 B"), "{refused}");
    assert_eq!(measured(work(Task::Run(raw(block(4096))))).flags.direct, Some(true));
    let volume = Volume::on(disk, &["mkfs.ext4", "-q", "-F"], "rw");
    for small in [512, 2048] {
        says(block(small), volume.path(), &["multiples of 4 KiB", &format!("{}", Bytes(small))]);
    }
    is_measured_direct(volume.path());
}

fn unspoken_sector() {
    let fuse = Fuse::new(Faults { sector: 4096, ..Faults::default() });
    says(block(512), &fuse.path, &["blocks of 4 KiB, not 512 B"]);
    assert_eq!(
        measured(work(Task::Run(unnamed(&fuse.path, block(4096))))).flags.direct,
        Some(true)
    );
}

fn fuse() {
    is_measured_direct(&Fuse::new(Faults::default()).path);
}

fn fuse_without() {
    let fuse = Fuse::new(Faults { no_direct: true, ..Faults::default() });
    says(leg(0.5), &fuse.path, &["no direct I/O there"]);
    assert!(fuse.faults.lock().unwrap().made(Call::Open) < 10, "a refusal is not tried for ever");
    runs_buffered(&fuse.path);
}

/// ext4 with its data in the journal takes O_DIRECT and goes through the page cache.
fn journalled() {
    let volume = Volume::on(Disk::new(64, &[]), &["mkfs.ext4", "-q", "-F"], "data=journal");
    says(leg(1.0), volume.path(), &["no direct I/O there"]);
    // Every block of 1 MiB eight times over, on average.
    let (operations_max, runtime) = (Some(2048), Seconds(50.0));
    let again = Profile { operations_max, runtime, direct: false, ..leg(1.0) };
    let region = Region::Unnamed(Bytes(MIB));
    let mut run = run(in_directory(volume.path()), region, again);
    run.devices = vec![volume.disk.leaf()];
    let done = measured(work(Task::Run(run)));
    assert_eq!((done.flags.direct, done.flags.cached), (Some(false), Some(true)), "{done:?}");
}
