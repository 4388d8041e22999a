//! Limits of a device that is saturated: what lies behind a network, its bandwidth, its operations.

use super::{Finding, legs, percent};
use crate::base::limits::{LINK_SHARE, SPINDLE_BUSY, SUSTAINED_SECONDS};
use crate::base::units::{Frequency, Rate};
use crate::judge::ceilings::{self, Believed};
use crate::judge::confidence::Margin;
use crate::judge::facts::Facts;
use crate::model::path::Media;
use crate::model::verdict::{Ceiling, Unit};

/// Less gain from twice the depth; spindles that order their queue are claimed above the mark too.
const GAIN: Margin = Margin { x: 0.0, threshold: 1.15, full: 1.05 };
/// Of what is declared, from which the declared explains the rate.
const EXPLAINS: f64 = 0.7;
/// A link or CPU that is clearly not the limit.
const IDLE: f64 = 0.5;
const CPU_FREE: f64 = 0.8;
/// Fewer operations may be spindles behind a virtual disk.
const MAY_BE_SPINDLES: f64 = 2000.0;
const GUESS: f64 = 0.5;
/// Near enough to a ceiling to be claimed without a second leg.
const AT_CEILING: Margin = Margin { x: 0.0, threshold: 0.85, full: 0.95 };
const BUSY: Margin = Margin { x: 0.0, threshold: SPINDLE_BUSY, full: 0.99 };

/// Saturated by its legs, or without legs at a ceiling that is believed.
fn margin(facts: &Facts, ceiling: Option<&Ceiling>) -> Option<(Margin, bool)> {
    if let Some(gain) = facts.gain() {
        return Some((Margin { x: gain, ..GAIN }, facts.is_saturated()));
    }
    if let Some(busy) = facts.device.busy_ratio.filter(|_| is_one_busy_spindle(facts)) {
        return Some((Margin { x: busy.0, ..BUSY }, true));
    }
    let ceiling = ceiling?;
    let rate = match ceiling.unit {
        Unit::BytesPerSecond => facts.bytes(),
        Unit::OperationsPerSecond => facts.operations(),
    }?;
    let margin = Margin { x: rate / ceiling.value, ..AT_CEILING };
    Some((margin, margin.reached()))
}

/// Nothing is known of what is under it: what it took may be in somebody's memory.
fn absorbs(facts: &Facts) -> bool {
    facts.device.unseen == Some(true) && facts.backing.media.is_none()
}

const ABSORBS: &str = "no disk is seen under it: a cache may have answered";

/// Behind a network somebody's memory may take writes: this host's, unless they are direct, or the
/// servers', which only a long run outlasts.
fn may_be_absorbed(facts: &Facts) -> bool {
    let outlasts = facts.duration_seconds.is_some_and(|time| time.0 >= SUSTAINED_SECONDS);
    facts.writes() && !(outlasts && facts.flags.direct == Some(true))
}

const ABSORBED: &str = "caches here or at the servers may have taken the writes: a direct run of a minute \
                        outlasts them";

/// Busy is evidence for one spindle, and for nothing else.
fn is_one_busy_spindle(facts: &Facts) -> bool {
    facts.busy_spindles() && facts.devices() == Some(1.0) && !facts.network_backed()
}

/// How much of what the declared disks move this run is; `None` where they aren't declared.
fn explained(facts: &Facts) -> Option<f64> {
    let ceiling = ceilings::disks(facts).ceiling()?;
    Some(facts.bytes()? / ceiling.value)
}

fn link_share(facts: &Facts) -> Option<f64> {
    let Believed::Yes(ceiling) = ceilings::link(facts) else { return None };
    Some(ceilings::link_load(facts)?.0 / ceiling.value)
}

/// If copies went over the clients' link, it would be full: nobody says whether they do.
fn copies_would_fill(facts: &Facts, link: Option<f64>) -> bool {
    let shared = link.map(|share| share * (facts.replicas() - 1.0));
    shared.is_some_and(|share| (LINK_SHARE..=ceilings::BEYOND).contains(&share))
}

/// Behind a network, with no link near its ceiling and nothing declared that explains the rate.
pub(super) fn backend(facts: &Facts) -> Option<Finding> {
    if !facts.network_backed() {
        return None;
    }
    let gain = facts.gain()?;
    let link = link_share(facts);
    let unsaid = facts.writes() && facts.replicas() > 1.0 && facts.backing.shared_link.is_none();
    let idle = |share: Option<f64>| share.is_some_and(|share| share < IDLE);
    let text = "what lies behind the network is the limit: neither the link nor the declared disks";
    let mut found = Finding::new(Margin { x: gain, ..GAIN }, gain, text)
        .second(idle(link) && idle(facts.cpu()))
        .at_most_if(unsaid || link.is_none() || may_be_absorbed(facts), GUESS)
        .advise("look at the storage servers: their disks, CPUs and own links");
    found.holds = facts.is_saturated()
        && link.is_none_or(|share| share < LINK_SHARE)
        && !(unsaid && copies_would_fill(facts, link))
        && explained(facts).is_none_or(|share| share < EXPLAINS);
    if let Some(share) = link {
        found = found.because(format!("the link was used {}", percent(share)));
    }
    if let Some(cpu) = facts.cpu() {
        found = found.because(format!("CPU {}", percent(cpu)));
    }
    found.because.extend(legs(facts));
    let found = found.because_if(may_be_absorbed(facts), ABSORBED);
    Some(found.because_if(unsaid, "whether copies share the link is not declared"))
}

