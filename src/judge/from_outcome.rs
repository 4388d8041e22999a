//! Facts of a run of our own, from what its worker saw.

use super::facts::{CpuFacts, DeviceFacts, Facts, SecondLeg, Subject};
use crate::base::stats;
use crate::base::units::{Bytes, Frequency, Rate, Ratio, Seconds};
use crate::model::job::{Backing, Device};
use crate::model::outcome::{Done, Evidence, Inspection, Measured, RATE_INTERVAL, per_second};
use crate::model::path::DeclaredBacking;

/// Counting so many operations varies by a tenth by itself.
const OPERATIONS_AN_INTERVAL: f64 = 100.0;
/// Fewer intervals tell no variation.
const INTERVALS_MIN: usize = 8;
/// So many empty intervals in a row are a stall, where each would hold several operations.
const EMPTY_IN_A_ROW: usize = 3;
const OPERATIONS_IN_NONE: f64 = 3.0;

/// What is known of where a run took place.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// `None`: nobody looked at it.
    pub inspection: Option<&'a Inspection>,
    /// Leaf disks under it, and what the kernel says of them.
    pub devices: &'a [Device],
    pub backing: &'a DeclaredBacking,
}

/// The facts of a finished storage run; `None` where it has no leg, or one that
/// is no closed loop. The first leg is judged, one at
/// twice its depth is its second.
pub fn storage(done: &Done, place: &Place<'_>) -> Option<Facts> {
    // What an open loop offers says nothing of what more in flight would do.
    let first = done.legs.first().filter(|leg| leg.profile.oltp.is_none())?;
    let profile = &first.profile;
    let reads = Flow::of(&first.reads.bytes, first.reads.operations, first.elapsed);
    let writes = Flow::of(&first.writes.bytes, first.writes.operations, first.elapsed);
    let compared = done.second_leg.as_ref().map(|second| &second.measured);
    let second = compared.or(done.legs.iter().skip(1).find(|leg| is_second(first, leg)));
    // What stood still for a while is slower at any depth.
    let second = second.filter(|_| !stood_still(&first.rates));
    Some(Facts {
        subject: Subject::Storage,
        access: Some(profile.access),
        block_bytes: Some(profile.block),
        depth: Some(f64::from(profile.in_flight_max())),
        duration_seconds: Some(first.elapsed),
        read_operations_per_second: reads.operations,
        read_bytes_per_second: reads.bytes,
        write_operations_per_second: writes.operations,
        write_bytes_per_second: writes.bytes,
        latency_p50_seconds: median(first),
        second_leg: second.map(|leg| SecondLeg {
            depth: Some(f64::from(leg.profile.in_flight_max())),
            rate_per_second: leg.operations_per_second(),
            // Medians of two mixes compare badly: the means follow from depth and rate.
            latency_p50_seconds: None,
        }),
        rate_cv: variation(&first.rates),
        device: device(done, place),
        cpu: cpu(&done.evidence),
        flags: done.flags,
        backing: place.backing.clone(),
        ..Facts::default()
    })
}

struct Flow {
    operations: Option<Frequency>,
    bytes: Option<Rate>,
}

impl Flow {
    fn of(bytes: &Bytes, operations: u64, time: Seconds) -> Flow {
        let moved = operations > 0;
        Flow {
            operations: moved.then(|| Frequency(per_second(operations as f64, time))),
            bytes: moved.then(|| Rate(per_second(bytes.0 as f64, time))),
        }
    }
}

/// The busiest thread, kernel thread or CPU in interrupts.
fn cpu(evidence: &Evidence) -> CpuFacts {
    let threads = [&evidence.thread, &evidence.kernel_thread];
    let threads = threads.into_iter().flatten().map(|thread| thread.share);
    let busiest = threads.chain(evidence.interrupts).map(|share| share.0).reduce(f64::max);
    CpuFacts {
        busiest_ratio: busiest.map(Ratio),
        allowed_ratio: evidence.host_cpu,
        steal_ratio: evidence.steal,
        throttled_ratio: evidence.throttled,
    }
}

/// The same workload, deeper.
fn is_second(first: &Measured, leg: &Measured) -> bool {
    let shape = |m: &Measured| (m.profile.access, m.profile.reads, m.profile.block, m.engine);
    let deeper = leg.profile.in_flight_max() >= 2 * first.profile.in_flight_max();
    shape(first) == shape(leg) && deeper
}

/// Of the direction with more operations.
fn median(leg: &Measured) -> Option<Seconds> {
    let busier =
        if leg.reads.operations >= leg.writes.operations { &leg.reads } else { &leg.writes };
    busier.latency.iter().find(|(q, _)| (q - 0.5).abs() < 1e-9).map(|(_, latency)| *latency)
}

/// Coefficient of variation over equal intervals that hold at least 100 operations each.
pub fn variation(rates: &[f32]) -> Option<f64> {
    let all: f64 = rates.iter().map(|rate| f64::from(*rate)).sum();
    let mean = all / rates.len() as f64;
    let times = OPERATIONS_AN_INTERVAL / (mean * RATE_INTERVAL.0);
    let span = times.is_finite().then(|| times.ceil().max(1.0) as usize)?;
    let intervals: Vec<f64> = rates
        .chunks_exact(span)
        .map(|chunk| chunk.iter().map(|rate| f64::from(*rate)).sum::<f64>() / span as f64)
        .collect();
    if intervals.len() < INTERVALS_MIN { None } else { stats::variation(&intervals) }
}

