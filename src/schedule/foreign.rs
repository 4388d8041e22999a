//! Foreign load that appears while a run is on: the run ends for it.

use crate::model::job::{Profile, Progress};
use crate::model::outcome::Conditions;

/// As in the idle gate: what others may have waiting.
const FOREIGN_QUEUE_MAX: f64 = 0.5;
/// The smallest request that disks split large ones into (max_sectors_kb of old controllers).
const SPLIT_BYTES: u64 = 128 << 10;
/// The device's clock and the run's are read at slightly different times.
const OWN_QUEUE_SLACK: f64 = 1.1;

/// Why a run that is on should end for others' sake, if it should: by what it said of the last two
/// seconds, and by what the host says.
///
/// While a run is on, gauges leave its devices out; what is left to see is that more waits there
/// than the run itself has queued, after the block layer split its requests.
pub fn foreign_load_appeared(
    leg: &Profile,
    before: &Progress,
    after: &Progress,
    conditions: &Conditions,
) -> Option<String> {
    if conditions.resync {
        return Some("an md array began to resync".into());
    }
    let mean = |of: fn(&Progress) -> Option<f64>| {
        let queued = |p: &Progress| Some((of(p)? * p.elapsed.0, p.elapsed.0));
        let (sum, end) = queued(after)?;
        let (earlier, start) =
            if before.leg == after.leg { queued(before).unwrap_or_default() } else { (0.0, 0.0) };
        Some((sum - earlier) / (end - start))
    };
    let queue = mean(|p| p.device_queue)?;
    let in_flight = mean(|p| p.own_queue).unwrap_or(f64::from(leg.in_flight_max()));
    let own = in_flight * leg.block.0.div_ceil(SPLIT_BYTES).max(1) as f64;
    let limit = own * OWN_QUEUE_SLACK + FOREIGN_QUEUE_MAX;
    (queue.is_finite() && queue > limit).then(|| {
        format!("the device has a queue of {queue:.1}, of which this run made {own:.1} at most")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, GIB, MIB, Ratio, Seconds};
    use crate::model::job::Access;

    #[test]
    fn a_queue_that_the_run_did_not_make_ends_it() {
        let leg = |block: u64| Profile {
            name: "rand_read".into(),
            access: Access::Random,
            reads: Ratio(1.0),
            block: Bytes(block),
            depth: 4,
            jobs: 2,
            runtime: Seconds(3.0),
            ramp: Seconds(0.0),
            bytes_max: Bytes(GIB),
            operations_max: None,
            span: None,
            sync: false,
            flush: false,
            direct: true,
            oltp: None,
        };
        let progress = |elapsed: f64, queue: f64| Progress {
            elapsed: Seconds(elapsed),
            device_queue: Some(queue),
            ..Progress::default()
        };
        let says = |block, before: &Progress, after: &Progress| {
            foreign_load_appeared(&leg(block), before, after, &Conditions::default())
        };
        let (one, two) = (progress(1.0, 8.0), progress(2.0, 8.0));
        assert_eq!(says(4096, &one, &two), None, "its own 8");
        let crowded = progress(2.0, 12.0);
        let text = says(4096, &one, &crowded).unwrap();
        assert!(text.starts_with("the device has a queue of 16.0"), "of the last second: {text}");
        assert_eq!(says(MIB, &one, &crowded), None, "large requests are split");
        let own = |p: Progress, own_queue| Progress { own_queue: Some(own_queue), ..p };
        let (little, much) = (own(progress(2.0, 8.0), 1.0), own(progress(2.0, 30.0), 30.0));
        assert!(says(4096, &own(one.clone(), 1.0), &little).is_some(), "an open loop had one");
        assert_eq!(says(4096, &own(one.clone(), 8.0), &much), None, "or as many as there are");
        assert_eq!(says(4096, &Progress::default(), &Progress::default()), None);
        assert_eq!(says(4096, &two, &two), None, "no time passed");
        let resync = Conditions { resync: true, ..Conditions::default() };
        assert!(foreign_load_appeared(&leg(4096), &one, &two, &resync).is_some());
    }
}
