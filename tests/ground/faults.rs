//! Targets that fail, lie, vanish or hang while they are worked on: a name and advice, no number.

use std::process::Command;
use std::time::Duration;

use fuser::Errno;
use loadline::base::fault::FaultKind;
use loadline::base::units::{Bytes, Seconds};
use loadline::model::job::{EngineKind, Profile, Task, What};
use loadline::model::outcome::{Outcome, Reply, Skip};

use crate::Promise;
use crate::fuse::{Call, Faults, Fuse};
use crate::harness::{BINARY, disk_dir, loadline, must, until_within};
use crate::volume::{Volume, below};
use crate::worker::{
    Worker, fault, in_ballast, laid_out, lay_out, leg, measured, skip, unnamed, work,
};

pub const PROMISES: &[Promise] = &[
    Promise::new("an_io_error_anywhere_is_named_with_its_place", io_errors)
        .root()
        .needs(&["fusermount3"]),
    Promise::new("an_unreadable_ballast_is_an_error_and_not_laid_over", unreadable_ballast)
        .root()
        .needs(&["fusermount3"]),
    Promise::new("case_094_a_write_refused_midway_is_named_by_its_number", refused_midway)
        .root()
        .needs(&["fusermount3"]),
    Promise::new("short_reads_fail_a_run", short_reads).root().needs(&["fusermount3"]),
    Promise::new("case_112_a_worker_whose_disk_stops_answering_ends_when_it_answers", stalled)
        .root()
        .needs(&["fusermount3"]),
    Promise::new("a_file_system_that_turns_read_only_midway_is_named", read_only_midway)
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
    Promise::new("a_directory_removed_midway_is_missing_the_next_time", removed_midway),
    Promise::new("a_depth_that_an_engine_lacks_is_refused_by_name", too_deep),
    Promise::new("what_is_wrong_comes_with_advice_on_the_terminal", advice).root().needs(&[
        "fusermount3",
        "losetup",
        "mkfs.ext4",
    ]),
];

/// A run of some seconds, changed when its engine is open.
fn midway(task: Task, change: impl FnOnce()) -> Reply {
    let mut change = Some(change);
    Worker::start(Command::new(BINARY), task).listen(|_, what| {
        if matches!(what, What::Opened { .. })
            && let Some(change) = change.take()
        {
            change();
        }
    })
}

/// Until something ends it; a minute would be a failure.
fn long(reads: f64) -> Profile {
    Profile { runtime: Seconds(50.0), bytes_max: Bytes(u64::MAX), ..leg(reads) }
}

/// What was measured before is for a person; the outcome is a failure all the same.
fn failed(reply: Reply, kind: FaultKind, words: &[&str]) {
    let fault = fault(reply);
    assert_eq!(fault.kind, kind, "{fault}");
    assert!(words.iter().all(|word| fault.text.contains(word)), "{words:?}: {fault}");
}

fn io_errors() {
    let fuse = Fuse::new(Faults::default());
    let run = |leg| Task::Run(unnamed(&fuse.path, leg));
    let here = fuse.path.display().to_string();
    for (call, word) in [(Call::Read, "read at offset"), (Call::Write, "write at offset")] {
        let reply = midway(run(long(0.5)), || fuse.fail(call, Errno::EIO));
        failed(reply, FaultKind::Io, &[&here, word, "after"]);
        fuse.set(|faults| faults.fails = None);
    }
    let reply = midway(run(leg(0.5)), || fuse.fail(Call::Fsync, Errno::EIO));
    failed(reply, FaultKind::Io, &[&here, "final flush"]);
    for (call, word) in [(Call::Open, ""), (Call::Write, "after 0 B of 8 MiB"), (Call::Fsync, "")] {
        fuse.fail(call, Errno::EIO);
        failed(work(run(leg(0.5))), FaultKind::Io, &[&here, word]);
        failed(work(lay_out(&fuse.path)), FaultKind::Io, &[&here]);
        fuse.set(|faults| faults.fails = None);
        assert_eq!(below(&fuse.path), [] as [&str; 0], "{call:?}");
    }
    fuse.fail(Call::Read, Errno::EIO);
    failed(work(run(leg(1.0))), FaultKind::Io, &[&here, "first read"]);
    assert_eq!(below(&fuse.path), [] as [&str; 0]);
}

fn unreadable_ballast() {
    let fuse = Fuse::new(Faults::default());
    laid_out(&fuse.path);
    fuse.fail(Call::Read, Errno::EIO);
    let writes = fuse.faults.lock().unwrap().made(Call::Write);
    failed(work(lay_out(&fuse.path)), FaultKind::Io, &["ballast"]);
    failed(work(Task::Run(in_ballast(&fuse.path, leg(1.0)))), FaultKind::Io, &["ballast"]);
    assert_eq!(fuse.faults.lock().unwrap().made(Call::Write), writes);
    fuse.set(|faults| faults.fails = None);
    measured(work(Task::Run(in_ballast(&fuse.path, leg(1.0)))));
}

fn refused_midway() {
    let fuse = Fuse::new(Faults::default());
    laid_out(&fuse.path);
    let six = fuse.faults.lock().unwrap().made(Call::Write) + 6;
    fuse.set(|faults| faults.fails = Some((Call::Write, Errno::EINVAL, six)));
    let one = Profile { depth: 1, ..leg(0.0) };
    let reply = work(Task::Run(in_ballast(&fuse.path, one)));
    failed(reply, FaultKind::Unsupported, &["write at offset", "after 6 operations"]);
    let fresh =
        Fuse::new(Faults { fails: Some((Call::Write, Errno::EINVAL, 6)), ..Faults::default() });
    fault(work(Task::Run(unnamed(&fresh.path, leg(0.5)))));
    assert_eq!(below(&fresh.path), [] as [&str; 0]);
}

