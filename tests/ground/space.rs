//! No room: space, quota and inodes, seen before or met midway. The target is skipped, left as it
//! was, and never filled.

use fuser::Errno;
use loadline::model::job::Task;
use loadline::model::outcome::{Reply, Skip};

use crate::Promise;
use crate::fuse::{Call, Faults, Fuse};
use crate::harness::must;
use crate::volume::{Disk, Volume, below};
use crate::worker::{laid_out, lay_out, leg, skip, unnamed, work};

pub const PROMISES: &[Promise] = &[
    Promise::new("case_096_a_disk_that_fills_up_midway_is_full_and_has_no_result", fills_up)
        .root()
        .needs(&["fusermount3"]),
    Promise::new("a_subvolumes_quota_is_full_and_nothing_is_left", subvolume_quota)
        .root()
        .needs(&["losetup", "mkfs.btrfs", "btrfs"]),
    Promise::new("the_last_inodes_are_left_to_others", inodes)
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
    Promise::new("a_ballast_is_not_written_where_the_reserve_begins", reserve)
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
];

fn is_full(reply: Reply, words: &[&str]) {
    let (kind, text) = skip(reply);
    assert_eq!(kind, Skip::Full, "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
}

fn fills_up() {
    let fuse = Fuse::new(Faults::default());
    for (errno, says) in
        [(Errno::ENOSPC, "No space left on device"), (Errno::EDQUOT, "quota exceeded")]
    {
        for task in [lay_out(&fuse.path), Task::Run(unnamed(&fuse.path, leg(0.5)))] {
            let four = fuse.faults.lock().unwrap().made(Call::Write) + 4;
            fuse.set(|faults| faults.fails = Some((Call::Write, errno, four)));
            is_full(work(task), &[says, " MiB of 8 MiB"]);
            assert_eq!(below(&fuse.path), [] as [&str; 0]);
        }
    }
    fuse.set(|faults| faults.fails = None);
    laid_out(&fuse.path);
    fuse.fail(Call::Write, Errno::ENOSPC);
    let run = crate::worker::in_ballast(&fuse.path, leg(0.0));
    is_full(work(Task::Run(run)), &["write at offset", "No space left on device"]);
}

fn subvolume_quota() {
    let volume = Volume::btrfs();
    let path = volume.path().display().to_string();
    must("btrfs", &["quota", "enable", &path]);
    must("btrfs", &["qgroup", "limit", "5M", &path]);
    for task in [lay_out(volume.path()), Task::Run(unnamed(volume.path(), leg(0.5)))] {
        is_full(work(task), &["of 8 MiB"]);
        assert_eq!(below(volume.path()), [] as [&str; 0]);
    }
}

fn inodes() {
    let mkfs = ["mkfs.ext4", "-q", "-F", "-N", "64"];
    let volume = Volume::on(Disk::new(64, &[]), &mkfs, "rw");
    let others = volume.path().join("others");
    std::fs::create_dir(&others).unwrap();
    let made = (0..10_000).take_while(|n| std::fs::write(others.join(n.to_string()), "").is_ok());
    assert!(made.count() < 10_000);
    for task in [lay_out(volume.path()), Task::Run(unnamed(volume.path(), leg(0.5)))] {
        is_full(work(task), &["0 of", "inodes free"]);
        assert!(!volume.path().join(".loadline").exists());
    }
}

fn reserve() {
    let volume = Volume::ext4(64);
    let Task::LayOut { target, bytes, seed, .. } = lay_out(volume.path()) else { return };
    let reserve = loadline::base::units::Bytes(50 << 20);
    let greedy = Task::LayOut { target, bytes, reserve, seed };
    is_full(work(greedy), &["free", "a reserve of 50 MiB"]);
    assert_eq!(below(volume.path()), [] as [&str; 0]);
    laid_out(volume.path());
}
