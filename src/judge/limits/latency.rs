//! `latency`: more depth, or more streams, goes faster.

use super::{Finding, legs};
use crate::base::legs::Saturation;
use crate::judge::confidence::Margin;
use crate::judge::facts::Facts;

const GAIN: Margin = Margin { x: 0.0, threshold: 1.5, full: 1.8 };
const TEXT: &str = "each operation waits for the last: more in flight goes faster";
const TEXT_LINK: &str = "more streams go faster: one stream's round trips are the limit";

pub(super) fn look(facts: &Facts) -> Option<Finding> {
    let gain = facts.gain()?;
    let text = if facts.is_link() { TEXT_LINK } else { TEXT };
    let mut found = Finding::new(Margin { x: gain, ..GAIN }, gain, text)
        .only_if(facts.saturation() == Some(Saturation::Unsaturated))
        .second(facts.keeps_depth())
        .advise(if facts.is_link() { "more streams" } else { "a deeper queue, or more jobs" });
    found.because.extend(legs(facts));
    if let Some(latency) = facts.latency() {
        found = found.because(format!("an operation took {latency}"));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Frequency;
    use crate::judge::facts::{DeviceFacts, SecondLeg};
    use crate::judge::limits::judge;
    use crate::model::verdict::Limit;

    fn gaining(gain: f64) -> Facts {
        Facts {
            depth: Some(1.0),
            read_operations_per_second: Some(Frequency(11_800.0)),
            second_leg: Some(SecondLeg {
                rate_per_second: 11_800.0 * gain,
                ..SecondLeg::default()
            }),
            ..Facts::default()
        }
    }

    #[test]
    fn what_doubles_with_the_depth_waits_for_answers() {
        let verdict = judge(&gaining(1.9));
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Latency, 0.75));
        let device = DeviceFacts { in_flight: Some(0.95), ..DeviceFacts::default() };
        assert_eq!(judge(&Facts { device, ..gaining(1.9) }).confidence, 1.0);
        assert_eq!(judge(&gaining(1.3)).limit, Limit::Unknown, "neither");
        assert_eq!(judge(&gaining(0.7)).limit, Limit::Unknown, "unsteady");
    }

    #[test]
    fn a_second_leg_that_is_no_deeper_is_none() {
        let mut facts = gaining(1.9);
        facts.second_leg = facts.second_leg.map(|leg| SecondLeg { depth: Some(1.5), ..leg });
        assert_eq!(judge(&facts).limit, Limit::Unknown);
    }
}
