//! What may be said of a run, and what a worker costs.

use std::process::Command;

use loadline::base::units::{Bytes, MIB, Seconds};
use loadline::model::job::{Access, Profile, Region, Task, What};

use crate::Promise;
use crate::fuse::{Call, Faults, Fuse};
use crate::harness::{BINARY, disk_dir, loadline};
use crate::worker::{
    Worker, in_ballast, in_directory, laid_out, leg, measured, run, unnamed, work,
};

pub const PROMISES: &[Promise] = &[
    Promise::new("a_worker_of_512_mib_at_depth_32_of_1_mib_stays_under_48_mib", memory),
    Promise::new("case_105_a_commit_is_an_operation_with_its_flush", commits)
        .root()
        .needs(&["fusermount3"]),
    Promise::new("case_106_a_few_operations_give_no_tail_and_no_ceiling", too_short),
    Promise::new("case_108_what_probes_cost_a_day_is_told_beforehand", told),
    Promise::new("case_113_probes_of_one_host_take_turns", turns),
];

fn memory() {
    let dir = disk_dir();
    let deep = Profile {
        access: Access::Sequential,
        block: Bytes(MIB),
        depth: 32,
        runtime: Seconds(0.5),
        bytes_max: Bytes(256 * MIB),
        ..leg(0.5)
    };
    let task = run(in_directory(dir.path()), Region::Unnamed(Bytes(512 * MIB)), deep);
    let mut peak = None;
    measured(Worker::start(Command::new(BINARY), Task::Run(task)).listen(|worker, what| {
        if matches!(what, What::Leg { .. }) {
            let status = format!("/proc/{}/status", worker.0.id());
            let status = std::fs::read_to_string(status).unwrap();
            let field = |name: &str| {
                let text = status.lines().find_map(|line| line.strip_prefix(name))?;
                text.trim().trim_end_matches(" kB").parse::<u64>().ok()
            };
            // Without the program itself, which all workers share and which is large before it is optimised.
            peak = field("VmHWM:").zip(field("RssFile:")).map(|(peak, program)| peak - program);
        }
    }));
    let peak = Bytes(peak.expect("a peak while the worker was there") << 10);
    println!("peak memory {peak}");
    assert!(peak <= Bytes(40 * MIB), "{peak}");
}

/// The number that etcd's users ask for: a write that is on the disk when it returns.
fn commits() {
    let fuse = Fuse::new(Faults::default());
    laid_out(&fuse.path);
    let commit =
        Profile { sync: true, depth: 1, operations_max: Some(20), flush: false, ..leg(0.0) };
    let done = measured(work(Task::Run(in_ballast(&fuse.path, commit))));
    assert_eq!(done.legs[0].writes.operations, 20);
    assert_eq!(fuse.faults.lock().unwrap().made(Call::Commit), 20);
    // 2300 bytes, as etcd's own guide has it, are no block of any disk.
    let path = fuse.path.display().to_string();
    let ran = loadline(&["probe", "disk", "--target", &path, "--block-size", "2300"], &fuse.path);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
}

fn too_short() {
    let dir = disk_dir();
    let few = Profile { operations_max: Some(128), block: Bytes(65536), ..leg(1.0) };
    let done = measured(work(Task::Run(unnamed(dir.path(), few))));
    let reads = &done.legs[0].reads;
    assert_eq!((reads.operations, reads.durations.count()), (128, 128));
    let told: Vec<f64> = reads.latency.iter().map(|(quantile, _)| *quantile).collect();
    assert_eq!(told, [0.5], "a tail of one operation is none");
    assert_eq!((done.flags.short, done.flags.steady), (Some(true), None));
}

fn told() {
    let dir = disk_dir();
    let ran = loadline(&["check"], dir.path());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for word in ["writes a day", "of 2 GiB allowed", "600 TBW"] {
        assert!(ran.out.contains(word), "`{word}` is missing in\n{}", ran.out);
    }
    assert!(!ran.out.to_lowercase().contains("capacity"), "a measured rate is no capacity");
}

fn turns() {
    let (dir, state) = (disk_dir(), disk_dir());
    let path = dir.path().display().to_string();
    let flags = ["probe", "disk", "--runtime", "1s", "--size", "8MiB", "--target", &path];
    let begin = std::time::Instant::now();
    let both = std::thread::scope(|scope| {
        let run = || loadline(&flags, state.path());
        [scope.spawn(run), scope.spawn(run)].map(|one| one.join().unwrap())
    });
    assert!(both.iter().all(|ran| ran.code == Some(0)), "{}{}", both[0].err, both[1].err);
    assert!(both.iter().any(|ran| ran.err.contains("at most 30 s")), "one waited, and said so");
    assert!(begin.elapsed().as_secs_f64() > 2.0, "one after the other");
}
