//! What a worker saw around and during its run: what a verdict is judged on. What can't be known
//! here is absent, and so is what an older worker did not look at.

use serde::{Deserialize, Serialize};

use super::outcome::Measured;
use super::spread::Requests;
use crate::base::legs::{Rung, Saturation};
use crate::base::units::{Bytes, Ratio, Seconds};

/// Most disks of one list that go over the wire: the busiest. Sums are of all.
pub const DEVICES_MAX: usize = 16;

/// What was true while one leg (or the legs of a probe that compares none) went on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// The leaf disks under the target.
    pub devices: Vec<DeviceUse>,
    /// The topmost block device under the target (of btrfs: each): what the file system sees.
    pub top: Vec<DeviceUse>,
    /// Bytes written at the leaf devices / bytes the probe wrote.
    pub write_amplification: Option<f64>,
    /// Bytes written at the topmost block device / bytes the probe wrote: no copies of an array in
    /// it, only what the file system adds.
    pub top_write_amplification: Option<f64>,
    /// Bytes read at the leaf devices / bytes the probe read.
    pub device_read_share: Option<f64>,
    /// Foreign bytes a second in the quiet windows / the run's bytes a second.
    pub foreign_share: Option<f64>,
    /// Mean of requests in flight at all leaves, by Little's law.
    pub in_flight: Option<f64>,
    /// Requests that all leaves together take at once.
    pub slots: Option<u32>,
    /// Share of time in which no leaf had work, though the run always had requests waiting.
    pub idle: Option<Ratio>,
    /// CPU seconds of the worker / seconds of the run.
    pub cpu: Option<f64>,
    /// The worker's busiest thread, the kernel's own threads for it included.
    pub thread: Option<ThreadUse>,
    /// The busiest kernel thread on the way to the disks: kcryptd, mdX_raidN, ksoftirqd ...
    pub kernel_thread: Option<ThreadUse>,
    /// Of the CPU that spent most of its time in interrupts and softirqs.
    pub interrupts: Option<Ratio>,
    /// Of all CPUs that the worker may use, not idle.
    pub host_cpu: Option<Ratio>,
    pub steal: Option<Ratio>,
    /// Share of the run in which the worker's cgroup was CPU-throttled.
    pub throttled: Option<Ratio>,
    /// The cgroup limit on I/O that was used most.
    pub io_limit: Option<IoLimit>,
    /// Coefficient of variation of the 100 ms rates.
    pub rate_cv: Option<f64>,
    /// Mean operations in one such interval: a coefficient over few of them is chance.
    pub interval_operations: Option<f64>,
    /// Share of time spent in flushes, the final one not counted.
    pub flush_share: Option<Ratio>,
}

/// What one device did meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceUse {
    pub device: String,
    pub busy: Ratio,
    /// Mean requests in flight.
    pub queue: f64,
    pub reads: Requests,
    pub writes: Requests,
    pub read_bytes: Bytes,
    pub written_bytes: Bytes,
    /// Time that requests waited and were served, summed over all of them.
    pub queue_time: Seconds,
    /// Time in flushes; kernel 5.5 and later.
    pub flush: Option<Seconds>,
    /// Spindle or not, as far as the kernel can be trusted.
    pub rotational: Option<bool>,
    /// Requests that it takes at once.
    pub slots: Option<u32>,
}

/// A thread and its share of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadUse {
    pub name: String,
    pub share: Ratio,
}

/// What a cgroup limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limited {
    ReadBytes,
    WriteBytes,
    ReadOperations,
    WriteOperations,
}

/// A limit of a cgroup on one device (io.max, blkio.throttle).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoLimit {
    pub device: String,
    pub limited: Limited,
    /// A second.
    pub limit: f64,
    /// What the device did of it / the limit.
    pub used: f64,
}

/// The same profile once more, at twice the depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondLeg {
    pub measured: Measured,
    pub evidence: Evidence,
    /// What it says of the first leg, judged by what the worker knows.
    pub says: Saturation,
    /// The first leg was done again, as the second was slower: its result is of after that.
    #[serde(default)]
    pub first_repeated: bool,
}

