//! From two samples of counters to what a resource carried between them.

use crate::base::counter::{grown32, step64};
use crate::base::units::{Ratio, Seconds};

/// One device's line of /proc/diskstats (Documentation/admin-guide/iostats.rst).
/// Sectors are of 512 bytes; time fields are 32-bit milliseconds; absent columns are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    pub reads: u64,
    pub reads_merged: u64,
    pub sectors_read: u64,
    pub read_ms: u64,
    pub writes: u64,
    pub writes_merged: u64,
    pub sectors_written: u64,
    pub write_ms: u64,
    /// A gauge, not a counter; kernel underflows are 0.
    pub in_flight: u64,
    pub busy_ms: u64,
    pub queue_ms: u64,
    /// Kernel 4.18 and later.
    pub discards: Option<Discards>,
    /// Kernel 5.5 and later.
    pub flushes: Option<Flushes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards {
    pub completed: u64,
    pub merged: u64,
    pub sectors: u64,
    pub ms: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushes {
    pub completed: u64,
    pub ms: u64,
}

/// A window on a disk. Formulas: mean queue is Little's law over completed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskLoad {
    pub window: Seconds,
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    pub read_bytes_per_second: f64,
    pub write_bytes_per_second: f64,
    /// Share of the window with at least one request outstanding.
    pub busy: Ratio,
    pub queue: f64,
    pub in_flight: u64,
    /// Mean of the window; absent under 10 operations.
    pub read_latency: Option<Seconds>,
    pub write_latency: Option<Seconds>,
    /// Completed requests of any kind.
    pub completed: u64,
}

/// Why two samples make no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoWindow {
    /// A counter went back: the device was replaced or its driver reloaded.
    Reset,
    /// More than any device can do: a glitch of the counters.
    Implausible,
    /// The two samples are the same instant.
    Empty,
}

/// More bytes a second than any disk moves.
const DISK_BYTES_PER_SECOND_MAX: f64 = 64e9;
/// More requests a second than any disk completes.
const DISK_OPERATIONS_PER_SECOND_MAX: f64 = 1e9;
/// A millisecond field that seems to grow by more went back a little: that is no wrap.
const GROWN_MS_MAX: u64 = u32::MAX as u64 / 2;
/// Latency of fewer operations is noise: the kernel rounds each sum to a millisecond.
const LATENCY_OPERATIONS_MIN: u64 = 10;

impl DiskLoad {
    /// Load between two samples `window` apart.
    pub fn between(
        before: &DiskCounters,
        after: &DiskCounters,
        window: Seconds,
    ) -> Result<Self, NoWindow> {
        if window.0 <= 0.0 {
            return Err(NoWindow::Empty);
        }
        let step = |b, a| step64(b, a).grown().ok_or(NoWindow::Reset);
        let reads = step(before.reads, after.reads)?;
        let writes = step(before.writes, after.writes)?;
        let read_bytes = step(before.sectors_read, after.sectors_read)? as f64 * 512.0;
        let written_bytes = step(before.sectors_written, after.sectors_written)? as f64 * 512.0;
        let times = |c: &DiskCounters| [c.read_ms, c.write_ms, c.busy_ms, c.queue_ms];
        let dipped =
            times(before).into_iter().zip(times(after)).any(|(b, a)| grown32(b, a) > GROWN_MS_MAX);
        if read_bytes + written_bytes > DISK_BYTES_PER_SECOND_MAX * window.0
            || reads.max(writes) as f64 > DISK_OPERATIONS_PER_SECOND_MAX * window.0
            || dipped
        {
            return Err(NoWindow::Implausible);
        }
        let seconds = |b, a| grown32(b, a) as f64 / 1000.0;
        let read_time = seconds(before.read_ms, after.read_ms);
        let write_time = seconds(before.write_ms, after.write_ms);
        let (discards, discard_time) = grown_pair(
            before.discards.map(|d| (d.completed, d.ms)),
            after.discards.map(|d| (d.completed, d.ms)),
        );
        let (flushes, flush_time) = grown_pair(
            before.flushes.map(|f| (f.completed, f.ms)),
            after.flushes.map(|f| (f.completed, f.ms)),
        );
        let latency =
            |time: f64, n: u64| (n >= LATENCY_OPERATIONS_MIN).then(|| Seconds(time / n as f64));
        Ok(Self {
            window,
            reads_per_second: reads as f64 / window.0,
            writes_per_second: writes as f64 / window.0,
            read_bytes_per_second: read_bytes / window.0,
            write_bytes_per_second: written_bytes / window.0,
            busy: Ratio((seconds(before.busy_ms, after.busy_ms) / window.0).clamp(0.0, 1.0)),
            queue: (read_time + write_time + discard_time + flush_time) / window.0,
            in_flight: after.in_flight,
            read_latency: latency(read_time, reads),
            write_latency: latency(write_time, writes),
            completed: reads
                .saturating_add(writes)
                .saturating_add(discards)
                .saturating_add(flushes),
        })
    }
}

