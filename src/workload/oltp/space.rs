//! The three storage units: how large they are, and where in files their blocks lie.

use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Bytes;
use crate::model::oltp::BLOCK_BYTES;

use super::streams::BLOCKS_MAX;

/// Of the third unit, so that its longest operation has somewhere to go.
const BLOCKS_MIN: u64 = 16 * BLOCKS_MAX;

/// Blocks of each unit: 45, 45 and 10 % of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes(pub [u64; 3]);

impl Sizes {
    /// As much of a region as the three can have.
    ///
    /// # Errors
    /// Where it is too small.
    pub fn within(region: Bytes) -> Result<Self, Fault> {
        Self::of(region.0 / BLOCK_BYTES * 9 / 20)
    }

    /// Of units that are given: the first two are as large as the smaller, the third is two ninths
    /// of that.
    ///
    /// # Errors
    /// Where the third is smaller, or the first two are too small.
    pub fn common(given: [u64; 3]) -> Result<Self, Fault> {
        let sizes = Self::of(given[0].min(given[1]))?;
        if given[2] < sizes.0[2] {
            let [need, have] = [sizes.0[2], given[2]].map(|blocks| Bytes(blocks * BLOCK_BYTES));
            let text = format!("asu3 has {have}, and has to have 2/9 of the others: {need}");
            return Err(Fault::new(FaultKind::Unsupported, text));
        }
        Ok(sizes)
    }

    fn of(first: u64) -> Result<Self, Fault> {
        let third = first * 2 / 9;
        if third < BLOCKS_MIN {
            let least = Bytes(BLOCKS_MIN * 10 * BLOCK_BYTES);
            let text = format!("too small for the three storage units: {least} is the least");
            return Err(Fault::new(FaultKind::Unsupported, text));
        }
        Ok(Self([first, first, third]))
    }

    /// Bytes of a unit.
    pub fn bytes(&self, asu: usize) -> Bytes {
        Bytes(self.0.get(asu).copied().unwrap_or(0) * BLOCK_BYTES)
    }
}

/// A part of a request that lies in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// One storage unit: so many blocks in each of its files, one file after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Index of the first of its files.
    pub(super) file: usize,
    /// Blocks into that file.
    pub(super) from: u64,
    /// Blocks in each file.
    pub(super) each: u64,
}

impl Unit {
    /// Where `blocks` from `block` on lie: in one file, mostly.
    pub(super) fn parts(&self, block: u64, blocks: u64) -> impl Iterator<Item = Part> {
        let (mut block, end) = (block, block + blocks);
        std::iter::from_fn(move || {
            let (index, within) = (block / self.each, block % self.each);
            let blocks = (end - block).min(self.each - within);
            block += blocks;
            (blocks > 0).then(|| Part {
                file: self.file + index as usize,
                offset: (self.from + within) * BLOCK_BYTES,
                bytes: (blocks * BLOCK_BYTES) as usize,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::{GIB, MIB};

    #[test]
    fn the_units_are_45_45_and_10_per_cent() {
        let sizes = Sizes::within(Bytes(GIB)).unwrap();
        let [first, second, third] = sizes.0.map(|blocks| blocks * BLOCK_BYTES / MIB);
        assert_eq!((first, second, third), (460, 460, 102));
        assert!(sizes.0.iter().sum::<u64>() * BLOCK_BYTES <= GIB);
        assert!(Sizes::within(Bytes(MIB)).is_err());
    }

    #[test]
    fn the_second_document_has_a_third_unit_of_two_ninths() {
        let gib = GIB / BLOCK_BYTES;
        let sizes = Sizes::common([3 * gib, 3 * gib, gib]).unwrap();
        assert_eq!(sizes.0, [3 * gib, 3 * gib, 3 * gib * 2 / 9]);
        assert_eq!(Sizes::common([3 * gib, 5 * gib, gib]), Ok(sizes));
        let fault = Sizes::common([30 * gib, 30 * gib, gib]).unwrap_err();
        assert!(fault.text.contains("2/9"), "{fault}");
    }

    proptest! {
        #[test]
        fn parts_are_the_request_whole_and_in_order(
            each in 16_u64..5000, from in 0_u64..100, block in 0_u64..9000, blocks in 1_u64..=16,
        ) {
            let unit = Unit { file: 2, from, each };
            let parts: Vec<Part> = unit.parts(block, blocks).collect();
            prop_assert!(parts.len() <= 2);
            let bytes: usize = parts.iter().map(|part| part.bytes).sum();
            prop_assert_eq!(bytes as u64, blocks * BLOCK_BYTES);
            let place = |part: &Part| {
                (part.file as u64 - 2) * each + part.offset / BLOCK_BYTES - from
            };
            prop_assert_eq!(place(&parts[0]), block);
            for part in &parts {
                let end = part.offset / BLOCK_BYTES - from + part.bytes as u64 / BLOCK_BYTES;
                prop_assert!(end <= each);
            }
        }
    }
}
