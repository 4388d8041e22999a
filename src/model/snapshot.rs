//! One immutable value that holds all that is published. Web and page see nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::metric::{Label, Point};
use super::outcome::{Done, Skip};
use super::peer::{LinkView, MeshView};
use super::verdict::Verdict;
use crate::base::clock::Moment;
use crate::base::fault::FaultKind;
use crate::base::stats::Histogram;
use crate::base::units::{Bytes, Rate, Ratio, Seconds};

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub at: Moment,
    /// What the samplers say; withheld, like all that probes say, when the snapshot is stale.
    pub points: Vec<Point>,
    /// Ceilings: points that change seldom, and are shared until they do.
    pub ceilings: Vec<Arc<Vec<Point>>>,
    /// What loadline says of itself; always served.
    pub itself: Vec<Point>,
    pub host: Arc<HostFacts>,
    pub resources: Vec<Resource>,
    pub probes: Vec<Arc<ProbeView>>,
    pub targets: Vec<TargetView>,
    pub links: Vec<Arc<LinkView>>,
    pub mesh: MeshView,
    /// What can't be known or done, and how to change that; shown on the page.
    pub notes: Vec<String>,
}

/// Facts about the host, read once at start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    pub name: String,
    pub system: String,
    pub kernel: String,
    pub cpus: usize,
    pub boot_id: String,
    /// Of the installation (machine-id(5)); empty where there is none.
    pub machine_id: String,
}

/// A disk or a link, as the page shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    pub device: Label,
    pub class: ResourceClass,
    /// `hdd (virtio: medium unknown)`, `1 Gbit/s`, `speed unknown`.
    pub facts: Label,
    /// The live load per direction; empty before the first window.
    pub load: Vec<(&'static str, Flow)>,
    /// `None` where it can't be known.
    pub share: Option<Ratio>,
    pub of: Of,
}

/// What goes one way through a disk or a link. It becomes words when somebody looks: the page is asked
/// for less often than it is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Of disks.
    pub operations_per_second: Option<f64>,
    pub bytes_per_second: f64,
    pub latency: Option<Seconds>,
}

impl Flow {
    /// Of a link.
    pub fn of_bytes(bytes_per_second: f64) -> Self {
        Self { operations_per_second: None, bytes_per_second, latency: None }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operations) = self.operations_per_second {
            write!(f, "{operations:.0}/s, ")?;
        }
        write!(f, "{}", Rate(self.bytes_per_second))?;
        self.latency.map_or(Ok(()), |latency| write!(f, ", {latency}"))
    }
}

/// What a resource's share is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Of {
    /// Time in which one spindle had something to do.
    #[default]
    Time,
    LineRate,
    /// What the disk was measured to give.
    Ceiling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceClass {
    Disk,
    Link,
}

/// Where a probe stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ProbeState {
    #[default]
    Waiting,
    Running {
        since: Moment,
    },
    Hung {
        since: Moment,
    },
}

/// All that is known of one configured probe.
#[derive(Clone, Debug, Default)]
pub struct ProbeView {
    pub name: Arc<str>,
    pub kind: &'static str,
    pub target: Arc<str>,
    /// In words: `rand_read 4 KiB, 2 jobs x depth 4`.
    pub summary: String,
    pub profile: Arc<str>,
    pub every: Seconds,
    pub next_due: Option<Moment>,
    pub state: ProbeState,
    pub runs: u64,
    pub failures: BTreeMap<FaultKind, u64>,
    pub skips: BTreeMap<Skip, u64>,
    pub last_run: Option<Moment>,
    pub last_run_seconds: Option<Seconds>,
    pub last_success: Option<Moment>,
    pub last: Option<Arc<Done>>,
    /// Of `last`; `None` where it measured nothing to judge.
    pub verdict: Option<Arc<Verdict>>,
    /// Of each OSD that `last` benched, by its id.
    pub osd_verdicts: Arc<BTreeMap<u32, Verdict>>,
    /// Result of `last` / the ceiling that bound it.
    pub ceiling_ratio: Option<f64>,
    /// Durations of all runs since start.
    pub reads: Arc<Histogram>,
    pub writes: Arc<Histogram>,
    /// Newest first; failures are kept when successes would push them out.
    pub history: Vec<HistoryEntry>,
}

impl ProbeView {
    /// A result is published for three intervals; after that it is absent, never frozen.
    pub fn fresh(&self, now: Moment) -> Option<&Arc<Done>> {
        let at = self.last_success?;
        let last = self.last.as_ref()?;
        (now.since(at).0 <= 3.0 * self.every.0).then_some(last)
    }

    /// The verdict on a result that is still published.
    pub fn fresh_verdict(&self, now: Moment) -> Option<&Verdict> {
        self.fresh(now).and(self.verdict.as_deref())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    pub at: Moment,
    pub ok: bool,
    /// `292/s, p50 21 ms` or the reason it failed or was skipped.
    pub text: String,
}

/// Budget and space of a target, as last known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetView {
    pub name: Arc<str>,
    pub path: String,
    pub budget_remaining: Option<Bytes>,
    pub size: Option<Bytes>,
    pub available: Option<Bytes>,
    pub read_bytes: u64,
    pub written_bytes: u64,
}
