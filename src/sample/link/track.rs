//! One link between ticks: its identity, its last believed sample, its windows.

use std::path::Path;
use std::sync::Arc;

use crate::base::clock::Moment;
use crate::base::fault::Fault;
use crate::base::stats::Histogram;
use crate::base::units::{Rate, Ratio, Seconds};
use crate::base::window::{Held, Latch, Span};
use crate::host::link_class::LinkClass;
use crate::host::link_facts::{Capacity, LinkFacts};
use crate::host::roots::KeptNumber;
use crate::model::load::{FlowLoad, LinkCounters, LinkLoad, NoWindow};
use crate::model::metric::Label;
use crate::model::outcome::{LineUse, OwnRuns};

/// Share of the line from which a window is at the ceiling.
const CEILING: f64 = 0.9;
/// Upper bounds of the window histograms; 1 isn't one of them, since an integer `le` is written in
/// two ways.
const UTILIZATION_BOUNDS: &[f64] = &[0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];
/// A window that carries more than its line can, by more than hardware counters that are renewed
/// every second or two explain (Intel 82580), is a glitch ...
const GLITCH: f64 = 4.0;
/// ... unless it goes on: emulated devices aren't bound by the rate they report.
const DOUBTS_MAX: u32 = 3;

/// One direction against its ceiling; there once the capacity has been known.
pub(super) struct Ceiling {
    /// Of the last window; `None` while the capacity is unknown.
    pub(super) utilization: Option<Ratio>,
    pub(super) latch: Latch,
    pub(super) windows: Arc<Histogram>,
    /// At the ceiling since start.
    pub(super) seconds: f64,
}

impl Ceiling {
    fn new() -> Self {
        Self {
            utilization: None,
            latch: Latch::default(),
            windows: Arc::new(Histogram::new(UTILIZATION_BOUNDS)),
            seconds: 0.0,
        }
    }

    fn observe(&mut self, utilization: Option<Ratio>, window: Seconds) {
        self.utilization = utilization;
        let Some(Ratio(share)) = utilization else {
            self.latch = Latch::default();
            return;
        };
        let high = share >= CEILING;
        self.latch.push(high);
        Arc::make_mut(&mut self.windows).observe(share, 1);
        self.seconds += if high { window.0 } else { 0.0 };
    }
}

/// What came of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belief {
    Believed,
    /// A glitch of the driver: nothing of this sample is published.
    Doubted,
}

/// What a tick says of a link beside its counters.
#[derive(Clone, Copy)]
pub(super) struct Circumstances<'a> {
    pub(super) at: Moment,
    pub(super) own: &'a OwnRuns,
    /// Nominal length of a window.
    pub(super) every: Seconds,
    /// All columns of its line are 0.
    pub(super) blank: bool,
}

pub(super) struct Track {
    pub(super) name: Label,
    pub(super) class: LinkClass,
    pub(super) receive: Option<Ceiling>,
    pub(super) transmit: Option<Ceiling>,
    pub(super) facts: Option<LinkFacts>,
    /// Why they could not be asked for the last time.
    pub(super) refusal: Option<Fault>,
    pub(super) asked_at: Option<Moment>,
    /// When it was last in the file.
    pub(super) seen: Moment,
    pub(super) absences: u32,
    ifindex: Kept,
    carrier_changes: Kept,
    /// What /proc/net/dev folds into one column: dropped by the host, missed by the device.
    apart: Option<(KeptNumber, KeptNumber)>,
    before: Option<(Moment, LinkCounters)>,
    load: Held<LinkLoad>,
    doubts: u32,
}

/// A small attribute that stays open, and its last value.
struct Kept {
    file: KeptNumber,
    value: Option<u64>,
}

impl Kept {
    fn new(path: &Path) -> Self {
        let mut file = KeptNumber::new(path.to_path_buf());
        let value = file.read();
        Self { file, value }
    }

    /// True when the value is another than before.
    fn changed(&mut self) -> bool {
        let now = self.file.read();
        std::mem::replace(&mut self.value, now) != now
    }
}

