use super::*;
use crate::base::legs::Rung;
use crate::base::units::Ratio;
use crate::judge::from_outcome::{self, Place as Where};
use crate::judge::limits::judge;
use crate::model::job::{Access, Backing, Device, Profile};
use crate::model::outcome::{Direction, Evidence, Flags, IoLimit, Knee, Limited, SecondLeg};
use crate::model::path::DeclaredBacking;
use crate::model::samples::{measured, profile};
use crate::model::spread::Requests;

const BLOCK: u64 = 4096;

fn leg(reads: bool, depth: u32, rate: u64, block: u64) -> Measured {
    let moved = Direction {
        operations: rate * 10,
        bytes: Bytes(rate * 10 * block),
        latency_mean: Some(Seconds(f64::from(depth) / rate as f64)),
        ..Direction::default()
    };
    let (reading, writing) =
        if reads { (moved, Direction::default()) } else { (Direction::default(), moved) };
    let profile = Profile {
        access: if block > BLOCK { Access::Sequential } else { Access::Random },
        reads: Ratio(if reads { 1.0 } else { 0.0 }),
        block: Bytes(block),
        depth,
        ..profile()
    };
    Measured { reads: reading, writes: writing, steady: Some(true), ..measured(profile) }
}

/// A clean run on one disk that moves just what the probe asks for.
pub(crate) fn done(reads: bool, rates: [u64; 2], block: u64) -> Done {
    let second = leg(reads, 16, rates[1], block);
    let requests = Requests { completed: rates[0] * 10, ..Requests::default() };
    let bytes = Bytes(rates[0] * 10 * block);
    let nothing = (Requests::default(), Bytes(0));
    let (read, written) =
        if reads { ((requests, bytes), nothing) } else { (nothing, (requests, bytes)) };
    let used = DeviceUse {
        device: "sda".into(),
        reads: read.0,
        read_bytes: read.1,
        writes: written.0,
        written_bytes: written.1,
        ..DeviceUse::default()
    };
    let share = |is: bool| is.then_some(1.0);
    Done {
        legs: vec![leg(reads, 8, rates[0], block)],
        evidence: Evidence {
            devices: vec![used],
            device_read_share: share(reads),
            write_amplification: share(!reads),
            ..Evidence::default()
        },
        flags: Flags {
            direct: Some(true),
            steady: Some(true),
            short: Some(false),
            contended: Some(false),
            ..Flags::default()
        },
        second_leg: Some(Box::new(SecondLeg {
            measured: second,
            evidence: Evidence::default(),
            says: Saturation::Saturated,
            first_repeated: false,
        })),
        ..Done::default()
    }
}

pub(crate) fn inspection(rotational: Option<bool>, disks: &[&str]) -> Inspection {
    let device = |name: &&str| Device { name: (*name).into(), stat: "/x/stat".into(), rotational };
    Inspection {
        mount_point: "/srv".into(),
        filesystem: "ext4".into(),
        source: "/dev/sda1".into(),
        backing: Backing::Local,
        copy_on_write: false,
        zoned: false,
        read_only: false,
        size: Bytes(1 << 40),
        available: Bytes(1 << 39),
        inodes_free: None,
        devices: disks.iter().map(device).collect(),
        top: Vec::new(),
        ballast: None,
    }
}

fn directory() -> Target {
    Target { name: "srv".into(), place: Place::Directory("/srv".into()) }
}

fn found(done: &Done, inspection: &Inspection, target: &Target) -> Vec<Entry> {
    lesson(done, inspection, target).0
}

fn lesson(done: &Done, inspection: &Inspection, target: &Target) -> (Vec<Entry>, Vec<Reached>) {
    let backing = DeclaredBacking::default();
    let place =
        Where { inspection: Some(inspection), devices: &inspection.devices, backing: &backing };
    let facts = from_outcome::storage(done, &place).unwrap();
    let verdict = judge(&facts);
    let lesson = Lesson {
        done,
        facts: &facts,
        verdict: &verdict,
        target,
        inspection,
        by: "p@srv",
        at: Moment::default(),
    };
    let told = |name: &str| (name == "sda").then(|| "naa.1".to_owned());
    (lesson.entries(told), lesson.reached(told))
}

