//! From the counters of one device, tick by tick, to its windows and sums.

use std::sync::Arc;

use super::families::{BUSY_BOUNDS, BUSY_THRESHOLD, QUEUE_BOUNDS};
use crate::base::clock::Moment;
use crate::base::counter::{Extended, grown32};
use crate::base::stats::Histogram;
use crate::base::units::{Ratio, Seconds};
use crate::model::load::{DiskCounters, DiskLoad, NoWindow};

/// A window is told of until this many later ones have failed to come.
const WINDOW_AGE_MAX: u32 = 3;
/// A window this many times shorter or longer than wished is no window.
const WINDOW_SHARE: std::ops::RangeInclusive<f64> = 0.25..=4.0;

/// What a tick's counters came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Taken in; the number of fields that had to be bounded.
    Counted(u64),
    /// Beyond belief: left out as if never read.
    Rejected,
    /// Not the device that it was.
    Replaced,
}

/// The last window in which nobody but others was at work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) load: DiskLoad,
    /// Absent too while the kernel's busy time can't be true.
    pub(super) busy: Option<Ratio>,
    /// The driver counts time. Where it counts requests alone (md before Linux 5.10) there is no busy
    /// share, queue or latency: a zero would look healthy.
    pub(super) timed: bool,
}

impl Window {
    pub(super) fn queue(&self) -> Option<f64> {
        self.timed.then_some(self.load.queue)
    }

    pub(super) fn read_latency(&self) -> Option<Seconds> {
        self.load.read_latency.filter(|_| self.timed)
    }

    pub(super) fn write_latency(&self) -> Option<Seconds> {
        self.load.write_latency.filter(|_| self.timed)
    }
}

/// How a busy time shows that it can't be true (kernels whose `io_ticks` run away).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Runaway {
    beyond_uptime: bool,
    beyond_window: bool,
}

/// A jiffy a burst, and older kernels more, is added to what was (block/blk-core.c).
fn is_beyond(busy_ms: u64, time: Seconds) -> bool {
    busy_ms as f64 > time.0 * 1100.0 + 20.0
}

#[derive(Debug)]
pub(super) struct Track {
    at: Moment,
    /// Wished length of a window.
    nominal: Seconds,
    pub(super) counters: DiskCounters,
    read_time: Extended,
    write_time: Extended,
    busy_time: Extended,
    queue_time: Extended,
    /// In milliseconds, as extended: read, write, busy, queue.
    totals_ms: [u64; 4],
    window: Option<Window>,
    window_age: u32,
    /// The busy counter is beyond the host's time, or grew beyond the last window's.
    runaway: Runaway,
    pub(super) busy: Arc<Histogram>,
    pub(super) queue: Arc<Histogram>,
    pub(super) busy_above: Seconds,
    /// Time in which own runs were at work.
    pub(super) own: Seconds,
    /// When something last completed, or nothing was outstanding.
    progress_at: Moment,
    /// When others last completed something.
    used_at: Moment,
}

impl Track {
    pub(super) fn new(at: Moment, counters: DiskCounters, nominal: Seconds) -> Self {
        let mut track = Self {
            at,
            nominal,
            counters,
            read_time: Extended::default(),
            write_time: Extended::default(),
            busy_time: Extended::default(),
            queue_time: Extended::default(),
            totals_ms: [0; 4],
            window: None,
            window_age: 0,
            runaway: Runaway::default(),
            busy: Arc::new(Histogram::new(BUSY_BOUNDS)),
            queue: Arc::new(Histogram::new(QUEUE_BOUNDS)),
            busy_above: Seconds(0.0),
            own: Seconds(0.0),
            progress_at: at,
            used_at: at,
        };
        track.extend();
        track
    }

