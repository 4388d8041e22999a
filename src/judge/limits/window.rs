//! `window`: a receive window or send buffer over the round trip. Never the congestion window.

use super::{Finding, percent};
use crate::base::limits::LINK_SHARE;
use crate::base::physics::window_rate;
use crate::base::units::Rate;
use crate::judge::ceilings;
use crate::judge::confidence::Margin;
use crate::judge::facts::Facts;
use crate::model::verdict::{Ceiling, Trust, Unit};

const LIMITED: Margin = Margin { x: 0.0, threshold: 0.5, full: 0.8 };
/// What twice the streams bring at least where the windows were the limit.
const GROWS: f64 = 1.1;
/// How close each stream is to window / round trip, either side.
const CLOSE: Margin = Margin { x: 0.0, threshold: 0.9, full: 0.95 };

pub(super) fn look(facts: &Facts) -> Option<Finding> {
    if !facts.is_link() {
        return None;
    }
    let bytes = facts.bytes()?;
    let link = ceilings::link(facts).ceiling().map(|ceiling| bytes / ceiling.value);
    let limited = limited(facts).map(|share| Margin { x: share, ..LIMITED });
    let ceiling = over_round_trip(facts);
    let share = ceiling.as_ref().map(|ceiling| bytes / ceiling.value);
    let close = share.map(|share| Margin { x: 1.0 - (share - 1.0).abs(), ..CLOSE });
    let margins = [limited, close];
    let reached = margins.iter().flatten().filter(|margin| margin.reached()).count();
    // Of two that hold the clearer; of those that don't, the nearer.
    let rank = |margin: &Margin| (margin.share(), margin.nearness());
    let best = margins
        .into_iter()
        .flatten()
        .max_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal))?;
    let text =
        "the window is the limit: each stream waits for acknowledgements of what it may send";
    let mut found = Finding::new(best, share.unwrap_or(best.x), text)
        .only_if(link.is_none_or(|share| share < LINK_SHARE))
        // Twice the streams have twice the windows: where that brings nothing, it was the reader.
        .only_if(facts.gain().is_none_or(|gain| gain > GROWS))
        .second(reached == 2)
        .advise("larger socket buffers (net.ipv4.tcp_rmem, tcp_wmem), or more streams");
    if let Some(margin) = limited {
        found = found.because(format!("{} of the busy time waited for it", percent(margin.x)));
    }
    if let (Some(share), Some(ceiling)) = (share, &ceiling) {
        let most = Rate(ceiling.value).bits();
        found = found.because(format!("{} of window / round trip, {most}", percent(share)));
    }
    Some(found.under(ceiling))
}

/// First look: the kernel counted the wait, and the rate is what the window allows. Then no CPU held
/// the run back, whoever filled it.
pub(super) fn counted(facts: &Facts) -> Option<Finding> {
    let found = look(facts)?;
    let both = found.second;
    Some(Finding { counted: true, ..found.only_if(both) })
}

fn limited(facts: &Facts) -> Option<f64> {
    let link = &facts.link;
    [link.receive_window_limited_ratio, link.send_buffer_limited_ratio]
        .into_iter()
        .flatten()
        .map(|share| share.0)
        .reduce(f64::max)
}

/// Window / round trip, of all streams.
fn over_round_trip(facts: &Facts) -> Option<Ceiling> {
    let (window, round_trip) = (facts.link.window_bytes?, facts.link.round_trip_seconds?);
    let value = window_rate(window, round_trip)?.0 * facts.depth?;
    let what = ("window", ceilings::direction(facts));
    let source = (Trust::Detected, format!("{window} / {round_trip}"));
    let ceiling = Ceiling::lasting((value, Unit::BytesPerSecond), what, source);
    (value > 0.0).then_some(ceiling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Ratio, Seconds};
    use crate::judge::facts::{CpuFacts, LinkFacts, SecondLeg, Subject};
    use crate::judge::limits::judge;
    use crate::model::path::DeclaredPath;
    use crate::model::verdict::Limit;

    fn run(link: LinkFacts) -> Facts {
        Facts {
            subject: Subject::Link,
            depth: Some(1.0),
            goodput_bytes_per_second: Some(Rate(131.25e6)),
            link,
            ..Facts::default()
        }
    }

    fn half_a_megabyte() -> LinkFacts {
        LinkFacts {
            window_bytes: Some(Bytes(512 << 10)),
            round_trip_seconds: Some(Seconds(0.004)),
            ..LinkFacts::default()
        }
    }

    #[test]
    fn a_window_over_the_round_trip_is_seen_in_the_rate() {
        let verdict = judge(&run(half_a_megabyte()));
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Window, 0.75));
        let receive_window_limited_ratio = Some(Ratio(0.9));
        let both = LinkFacts { receive_window_limited_ratio, ..half_a_megabyte() };
        assert_eq!(judge(&run(both)).confidence, 1.0);
    }

    #[test]
    fn cpus_that_others_fill_are_not_taken_for_a_window() {
        let receive_window_limited_ratio = Some(Ratio(0.9));
        let of = |link| {
            let allowed_ratio = Some(Ratio(1.0));
            let cpu = CpuFacts { allowed_ratio, ..CpuFacts::default() };
            judge(&Facts { cpu, ..run(link) }).limit
        };
        let both = LinkFacts { receive_window_limited_ratio, ..half_a_megabyte() };
        assert_eq!(of(both), Limit::Window);
        let window_bytes = Some(Bytes(4 << 20));
        let slow_reader =
            LinkFacts { receive_window_limited_ratio, window_bytes, ..half_a_megabyte() };
        assert_eq!(of(slow_reader), Limit::Cpu, "it may be what keeps the window closed");
    }

    #[test]
    fn twice_the_streams_without_more_is_no_window() {
        let receive_window_limited_ratio = Some(Ratio(0.7));
        let of = |rate_per_second| {
            let link = LinkFacts { receive_window_limited_ratio, ..LinkFacts::default() };
            let second_leg = Some(SecondLeg { rate_per_second, ..SecondLeg::default() });
            judge(&Facts { second_leg, ..run(link) }).limit
        };
        assert_eq!(of(2.0 * 131.25e6), Limit::Window);
        assert_ne!(of(0.93 * 131.25e6), Limit::Window, "a slow reader keeps it closed");
    }

    #[test]
    fn a_full_link_is_no_window() {
        let path = DeclaredPath { link: Some(Rate(140e6)), ..DeclaredPath::default() };
        let facts = Facts { path, ..run(half_a_megabyte()) };
        assert_eq!(judge(&facts).limit, Limit::Link);
    }

    #[test]
    fn a_window_that_is_far_from_the_rate_is_none() {
        let window_bytes = Some(Bytes(4 << 20));
        let verdict = judge(&run(LinkFacts { window_bytes, ..half_a_megabyte() }));
        assert_eq!(verdict.limit, Limit::Unknown);
    }
}
