//! What came of a run, what it cost, and what else was true while it ran.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ceph::{OsdResult, Setting, Survey};
pub use super::evidence::{DeviceUse, Evidence, IoLimit, Knee, Limited, SecondLeg, ThreadUse};
use super::job::{Backing, Device, EngineKind, Profile};
use super::metric::Label;
use super::oltp::OltpDone;
use super::peer::LinkEnd;
pub use super::skip::Skip;
use super::spread::{ProcessUse, Spread};
use crate::base::clock::Moment;
use crate::base::fault::{Fault, FaultKind};
use crate::base::stats::Histogram;
use crate::base::units::{Bytes, Rate, Ratio, Seconds};

/// Upper bounds of `loadline_probe_*_duration_seconds`: 20 us to 60 s by factors of 1.5 or less.
pub const DURATION_BOUNDS: &[f64] = &[
    0.00002, 0.00003, 0.000045, 0.000067, 0.0001, 0.00015, 0.00022, 0.00033, 0.00049, 0.00073,
    0.00109, 0.0016, 0.0024, 0.0036, 0.0054, 0.0081, 0.012, 0.018, 0.027, 0.04, 0.06, 0.09, 0.13,
    0.19, 0.28, 0.42, 0.63, 0.94, 1.4, 2.1, 3.1, 4.6, 6.9, 10.3, 15.4, 23.1, 34.6, 45.5, 60.5,
];

/// Of the rates of a leg.
pub const RATE_INTERVAL: Seconds = Seconds(0.1);

/// One execution's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done(Box<Done>),
    /// `partial` holds what was measured before the fault, for a person; it is never exported.
    Failed {
        fault: Fault,
        partial: Option<Box<Done>>,
    },
    Skipped {
        skip: Skip,
        text: String,
        partial: Option<Box<Done>>,
    },
    /// The worker does not answer and can't be killed.
    Hung {
        text: String,
    },
}

impl Outcome {
    pub fn failed(kind: FaultKind, text: impl Into<String>) -> Self {
        Outcome::Failed { fault: Fault::new(kind, text), partial: None }
    }

    pub fn skipped(skip: Skip, text: impl Into<String>) -> Self {
        Outcome::Skipped { skip, text: text.into(), partial: None }
    }
}

/// The worker's last word, by task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Inspected(Box<Inspection>),
    /// Bytes written now; 0 when the file was already whole.
    LaidOut {
        written: Bytes,
    },
    Ran(Outcome),
    Linked(Box<LinkEnd>),
    GivenBack {
        freed: Bytes,
    },
    Surveyed {
        survey: Box<Survey>,
        settings: Vec<Setting>,
    },
    Saved,
    /// `None` where there is no such file yet.
    Loaded {
        content: Option<String>,
    },
    Failed(Fault),
    Skipped {
        skip: Skip,
        text: String,
    },
}

/// What a look at a target found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// Mount point the target lies on, as the host sees it.
    pub mount_point: String,
    pub filesystem: String,
    /// Mount source: `/dev/sda1`, `server:/export`.
    pub source: String,
    pub backing: Backing,
    /// Every overwrite there is kept by somebody: btrfs, ZFS, bcachefs, visibly thin volumes.
    pub copy_on_write: bool,
    /// A disk under it is written in zones (SMR): overwriting costs it far more than it says.
    #[serde(default)]
    pub zoned: bool,
    pub read_only: bool,
    pub size: Bytes,
    pub available: Bytes,
    /// Free share of inodes; `None` where the file system has none to count.
    pub inodes_free: Option<Ratio>,
    /// Leaf disks under the target; empty where they can't be seen.
    pub devices: Vec<Device>,
    /// The topmost block device, or devices, under the target.
    #[serde(default)]
    pub top: Vec<Device>,
    /// Size of a whole ballast file there now.
    pub ballast: Option<Bytes>,
}

/// Everything a run measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The profiles as named: what is published.
    pub legs: Vec<Measured>,
    /// Of these legs.
    pub evidence: Evidence,
    pub flags: Flags,
    /// Of everything that the run did.
    pub cost: Cost,
    /// Shows whether the one profile is saturated; of runs that may teach a ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_leg: Option<Box<SecondLeg>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<Box<Knee>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oltp: Option<Box<OltpDone>>,
    /// OSDs of a cluster, with the benches of those that had one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub osds: Vec<OsdResult>,
}

/// Results of one leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub profile: Profile,
    pub engine: EngineKind,
    /// Why this engine, where it wasn't the first choice.
    pub engine_reason: String,
    pub direct: bool,
    /// To the last completion, the final flush included; the ramp is not.
    pub elapsed: Seconds,
    pub reads: Direction,
    pub writes: Direction,
    pub flush: Option<Seconds>,
    pub seed: u64,
    /// Operations a second in equal intervals: 100 ms, or that doubled until 700 hold the leg.
    pub rates: Vec<f32>,
    /// fio's slope rule over `rates`: |least-squares slope| under 10 % of the mean per leg.
    pub steady: Option<bool>,
    pub errors: u64,
    pub short_operations: u64,
}

/// One direction of one leg.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    pub operations: u64,
    pub bytes: Bytes,
    /// Mean of total latency, submission to completion.
    pub latency_mean: Option<Seconds>,
    /// `(q, seconds)`, only those with at least 10 / (1 - q) operations behind them.
    pub latency: Vec<(f64, Seconds)>,
    pub durations: Histogram,
    /// Absent where nothing was measured.
    #[serde(default)]
    pub spread: Option<Spread>,
}

impl Measured {
    pub fn operations(&self) -> u64 {
        self.reads.operations + self.writes.operations
    }

    /// Operations a second, reads and writes together.
    pub fn operations_per_second(&self) -> f64 {
        per_second(self.operations() as f64, self.elapsed)
    }

