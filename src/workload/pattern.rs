//! Which offset comes next, in which direction, and with what bytes; all of it follows from a seed.

use fastrand::Rng;

use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Bytes;
use crate::model::job::{Access, Profile};

/// The next operation of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub offset: u64,
    pub write: bool,
}

/// Offsets and directions of one job of a profile, which keeps to its own part of the region.
#[derive(Debug)]
pub struct Pattern {
    rng: Rng,
    reads: f64,
    block: u64,
    /// The part's first block, and how many it has.
    first: u64,
    blocks: u64,
    walk: Walk,
}

/// How a job walks through its part.
#[derive(Debug)]
enum Walk {
    /// The next block.
    Sequential(u64),
    Random,
    RandomMap(Shuffle),
}

impl Pattern {
    /// Of the job of this number; each has draws of its own.
    ///
    /// # Errors
    /// A part of the region is smaller than one block.
    pub fn new(profile: &Profile, region: Bytes, seed: u64, job: u32) -> Result<Self, Fault> {
        let (block, jobs) = (profile.block.0, u64::from(profile.jobs));
        let blocks = region.0.checked_div(block).and_then(|n| n.checked_div(jobs)).unwrap_or(0);
        if blocks == 0 {
            let text =
                format!("{region} is too small for {jobs} jobs with {} blocks", Bytes(block));
            return Err(Fault::new(FaultKind::Unsupported, text));
        }
        let seed = derived(seed, u64::from(job) + 1);
        let walk = match profile.access {
            Access::Sequential => Walk::Sequential(0),
            Access::Random => Walk::Random,
            Access::RandomMap => Walk::RandomMap(Shuffle::new(blocks, derived(seed, 1))),
        };
        let first = u64::from(job) * blocks;
        Ok(Self { rng: Rng::with_seed(seed), reads: profile.reads.0, block, first, blocks, walk })
    }

    /// The next step: sequential access wraps at the part's end, random draws are independent or
    /// map each block once a pass, and a mix tosses a coin for each operation.
    pub fn step(&mut self) -> Step {
        let within = match &mut self.walk {
            Walk::Sequential(next) => {
                let here = *next;
                *next = if here + 1 == self.blocks { 0 } else { here + 1 };
                here
            }
            Walk::Random => self.rng.u64(..self.blocks),
            Walk::RandomMap(shuffle) => shuffle.next(),
        };
        let write = self.reads < 1.0 && self.rng.f64() >= self.reads;
        Step { offset: (self.first + within) * self.block, write }
    }
}

/// Numbers below `count` in random order, each once before any comes again, and in another order
/// each time: a Feistel network permutes the next power of four, and what lies beyond `count` is
/// permuted again until it doesn't. No map is kept, so a region of any size costs nothing.
#[derive(Debug)]
struct Shuffle {
    rng: Rng,
    count: u64,
    next: u64,
    /// Width of half a number, and its mask.
    bits: u32,
    mask: u64,
    keys: [u64; 4],
}

impl Shuffle {
    fn new(count: u64, seed: u64) -> Self {
        let bits = (u64::BITS - count.saturating_sub(1).leading_zeros()).div_ceil(2).max(1);
        let (mask, mut rng) = ((1 << bits) - 1, Rng::with_seed(seed));
        let keys = [(); 4].map(|()| rng.u64(..));
        Self { rng, count, next: 0, bits, mask, keys }
    }

    fn next(&mut self) -> u64 {
        if self.next == self.count {
            self.next = 0;
            self.keys = self.keys.map(|_| self.rng.u64(..));
        }
        let mut number = self.permuted(self.next);
        while number >= self.count {
            number = self.permuted(number);
        }
        self.next += 1;
        number
    }

    fn permuted(&self, number: u64) -> u64 {
        let (mut left, mut right) = (number >> self.bits, number & self.mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mixed(right ^ key) & self.mask));
        }
        left << self.bits | right
    }
}

