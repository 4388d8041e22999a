//! The words of a report.

use crate::base::units::Rate;
use crate::judge::advice::result;
use crate::judge::confidence;
use crate::judge::facts::Run;
use crate::model::verdict::{Advice, Ceiling, Limit, Unit, Verdict};

const ABSENT: &str = "-";
/// The kind of probe that times single operations.
const LATENCY: &str = "latency";

/// component, result, ceiling, share, verdict, confidence.
pub(super) fn row(run: &Run, verdict: &Verdict) -> [String; 6] {
    let latency = run.facts.latency_p50_seconds.filter(|latency| latency.0 > 0.0);
    let latency = latency.map(|latency| format!("p50 {latency}"));
    let rate = result(&run.facts).map(|(value, unit)| show(run, value, unit));
    // Of single operations, how long one takes is the result.
    let result = if run.kind == LATENCY { latency.or(rate) } else { rate.or(latency) };
    let share = verdict
        .ratio
        .filter(|_| verdict.ceiling.is_some() && verdict.ceiling_text.is_none())
        .map(|share| format!("{:.1} %", share * 100.0));
    let sure = (verdict.limit != Limit::Unknown).then(|| confidence::show(verdict.confidence));
    [
        run.name.clone(),
        result.unwrap_or_else(|| ABSENT.into()),
        ceiling(run, verdict),
        share.unwrap_or_else(|| ABSENT.into()),
        verdict.limit.words().into(),
        sure.unwrap_or_else(|| ABSENT.into()),
    ]
}

/// Links are told in bits, everything else in bytes or operations.
fn show(run: &Run, value: f64, unit: Unit) -> String {
    if run.facts.is_link() { Rate(value).bits() } else { unit.show(value) }
}

fn ceiling(run: &Run, verdict: &Verdict) -> String {
    if let Some(text) = &verdict.ceiling_text {
        return text.clone();
    }
    let Some(Ceiling { value, unit, source, .. }) = &verdict.ceiling else { return ABSENT.into() };
    format!("{} ({source})", show(run, *value, *unit))
}

/// `random mix: heads that move: ...; busy 98.2 %. Next nearest: write path, 0.41.`
pub(super) fn why(run: &Run, verdict: &Verdict) -> String {
    let mut facts = vec![verdict.text.clone()];
    facts.extend(verdict.because.iter().cloned());
    let rival = verdict.rivals.first().map_or(String::new(), |rival| {
        format!(" Next nearest: {}, {:.2}.", rival.limit.words(), rival.ratio)
    });
    let todo = verdict.advice.map_or(String::new(), |advice| format!(" To do: {advice}."));
    format!("{}: {}.{rival}{todo}", run.name, facts.join("; "))
}

/// `sequential read 4.1 x (then disks, 440 MiB/s); 1.0 x: random write`.
pub(super) fn effect(advice: &Advice) -> String {
    let prefix = format!("{}: ", advice.change);
    advice.text.strip_prefix(&prefix).unwrap_or(&advice.text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Frequency, Seconds};
    use crate::judge::facts::Facts;
    use crate::judge::limits::judge;

    #[test]
    fn of_single_operations_the_time_is_the_result_and_of_all_else_the_rate() {
        let result = |kind: &str, latency: f64| {
            let facts = Facts {
                block_bytes: Some(Bytes(4096)),
                read_operations_per_second: Some(Frequency(90.0)),
                latency_p50_seconds: Some(Seconds(latency)),
                ..Facts::default()
            };
            let verdict = judge(&facts);
            let run = Run { kind: kind.into(), facts, ..Run::default() };
            row(&run, &verdict)[1].clone()
        };
        assert_eq!(result("latency", 0.011), "p50 11 ms");
        assert_eq!(result("disk", 0.011), "90/s");
        assert_eq!(result("latency", 0.0), "90/s", "a time that isn't known");
    }
}
