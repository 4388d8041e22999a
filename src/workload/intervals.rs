//! Operations by the interval of their completion, in bounded memory however long a leg is.

use std::time::Duration;

/// Of `MS` milliseconds each, since the ramp's end. In a leg of more than `MOST` of them they are
/// merged by twos, so that the series and its slope are of the whole of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals<const MS: u64, const MOST: usize> {
    counts: Vec<u32>,
    /// How often they were merged.
    merged: u32,
}

impl<const MS: u64, const MOST: usize> Intervals<MS, MOST> {
    /// An operation that completed at this time.
    pub(super) fn take(&mut self, since: Duration) {
        let whole = Self::whole(since);
        while whole >> self.merged >= MOST {
            self.merge();
        }
        let index = whole >> self.merged;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
    }

    /// Those that another counted over the same time.
    pub(super) fn add(&mut self, mut other: Self) {
        while self.merged < other.merged {
            self.merge();
        }
        while other.merged < self.merged {
            other.merge();
        }
        if self.counts.len() < other.counts.len() {
            std::mem::swap(&mut self.counts, &mut other.counts);
        }
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }

    /// Operations a second, of intervals that lie wholly within `elapsed`.
    pub(super) fn rates(&self, elapsed: Duration) -> Vec<f32> {
        let width = Duration::from_millis(MS).as_secs_f32() * (1_u64 << self.merged) as f32;
        let whole = self.counts.iter().take(Self::whole(elapsed) >> self.merged);
        whole.map(|n| *n as f32 / width).collect()
    }

    fn merge(&mut self) {
        self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
        self.merged += 1;
    }

    /// One division by a constant of 64 bits: this is done for every operation.
    fn whole(time: Duration) -> usize {
        (u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / (MS * 1_000_000)) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Few = Intervals<100, 8>;

    fn of(times: &[u64]) -> Few {
        let mut intervals = Few::default();
        times.iter().for_each(|ms| intervals.take(Duration::from_millis(*ms)));
        intervals
    }

    #[test]
    fn only_whole_intervals_have_a_rate() {
        let intervals = of(&[0, 50, 99, 100, 250]);
        assert_eq!(intervals.rates(Duration::from_millis(299)), [30.0, 10.0]);
        assert_eq!(intervals.rates(Duration::from_millis(300)), [30.0, 10.0, 10.0]);
    }

    proptest! {
        #[test]
        fn those_of_two_are_those_of_one_that_counted_both(
            a in prop::collection::vec(0_u64..5_000, 0..40),
            b in prop::collection::vec(0_u64..5_000, 0..40),
        ) {
            let mut sum = of(&a);
            sum.add(of(&b));
            let both = of(&[a, b].concat());
            prop_assert_eq!((sum.counts, sum.merged), (both.counts, both.merged));
        }

        #[test]
        fn a_long_leg_has_wider_intervals_and_none_left_out(n in 1_u64..2_000) {
            let intervals = of(&(0..n).map(|i| i * 10).collect::<Vec<_>>());
            prop_assert!(intervals.counts.len() <= 8);
            prop_assert_eq!(u64::from(intervals.counts.iter().sum::<u32>()), n);
        }
    }
}
