//! Reports of others, each with its right result, carried through the sampler.

use proptest::prelude::*;

use super::*;

macro_rules! case {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/fixtures/cases/", $name))
    };
}

#[test]
fn case_013_a_busy_time_beyond_the_uptime_is_unreliable_and_no_fullness() {
    let case = case!("013-io-ticks-runaway.input");
    let filter = Filter { include: vec!["*".into()], exclude: Vec::new() };
    let mut lab = Lab::with(SampleSettings { disk_filter: filter, ..SampleSettings::default() });
    lab.host.file("proc/uptime", "400000.00 700000.00\n");
    let first = lab.tick(case);
    let unreliable = |reading: &Reading, device| number(reading, "_busy_unreliable", device);
    for (device, is) in [("sda", 1.0), ("sda1", 0.0), ("nvme0n1", 1.0)] {
        assert_eq!(unreliable(&first, device), Some(is), "{device}");
    }
    assert_eq!(number(&first, "_busy_seconds_total", "sda"), Some(754_042.592), "never repaired");
    let second = lab.tick(
        &case
            .replace("sda 497936", "sda 497956")
            .replace(" 754042592 761681044", " 754043592 761681544"),
    );
    assert_eq!(number(&second, "_disk_busy_ratio", "sda"), None, "it would be 1 for ever");
    assert_eq!(number(&second, "_window_busy_ratio", "sda"), None);
    assert_eq!(number(&second, "_read_latency_seconds", "sda"), Some(0.0));
    assert_eq!(number(&second, "_disk_busy_ratio", "sda1"), Some(0.0));
    assert_eq!(
        second.conditions.disks["sda"].busy.map(|b| b.0),
        Some(0.0),
        "its queue, for the guard"
    );
    assert!(second.notes.iter().any(|note| note.starts_with("sda: its busy time is longer")));
}

#[test]
fn case_028_identities_are_told() {
    let mut lab = Lab::new();
    lab.host.file("sys/devices/pci0/nvme/nvme0/nvme0n1/wwid", "uuid.1111\n");
    let reading = lab.tick(&line("nvme0n1", 1, 0, 1));
    assert_eq!(info(&reading, "nvme0n1")[7], "uuid.1111");
}

#[test]
fn case_088_a_disk_that_cannot_be_asked_keeps_its_facts() {
    let mut lab = Lab::new();
    let row = line("sda", 1, 0, 1);
    lab.tick(&row);
    lab.host.symlink(&format!("sys/devices/{ATA}/sda/size"), "size");
    lab.host.remove(&format!("sys/devices/{ATA}/sda/queue"));
    let later = lab.after(Duration::from_secs(60), &row);
    assert_eq!((info(&later, "sda")[0], later.rejected), ("hdd", 1));
    lab.host.remove(&format!("sys/devices/{ATA}/sda/size"));
    assert_eq!(info(&lab.after(Duration::from_secs(60), &row), "sda")[0], "unknown");
}

#[test]
fn a_loop_over_a_file_on_no_disk_is_watched_as_a_disk_of_its_own() {
    let mut lab = Lab::new();
    lab.host.file("proc/self/mountinfo", "9 1 0:44 / /img rw - fuse.physics x rw\n");
    let attributes =
        [("size", "2048\n"), ("loop/backing_file", "/img/disk\n"), ("queue/rotational", "0\n")];
    for (attribute, content) in attributes {
        lab.host.file(&format!("sys/devices/virtual/block/loop0/{attribute}"), content);
    }
    let reading = lab.tick(&line("loop0", 3, 1, 5));
    assert_eq!(reading.conditions.disks["loop0"].in_flight, 1);
    assert_eq!(info(&reading, "loop0")[..2], ["unknown", "unknown"]);
    let leaves = reading.points.iter().filter(|p| p.desc.name == "loadline_disk_leaf_info");
    assert_eq!(leaves.count(), 0, "it is not a part of itself");
    let from = lab.clock.now();
    lab.own.0.push(OwnRun { devices: vec!["loop0".into()], from, until: None });
    let busy = lab.tick(&line("loop0", 90, 1, 500));
    assert_eq!(number(&busy, "_probe_active_seconds_total", "loop0"), Some(1.0));
}

#[test]
fn case_016_a_name_that_is_used_again_starts_anew() {
    let mut lab = Lab::new();
    lab.tick(case!("016-dm-name-reused-counter-drop.input-t0"));
    let later = lab.tick(case!("016-dm-name-reused-counter-drop.input-t1"));
    assert_eq!(reads_per_second(&later, "dm-7"), None);
    assert_eq!(number(&later, "_reads_completed_total", "dm-7"), Some(12.0));
    assert_eq!(reads_per_second(&later, "sdd"), None);
    assert!(later.points.iter().all(|p| !matches!(p.value, Value::Number(n) if n > 9e15)));
}

