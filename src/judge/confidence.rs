//! How sure a verdict is, in one place.

use super::doubt;
use super::facts::Facts;
use super::limits::Finding;
use crate::base::units::Ratio;
use crate::model::verdict::Limit;

/// No run is believed beyond this ...
const WITHOUT_SECOND_LEG: f64 = 0.5;
/// ... except where busy spindles say the same.
const WITH_BUSY_SPINDLES: f64 = 0.75;
/// With a validity flag set against it.
const FLAGGED: f64 = 0.3;
/// Where it rests on a declaration that is denied.
const DENIED: f64 = 0.5;

/// A number against the threshold of its limit and the mark at which it is beyond doubt.
#[derive(Clone, Copy, Debug)]
pub struct Margin {
    pub x: f64,
    pub threshold: f64,
    pub full: f64,
}

impl Margin {
    /// 0 at the threshold, 1 at the full mark and beyond.
    pub fn share(self) -> f64 {
        let share = (self.x - self.threshold) / (self.full - self.threshold);
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// 1 at the threshold, less before it, whichever way the number must go.
    pub fn nearness(self) -> f64 {
        let near = if self.full >= self.threshold {
            self.x / self.threshold
        } else {
            self.threshold / self.x
        };
        if near.is_nan() { 0.0 } else { near.clamp(0.0, 1e3) }
    }

    pub fn reached(self) -> bool {
        if self.full >= self.threshold {
            self.x >= self.threshold
        } else {
            self.x <= self.threshold
        }
    }
}

/// 0.5 at the threshold, 0.25 for the margin, 0.25 for an independent second fact; less where
/// something speaks against the run.
pub fn of(limit: Limit, finding: &Finding, facts: &Facts) -> f64 {
    let second = if finding.second { 0.25 } else { 0.0 };
    let plain = 0.5 + 0.25 * finding.margin.share() + second;
    let mosts = [
        finding.most,
        without_second_leg(limit, finding, facts),
        flagged(limit, finding, facts),
        denied(limit, finding, facts),
    ];
    mosts.into_iter().fold(plain, f64::min)
}

/// What rests on the medium is a guess where that is denied.
fn denied(limit: Limit, finding: &Finding, facts: &Facts) -> f64 {
    let rests_on_it = match limit {
        Limit::Cache | Limit::Seek | Limit::Bandwidth | Limit::Operations => true,
        Limit::Throttle | Limit::WritePath => !finding.counted,
        _ => false,
    };
    if rests_on_it && doubt::medium(facts).is_some() { DENIED } else { 1.0 }
}

fn without_second_leg(limit: Limit, finding: &Finding, facts: &Facts) -> f64 {
    let wants_it = match limit {
        Limit::Latency | Limit::Seek | Limit::Bandwidth | Limit::Operations | Limit::Backend => {
            true
        }
        Limit::Throttle => !finding.counted,
        _ => false,
    };
    match facts.saturation() {
        None if wants_it && facts.is_random() && facts.busy_spindles() => WITH_BUSY_SPINDLES,
        None if wants_it => WITHOUT_SECOND_LEG,
        _ => 1.0,
    }
}

/// A flag that a limit is about doesn't speak against it.
fn flagged(limit: Limit, finding: &Finding, facts: &Facts) -> f64 {
    let below_caches = limit == Limit::WritePath && finding.counted;
    let counts = |flag| match flag {
        "direct" => limit != Limit::Cache && !below_caches,
        "prefilled" => facts.write_ratio().is_some_and(|writes| writes < 1.0),
        "steady" | "contended" => limit != Limit::Contended,
        "cached" => limit != Limit::Cache,
        "cpu_limited" => limit != Limit::Cpu && !finding.counted,
        "throttled" => !matches!(limit, Limit::Cpu | Limit::Throttle),
        _ => true,
    };
    if facts.flags.against().any(counts) { FLAGGED } else { 1.0 }
}

/// For people: `0.75`.
pub fn show(confidence: f64) -> String {
    format!("{:.2}", Ratio(confidence).0)
}
