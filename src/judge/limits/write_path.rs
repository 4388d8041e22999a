//! `write_path`: journals, logs and flushes that a write goes through.

use super::{Finding, percent};
use crate::base::limits::LINK_SHARE;
use crate::base::units::Rate;
use crate::judge::ceilings::{self, Believed};
use crate::judge::confidence::Margin;
use crate::judge::facts::Facts;
use crate::model::path::Wal;
use crate::model::verdict::{Ceiling, Trust, Unit};

const AMPLIFIED: Margin = Margin { x: 0.0, threshold: 1.5, full: 1.8 };
const FLUSHING: Margin = Margin { x: 0.0, threshold: 0.3, full: 0.6 };
/// Of what the same disks read, or are said to move; written twice it is half.
const SLOWER: Margin = Margin { x: 0.0, threshold: 0.7, full: 0.5 };
/// Slower writes alone have other reasons too.
const SLOWER_MOST: f64 = 0.5;

pub(super) fn look(facts: &Facts) -> Option<Finding> {
    if facts.is_link() || !facts.writes() {
        return None;
    }
    let amplified = facts.device.write_amplification.map(|x| Margin { x, ..AMPLIFIED });
    let flushing = facts.device.flush_ratio.map(|share| Margin { x: share.0, ..FLUSHING });
    let reference = reference(facts);
    let slower = reference
        .as_ref()
        .filter(|_| may_be_slower(facts))
        .map(|ceiling| Margin { x: facts.write_bytes() / ceiling.value, ..SLOWER });
    let same = facts.backing.wal == Some(Wal::Same);
    let seen: Vec<Margin> = [amplified, flushing, slower].into_iter().flatten().collect();
    let rank = |m: &Margin| (m.reached(), m.share(), m.nearness());
    let best = seen
        .iter()
        .copied()
        .max_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal))?;
    let reached = |margin: Option<Margin>| margin.is_some_and(Margin::reached);
    let by_rate_alone = !reached(amplified) && !reached(flushing);
    let count = seen.iter().filter(|margin| margin.reached()).count() + usize::from(same);
    let mut found = Finding::new(best, best.x, sentence(same, reached(flushing), by_rate_alone))
        .only_if(best.reached() && !at_a_link(facts) && !(by_rate_alone && has_own_log(facts)))
        .second(count >= 2)
        .at_most_if(by_rate_alone && !same, SLOWER_MOST)
        .advise("put the journal or log on flash of its own");
    // What the device wrote is counted below every cache.
    found.counted = reached(amplified);
    if let Some(m) = amplified {
        found = found.because(format!("the device wrote {:.2} x what was asked", m.x));
    }
    if let Some(m) = flushing {
        found = found.because(format!("flushes took {} of the run", percent(m.x)));
    }
    if let (Some(m), Some(ceiling)) = (slower, &reference) {
        let most = Rate(ceiling.value);
        found = found.because(format!("{} of {most}, {}", percent(m.x), ceiling.source));
        found.ratio = if by_rate_alone { Some(m.x) } else { found.ratio };
    }
    let found = found.because_if(same, "the log is declared to be on the same device");
    // Of what reads reach, only a rate is a share.
    Some(found.under(reference.filter(|_| slower.is_some() && by_rate_alone)))
}

fn sentence(same: bool, flushing: bool, by_rate_alone: bool) -> &'static str {
    match () {
        () if same => "each byte is written twice to the same device, first to the log",
        () if flushing => "writes wait for flushes of a journal or log",
        () if by_rate_alone => "writes are slower than reads: probably a journal or log on the way",
        () => "the device writes more than was asked: a journal, a log or copies",
    }
}

/// Then writes that are merely slow have another reason.
fn has_own_log(facts: &Facts) -> bool {
    facts.backing.wal == Some(Wal::Separate)
}

fn at_a_link(facts: &Facts) -> bool {
    let Some((bytes, _)) = ceilings::link_load(facts) else { return false };
    matches!(ceilings::link(facts), Believed::Yes(ceiling) if bytes >= LINK_SHARE * ceiling.value)
}

/// Sequential large writes to spindles that are saturated, or of which nothing is known; where they
/// are copied over a network, the copies are the nearer reason.
fn may_be_slower(facts: &Facts) -> bool {
    let pure = facts.write_ratio().is_some_and(|writes| writes >= 1.0);
    let large = facts.is_large() == Some(true) && facts.is_sequential();
    let spindles = facts.rotational() == Some(true);
    let legs = facts.saturation().is_none() || facts.is_saturated();
    pure && large && spindles && legs && facts.replicas() <= 1.0
}