impl Track {
    /// `own`: its directory in /sys/class/net, which may be missing.
    pub(super) fn new(own: &Path, name: &str, class: LinkClass) -> Self {
        let statistic = |name: &str| KeptNumber::new(own.join("statistics").join(name));
        // Stacked devices miss nothing themselves, and each of these reads gathers all counters.
        let mut apart = (class == LinkClass::Physical)
            .then(|| (statistic("rx_dropped"), statistic("rx_missed_errors")));
        let told = |(dropped, missed): &mut (KeptNumber, KeptNumber)| {
            dropped.read().is_some() && missed.read().is_some()
        };
        if !apart.as_mut().is_some_and(told) {
            apart = None;
        }
        Self {
            name: name.into(),
            class,
            receive: None,
            transmit: None,
            facts: None,
            refusal: None,
            asked_at: None,
            seen: Moment::default(),
            absences: 0,
            ifindex: Kept::new(&own.join("ifindex")),
            carrier_changes: Kept::new(&own.join("carrier_changes")),
            apart,
            before: None,
            load: Held::default(),
            doubts: 0,
        }
    }

    /// True when the name belongs to another interface now.
    pub(super) fn replaced(&mut self) -> bool {
        self.ifindex.changed()
    }

    /// True when the facts are to be read: at first, when the carrier came or went, once a minute.
    pub(super) fn wants_facts(&mut self, now: Moment) -> bool {
        const FACTS_EVERY: f64 = 60.0;
        let changed = self.carrier_changes.changed();
        changed || self.asked_at.is_none_or(|asked| now.since(asked).0 >= FACTS_EVERY)
    }

    pub(super) fn load(&self) -> Option<&LinkLoad> {
        self.load.get()
    }

    /// The counters of the file, with drops and misses told apart where the driver does.
    pub(super) fn told_apart(&mut self, mut counters: LinkCounters) -> LinkCounters {
        if let Some((dropped, missed)) = &mut self.apart {
            counters.receive.drops = dropped.read();
            counters.receive_missed = missed.read();
        }
        counters
    }

    /// Takes the counters of this tick and makes a window of them where that can be.
    pub(super) fn take(&mut self, counters: LinkCounters, now: Circumstances<'_>) -> Belief {
        let Some((then, before)) = self.before else {
            self.before = Some((now.at, counters));
            return Belief::Believed;
        };
        let had_traffic = before.receive.bytes.max(before.transmit.bytes) > Some(0);
        if now.blank && had_traffic && self.doubt() {
            return Belief::Doubted;
        }
        let window = match Span::between(then, now.at, now.every) {
            Span::Short => return Belief::Believed,
            Span::Broken => return self.start_anew(now.at, counters),
            // An own run's window says nothing of the load of others.
            Span::Good(_) if now.own.overlap(&self.name, then, now.at).0 > 0.0 => {
                return self.start_anew(now.at, counters);
            }
            Span::Good(window) => window,
        };
        match LinkLoad::between(&before, &counters, window) {
            Ok(load) if self.glitch(&load) && self.doubt() => Belief::Doubted,
            Ok(load) => {
                if !self.glitch(&load) {
                    self.doubts = 0;
                }
                self.before = Some((now.at, counters));
                self.observe(load);
                Belief::Believed
            }
            Err(NoWindow::Implausible) if self.doubt() => Belief::Doubted,
            Err(NoWindow::Reset) => {
                self.load = Held::default();
                self.start_anew(now.at, counters)
            }
            Err(_) => self.start_anew(now.at, counters),
        }
    }

    fn start_anew(&mut self, at: Moment, counters: LinkCounters) -> Belief {
        self.before = Some((at, counters));
        self.doubts = 0;
        self.load.miss();
        Belief::Believed
    }

    /// True while it may still be a passing glitch: the old sample is kept and the next compared.
    fn doubt(&mut self) -> bool {
        self.doubts = (self.doubts + 1).min(DOUBTS_MAX + 1);
        let doubted = self.doubts <= DOUBTS_MAX;
        if doubted {
            self.load.miss();
        }
        doubted
    }