fn flash(done: &Done) -> Vec<Entry> {
    found(done, &inspection(Some(false), &["sda"]), &directory())
}

#[test]
fn a_clean_saturated_run_teaches_its_target_and_the_one_disk_under_it() {
    let [target, disk] = &flash(&done(true, [10_000, 10_400], BLOCK))[..] else {
        panic!("one of each")
    };
    assert_eq!(target.of.resource, Resource::Target("srv".into()));
    assert_eq!((target.of.way, target.of.unit), (Way::Read, Unit::OperationsPerSecond));
    assert_eq!(target.value, 10_400.0, "the best stable rate");
    assert_eq!((target.depth, target.kind), (8.0, Persistence::Sustained));
    assert_eq!(disk.of.resource, Resource::Disk("sda".into()));
    assert_eq!((disk.value, disk.identity.as_str()), (10_400.0, "naa.1"));
    assert!(!disk.short_stroke);
}

#[test]
fn large_blocks_teach_bytes_and_the_disk_counts_its_own_requests() {
    let mut run = done(true, [400, 410], 1 << 20);
    // The elevator splits each in two.
    run.evidence.devices[0].reads.completed *= 2;
    let [target, disk] = &flash(&run)[..] else { panic!("one of each") };
    assert_eq!(target.of.unit, Unit::BytesPerSecond);
    assert_eq!(target.value, 410.0 * 1_048_576.0);
    assert_eq!((disk.value, disk.block), (target.value, Bytes(1 << 19)));
}

#[test]
fn a_run_in_which_nothing_moved_teaches_nothing() {
    for rates in [[0, 0], [0, 10_000]] {
        let (taught, reached) =
            lesson(&done(true, rates, BLOCK), &inspection(Some(false), &["sda"]), &directory());
        assert_eq!((taught, reached), (Vec::new(), Vec::new()), "{rates:?}");
    }
    assert!(flash(&done(true, [10_000, 0], BLOCK)).is_empty(), "then it stood still");
}

fn io_limit(used: f64) -> IoLimit {
    let limited = Limited::ReadOperations;
    IoLimit { device: "sda".into(), limited, limit: 10_000.0, used }
}

#[test]
fn what_is_not_clean_or_not_saturated_teaches_nothing() {
    let clean = || done(true, [10_000, 10_400], BLOCK);
    let set: [fn(&mut Done); 9] = [
        |d| d.flags.short = Some(true),
        |d| d.flags.contended = Some(true),
        |d| d.flags.cached = Some(true),
        |d| d.flags.steady = Some(false),
        |d| d.flags.direct = Some(false),
        |d| d.flags.cpu_limited = Some(true),
        |d| d.second_leg = None,
        |d| d.evidence.foreign_share = Some(0.2),
        |d| d.evidence.io_limit = Some(io_limit(0.99)),
    ];
    let mut under_a_limit = clean();
    under_a_limit.evidence.io_limit = Some(io_limit(0.5));
    assert!(!flash(&under_a_limit).is_empty(), "it was not what held the run");
    for (index, spoil) in set.into_iter().enumerate() {
        let mut run = clean();
        spoil(&mut run);
        assert!(flash(&run).is_empty(), "case {index}");
    }
    assert!(flash(&done(true, [10_000, 19_000], BLOCK)).is_empty(), "more depth goes faster");
    assert!(flash(&done(true, [10_000, 13_000], BLOCK)).is_empty(), "neither");
}

#[test]
fn what_teaches_nothing_has_still_reached_it_on_its_disk_too() {
    let reached = |spoil: fn(&mut Done)| {
        let mut run = done(true, [10_000, 19_000], BLOCK);
        spoil(&mut run);
        let (taught, reached) = lesson(&run, &inspection(Some(false), &["sda"]), &directory());
        assert!(taught.is_empty());
        let of = |r: Reached| (r.of.resource, r.identity, r.value, r.block);
        reached.into_iter().map(of).collect::<Vec<_>>()
    };
    let [target, disk] = &reached(|_| {})[..] else { panic!("one of each") };
    assert_eq!((target.2, target.3), (19_000.0, Bytes(BLOCK)));
    let sda = (Resource::Disk("sda".into()), "naa.1".to_owned(), 19_000.0, Bytes(BLOCK));
    assert_eq!(*disk, sda);
    assert_eq!(reached(|d| d.flags.cached = Some(true)), []);
    assert_eq!(reached(|d| d.flags.direct = Some(false)), [], "the page cache may have answered");
    assert_eq!(reached(|d| d.evidence.device_read_share = Some(0.1)), []);
}