/// The curve of a depth ladder. The leg at the knee is the result of the run, the rung above it its
/// second leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// By depth, ascending from 1.
    pub rungs: Vec<Rung>,
    /// Smallest depth within 5 % of the best rate.
    pub depth: u32,
    /// Best rate: the ceiling, where the ladder is saturated.
    pub operations_per_second: f64,
    /// What the last two rungs say; `None` of a single one.
    pub says: Option<Saturation>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stats::Histogram;
    use crate::model::job::{Event, LINE_BYTES_MAX, Profile, What};
    use crate::model::outcome::{DURATION_BOUNDS, Direction, Done, Outcome, Reply};
    use crate::model::samples::{measured, profile};

    fn full_evidence() -> Evidence {
        let time = Seconds(1_234.567_890_123);
        let requests = Requests { completed: u64::MAX / 3, merged: u64::MAX / 3, time };
        let device = DeviceUse {
            device: "nvme10c10n10p128".into(),
            busy: Ratio(1.0 / 3.0),
            queue: 1000.0 / 3.0,
            reads: requests,
            writes: requests,
            queue_time: time,
            read_bytes: Bytes(u64::MAX / 3),
            written_bytes: Bytes(u64::MAX / 3),
            flush: Some(Seconds(1.0 / 3.0)),
            rotational: Some(false),
            slots: Some(u32::MAX),
        };
        let devices = vec![device; DEVICES_MAX];
        Evidence { top: devices.clone(), devices, ..Evidence::default() }
    }

    fn full_leg() -> Measured {
        let mut durations = Histogram::new(DURATION_BOUNDS);
        DURATION_BOUNDS.iter().for_each(|bound| durations.observe(*bound, 1 << 40));
        let latency = [0.5, 0.95, 0.99, 0.999].map(|q| (q, Seconds(q / 3.0))).to_vec();
        let latency_mean = Some(Seconds(1.0 / 3.0));
        let direction = Direction { latency_mean, latency, durations, ..Direction::default() };
        Measured {
            engine_reason: "x".repeat(200),
            elapsed: Seconds(3600.0 / 7.0),
            reads: direction.clone(),
            writes: direction,
            flush: Some(Seconds(1.0 / 3.0)),
            seed: u64::MAX,
            rates: vec![1_234_567.9; 700],
            steady: Some(false),
            errors: u64::MAX,
            short_operations: u64::MAX,
            ..measured(Profile {
                bytes_max: Bytes(u64::MAX),
                operations_max: Some(u64::MAX),
                span: Some(Bytes(u64::MAX)),
                ..profile()
            })
        }
    }

    #[test]
    fn the_longest_outcome_fits_a_line_on_the_wire() {
        let second = SecondLeg {
            measured: full_leg(),
            evidence: full_evidence(),
            says: Saturation::Unsaturated,
            first_repeated: true,
        };
        let rung = Rung {
            depth: 1024,
            operations_per_second: 1e6 / 3.0,
            latency_mean: Seconds(1.0 / 3.0),
        };
        let knee = Knee {
            rungs: vec![rung; 11],
            depth: 1024,
            operations_per_second: 1e6 / 3.0,
            says: Some(Saturation::Saturated),
        };
        let done = Done {
            legs: vec![full_leg()],
            evidence: full_evidence(),
            second_leg: Some(Box::new(second)),
            knee: Some(Box::new(knee)),
            ..Done::default()
        };
        let reply = Box::new(Reply::Ran(Outcome::Done(Box::new(done))));
        let event = Event::new(What::Outcome { reply });
        let line = serde_json::to_string(&event).unwrap();
        assert!(line.len() < LINE_BYTES_MAX, "{}", line.len());
        assert!(serde_json::from_str::<Event>(&line).is_ok());
    }

    #[test]
    fn what_an_older_worker_saw_still_reads() {
        let old = r#"{"legs":[],"evidence":{"devices":[{"device":"sda","busy":0.5,"queue":1.0,
            "read_bytes":1,"written_bytes":2}],"write_amplification":null,"device_read_share":1.0,
            "foreign_share":null,"cpu":0.1,"steal":null,"throttled":null},"flags":{},
            "cost":{"read_bytes":1,"written_bytes":2,"cpu":0.1}}"#;
        let done: Done = serde_json::from_str(old).unwrap();
        assert_eq!(done.evidence.devices[0].busy, Ratio(0.5));
        assert_eq!((done.second_leg, done.evidence.io_limit), (None, None));
    }
}
