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

/// Offsets and directions of a profile over a region; each job keeps to its own part of it.
#[derive(Debug)]
pub struct Pattern {
    rng: Rng,
    access: Access,
    reads: f64,
    block: u64,
    /// Blocks of one job's part.
    blocks: u64,
    /// Next block of each job, where access is sequential.
    next: Vec<u64>,
}

impl Pattern {
    /// # Errors
    /// A part of the region is smaller than one block.
    pub fn new(profile: &Profile, region: Bytes, seed: u64) -> Result<Self, Fault> {
        let (block, jobs) = (profile.block.0, u64::from(profile.jobs));
        let blocks = region.0.checked_div(block).and_then(|n| n.checked_div(jobs)).unwrap_or(0);
        if blocks == 0 {
            let text =
                format!("{region} is too small for {jobs} jobs with {} blocks", Bytes(block));
            return Err(Fault::new(FaultKind::Unsupported, text));
        }
        Ok(Self {
            rng: Rng::with_seed(seed),
            access: profile.access,
            reads: profile.reads.0,
            block,
            blocks,
            next: vec![0; profile.jobs as usize],
        })
    }

    /// The next step of `job`: sequential access wraps at its part's end, random draws are
    /// independent, and a mix tosses a coin for each operation.
    pub fn step(&mut self, job: usize) -> Step {
        let Some(next) = self.next.get_mut(job) else { return Step { offset: 0, write: false } };
        let within = match self.access {
            Access::Sequential => {
                let here = *next;
                *next = (here + 1) % self.blocks;
                here
            }
            Access::Random => self.rng.u64(..self.blocks),
        };
        let write = self.rng.f64() >= self.reads;
        Step { offset: (job as u64 * self.blocks + within) * self.block, write }
    }
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
        }
    }

    #[test]
    fn sequential_jobs_wrap_within_their_own_part() {
        let profile = profile(Access::Sequential, 1.0, 4096);
        let mut pattern = Pattern::new(&profile, Bytes(4 * 4096), 1).unwrap();
        let offsets = |p: &mut Pattern, job| [0; 3].map(|_| p.step(job).offset / 4096);
        assert_eq!(offsets(&mut pattern, 0), [0, 1, 0]);
        assert_eq!(offsets(&mut pattern, 1), [2, 3, 2]);
    }

    #[test]
    fn a_region_under_a_block_a_job_is_refused_by_name() {
        let profile = profile(Access::Random, 1.0, 4096);
        let fault = Pattern::new(&profile, Bytes(4096), 1).unwrap_err();
        assert_eq!(fault.text, "4 KiB is too small for 2 jobs with 4 KiB blocks");
        let none = Profile { jobs: 0, ..profile };
        assert!(Pattern::new(&none, Bytes(4096), 1).is_err());
    }

    #[test]
    fn a_mix_is_a_coin_toss_with_its_share() {
        let profile = profile(Access::Random, 0.7, 4096);
        let mut pattern = Pattern::new(&profile, Bytes(1 << 30), 7).unwrap();
        let reads = (0..20_000).filter(|_| !pattern.step(0).write).count();
        // Four standard deviations of a binomial of 20,000 at 0.7.
        assert!((13_741..=14_259).contains(&reads), "{reads}");
    }

    #[test]
    fn random_offsets_are_uniform_over_the_part() {
        let profile = profile(Access::Random, 1.0, 4096);
        let mut pattern = Pattern::new(&profile, Bytes(2 * 16 * 4096), 3).unwrap();
        let mut seen = [0_u32; 16];
        for _ in 0..16_000 {
            seen[(pattern.step(1).offset / 4096) as usize - 16] += 1;
        }
        // Chi-square with 15 degrees of freedom: above 44 has a chance of 1 in 10,000.
        let chi: f64 = seen.iter().map(|n| (f64::from(*n) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 44.0, "{chi}");
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
    fn another_run_writes_other_bytes() {
        let (mut one, mut other) = (vec![0; UNIT], vec![0; UNIT]);
        Filler::new(1).fill(&mut one);
        Filler::new(2).fill(&mut other);
        assert_ne!(one[16..], other[16..]);
    }

    proptest! {
        #[test]
        fn every_step_lies_in_its_jobs_part(
            random in any::<bool>(), jobs in 1_u32..5,
            region in 1_u64..1_000_000, seed in any::<u64>(),
        ) {
            let access = if random { Access::Random } else { Access::Sequential };
            let profile = Profile { jobs, ..profile(access, 0.5, 512) };
            if let Ok(mut pattern) = Pattern::new(&profile, Bytes(region), seed) {
                let part = region / 512 / u64::from(jobs) * 512;
                for i in 0..50 {
                    let job = i % jobs as usize;
                    let step = pattern.step(job);
                    prop_assert_eq!(step.offset % 512, 0);
                    let from = job as u64 * part;
                    prop_assert!(step.offset >= from && step.offset + 512 <= from + part);
                }
            }
        }
    }
}
