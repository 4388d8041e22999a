//! A host of a few disks, driven through ticks: new diskstats between them, and a clock of our own.

mod cases;

use std::time::Duration;

use super::*;
use crate::base::clock::{Clock, ManualClock};
use crate::config::settings::{DiskSettings, Filter, Media};
use crate::host::fixture::Host;
use crate::model::metric::Value;
use crate::model::outcome::{OwnRun, OwnRuns};

const ATA: &str = "pci0/ata1/host0/target0:0:0/block";

struct Lab {
    host: Host,
    clock: ManualClock,
    own: OwnRuns,
    sampler: Box<dyn Sampler>,
}

impl Lab {
    /// sda is a spindle with a partition, vda a virtual disk, nvme0n1 flash.
    fn new() -> Self {
        Self::with(SampleSettings::default())
    }

    fn with(settings: SampleSettings) -> Self {
        let host = Host::new();
        host.device(&format!("{ATA}/sda"), &[("queue/rotational", b"1"), ("diskseq", b"1")])
            .device(&format!("{ATA}/sda/sda1"), &[("partition", b"1")])
            .device("pci0/virtio1/block/vda", &[("queue/rotational", b"1"), ("size", b"8")])
            .device("pci0/nvme/nvme0/nvme0n1", &[("queue/rotational", b"0")])
            .device("virtual/block/loop0", &[("size", b"0"), ("loop/backing_file", b"/img")])
            .device("virtual/block/zram0", &[("size", b"0"), ("queue/iostats", b"0")])
            .device(
                "virtual/block/dm-0",
                &[("dm/name", b"vg-lv\n"), ("dm/uuid", b"LVM-1"), ("slaves/sda/", b"")],
            );
        let sampler = (KIND.open)(&host.roots(), &settings);
        Self { host, clock: ManualClock::starting_at(1_000_000), own: OwnRuns::default(), sampler }
    }

    fn tick(&mut self, diskstats: &str) -> Reading {
        self.after(Duration::from_secs(1), diskstats)
    }

    fn after(&mut self, time: Duration, diskstats: &str) -> Reading {
        self.host.file("proc/diskstats", diskstats);
        self.clock.advance(time);
        let mut out = Reading::default();
        self.sampler.read(Tick { at: self.clock.now(), own: &self.own }, &mut out).unwrap();
        out
    }
}

/// A line of 14 tokens: reads of 4 KiB and 10 ms each.
fn line(name: &str, reads: u64, in_flight: u64, busy_ms: u64) -> String {
    let (sectors, ms) = (reads * 8, reads * 10);
    format!("8 0 {name} {reads} 0 {sectors} {ms} 0 0 0 0 {in_flight} {busy_ms} {ms}\n")
}

fn number(reading: &Reading, family: &str, device: &str) -> Option<f64> {
    let point =
        reading.points.iter().find(|p| p.desc.name.ends_with(family) && &*p.labels[0] == device)?;
    match &point.value {
        Value::Number(n) => Some(*n),
        Value::Histogram(h) => Some(h.count() as f64),
    }
}

fn reads_per_second(reading: &Reading, device: &str) -> Option<f64> {
    number(reading, "_read_operations_per_second", device)
}

fn devices(reading: &Reading) -> Vec<&str> {
    let mut names: Vec<_> = reading
        .points
        .iter()
        .filter(|p| p.desc.name.ends_with("_reads_completed_total"))
        .map(|p| &*p.labels[0])
        .collect();
    names.sort_unstable();
    names
}

fn info<'a>(reading: &'a Reading, device: &str) -> Vec<&'a str> {
    let point = reading
        .points
        .iter()
        .find(|p| p.desc.name == "loadline_disk_info" && &*p.labels[0] == device);
    point.unwrap().labels[1..].iter().map(|l| &**l).collect()
}

