//! Every repetition, its truth and its verdict; and the rules that all of them together keep.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use loadline::judge::limits::judge;
use loadline::model::verdict::{Limit, Verdict};

use super::Scenario;
use super::measure::Sight;

/// Of all repetitions.
const RIGHT_MIN: f64 = 0.95;
/// Of all runs: with more that aren't counted, what is counted says little.
const MOOT_MAX: f64 = 0.1;
/// A wrong verdict is never so sure.
const SURE: f64 = 0.7;
/// From here on a host had no time for the model of a disk.
const CROWDED: f64 = 0.85;
const STOLEN: f64 = 0.05;

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());
static MOOT: AtomicUsize = AtomicUsize::new(0);

pub struct Row {
    name: &'static str,
    truth: &'static [Limit],
    verdict: Verdict,
    sight: Sight,
}

impl Row {
    pub fn of(scenario: &Scenario, sight: Sight) -> Self {
        let verdict = judge(&sight.facts);
        Self { name: scenario.name, truth: scenario.truth, verdict, sight }
    }

    fn is_right(&self) -> bool {
        self.truth.contains(&self.verdict.limit)
    }

    /// What none may be: a wrong verdict, a number that is not the model's.
    pub fn wrong(&self) -> Option<String> {
        let mut wrong = self.sight.broken.clone();
        if !self.is_right() {
            wrong.push(format!("{} is wrong: it is {}", self.verdict.limit.label(), self.truth()));
        }
        let facts = || serde_json::to_string(&self.sight.facts).unwrap();
        let of = &self.sight.done.evidence;
        let cpu = || format!("{:?} {:?} {:?}", of.thread, of.kernel_thread, of.interrupts);
        (!wrong.is_empty()).then(|| format!("{}\n{}\n{}", wrong.join("; "), facts(), cpu()))
    }

    /// Others used the CPUs that the model of the disk runs on.
    pub fn was_crowded(&self) -> bool {
        let second = self.sight.done.second_leg.as_ref().map(|second| &second.evidence);
        [Some(&self.sight.done.evidence), second].into_iter().flatten().any(|evidence| {
            let above = |share: Option<loadline::base::units::Ratio>, most: f64| {
                share.is_some_and(|share| share.0 > most)
            };
            above(evidence.host_cpu, CROWDED) || above(evidence.steal, STOLEN)
        })
    }

    /// On a host whose CPUs others fill, a run that left its disk room may be held back by them, and
    /// `cpu` is no wrong word for it.
    pub fn is_moot(&self) -> bool {
        let says = self.verdict.limit == Limit::Cpu && !self.is_right();
        says && self.was_crowded() && !self.sight.facts.keeps_depth()
    }

    fn truth(&self) -> String {
        self.truth.iter().map(|limit| limit.label()).collect::<Vec<_>>().join(" or ")
    }

    pub fn describe(&self) -> String {
        let facts = &self.sight.facts;
        let rate = match facts.goodput_bytes_per_second {
            Some(rate) => rate.bits(),
            None => format!("{:.1}/s", facts.operations().unwrap_or(0.0)),
        };
        let gain = facts.gain().map_or("-".into(), |gain| format!("{gain:.2}"));
        let Verdict { limit, confidence, text, because, .. } = &self.verdict;
        let (limit, because) = (limit.label(), because.join("; "));
        let flags = self.sight.done.flags.each().into_iter();
        let set: Vec<&str> =
            flags.filter(|(_, is)| *is == Some(true)).map(|(name, _)| name).collect();
        let set = set.join(" ");
        format!("{limit} {confidence:.2}, {rate}, gain {gain}: {text} ({because}) [{set}]")
    }
}

pub fn add(row: Row) {
    ROWS.lock().unwrap_or_else(PoisonError::into_inner).push(row);
}

/// A run that is not judged.
pub fn set_aside() {
    MOOT.fetch_add(1, Ordering::Relaxed);
}

/// Prints what came out, and whether the rules are kept.
pub fn conclude() -> bool {
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    let moot = MOOT.load(Ordering::Relaxed);
    if moot > 0 {
        println!("\n{moot} runs were not counted, {} were", rows.len());
    }
    if rows.is_empty() {
        return moot == 0;
    }
    print(&rows);
    let right = rows.iter().filter(|row| row.is_right()).count() as f64 / rows.len() as f64;
    let sure = |row: &&Row| !row.is_right() && row.verdict.confidence >= SURE;
    let none = |row: &&Row| !row.is_right() && row.verdict.limit == Limit::None;
    let (sure, none) = (rows.iter().filter(sure).count(), rows.iter().filter(none).count());
    println!(
        "{:.1} % of {} right; {sure} wrong with confidence >= {SURE}; `none` claimed wrongly: {none}",
        right * 100.0,
        rows.len()
    );
    let few_moot = moot as f64 <= MOOT_MAX * (rows.len() + moot) as f64;
    right >= RIGHT_MIN && sure == 0 && none == 0 && few_moot
}

fn print(rows: &[Row]) {
    let mut scenarios: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        match scenarios.iter_mut().find(|(name, _)| *name == row.name) {
            Some((_, its)) => its.push(row),
            None => scenarios.push((row.name, vec![row])),
        }
    }
    println!("\n{:<46} {:<20} verdict x times, confidence from-to", "scenario", "truth");
    for (name, its) in scenarios {
        let mut verdicts: BTreeMap<Limit, Vec<f64>> = BTreeMap::new();
        for row in &its {
            verdicts.entry(row.verdict.limit).or_default().push(row.verdict.confidence);
        }
        let of = |(limit, all): (&Limit, &Vec<f64>)| {
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            let most = all.iter().copied().fold(0.0, f64::max);
            format!("{} x{} {least:.2}-{most:.2}", limit.label(), all.len())
        };
        let verdicts = verdicts.iter().map(of).collect::<Vec<_>>().join(", ");
        println!("{name:<46} {:<20} {verdicts}", its[0].truth());
    }
    confusion(rows);
}

/// Truth down, verdict across: how often.
fn confusion(rows: &[Row]) {
    let mut counts: BTreeMap<(Limit, Limit), usize> = BTreeMap::new();
    for row in rows {
        // Where two are right, what was said is the truth.
        let truth = if row.is_right() { row.verdict.limit } else { row.truth[0] };
        *counts.entry((truth, row.verdict.limit)).or_default() += 1;
    }
    let said: Vec<Limit> =
        Limit::ALL.into_iter().filter(|l| counts.keys().any(|(_, said)| said == l)).collect();
    let heads: String = said.iter().map(|limit| format!("{:>11}", limit.label())).collect();
    println!("\n{:<11}{heads}", "truth");
    for truth in Limit::ALL {
        if !counts.keys().any(|(is, _)| *is == truth) {
            continue;
        }
        let cell = |said: &Limit| match counts.get(&(truth, *said)) {
            Some(count) => format!("{count:>11}"),
            None => format!("{:>11}", "."),
        };
        println!("{:<11}{}", truth.label(), said.iter().map(cell).collect::<String>());
    }
}
