//! The eight streams of a BSU: share, storage unit, reads and address of each.

use crate::model::oltp::Variant;

/// Blocks of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    One,
    /// 1 to 16, by [`mixed`].
    Mixed,
}

/// Where a stream goes; places are in hundredths of its storage unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// Any block.
    Uniform,
    /// Any block of 8 KiB.
    UniformEven,
    /// A walk with memory through the hot spot that begins here, a twentieth of the unit.
    Hot { from: u64, spot: usize },
    /// One after the other over `span`, from a random start in `from .. from + within`.
    Sequential { from: u64, within: u64, span: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Storage unit: 0, 1, 2.
    pub(super) asu: usize,
    /// Operations of a thousand.
    pub(super) share: u32,
    /// Share of reads, as pblio has it and as the first generator had it.
    reads: (f64, f64),
    pub(super) length: Length,
    pub(super) address: Address,
}

impl Stream {
    pub(super) fn reads(&self, variant: Variant) -> f64 {
        match variant {
            Variant::Pblio => self.reads.0,
            Variant::Classic => self.reads.1,
        }
    }
}

/// Hot spots of a context: two in the first unit, one in the second.
pub(super) const SPOTS: usize = 3;
const FIRST: (f64, f64) = (0.75, 0.5);
const SECOND: (f64, f64) = (0.6, 0.3);
const READS: (f64, f64) = (1.0, 1.0);
const WRITES: (f64, f64) = (0.0, 0.0);
const SCAN: Address = Address::Sequential { from: 20, within: 40, span: 10 };
const LOG: Address = Address::Sequential { from: 0, within: 70, span: 30 };

const fn stream(
    (asu, share): (usize, u32),
    reads: (f64, f64),
    length: Length,
    address: Address,
) -> Stream {
    Stream { asu, share, reads, length, address }
}

pub(super) const STREAMS: [Stream; 8] = [
    stream((0, 35), FIRST, Length::One, Address::Uniform),
    stream((0, 281), FIRST, Length::One, Address::Hot { from: 15, spot: 0 }),
    stream((0, 70), READS, Length::Mixed, SCAN),
    stream((0, 210), FIRST, Length::One, Address::Hot { from: 70, spot: 1 }),
    stream((1, 18), SECOND, Length::One, Address::UniformEven),
    stream((1, 70), SECOND, Length::One, Address::Hot { from: 47, spot: 2 }),
    stream((1, 35), READS, Length::Mixed, SCAN),
    stream((2, 281), WRITES, Length::Mixed, LOG),
];

/// Of so many operations with a mixed length ...
pub(super) const MIXED: usize = 25;
/// ... how many have so many blocks.
const MIX: [(u64, usize); 5] = [(1, 10), (2, 6), (4, 5), (8, 2), (16, 2)];
/// Most blocks of an operation.
pub(super) const BLOCKS_MAX: u64 = 16;

/// Blocks of the `n`th of 25.
pub(super) fn mixed(mut n: usize) -> u64 {
    for (blocks, count) in MIX {
        if n < count {
            return blocks;
        }
        n -= count;
    }
    BLOCKS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::oltp::{BLOCK_BYTES, MEAN_BYTES};

    /// Sum over the streams for which `of` has a value.
    fn sum(of: impl Fn(&Stream) -> f64) -> f64 {
        STREAMS.iter().map(of).sum()
    }

    fn blocks(stream: &Stream) -> f64 {
        match stream.length {
            Length::One => 1.0,
            Length::Mixed => 3.6,
        }
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 5e-5 * b.max(1.0), "{a} {b}");
    }

    #[test]
    fn the_streams_are_a_thousand_operations_with_the_published_shares() {
        assert_eq!(STREAMS.iter().map(|s| s.share).sum::<u32>(), 1000);
        let share = |s: &Stream| f64::from(s.share) / 1000.0;
        for (variant, all, first, second) in
            [(Variant::Pblio, 0.5523, 0.7794, 0.7138), (Variant::Classic, 0.3944, 0.5587, 0.4992)]
        {
            let within = |asu| {
                let of = |s: &Stream| if s.asu == asu { share(s) } else { 0.0 };
                sum(|s| of(s) * s.reads(variant)) / sum(of)
            };
            near(sum(|s| share(s) * s.reads(variant)), all);
            near(within(0), first);
            near(within(1), second);
            near(within(2), 0.0);
        }
        let mean = sum(|s| share(s) * blocks(s));
        near(mean * 4.0, 8.0144);
        near(mean * BLOCK_BYTES as f64, MEAN_BYTES);
    }

    #[test]
    fn mixed_lengths_have_their_mean() {
        let all: u64 = (0..MIXED).map(mixed).sum();
        assert_eq!(all, 90, "3.6 blocks each");
        assert_eq!((mixed(0), mixed(24), mixed(99)), (1, 16, 16));
    }
}
