//! Floor 4: samplers. Each reads one family of kernel counters and owns its descriptions, windows
//! and points. Adding one is one file and one line in the list below.

use crate::base::clock::Moment;
use crate::base::fault::Fault;
use crate::config::settings::SampleSettings;
use crate::host::roots::Roots;
use crate::model::live::{DiskLive, KnownLine};
use crate::model::metric::{Desc, Point};
use crate::model::outcome::{Conditions, OwnRuns};
use crate::model::snapshot::Resource;

/// What a sampler is told at each tick.
#[derive(Clone, Copy, Debug)]
pub struct Tick<'a> {
    pub at: Moment,
    /// Own probe runs, to be left out of gauges and window histograms.
    pub own: &'a OwnRuns,
}

/// What samplers say at one tick; they add to it in turn.
#[derive(Debug, Default)]
pub struct Reading {
    pub points: Vec<Point>,
    pub resources: Vec<Resource>,
    /// Leaf disks and known lines, to be set against ceilings.
    pub disks: Vec<DiskLive>,
    pub lines: Vec<KnownLine>,
    /// For the guard.
    pub conditions: Conditions,
    /// What can't be known, and how to change that: `eth0: speed unknown, ... set links.eth0.rate`.
    pub notes: Vec<String>,
    /// Lines and fields skipped in this tick.
    pub rejected: u64,
    /// Devices that the cap left out now.
    pub dropped_devices: u64,
}

/// One family of kernel counters.
pub trait Sampler: Send {
    /// Reads once and adds what is true now. After an error nothing of this sampler is published.
    fn read(&mut self, tick: Tick<'_>, out: &mut Reading) -> Result<(), Fault>;
}

/// What the list knows of a sampler.
pub struct Kind {
    /// Label value of `sampler`.
    pub name: &'static str,
    pub help: &'static str,
    pub descs: &'static [&'static Desc],
    pub open: fn(&Roots, &SampleSettings) -> Box<dyn Sampler>,
}

macro_rules! samplers {
    ($($module:ident),* $(,)?) => {
        $(pub mod $module;)*
        /// Every sampler, in the order in which they are read.
        pub static SAMPLERS: &[&Kind] = &[$(&$module::KIND),*];
    };
}

mod filter;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod spoilt;

samplers! {
    disk,
    link,
    tcp,
    cpu,
    pressure,
    softnet,
    qdisc,
    namespace,
}
