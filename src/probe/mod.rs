//! Floor 4: probe kinds. Each knows its options, its default shape, and how to run inside a worker.
//! Adding one is one file and one line in the list below.

pub mod cpu;
pub mod depths;
mod evidence;
mod families;
pub mod fio;
mod kernel;
mod legs;
pub mod metrics;
mod osd_families;
mod run;
mod threads;
pub mod throughput;

use serde::de::DeserializeOwned;

use crate::base::units::{Bytes, Rate, Seconds};
use crate::config::complaint::Complaint;
use crate::config::document::Section;
use crate::model::job::{EngineKind, Profile, Run};
use crate::model::link::LinkProfile;
use crate::model::metric::{Desc, Label, Point};
use crate::model::outcome::{Done, Outcome};
use crate::workload::Watch;
use depths::Depths;

/// What the list knows of a probe kind.
pub struct Kind {
    /// Value of `kind`, and the key under which its options stand.
    pub name: &'static str,
    pub help: &'static str,
    /// Every option with its default, as YAML.
    pub example: &'static str,
    pub descs: &'static [&'static Desc],
    /// Adds what a finished run shows beyond what all storage probes show; labels `probe`, `target`.
    pub points: fn([&Label; 2], &Done, &mut Vec<Point>),
    /// Options to shape; `None` takes every default.
    pub read: fn(Option<&Section<'_>>) -> Result<Shape, Complaint>,
    /// Runs inside a worker process: may block for ever where the target does.
    pub run: fn(&Run, &dyn Watch) -> Outcome,
}

macro_rules! probes {
    ($($module:ident),* $(,)?) => {
        $(pub mod $module;)*
        /// Every probe kind.
        pub static PROBES: &[&Kind] = &[$(&$module::KIND),*];
    };
}

probes! { latency, disk, knee, oltp, osd_bench, osd_like }

/// An option and what is wrong with it.
pub type Wrong = (&'static str, String);

/// The options of a kind; every default where nothing is said.
fn options<T: Default + DeserializeOwned>(section: Option<&Section<'_>>) -> Result<T, Complaint> {
    section.map_or_else(|| Ok(T::default()), Section::read)
}

/// The shape that options make, or the place of the one that can't be.
fn shape<T: Default + DeserializeOwned>(
    section: Option<&Section<'_>>,
    of: fn(&T) -> Result<Shape, Wrong>,
) -> Result<Shape, Complaint> {
    of(&options(section)?).map_err(|(key, text)| latency::complain(section, key, text))
}

/// The kind of this name.
pub fn kind(name: &str) -> Option<&'static Kind> {
    PROBES.iter().copied().find(|kind| kind.name == name)
}

/// What a probe does each time it is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// In the order in which they run, with the bounds of the whole run.
    pub legs: Vec<Profile>,
    /// Forced by the options themselves; `None` takes the probe's `engine`, else the ladder.
    pub engine: Option<EngineKind>,
    pub depths: Depths,
    /// Default interval.
    pub every: Seconds,
    /// Runs on a busy device too.
    pub exempt_from_gate: bool,
    /// After its first run, only once the idle gate has been open for so long.
    pub calm: Seconds,
    /// Quiet window before and after, to see foreign load.
    pub quiet: Seconds,
    /// Label value: `rand_read`, `latency`.
    pub profile: String,
    /// For people: `rand_read 4 KiB, 2 jobs x depth 4`.
    pub summary: String,
}

/// What a probe of the kind that goes to peers does with each of them.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkShape {
    /// One stream alone, before the others.
    pub single: Option<LinkProfile>,
    /// One after another.
    pub legs: Vec<LinkProfile>,
    /// Default interval of a pair.
    pub every: Seconds,
    /// For people: `4 streams for 5 s each way`.
    pub summary: String,
}

/// To start a worker, open the target, drain and flush.
const AROUND: Seconds = Seconds(5.0);

impl Shape {
    /// The same without legs that write; `None` where none is left.
    pub fn read_only(&self) -> Option<Shape> {
        let mut legs = self.legs.clone();
        legs.retain(|leg| !leg.writes_anything());
        (!legs.is_empty()).then(|| Shape { legs, ..self.clone() })
    }

    /// What a run is made of at a target whose last measured rate is `rate`: at each depth no deeper
    /// than 0.1 s of it. A ladder finds its end by what it measures.
    pub fn legs_at(&self, rate: Rate) -> Vec<Profile> {
        match (self.depths, &self.legs[..]) {
            (Depths::Twice, [one]) => depths::two_legs(one, Some(rate)),
            (Depths::Ladder, [one]) => depths::ladder(one),
            (_, legs) => legs.iter().map(|leg| depths::as_named(leg, rate)).collect(),
        }
    }

    /// How long a run takes at most as planned, with what is needed around its legs.
    pub fn time(&self) -> Seconds {
        let legs: f64 = self.legs.iter().map(|leg| leg.runtime.0 + leg.ramp.0).sum();
        // The first of two legs may be run once more, for as long as the second.
        let again = match (self.depths, &self.legs[..]) {
            (Depths::Twice, [one]) => depths::two_legs(one, None).get(1).map(|leg| leg.runtime),
            _ => None,
        };
        Seconds(legs + again.unwrap_or_default().0 + 2.0 * self.quiet.0 + AROUND.0)
    }

    /// What a file must hold at least; `None` where any size will do.
    pub fn span(&self) -> Option<Bytes> {
        self.legs.iter().filter_map(|leg| leg.span).max()
    }

    pub fn writes_anything(&self) -> bool {
        self.legs.iter().any(Profile::writes_anything)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::document::Document;

    #[test]
    fn kinds_have_names_of_their_own_and_help() {
        let names: BTreeSet<_> = PROBES.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), PROBES.len());
        assert!(PROBES.iter().all(|kind| !kind.help.is_empty() && !kind.descs.is_empty()));
        assert!(kind("disk").is_some() && kind("disc").is_none());
    }

    #[test]
    fn an_example_says_what_the_default_is() {
        for kind in PROBES {
            let document = Document::parse("example", kind.example).unwrap();
            let options = document.root().get(kind.name).unwrap();
            let written = (kind.read)(Some(&options)).unwrap();
            assert_eq!(written, (kind.read)(None).unwrap(), "{}", kind.name);
        }
    }

    #[test]
    fn a_probe_that_only_writes_has_no_read_only_form() {
        let latency = (latency::KIND.read)(None).unwrap();
        assert!(latency.writes_anything());
        let read_only = latency.read_only().unwrap();
        assert!(!read_only.writes_anything() && read_only.legs.len() == 1);
        assert_eq!(disk::shape(disk::Preset::RandRw).read_only(), None);
    }
}
