//! Searches on models whose answer is known: a formula fitted to published runs, and a queue with one
//! server fed by the real generator.

use proptest::prelude::*;

use super::*;
use crate::base::units::{GIB, MIB};
use crate::model::oltp::Variant;
use crate::workload::oltp::{Arrivals, Generator, Sizes};

/// Time and bytes, and what a model answers to a rate, a ramp and a window.
struct Model<F> {
    answer: F,
    seconds: f64,
    bytes: f64,
    rates: Vec<f64>,
}

impl<F: FnMut(f64, Seconds, Seconds) -> Option<Step>> Model<F> {
    fn new(seconds: f64, answer: F) -> Self {
        Self { answer, seconds, bytes: 100.0 * GIB as f64, rates: Vec::new() }
    }

    fn search(&mut self, limit: f64) -> Found {
        let total = Seconds(self.seconds);
        search(self, Seconds(limit), total)
    }
}

impl<F: FnMut(f64, Seconds, Seconds) -> Option<Step>> Offer for Model<F> {
    fn offer(&mut self, rate: f64, ramp: Seconds, window: Seconds) -> Option<Step> {
        self.rates.push(rate);
        self.seconds -= ramp.0 + window.0;
        self.bytes -= rate * (ramp.0 + window.0) * MEAN_BYTES;
        (self.answer)(rate, ramp, window)
    }

    fn time_left(&self) -> Seconds {
        Seconds(self.seconds)
    }

    fn bytes_left(&self) -> Bytes {
        Bytes(self.bytes.max(0.0) as u64)
    }
}

/// A step with this mean; beyond `capacity` only so much is done.
fn step(rate: f64, window: Seconds, capacity: f64, mean: impl Fn(f64) -> f64) -> Step {
    let achieved = rate.min(capacity);
    Step {
        offered: rate,
        achieved,
        latency_mean: Seconds(if rate < capacity { mean(rate) } else { 10.0 }),
        operations: (achieved * window.0) as u64,
        unserved: ((rate - achieved) * window.0) as u64,
        window,
        ..Step::default()
    }
}

/// Of the second document: 100 operations a second at 0.80 ms, 3000 at 6.15 ms, 4832 at 33.9 ms of
/// 5000 that were offered. A mean that grows as a queue's does goes through all three.
fn gluster(rate: f64) -> f64 {
    const CAPACITY: f64 = 5488.0;
    0.000_716 + 0.004_507 * rate / (CAPACITY - rate)
}

#[test]
fn the_model_is_what_the_second_document_measured() {
    for (rate, mean) in [(100.57, 0.000_802_1), (3000.48, 0.006_153_6), (4831.87, 0.033_905_7)] {
        assert!((gluster(rate) / mean - 1.0).abs() < 0.02, "{rate}: {}", gluster(rate));
    }
}

#[test]
fn a_replay_of_the_second_document_ends_between_its_60_and_100_bsus() {
    let mut noise = fastrand::Rng::with_seed(4);
    for run in 0..200 {
        // Each mean is off by up to 8 %.
        let mut model = Model::new(300.0, |rate, _, window| {
            let by = 1.0 + 0.16 * (noise.f64() - 0.5);
            Some(step(rate, window, 5488.0 * 0.95, |rate| by * gluster(rate)))
        });
        let found = model.search(0.03).search;
        let highest = found.highest().unwrap();
        assert!((3000.0..4832.0).contains(&highest), "{run}: {highest}");
        let loads: Vec<f64> = found.curve.iter().map(|(load, _)| *load).collect();
        assert_eq!(loads, [0.1, 0.5, 0.8, 0.9, 0.95, 1.0]);
        assert!(found.curve.iter().all(|(_, step)| step.latency_mean < Seconds(0.033)));
        assert!(model.seconds >= 0.0, "within its time");
    }
}

/// A queue with one server of `service` seconds an operation, in order of arrival, whose requests are
/// those of the real generator.
fn single_server(service: f64) -> impl FnMut(f64, Seconds, Seconds) -> Option<Step> {
    let sizes = Sizes::within(Bytes(GIB)).unwrap();
    let mut seed = 0;
    move |rate, ramp, window| {
        seed += 1;
        let arrivals = Arrivals::at_rate(Variant::Pblio, rate, None);
        let end = ramp.0 + window.0;
        let (mut free, mut sum, mut operations, mut last) = (0.0_f64, 0.0, 0_u64, 0.0_f64);
        for request in Generator::new(&arrivals, &sizes, seed) {
            let at = request.at.as_secs_f64();
            if at >= end {
                break;
            }
            free = free.max(at) + service;
            if at >= ramp.0 {
                sum += free - at;
                operations += 1;
                last = free;
            }
        }
        let seconds = (last - ramp.0).max(window.0);
        Some(Step {
            offered: rate,
            achieved: operations as f64 / seconds,
            latency_mean: Seconds(sum / operations.max(1) as f64),
            operations,
            window,
            ..Step::default()
        })
    }
}

