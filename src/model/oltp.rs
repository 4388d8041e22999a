//! The OLTP workload: what a profile sets of it, and what came of it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::outcome::Direction;
use crate::base::units::{Bytes, Seconds};

/// Operations a second of one business scaling unit (BSU).
pub const BSU_OPERATIONS: f64 = 50.0;
/// Everything is counted in blocks of this size.
pub const BLOCK_BYTES: u64 = 4096;
/// Mean bytes of an operation: 64 % are of one block, the rest of 1 to 16.
pub const MEAN_BYTES: f64 = 8206.7;

/// Whose shares of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// 75 % in ASU1 and 60 % in ASU2, as pblio has them: 55.2 % of all.
    #[default]
    Pblio,
    /// 50 % and 30 %, as the first published generator had them: 39.4 % of all.
    Classic,
}

/// How much is offered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// 50 operations a second for each BSU.
    Bsu(u32),
    /// Whatever is the most whose mean latency stays under the limit.
    Search { limit: Seconds },
}

/// In a profile: this workload in place of one access and one block size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Oltp {
    pub variant: Variant,
    pub load: Load,
    /// Generators with hot spots of their own; `None`: one for each 100 BSU begun.
    pub contexts: Option<u32>,
    /// Files of each application storage unit (ASU), which are written over; none at all: parts of
    /// the run's region.
    pub asus: [Vec<PathBuf>; 3],
    /// Files that hold data of somebody are written over too.
    pub overwrite: bool,
    /// Time between two [`Counts`] for whoever watches.
    pub counts_every: Option<Seconds>,
}

impl Oltp {
    /// On parts of a run's region.
    pub fn of_region(variant: Variant, load: Load) -> Self {
        let asus = [const { Vec::new() }; 3];
        Self { variant, load, contexts: None, asus, overwrite: false, counts_every: None }
    }

    /// Whether the ASUs are files that somebody named.
    pub fn has_files(&self) -> bool {
        self.asus.iter().any(|files| !files.is_empty())
    }

    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.asus.iter().flatten()
    }
}

/// Operations of one direction of one ASU since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub operations: u64,
    pub blocks: u64,
    /// Sum of their latencies.
    pub nanos: u64,
}

/// Of each ASU, reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts(pub [[Count; 2]; 3]);

/// What came of an OLTP run, beside its leg.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OltpDone {
    /// Of the leg.
    pub step: Step,
    /// Most blocks of 4 KiB that each ASU works on, with what was done there; of the leg.
    pub asus: Vec<AsuDone>,
    /// From the moment an operation went to the kernel: what closed loops call latency.
    pub service_mean: Option<Seconds>,
    pub search: Option<Search>,
}

/// One ASU in the leg.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AsuDone {
    pub size: Bytes,
    pub reads: Direction,
    pub writes: Direction,
}

/// One rate for a while. Latency is from the moment at which an operation was meant to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Operations a second: asked for, and completed.
    pub offered: f64,
    pub achieved: f64,
    pub latency_mean: Seconds,
    /// Absent where a thousand operations weren't completed.
    pub latency_p99: Option<Seconds>,
    /// Operations completed, and how many were meant to begin and never did.
    pub operations: u64,
    pub unserved: u64,
    /// Ended early, when far too much waited.
    pub overloaded: bool,
    /// For how long it was offered, the ramp not included.
    pub window: Seconds,
}

/// Share of what is offered that has to be completed.
pub const ACHIEVED_MIN: f64 = 0.95;

impl Step {
    /// Whether nearly all that was offered was done, at a mean latency under the limit.
    pub fn sustained(&self, limit: Seconds) -> bool {
        // Of what was meant to begin: arrivals are random, and few at a low rate.
        let meant = (self.operations + self.unserved) as f64 / self.window.0;
        let kept_up = self.achieved >= ACHIEVED_MIN * meant;
        self.operations > 0 && !self.overloaded && kept_up && self.latency_mean < limit
    }
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// The highest rate that holds is known to a few per cent.
    Found,
    /// Its time was used up before.
    Time,
    /// Its bytes were.
    Bytes,
    /// Not even the lowest rate holds.
    NoRate,
    /// More than can be offered holds.
    NoLimit,
    /// It was stopped, or failed.
    Stopped,
}

/// Course and result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Search {
    pub limit: Seconds,
    pub end: SearchEnd,
    /// The highest rate that held, in operations a second: the target does so much at least.
    pub best: Option<f64>,
    /// Everything that was tried, in this order.
    pub steps: Vec<Step>,
    /// The hockey stick, by share of the best rate, ascending; empty where none held.
    pub curve: Vec<(f64, Step)>,
}

impl Search {
    /// Operations a second that the target does under the limit; `None` where that isn't known.
    pub fn highest(&self) -> Option<f64> {
        self.best.filter(|_| self.end == SearchEnd::Found)
    }
}
