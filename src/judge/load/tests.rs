use proptest::prelude::*;

use super::*;
use crate::base::units::Rate;
use crate::judge::book::tests::entry;
use crate::judge::book::{self, Book, Resource as What, Way};
use crate::model::metric::Value;
use crate::model::snapshot::ResourceClass;
use crate::model::verdict::Unit;

/// One disk of 10,000 reads, 5000 writes, 500 MB/s and 250 MB/s, at depth 8 in 0.8 ms.
fn ceilings() -> Effective {
    let of = |way, unit| book::Of { resource: What::Disk("sda".into()), way, unit };
    let mut known = Book::default();
    for (way, unit, value) in [
        (Way::Read, Unit::OperationsPerSecond, 10_000.0),
        (Way::Write, Unit::OperationsPerSecond, 5000.0),
        (Way::Read, Unit::BytesPerSecond, 500e6),
        (Way::Write, Unit::BytesPerSecond, 250e6),
    ] {
        let mut entry = entry(of(way, unit), "p@t", value);
        entry.latency = Seconds(0.0008);
        known.learn(entry);
    }
    Effective::of(&known, &[], |_| true)
}

/// `[reads, writes]`: operations a second and their size; and the mean queue.
fn disk([reads, writes]: [(f64, f64); 2], queue: f64) -> DiskLive {
    let load = DiskLoad {
        window: Seconds(1.0),
        reads_per_second: reads.0,
        writes_per_second: writes.0,
        read_bytes_per_second: reads.0 * reads.1,
        write_bytes_per_second: writes.0 * writes.1,
        busy: Ratio(1.0),
        queue,
        completed: (reads.0 + writes.0) as u64,
        ..DiskLoad::default()
    };
    DiskLive {
        device: "sda".into(),
        identity: "naa.1".into(),
        spindle: false,
        slots: None,
        window: Some(DiskWindow { load, busy: Some(Ratio(1.0)), timed: true, new: true }),
    }
}

fn reads(rate: f64, queue: f64) -> DiskLive {
    disk([(rate, 4096.0), (0.0, 0.0)], queue)
}

/// What is published after each of `disks` was seen, one a tick; by the family's last words.
fn page(live: &mut Live, ceilings: &Effective, disks: &[DiskLive]) -> BTreeMap<String, f64> {
    let mut out = Vec::new();
    for disk in disks {
        out.clear();
        live.disks(std::slice::from_ref(disk), ceilings, (&mut out, &mut []));
    }
    let series = out.iter().map(|point| {
        let Value::Number(value) = point.value else { panic!("{point:?}") };
        (point.desc.name.trim_start_matches("loadline_disk_").to_owned(), value)
    });
    series.collect()
}

fn once(disk: DiskLive) -> BTreeMap<String, f64> {
    page(&mut Live::default(), &ceilings(), &[disk])
}

#[test]
fn reads_and_writes_are_charged_by_their_own_ceilings() {
    let near = |disk: DiskLive, expected: f64| {
        let page = once(disk);
        let used = page["utilization_ratio"];
        assert!((used - expected).abs() < 0.01, "{used} is not {expected}");
        assert!((page["headroom_ratio"] - (1.0 - expected).max(0.0)).abs() < 0.01);
    };
    near(reads(5000.0, 1.0), 0.5);
    near(disk([(0.0, 0.0), (4000.0, 4096.0)], 1.0), 0.8);
    near(disk([(5000.0, 4096.0), (2000.0, 4096.0)], 1.0), 0.9);
    near(disk([(250.0, 1e6), (0.0, 0.0)], 1.0), 0.523);
    near(disk([(0.0, 0.0), (0.0, 0.0)], 0.0), 0.0);
    near(reads(12_000.0, 9.0), 1.2);
}

#[test]
fn busy_is_never_utilization_in_disguise() {
    let unknown = page(&mut Live::default(), &Effective::default(), &[reads(9000.0, 20.0)]);
    assert!(unknown.is_empty(), "busy all the time, and no ceiling known: {unknown:?}");
    let other = DiskLive { identity: "naa.2".into(), ..reads(9000.0, 20.0) };
    assert!(once(other).is_empty(), "another disk under the name");
}

