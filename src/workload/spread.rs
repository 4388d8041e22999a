//! What fio's report says of a direction beyond its means.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::intervals::Intervals;
use crate::base::units::Seconds;
use crate::model::spread::{FIO_BOUNDS_US, FIO_QUANTILES, Spread};

/// fio takes the rate of a direction every half second (`bwavgtime`, `iopsavgtime`); an hour, the
/// longest leg, would be ten times as many.
type Halves = Intervals<500, 720>;

#[derive(Debug)]
pub(super) struct Recorder {
    shortest: Duration,
    longest: Duration,
    intervals: Halves,
}

impl Default for Recorder {
    fn default() -> Self {
        let (shortest, longest) = (Duration::MAX, Duration::ZERO);
        Self { shortest, longest, intervals: Halves::default() }
    }
}

impl Recorder {
    /// An operation that took `latency` and completed `since` the ramp's end.
    pub(super) fn take(&mut self, latency: Duration, since: Duration) {
        self.shortest = self.shortest.min(latency);
        self.longest = self.longest.max(latency);
        self.intervals.take(since);
    }

    /// What another recorded over the same time.
    pub(super) fn add(&mut self, other: Self) {
        self.shortest = self.shortest.min(other.shortest);
        self.longest = self.longest.max(other.longest);
        self.intervals.add(other.intervals);
    }

    /// With the latencies themselves, in nanoseconds; `None` where there are none.
    pub(super) fn spread(&self, exact: &Histogram<u64>, elapsed: Duration) -> Option<Spread> {
        if exact.is_empty() {
            return None;
        }
        let seconds = |nanos: f64| Seconds(nanos / 1e9);
        let longest = self.longest.as_secs_f64();
        // The histogram rounds up, by a hundredth: past the longest there was nothing.
        let at = |q: f64| Seconds((exact.value_at_quantile(q) as f64 / 1e9).min(longest));
        let under = |us: &u64| exact.count_between(0, us.saturating_mul(1000).saturating_sub(1));
        Some(Spread {
            latency_min: self.shortest.into(),
            latency_max: self.longest.into(),
            latency_deviation: seconds(exact.stdev()),
            latency: FIO_QUANTILES.iter().map(|q| (*q, at(*q))).collect(),
            under: FIO_BOUNDS_US.iter().map(under).collect(),
            rates: self.intervals.rates(elapsed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Of latencies and the instants of their ends, in milliseconds.
    fn of(operations: impl Iterator<Item = (u64, u64)>, elapsed: u64) -> Option<Spread> {
        let mut exact = Histogram::new_with_bounds(1000, 600_000_000_000, 2).unwrap();
        let mut recorder = Recorder::default();
        for (latency, at) in operations {
            recorder.take(ms(latency), ms(at));
            exact.record(latency * 1_000_000).unwrap();
        }
        recorder.spread(&exact, ms(elapsed))
    }

    #[test]
    fn a_spread_reaches_from_the_shortest_to_the_longest_and_counts_all() {
        let spread = of((0..100).map(|i| (3 + i % 3, i * 10)), 990).unwrap();
        assert_eq!((spread.latency_min, spread.latency_max), (Seconds(0.003), Seconds(0.005)));
        assert!(spread.latency.iter().all(|(_, s)| (0.003..=0.005).contains(&s.0)), "{spread:?}");
        assert!(spread.latency.windows(2).all(|w| w[0].1 <= w[1].1));
        assert_eq!(
            (spread.under[10], spread.under[20]),
            (0, 100),
            "none under 2 ms, all under 2 s"
        );
        assert_eq!(spread.rates, [100.0], "the second half second is not whole");
        assert!((spread.latency_deviation.0 - 0.000_816).abs() < 0.000_02, "{spread:?}");
        assert_eq!(of(std::iter::empty(), 990), None);
    }

    #[test]
    fn a_long_leg_has_fewer_samples_of_the_same_rate() {
        let spread = of((0..36_000).map(|i| (1, i * 100)), 3_600_000).unwrap();
        assert!((360..=720).contains(&spread.rates.len()), "{}", spread.rates.len());
        assert!(spread.rates.iter().all(|rate| (rate - 10.0).abs() < 0.2));
    }
}
