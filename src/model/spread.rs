//! What a report in fio's form holds beyond rates and means.

use serde::{Deserialize, Serialize};

use crate::base::units::Seconds;

/// What fio's report says of one direction beyond its means, however few operations that rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub latency_min: Seconds,
    pub latency_max: Seconds,
    /// Standard deviation.
    pub latency_deviation: Seconds,
    /// `(q, seconds)` at each of [`FIO_QUANTILES`].
    pub latency: Vec<(f64, Seconds)>,
    /// Operations under each of [`FIO_BOUNDS_US`], cumulative.
    pub under: Vec<u64>,
    /// Operations a second in whole half seconds.
    pub rates: Vec<f32>,
}

/// The percentiles that fio prints unless told otherwise, as shares.
pub const FIO_QUANTILES: [f64; 17] = [
    0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995,
    0.9999,
];

/// Bounds between fio's classes of latency, in microseconds.
pub const FIO_BOUNDS_US: [u64; 21] = [
    2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000, 4000, 10_000, 20_000, 50_000, 100_000,
    250_000, 500_000, 750_000, 1_000_000, 2_000_000,
];

/// Requests of one direction at a leaf device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    pub completed: u64,
    /// Joined to another before they reached the device.
    pub merged: u64,
    pub time: Seconds,
}

/// What getrusage(2) says of a process between two instants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    pub user: Seconds,
    pub system: Seconds,
    pub context_switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
}

impl ProcessUse {
    /// What was used from `earlier` to now.
    #[must_use]
    pub fn since(&self, earlier: &ProcessUse) -> ProcessUse {
        ProcessUse {
            user: Seconds((self.user.0 - earlier.user.0).max(0.0)),
            system: Seconds((self.system.0 - earlier.system.0).max(0.0)),
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_since_is_a_difference_that_never_falls_under_nothing() {
        let earlier = ProcessUse { user: Seconds(1.0), context_switches: 5, ..Default::default() };
        let later = ProcessUse { user: Seconds(3.0), context_switches: 9, ..earlier };
        let used = later.since(&earlier);
        assert_eq!((used.user, used.context_switches), (Seconds(2.0), 4));
        assert_eq!(earlier.since(&later), ProcessUse::default());
    }

    #[test]
    fn quantiles_and_bounds_ascend() {
        assert!(FIO_QUANTILES.windows(2).all(|w| w[0] < w[1]));
        assert!(FIO_BOUNDS_US.windows(2).all(|w| w[0] < w[1]));
    }
}
