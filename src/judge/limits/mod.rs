//! The limits, each a rule of its own, in the order in which they are looked for: the first that
//! holds is the verdict, the nearest of the others its rivals.

mod above;
mod cache;
mod flat;
mod latency;
mod link;
#[cfg(test)]
mod properties;
mod seek;
mod throttle;
mod unknown;
mod window;
mod write_path;

use super::ceilings;
use super::confidence::{self, Margin};
use super::doubt;
use super::facts::Facts;
use crate::model::verdict::{Ceiling, Limit, Rival, Verdict};

/// What one rule saw. A rule without its evidence sees nothing.
#[derive(Clone, Debug)]
pub struct Finding {
    pub holds: bool,
    pub margin: Margin,
    /// What is shown as this limit's number; `None` where a flag says it and nothing was counted.
    pub ratio: Option<f64>,
    /// An independent second fact says the same.
    pub second: bool,
    /// Confidence that the rule itself can't exceed.
    pub most: f64,
    /// It rests on what was counted against the limit itself, not on the shape of the rates: then a
    /// busy CPU didn't keep the run from it.
    pub counted: bool,
    pub ceiling: Option<Ceiling>,
    pub ceiling_text: Option<String>,
    pub because: Vec<String>,
    /// The sentence, without its facts.
    pub text: String,
    pub advice: Option<&'static str>,
}

impl Finding {
    /// Holds when the margin is reached.
    pub fn new(margin: Margin, ratio: f64, text: impl Into<String>) -> Self {
        Finding {
            holds: margin.reached(),
            margin,
            ratio: Some(ratio),
            second: false,
            most: 1.0,
            counted: false,
            ceiling: None,
            ceiling_text: None,
            because: Vec::new(),
            text: text.into(),
            advice: None,
        }
    }

    /// Said by a flag alone: at the threshold, and by no number.
    pub fn flagged(margin: Margin, text: &str, fact: &str) -> Self {
        let margin = Margin { x: margin.threshold, ..margin };
        Finding { ratio: None, ..Finding::new(margin, margin.x, text).because(fact) }
    }

    /// How near it came: 1 where it holds, and never where it doesn't, whatever its number says.
    fn nearness(&self) -> f64 {
        self.margin.nearness().min(if self.holds { 1.0 } else { NOT_HELD })
    }

    #[must_use]
    pub fn only_if(mut self, condition: bool) -> Self {
        self.holds &= condition;
        self
    }

    #[must_use]
    pub fn second(mut self, second: bool) -> Self {
        self.second = second;
        self
    }

    #[must_use]
    pub fn at_most_if(mut self, condition: bool, most: f64) -> Self {
        if condition {
            self.most = self.most.min(most);
        }
        self
    }

    #[must_use]
    pub fn because(mut self, fact: impl Into<String>) -> Self {
        self.because.push(fact.into());
        self
    }

    #[must_use]
    pub fn because_if(self, condition: bool, fact: &str) -> Self {
        if condition { self.because(fact) } else { self }
    }

    #[must_use]
    pub fn under(mut self, ceiling: Option<Ceiling>) -> Self {
        self.ceiling = ceiling;
        self
    }

    #[must_use]
    pub fn advise(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }
}

type Look = fn(&Facts) -> Option<Finding>;

/// In order of evaluation. The link is looked for three times: when it is full beyond doubt, after
/// the CPU, and, where its line rate is unknown, by its own flat rate. A cgroup's limit that is used
/// up and a window that is seen to close need no look at the CPU: a run that the CPU holds back doesn't
/// get there.
static RULES: &[(Limit, Look)] = &[
    (Limit::Contended, above::contended),
    (Limit::Cache, cache::look),
    (Limit::Link, link::full),
    (Limit::Throttle, throttle::counted),
    (Limit::Window, window::counted),
    (Limit::Cpu, above::cpu),
    (Limit::Link, link::near),
    (Limit::Window, window::look),
    (Limit::Throttle, throttle::look),
    (Limit::WritePath, write_path::look),
    (Limit::Latency, latency::look),
    (Limit::None, above::none),
    (Limit::Seek, seek::look),
    (Limit::Backend, flat::backend),
    (Limit::Bandwidth, flat::bandwidth),
    (Limit::Operations, flat::operations),
    (Limit::Link, link::flat),
];

/// Rivals that are told.
const RIVALS: usize = 2;
/// A rival below a tenth of its threshold isn't worth a word.
const RIVAL_NEARNESS: f64 = 0.1;
/// As near as a rule comes whose number is there and that doesn't hold: something else is missing.
const NOT_HELD: f64 = 0.99;

/// Judges one run. `unknown` wherever the evidence doesn't decide.
pub fn judge(facts: &Facts) -> Verdict {
    if facts.rate().is_none() {
        return unknown::without_a_rate(facts);
    }
    let seen: Vec<(Limit, Finding)> =
        RULES.iter().filter_map(|(limit, look)| Some((*limit, look(facts)?))).collect();
    let Some((limit, finding)) = seen.iter().find(|(_, finding)| finding.holds) else {
        return unknown::verdict(facts, rivals(&seen, Limit::Unknown));
    };
    let confidence = confidence::of(*limit, finding, facts);
    let mut because = finding.because.clone();
    // What a cache answered says nothing of the disks' ceiling.
    if *limit != Limit::Cache {
        because.extend(ceilings::dropped(facts));
    }
    because.extend(doubt::medium(facts));
    Verdict {
        limit: *limit,
        ratio: finding.ratio,
        confidence,
        ceiling: finding.ceiling.clone(),
        ceiling_text: finding.ceiling_text.clone(),
        rivals: rivals(&seen, *limit),
        text: finding.text.clone(),
        because,
        advice: finding.advice,
    }
}

/// The nearest other limits; each once.
fn rivals(seen: &[(Limit, Finding)], winner: Limit) -> Vec<Rival> {
    let rival = |(limit, finding): &(Limit, Finding)| {
        let ratio = finding.nearness();
        (*limit != winner && ratio > RIVAL_NEARNESS).then_some(Rival { limit: *limit, ratio })
    };
    let mut others: Vec<Rival> = seen.iter().filter_map(rival).collect();
    others.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    let mut rivals: Vec<Rival> = Vec::new();
    for other in others {
        if rivals.len() < RIVALS && rivals.iter().all(|rival| rival.limit != other.limit) {
            rivals.push(other);
        }
    }
    rivals
}

/// `99.9 %`.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What the legs say, for a person.
fn legs(facts: &Facts) -> Option<String> {
    let gain = facts.gain()?;
    let what = if facts.is_link() { "the streams" } else { "the depth" };
    Some(format!("twice {what} gave {gain:.2} x the rate"))
}