#[test]
fn a_direction_without_a_ceiling_makes_it_unknown_unless_it_is_a_trace() {
    let of = |unit| book::Of { resource: What::Disk("sda".into()), way: Way::Read, unit };
    let mut known = Book::default();
    known.learn(entry(of(Unit::OperationsPerSecond), "p@t", 10_000.0));
    let ceilings = Effective::of(&known, &[], |_| true);
    let used =
        |disk| page(&mut Live::default(), &ceilings, &[disk]).get("utilization_ratio").copied();
    assert_eq!(used(disk([(5000.0, 4096.0), (3.0, 4096.0)], 1.0)), Some(0.5003));
    assert_eq!(used(disk([(5000.0, 4096.0), (500.0, 4096.0)], 1.0)), None);
    assert_eq!(used(disk([(100.0, 1e6), (0.0, 0.0)], 1.0)), None, "bytes were never measured");
}

#[test]
fn a_spindle_goes_by_busy_and_queue_and_needs_no_ceiling() {
    let spindle = |busy: f64, queue: f64| {
        let mut disk = DiskLive { spindle: true, ..reads(120.0, queue) };
        if let Some(window) = &mut disk.window {
            window.busy = Some(Ratio(busy));
        }
        page(&mut Live::default(), &Effective::default(), &vec![disk; 10])
    };
    assert_eq!(spindle(0.96, 3.0)["at_ceiling"], 1.0);
    assert_eq!(spindle(0.96, 1.0)["at_ceiling"], 0.0, "nothing waits");
    let half = spindle(0.5, 3.0);
    assert_eq!((half["at_ceiling"], half["utilization_ratio"]), (0.0, 0.5));
    assert!(!half.contains_key("degraded"), "no ceiling to fall short of");
}

#[test]
fn at_the_ceiling_on_at_eight_of_ten_and_off_at_three() {
    let (full, idle) = (reads(9500.0, 8.0), reads(10.0, 0.0));
    let mut live = Live::default();
    let ceilings = ceilings();
    assert_eq!(page(&mut live, &ceilings, &vec![full.clone(); 7])["at_ceiling"], 0.0);
    let on = page(&mut live, &ceilings, &vec![full; 3]);
    assert_eq!((on["at_ceiling"], on["saturation_ratio"]), (1.0, 1.0));
    assert_eq!(on["at_ceiling_seconds_total"], 10.0);
    assert_eq!(page(&mut live, &ceilings, &vec![idle.clone(); 6])["at_ceiling"], 1.0);
    let off = page(&mut live, &ceilings, &[idle]);
    assert_eq!((off["at_ceiling"], off["at_ceiling_seconds_total"]), (0.0, 10.0));
}

#[test]
fn a_full_rate_without_a_queue_is_not_yet_the_ceiling() {
    let page = once(reads(9500.0, 1.0));
    assert_eq!(page["at_ceiling_seconds_total"], 0.0);
    let slots = DiskLive { slots: Some(0), ..reads(9500.0, 1.0) };
    assert_eq!(once(slots)["at_ceiling_seconds_total"], 1.0, "every slot is taken");
}

#[test]
fn slower_than_it_was_measured_is_degraded() {
    let degraded = |rate, queue| {
        page(&mut Live::default(), &ceilings(), &vec![reads(rate, queue); 10])["degraded"]
    };
    assert_eq!(degraded(2000.0, 16.0), 1.0, "8 ms each, at a fifth of the rate");
    assert_eq!(degraded(2000.0, 2.0), 0.0, "not asked for more");
    assert_eq!(degraded(9500.0, 32.0), 0.0, "full");
}