/// Pollaczek and Khinchin: the rate at which operations of a constant `service` have this mean.
fn theory(service: f64, limit: f64) -> f64 {
    let waits = 2.0 * (limit - service) / service;
    waits / (1.0 + waits) / service
}

#[test]
fn one_server_has_the_rate_that_queueing_theory_gives() {
    for service in [0.002, 0.0005] {
        let mut model = Model::new(300.0, single_server(service));
        let highest = model.search(0.03).search.highest().unwrap();
        let theory = theory(service, 0.03);
        println!("service {service}: {highest:.1} of {theory:.1}");
        assert!((highest / theory - 1.0).abs() < 0.05, "{highest}, theory says {theory}");
    }
}

#[test]
fn a_disk_slower_than_one_bsu_is_searched_downwards() {
    let mut model = Model::new(300.0, |rate, _, window| {
        Some(step(rate, window, 40.0, |rate| 0.01 / (1.0 - rate / 40.0)))
    });
    let highest = model.search(0.03).search.highest().unwrap();
    assert!((25.0..27.0).contains(&highest), "{highest} of 26.7");
}

#[test]
fn a_stall_is_no_end_of_the_target() {
    let mut steps = 0;
    let mut model = Model::new(300.0, |rate, _, window| {
        steps += 1;
        let capacity = if steps == 3 { 10.0 } else { 4000.0 };
        Some(step(rate, window, capacity, |_| 0.02))
    });
    let highest = model.search(0.03).search.highest().unwrap();
    assert!((3800.0..4000.0).contains(&highest), "{highest}");
}

#[test]
fn a_rate_that_held_by_luck_is_tried_for_longer() {
    let mut model = Model::new(600.0, |rate, _, window| {
        let mean = if window.0 > 10.0 && rate > 300.0 { 0.05 } else { 0.02 };
        Some(step(rate, window, 500.0, |_| mean))
    });
    let highest = model.search(0.03).search.highest().unwrap();
    assert!((290.0..=300.0).contains(&highest), "{highest}");
}

#[test]
fn what_can_not_be_found_is_said() {
    let mut endless = Model::new(3000.0, |rate, _, window| Some(step(rate, window, 1e9, |_| 1e-5)));
    assert_eq!(endless.search(0.03).search.end, SearchEnd::NoLimit);
    let mut slow = Model::new(3000.0, |rate, _, window| Some(step(rate, window, 1e9, |_| 1.0)));
    let found = slow.search(0.03);
    assert_eq!((found.search.end, found.search.best), (SearchEnd::NoRate, None));
    assert!(found.chosen.is_some() && found.search.curve.is_empty());
    let fast = |rate, _, window| Some(step(rate, window, 60_000.0, |_| 1e-4));
    let mut bounded = Model { bytes: 256.0 * MIB as f64, ..Model::new(300.0, fast) };
    let found = bounded.search(0.03).search;
    assert_eq!((found.end, found.highest()), (SearchEnd::Bytes, None));
    assert!(found.best.is_some() && bounded.bytes >= 0.0);
    let mut late = Model::new(21.0, fast);
    let found = late.search(0.03).search;
    assert!(matches!(found.end, SearchEnd::Time | SearchEnd::Found), "{:?}", found.end);
    assert!(late.seconds >= 0.0);
    let mut stopped = Model::new(300.0, |_, _, _| None);
    assert_eq!(stopped.search(0.03).search.end, SearchEnd::Stopped);
}

proptest! {
    #[test]
    fn a_search_ends_within_its_bounds_on_any_target(
        capacity in 1.0..1e6_f64, service in 1e-5..0.1_f64, limit in 1e-4..1.0_f64,
        seconds in 20.0..3600.0_f64, mib in 16_u64..100_000, seed in any::<u64>(),
    ) {
        let mut noise = fastrand::Rng::with_seed(seed);
        let mut model = Model::new(seconds, |rate, _, window| {
            let by = 0.5 + noise.f64();
            Some(step(rate, window, capacity, |rate| by * service / (1.0 - rate / capacity)))
        });
        model.bytes = (mib * MIB) as f64;
        let found = model.search(limit);
        prop_assert!(model.seconds >= -1e-9 && model.bytes >= -1.0);
        prop_assert!(model.rates.len() < 200);
        if let Some(best) = found.search.best {
            prop_assert!(best <= capacity / 0.95 && model.rates.contains(&best));
            prop_assert!(found.search.steps[found.chosen.unwrap()].sustained(Seconds(limit)));
        }
    }
}