#[test]
fn case_012_an_array_that_counts_no_time_has_rates_and_no_latency() {
    let mut lab = Lab::new();
    lab.tick(case!("012-md-zero-times.input-t0"));
    let later = lab.tick(case!("012-md-zero-times.input-t1"));
    assert_eq!(number(&later, "_write_operations_per_second", "md1"), Some(3.0));
    assert_eq!(number(&later, "_write_bytes_per_second", "md1"), Some(12_288.0));
    for family in ["_busy_ratio", "_queue_depth", "_write_latency_seconds", "_busy_seconds_total"] {
        assert_eq!(number(&later, family, "md1"), None, "{family}");
    }
    assert!(later.notes.iter().any(|note| note.starts_with("md1: its driver counts requests")));
}

#[test]
fn case_014_busy_is_never_over_one_and_the_excess_is_counted() {
    let mut lab = Lab::with(SampleSettings { every: Seconds(5.0), ..SampleSettings::default() });
    lab.tick(case!("014-util-over-100-jiffy-rounding.input-t0"));
    let five = Duration::from_secs(5);
    let later = lab.after(five, case!("014-util-over-100-jiffy-rounding.input-t1"));
    assert_eq!(number(&later, "_disk_busy_ratio", "sda"), Some(1.0));
    assert_eq!(number(&later, "_busy_above_seconds_total", "sda"), Some(5.0));
    assert_eq!((number(&later, "_read_latency_seconds", "sda"), later.rejected), (None, 1));
    assert_eq!(number(&later, "_busy_seconds_total", "sda"), Some(10.013), "counters go out raw");
}

#[test]
fn case_017_a_wrap_is_growth_and_published_time_never_steps_back() {
    let mut lab = Lab::with(SampleSettings { every: Seconds(10.0), ..SampleSettings::default() });
    lab.tick(case!("017-ms-counters-wrap-32bit.input-t0"));
    let ten = Duration::from_secs(10);
    let later = lab.after(ten, case!("017-ms-counters-wrap-32bit.input-t1"));
    assert_eq!(number(&later, "_queue_time_seconds_total", "sda"), Some(4_294_970.0));
    assert_eq!(reads_per_second(&later, "sda"), Some(400.0));
    assert_eq!(number(&later, "_disk_queue_depth", "sda"), Some(0.8));
}