fn short_reads() {
    let fuse = Fuse::new(Faults::default());
    let run = Task::Run(unnamed(&fuse.path, leg(1.0)));
    let reply = midway(run, || fuse.set(|faults| faults.short = true));
    let Reply::Ran(Outcome::Failed { fault, partial: Some(partial) }) = reply else {
        panic!("{reply:?}")
    };
    let leg = &partial.legs[0];
    assert_eq!(fault.kind, FaultKind::Io);
    assert!(fault.text.ends_with("operations came back short"), "{fault}");
    assert!(leg.short_operations > 0 && leg.reads.operations > 0, "{leg:?}");
    assert_eq!(leg.reads.durations.count(), leg.reads.operations, "short ones are not timed");
}

fn stalled() {
    let fuse = Fuse::new(Faults::default());
    let run = Task::Run(unnamed(&fuse.path, long(1.0)));
    let mut worker = Worker::start(Command::new(BINARY), run);
    let pid = worker.0.id();
    crate::harness::until("reads", || {
        (fuse.faults.lock().unwrap().made(Call::Read) > 50).then_some(())
    });
    fuse.stall(true);
    drop(worker.0.stdin.take());
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        stat.lines().find_map(|l| l.strip_prefix("State:\t").map(|s| s[..1].to_owned()))
    };
    // Its control thread never waits for the target: it ends in time, whatever the others do.
    until_within(Duration::from_secs(15), "the worker to leave", || {
        (worker.0.try_wait().unwrap().is_some() || state().as_deref() == Some("Z")).then_some(())
    });
    fuse.stall(false);
    until_within(Duration::from_secs(15), "the worker to be gone", || {
        worker.0.try_wait().unwrap().map(drop)
    });
    assert_eq!(below(&fuse.path), [] as [&str; 0]);
}

fn read_only_midway() {
    let volume = Volume::ext4(64);
    laid_out(volume.path());
    let path = volume.path().display().to_string();
    let abort = || drop(must("mount", &["-o", "remount,abort", &path]));
    let reply = midway(Task::Run(in_ballast(volume.path(), long(0.5))), abort);
    let fault = fault(reply);
    assert!(matches!(fault.kind, FaultKind::Denied | FaultKind::Io), "{fault}");
    assert!(fault.text.contains("write at offset"), "{fault}");
    let next = crate::worker::fault(work(Task::Run(in_ballast(volume.path(), leg(0.5)))));
    assert_eq!(next.kind, FaultKind::Denied, "{next}");
    assert!(next.kind.advice().contains("mount it writable"));
}

fn removed_midway() {
    let dir = disk_dir();
    let target = dir.path().join("t");
    std::fs::create_dir(&target).unwrap();
    laid_out(&target);
    let remove = || std::fs::remove_dir_all(&target).unwrap();
    // What is open stays a file on that disk: the numbers are true.
    let done = measured(midway(Task::Run(in_ballast(&target, leg(0.5))), remove));
    assert_eq!((done.legs[0].errors, done.flags.direct), (0, Some(true)));
    let here = target.display().to_string();
    failed(work(Task::Run(in_ballast(&target, leg(0.5)))), FaultKind::Missing, &[&here]);
    failed(work(lay_out(&target)), FaultKind::Missing, &[&here]);
    assert!(!target.exists(), "it is not made again");
}

fn too_deep() {
    let dir = disk_dir();
    let mut run = unnamed(dir.path(), Profile { depth: 65, ..leg(1.0) });
    run.engine = Some(EngineKind::Threads);
    let words = &["engine threads", "65 in flight", "more than 64"];
    failed(work(Task::Run(run)), FaultKind::Unsupported, words);
    for (flag, value) in [("--depth", "2000"), ("--depth", "0"), ("--block-size", "2300")] {
        let path = dir.path().display().to_string();
        let ran = loadline(&["probe", "disk", "--target", &path, flag, value], dir.path());
        assert_eq!(ran.code, Some(2), "{flag} {value}: {}", ran.err);
        assert!(ran.err.contains(flag), "{flag} {value}: {}", ran.err);
    }
    assert_eq!(below(dir.path()), [] as [&str; 0]);
}

fn advice() {
    let state = disk_dir();
    let run = |path: &std::path::Path| {
        let path = path.display().to_string();
        let flags = ["--runtime", "1s", "--size", "8MiB"];
        let ran =
            loadline(&[&["probe", "disk", "--target", &path], &flags[..]].concat(), state.path());
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "no number for {path}");
        ran.err
    };
    let fuse = Fuse::new(Faults { no_direct: true, ..Faults::default() });
    let says = run(&fuse.path);
    assert!(says.contains("no direct I/O") && says.contains("choose another target"), "{says}");
    fuse.fail(Call::Write, Errno::EIO);
    let says = run(&fuse.path);
    assert!(says.contains("after 0 B of 8 MiB") && says.contains("look at dmesg"), "{says}");
    let small = Volume::ext4(64);
    let says = run(small.path());
    assert!(says.contains("full: ") && says.contains("make room"), "{says}");
    let (kind, text) = skip(work(Task::Run(crate::worker::run(
        crate::worker::in_directory(small.path()),
        loadline::model::job::Region::Unnamed(Bytes(60 << 20)),
        leg(1.0),
    ))));
    assert_eq!(kind, Skip::Full, "{text}");
}
