//! The families of the disk sampler, and how one disk fills them.

use std::sync::Arc;

use super::device::Disk;
use crate::model::load::DiskCounters;
use crate::model::metric::{Desc, Label, Point, push_some};

macro_rules! families {
    (
        $($name:ident = $kind:ident(
            $metric:literal, [$($label:literal),*], $help:literal, $source:literal
        );)*
    ) => {
        $(pub(super) static $name: Desc = Desc::$kind($metric, &[$($label),*], $help, $source);)*
        pub(super) static ALL: &[&Desc] = &[$(&$name),*];
    };
}

families! {
    READS = counter("loadline_disk_reads_completed_total", ["device"],
        "Reads completed.",
        "/proc/diskstats field 1");
    WRITES = counter("loadline_disk_writes_completed_total", ["device"],
        "Writes completed.",
        "/proc/diskstats field 5");
    DISCARDS = counter("loadline_disk_discards_completed_total", ["device"],
        "Discards completed.",
        "/proc/diskstats field 12");
    FLUSHES = counter("loadline_disk_flushes_completed_total", ["device"],
        "Flushes completed.",
        "/proc/diskstats field 16");
    READ_BYTES = counter("loadline_disk_read_bytes_total", ["device"],
        "Bytes read.",
        "/proc/diskstats field 3 x 512");
    WRITTEN_BYTES = counter("loadline_disk_written_bytes_total", ["device"],
        "Bytes written.",
        "/proc/diskstats field 7 x 512");
    READ_TIME = counter("loadline_disk_read_time_seconds_total", ["device"],
        "Time spent by all reads, from submission to completion.",
        "/proc/diskstats field 4, extended to 64 bit");
    WRITE_TIME = counter("loadline_disk_write_time_seconds_total", ["device"],
        "Time spent by all writes, from submission to completion.",
        "/proc/diskstats field 8, extended to 64 bit");
    BUSY_TIME = counter("loadline_disk_busy_seconds_total", ["device"],
        "Time in which at least one request was outstanding.",
        "/proc/diskstats field 10, extended to 64 bit");
    QUEUE_TIME = counter("loadline_disk_queue_time_seconds_total", ["device"],
        "Time spent by all requests; its rate is the mean queue.",
        "/proc/diskstats field 11, extended to 64 bit");
    READ_RATE = gauge("loadline_disk_read_operations_per_second", ["device"],
        "Reads a second in the last window, own probes left out.",
        "/proc/diskstats field 1");
    WRITE_RATE = gauge("loadline_disk_write_operations_per_second", ["device"],
        "Writes a second in the last window, own probes left out.",
        "/proc/diskstats field 5");
    READ_BYTE_RATE = gauge("loadline_disk_read_bytes_per_second", ["device"],
        "Bytes read a second in the last window, own probes left out.",
        "/proc/diskstats field 3");
    WRITE_BYTE_RATE = gauge("loadline_disk_write_bytes_per_second", ["device"],
        "Bytes written a second in the last window, own probes left out.",
        "/proc/diskstats field 7");
    BUSY = gauge("loadline_disk_busy_ratio", ["device"],
        "Share of the last window with a request outstanding; says how full only a single \
         spindle is, and is absent while busy_unreliable is 1.",
        "/proc/diskstats field 10");
    UNRELIABLE = gauge("loadline_disk_busy_unreliable", ["device"],
        "1 while the kernel's busy time can't be true: longer than the host is up, or growing faster \
         than time; absent where it counts none.",
        "/proc/diskstats field 10, /proc/uptime");
    QUEUE = gauge("loadline_disk_queue_depth", ["device"],
        "Mean number of requests outstanding in the last window.",
        "/proc/diskstats fields 4, 8, 15, 17");
    IN_FLIGHT = gauge("loadline_disk_in_flight", ["device"],
        "Requests outstanding at the end of the last window.",
        "/proc/diskstats field 9");
    READ_LATENCY = gauge("loadline_disk_read_latency_seconds", ["device"],
        "Mean time of a read in the last window; absent under 10 reads.",
        "/proc/diskstats fields 4 and 1");
    WRITE_LATENCY = gauge("loadline_disk_write_latency_seconds", ["device"],
        "Mean time of a write in the last window; absent under 10 writes.",
        "/proc/diskstats fields 8 and 5");
    WINDOW_BUSY = histogram("loadline_disk_window_busy_ratio", ["device"],
        "Busy share of each window, own probes left out.",
        "/proc/diskstats field 10");
    WINDOW_QUEUE = histogram("loadline_disk_window_queue_depth", ["device"],
        "Mean queue of each window, own probes left out.",
        "/proc/diskstats fields 4, 8, 15, 17");
    BUSY_ABOVE = counter("loadline_disk_busy_above_seconds_total", ["device", "threshold"],
        "Time in windows whose busy share was at or above the threshold.",
        "/proc/diskstats field 10");
    STALLED = gauge("loadline_disk_stalled", ["device"],
        "1 while requests are in flight and none completes (1 s NVMe, 5 s others, 10 s network).",
        "/proc/diskstats fields 1, 5, 9, 12, 16");
    INFO = gauge("loadline_disk_info",
        ["device", "media", "backing", "transport",
        "model", "scheduler", "write_cache", "dm_name", "wwid"],
        "Facts about the disk; empty where unknown. `wwid` (or a uuid or serial number) stays when \
         a reboot changes names.",
        "/sys/class/block");
    LEAF_INFO = gauge("loadline_disk_leaf_info", ["device", "stack"],
        "The device carries a part of the stack.",
        "/sys/class/block/X/slaves");
    PROBE_ACTIVE = counter("loadline_probe_active_seconds_total", ["device"],
        "Time in which an own probe was at work on the device.",
        "own runs");
}