/// Large blocks, or spindles in sequence.
pub(super) fn bandwidth(facts: &Facts) -> Option<Finding> {
    let large = facts.is_large()?;
    let spindles = facts.rotational() == Some(true);
    if facts.is_link() || !(large || (spindles && facts.is_sequential())) {
        return None;
    }
    let declared = ceilings::disks(facts).ceiling();
    let learned = || ceilings::learned(facts, Unit::BytesPerSecond).cloned();
    let ceiling = declared.or_else(learned);
    let (margin, saturated) = margin(facts, ceiling.as_ref())?;
    let bytes = facts.bytes()?;
    let share = ceiling.as_ref().map(|ceiling| bytes / ceiling.value);
    let reasons = !facts.network_backed() || explained(facts).is_some_and(|s| s >= EXPLAINS);
    let busy = facts.device.busy_ratio.is_some_and(|busy| busy.0 >= SPINDLE_BUSY);
    let text = format!("{} is what the device moves", Rate(bytes));
    let mut found = Finding::new(margin, share.unwrap_or(margin.x), text)
        .second(spindles && busy)
        .at_most_if(absorbs(facts), GUESS)
        .because_if(absorbs(facts), ABSORBS)
        .advise("more devices, or faster ones");
    found.holds = saturated && reasons;
    if let (Some(share), Some(ceiling)) = (share, &ceiling) {
        found = found.because(format!("{} of {}", percent(share), ceiling.source));
    }
    found.because.extend(legs(facts));
    Some(found.under(ceiling))
}