#[test]
fn a_first_sample_has_counters_and_no_rates() {
    let mut lab = Lab::new();
    let first = lab.tick(&line("sda", 1000, 0, 500));
    assert_eq!(number(&first, "_reads_completed_total", "sda"), Some(1000.0));
    assert_eq!(number(&first, "_read_bytes_total", "sda"), Some(4_096_000.0));
    assert_eq!(number(&first, "_discards_completed_total", "sda"), None);
    assert_eq!(reads_per_second(&first, "sda"), None);
    assert_eq!(number(&first, "_disk_busy_ratio", "sda"), None);
    let second = lab.tick(&line("sda", 1050, 2, 1000));
    assert_eq!(reads_per_second(&second, "sda"), Some(50.0));
    assert_eq!(number(&second, "_disk_busy_ratio", "sda"), Some(0.5));
    assert_eq!(number(&second, "_disk_queue_depth", "sda"), Some(0.5));
    assert_eq!(number(&second, "_read_latency_seconds", "sda"), Some(0.01));
    assert_eq!(number(&second, "_in_flight", "sda"), Some(2.0));
    assert_eq!(number(&second, "_window_busy_ratio", "sda"), Some(1.0));
}

#[test]
fn whole_disks_and_stacks_have_series_and_parts_and_empty_ones_have_not() {
    let mut lab = Lab::new();
    let names = ["sda", "sda1", "vda", "nvme0n1", "loop0", "zram0", "dm-0"];
    let all: String = names.iter().map(|name| line(name, 1, 0, 1)).collect();
    let reading = lab.tick(&all);
    assert_eq!(devices(&reading), ["dm-0", "nvme0n1", "sda", "vda"]);
    assert_eq!(
        reading.conditions.disks.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["nvme0n1", "sda", "vda"]
    );
    let leaf = reading.points.iter().find(|p| p.desc.name == "loadline_disk_leaf_info").unwrap();
    assert_eq!(leaf.labels.iter().map(|l| &**l).collect::<Vec<_>>(), ["sda", "dm-0"]);
    assert_eq!(info(&reading, "dm-0")[..3], ["hdd", "local", ""]);
    assert_eq!(info(&reading, "dm-0")[6], "vg-lv");
}

#[test]
fn a_loop_appears_with_the_tick_that_attaches_it_and_leaves_with_its_file() {
    let mut lab = Lab::new();
    lab.host.file("sys/devices/virtual/block/loop0/diskseq", "5");
    let row = line("loop0", 0, 0, 0);
    assert!(devices(&lab.tick(&row)).is_empty());
    lab.host.file("sys/devices/virtual/block/loop0/size", "2048");
    assert_eq!(devices(&lab.tick(&row)), ["loop0"]);
    lab.host.file("sys/devices/virtual/block/loop0/size", "0");
    lab.host.file("sys/devices/virtual/block/loop0/diskseq", "6");
    assert!(devices(&lab.tick(&row)).is_empty());
}

#[test]
fn another_disk_under_an_old_name_makes_no_spike() {
    let mut lab = Lab::new();
    lab.tick(&line("sda", 100, 0, 0));
    lab.host.file(&format!("sys/devices/{ATA}/sda/diskseq"), "2");
    let swapped = lab.tick(&line("sda", 900_000, 0, 0));
    assert_eq!(reads_per_second(&swapped, "sda"), None);
    assert_eq!(number(&swapped, "_reads_completed_total", "sda"), Some(900_000.0));
    assert_eq!(reads_per_second(&lab.tick(&line("sda", 900_007, 0, 0)), "sda"), Some(7.0));
}

#[test]
fn own_runs_are_left_out_of_gauges_and_windows_and_said_apart() {
    let mut lab = Lab::new();
    let both = |reads| line("sda", reads, 0, reads * 10) + &line("dm-0", reads, 0, reads * 10);
    lab.tick(&both(0));
    lab.tick(&both(5));
    let from = lab.clock.now();
    lab.own.0.push(OwnRun { devices: vec!["sda".into()], from, until: None });
    let busy = lab.tick(&both(105));
    for device in ["sda", "dm-0"] {
        assert_eq!(reads_per_second(&busy, device), Some(5.0), "{device}: others' last window");
        assert_eq!(number(&busy, "_window_busy_ratio", device), Some(1.0));
        assert_eq!(number(&busy, "_busy_above_seconds_total", device), Some(0.0));
        assert_eq!(number(&busy, "_probe_active_seconds_total", device), Some(1.0));
    }
    assert_eq!(number(&busy, "_reads_completed_total", "sda"), Some(105.0), "counters are whole");
    lab.tick(&both(205));
    let later = lab.tick(&both(305));
    assert_eq!(reads_per_second(&later, "sda"), None, "three windows on, it is gone, not frozen");
    assert_eq!(later.conditions.disks["sda"].busy, None);
    lab.own.0[0].until = Some(lab.clock.now());
    assert_eq!(reads_per_second(&lab.tick(&both(308)), "sda"), Some(3.0));
}

