//! The OLTP search on a disk whose answer is known: one head that serves in order of arrival.

use std::io::Write;
use std::time::Duration;

use loadline::base::units::{Bytes, MIB, Seconds};
use loadline::model::job::{
    Device, Job, Place, Profile, Region, Run, Target, Task, WIRE_VERSION, What,
};
use loadline::model::oltp::{BLOCK_BYTES, Load, Oltp, Variant};
use loadline::model::outcome::{Done, Outcome, Reply};
use loadline::probe::oltp;
use loadline::worker::rehearse::InThread;
use loadline::worker::{Ended, Runner, Stop};
use loadline::workload::oltp::{Arrivals, Generator, Sizes};

use super::harness::must;
use super::model::Physics;
use super::physics::PhysicsDisk;
use super::volume::Mounted;
use super::{cannot_run, turn};

const REGION: Bytes = Bytes(256 * MIB);
const LIMIT: f64 = 0.03;

fn search(volume: &Mounted, disk: &PhysicsDisk) -> Done {
    let stat = format!("/sys/block/{}/stat", disk.name()).into();
    let device = Device { name: disk.name().into(), stat, rotational: None };
    let load = Load::Search { limit: Seconds(LIMIT) };
    let leg = Profile {
        runtime: Seconds(300.0),
        bytes_max: Bytes(4096 * MIB),
        ..oltp::profile(Oltp::of_region(Variant::Pblio, load))
    };
    let run = Run {
        kind: oltp::KIND.name.into(),
        target: Target { name: "lab".into(), place: Place::Directory(volume.path.clone()) },
        region: Region::Unnamed(REGION),
        legs: vec![leg],
        engine: None,
        seed: 3,
        devices: vec![device.clone()],
        top: vec![device],
        reserve: Bytes(0),
        procfs: "/proc".into(),
        quiet: Seconds(0.0),
    };
    let job = Job { v: WIRE_VERSION, polite: false, task: Task::Run(run) };
    let mut say = |what: &What| {
        if let What::Step { step } = what {
            println!("{:.1}/s: {:.1}/s, {}", step.offered, step.achieved, step.latency_mean);
        }
    };
    match InThread::default().run(&job, Duration::from_secs(400), &Stop::default(), &mut say) {
        Ended::Replied(Reply::Ran(Outcome::Done(done))) => *done,
        other => panic!("{other:?}"),
    }
}

/// Mean and mean square of the time that the head takes for an operation: it seeks, unless one goes
/// on where the last one ended.
fn service(physics: &Physics, rate: f64) -> (f64, f64) {
    let sizes = Sizes::within(REGION).unwrap();
    let arrivals = Arrivals::at_rate(Variant::Pblio, rate, None);
    let (mut end, mut sum, mut squares) = ((0, 0), 0.0, 0.0);
    let operations = 100_000;
    for request in Generator::new(&arrivals, &sizes, 1).take(operations) {
        let transfer = (request.blocks * BLOCK_BYTES) as f64 / physics.bytes_per_second;
        let seek = if end == (request.asu, request.block) { 0.0 } else { physics.seek_min };
        let time = seek + transfer;
        end = (request.asu, request.block + request.blocks);
        sum += time;
        squares += time * time;
    }
    (sum / operations as f64, squares / operations as f64)
}

/// The rate at which requests that come at random stay with one server for the limit, on average
/// (Pollaczek and Khinchin).
fn theory(physics: &Physics) -> f64 {
    let (mut low, mut high) = (1.0, 1.0 / physics.seek_min);
    while high - low > 0.1 {
        let rate = (low + high) / 2.0;
        let (mean, square) = service(physics, rate);
        let idle = 1.0 - rate * mean;
        let stay = mean + rate * square / (2.0 * idle);
        if idle > 0.0 && stay < LIMIT { low = rate } else { high = rate }
    }
    low
}

#[test]
fn a_search_ends_where_queueing_theory_says() {
    let full = std::env::var("TIER").is_ok_and(|tier| tier == "full");
    let long = (!full).then_some("takes four minutes: TIER=full runs it");
    if let Some(reason) = cannot_run().or(long) {
        // Past what the test library keeps to itself.
        let name = "a_search_ends_where_queueing_theory_says";
        let _ = writeln!(std::io::stderr(), "{name}: skipped: {reason}");
        return;
    }
    let _turn = turn();
    // No credit for the host's own way: the arrivals are open.
    let physics = Physics { turnaround: 0.0, ..Physics::constant(200.0, 1) };
    let disk = PhysicsDisk::new(physics.clone());
    must(
        "mkfs.ext4",
        &[
            "-q",
            "-F",
            "-J",
            "size=4",
            "-N",
            "4096",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
            &disk.device,
        ],
    );
    let volume = Mounted::new(&["-o", "noatime,lazytime", &disk.device]);
    let done = search(&volume, &disk);
    drop(volume);
    let search = done.oltp.unwrap().search.unwrap();
    for (load, step) in &search.curve {
        let p99 = step.latency_p99.map_or("-".into(), |p99| p99.to_string());
        println!("{load}: {:.1}/s, {}, p99 {p99}", step.achieved, step.latency_mean);
    }
    let (highest, theory) = (search.highest().unwrap(), theory(&physics));
    println!("highest {highest:.1} of {theory:.1}");
    assert!((highest / theory - 1.0).abs() < 0.05, "{highest}, theory says {theory}");
    assert_eq!(done.flags.direct, Some(true));
}