/// What the same disks read in large blocks; else what they are declared to move.
fn reference(facts: &Facts) -> Option<Ceiling> {
    let read = facts.known.sequential_read_bytes_per_second.map(|rate| rate.0);
    let declared = facts.backing.bandwidth.zip(facts.devices()).map(|(one, n)| one.0 * n);
    let (value, trust, source) = match (read, declared) {
        (Some(read), _) => (read, Trust::Detected, "what it reads"),
        (None, Some(declared)) => {
            (declared, Trust::Declared, "what its disks are declared to move")
        }
        (None, None) => return None,
    };
    let source = (trust, source.to_owned());
    let ceiling = Ceiling::lasting((value, Unit::BytesPerSecond), ("disks", "write"), source);
    (value > 0.0).then_some(ceiling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, MIB, Ratio};
    use crate::judge::facts::{DeviceFacts, Known};
    use crate::judge::limits::judge;
    use crate::model::job::Access;
    use crate::model::outcome::Flags;
    use crate::model::path::{DeclaredBacking, DeclaredPath, Media};
    use crate::model::verdict::Limit;

    fn writing(bytes: f64) -> Facts {
        Facts {
            access: Some(Access::Sequential),
            block_bytes: Some(Bytes(MIB)),
            write_bytes_per_second: Some(Rate(bytes)),
            backing: DeclaredBacking { media: Some(Media::Hdd), ..DeclaredBacking::default() },
            ..Facts::default()
        }
    }

    #[test]
    fn twice_the_bytes_at_the_device_is_the_double_write() {
        let of = |write_amplification, flush| {
            let flush_ratio = Some(Ratio(flush));
            let write_amplification = Some(write_amplification);
            let device = DeviceFacts { write_amplification, flush_ratio, ..Default::default() };
            judge(&Facts { device, ..writing(60e6) })
        };
        assert_eq!(of(1.4, 0.1).limit, Limit::Unknown);
        let double = of(2.0, 0.1);
        assert_eq!((double.limit, double.confidence), (Limit::WritePath, 0.75));
        assert_eq!(of(2.0, 0.4).confidence, 1.0, "two of its tests");
    }

    #[test]
    fn a_journal_that_takes_no_direct_writes_is_counted_at_the_device_all_the_same() {
        let of = |write_amplification, flush| {
            let flush_ratio = Some(Ratio(flush));
            let write_amplification = Some(write_amplification);
            let device = DeviceFacts { write_amplification, flush_ratio, ..Default::default() };
            let flags = Flags { direct: Some(false), ..Flags::default() };
            judge(&Facts { device, flags, ..writing(12e6) }).confidence
        };
        assert_eq!((of(2.0, 0.1), of(1.0, 0.7)), (0.75, 0.3));
    }

    #[test]
    fn slower_than_reads_alone_is_at_most_a_guess() {
        let known =
            |read| Known { sequential_read_bytes_per_second: Some(Rate(read)), ..Known::default() };
        let of = |read| judge(&Facts { known: known(read), ..writing(68e6) });
        assert_eq!(of(90e6).limit, Limit::Unknown);
        let verdict = of(107e6);
        assert_eq!((verdict.limit, verdict.confidence), (Limit::WritePath, 0.5));
    }

    #[test]
    fn time_in_flushes_is_no_share_of_what_reads_reach() {
        let known =
            Known { sequential_read_bytes_per_second: Some(Rate(107e6)), ..Known::default() };
        let ceiling = |flush| {
            let device = DeviceFacts { flush_ratio: Some(Ratio(flush)), ..Default::default() };
            judge(&Facts { device, known: known.clone(), ..writing(68e6) }).ceiling
        };
        assert_eq!(ceiling(0.1).map(|ceiling| ceiling.value), Some(107e6));
        assert_eq!(ceiling(0.5), None);
    }

    #[test]
    fn copies_behind_a_network_are_the_nearer_reason() {
        let mut facts = writing(40e6);
        facts.known.sequential_read_bytes_per_second = Some(Rate(110e6));
        facts.backing.wire = DeclaredPath { link: Some(Rate(1.25e9)), ..DeclaredPath::default() };
        facts.backing.replicas = Some(3);
        assert_eq!(judge(&facts).limit, Limit::Unknown);
    }
}
