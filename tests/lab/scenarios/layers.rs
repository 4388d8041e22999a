//! What lies above the disk: journals, caches, locks.

use std::fs::File;
use std::os::unix::fs::FileExt;

use loadline::base::units::{Bytes, MIB};
use loadline::model::job::Profile;
use loadline::model::path::Media;
use loadline::model::verdict::Limit;
use loadline::probe::disk::Preset;

use super::Scenario;
use super::measure::{Measurement, Sight, declared, profile};
use super::model::Physics;
use super::place::{BufferedLoop, Volume};

pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("data_in_the_journal", &[Limit::WritePath], journal).needs(&["mkfs.ext4"]),
    Scenario::new("pages_in_memory", &[Limit::Cache], page_cache).needs(&["mkfs.ext4"]),
    Scenario::new("one_thread_above_the_disk", &[Limit::None], one_thread).needs(&["mkfs.ext4"]),
];

const FILE: Bytes = Bytes(32 * MIB);

fn spindle(seed: u64) -> Physics {
    Physics { seed, bytes_per_second: 100e6, reorders: true, ..Physics::spindle() }
}

fn journal(seed: u64) -> Sight {
    let volume = Volume::ext4(spindle(seed), "noatime,data=journal");
    // It takes no direct I/O.
    let writes = Profile { direct: false, ..profile(Preset::SeqWrite, 4, 5.0) };
    let measurement = Measurement::in_directory(volume.path(), FILE, &writes);
    let sight = measurement.declare(declared(Media::Hdd)).seed(seed).take();
    let amplification = sight.facts.device.write_amplification;
    sight.within("amplification", amplification, 1.8..=2.2)
}

/// With data in the journal there is no direct I/O, and what was read once is in memory.
fn page_cache(seed: u64) -> Sight {
    let volume = Volume::ext4(spindle(seed), "noatime,data=journal");
    let reads = Profile { direct: false, ..profile(Preset::SeqRead, 4, 3.0) };
    let measurement = Measurement::in_directory(volume.path(), Bytes(8 * MIB), &reads);
    measurement.declare(declared(Media::Hdd)).seed(seed).take()
}

/// A loop through the page cache serves one request at a time, whatever waits (drivers/block/loop.c,
/// `lo_req_simple`); 32 heads below it could do more.
fn one_thread(seed: u64) -> Sight {
    let (seek_min, seek_max, turn) = (0.001, 0.001, 0.006);
    let physics = Physics { seek_min, seek_max, turn, seed, ..Physics::constant(250.0, 32) };
    let volume = Volume::ext4(physics, "noatime");
    let path = volume.path().join("image");
    let file = File::create(&path).unwrap();
    let block = vec![1; 1 << 20];
    (0..64).for_each(|at| file.write_all_at(&block, at << 20).unwrap());
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let narrow = BufferedLoop::over(&path);
    let reads = profile(Preset::RandRead, 16, 5.0);
    let measurement = Measurement::of_device(&narrow.0, &reads).declare(declared(Media::Ssd));
    measurement.seed(seed).take()
}
