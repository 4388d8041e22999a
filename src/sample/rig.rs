//! Drives one sampler over a small host and a clock that only moves when told to.

use std::sync::Arc;
use std::time::Duration;

use super::{Kind, Reading, Sampler, Tick};
use crate::base::clock::{Clock, ManualClock};
use crate::base::fault::Fault;
use crate::base::stats::Histogram;
use crate::config::settings::SampleSettings;
use crate::host::fixture::Host;
use crate::model::metric::Value;
use crate::model::outcome::OwnRuns;

pub(crate) struct Rig {
    pub(crate) host: Host,
    pub(crate) clock: ManualClock,
    pub(crate) settings: SampleSettings,
    pub(crate) own: OwnRuns,
    /// What the last tick said.
    pub(crate) out: Reading,
    /// How long it is from tick to tick.
    pub(crate) step: Duration,
    sampler: Option<Box<dyn Sampler>>,
}

impl Rig {
    pub(crate) fn new(fill: impl FnOnce(&Rig)) -> Self {
        let rig = Self {
            host: Host::new(),
            clock: ManualClock::starting_at(1_700_000_000),
            settings: SampleSettings::default(),
            own: OwnRuns::default(),
            out: Reading::default(),
            step: Duration::from_secs(1),
            sampler: None,
        };
        fill(&rig);
        rig
    }

    pub(crate) fn open(&mut self, kind: &Kind) {
        self.drive((kind.open)(&self.host.roots(), &self.settings));
    }

    pub(crate) fn drive(&mut self, sampler: Box<dyn Sampler>) {
        self.sampler = Some(sampler);
    }

    /// A step passes, one second unless told otherwise, and the sampler reads.
    pub(crate) fn tick(&mut self) {
        self.try_tick().unwrap();
    }

    pub(crate) fn try_tick(&mut self) -> Result<(), Fault> {
        self.clock.advance(self.step);
        self.out = Reading::default();
        let tick = Tick { at: self.clock.now(), own: &self.own };
        self.sampler.as_mut().unwrap().read(tick, &mut self.out)
    }

    /// The number of the one series of `family`.
    pub(crate) fn value(&self, family: &str) -> Option<f64> {
        let found = self.numbers(family);
        assert!(found.len() <= 1, "{family}: {found:?}");
        found.first().map(|(_, value)| *value)
    }

    /// The number of `family` whose first label is `first`.
    pub(crate) fn value_of(&self, family: &str, first: &str) -> Option<f64> {
        self.numbers(family).into_iter().find(|(label, _)| label == first).map(|(_, value)| value)
    }

    /// First labels and numbers of `family`.
    pub(crate) fn numbers(&self, family: &str) -> Vec<(String, f64)> {
        let points = self.out.points.iter().filter(|p| p.desc.name == family);
        points
            .filter_map(|p| match p.value {
                Value::Number(value) => {
                    Some((p.labels.first().map(|l| l.to_string()).unwrap_or_default(), value))
                }
                Value::Histogram(_) => None,
            })
            .collect()
    }

    pub(crate) fn histogram(&self, family: &str) -> Option<Arc<Histogram>> {
        let point = self.out.points.iter().find(|p| p.desc.name == family)?;
        match &point.value {
            Value::Histogram(histogram) => Some(Arc::clone(histogram)),
            Value::Number(_) => None,
        }
    }
}
