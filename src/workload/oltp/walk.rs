//! Addresses with memory: the walk through a hot spot, and runs of one operation after the other.

use fastrand::Rng;

/// Blocks of a leaf: the unit in which a hot spot is walked.
const LEAF: u64 = 8;
/// A jump goes at least this far: 2^6 leaves.
const JUMP_BITS: u32 = 6;
/// Chance that a jump goes twice as far, and again.
const FARTHER: f64 = 0.44;
const TRIES: usize = 100;
/// Of writes: chance to go to any block of the leaf, else to the one that was read last;
const ANY_BLOCK: f64 = 0.5;
/// and chance that the stream's next write goes to the same block.
const REWRITE: f64 = 0.15;

/// What the streams of a context know together of one hot spot: of each leaf, the next block to read.
#[derive(Debug)]
pub(super) struct HotSpot {
    cursors: Vec<u8>,
    /// Jumps are at most 2^levels leaves.
    levels: u32,
}

impl HotSpot {
    /// Of a region of so many blocks.
    pub(super) fn new(blocks: u64) -> Self {
        let leaves = (blocks / LEAF).max(1);
        let levels = u64::BITS - (leaves - 1).leading_zeros();
        Self { cursors: vec![0; leaves as usize], levels }
    }

    fn leaves(&self) -> u64 {
        self.cursors.len() as u64
    }

    /// Another leaf near `leaf`: mostly in the same 64, at times far away.
    fn jump(&self, leaf: u64, write: bool, rng: &mut Rng) -> u64 {
        let mut old = leaf;
        for _ in 0..TRIES {
            let mut bits = JUMP_BITS;
            while bits < self.levels && rng.f64() < FARTHER {
                bits += 1;
            }
            let mut new = (old >> bits << bits) + rng.u64(..1 << bits);
            if write {
                new -= new % LEAF;
            }
            if new < self.leaves() {
                return new;
            }
            old = new;
        }
        rng.u64(..self.leaves())
    }
}

/// One stream in a hot spot.
#[derive(Debug)]
pub(super) struct Walk {
    block: u64,
    written: u64,
    rewrites: bool,
}

impl Walk {
    pub(super) fn new(spot: &HotSpot, rng: &mut Rng) -> Self {
        Self { block: rng.u64(..spot.leaves() * LEAF), written: 0, rewrites: false }
    }

    /// The next block, counted from the start of the hot spot.
    pub(super) fn step(&mut self, spot: &mut HotSpot, write: bool, rng: &mut Rng) -> u64 {
        if write && std::mem::take(&mut self.rewrites) {
            self.block = self.written;
            return self.block;
        }
        let leaf = spot.jump(self.block / LEAF, write, rng);
        let Some(cursor) = spot.cursors.get_mut(leaf as usize) else { return self.block };
        let last_read = (u64::from(*cursor) + LEAF - 1) % LEAF;
        let within = match write {
            false => {
                let next = *cursor;
                *cursor = (next + 1) % LEAF as u8;
                u64::from(next)
            }
            true if rng.f64() < ANY_BLOCK => rng.u64(..LEAF),
            true => last_read,
        };
        self.block = leaf * LEAF + within;
        if write {
            self.written = self.block;
            self.rewrites = rng.f64() < REWRITE;
        }
        self.block
    }
}

/// One operation after the other, until it begins anew somewhere else.
#[derive(Debug, Default)]
pub(super) struct Course {
    next: u64,
    end: u64,
}

/// In blocks: where a course may begin, how far it goes, and where there is nothing more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    pub(super) from: u64,
    pub(super) within: u64,
    pub(super) span: u64,
    pub(super) size: u64,
}

impl Course {
    /// The first of the next `length` blocks.
    pub(super) fn step(&mut self, track: &Track, length: u64, rng: &mut Rng) -> u64 {
        // What is longer than what is left of the unit begins anew as well: there is nothing there.
        if self.next >= self.end || self.next + length > track.size {
            self.next = track.from + rng.u64(..track.within.max(1));
            self.end = self.next + track.span;
        }
        let here = self.next;
        self.next += length;
        here
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_of_a_leaf_take_its_blocks_in_turn_and_half_the_writes_follow_them() {
        // One group of 64 leaves: every jump is one of equal chance.
        let mut spot = HotSpot::new(64 * LEAF);
        let mut rng = Rng::with_seed(1);
        let mut walk = Walk::new(&spot, &mut rng);
        let mut next = [0; 64];
        let (mut writes, mut after_read) = (0, 0);
        for i in 0..40_000 {
            let write = i % 2 == 1;
            let leaf_reads = next;
            let block = walk.step(&mut spot, write, &mut rng);
            let (leaf, within) = ((block / LEAF) as usize, block % LEAF);
            if write {
                assert_eq!(leaf % 8, 0, "writes go to the first of eight leaves");
                writes += 1;
                after_read += u64::from(within == (leaf_reads[leaf] + LEAF - 1) % LEAF);
            } else {
                assert_eq!(within, next[leaf]);
                next[leaf] = (within + 1) % LEAF;
            }
        }
        // A half, and an eighth of the other half; what is written again breaks the rule at times.
        let share = f64::from(u32::try_from(after_read).unwrap()) / f64::from(writes);
        assert!((0.5..0.6).contains(&share), "{share}");
    }

    #[test]
    fn a_jump_stays_in_its_group_by_the_chance_that_it_goes_no_farther() {
        let spot = HotSpot::new(1 << 20);
        let mut rng = Rng::with_seed(2);
        let jumps = 100_000;
        let near = (0..jumps).filter(|_| spot.jump(70_000, false, &mut rng) >> 6 == 70_000 >> 6);
        // 0.56, then shares of wider groups that hold this one: 0.44^n * 0.56 / 2^n.
        let expected: f64 = (0..11).map(|n| 0.56 * 0.22_f64.powi(n)).sum();
        let share = near.count() as f64 / f64::from(jumps);
        let deviation = (expected * (1.0 - expected) / f64::from(jumps)).sqrt();
        assert!((share - expected).abs() < 4.0 * deviation, "{share} of {expected}");
    }

    #[test]
    fn a_course_is_unbroken_until_its_end() {
        let track = Track { from: 200, within: 400, span: 100, size: 1000 };
        let mut rng = Rng::with_seed(3);
        let mut course = Course::default();
        let first = course.step(&track, 16, &mut rng);
        assert!((200..600).contains(&first));
        let mut at = first + 16;
        while at < first + 100 {
            assert_eq!(course.step(&track, 4, &mut rng), at);
            at += 4;
        }
        let anew = course.step(&track, 4, &mut rng);
        assert!((200..600).contains(&anew) && anew != at);
    }

    proptest! {
        #[test]
        fn no_step_leaves_its_place(
            blocks in 1_u64..100_000, seed in any::<u64>(), writes in 0.0..1.0_f64,
        ) {
            let mut spot = HotSpot::new(blocks);
            let mut rng = Rng::with_seed(seed);
            let mut walk = Walk::new(&spot, &mut rng);
            let (from, within) = (blocks / 5, blocks * 2 / 5);
            let track = Track { from, within, span: blocks / 10, size: blocks.max(32) };
            let mut course = Course::default();
            for _ in 0..200 {
                let write = rng.f64() < writes;
                let block = walk.step(&mut spot, write, &mut rng);
                prop_assert!(block < blocks.max(LEAF));
                let length = rng.u64(1..=16);
                let start = course.step(&track, length, &mut rng);
                prop_assert!(start >= from && start + length <= track.size.max(from + within + 16));
            }
        }
    }
}