#[test]
fn an_old_window_is_shown_again_and_counts_once() {
    let mut again = reads(9500.0, 8.0);
    if let Some(window) = &mut again.window {
        window.new = false;
    }
    let page = page(&mut Live::default(), &ceilings(), &[reads(9500.0, 8.0), again]);
    assert_eq!(page["at_ceiling_seconds_total"], 1.0);
    assert!((page["utilization_ratio"] - 0.95).abs() < 0.01);
    let gone = DiskLive { window: None, ..reads(0.0, 0.0) };
    assert!(once(gone).is_empty());
}

#[test]
fn a_disk_whose_sampler_failed_for_a_moment_is_not_forgotten() {
    let after = |ticks: usize| {
        let (mut live, ceilings, full) = (Live::default(), ceilings(), reads(9500.0, 8.0));
        page(&mut live, &ceilings, &vec![full.clone(); 10]);
        for _ in 0..ticks {
            live.disks(&[], &ceilings, (&mut Vec::new(), &mut []));
        }
        let page = page(&mut live, &ceilings, &[full]);
        (page["at_ceiling"], page["at_ceiling_seconds_total"])
    };
    assert_eq!([after(1), after(3)], [(1.0, 11.0); 2]);
    assert_eq!(after(4), (0.0, 1.0), "away for longer than a gauge lives");
}

#[test]
fn what_cannot_be_known_to_be_degraded_is_absent() {
    let slow = || vec![reads(2000.0, 16.0); 10];
    let degraded = |ceilings: &Effective, disks: Vec<DiskLive>| {
        page(&mut Live::default(), ceilings, &disks).get("degraded").copied()
    };
    assert_eq!(degraded(&ceilings(), slow()), Some(1.0));
    let mut short = ceilings();
    for own in short.disks.values_mut() {
        own.read.operations.iter_mut().for_each(|entry| entry.short_stroke = true);
    }
    assert_eq!(degraded(&short, slow()), None, "it was measured on a small part of it");
    let mut untimed = slow();
    untimed.iter_mut().flat_map(|disk| &mut disk.window).for_each(|window| window.timed = false);
    assert_eq!(degraded(&ceilings(), untimed), None, "its driver counts no time");
    assert_eq!(degraded(&ceilings(), vec![reads(0.0, 0.0); 10]), Some(0.0), "idle");
    assert_eq!(degraded(&ceilings(), vec![reads(0.0, 16.0); 10]), Some(1.0), "nothing comes back");
}

fn resource(device: &str, class: ResourceClass) -> Resource {
    let (facts, load) = ("".into(), Vec::new());
    Resource { device: device.into(), class, facts, load, share: None, of: Of::Time }
}

#[test]
fn the_page_shows_the_share_of_the_ceiling() {
    let other = DiskLive { device: "nvme0n1".into(), ..reads(9000.0, 1.0) };
    let mut resources = [
        resource("nvme0n1", ResourceClass::Disk),
        resource("sda", ResourceClass::Link),
        resource("sda", ResourceClass::Disk),
    ];
    let out = (&mut Vec::new(), &mut resources[..]);
    Live::default().disks(&[other, reads(5000.0, 1.0)], &ceilings(), out);
    assert_eq!(resources[2].of, Of::Ceiling);
    assert!(resources[2].share.is_some_and(|share| (share.0 - 0.5).abs() < 0.01));
    assert_eq!([resources[0].share, resources[1].share], [None, None]);
}

#[test]
fn a_spindles_busy_time_is_not_shown_as_a_share_of_its_ceiling() {
    let shown = |busy: f64| {
        let mut disk = DiskLive { spindle: true, ..disk([(350.0, 1e6), (0.0, 0.0)], 1.0) };
        disk.window.iter_mut().for_each(|window| window.busy = Some(Ratio(busy)));
        let mut resources = [resource("sda", ResourceClass::Disk)];
        let out = (&mut Vec::new(), &mut resources[..]);
        Live::default().disks(&[disk], &ceilings(), out);
        let [shown] = resources;
        (shown.of, shown.share.map(|share| share.0))
    };
    assert_eq!(shown(0.6), (Of::Ceiling, Some(0.7)), "350 of 500 MB/s");
    assert_eq!(shown(0.8), (Of::Time, None), "as the sampler left it");
}

