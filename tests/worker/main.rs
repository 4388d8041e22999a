//! The contract between the daemon and its workers, with real processes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stderr,
    unreachable_pub,
    reason = "tests"
)]

mod frozen;

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frozen::Frozen;
use fuser::{Config, Errno, Session};
use loadline::base::clock::SystemClock;
use loadline::base::fault::{Fault, FaultKind};
use loadline::base::units::{Bytes, Seconds};
use loadline::model::job::{
    Job, LINE_BYTES_MAX, Place, Region, Run, Target, Task, WIRE_VERSION, What,
};
use loadline::model::outcome::{Outcome, Reply, Skip};
use loadline::probe;
use loadline::worker::parent::ProcessRunner;
use loadline::worker::stuck::Stuck;
use loadline::worker::{Ended, Patience, Runner, Stop};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

const BAD_WORKER: &str = env!("CARGO_BIN_EXE_bad-worker");
/// Long enough for any machine; a test that waits for it has failed.
const AMPLE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(80);

fn runner(kind: &str) -> ProcessRunner {
    ProcessRunner {
        clock: Arc::new(SystemClock),
        exe: BAD_WORKER.into(),
        arguments: vec![kind.into()],
        patience: Patience { stop: Duration::from_millis(50), kill: AMPLE },
    }
}

fn save(directory: &Path, content: &str) -> Job {
    let task =
        Task::Save { directory: directory.into(), name: "state".into(), content: content.into() };
    Job { v: WIRE_VERSION, polite: true, task }
}

fn job() -> Job {
    save(Path::new("/nowhere"), "")
}

fn run(kind: &str, deadline: Duration) -> Ended {
    runner(kind).run(&job(), deadline, &Stop::default(), &mut |_| {})
}

fn fault(kind: &str, deadline: Duration) -> Fault {
    match run(kind, deadline) {
        Ended::Failed(fault) => fault,
        other => panic!("{kind}: {other:?}"),
    }
}

fn says(kind: &str, deadline: Duration, wanted: FaultKind, part: &str) {
    let fault = fault(kind, deadline);
    assert_eq!(fault.kind, wanted, "{kind}: {fault}");
    assert!(fault.text.contains(part), "{kind}: {fault}");
}

#[test]
fn a_worker_that_dies_is_named_by_its_end() {
    says("no_outcome", AMPLE, FaultKind::WorkerDied, "exit code 3");
    says("aborts", AMPLE, FaultKind::WorkerDied, "signal 6");
    says("partial_line", AMPLE, FaultKind::WorkerDied, "in the middle of a line");
}

#[test]
fn a_worker_that_talks_nonsense_is_killed_at_once() {
    says("garbage", AMPLE, FaultKind::Malformed, "stack smashing");
    says("endless_line", AMPLE, FaultKind::Malformed, "over 65536 bytes");
    says("foreign", AMPLE, FaultKind::Unsupported, "wire version 2");
}

#[test]
fn a_worker_without_an_outcome_is_ended_at_its_deadline() {
    for kind in ["silent", "deaf", "floods", "closes_output", "reads_nothing"] {
        says(kind, SHORT, FaultKind::TimedOut, "no outcome within 80 ms");
    }
}

#[test]
fn a_job_that_nobody_reads_does_not_block_the_daemon() {
    let job = save(Path::new("/nowhere"), &"x".repeat(LINE_BYTES_MAX - 200));
    let ended = runner("reads_nothing").run(&job, SHORT, &Stop::default(), &mut |_| {});
    assert!(matches!(&ended, Ended::Failed(f) if f.kind == FaultKind::TimedOut), "{ended:?}");
}

#[test]
fn a_job_over_one_line_starts_no_worker() {
    let job = save(Path::new("/nowhere"), &"x".repeat(LINE_BYTES_MAX));
    let ended = runner("deaf").run(&job, AMPLE, &Stop::default(), &mut |_| {});
    assert!(matches!(&ended, Ended::Failed(f) if f.kind == FaultKind::Internal), "{ended:?}");
}

#[test]
fn the_first_outcome_counts_and_a_worker_that_stays_after_it_is_killed() {
    for kind in ["outcome_twice", "stays"] {
        let ended = run(kind, AMPLE);
        assert!(matches!(ended, Ended::Replied(Reply::Saved)), "{kind}: {ended:?}");
    }
}

#[test]
fn what_a_worker_started_goes_with_it() {
    let mut child = None;
    let ended = runner("has_child").run(&job(), AMPLE, &Stop::default(), &mut |what| {
        if let What::Layout { done, .. } = what {
            child = pidfd_open(Pid::from_raw(done.0 as i32).unwrap(), PidfdFlags::empty()).ok();
        }
    });
    assert!(matches!(ended, Ended::Replied(Reply::Saved)), "{ended:?}");
    assert!(ready(&child.unwrap()), "the worker's child is still there");
}