/// Whether a leg that had operations in flight all the time completed none for a while.
fn stood_still(rates: &[f32]) -> bool {
    let mean = rates.iter().map(|rate| f64::from(*rate)).sum::<f64>() / rates.len() as f64;
    let dense = mean * RATE_INTERVAL.0 >= OPERATIONS_IN_NONE;
    dense && rates.windows(EMPTY_IN_A_ROW).any(|some| some.iter().all(|rate| *rate == 0.0))
}

fn device(done: &Done, place: &Place<'_>) -> DeviceFacts {
    let evidence = &done.evidence;
    let backing = place.inspection.map(|inspection| inspection.backing);
    // Where every overwrite is kept by somebody, how many copies it makes isn't known.
    let copies = place.inspection.is_some_and(|inspection| inspection.copy_on_write);
    let rotational: Vec<Option<bool>> = place.devices.iter().map(|d| d.rotational).collect();
    let first = rotational.first().copied().flatten();
    DeviceFacts {
        busy_ratio: evidence.devices.iter().map(|d| d.busy.0).reduce(f64::max).map(Ratio),
        in_flight: evidence.in_flight,
        slots: evidence.slots.map(f64::from),
        idle_ratio: evidence.idle,
        write_amplification: evidence.top_write_amplification.filter(|_| !copies),
        read_share: evidence.device_read_share,
        write_share: evidence.write_amplification,
        foreign_share: evidence.foreign_share,
        flush_ratio: evidence.flush_share,
        rotational: first.filter(|_| rotational.iter().all(|r| *r == first)),
        is_virtual: (!place.devices.is_empty()).then(|| rotational.contains(&None)),
        network_backed: backing.map(|backing| backing == Backing::Network),
        unseen: backing.map(|backing| backing == Backing::Unknown && place.devices.is_empty()),
        count: u32::try_from(place.devices.len()).ok().filter(|n| *n > 0),
        cgroup_ratio: evidence.io_limit.as_ref().map(|limit| Ratio(limit.used)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::judge::limits::judge;
    use crate::model::job::Profile;
    use crate::model::outcome::{DeviceUse, Direction, Flags};
    use crate::model::path::Media;
    use crate::model::samples::{measured, profile};
    use crate::model::verdict::Limit;

    fn leg(depth: u32, rate: u64) -> Measured {
        Measured {
            reads: Direction {
                operations: rate * 10,
                bytes: Bytes(rate * 10 * 4096),
                ..Direction::default()
            },
            steady: Some(true),
            ..measured(Profile { depth, ..profile() })
        }
    }

    fn done(legs: Vec<Measured>) -> Done {
        let use_of = DeviceUse {
            device: "sda".into(),
            busy: Ratio(0.99),
            queue: 7.9,
            ..DeviceUse::default()
        };
        Done {
            legs,
            evidence: Evidence {
                devices: vec![use_of],
                device_read_share: Some(1.0),
                ..Evidence::default()
            },
            flags: Flags { direct: Some(true), ..Flags::default() },
            ..Done::default()
        }
    }

    fn sda() -> Device {
        Device { name: "sda".into(), stat: "/sys/block/sda/stat".into(), rotational: Some(true) }
    }

    fn verdict(done: &Done, backing: &DeclaredBacking) -> (Limit, f64) {
        let place = Place { inspection: None, devices: &[sda()], backing };
        let verdict = judge(&storage(done, &place).unwrap());
        (verdict.limit, verdict.confidence)
    }

    #[test]
    fn a_spindle_of_our_own_seeks_for_sure_with_two_legs() {
        let plain = DeclaredBacking::default();
        assert_eq!(verdict(&done(vec![leg(8, 118)]), &plain), (Limit::Seek, 0.75));
        assert_eq!(verdict(&done(vec![leg(8, 118), leg(16, 125)]), &plain), (Limit::Seek, 1.0));
        let media = Some(Media::Nvme);
        let flash = DeclaredBacking { media, ..DeclaredBacking::default() };
        assert_eq!(
            verdict(&done(vec![leg(8, 100_000), leg(16, 190_000)]), &flash).0,
            Limit::Latency
        );
    }

    #[test]
    fn a_first_leg_with_a_stall_in_it_gains_nothing_from_depth() {
        let plain = DeclaredBacking::default();
        let mut stalled = done(vec![leg(8, 64), leg(16, 98)]);
        assert_ne!(verdict(&stalled, &plain).0, Limit::Seek);
        stalled.legs[0].rates = [[100.0; 5], [0.0; 5], [100.0; 5]].concat();
        assert_eq!(verdict(&stalled, &plain), (Limit::Seek, 0.75));
        assert!(!stood_still(&[10.0, 0.0, 0.0, 0.0, 10.0]), "one in 100 ms, and not each time");
    }

    #[test]
    fn a_run_without_a_leg_has_no_facts() {
        let place = Place { inspection: None, devices: &[], backing: &DeclaredBacking::default() };
        assert_eq!(storage(&done(Vec::new()), &place), None);
    }

    #[test]
    fn variation_is_of_intervals_with_a_hundred_operations() {
        assert_eq!(variation(&[5000.0; 20]), Some(0.0));
        let flicker: Vec<f32> = (0..200).map(|i| if i % 2 == 0 { 200.0 } else { 400.0 }).collect();
        assert_eq!(variation(&flicker), Some(0.0), "30 in 100 ms: four of them make one");
        assert_eq!(variation(&flicker[..20]), None, "too few");
        assert_eq!(variation(&[]), None);
        assert_eq!(variation(&[0.0; 20]), None);
    }

    proptest! {
        #[test]
        fn any_rates_have_a_variation_or_none(rates in prop::collection::vec(any::<f32>(), 0..60)) {
            prop_assert!(variation(&rates).is_none_or(|cv| cv.is_finite()));
        }
    }
}