    /// Mean of reads and writes together; by Little's law where none was timed.
    pub fn latency_mean(&self) -> Seconds {
        let sides = [&self.reads, &self.writes].into_iter();
        let total = sides.filter_map(|d| Some(d.latency_mean?.0 * d.operations as f64)).sum();
        match per_second(total, Seconds(self.operations() as f64)) {
            mean if mean > 0.0 => Seconds(mean),
            _ => Seconds(f64::from(self.profile.in_flight_max()) / self.operations_per_second()),
        }
    }
}

/// `amount` over `time`; 0 where no time passed.
pub fn per_second(amount: f64, time: Seconds) -> f64 {
    if time.0 > 0.0 { amount / time.0 } else { 0.0 }
}

/// Validity of a run; each is a series of `loadline_probe_flag`. `None` = can't be known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flags {
    /// The page cache was not in the path.
    pub direct: Option<bool>,
    /// Every block read had been written with unique data before.
    pub prefilled: Option<bool>,
    pub steady: Option<bool>,
    /// Something above the device answered: less than half of the bytes reached the leaves.
    pub cached: Option<bool>,
    /// Others used the device meanwhile.
    pub contended: Option<bool>,
    pub cpu_limited: Option<bool>,
    pub throttled: Option<bool>,
    /// Under a second: teaches no ceiling.
    pub short: Option<bool>,
}

impl Flags {
    pub fn each(&self) -> [(&'static str, Option<bool>); 8] {
        [
            ("direct", self.direct),
            ("prefilled", self.prefilled),
            ("steady", self.steady),
            ("cached", self.cached),
            ("contended", self.contended),
            ("cpu_limited", self.cpu_limited),
            ("throttled", self.throttled),
            ("short", self.short),
        ]
    }

    /// Names of those that speak against the run.
    pub fn against(&self) -> impl Iterator<Item = &'static str> {
        let wanted = |name| matches!(name, "direct" | "prefilled" | "steady");
        let against = move |(name, value)| value == Some(!wanted(name));
        self.each().into_iter().filter(move |flag| against(*flag)).map(|(name, _)| name)
    }
}

/// What a run cost its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub read_bytes: Bytes,
    /// The larger of what the probe wrote and what its leaf devices did (journals, copies).
    pub written_bytes: Bytes,
    pub cpu: Seconds,
    /// Of the legs alone, as the kernel accounts a process.
    #[serde(default)]
    pub process: ProcessUse,
}

/// The host as the last windows saw it, own runs left out: what the guard decides on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    pub at: Moment,
    /// By kernel name, leaf disks only.
    pub disks: BTreeMap<Label, DiskCondition>,
    /// Physical interfaces, by kernel name.
    pub lines: BTreeMap<Label, LineUse>,
    /// Share of time some task waited for I/O.
    pub io_pressure: Option<Ratio>,
    pub cpu_idle: Option<Ratio>,
    /// An md array is resyncing.
    pub resync: bool,
    pub on_battery: bool,
}

/// What a line carries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LineUse {
    /// Of its rate, the larger of both directions; `None` where the rate isn't known.
    pub share: Option<Ratio>,
    pub receive: Option<Rate>,
    pub transmit: Option<Rate>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskCondition {
    pub busy: Option<Ratio>,
    pub queue: Option<f64>,
    pub in_flight: u64,
    pub rotational: Option<bool>,
    /// Since the last foreign operation.
    pub idle_for: Seconds,
}

/// Own activity on devices, so that gauges can leave it out. Open-ended while a run is on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnRuns(pub Vec<OwnRun>);

#[derive(Clone, Debug, PartialEq)]
pub struct OwnRun {
    pub devices: Vec<String>,
    pub from: Moment,
    /// `None` while the run is on.
    pub until: Option<Moment>,
}

impl OwnRuns {
    /// Seconds of `[from, to]` in which an own run was active on `device`.
    pub fn overlap(&self, device: &str, from: Moment, to: Moment) -> Seconds {
        let mut spans: Vec<_> = self
            .0
            .iter()
            .filter(|run| run.devices.iter().any(|d| d == device))
            .map(|run| {
                (run.from.mono.max(from.mono), run.until.map_or(to.mono, |u| u.mono.min(to.mono)))
            })
            .filter(|(start, end)| start < end)
            .collect();
        spans.sort();
        let mut covered = from.mono;
        let mut total = 0.0;
        for (start, end) in spans {
            let start = start.max(covered);
            total += end.saturating_sub(start).as_secs_f64();
            covered = covered.max(end);
        }
        Seconds(total)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment { mono: Duration::from_secs(seconds), ..Moment::default() }
    }

    #[test]
    fn overlapping_own_runs_count_once() {
        let run = |from, until: Option<u64>| OwnRun {
            devices: vec!["sda".into()],
            from: at(from),
            until: until.map(at),
        };
        let own = OwnRuns(vec![run(2, Some(5)), run(4, None)]);
        assert_eq!(own.overlap("sda", at(0), at(10)), Seconds(8.0));
        assert_eq!(own.overlap("sda", at(0), at(2)), Seconds(0.0));
        assert_eq!(own.overlap("sdb", at(0), at(10)), Seconds(0.0));
    }

    #[test]
    fn duration_buckets_are_fine_and_reach_from_20_us_to_a_minute() {
        assert!(DURATION_BOUNDS.windows(2).all(|w| w[1] / w[0] <= 1.501 && w[1] > w[0]));
        assert!(DURATION_BOUNDS[0] <= 20e-6 && DURATION_BOUNDS[DURATION_BOUNDS.len() - 1] >= 60.0);
        assert!(DURATION_BOUNDS.iter().all(|b| b.fract() != 0.0), "no bound is an integer `le`");
    }
}