#[test]
fn a_knee_teaches_its_best_rate_only_where_the_ladder_is_saturated() {
    let rung = Rung { depth: 8, operations_per_second: 10_000.0, latency_mean: Seconds(0.0008) };
    let knee = |says| {
        let knee = Knee {
            rungs: vec![rung; 2],
            depth: 8,
            operations_per_second: 10_300.0,
            says: Some(says),
        };
        Done { knee: Some(Box::new(knee)), ..done(true, [10_000, 10_200], BLOCK) }
    };
    let entries = flash(&knee(Saturation::Saturated));
    assert_eq!((entries[0].value, entries[0].source.as_str()), (10_300.0, "a knee at depth 8"));
    assert!(flash(&knee(Saturation::Between)).is_empty());
}

#[test]
fn short_runs_on_virtual_disks_and_on_flash_writes_are_bursts() {
    let kind = |run: &Done, rotational| {
        found(run, &inspection(rotational, &["sda"]), &directory())[0].kind
    };
    let reads = done(true, [10_000, 10_400], BLOCK);
    let writes = done(false, [10_000, 10_400], BLOCK);
    assert_eq!(kind(&reads, None), Persistence::Burst);
    assert_eq!(kind(&reads, Some(false)), Persistence::Sustained);
    assert_eq!(kind(&writes, Some(false)), Persistence::Burst);
}

#[test]
fn a_spindle_is_measured_by_its_whole_stroke_or_flagged() {
    let spindle = inspection(Some(true), &["sda"]);
    let seeks = done(true, [120, 130], BLOCK);
    assert!(found(&seeks, &spindle, &directory()).iter().all(|entry| entry.short_stroke));
    let mut mapped = seeks.clone();
    mapped.legs[0].profile.access = Access::RandomMap;
    assert!(found(&mapped, &spindle, &directory()).iter().all(|entry| entry.short_stroke));
    let raw = Target { name: "raw".into(), place: Place::Device("/dev/sda".into()) };
    assert!(found(&seeks, &spindle, &raw).iter().all(|entry| !entry.short_stroke));
    let streams = done(true, [150, 152], 1 << 20);
    assert!(found(&streams, &spindle, &directory()).iter().all(|entry| !entry.short_stroke));
}

#[test]
fn of_several_disks_nobody_knows_which_was_full() {
    let two = inspection(Some(false), &["sda", "sdb"]);
    let entries = found(&done(true, [10_000, 10_400], BLOCK), &two, &directory());
    assert_eq!(entries.len(), 1);
}

#[test]
fn a_target_is_told_from_another_by_its_mount_and_its_disks() {
    let now = |inspection: &Inspection, wwid: Option<&str>| {
        identity(&directory(), inspection, |_| wwid.map(str::to_owned))
    };
    let before = inspection(Some(false), &["sda"]);
    let known = now(&before, Some("naa.1"));
    assert_ne!(known, now(&before, Some("naa.2")), "another disk");
    let renamed = Inspection { source: "/dev/sdb1".into(), ..inspection(Some(false), &["sdb"]) };
    assert_eq!(known, now(&renamed, Some("naa.1")), "the same under another name");
    assert_ne!(now(&before, None), now(&renamed, None), "of which nothing else is told");
    let other = Inspection { filesystem: "xfs".into(), ..before.clone() };
    assert_ne!(known, now(&other, Some("naa.1")));
    let fuller = Inspection { available: Bytes(1), ballast: Some(Bytes(7)), ..before.clone() };
    assert_eq!(known, now(&fuller, Some("naa.1")));
    let share = |source: &str| Inspection { source: source.into(), ..inspection(None, &[]) };
    assert_ne!(now(&share("nas:/a"), None), now(&share("nas:/b"), None));
}