/// Growth of an optional `(count, milliseconds)` pair; nothing where the kernel has no such column.
fn grown_pair(before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> (u64, f64) {
    match (before, after) {
        (Some((b, b_ms)), Some((a, a_ms))) => {
            (a.saturating_sub(b), grown32(b_ms, a_ms) as f64 / 1000.0)
        }
        _ => (0, 0.0),
    }
}

/// One interface's counters. Absent where the source can't tell (missed is folded into drops in /proc/net/dev).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    pub receive_bytes: u64,
    pub receive_packets: u64,
    pub receive_errors: u64,
    pub receive_drops: u64,
    pub receive_missed: Option<u64>,
    pub transmit_bytes: u64,
    pub transmit_packets: u64,
    pub transmit_errors: u64,
    pub transmit_drops: u64,
}

/// A window on a link; per direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkLoad {
    pub window: Seconds,
    pub receive_bytes_per_second: f64,
    pub receive_packets_per_second: f64,
    pub transmit_bytes_per_second: f64,
    pub transmit_packets_per_second: f64,
}

/// What Ethernet adds to each packet and no byte counter sees: FCS 4, preamble 8, gap 12.
pub const WIRE_BYTES_PER_PACKET: f64 = 24.0;
/// More bytes a second than any link moves (800G, doubled).
const LINK_BYTES_PER_SECOND_MAX: f64 = 200e9;

impl LinkLoad {
    pub fn between(
        before: &LinkCounters,
        after: &LinkCounters,
        window: Seconds,
    ) -> Result<Self, NoWindow> {
        if window.0 <= 0.0 {
            return Err(NoWindow::Empty);
        }
        let rate = |b, a| {
            let by = step64(b, a).grown().ok_or(NoWindow::Reset)? as f64 / window.0;
            if by > LINK_BYTES_PER_SECOND_MAX { Err(NoWindow::Implausible) } else { Ok(by) }
        };
        Ok(Self {
            window,
            receive_bytes_per_second: rate(before.receive_bytes, after.receive_bytes)?,
            receive_packets_per_second: rate(before.receive_packets, after.receive_packets)?,
            transmit_bytes_per_second: rate(before.transmit_bytes, after.transmit_bytes)?,
            transmit_packets_per_second: rate(before.transmit_packets, after.transmit_packets)?,
        })
    }

    /// `(receive, transmit)` share of a line of `capacity` bytes a second, wire overhead included.
    pub fn utilization(&self, capacity_bytes_per_second: f64) -> (Option<Ratio>, Option<Ratio>) {
        let share = |bytes: f64, packets: f64| {
            Ratio::of(bytes + WIRE_BYTES_PER_PACKET * packets, capacity_bytes_per_second)
        };
        (
            share(self.receive_bytes_per_second, self.receive_packets_per_second),
            share(self.transmit_bytes_per_second, self.transmit_packets_per_second),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_device_has_no_latency_and_is_not_busy() {
        let c = DiskCounters { reads: 7, ..DiskCounters::default() };
        let load = DiskLoad::between(&c, &c, Seconds(1.0)).unwrap();
        assert_eq!((load.read_latency, load.busy.0, load.queue), (None, 0.0, 0.0));
    }

    #[test]
    fn a_wrapped_millisecond_field_gives_the_true_window() {
        let before = DiskCounters { busy_ms: 4_294_967_000, ..DiskCounters::default() };
        let after = DiskCounters { busy_ms: 204, ..before };
        let load = DiskLoad::between(&before, &after, Seconds(1.0)).unwrap();
        assert!((load.busy.0 - 0.5).abs() < 1e-9, "{load:?}");
    }

    #[test]
    fn a_counter_that_fell_makes_no_window() {
        let before = DiskCounters { reads: 10, ..DiskCounters::default() };
        let after = DiskCounters { reads: 3, ..before };
        assert_eq!(DiskLoad::between(&before, &after, Seconds(1.0)), Err(NoWindow::Reset));
    }

    #[test]
    fn a_jump_of_terabytes_is_a_glitch() {
        let before = DiskCounters::default();
        let after = DiskCounters { sectors_read: 4_000_000_000, ..before };
        assert_eq!(DiskLoad::between(&before, &after, Seconds(1.0)), Err(NoWindow::Implausible));
    }

    #[test]
    fn a_time_that_went_back_a_little_is_a_glitch_and_no_wrap() {
        let before = DiskCounters { read_ms: 5000, ..DiskCounters::default() };
        let after = DiskCounters { read_ms: 4990, ..before };
        assert_eq!(DiskLoad::between(&before, &after, Seconds(1.0)), Err(NoWindow::Implausible));
    }

    #[test]
    fn a_gigabit_link_of_small_frames_is_full_only_with_its_overhead() {
        // 64-byte frames: 60 counted bytes, 84 on the wire, 1,488,095 a second.
        let after = LinkCounters {
            receive_bytes: 89_285_700,
            receive_packets: 1_488_095,
            ..LinkCounters::default()
        };
        let load = LinkLoad::between(&LinkCounters::default(), &after, Seconds(1.0)).unwrap();
        let (receive, transmit) = load.utilization(125e6);
        assert!((receive.unwrap().0 - 1.0).abs() < 1e-3, "{receive:?}");
        assert_eq!(transmit, Some(Ratio(0.0)));
    }
}
