//! A set of runs judged together: what one run on a backing says of another.

use super::advice;
use super::facts::{Facts, Run, Subject};
use super::limits::judge;
use crate::base::limits::{DEVICE_SHARE, FOREIGN_SHARE};
use crate::base::units::{Bytes, Frequency, Rate};
use crate::model::verdict::{Advice, Verdict};

/// Every run with its verdict, and what to change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    pub runs: Vec<(Run, Verdict)>,
    pub advice: Vec<Advice>,
}

/// Judges all of `runs`, each in the light of the others.
pub fn judge_all(mut runs: Vec<Run>) -> Judged {
    tell_each_other(&mut runs);
    let runs: Vec<(Run, Verdict)> = runs
        .into_iter()
        .map(|run| {
            let verdict = judge(&run.facts);
            (run, verdict)
        })
        .collect();
    let advice = advice::advise(&runs);
    Judged { runs, advice }
}

/// Adds to what is known of each run what the others on the same backing say.
pub fn tell_each_other(runs: &mut [Run]) {
    for index in 0..runs.len() {
        let (sequential, others) = (sequential_read(runs, index), other_blocks(runs, index));
        let known = &mut runs[index].facts.known;
        known.sequential_read_bytes_per_second =
            known.sequential_read_bytes_per_second.or(sequential);
        for other in others {
            if !known.other_blocks.contains(&other) {
                known.other_blocks.push(other);
            }
        }
    }
}

/// The same things under both: what one says is true of the other.
fn same_backing(a: &Facts, b: &Facts) -> bool {
    let place = |facts: &Facts| (facts.subject, facts.place.clone());
    a.subject != Subject::Link && place(a) == place(b) && a.backing == b.backing
}

/// Whether its numbers are those of the medium: not of a cache, and not beside others' load.
fn is_of_the_medium(facts: &Facts) -> bool {
    let (flags, device) = (&facts.flags, &facts.device);
    flags.cached != Some(true)
        && flags.contended != Some(true)
        && device.foreign_share.is_none_or(|share| share <= FOREIGN_SHARE)
        && facts.device_share().is_none_or(|share| share >= DEVICE_SHARE)
}

/// The best large-block read on the same backing.
fn sequential_read(runs: &[Run], index: usize) -> Option<Rate> {
    let me = &runs.get(index)?.facts;
    runs.iter()
        .enumerate()
        .filter(|(other, _)| *other != index)
        .map(|(_, run)| &run.facts)
        .filter(|facts| same_backing(me, facts) && is_of_the_medium(facts))
        .filter(|facts| facts.is_sequential())
        .filter(|facts| facts.is_large() == Some(true) && !facts.writes())
        .filter_map(Facts::bytes)
        .reduce(f64::max)
        .map(Rate)
}

/// Runs of the same mix and depth at another block size.
fn other_blocks(runs: &[Run], index: usize) -> Vec<(Bytes, Frequency)> {
    let Some(me) = runs.get(index).map(|run| &run.facts) else { return Vec::new() };
    let alike = |facts: &Facts| {
        let mix = (facts.write_ratio(), facts.access, facts.depth);
        let same = same_backing(me, facts) && is_of_the_medium(facts);
        same && mix == (me.write_ratio(), me.access, me.depth)
    };
    let block = |facts: &Facts| facts.mean_block().map(|block| Bytes(block.round() as u64));
    runs.iter()
        .enumerate()
        .filter(|(other, run)| *other != index && alike(&run.facts))
        .filter(|(_, run)| block(&run.facts) != block(me))
        .filter_map(|(_, run)| Some((block(&run.facts)?, Frequency(run.facts.operations()?))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::Access;
    use crate::model::path::{DeclaredBacking, Media};
    use crate::model::verdict::Limit;

    fn sequential(read: f64, write: f64, media: Media) -> Run {
        let some = |rate: f64| (rate > 0.0).then_some(Rate(rate));
        Run {
            facts: Facts {
                access: Some(Access::Sequential),
                block_bytes: Some(Bytes(1 << 20)),
                read_bytes_per_second: some(read),
                write_bytes_per_second: some(write),
                backing: DeclaredBacking { media: Some(media), ..DeclaredBacking::default() },
                ..Facts::default()
            },
            ..Run::default()
        }
    }

    #[test]
    fn a_write_is_measured_by_a_read_on_the_same_backing_only() {
        let limits = |other: Media| {
            let runs = vec![sequential(110e6, 0.0, other), sequential(0.0, 60e6, Media::Hdd)];
            judge_all(runs).runs[1].1.limit
        };
        assert_eq!(limits(Media::Hdd), Limit::WritePath);
        assert_eq!(limits(Media::Nvme), Limit::Unknown);
    }

    #[test]
    fn what_a_cache_answered_or_others_disturbed_is_no_reference() {
        let limit = |spoil: fn(&mut Facts)| {
            let mut read = sequential(110e6, 0.0, Media::Hdd);
            spoil(&mut read.facts);
            judge_all(vec![read, sequential(0.0, 60e6, Media::Hdd)]).runs[1].1.limit
        };
        assert_eq!(limit(|_| {}), Limit::WritePath);
        assert_eq!(limit(|facts| facts.device.foreign_share = Some(0.1)), Limit::WritePath);
        let spoilt: [fn(&mut Facts); 4] = [
            |facts| facts.flags.cached = Some(true),
            |facts| facts.flags.contended = Some(true),
            |facts| facts.device.foreign_share = Some(0.11),
            |facts| facts.device.read_share = Some(0.4),
        ];
        for spoil in spoilt {
            assert_eq!(limit(spoil), Limit::Unknown);
        }
    }

    #[test]
    fn other_blocks_are_told_of_undisturbed_runs_only() {
        let run = |block: u64, contended| {
            let mut run = sequential(100.0 * block as f64, 0.0, Media::Ssd);
            run.facts.block_bytes = Some(Bytes(block));
            run.facts.read_operations_per_second = Some(Frequency(100.0));
            run.facts.flags.contended = Some(contended);
            run
        };
        let told = |contended| {
            let mut runs = vec![run(4096, false), run(16_384, contended)];
            tell_each_other(&mut runs);
            runs.swap_remove(0).facts.known.other_blocks
        };
        assert_eq!(told(false), [(Bytes(16_384), Frequency(100.0))]);
        assert_eq!(told(true), []);
    }

    #[test]
    fn judging_again_what_was_judged_says_the_same() {
        let runs = vec![sequential(110e6, 0.0, Media::Hdd), sequential(0.0, 60e6, Media::Hdd)];
        let first = judge_all(runs);
        let again = judge_all(first.runs.iter().map(|(run, _)| run.clone()).collect());
        assert_eq!(first, again);
    }
}
