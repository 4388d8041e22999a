//! Limits that somebody set: on operations, on bytes, on time of the CPU.

use loadline::model::path::{DeclaredBacking, Media};
use loadline::model::verdict::Limit;
use loadline::probe::disk::Preset;

use super::Scenario;
use super::measure::{Measurement, Sight, declared, profile};
use super::model::Physics;
use super::physics::PhysicsDisk;
use super::place::{Group, Zram};

pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("a_cgroup_of_three_hundred_operations", &[Limit::Throttle], of_a_cgroup)
        .needs(&["/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device"]),
    Scenario::new("a_token_bucket_below_flash", &[Limit::Throttle], below_flash),
    Scenario::new("a_token_bucket_below_spindles", &[Limit::Throttle], below_spindles),
    Scenario::new("memory_in_a_cgroup_with_a_quota", &[Limit::Cpu], quota)
        .needs(&["/sys/class/zram-control/hot_add", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"]),
    // One submitter on two CPUs: which of them ends first is the host's.
    Scenario::new("memory_at_depth", &[Limit::Operations, Limit::Cpu], memory)
        .needs(&["/sys/class/zram-control/hot_add"]),
];

/// Operations a second, of the limiter.
const LIMIT: f64 = 300.0;

fn of_a_cgroup(seed: u64) -> Sight {
    let disk = PhysicsDisk::new(Physics { seed, ..Physics::constant(1000.0, 32) });
    let group = Group::new("blkio");
    group.limit("blkio.throttle.read_iops_device", disk.name(), LIMIT as u64);
    let reads = profile(Preset::RandRead, 8, 4.0);
    let measurement = Measurement::of_device(&disk.device, &reads).declare(declared(Media::Ssd));
    let sight = measurement.through_shell(&group.enter()).seed(seed).take();
    let rate = sight.facts.operations();
    sight.near("the rate", rate, LIMIT, 0.05)
}

fn bucket(seed: u64, physics: Physics, backing: DeclaredBacking) -> Sight {
    let operations_per_second_max = Some(LIMIT);
    let disk = PhysicsDisk::new(Physics { operations_per_second_max, seed, ..physics });
    let reads = profile(Preset::RandRead, 32, 5.0);
    let sight = Measurement::of_device(&disk.device, &reads).declare(backing).seed(seed).take();
    let rate = sight.facts.operations();
    sight.near("the rate", rate, LIMIT, 0.05)
}

fn below_flash(seed: u64) -> Sight {
    bucket(seed, Physics::constant(1000.0, 32), declared(Media::Ssd))
}

/// Twelve spindles give 552/s and more.
fn below_spindles(seed: u64) -> Sight {
    let backing = DeclaredBacking { devices: Some(12), ..declared(Media::Hdd) };
    bucket(seed, Physics::constant(100.0, 12), backing)
}

fn quota(seed: u64) -> Sight {
    let zram = Zram::new(256);
    let group = Group::new("cpu");
    group.set("cpu.cfs_period_us", "20000");
    group.set("cpu.cfs_quota_us", "6000");
    let reads = profile(Preset::RandRead, 32, 3.0);
    let measurement = Measurement::of_device(&zram.device(), &reads);
    measurement.through_shell(&group.enter()).seed(seed).take()
}

fn memory(seed: u64) -> Sight {
    let zram = Zram::new(256);
    let reads = profile(Preset::RandRead, 32, 3.0);
    Measurement::of_device(&zram.device(), &reads).seed(seed).take()
}
