//! Disks at their own end: heads that move, a medium that moves bytes, ways that wait.

use std::sync::atomic::Ordering;

use loadline::base::units::{Bytes, MIB, Rate};
use loadline::model::job::Profile;
use loadline::model::path::Media;
use loadline::model::verdict::Limit;
use loadline::probe;
use loadline::probe::disk::Preset;

use super::Scenario;
use super::fio::Fio;
use super::measure::{Measurement, Sight, declared, profile};
use super::model::Physics;
use super::physics::PhysicsDisk;
use super::place::Volume;

pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("one_head_reads_at_random", &[Limit::Seek], random_reads),
    Scenario::new("one_head_reads_and_writes_at_random", &[Limit::Seek], random_mix),
    Scenario::new("one_head_writes_at_random", &[Limit::Seek], random_writes),
    Scenario::new("one_head_reads_in_sequence", &[Limit::Bandwidth], sequential_reads),
    Scenario::new("a_dying_disk", &[Limit::Seek, Limit::Unknown], dying),
    Scenario::new("a_disk_that_stalls_for_a_while", &[Limit::Seek, Limit::Unknown], stalling),
    Scenario::new("thirty_two_heads_at_depth_one", &[Limit::Latency], one_at_a_time),
    Scenario::new("thirty_two_heads_on_a_ladder", &[Limit::Operations], ladder),
    Scenario::new("fio_on_the_same_disk", &[Limit::Contended], contended).needs(&["fio"]),
];

/// A spindle of about 98/s that seeks the same way however far: its rate in a file is its rate.
fn spindle(seed: u64) -> Physics {
    let (seek_min, seek_max, turn) = (0.006, 0.006, 60.0 / 7200.0);
    Physics { seek_min, seek_max, turn, seed, ..Physics::constant(100.0, 1) }
}

const BLOCK: u64 = 4096;
const FILE: Bytes = Bytes(16 * MIB);

fn is_a_busy_spindle(sight: Sight, model: f64) -> Sight {
    let (rate, busy) = (sight.facts.operations(), sight.busy());
    sight.near("the rate", rate, model, 0.05).within("busy", busy, 0.95..=1.0)
}

fn random_reads(seed: u64) -> Sight {
    let physics = Physics { seed, ..Physics::spindle() };
    let disk = PhysicsDisk::new(physics.clone());
    let reads = profile(Preset::RandRead, 8, 6.0);
    let measurement = Measurement::of_device(&disk.device, &reads).declare(declared(Media::Hdd));
    is_a_busy_spindle(measurement.seed(seed).take(), physics.rate(BLOCK, 8))
}

fn in_a_file(preset: Preset, seed: u64) -> Sight {
    let physics = spindle(seed);
    let volume = Volume::ext4(physics.clone(), "noatime");
    let profile = Profile { flush: false, ..profile(preset, 8, 5.0) };
    let measurement = Measurement::in_directory(volume.path(), FILE, &profile);
    let sight = measurement.declare(declared(Media::Hdd)).seed(seed).take();
    is_a_busy_spindle(sight, physics.rate(BLOCK, 8))
}

fn random_mix(seed: u64) -> Sight {
    in_a_file(Preset::RandRw, seed)
}

fn random_writes(seed: u64) -> Sight {
    in_a_file(Preset::RandWrite, seed)
}

fn sequential_reads(seed: u64) -> Sight {
    // What the host hands over in another order is put right by the drive's own queue.
    let physics = Physics { reorders: true, bytes_per_second: 100e6, ..spindle(seed) };
    let disk = PhysicsDisk::new(physics.clone());
    let reads = profile(Preset::SeqRead, 4, 4.0);
    let measurement = Measurement::of_device(&disk.device, &reads).declare(declared(Media::Hdd));
    let sight = measurement.seed(seed).take();
    let rate = sight.facts.bytes();
    sight.near("the rate", rate, physics.bytes_per_second, 0.05)
}

fn dying(seed: u64) -> Sight {
    let physics = Physics { seek_min: 0.015, seek_max: 0.025, ..spindle(seed) };
    let disk = PhysicsDisk::new(physics.clone());
    let reads = profile(Preset::RandRead, 4, 5.0);
    let measurement = Measurement::of_device(&disk.device, &reads).declare(declared(Media::Hdd));
    measurement.seed(seed).take()
}

fn stalling(seed: u64) -> Sight {
    let disk = PhysicsDisk::new(spindle(seed));
    let reads = profile(Preset::RandRead, 8, 6.0);
    let measurement = Measurement::of_device(&disk.device, &reads).declare(declared(Media::Hdd));
    measurement.seed(seed).take_while(|seconds| {
        disk.commands.stalled.store((1.5..3.0).contains(&seconds), Ordering::Relaxed);
    })
}

fn one_at_a_time(seed: u64) -> Sight {
    let disk = PhysicsDisk::new(Physics { seed, ..Physics::constant(120.0, 32) });
    let reads = profile(Preset::RandRead, 1, 4.0);
    let measurement = Measurement::of_device(&disk.device, &reads).declare(declared(Media::Ssd));
    measurement.seed(seed).take()
}

fn ladder(seed: u64) -> Sight {
    let physics = Physics { seed, ..Physics::constant(200.0, 32) };
    let disk = PhysicsDisk::new(physics.clone());
    let shape = (probe::kind("knee").unwrap().read)(None).unwrap();
    let measurement = Measurement::of_device(&disk.device, &shape.legs[0])
        .kind("knee", shape.legs_at(Rate(1e9)))
        .declare(declared(Media::Ssd));
    let sight = measurement.seed(seed).take();
    let knee =
        sight.done.knee.as_ref().map(|knee| (f64::from(knee.depth), knee.operations_per_second));
    // On a busy host the heads wait a little at 32, and all work only at 64.
    sight.within("the knee", knee.map(|knee| knee.0), 32.0..=64.0).near(
        "the ceiling",
        knee.map(|knee| knee.1),
        physics.rate(BLOCK, 32),
        0.1,
    )
}

fn contended(seed: u64) -> Sight {
    let disk = PhysicsDisk::new(spindle(seed));
    let reads = profile(Preset::RandRead, 4, 3.0);
    let measurement = Measurement::of_device(&disk.device, &reads).declare(declared(Media::Hdd));
    let _others = Fio::reads(&disk.device, 4);
    measurement.seed(seed).take()
}
