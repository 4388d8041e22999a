//! Bounded histograms with fixed buckets, as Prometheus counts them.

use serde::{Deserialize, Serialize};

/// Cumulative histogram over fixed upper bounds. Mergeable; memory is fixed by its bounds.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper bounds, ascending, without +Inf.
    bounds: Vec<f64>,
    /// Observations per bucket (not cumulative); one more than `bounds`, the last is +Inf.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub fn new(bounds: &[f64]) -> Self {
        debug_assert!(bounds.windows(2).all(|w| w[0] < w[1]), "bounds ascend");
        Self { bounds: bounds.to_vec(), counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// `n` observations of `value`; what isn't a number is left out.
    pub fn observe(&mut self, value: f64, n: u64) {
        if !value.is_finite() || n == 0 {
            return;
        }
        let bucket = self.bounds.partition_point(|b| *b < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += n;
            self.sum += value * n as f64;
        }
    }

    /// Adds `other` where the bounds are the same; false, and nothing added, where they differ.
    pub fn merge(&mut self, other: &Histogram) -> bool {
        if self.bounds != other.bounds || self.counts.len() != other.counts.len() {
            return false;
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum += other.sum;
        true
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// `(upper bound, observations at or below it)`, without +Inf.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut total = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, count)| {
            total += count;
            (*bound, total)
        })
    }
}

/// Middle value (mean of the two middle ones); `None` when there is none. Not-a-numbers are left out.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => sorted.get(middle).copied(),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Coefficient of variation: standard deviation / mean; `None` of fewer than two values, or of a
/// mean that is not above 0.
pub fn variation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
    let share = square.sqrt() / mean;
    (values.len() > 1 && mean > 0.0 && share.is_finite()).then_some(share)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_to_that_bound() {
        let mut h = Histogram::new(&[0.1, 0.5]);
        h.observe(0.1, 1);
        h.observe(0.2, 2);
        h.observe(9.0, 1);
        h.observe(f64::NAN, 5);
        assert_eq!(h.cumulative().collect::<Vec<_>>(), [(0.1, 1), (0.5, 3)]);
        assert_eq!(h.count(), 4);
    }

    #[test]
    fn histograms_of_other_bounds_are_not_merged() {
        let mut h = Histogram::new(&[0.1]);
        assert!(!h.merge(&Histogram::new(&[0.2])));
    }

    #[test]
    fn median_of_none_is_none() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[3.0, 1.0, 2.0, f64::NAN]), Some(2.0));
    }

    #[test]
    fn variation_is_of_the_mean() {
        let share = variation(&[80.0, 120.0, 80.0, 120.0]).unwrap();
        assert!((share - 0.2309).abs() < 1e-3, "{share}");
        assert_eq!(variation(&[5.0; 4]), Some(0.0));
        assert_eq!((variation(&[5.0]), variation(&[0.0, 0.0])), (None, None));
    }

    proptest! {
        #[test]
        fn buckets_ascend_and_end_at_the_count(values in prop::collection::vec(0.0..2.0f64, 0..50)) {
            let mut h = Histogram::new(&[0.25, 0.5, 1.0, 4.0]);
            for v in &values {
                h.observe(*v, 1);
            }
            let cumulative: Vec<u64> = h.cumulative().map(|(_, n)| n).collect();
            prop_assert!(cumulative.windows(2).all(|w| w[0] <= w[1]));
            prop_assert_eq!(*cumulative.last().unwrap(), values.len() as u64);
        }
    }
}