/// A seed for one purpose out of that of the run, with nothing in common with its neighbours.
pub(super) fn derived(seed: u64, purpose: u64) -> u64 {
    mixed(seed ^ mixed(purpose))
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Size of the unit that deduplicating layers compare.
const UNIT: usize = 4096;

/// Makes blocks that no layer below can compress, and that are never twice the same.
#[derive(Debug)]
pub struct Filler {
    rng: Rng,
    seed: u64,
    counter: u64,
}

impl Filler {
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed.rotate_left(32) ^ 0x6c6f_6164), seed, counter: 0 }
    }

    /// Refills `buffer`; each 4 KiB begins with the seed and a number of its own.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.rng.fill(buffer);
        for unit in buffer.chunks_mut(UNIT) {
            if let Some(stamp) = unit.get_mut(..16) {
                stamp[..8].copy_from_slice(&self.seed.to_le_bytes());
                stamp[8..].copy_from_slice(&self.counter.to_le_bytes());
            }
            self.counter += 1;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::base::units::{Ratio, Seconds};

    pub(crate) fn profile(access: Access, reads: f64, block: u64) -> Profile {
        Profile {
            name: "test".into(),
            access,
            reads: Ratio(reads),
            block: Bytes(block),
            depth: 4,
            jobs: 2,
            runtime: Seconds(0.3),
            ramp: Seconds(0.0),
            bytes_max: Bytes(64 << 20),
            operations_max: None,
            span: None,
            sync: false,
            flush: true,
            direct: false,
            oltp: None,
        }
    }

    #[test]
    fn sequential_jobs_wrap_within_their_own_part() {
        let profile = profile(Access::Sequential, 1.0, 4096);
        let offsets = |job| {
            let mut pattern = Pattern::new(&profile, Bytes(4 * 4096), 1, job).unwrap();
            [0; 3].map(|_| pattern.step().offset / 4096)
        };
        assert_eq!(offsets(0), [0, 1, 0]);
        assert_eq!(offsets(1), [2, 3, 2]);
    }

    #[test]
    fn a_region_under_a_block_a_job_is_refused_by_name() {
        let profile = profile(Access::Random, 1.0, 4096);
        let fault = Pattern::new(&profile, Bytes(4096), 1, 0).unwrap_err();
        assert_eq!(fault.text, "4 KiB is too small for 2 jobs with 4 KiB blocks");
        let none = Profile { jobs: 0, ..profile };
        assert!(Pattern::new(&none, Bytes(4096), 1, 0).is_err());
    }

    #[test]
    fn a_mix_is_a_coin_toss_with_its_share() {
        let profile = profile(Access::Random, 0.7, 4096);
        let mut pattern = Pattern::new(&profile, Bytes(1 << 30), 7, 0).unwrap();
        let reads = (0..20_000).filter(|_| !pattern.step().write).count();
        // Four standard deviations of a binomial of 20,000 at 0.7.
        assert!((13_741..=14_259).contains(&reads), "{reads}");
    }

    #[test]
    fn random_offsets_are_uniform_over_the_part() {
        let profile = profile(Access::Random, 1.0, 4096);
        let mut pattern = Pattern::new(&profile, Bytes(2 * 16 * 4096), 3, 1).unwrap();
        let mut seen = [0_u32; 16];
        for _ in 0..16_000 {
            seen[(pattern.step().offset / 4096) as usize - 16] += 1;
        }
        // Chi-square with 15 degrees of freedom: above 44 has a chance of 1 in 10,000.
        let chi: f64 = seen.iter().map(|n| (f64::from(*n) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 44.0, "{chi}");
    }

    #[test]
    fn jobs_of_one_leg_have_draws_of_their_own() {
        for access in [Access::Random, Access::RandomMap] {
            let profile = profile(access, 1.0, 4096);
            let steps = |job: u32| {
                let mut pattern = Pattern::new(&profile, Bytes(1 << 30), 3, job).unwrap();
                [(); 8].map(|()| pattern.step().offset - u64::from(job) * (1 << 29))
            };
            assert_ne!(steps(0), steps(1), "{access:?}");
        }
    }

    #[test]
    fn blocks_dont_compress_and_none_comes_twice() {
        let mut filler = Filler::new(42);
        let mut buffer = vec![0; 1 << 20];
        let mut seen = HashSet::new();
        for _ in 0..4 {
            filler.fill(&mut buffer);
            for unit in buffer.chunks(UNIT) {
                assert!(seen.insert(unit.to_vec()), "a block came twice");
            }
        }
        let mut deflate =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        deflate.write_all(&buffer).unwrap();
        let ratio = deflate.finish().unwrap().len() as f64 / buffer.len() as f64;
        assert!(ratio > 0.99, "{ratio}");
    }

    #[test]
    fn another_run_or_leg_writes_other_bytes() {
        let mut seen = HashSet::new();
        // A layout takes the run's seed as it is.
        for seed in [1, 2, derived(1, 1), derived(1, 2), derived(2, 1)] {
            let mut unit = vec![0; UNIT];
            Filler::new(seed).fill(&mut unit);
            assert!(seen.insert(unit[16..].to_vec()), "{seed}");
        }
    }

    #[test]
    fn a_random_map_has_another_order_each_pass_and_each_seed() {
        let pass = |shuffle: &mut Shuffle| (0..1000).map(|_| shuffle.next()).collect::<Vec<_>>();
        let mut shuffle = Shuffle::new(1000, 5);
        let (first, second) = (pass(&mut shuffle), pass(&mut shuffle));
        let other = pass(&mut Shuffle::new(1000, 6));
        assert!(first != second && first != other);
        // Neighbours in time are no neighbours in place: the mean distance of two is a third.
        let far: u64 = first.windows(2).map(|w| w[0].abs_diff(w[1])).sum();
        assert!((300..=366).contains(&(far / 999)), "{far}");
    }

    const ACCESSES: [Access; 3] = [Access::Sequential, Access::Random, Access::RandomMap];

    proptest! {
        #[test]
        fn a_random_map_takes_each_block_once_a_pass(count in 1_u64..3000, seed in any::<u64>()) {
            let mut shuffle = Shuffle::new(count, seed);
            for _ in 0..2 {
                let pass: HashSet<u64> = (0..count).map(|_| shuffle.next()).collect();
                prop_assert_eq!(pass.len() as u64, count);
                prop_assert!(pass.iter().all(|n| *n < count));
            }
        }

        #[test]
        fn every_step_lies_in_its_jobs_part(
            access in prop::sample::select(ACCESSES.to_vec()), jobs in 1_u32..5,
            region in 1_u64..1_000_000, seed in any::<u64>(),
        ) {
            let profile = Profile { jobs, ..profile(access, 0.5, 512) };
            let part = region / 512 / u64::from(jobs) * 512;
            for job in 0..jobs {
                let pattern = Pattern::new(&profile, Bytes(region), seed, job);
                prop_assert_eq!(pattern.is_ok(), part > 0);
                let from = u64::from(job) * part;
                for step in pattern.into_iter().flat_map(|mut p| [(); 50].map(|()| p.step())) {
                    prop_assert_eq!(step.offset % 512, 0);
                    prop_assert!(step.offset >= from && step.offset + 512 <= from + part);
                }
            }
        }
    }
}