#[test]
fn case_032_a_stuck_disk_is_stalled_and_an_idle_one_is_not() {
    let mut lab = Lab::new();
    lab.tick(case!("032-idle-device-division.input-t0"));
    let stuck = case!("032-idle-device-division.input-t1");
    let readings: Vec<_> = (0..6).map(|_| lab.tick(stuck)).collect();
    let stalled: Vec<_> =
        readings.iter().map(|r| number(r, "_disk_stalled", "sdb").unwrap()).collect();
    assert_eq!(stalled, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    let last = &readings[5];
    assert_eq!(number(last, "_disk_stalled", "sda"), Some(0.0));
    assert_eq!(number(last, "_read_latency_seconds", "sdb"), None);
    assert_eq!(number(last, "_in_flight", "sdb"), Some(1.0));
    assert!(last.points.iter().all(|p| !matches!(p.value, Value::Number(n) if !n.is_finite())));
}

#[test]
fn case_033_idle_time_grows_until_others_use_the_disk() {
    let mut lab = Lab::new();
    lab.tick(&line("sda", 10, 0, 0));
    lab.tick(&line("sda", 11, 0, 0));
    for _ in 0..4 {
        lab.tick(&line("sda", 11, 0, 0));
    }
    let idle = lab.tick(&line("sda", 11, 0, 0));
    assert_eq!(idle.conditions.disks["sda"].idle_for, Seconds(5.0));
    let used = lab.tick(&line("sda", 12, 0, 0));
    assert_eq!(used.conditions.disks["sda"].idle_for, Seconds(0.0));
    assert_eq!(used.conditions.disks["sda"].rotational, Some(true));
}

#[test]
fn case_008_a_missing_file_is_a_fault_and_an_empty_one_is_none() {
    let mut lab = Lab::new();
    let tick = Tick { at: lab.clock.now(), own: &OwnRuns::default() };
    let fault = lab.sampler.read(tick, &mut Reading::default()).unwrap_err();
    assert_eq!(fault.kind, crate::base::fault::FaultKind::Missing);
    let empty = lab.tick(case!("008-diskstats-empty-or-missing.input-newline"));
    assert!(empty.points.is_empty() && empty.rejected == 0);
}

#[test]
fn case_010_paths_of_native_nvme_multipath_have_series_of_their_own() {
    let mut lab = Lab::new();
    for place in ["virtual/nvme-subsystem/s0/nvme1n1", "pci0/nvme/nvme1/nvme1c1n1"] {
        lab.host.device(place, &[]);
    }
    let reading = lab.tick(case!("010-nvme-multipath-zero-majmin.input"));
    assert_eq!(devices(&reading), ["nvme0c0n1", "nvme0n1", "nvme1c1n1", "nvme1n1"]);
    assert_eq!(number(&reading, "_reads_completed_total", "nvme1c1n1"), Some(34_706_049.0));
    let leaf = reading.points.iter().find(|p| p.desc.name == "loadline_disk_leaf_info").unwrap();
    assert_eq!(leaf.labels.iter().map(|l| &**l).collect::<Vec<_>>(), ["nvme1c1n1", "nvme1n1"]);
}

#[test]
fn case_021_the_leaves_alone_make_the_total_of_the_host() {
    let mut lab = Lab::new();
    for part in ["nvme0n1p1", "nvme0n1p2", "nvme0n1p3"] {
        let place = format!("pci0/nvme/nvme0/nvme0n1/{part}");
        lab.host.device(&place, &[("partition", b"1")]);
    }
    let reading = lab.tick(case!("021-totals-count-disk-plus-partitions.input"));
    assert_eq!(devices(&reading), ["nvme0n1"]);
    assert_eq!(number(&reading, "_read_bytes_total", "nvme0n1"), Some(12_227_915_791_360.0));
}

/// `/sys/block/dm-0/slaves: sdb sdc ; dm/name=mpath0 ; dm/uuid=mpath-36`
fn build_san(lab: &Lab, slaves: &str) {
    for line in slaves.lines() {
        let mut parts = line.split(" ; ");
        let (map, under) = parts.next().unwrap().split_once(": ").unwrap();
        let map = map.split('/').nth(3).unwrap();
        let mut get = |key: &str| parts.next().unwrap().strip_prefix(key).unwrap().to_owned();
        let (name, uuid) = (get("dm/name="), get("dm/uuid="));
        let slaves: Vec<_> = under.split(' ').map(|device| format!("slaves/{device}/")).collect();
        let mut attributes: Vec<(&str, &[u8])> =
            vec![("dm/name", name.as_bytes()), ("dm/uuid", uuid.as_bytes())];
        attributes.extend(slaves.iter().map(|slave| (slave.as_str(), &b""[..])));
        lab.host.device(&format!("virtual/block/{map}"), &attributes);
        for path in under.split(' ').filter(|device| device.starts_with("sd")) {
            let holder = format!("holders/{map}/");
            lab.host.device(&format!("platform/host1/rport-1:0-1/{path}"), &[(&holder, b"")]);
        }
    }
}

#[test]
fn case_022_a_san_host_shows_each_lun_once() {
    let mut lab = Lab::new();
    build_san(&lab, case!("022-multipath-240-paths.input-slaves"));
    for part in ["sda1", "sda2", "sda3"] {
        lab.host.device(&format!("{ATA}/sda/{part}"), &[("partition", b"1")]);
    }
    let reading = lab.tick(case!("022-multipath-240-paths.input-diskstats"));
    let shown = devices(&reading);
    let maps = shown.iter().filter(|name| name.starts_with("dm-")).count();
    assert_eq!((shown.len(), maps, reading.dropped_devices), (65, 64, 0));
    let reads = |name: &&String| number(&reading, "_reads_completed_total", name).unwrap();
    let leaves: f64 = reading.conditions.disks.keys().map(|name| reads(&&name.to_string())).sum();
    assert_eq!(leaves, 411_160.0, "each operation once");
    assert_eq!(info(&reading, "dm-0")[1..3], ["network", ""]);
    assert_eq!(info(&reading, "dm-120")[6], "vgdata-lv0");
    let carried = |p: &&crate::model::metric::Point| {
        p.desc.name == "loadline_disk_leaf_info" && &*p.labels[1] == "dm-120"
    };
    assert_eq!(reading.points.iter().filter(carried).count(), 15);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_history_of_counters_panics_or_publishes_what_is_no_number(
        history in prop::collection::vec(prop::collection::vec(any::<u64>(), 11..18), 1..8),
        small in any::<bool>(),
    ) {
        let mut lab = Lab::new();
        for numbers in history {
            let numbers = numbers.iter().map(|n| if small { n % 5000 } else { *n }.to_string());
            let row = format!("8 0 sda {}\n", numbers.collect::<Vec<_>>().join(" "));
            for point in lab.tick(&row).points {
                match point.value {
                    Value::Number(n) => prop_assert!(n.is_finite() && n >= 0.0),
                    Value::Histogram(h) => prop_assert!(h.sum().is_finite()),
                }
            }
        }
    }

    /// Extended beyond the kernel's 32 bits, they go on; where they start again, it is from what the
    /// kernel says.
    #[test]
    fn published_times_step_back_only_to_what_the_kernel_says(
        history in prop::collection::vec((0..3_u64, any::<u32>(), 0..2000_u32), 2..12),
    ) {
        let mut lab = Lab::new();
        let (mut reads, mut ms, mut last) = (1000, 0_u32, 0.0);
        for (kind, jump, grown) in history {
            // A second of work, now and then another disk under the name, or a clock that dips.
            (reads, ms) = match kind {
                0 => (reads + 1, ms.wrapping_add(grown)),
                1 => (u64::from(jump), jump),
                _ => (reads + 1, ms.wrapping_sub(grown)),
            };
            let reading = lab.tick(&format!("8 0 sda {reads} 0 {reads} {ms} 0 0 0 0 0 {ms} {ms}\n"));
            let Some(now) = number(&reading, "_read_time_seconds_total", "sda") else { continue };
            prop_assert!(now >= last || now == f64::from(ms) / 1000.0, "{last} to {now}");
            last = now;
        }
    }
}