#[test]
fn a_tick_that_does_not_list_a_disk_is_a_gap_and_three_are_its_end() {
    let mut lab = Lab::new();
    lab.tick(&line("sda", 0, 0, 0));
    lab.tick(&line("sda", 10, 0, 0));
    assert_eq!(devices(&lab.tick("")), ["sda"]);
    let back = lab.tick(&line("sda", 30, 0, 0));
    assert_eq!(reads_per_second(&back, "sda"), Some(10.0), "20 reads in 2 s");
    lab.tick("");
    assert_eq!(devices(&lab.tick("")), ["sda"]);
    assert!(devices(&lab.tick("")).is_empty());
    assert_eq!(reads_per_second(&lab.tick(&line("sda", 90, 0, 0)), "sda"), None);
}

#[test]
fn late_ticks_suspend_and_glitches_make_no_window() {
    let mut lab = Lab::new();
    lab.tick(&line("sda", 0, 0, 0));
    lab.tick(&line("sda", 10, 0, 0));
    let late = lab.after(Duration::from_secs(9), &line("sda", 9010, 0, 0));
    assert_eq!(number(&late, "_window_busy_ratio", "sda"), Some(1.0));
    lab.clock.suspend(Duration::from_secs(3600));
    let woken = lab.tick(&line("sda", 9020, 0, 0));
    assert_eq!(number(&woken, "_window_busy_ratio", "sda"), Some(1.0));
    let glitch = lab.tick(&line("sda", 9_000_000_000_000, 0, 0));
    assert_eq!(number(&glitch, "_reads_completed_total", "sda"), Some(9020.0));
    assert_eq!(glitch.rejected, 1);
    assert_eq!(reads_per_second(&lab.tick(&line("sda", 9040, 0, 0)), "sda"), Some(10.0));
}

#[test]
fn what_the_cap_leaves_out_is_counted_and_the_first_ones_stay() {
    let settings = SampleSettings { devices_max: 2, ..SampleSettings::default() };
    let mut lab = Lab::with(settings);
    lab.tick(&(line("vda", 1, 0, 0) + &line("sda", 1, 0, 0)));
    let all = line("vda", 1, 0, 0) + &line("nvme0n1", 1, 0, 0) + &line("sda", 1, 0, 0);
    let full = lab.tick(&all);
    assert_eq!((devices(&full), full.dropped_devices), (vec!["sda", "vda"], 1));
    assert!(full.conditions.disks.contains_key("nvme0n1"), "the guard sees it nevertheless");
}

#[test]
fn filters_come_after_the_class_and_include_wins() {
    let filter = Filter { include: vec!["sda1".into()], exclude: vec!["sd*".into(), "dm".into()] };
    let mut lab = Lab::with(SampleSettings { disk_filter: filter, ..SampleSettings::default() });
    let all = ["sda", "sda1", "dm-0", "vda"].map(|name| line(name, 1, 0, 0)).concat();
    let reading = lab.tick(&all);
    assert_eq!(devices(&reading), ["dm-0", "sda1", "vda"]);
    assert!(reading.conditions.disks.contains_key("sda"), "the guard sees it nevertheless");
}