#[test]
fn a_line_carries_less_payload_than_bits_and_is_made_once() {
    let line = |rate: f64, tagged| KnownLine {
        device: "eth0".into(),
        receive: Rate(rate),
        transmit: Rate(rate),
        declared: false,
        mtu: 1500,
        tagged,
    };
    let mut live = Live::default();
    let points = live.lines(vec![line(125e6, false)]);
    let Value::Number(carries) = points[0].value else { panic!("{points:?}") };
    assert!((carries * 8.0 / 1e6 - 941.48).abs() < 0.01, "{carries}");
    assert!(Arc::ptr_eq(&points, &live.lines(vec![line(125e6, false)])));
    assert!(!Arc::ptr_eq(&points, &live.lines(vec![line(125e6, true)])));
}

fn any_amount() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1e9_f64]
}

proptest! {
    #[test]
    fn no_load_is_less_than_nothing_and_each_series_comes_once(
        ticks in prop::collection::vec(
            (any_amount(), 512.0..4e6_f64, any_amount(), 512.0..4e6_f64, any_amount(), any::<[bool; 4]>()),
            1..30,
        ),
    ) {
        let (mut live, ceilings) = (Live::default(), ceilings());
        // Of which disk, in which tick, and how much.
        let mut counted: Option<(bool, usize, f64)> = None;
        for (tick, (r, r_size, w, w_size, queue, [spindle, timed, new, other])) in
            ticks.into_iter().enumerate()
        {
            let mut disk = disk([(r, r_size), (w, w_size)], queue);
            disk.spindle = spindle;
            if other { disk.identity = "naa.2".into() }
            if let Some(window) = &mut disk.window {
                (window.timed, window.new) = (timed, new);
            }
            let mut out = Vec::new();
            live.disks(&[disk], &ceilings, (&mut out, &mut []));
            let mut names: Vec<_> = out.iter().map(|point| point.desc.name).collect();
            names.sort_unstable();
            names.dedup();
            prop_assert_eq!(names.len(), out.len());
            for point in &out {
                let Value::Number(value) = point.value else { panic!("{point:?}") };
                prop_assert!(value.is_finite() && value >= 0.0, "{} {value}", point.desc.name);
                if point.desc.name.ends_with("at_ceiling_seconds_total") {
                    let same = |before: &(bool, usize, f64)| before.0 == other && tick - before.1 <= 3;
                    let before = counted.filter(same).map_or(0.0, |before| before.2);
                    prop_assert!(value >= before, "{value} after {before}");
                    counted = Some((other, tick, value));
                }
            }
        }
    }

    #[test]
    fn of_each_resource_and_direction_one_ceiling_is_in_force(
        found in prop::collection::vec((any::<[bool; 4]>(), 1.0..1e9_f64, 0..3_u8), 0..60),
    ) {
        let mut known = Book::default();
        for ([disk, write, bytes, short], value, by) in found {
            let resource =
                if disk { What::Disk("sda".into()) } else { What::Target("sda".into()) };
            let way = if write { Way::Write } else { Way::Read };
            let unit = if bytes { Unit::BytesPerSecond } else { Unit::OperationsPerSecond };
            let mut entry = entry(book::Of { resource, way, unit }, &by.to_string(), value);
            entry.short_stroke = short;
            known.learn(entry);
        }
        let effective = Effective::of(&known, &[], |_| true);
        let series = |point: &Point| (point.desc.name, point.labels.clone());
        let is_info = |point: &&Point| point.desc.name.ends_with("_info");
        let mut all: Vec<_> = effective.points.iter().filter(|p| !is_info(p)).map(series).collect();
        let infos = effective.points.iter().filter(is_info).count();
        let count = all.len();
        all.sort();
        all.dedup();
        prop_assert_eq!(all.len(), count);
        prop_assert_eq!(infos * 2, count, "each has a value, an info and a time");
    }
}