    /// Takes the counters of a tick; `own` says how long own runs were at work between two moments.
    pub(super) fn take(
        &mut self,
        at: Moment,
        now: DiskCounters,
        own: impl Fn(Moment, Moment) -> Seconds,
    ) -> Taken {
        let elapsed = at.since(self.at);
        if elapsed.0 < self.nominal.0 * WINDOW_SHARE.start() {
            self.skip();
            return Taken::Counted(0);
        }
        let in_time = elapsed.0 <= self.nominal.0 * WINDOW_SHARE.end();
        let load = match DiskLoad::between(&self.counters, &now, elapsed) {
            Ok(load) => load,
            Err(NoWindow::Implausible) if in_time => {
                self.skip();
                return Taken::Rejected;
            }
            // What stays beyond belief is another device under the old name.
            Err(_) => return Taken::Replaced,
        };
        let before = (self.at, self.counters);
        let active = own(before.0, at);
        (self.at, self.counters) = (at, now);
        self.own.0 += active.0;
        self.extend();
        if load.completed > 0 || now.in_flight == 0 {
            self.progress_at = at;
        }
        if active.0 > 0.0 || !in_time || at.slept_since(before.0) {
            self.skip();
            return Taken::Counted(0);
        }
        self.runaway.beyond_window = is_beyond(grown32(before.1.busy_ms, now.busy_ms), elapsed);
        self.observe(load);
        Taken::Counted(u64::from(self.runaway.beyond_window))
    }

    /// Holds the counter of busy time against the time for which the host is up.
    pub(super) fn compare_with(&mut self, uptime: Option<Seconds>) {
        self.runaway.beyond_uptime =
            uptime.is_some_and(|uptime| is_beyond(self.counters.busy_ms, uptime));
    }

    pub(super) fn is_unreliable(&self) -> bool {
        self.runaway.beyond_uptime || self.runaway.beyond_window
    }

    /// The busy time is wrong as a whole, and not in a window alone.
    pub(super) fn is_runaway(&self) -> bool {
        self.runaway.beyond_uptime
    }

    /// A tick went by without a window.
    pub(super) fn skip(&mut self) {
        self.window_age = self.window_age.saturating_add(1);
    }

    fn observe(&mut self, load: DiskLoad) {
        if load.completed > 0 {
            self.used_at = self.at;
        }
        let timed = self.times().is_some();
        let busy = (timed && !self.is_runaway()).then_some(load.busy);
        self.window = Some(Window { load, busy, timed });
        self.window_age = 0;
        if timed {
            Arc::make_mut(&mut self.queue).observe(load.queue, 1);
        }
        let Some(busy) = busy else { return };
        Arc::make_mut(&mut self.busy).observe(busy.0, 1);
        if busy.0 >= BUSY_THRESHOLD {
            self.busy_above.0 += load.window.0;
        }
    }

    fn extend(&mut self) {
        self.totals_ms = [
            self.read_time.take(self.counters.read_ms),
            self.write_time.take(self.counters.write_ms),
            self.busy_time.take(self.counters.busy_ms),
            self.queue_time.take(self.counters.queue_ms),
        ];
    }

    /// Time spent reading, writing, busy and queued; `None` where the driver counts no time.
    pub(super) fn times(&self) -> Option<[Seconds; 4]> {
        let used = self.counters.reads > 0 || self.counters.writes > 0;
        let timeless = used && self.totals_ms.iter().all(|ms| *ms == 0);
        (!timeless).then(|| self.totals_ms.map(|ms| Seconds(ms as f64 / 1000.0)))
    }

    /// The last window of others' work; it leaves after three ticks without a new one.
    pub(super) fn window(&self) -> Option<&Window> {
        self.window.as_ref().filter(|_| self.window_age < WINDOW_AGE_MAX)
    }

    /// The window is of this tick.
    pub(super) fn is_new(&self) -> bool {
        self.window_age == 0
    }

    /// True when requests are outstanding and none has completed for `limit`.
    pub(super) fn is_stalled(&self, limit: Seconds) -> bool {
        self.counters.in_flight > 0 && self.at.since(self.progress_at) >= limit
    }

    /// Since others last completed something, as far as it was seen.
    pub(super) fn idle_for(&self, now: Moment) -> Seconds {
        now.since(self.used_at)
    }
}
