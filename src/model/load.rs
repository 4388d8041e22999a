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
        let times = |c: &DiskCounters| {
            let (discard_ms, flush_ms) =
                (c.discards.map_or(0, |d| d.ms), c.flushes.map_or(0, |f| f.ms));
            [c.read_ms, c.write_ms, c.busy_ms, c.queue_ms, discard_ms, flush_ms]
        };
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

/// One direction of an interface's counters; `None` where the kernel printed nonsense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    pub bytes: Option<u64>,
    pub packets: Option<u64>,
    pub errors: Option<u64>,
    pub drops: Option<u64>,
}

/// One interface's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    pub receive: FlowCounters,
    pub transmit: FlowCounters,
    /// No buffer at the device. /proc/net/dev folds it into drops: absent unless read apart.
    pub receive_missed: Option<u64>,
}

/// A window on one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowLoad {
    pub bytes_per_second: f64,
    pub packets_per_second: f64,
}

/// A window on a link; a direction is absent where its counters are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkLoad {
    pub window: Seconds,
    pub receive: Option<FlowLoad>,
    pub transmit: Option<FlowLoad>,
}

/// What Ethernet adds to each packet and no byte counter sees: FCS 4, preamble 8, gap 12.
pub const WIRE_BYTES_PER_PACKET: f64 = 24.0;
/// More bytes a second than any link moves (800G, doubled).
const LINK_BYTES_PER_SECOND_MAX: f64 = 200e9;

impl FlowLoad {
    /// `None` where a counter is unknown at either end.
    fn between(
        before: &FlowCounters,
        after: &FlowCounters,
        window: Seconds,
    ) -> Result<Option<Self>, NoWindow> {
        let rate = |before: Option<u64>, after: Option<u64>| {
            let (Some(before), Some(after)) = (before, after) else { return Ok(None) };
            let by = step64(before, after).grown().ok_or(NoWindow::Reset)? as f64 / window.0;
            if by > LINK_BYTES_PER_SECOND_MAX { Err(NoWindow::Implausible) } else { Ok(Some(by)) }
        };
        let bytes = rate(before.bytes, after.bytes)?;
        let packets = rate(before.packets, after.packets)?;
        Ok(bytes.zip(packets).map(|(bytes_per_second, packets_per_second)| Self {
            bytes_per_second,
            packets_per_second,
        }))
    }

    /// Bytes a second on the wire, overhead included.
    pub fn wire_bytes_per_second(&self) -> f64 {
        self.bytes_per_second + WIRE_BYTES_PER_PACKET * self.packets_per_second
    }

    /// Share of a line of `capacity` bytes a second, wire overhead included.
    pub fn utilization(&self, capacity_bytes_per_second: f64) -> Option<Ratio> {
        Ratio::of(self.wire_bytes_per_second(), capacity_bytes_per_second)
    }
}

impl LinkLoad {
    pub fn between(
        before: &LinkCounters,
        after: &LinkCounters,
        window: Seconds,
    ) -> Result<Self, NoWindow> {
        if window.0 <= 0.0 {
            return Err(NoWindow::Empty);
        }
        Ok(Self {
            window,
            receive: FlowLoad::between(&before.receive, &after.receive, window)?,
            transmit: FlowLoad::between(&before.transmit, &after.transmit, window)?,
        })
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
        let flushes = |ms| Some(Flushes { completed: 7, ms });
        let before = DiskCounters { flushes: flushes(5000), ..DiskCounters::default() };
        let after = DiskCounters { flushes: flushes(4990), ..before };
        assert_eq!(DiskLoad::between(&before, &after, Seconds(1.0)), Err(NoWindow::Implausible));
    }

    #[test]
    fn a_gigabit_link_of_small_frames_is_full_only_with_its_overhead() {
        // 64-byte frames: 60 counted bytes, 84 on the wire, 1,488,095 a second.
        let zero = FlowCounters { bytes: Some(0), packets: Some(0), ..FlowCounters::default() };
        let full = FlowCounters { bytes: Some(89_285_700), packets: Some(1_488_095), ..zero };
        let of = |receive| LinkCounters { receive, transmit: zero, receive_missed: None };
        let load = LinkLoad::between(&of(zero), &of(full), Seconds(1.0)).unwrap();
        let receive = load.receive.unwrap().utilization(125e6).unwrap();
        assert!((receive.0 - 1.0).abs() < 1e-3, "{receive:?}");
        assert_eq!(load.transmit.unwrap().utilization(125e6), Some(Ratio(0.0)));
    }

    #[test]
    fn a_direction_that_is_unknown_leaves_the_other_alone() {
        let known = FlowCounters { bytes: Some(5), packets: Some(1), ..FlowCounters::default() };
        let broken = FlowCounters { bytes: None, ..known };
        let counters = LinkCounters { receive: broken, transmit: known, receive_missed: None };
        let load = LinkLoad::between(&counters, &counters, Seconds(1.0)).unwrap();
        assert_eq!((load.receive, load.transmit), (None, Some(FlowLoad::default())));
    }
}