/// Waits until `fd` is readable or hung up.
fn ready(fd: &impl AsFd) -> bool {
    let timeout = Timespec { tv_sec: AMPLE.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

#[test]
fn a_program_that_is_not_there_is_a_fault_with_its_path() {
    let runner = ProcessRunner { exe: "/no/such/loadline".into(), ..runner("deaf") };
    let ended = runner.run(&job(), AMPLE, &Stop::default(), &mut |_| {});
    let Ended::Failed(fault) = ended else { panic!("{ended:?}") };
    assert_eq!(fault.kind, FaultKind::Missing);
    assert!(fault.text.starts_with("/no/such/loadline: "), "{fault}");
}

#[test]
fn a_stop_reaches_the_task_and_its_answer_comes_back() {
    let stop = Stop::default();
    let mut progress = 0;
    let patient =
        ProcessRunner { patience: Patience { stop: AMPLE, kill: AMPLE }, ..runner("job") };
    let ended = patient.run(&job(), AMPLE, &stop, &mut |what| match what {
        What::Layout { .. } => stop.set(),
        What::Progress(_) => progress += 1,
        _ => {}
    });
    let Ended::Replied(Reply::Ran(Outcome::Skipped { skip, .. })) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(skip, Skip::Stopped);
}

#[test]
fn a_task_that_its_deadline_stops_is_late_and_not_stopped_by_hand() {
    let patient =
        ProcessRunner { patience: Patience { stop: AMPLE, kill: AMPLE }, ..runner("job") };
    let ended = patient.run(&job(), SHORT, &Stop::default(), &mut |_| {});
    let Ended::Replied(Reply::Ran(Outcome::Failed { fault, .. })) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(fault.kind, FaultKind::TimedOut);
}

#[test]
fn a_stop_ends_a_worker_that_ignores_it() {
    let stop = Stop::default();
    stop.set();
    let ended = runner("deaf").run(&job(), AMPLE, &stop, &mut |_| {});
    let Ended::Failed(fault) = ended else { panic!("{ended:?}") };
    assert_eq!(fault.kind, FaultKind::TimedOut);
    assert!(fault.text.contains("of a stop"), "{fault}");
}

#[test]
fn a_panic_in_a_task_is_an_outcome() {
    says_in_reply("panics", FaultKind::Internal, "the task panicked");
}

fn says_in_reply(kind: &str, wanted: FaultKind, part: &str) {
    let ended = run(kind, AMPLE);
    let Ended::Replied(Reply::Failed(fault)) = ended else { panic!("{kind}: {ended:?}") };
    assert!(fault.kind == wanted && fault.text.contains(part), "{kind}: {fault}");
}

#[test]
fn a_stray_print_does_not_corrupt_the_wire() {
    let ended = run("prints", AMPLE);
    assert!(matches!(ended, Ended::Replied(Reply::Saved)), "{ended:?}");
}

#[test]
fn a_save_through_a_worker_is_on_disk_when_it_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let job = save(dir.path(), "content");
    let ended = runner("serve").run(&job, AMPLE, &Stop::default(), &mut |_| {});
    assert!(matches!(ended, Ended::Replied(Reply::Saved)), "{ended:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("state")).unwrap(), "content");
    let task = Task::Load { directory: dir.path().into(), name: "state".into() };
    let load = Job { v: WIRE_VERSION, polite: false, task };
    let ended = runner("serve").run(&load, AMPLE, &Stop::default(), &mut |_| {});
    let Ended::Replied(Reply::Loaded { content: Some(content) }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(content, "content");
}

#[test]
fn confined_workers_lay_out_inspect_run_and_give_back() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target { name: "t".into(), place: Place::Directory(dir.path().into()) };
    let reply = |task| {
        let job = Job { v: WIRE_VERSION, polite: true, task };
        match runner("serve").run(&job, AMPLE, &Stop::default(), &mut |_| {}) {
            Ended::Replied(reply) => reply,
            other => panic!("{other:?}"),
        }
    };
    let (bytes, reserve) = (Bytes(4 << 20), Bytes(0));
    let laid_out = reply(Task::LayOut { target: target.clone(), bytes, reserve, seed: 1 });
    assert!(matches!(laid_out, Reply::LaidOut { written } if written >= bytes), "{laid_out:?}");
    let (procfs, sysfs, rootfs) = ("/proc".into(), "/sys".into(), "/".into());
    let inspected = reply(Task::Inspect { target: target.clone(), procfs, sysfs, rootfs });
    let Reply::Inspected(found) = inspected else { panic!("{inspected:?}") };
    assert_eq!(found.ballast, Some(bytes));
    let shape = (probe::kind("latency").unwrap().read)(None).unwrap();
    let ran = reply(Task::Run(Run {
        kind: "latency".into(),
        target: target.clone(),
        region: Region::Ballast(bytes),
        legs: shape.legs,
        engine: None,
        seed: 1,
        devices: found.devices,
        top: found.top,
        reserve,
        procfs: "/proc".into(),
        quiet: Seconds(0.0),
    }));
    let Reply::Ran(Outcome::Done(done)) = ran else { panic!("{ran:?}") };
    assert!(done.legs.iter().all(|leg| leg.errors == 0), "{done:?}");
    let given_back = reply(Task::GiveBack { target });
    assert!(matches!(given_back, Reply::GivenBack { freed } if freed >= bytes), "{given_back:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_worker_can_write_only_where_its_task_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    // As if the daemon had been started with a descriptor open that is not close-on-exec.
    let inherited = std::fs::File::open("/dev/full").unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
    let mut told = Vec::new();
    let ended = runner("tries").run(&save(&inside, ""), AMPLE, &Stop::default(), &mut |what| {
        if let What::Confined { parts } = what {
            told.push(parts.clone());
        }
    });
    assert!(matches!(ended, Ended::Replied(Reply::Saved)), "{ended:?}");
    let [held, tried] = told.try_into().unwrap();
    let is = |parts: &[(String, bool)], name| parts.iter().find(|(n, _)| n == name).map(|p| p.1);
    let tried = |name| is(&tried, name).unwrap();
    assert!(tried("writes_inside") && tried("own_group"));
    assert!(!tried("environment") && !tried("holds_inherited"));
    // A part that this kernel lacks is said to be missing; one that is said to hold does hold.
    assert_eq!(is(&held, "landlock"), Some(!tried("writes_outside")));
    assert_eq!(is(&held, "seccomp"), Some(tried("filtered") && !tried("executes")));
    assert_eq!(is(&held, "no_new_privs"), Some(tried("no_new_privs")));
    assert_eq!(is(&held, "nice"), Some(tried("nice")));
}

#[test]
fn no_kind_of_worker_leaves_a_zombie_or_a_descriptor() {
    let kinds = [
        "silent",
        "garbage",
        "endless_line",
        "no_outcome",
        "deaf",
        "partial_line",
        "foreign",
        "outcome_twice",
        "stays",
        "floods",
        "aborts",
        "closes_output",
        "has_child",
        "job",
        "reads_nothing",
    ];
    let out = Command::new(BAD_WORKER).arg("census").args(kinds).output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "none left\n", "{told}");
}

/// A daemon with a worker that has started its task. Both hold the write end of `log`.
fn daemon_with(kind: &str) -> (Child, impl Read + AsFd) {
    let (log, log_end) = std::io::pipe().unwrap();
    let mut daemon = Command::new(BAD_WORKER)
        .args(["parent", kind])
        .stdout(Stdio::piped())
        .stderr(log_end)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    (daemon, log)
}

#[test]
fn a_worker_ends_when_its_daemon_is_killed_even_if_its_task_is_blocked() {
    for kind in ["job", "blocks"] {
        let (mut daemon, log) = daemon_with(kind);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert!(ready(&log), "{kind}: the worker outlives its daemon");
    }
}

#[test]
fn a_worker_that_the_kernel_holds_is_hung_and_the_daemon_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let held = Arc::new(Mutex::new(Vec::new()));
    let mount = Session::new(Frozen(held.clone()), dir.path(), &Config::default());
    let mount = match mount.and_then(Session::spawn) {
        Ok(mount) => mount,
        Err(error) => return eprintln!("skipped: no FUSE here: {error}"),
    };
    let target = Target { name: "frozen".into(), place: Place::Directory(dir.path().into()) };
    let (procfs, sysfs, rootfs) = ("/proc".into(), "/sys".into(), "/".into());
    let task = Task::Inspect { target, procfs, sysfs, rootfs };
    let inspect = Job { v: WIRE_VERSION, polite: false, task };
    let patience = Patience { stop: SHORT, kill: SHORT };
    let hasty = ProcessRunner { patience, ..runner("serve") };
    let stop = Stop::default();
    // Not before its call is in the hands of the file system does SIGKILL fail to end it.
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually(|| !held.lock().unwrap().is_empty());
            stop.set();
        });
        hasty.run(&inspect, AMPLE, &stop, &mut |_| {})
    });
    let Ended::Hung(mut stuck) = ended else { panic!("{ended:?}") };
    assert!(!stuck.reap());
    assert!(Stuck::still_there(stuck.record()));

    let elsewhere = tempfile::tempdir().unwrap();
    let saved =
        runner("serve").run(&save(elsewhere.path(), "x"), AMPLE, &Stop::default(), &mut |_| {});
    assert!(matches!(saved, Ended::Replied(Reply::Saved)), "{saved:?}");

    for reply in held.lock().unwrap().drain(..) {
        reply.error(Errno::EIO);
    }
    eventually(|| stuck.reap());
    assert!(!Stuck::still_there(stuck.record()));
    drop(mount);
}

fn eventually(mut so: impl FnMut() -> bool) {
    for _ in 0..AMPLE.as_millis() {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it never came true");
}
