//! What became of the requests of a stint, whole and by storage unit.

use std::time::Duration;

use super::space::Sizes;
use crate::base::units::Seconds;
use crate::model::oltp::{AsuDone, BLOCK_BYTES, Counts, Step};
use crate::workload::engine::Completion;
use crate::workload::tally::{Sent, Side, Tally};

/// A request that came to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landed {
    pub(super) asu: usize,
    pub(super) sent: Sent,
    /// When its first part went to the kernel.
    pub(super) issued: Duration,
    pub(super) end: Completion,
}

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) all: Tally,
    asus: [[Side; 2]; 3],
    counts: Counts,
    /// Sum of the times from when they were issued.
    service: Duration,
    /// Meant to begin after the ramp, and given up.
    pub(super) unserved: u64,
    from: Duration,
}

impl Ledger {
    pub(super) fn new(from: Duration) -> Self {
        Self {
            all: Tally::new(from),
            asus: [(); 3].map(|()| [Side::new(), Side::new()]),
            counts: Counts::default(),
            service: Duration::ZERO,
            unserved: 0,
            from,
        }
    }

    pub(super) fn take(&mut self, landed: &Landed) {
        let Landed { asu, sent, issued, end } = landed;
        if !self.all.take(end, sent) {
            return;
        }
        let latency = end.at.saturating_sub(sent.at);
        self.service += end.at.saturating_sub(*issued);
        let direction = usize::from(sent.write);
        if let Some(side) = self.asus.get_mut(*asu).and_then(|sides| sides.get_mut(direction)) {
            side.record(sent.bytes, latency, end.at.saturating_sub(self.from));
        }
        if let Some(count) = self.counts.0.get_mut(*asu).and_then(|c| c.get_mut(direction)) {
            count.operations += 1;
            count.blocks += sent.bytes / BLOCK_BYTES;
            count.nanos += u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        }
    }

    /// A request that never began, meant for this moment.
    pub(super) fn give_up(&mut self, meant: Duration) {
        self.unserved += u64::from(meant >= self.from);
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn asus(&self, sizes: &Sizes) -> Vec<AsuDone> {
        let elapsed = self.all.elapsed();
        let asu = |(index, [reads, writes]): (usize, &[Side; 2])| AsuDone {
            size: sizes.bytes(index),
            reads: reads.direction(elapsed),
            writes: writes.direction(elapsed),
        };
        self.asus.iter().enumerate().map(asu).collect()
    }

    pub(super) fn service_mean(&self) -> Option<Seconds> {
        let operations = self.all.operations();
        (operations > 0).then(|| Seconds(self.service.as_secs_f64() / operations as f64))
    }

    /// The stint as one step, which offered `rate` until `end`.
    pub(super) fn step(&self, rate: f64, end: Duration, overloaded: bool) -> Step {
        let window = Seconds::from(end.saturating_sub(self.from));
        // What was begun late ends late: the time until it was done counts. Nothing ends sooner than
        // it was meant to begin, so the last completion before the end says nothing.
        let seconds = Seconds(self.all.elapsed().as_secs_f64().max(window.0));
        let operations = self.all.operations();
        Step {
            offered: rate,
            achieved: if seconds.0 > 0.0 { operations as f64 / seconds.0 } else { 0.0 },
            latency_mean: self.all.mean().unwrap_or_default(),
            latency_p99: self.all.quantile(0.99),
            operations,
            unserved: self.unserved,
            overloaded,
            window,
        }
    }
}
