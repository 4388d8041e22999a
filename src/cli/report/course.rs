//! The course of a report: everything on one target, then on the next, and what is known wherever it
//! is stopped.

use std::io::IsTerminal;

use super::Gathered;
use super::peers::Peer;
use super::plan;
use super::seen::Seen;
use super::whole::Whole;
use crate::base::units::{Bytes, Seconds};
use crate::cli::hand::{self, Hand};
use crate::model::outcome::{Done, Outcome, Skip};
use crate::publish::report::Curve;

/// A part of a run that lasted so long is a result.
const RESULT_SECONDS_MIN: f64 = 1.0;

/// Everything that is measured, in order.
pub(super) struct Course<'a> {
    pub(super) seen: &'a [Seen],
    pub(super) peers: &'a [Peer<'a>],
}

pub(super) fn measure(hand: &Hand, course: &Course<'_>, gathered: &mut Gathered) {
    let (time, count) = (course.time(), course.count());
    let mut whole = Whole::new(std::io::stderr().is_terminal(), time, count);
    whole.say(&course.estimate());
    for place in course.seen {
        // With one target nobody asks which.
        let on = if course.seen.len() > 1 {
            format!(" on {}", place.settings.name)
        } else {
            String::new()
        };
        on_target(hand, (place, &on), &mut whole, gathered);
    }
    for peer in course.peers {
        peer.measure(&hand.stop, &mut whole, gathered);
    }
    whole.end();
    if hand.stop.is_set() && whole.whole < count {
        let text = format!("interrupted: {} of {count} runs came to their end", whole.whole);
        gathered.failed.push(text);
    }
}

impl Course<'_> {
    fn count(&self) -> usize {
        let targets: usize = self.seen.iter().map(|place| place.runs.len()).sum();
        targets + self.peers.iter().map(|peer| peer.runs.len()).sum::<usize>()
    }

    fn time(&self) -> Seconds {
        let targets: f64 = self.seen.iter().map(|place| place.time().0).sum();
        Seconds(targets + self.peers.iter().map(|peer| peer.time().0).sum::<f64>())
    }

    /// `16 runs on /srv, /var: about 2m 20s, at most 1.7 GiB written`.
    fn estimate(&self) -> String {
        let targets = self.seen.iter().map(|place| place.settings.name.as_str());
        let names: Vec<&str> =
            targets.chain(self.peers.iter().map(|peer| peer.name.as_str())).collect();
        let of_runs = self.seen.iter().flat_map(|place| &place.runs);
        let runs: u64 = of_runs.map(|run| run.written_bytes_max().0).sum();
        let laid_out: u64 = self.seen.iter().map(Seen::laid_out).sum();
        let rounded = Seconds((self.time().0 / 5.0).ceil() * 5.0).duration();
        let written = match runs + laid_out {
            0 => "nothing written".to_owned(),
            most => format!("at most {} written", Bytes(most)),
        };
        let time = humantime::format_duration(rounded);
        format!("{} runs on {}: about {time}, {written}", self.count(), names.join(", "))
    }
}

/// Lays the file out where there is none, runs everything on it, and takes it away again.
fn on_target(hand: &Hand, (place, on): (&Seen, &str), whole: &mut Whole, gathered: &mut Gathered) {
    if place.laid_out() == 0 || hand.stop.is_set() {
        all_runs(hand, (place, on), whole, gathered);
        return;
    }
    match hand.lay_out(&place.target, place.file, &mut |what| whole.take(what)) {
        Ok(_) => {
            whole.passed(plan::layout_time(place.file));
            if !all_runs(hand, (place, on), whole, gathered) {
                let name = &place.settings.name;
                gathered
                    .fail(format!("{name} hangs: the file .loadline/ballast may be left there"));
            } else if let Err(outcome) = hand.give_back(&place.target) {
                gathered.fail(hand::parts(outcome).1.unwrap_or_default());
            }
        }
        Err(outcome) => {
            gathered.missed(&format!("everything{on}"), &outcome);
            if !matches!(outcome, Outcome::Hung { .. }) {
                // A worker that was killed may have left something; where nothing can be written,
                // nothing is there, and the first fault is the one to tell.
                let _ = hand.give_back(&place.target);
            }
        }
    }
}

