//! What the difference of two readings of a kernel counter means.

/// Difference of two readings of one cumulative counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It grew by this much (perhaps by nothing, perhaps over a wrap).
    Grew(u64),
    /// It started again: no rate can be told for this window.
    Reset,
}

impl Step {
    pub fn grown(self) -> Option<u64> {
        match self {
            Step::Grew(by) => Some(by),
            Step::Reset => None,
        }
    }
}

/// Step of a counter that is 64 bits wide: smaller means it was reset.
pub fn step64(before: u64, after: u64) -> Step {
    match after.checked_sub(before) {
        Some(by) => Step::Grew(by),
        None => Step::Reset,
    }
}

/// Growth of a value the kernel prints as `unsigned int` (block/genhd.c prints every time field of
/// diskstats so: it wraps after 49.7 days of accumulated milliseconds). Exact for one wrap.
pub fn grown32(before: u64, after: u64) -> u64 {
    u64::from((after as u32).wrapping_sub(before as u32))
}

/// Extends a 32-bit millisecond field to 64 bits, so that what is published never steps back.
///
/// A fall larger than half the range is a wrap; a smaller one is a dip or a reset and adds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    last: Option<u32>,
    total: u64,
}

impl Extended {
    /// The extended value as of the last reading.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Takes the next reading; returns the extended value.
    pub fn take(&mut self, reading: u64) -> u64 {
        let now = reading as u32;
        match self.last {
            // Values over 32 bits come only from fixtures and foreign kernels: keep them as they are.
            None => self.total = reading,
            Some(last) => {
                let by = now.wrapping_sub(last);
                if by <= u32::MAX / 2 {
                    self.total = self.total.saturating_add(u64::from(by));
                }
            }
        }
        self.last = Some(now);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_32_bit_wrap_is_growth() {
        assert_eq!(grown32(4_294_967_290, 5), 11);
        let mut field = Extended::default();
        assert_eq!(field.take(4_294_967_290), 4_294_967_290);
        assert_eq!(field.take(5), 4_294_967_301);
    }

    #[test]
    fn a_64_bit_fall_is_a_reset() {
        assert_eq!(step64(10, 4), Step::Reset);
        assert_eq!(step64(10, 10), Step::Grew(0));
    }

    proptest! {
        #[test]
        fn an_extended_field_never_steps_back(readings in prop::collection::vec(any::<u32>(), 1..64)) {
            let mut field = Extended::default();
            let mut last = 0;
            for reading in readings {
                let now = field.take(u64::from(reading));
                prop_assert!(now >= last);
                last = now;
            }
        }
    }
}