/// The threshold of `loadline_disk_busy_above_seconds_total`.
pub(super) const BUSY_THRESHOLD: f64 = 0.98;
/// No bound is a whole number: `le="1"` and `le="1.0"` would be two series.
pub(super) const BUSY_BOUNDS: &[f64] = &[0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.995];
pub(super) const QUEUE_BOUNDS: &[f64] = &[0.5, 1.5, 2.5, 4.5, 8.5, 16.5, 32.5, 64.5];

/// All series of one disk.
pub(super) fn points(disk: &Disk, threshold: &Label, out: &mut Vec<Point>) {
    let device = &[disk.label()];
    counters(disk, device, out);
    gauges(disk, device, out);
    let track = &disk.track;
    if track.busy.count() > 0 {
        out.push(Point::histogram(&WINDOW_BUSY, device, Arc::clone(&track.busy)));
        let labels = &[disk.label(), threshold];
        out.push(Point::number(&BUSY_ABOVE, labels, track.busy_above.0));
    }
    if track.queue.count() > 0 {
        out.push(Point::histogram(&WINDOW_QUEUE, device, Arc::clone(&track.queue)));
    }
    let unreliable = track.times().map(|_| f64::from(u8::from(track.is_unreliable())));
    push_some(out, &UNRELIABLE, device, unreliable);
    out.push(Point::number(&PROBE_ACTIVE, device, track.own.0));
    out.push(Point::number(&STALLED, device, f64::from(u8::from(disk.is_stalled()))));
    let info: Vec<&Label> = disk.sheet.info.iter().collect();
    out.push(Point::number(&INFO, &info, 1.0));
    for leaf in &disk.sheet.leaves {
        out.push(Point::number(&LEAF_INFO, &[leaf, disk.label()], 1.0));
    }
}

fn counters(disk: &Disk, device: &[&Label], out: &mut Vec<Point>) {
    let DiskCounters { reads, writes, sectors_read, sectors_written, discards, flushes, .. } =
        disk.track.counters;
    for (desc, value) in [
        (&READS, Some(reads as f64)),
        (&WRITES, Some(writes as f64)),
        (&DISCARDS, discards.map(|d| d.completed as f64)),
        (&FLUSHES, flushes.map(|f| f.completed as f64)),
        (&READ_BYTES, Some(sectors_read as f64 * 512.0)),
        (&WRITTEN_BYTES, Some(sectors_written as f64 * 512.0)),
    ] {
        push_some(out, desc, device, value);
    }
    let Some(times) = disk.track.times() else { return };
    for (desc, seconds) in [&READ_TIME, &WRITE_TIME, &BUSY_TIME, &QUEUE_TIME].into_iter().zip(times)
    {
        out.push(Point::number(desc, device, seconds.0));
    }
}

fn gauges(disk: &Disk, device: &[&Label], out: &mut Vec<Point>) {
    let Some(window) = disk.window() else { return };
    let load = window.load;
    for (desc, value) in [
        (&READ_RATE, Some(load.reads_per_second)),
        (&WRITE_RATE, Some(load.writes_per_second)),
        (&READ_BYTE_RATE, Some(load.read_bytes_per_second)),
        (&WRITE_BYTE_RATE, Some(load.write_bytes_per_second)),
        (&IN_FLIGHT, Some(load.in_flight as f64)),
        (&BUSY, window.busy.map(|busy| busy.0)),
        (&QUEUE, window.queue()),
        (&READ_LATENCY, window.read_latency().map(|s| s.0)),
        (&WRITE_LATENCY, window.write_latency().map(|s| s.0)),
    ] {
        push_some(out, desc, device, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bound_is_a_whole_number_and_no_family_is_named_twice() {
        assert!(BUSY_BOUNDS.iter().chain(QUEUE_BOUNDS).all(|bound| bound.fract() != 0.0));
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|desc| desc.name).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn every_family_says_what_it_is_and_where_it_comes_from() {
        for desc in ALL {
            assert!(desc.help.ends_with('.') && !desc.source.is_empty(), "{}", desc.name);
            assert_eq!(desc.labels[0], "device", "{}", desc.name);
        }
    }
}