/// False where the target hangs: then no other worker is started on it.
fn all_runs(
    hand: &Hand,
    (place, on): (&Seen, &str),
    whole: &mut Whole,
    gathered: &mut Gathered,
) -> bool {
    let mut answers = true;
    let mut waiting = place.runs.iter();
    for planned in waiting.by_ref() {
        if hand.stop.is_set() {
            gathered.skipped.push(format!("{}{on}: interrupted before it began", planned.name));
            continue;
        }
        let name = format!("{}{on}", planned.name);
        whole.begin(&name, (planned.time(), &planned.legs));
        let run = place.run_of(planned, hand);
        let outcome = hand.run(run, &mut |what| whole.take(what));
        let known = match &outcome {
            Outcome::Done(done) => Some(done),
            Outcome::Failed { partial, .. } | Outcome::Skipped { partial, .. } => partial
                .as_ref()
                .filter(|part| part.legs.first().is_some_and(|leg| is_a_result(leg.elapsed))),
            Outcome::Hung { .. } => None,
        };
        let run = known.and_then(|done| place.judgeable(planned, &name, done));
        whole.done(&name, run.as_ref(), matches!(outcome, Outcome::Done(_)));
        gathered.runs.extend(run);
        gathered.curves.extend(known.and_then(|done| curve(&name, done)));
        if !matches!(outcome, Outcome::Done(_)) {
            gathered.missed(&name, &outcome);
        }
        if matches!(outcome, Outcome::Hung { .. }) {
            answers = false;
            break;
        }
    }
    gathered.skipped.extend(waiting.map(|run| format!("{}{on}: the target hangs", run.name)));
    answers
}

fn curve(name: &str, done: &Done) -> Option<Curve> {
    let knee = done.knee.as_ref()?;
    Some(Curve { name: name.into(), rungs: knee.rungs.clone(), knee: Some(knee.depth) })
}

fn is_a_result(elapsed: Seconds) -> bool {
    elapsed.0 >= RESULT_SECONDS_MIN
}

impl Gathered {
    /// A run without its whole result: skipped is no fault, all else is.
    fn missed(&mut self, name: &str, outcome: &Outcome) {
        let text = match outcome {
            Outcome::Done(_) => return,
            Outcome::Skipped { skip: Skip::Stopped, partial: Some(_), .. } => {
                format!("{name} to its end: interrupted")
            }
            Outcome::Skipped { skip: Skip::Stopped, .. } => format!("{name}: interrupted"),
            Outcome::Skipped { skip, text, .. } => format!("{name}: {}: {text}", skip.label()),
            Outcome::Failed { fault, .. } => format!("{name}: {fault}"),
            Outcome::Hung { text } => format!("{name}: {text}"),
        };
        if !matches!(outcome, Outcome::Skipped { .. }) {
            self.failed.push(text.clone());
        }
        self.skipped.push(text);
    }

    /// Something that was asked for is not to be had.
    pub(super) fn fail(&mut self, text: String) {
        let first_line = text.lines().next().unwrap_or_default().to_owned();
        self.skipped.push(first_line);
        self.failed.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fault::FaultKind;
    use crate::model::outcome::Knee;

    #[test]
    fn what_was_skipped_is_said_and_what_failed_is_a_failure_too() {
        let mut gathered = Gathered::default();
        gathered.missed("a", &Outcome::skipped(Skip::Full, "4 KiB free"));
        gathered.missed("b", &Outcome::skipped(Skip::Stopped, "asked to stop"));
        assert!(gathered.failed.is_empty());
        gathered.missed("c", &Outcome::failed(FaultKind::Missing, "/srv: gone"));
        gathered.missed("d", &Outcome::Hung { text: "/srv: calls into it do not return".into() });
        gathered.missed("e", &Outcome::Done(Box::default()));
        assert_eq!(gathered.skipped[..2], ["a: full: 4 KiB free", "b: interrupted"]);
        assert_eq!(gathered.skipped[2..], gathered.failed);
        assert_eq!(gathered.failed, ["c: /srv: gone", "d: /srv: calls into it do not return"]);
    }

    #[test]
    fn a_part_of_a_run_that_was_stopped_is_told_as_such() {
        let partial = Some(Box::<Done>::default());
        let stopped = Outcome::Skipped { skip: Skip::Stopped, text: String::new(), partial };
        let mut gathered = Gathered::default();
        gathered.missed("a", &stopped);
        assert_eq!(gathered.skipped, ["a to its end: interrupted"]);
        assert!(is_a_result(Seconds(1.0)) && !is_a_result(Seconds(0.9)));
    }

    #[test]
    fn a_curve_is_of_a_ladder_alone() {
        assert_eq!(curve("a", &Done::default()), None);
        let knee = Knee { rungs: Vec::new(), depth: 8, operations_per_second: 1.0, says: None };
        let done = Done { knee: Some(Box::new(knee)), ..Done::default() };
        assert_eq!(curve("a", &done).and_then(|curve| curve.knee), Some(8));
    }
}
