//! The workload against exact arithmetic (the published shares) and the laws of its arrivals.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::base::units::{Bytes, GIB, MIB};
use crate::model::oltp::BLOCK_BYTES;

const OPERATIONS: usize = 1_000_000;

fn sizes(region: u64) -> Sizes {
    Sizes::within(Bytes(region)).unwrap()
}

fn requests(arrivals: &Arrivals, region: u64, seed: u64) -> impl Iterator<Item = Request> {
    Generator::new(arrivals, &sizes(region), seed)
}

/// Mean of a sample, and four deviations of that mean.
#[derive(Default)]
struct Mean {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Mean {
    fn take(&mut self, value: f64) {
        self.n += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    fn is(&self, expected: f64) {
        let mean = self.sum / self.n;
        let four = 4.0 * ((self.squares / self.n - mean * mean) / self.n).sqrt();
        // The published figures have four digits.
        assert!((mean - expected).abs() < four + 5e-5, "{mean} for {expected}, within {four}");
    }
}

/// Sums `weight` over requests that `of` holds for, as a share of all: `(share, four deviations)`.
fn share(
    all: &[Request],
    of: impl Fn(&Request) -> bool,
    weight: impl Fn(&Request) -> f64,
) -> (f64, f64) {
    let total: f64 = all.iter().map(&weight).sum();
    let part: f64 = all.iter().filter(|r| of(r)).map(&weight).sum();
    let share = part / total;
    // Of a ratio of sums: by the deviation of w x (is - share).
    let squares = all.iter().map(|r| (weight(r) * (f64::from(u8::from(of(r))) - share)).powi(2));
    (share, 4.0 * squares.sum::<f64>().sqrt() / total)
}

#[test]
fn a_million_operations_are_what_was_published() {
    for (variant, reads, within, bytes_read) in [
        (Variant::Pblio, 0.5523, [0.7794, 0.7138, 0.0], 0.4119),
        (Variant::Classic, 0.3944, [0.5587, 0.4992, 0.0], 0.3331),
    ] {
        let arrivals = Arrivals::bsus(variant, 20, None);
        let all: Vec<_> = requests(&arrivals, 100 * GIB, 7).take(OPERATIONS).collect();
        let (mut is_read, mut kib) = (Mean::default(), Mean::default());
        let (mut reads_of, mut kib_of) = ([(); 3].map(|()| Mean::default()), BTreeMap::new());
        for request in &all {
            let (read, size) = (f64::from(u8::from(!request.write)), request.blocks as f64 * 4.0);
            is_read.take(read);
            kib.take(size);
            reads_of[request.asu].take(read);
            kib_of.entry(request.asu).or_insert_with(Mean::default).take(size);
        }
        is_read.is(reads);
        kib.is(8.0144);
        for (asu, expected) in within.into_iter().enumerate() {
            reads_of[asu].is(expected);
        }
        // Of 59.6, 12.3 and 28.1 %: the mixed ones are 7.0, 3.5 and all of them.
        for (asu, expected) in [5.2215, 6.9593, 14.4].into_iter().enumerate() {
            kib_of[&asu].is(expected);
        }
        let blocks = |r: &Request| r.blocks as f64;
        for (asu, expected) in [0.388, 0.107, 0.505].into_iter().enumerate() {
            let (share, four) = share(&all, |r| r.asu == asu, blocks);
            assert!((share - expected).abs() < four + 5e-4, "asu {asu}: {share}, within {four}");
        }
        let (share, four) = share(&all, |r| !r.write, blocks);
        assert!((share - bytes_read).abs() < four + 5e-5, "{share} for {bytes_read}");
        // 50 a second of each BSU.
        let time = all.last().unwrap().at.as_secs_f64();
        let rate = OPERATIONS as f64 / time / 20.0;
        assert!((rate / 50.0 - 1.0).abs() < 4.0 / (OPERATIONS as f64).sqrt(), "{rate}");
    }
}

#[test]
fn each_stream_has_its_share_and_its_place() {
    let arrivals = Arrivals::bsus(Variant::Pblio, 20, None);
    let (region, mut count) = (100 * GIB, [0_u32; 8]);
    let mut first = BTreeMap::new();
    let mut last: BTreeMap<(usize, u64), ()> = BTreeMap::new();
    for r in requests(&arrivals, region, 3).take(OPERATIONS) {
        count[r.stream] += 1;
        let size = sizes(region).0[r.asu];
        let place = r.block as f64 / size as f64;
        let range = match r.stream {
            0 | 4 => 0.0..1.0,
            1 => 0.15..0.2,
            2 | 6 => 0.2..0.7 + 1e-6,
            3 => 0.7..0.75,
            5 => 0.47..0.52,
            _ => 0.0..1.0,
        };
        assert!(range.contains(&place), "stream {} at {place}", r.stream);
        assert!(r.block + r.blocks <= size);
        assert!(r.stream != 4 || r.block % 2 == 0, "8 KiB");
        if matches!(r.stream, 2 | 6 | 7) {
            // A run goes on where one of its stream ended, or begins anew.
            if last.remove(&(r.stream, r.block)).is_none() {
                first.entry(r.stream).or_insert_with(Vec::new).push(place);
            }
            last.insert((r.stream, r.block + r.blocks), ());
        }
    }
    for (stream, n) in count.into_iter().enumerate() {
        let p = f64::from(STREAMS[stream].share) / 1000.0;
        let deviation = (p * (1.0 - p) * OPERATIONS as f64).sqrt();
        let expected = p * OPERATIONS as f64;
        assert!((f64::from(n) - expected).abs() < 4.0 * deviation, "{stream}: {n} of {expected}");
    }
    for (stream, range) in [(2, 0.2..0.6), (6, 0.2..0.6), (7, 0.0..0.7)] {
        let starts = &first[&stream];
        assert!(starts.len() >= 20, "{}", starts.len());
        assert!(starts.iter().all(|place| range.contains(place)), "stream {stream}: {starts:?}");
    }
}

/// Largest distance between the distribution of `gaps` and an exponential one with `mean`.
fn kolmogorov_smirnov(mut gaps: Vec<f64>, mean: f64) -> f64 {
    gaps.sort_by(f64::total_cmp);
    let n = gaps.len() as f64;
    let distance = |(i, gap): (usize, &f64)| {
        let expected = 1.0 - (-gap / mean).exp();
        (expected - i as f64 / n).abs().max((expected - (i + 1) as f64 / n).abs())
    };
    gaps.iter().enumerate().map(distance).fold(0.0, f64::max)
}

#[test]
fn gaps_between_arrivals_of_a_stream_are_exponential() {
    let arrivals = Arrivals::bsus(Variant::Pblio, 1, None);
    let mut last = [None; 8];
    let mut gaps: [Vec<f64>; 8] = [(); 8].map(|()| Vec::new());
    for r in requests(&arrivals, GIB, 5).take(OPERATIONS) {
        let at = r.at.as_secs_f64();
        if let Some(before) = last[r.stream].replace(at) {
            gaps[r.stream].push(at - before);
        }
    }
    for (stream, gaps) in gaps.into_iter().enumerate() {
        let (n, mean) = (gaps.len() as f64, 20.0 / f64::from(STREAMS[stream].share));
        let distance = kolmogorov_smirnov(gaps, mean);
        // 1.95 / root n: a chance of 1 in 1000. Rounding to 0.1 ms adds half of that at most.
        let most = 1.95 / n.sqrt() + 0.00005 / mean;
        assert!(distance < most, "stream {stream}: {distance}, at most {most}");
        assert!(kolmogorov_smirnov_of_even(n as usize, mean) > 10.0 * most, "the test can fail");
    }
}

/// The same of arrivals in an even rhythm.
fn kolmogorov_smirnov_of_even(n: usize, mean: f64) -> f64 {
    kolmogorov_smirnov(vec![mean; n.min(10_000)], mean)
}

#[test]
fn all_arrivals_of_many_bsus_together_are_a_poisson_stream() {
    let arrivals = Arrivals::bsus(Variant::Pblio, 40, None);
    let mut counts = vec![0.0_f64; 2000];
    for r in requests(&arrivals, GIB, 9) {
        match counts.get_mut(r.at.as_secs_f64() as usize) {
            Some(count) => *count += 1.0,
            None => break,
        }
    }
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / counts.len() as f64;
    assert!((mean / 2000.0 - 1.0).abs() < 4.0 / (2000.0 * 2000.0_f64).sqrt(), "{mean}");
    // Variance / mean of a Poisson count is 1, with a deviation of root(2 / n).
    assert!((variance / mean - 1.0).abs() < 4.0 * (2.0 / 2000.0_f64).sqrt(), "{variance} {mean}");
}

#[test]
fn a_seed_is_a_trace_and_contexts_change_only_the_trace() {
    let arrivals = |contexts| Arrivals::bsus(Variant::Pblio, 250, contexts);
    let trace = |contexts, seed| {
        requests(&arrivals(contexts), 4 * GIB, seed).take(100_000).collect::<Vec<_>>()
    };
    assert_eq!(trace(None, 1), trace(None, 1));
    assert_ne!(trace(None, 1), trace(None, 2));
    assert_eq!(arrivals(None).contexts, 3);
    for contexts in [1, 3, 7] {
        let all = trace(Some(contexts), 1);
        assert!(all.is_sorted_by_key(|r| r.at));
        let rate = all.len() as f64 / all.last().unwrap().at.as_secs_f64();
        assert!((rate / 12_500.0 - 1.0).abs() < 4.0 / 100_000_f64.sqrt(), "{contexts}: {rate}");
    }
}

#[test]
fn contexts_are_one_for_each_hundred_bsus_begun() {
    for (bsus, contexts) in [(1, 1), (2, 1), (60, 1), (100, 1), (101, 2), (250, 3)] {
        assert_eq!(Arrivals::bsus(Variant::Pblio, bsus, None).contexts, contexts);
    }
    assert_eq!(Arrivals::bsus(Variant::Pblio, 3, Some(9)).contexts, 3, "none without a BSU");
}

#[test]
fn any_rate_can_be_offered() {
    for rate in [7.0, 49.9, 50.0, 51.0, 1234.5] {
        let arrivals = Arrivals::at_rate(Variant::Pblio, rate, None);
        assert!((arrivals.rate() - rate).abs() < 1e-9 && arrivals.bsu_rate <= 50.0);
        let all: Vec<_> = requests(&arrivals, GIB, 1).take(50_000).collect();
        let seen = 50_000.0 / all.last().unwrap().at.as_secs_f64();
        assert!((seen / rate - 1.0).abs() < 4.0 / 50_000_f64.sqrt(), "{seen} of {rate}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_request_leaves_its_unit_however_small(
        region in 11 * MIB..3 * GIB, bsus in 1_u32..150, seed in any::<u64>(),
    ) {
        let arrivals = Arrivals::bsus(Variant::Classic, bsus, None);
        for r in requests(&arrivals, region, seed).take(3000) {
            let size = sizes(region).0[r.asu];
            prop_assert!(r.blocks >= 1 && r.block + r.blocks <= size);
            prop_assert!(size * BLOCK_BYTES < region);
        }
    }
}
