//! Two legs and the ladder on disks whose end is known by construction.

use std::io::BufReader;

use loadline::base::legs::Saturation;
use loadline::base::units::Seconds;
use loadline::model::job::{Device, Job, Place, Profile, Region, Run, Target, Task, WIRE_VERSION};
use loadline::model::outcome::{Done, Outcome, Reply};
use loadline::probe::{self, depths, disk};
use loadline::worker::rehearse::InThread;
use loadline::worker::{Ended, Runner, Stop};

use super::model::Physics;
use super::physics::PhysicsDisk;
use super::{cannot_run, turn};

/// Reads of the whole device by the daemon's own code, on a thread of this process.
fn run(disk: &PhysicsDisk, kind: &str, legs: Vec<Profile>) -> Done {
    let stat = format!("/sys/block/{}/stat", disk.name()).into();
    let device = Device { name: disk.name().into(), stat, rotational: None };
    let place = Place::Device(disk.device.clone().into());
    let run = Run {
        kind: kind.into(),
        target: Target { name: "lab".into(), place },
        region: Region::WholeDevice,
        legs,
        engine: None,
        seed: 5,
        devices: vec![device.clone()],
        top: vec![device],
        reserve: loadline::base::units::Bytes(0),
        procfs: "/proc".into(),
        quiet: Seconds(1.0),
    };
    let job = Job { v: WIRE_VERSION, polite: false, task: Task::Run(run) };
    let deadline = std::time::Duration::from_secs(120);
    let ended = InThread::default().run(&job, deadline, &Stop::default(), &mut |_| {});
    match ended {
        Ended::Replied(Reply::Ran(Outcome::Done(done))) => *done,
        other => panic!("{other:?}"),
    }
}

fn reads(depth: u32, seconds: f64) -> Profile {
    let runtime = Seconds(seconds);
    Profile { depth, jobs: 1, runtime, ..disk::shape(disk::Preset::RandRead).legs.remove(0) }
}

fn within(what: &str, ours: f64, model: f64, share: f64) {
    println!("{what}: {ours:.4} of {model:.4}");
    assert!((ours / model - 1.0).abs() < share, "{what}: {ours}, the model says {model}");
}

#[test]
fn one_head_is_saturated_and_thirty_two_at_depth_one_are_not() {
    if let Some(reason) = cannot_run() {
        println!("skipped: {reason}");
        return;
    }
    let _turn = turn();
    for (heads, depth, says) in [(1, 4, Saturation::Saturated), (32, 1, Saturation::Unsaturated)] {
        let physics = Physics::constant(120.0, heads);
        let disk = PhysicsDisk::new(physics.clone());
        let done = run(&disk, "disk", depths::two_legs(&reads(depth, 8.0), None));
        let second = done.second_leg.unwrap();
        let (first, deeper) = (&done.legs[0], &second.measured);
        assert_eq!((first.profile.depth, deeper.profile.depth), (depth, 2 * depth));
        let model = |depth: u32| physics.rate(4096, depth as usize);
        within("first leg", first.operations_per_second(), model(depth), 0.03);
        within("second leg", deeper.operations_per_second(), model(2 * depth), 0.03);
        assert_eq!(second.says, says, "{heads} heads");
        assert_eq!(done.flags.contended, Some(false), "{:?}", done.evidence);
        for evidence in [&done.evidence, &second.evidence] {
            assert!(evidence.devices[0].busy.0 > 0.95, "busy at any depth: {evidence:?}");
            within("read share", evidence.device_read_share.unwrap(), 1.0, 0.02);
            assert!(evidence.rate_cv.is_some() && evidence.thread.is_some());
        }
        within("in flight", done.evidence.in_flight.unwrap(), f64::from(depth), 0.1);
    }
}

#[test]
fn a_ladder_on_thirty_two_heads_has_its_knee_there() {
    if let Some(reason) = cannot_run() {
        println!("skipped: {reason}");
        return;
    }
    let _turn = turn();
    let physics = Physics::constant(120.0, 32);
    let disk = PhysicsDisk::new(physics.clone());
    let shape = (probe::kind("knee").unwrap().read)(None).unwrap();
    let done = run(&disk, "knee", shape.legs_at(loadline::base::units::Rate(1e9)));
    let knee = done.knee.unwrap();
    for rung in &knee.rungs {
        println!("{rung:?}");
    }
    assert_eq!((knee.depth, knee.says), (32, Some(Saturation::Saturated)));
    assert_eq!(done.legs[0].profile.depth, 32);
    within("ceiling", knee.operations_per_second, physics.rate(4096, 32), 0.05);
}

#[test]
fn a_limit_of_a_cgroup_is_seen_with_what_was_used_of_it() {
    if let Some(reason) = cannot_run() {
        println!("skipped: {reason}");
        return;
    }
    let group = std::path::Path::new("/sys/fs/cgroup/blkio");
    if !group.join("blkio.throttle.read_iops_device").exists() {
        println!("skipped: no blkio.throttle of cgroup version 1");
        return;
    }
    let _turn = turn();
    let disk = PhysicsDisk::new(Physics::constant(1000.0, 32));
    let group = Group::new(&group.join(format!("loadline-lab-{}", std::process::id())));
    group.limit("blkio.throttle.read_iops_device", &disk, 300);
    let binary = env!("CARGO_BIN_EXE_loadline");
    let command = format!(
        "echo $$ > {}/cgroup.procs && exec {binary} probe disk --target {} --profile rand_read \
         --runtime 8s --format json",
        group.0.display(),
        disk.device,
    );
    let state = tempfile::tempdir().unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", &command])
        .env("STATE_DIRECTORY", state.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let done: Done = serde_json::from_reader(BufReader::new(&*output.stdout)).unwrap();
    let limit = done.evidence.io_limit.unwrap();
    assert_eq!((limit.device.as_str(), limit.limit), (disk.name(), 300.0));
    within("used", limit.used, 1.0, 0.1);
    assert_eq!(done.second_leg.unwrap().says, Saturation::Saturated);
}

/// A group of cgroup version 1; gone when dropped.
struct Group(std::path::PathBuf);

impl Group {
    fn new(path: &std::path::Path) -> Self {
        std::fs::create_dir(path).unwrap();
        Self(path.to_path_buf())
    }

    fn limit(&self, file: &str, disk: &PhysicsDisk, value: u64) {
        let number = std::fs::read_to_string(format!("/sys/block/{}/dev", disk.name())).unwrap();
        std::fs::write(self.0.join(file), format!("{} {value}", number.trim())).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