    fn glitch(&self, load: &LinkLoad) -> bool {
        // A declared rate may be a contract's, below what the line can carry.
        let Some(capacity) = self.capacity().filter(|c| !c.declared) else { return false };
        let above = |flow: Option<FlowLoad>, line: f64| {
            flow.is_some_and(|f| f.bytes_per_second > GLITCH * line)
        };
        above(load.receive, capacity.receive.0) || above(load.transmit, capacity.transmit.0)
    }

    fn capacity(&self) -> Option<Capacity> {
        self.facts.as_ref()?.capacity
    }

    fn observe(&mut self, load: LinkLoad) {
        let capacity = self.capacity();
        let (mut receive, mut transmit) = (load.receive, load.transmit);
        if self.facts.as_ref().is_some_and(|f| f.half_duplex) {
            // Both directions use the one line.
            let both = receive.zip(transmit).map(|(r, t)| FlowLoad {
                bytes_per_second: r.bytes_per_second + t.bytes_per_second,
                packets_per_second: r.packets_per_second + t.packets_per_second,
            });
            (receive, transmit) = (both, both);
        }
        for (ceiling, flow, line) in [
            (&mut self.receive, receive, capacity.map(|c| c.receive.0)),
            (&mut self.transmit, transmit, capacity.map(|c| c.transmit.0)),
        ] {
            let utilization = flow.zip(line).and_then(|(flow, line)| flow.utilization(line));
            if ceiling.is_some() || utilization.is_some() {
                ceiling.get_or_insert_with(Ceiling::new).observe(utilization, load.window);
            }
        }
        self.load.set(load);
    }

    /// `None` without a window.
    pub(super) fn used(&self) -> Option<LineUse> {
        let load = self.load()?;
        let rate = |flow: FlowLoad| Rate(flow.bytes_per_second);
        let (receive, transmit) = (load.receive.map(rate), load.transmit.map(rate));
        Some(LineUse { share: self.share(), receive, transmit })
    }

    /// The larger share of the line, of both directions.
    pub(super) fn share(&self) -> Option<Ratio> {
        self.load()?;
        [&self.receive, &self.transmit]
            .into_iter()
            .filter_map(|ceiling| ceiling.as_ref()?.utilization)
            .max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::base::clock::{Clock, ManualClock};
    use crate::model::load::FlowCounters;

    fn counter() -> impl Strategy<Value = Option<u64>> {
        prop_oneof![
            8 => (0..1_000_000_000_u64).prop_map(Some),
            1 => any::<u64>().prop_map(Some),
            1 => Just(None),
        ]
    }

    fn flow() -> impl Strategy<Value = FlowCounters> {
        (counter(), counter()).prop_map(|(bytes, packets)| FlowCounters {
            bytes,
            packets,
            ..FlowCounters::default()
        })
    }

    proptest! {
        #[test]
        fn no_history_of_counters_breaks_a_window(
            ticks in prop::collection::vec((flow(), flow(), 0..6000_u64, any::<bool>()), 1..40),
        ) {
            let clock = ManualClock::starting_at(1_700_000_000);
            let own = OwnRuns::default();
            let mut track = Track::new("/nonexistent".as_ref(), "eth0", LinkClass::Physical);
            let rate = Rate(125e6);
            let capacity = Some(Capacity { receive: rate, transmit: rate, declared: false });
            track.facts = Some(LinkFacts { capacity, ..LinkFacts::default() });
            let mut seconds = 0.0;
            for (receive, transmit, ms, blank) in ticks {
                clock.advance(Duration::from_millis(ms));
                let now =
                    Circumstances { at: clock.now(), own: &own, every: Seconds(1.0), blank };
                track.take(LinkCounters { receive, transmit, receive_missed: None }, now);
                for load in track.load().into_iter().flat_map(|l| [l.receive, l.transmit]).flatten() {
                    prop_assert!(load.bytes_per_second >= 0.0 && load.bytes_per_second <= 200e9);
                }
                prop_assert!(track.share().is_none_or(|Ratio(share)| (0.0..=1.0).contains(&share)));
                let at_ceiling = track.receive.as_ref().map_or(0.0, |c| c.seconds);
                prop_assert!(at_ceiling >= seconds, "a counter never goes back");
                seconds = at_ceiling;
            }
        }
    }
}