#[test]
fn a_declared_medium_beats_the_kernel_and_an_unknown_one_is_said() {
    let mut settings = SampleSettings::default();
    let all = ["sda", "vda", "nvme0n1"].map(|name| line(name, 1, 0, 0)).concat();
    let plain = Lab::with(settings.clone()).tick(&all);
    assert_eq!(["sda", "vda", "nvme0n1"].map(|d| info(&plain, d)[0]), ["hdd", "unknown", "nvme"]);
    let facts: Vec<_> = plain.resources.iter().map(|r| &*r.facts).collect();
    assert_eq!(facts, ["nvme", "hdd", "hdd? (virtio: medium unknown)"]);
    assert_eq!(plain.notes, ["vda: medium unknown (virtio): set disks.vda.media"]);
    settings.disks.insert("vda".into(), DiskSettings { media: Some(Media::Ssd), smr: false });
    let declared = Lab::with(settings).tick(&all);
    assert_eq!((info(&declared, "vda")[0], declared.notes.len()), ("ssd", 0));
    assert_eq!(declared.conditions.disks["vda"].rotational, Some(false));
}

#[test]
fn only_a_spindle_is_as_full_as_it_is_busy() {
    let mut lab = Lab::new();
    let both = |busy| line("sda", 1, 0, busy) + &line("nvme0n1", 1, 0, busy);
    lab.tick(&both(0));
    let reading = lab.tick(&both(400));
    let share =
        |device: &str| reading.resources.iter().find(|r| *r.device == *device).unwrap().share;
    assert_eq!(share("sda").map(|s| s.0), Some(0.4));
    assert_eq!(share("nvme0n1"), None);
}

#[test]
fn a_queue_that_counts_nothing_has_no_gauges_and_a_note() {
    let mut lab = Lab::new();
    lab.host.device("pci0/ata2/block/sdb", &[("queue/iostats", b"0")]);
    lab.tick(&line("sdb", 1, 0, 0));
    let reading = lab.tick(&line("sdb", 1, 0, 0));
    assert_eq!(number(&reading, "_disk_busy_ratio", "sdb"), None);
    assert!(reading.notes[0].contains("set /sys/block/sdb/queue/iostats to 1"));
}

#[test]
fn an_array_that_resyncs_is_seen() {
    let mut lab = Lab::new();
    lab.host.device("virtual/block/md0", &[("md/sync_action", b"idle\n"), ("slaves/sda/", b"")]);
    assert!(!lab.tick(&line("md0", 1, 0, 1)).conditions.resync);
    lab.host.file("sys/devices/virtual/block/md0/md/sync_action", "resync\n");
    assert!(lab.tick(&line("md0", 1, 0, 1)).conditions.resync);
}

#[test]
fn facts_are_read_again_within_some_minutes_and_never_all_at_once() {
    let mut lab = Lab::new();
    let all = line("sda", 1, 0, 0) + &line("vda", 1, 0, 0);
    lab.tick(&all);
    for (disk, place) in [("sda", ATA), ("vda", "pci0/virtio1/block")] {
        lab.host.file(&format!("sys/devices/{place}/{disk}/queue/scheduler"), "[none] bfq");
    }
    let scheduler = |reading: &Reading, disk: &str| info(reading, disk)[4].to_owned();
    let first = lab.after(Duration::from_secs(60), &all);
    assert_eq!([scheduler(&first, "sda"), scheduler(&first, "vda")], ["none", ""]);
    assert_eq!(scheduler(&lab.tick(&all), "vda"), "none");
}

#[test]
fn the_fixture_host_is_a_spindle_a_flash_disk_and_a_volume() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/host");
    let roots = Roots { procfs: root.join("proc"), sysfs: root.join("sys"), ..Roots::default() };
    let mut sampler = (KIND.open)(&roots, &SampleSettings::default());
    let (mut out, own) = (Reading::default(), OwnRuns::default());
    let tick = Tick { at: ManualClock::starting_at(1).now(), own: &own };
    sampler.read(tick, &mut out).unwrap();
    assert_eq!(devices(&out), ["dm-0", "nvme0n1", "sda"]);
    let model = "SAMSUNG MZVL21T0HCLR-00B00";
    let nvme = ["nvme", "local", "nvme", model, "none", "write through", "", ""];
    assert_eq!(info(&out, "nvme0n1"), nvme);
    assert_eq!(info(&out, "dm-0"), ["hdd", "local", "", "", "", "", "vg-root", "LVM-uGz3"]);
    let facts: Vec<_> = out.resources.iter().map(|r| &*r.facts).collect();
    assert_eq!((facts, out.rejected), (vec!["nvme", "hdd, 7200 rpm"], 0));
}