/// Smaller blocks on what doesn't turn.
pub(super) fn operations(facts: &Facts) -> Option<Finding> {
    let rotational = facts.rotational();
    if facts.is_link() || facts.is_large()? || rotational == Some(true) {
        return None;
    }
    let rate = facts.operations()?;
    let ceiling = ceilings::learned(facts, Unit::OperationsPerSecond).cloned();
    let (margin, saturated) = margin(facts, ceiling.as_ref())?;
    let share = ceiling.as_ref().map(|ceiling| rate / ceiling.value);
    let reasons = !facts.network_backed() || explained(facts).is_some_and(|s| s >= EXPLAINS);
    let may_turn = rotational.is_none() && rate < MAY_BE_SPINDLES;
    let may_be_held = facts.is_opaque() && facts.rate_cv.is_none();
    let free = facts.cpu().is_some_and(|cpu| cpu < CPU_FREE);
    let what = match facts.backing.media {
        Some(Media::Nvme) => "this NVMe device gives",
        Some(Media::Ssd) => "this SSD gives",
        _ => "this device gives",
    };
    let text = format!("{} is what {what} at this block size", Frequency(rate));
    let mut found = Finding::new(margin, share.unwrap_or(margin.x), text)
        .second(facts.keeps_depth() && free)
        .at_most_if(may_turn || may_be_held || absorbs(facts), GUESS)
        .because_if(absorbs(facts), ABSORBS)
        .because_if(may_turn, "whether spindles are under it is unknown")
        .because_if(may_be_held, "a limit on a virtual or unknown disk would look the same")
        .advise("a faster device, or more of them");
    found.holds = saturated && reasons;
    found.because.extend(legs(facts));
    if let Some(cpu) = facts.cpu() {
        found = found.because(format!("CPU {}", percent(cpu)));
    }
    Some(found.under(ceiling))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, MIB, Ratio, Seconds};
    use crate::judge::facts::{CpuFacts, DeviceFacts, SecondLeg};
    use crate::judge::limits::judge;
    use crate::model::job::Access;
    use crate::model::outcome::Flags;
    use crate::model::path::{DeclaredBacking, DeclaredPath};
    use crate::model::verdict::Limit;

    /// Saturated at 4 KiB, on a device that doesn't turn.
    fn flash(rate: f64) -> Facts {
        let rate_per_second = rate * 1.03;
        Facts {
            access: Some(Access::Random),
            depth: Some(32.0),
            read_operations_per_second: Some(Frequency(rate)),
            read_bytes_per_second: Some(Rate(rate * 4096.0)),
            second_leg: Some(SecondLeg { rate_per_second, ..SecondLeg::default() }),
            backing: DeclaredBacking { media: Some(Media::Nvme), ..DeclaredBacking::default() },
            ..Facts::default()
        }
    }

    #[test]
    fn flat_flash_is_its_operations() {
        let verdict = judge(&flash(900_000.0));
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Operations, 0.75));
        let cpu = CpuFacts { busiest_ratio: Some(Ratio(0.6)), ..CpuFacts::default() };
        let device = DeviceFacts { in_flight: Some(31.0), ..DeviceFacts::default() };
        assert_eq!(judge(&Facts { cpu, device, ..flash(900_000.0) }).confidence, 1.0);
    }

    #[test]
    fn what_may_be_spindles_or_a_limit_is_a_guess() {
        let unknown = |rate| Facts { backing: DeclaredBacking::default(), ..flash(rate) };
        assert_eq!(judge(&unknown(1_500.0)).confidence, 0.5);
        assert_eq!(judge(&unknown(40_000.0)).confidence, 0.5);
        let steady = Facts { rate_cv: Some(0.08), ..unknown(40_123.0) };
        assert_eq!(judge(&steady).confidence, 0.75);
    }

    #[test]
    fn a_layer_that_hides_its_disks_may_be_a_cache() {
        let of = |unseen, media| {
            let device = DeviceFacts { unseen, ..DeviceFacts::default() };
            let backing = DeclaredBacking { media, ..DeclaredBacking::default() };
            let verdict =
                judge(&Facts { device, backing, rate_cv: Some(0.08), ..flash(900_123.0) });
            let said = verdict.because.iter().any(|fact| fact == ABSORBS);
            (verdict.limit, verdict.confidence, said)
        };
        assert_eq!(of(Some(true), None), (Limit::Operations, 0.5, true));
        assert_eq!(of(Some(false), None), (Limit::Operations, 0.75, false));
        assert_eq!(of(Some(true), Some(Media::Nvme)), (Limit::Operations, 0.75, false));
    }

    fn remote(bytes: f64) -> Facts {
        let rate_per_second = bytes / MIB as f64 * 1.02;
        let wire = DeclaredPath { link: Some(Rate(1.25e9)), ..DeclaredPath::default() };
        Facts {
            access: Some(Access::Sequential),
            block_bytes: Some(Bytes(MIB)),
            depth: Some(32.0),
            read_operations_per_second: Some(Frequency(bytes / MIB as f64)),
            read_bytes_per_second: Some(Rate(bytes)),
            second_leg: Some(SecondLeg { rate_per_second, ..SecondLeg::default() }),
            backing: DeclaredBacking { wire, ..DeclaredBacking::default() },
            ..Facts::default()
        }
    }

    #[test]
    fn behind_an_idle_network_the_backend_is_the_limit_unless_its_disks_explain_it() {
        let verdict = judge(&remote(300e6));
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Backend, 0.75));
        let mut disks = remote(300e6);
        disks.backing.bandwidth = Some(Rate(110e6));
        disks.backing.devices = Some(3);
        assert_eq!(judge(&disks).limit, Limit::Bandwidth);
    }

    #[test]
    fn writes_that_a_cache_may_have_taken_are_no_sure_backend() {
        let of = |seconds: f64, direct| {
            let mut facts = remote(300e6);
            facts.write_operations_per_second = facts.read_operations_per_second.take();
            facts.write_bytes_per_second = facts.read_bytes_per_second.take();
            facts.duration_seconds = Some(Seconds(seconds));
            facts.flags = Flags { direct, ..Flags::default() };
            let verdict = judge(&facts);
            let said = verdict.because.iter().any(|fact| fact == ABSORBED);
            (verdict.limit, verdict.confidence, said)
        };
        assert_eq!(of(3.0, None), (Limit::Backend, 0.5, true), "as GlusterFS takes direct I/O");
        assert_eq!(of(3.0, Some(true)), (Limit::Backend, 0.5, true));
        assert_eq!(of(600.0, None), (Limit::Backend, 0.5, true));
        assert_eq!(of(60.0, Some(true)), (Limit::Backend, 0.75, false));
    }

    #[test]
    fn one_busy_spindle_in_sequence_moves_what_it_can() {
        let mut facts = remote(180e6);
        facts.second_leg = None;
        facts.backing = DeclaredBacking { media: Some(Media::Hdd), ..DeclaredBacking::default() };
        assert_eq!(judge(&facts).limit, Limit::Unknown);
        facts.device.busy_ratio = Some(Ratio(0.99));
        let verdict = judge(&facts);
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Bandwidth, 0.5));
        facts.backing.devices = Some(4);
        assert_eq!(judge(&facts).limit, Limit::Unknown);
    }

    #[test]
    fn without_a_second_leg_only_a_declared_bandwidth_speaks() {
        let mut facts = remote(300e6);
        facts.second_leg = None;
        assert_eq!(judge(&facts).limit, Limit::Unknown);
        facts.backing.wire = DeclaredPath::default();
        facts.backing.bandwidth = Some(Rate(310e6));
        let verdict = judge(&facts);
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Bandwidth, 0.5));
    }
}
