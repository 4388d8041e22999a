//! A run's result with the keys that consumers of fio's JSON read, each of fio's own type (stat.c of
//! fio 3.33). Each leg is one job.
//!
//! Latency is total, from submission to completion; it stands under `lat_ns`, and under `clat_ns`
//! too, where fio has its percentiles. What isn't measured apart (`slat_ns`, how many were submitted
//! or reaped at once) has fio's values for nothing: zeros, `N` 0.

use std::time::{Duration, UNIX_EPOCH};

use rustix::io::Errno;
use serde_json::{Map, Value, json};

use super::used::{jobs_time, used_by};
use crate::base::fault::FaultKind;
use crate::base::units::Seconds;
use crate::model::job::{Access, EngineKind, Profile};
use crate::model::outcome::{DeviceUse, Direction, Done, Measured, Outcome, Skip, per_second};
use crate::model::spread::{FIO_BOUNDS_US, ProcessUse, Spread};

/// fio has no class under a microsecond that a disk could fall into.
const CLASSES_NS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];
const BATCHES: [u32; 6] = [0, 4, 8, 16, 32, 64];

/// The report; `at` is the time since the epoch, `error` an errno, 0 where all went well.
pub fn report(done: &Done, at: Duration, error: i32) -> Value {
    let last = done.legs.len().saturating_sub(1);
    let jobs: Vec<Value> = done
        .legs
        .iter()
        .enumerate()
        .map(|(index, leg)| job(leg, used_by(leg, done), if index == last { error } else { 0 }))
        .collect();
    json!({
        "fio version": concat!("loadline-", env!("CARGO_PKG_VERSION")),
        "timestamp": at.as_secs(),
        "timestamp_ms": millis(at),
        "time": ctime(at),
        "global options": {},
        "jobs": jobs,
        "disk_util": done.evidence.devices.iter().map(disk).collect::<Vec<_>>(),
    })
}

/// The errno that stands for an outcome in a report.
pub fn error_of(outcome: &Outcome) -> i32 {
    let errno = match outcome {
        Outcome::Done(_) => return 0,
        Outcome::Failed { fault, .. } => match fault.kind {
            FaultKind::Full => Errno::NOSPC,
            FaultKind::Missing => Errno::NOENT,
            FaultKind::Denied => Errno::ACCESS,
            FaultKind::Unsupported => Errno::OPNOTSUPP,
            FaultKind::TimedOut | FaultKind::Hung => Errno::TIMEDOUT,
            _ => Errno::IO,
        },
        Outcome::Skipped { skip: Skip::Full, .. } => Errno::NOSPC,
        Outcome::Skipped { .. } => Errno::INTR,
        Outcome::Hung { .. } => Errno::TIMEDOUT,
    };
    errno.raw_os_error()
}

/// One leg and its part of what the run used.
fn job(leg: &Measured, process: ProcessUse, error: i32) -> Value {
    let percent = |time: Seconds| 100.0 * per_second(time.0, jobs_time(leg));
    let reads = leg.profile.reads.0 > 0.0;
    json!({
        "jobname": leg.profile.name,
        "groupid": 0,
        "error": error,
        "eta": 0,
        "elapsed": leg.elapsed.0.ceil() as u64,
        "job options": options(leg),
        // Short operations are not told apart by direction.
        "read": direction(&leg.reads, leg, if reads { leg.short_operations } else { 0 }),
        "write": direction(&leg.writes, leg, if reads { 0 } else { leg.short_operations }),
        "trim": direction(&Direction::default(), leg, 0),
        "sync": sync(leg.flush),
        "job_runtime": whole_millis(jobs_time(leg)),
        "usr_cpu": percent(process.user),
        "sys_cpu": percent(process.system),
        "ctx": process.context_switches,
        "majf": process.major_faults,
        "minf": process.minor_faults,
        "iodepth_level": levels(leg.profile.depth),
        "iodepth_submit": nothing(&BATCHES),
        "iodepth_complete": nothing(&BATCHES),
        "latency_ns": CLASSES_NS.iter().map(|ns| (ns.to_string(), json!(0.0))).collect::<Map<_, _>>(),
        "latency_us": classes(leg, 0, 10),
        "latency_ms": classes(leg, 10, FIO_BOUNDS_US.len()),
        "latency_depth": leg.profile.depth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    })
}

/// What ran, in fio's words; all values are text there.
fn options(leg: &Measured) -> Map<String, Value> {
    let profile = &leg.profile;
    let flag = |on: bool| if on { "1" } else { "0" }.to_owned();
    let engine = match leg.engine {
        EngineKind::IoUring => "io_uring",
        EngineKind::Aio => "libaio",
        EngineKind::Threads => "psync",
    };
    let mut all = vec![
        ("rw", words(profile).to_owned()),
        ("bs", profile.block.0.to_string()),
        ("iodepth", profile.depth.to_string()),
        ("numjobs", profile.jobs.to_string()),
        ("ioengine", engine.to_owned()),
        ("direct", flag(leg.direct)),
        ("runtime", format!("{}ms", whole_millis(profile.runtime))),
        ("end_fsync", flag(profile.flush)),
        ("sync", if profile.sync { "dsync" } else { "none" }.to_owned()),
        ("randseed", leg.seed.to_string()),
        ("norandommap", flag(profile.access == Access::Random)),
    ];
    if profile.reads.0 > 0.0 && profile.reads.0 < 1.0 {
        all.push(("rwmixread", format!("{:.0}", profile.reads.0 * 100.0)));
    }
    if profile.ramp.0 > 0.0 {
        all.push(("ramp_time", format!("{}ms", whole_millis(profile.ramp))));
    }
    if let Some(span) = profile.span {
        all.push(("size", (span.0 / u64::from(profile.jobs.max(1))).to_string()));
    }
    all.into_iter().map(|(key, value)| (key.to_owned(), Value::String(value))).collect()
}

fn words(profile: &Profile) -> &'static str {
    match (profile.access, profile.reads.0) {
        (Access::Sequential, r) if r >= 1.0 => "read",
        (Access::Sequential, r) if r <= 0.0 => "write",
        (Access::Sequential, _) => "rw",
        (_, r) if r >= 1.0 => "randread",
        (_, r) if r <= 0.0 => "randwrite",
        _ => "randrw",
    }
}

fn direction(of: &Direction, leg: &Measured, short: u64) -> Value {
    let time = leg.elapsed;
    let bytes_per_second = per_second(of.bytes.0 as f64, time);
    let block = leg.profile.block.0 as f64;
    let none = Spread::default();
    let rates = of.spread.as_ref().map_or(&none.rates, |spread| &spread.rates);
    let iops = Samples::of(rates);
    let kib = |operations: f64| operations * block / 1024.0;
    let latency = latency(of);
    let mut clat = latency.clone();
    if let (Some(spread), Some(clat)) = (&of.spread, clat.as_object_mut()) {
        clat.insert("percentile".to_owned(), percentiles(spread));
    }
    json!({
        "io_bytes": of.bytes.0,
        "io_kbytes": of.bytes.0 / 1024,
        "bw_bytes": bytes_per_second as u64,
        "bw": (bytes_per_second / 1024.0) as u64,
        "iops": per_second(of.operations as f64, time),
        "runtime": if of.operations > 0 { whole_millis(time) } else { 0 },
        "total_ios": of.operations,
        "short_ios": short,
        "drop_ios": 0,
        "slat_ns": nanos(&[Seconds(0.0); 4], 0),
        "clat_ns": clat,
        "lat_ns": latency,
        "bw_min": kib(iops.min) as u64,
        "bw_max": kib(iops.max) as u64,
        "bw_agg": if iops.count > 0 { 100.0 } else { 0.0 },
        "bw_mean": kib(iops.mean),
        "bw_dev": kib(iops.deviation),
        "bw_samples": iops.count,
        "iops_min": iops.min as u64,
        "iops_max": iops.max as u64,
        "iops_mean": iops.mean,
        "iops_stddev": iops.deviation,
        "iops_samples": iops.count,
    })
}

fn latency(of: &Direction) -> Value {
    let none = Spread::default();
    let spread = of.spread.as_ref().unwrap_or(&none);
    let mean = of.latency_mean.unwrap_or_default();
    let all = [spread.latency_min, spread.latency_max, mean, spread.latency_deviation];
    nanos(&all, of.operations)
}

/// Minimum, maximum, mean and deviation.
fn nanos([min, max, mean, deviation]: &[Seconds; 4], n: u64) -> Value {
    json!({
        "min": (min.0 * 1e9).round() as u64,
        "max": (max.0 * 1e9).round() as u64,
        "mean": mean.0 * 1e9,
        "stddev": deviation.0 * 1e9,
        "N": n,
    })
}

fn percentiles(spread: &Spread) -> Value {
    let one = |(q, seconds): &(f64, Seconds)| {
        (format!("{:.6}", q * 100.0), json!((seconds.0 * 1e9).round() as u64))
    };
    Value::Object(spread.latency.iter().map(one).collect())
}

/// The flush at a leg's end is the one sync there is.
fn sync(flush: Option<Seconds>) -> Value {
    let time = flush.unwrap_or_default();
    let n = u64::from(flush.is_some());
    json!({ "total_ios": n, "lat_ns": nanos(&[time, time, time, Seconds(0.0)], n) })
}

/// The queue is kept full: all the time at the class of its depth.
fn levels(depth: u32) -> Value {
    let class = DEPTHS.iter().rev().find(|d| **d <= depth).filter(|_| depth < 64);
    let share = |here: bool| json!(if here { 100.0 } else { 0.0 });
    let mut all: Map<String, Value> =
        DEPTHS.iter().map(|d| (d.to_string(), share(class == Some(d)))).collect();
    all.insert(">=64".to_owned(), share(depth >= 64));
    Value::Object(all)
}

fn nothing(classes: &[u32]) -> Value {
    let mut all: Map<String, Value> = classes.iter().map(|d| (d.to_string(), json!(0.0))).collect();
    all.insert(">=64".to_owned(), json!(0.0));
    Value::Object(all)
}

/// Shares of all operations between neighbouring bounds, `from..to` of [`FIO_BOUNDS_US`].
fn classes(leg: &Measured, from: usize, to: usize) -> Value {
    let under = |index: usize| -> u64 {
        let of = |d: &Direction| d.spread.as_ref().and_then(|s| s.under.get(index).copied());
        of(&leg.reads).unwrap_or(0) + of(&leg.writes).unwrap_or(0)
    };
    let total = leg.operations().max(1) as f64;
    let share = |count: u64| json!(100.0 * count as f64 / total);
    let unit = if from == 0 { 1 } else { 1000 };
    let mut all = Map::new();
    for index in from..to {
        let before = index.checked_sub(1).map_or(0, under);
        let name = FIO_BOUNDS_US.get(index).map_or(0, |us| us / unit).to_string();
        all.insert(name, share(under(index).saturating_sub(before)));
    }
    if let (Some(top), true) = (to.checked_sub(1), to == FIO_BOUNDS_US.len()) {
        all.insert(">=2000".to_owned(), share(leg.operations().saturating_sub(under(top))));
    }
    Value::Object(all)
}

fn disk(device: &DeviceUse) -> Value {
    json!({
        "name": device.device,
        "read_ios": device.reads.completed,
        "write_ios": device.writes.completed,
        "read_sectors": device.read_bytes.0 / 512,
        "write_sectors": device.written_bytes.0 / 512,
        "read_merges": device.reads.merged,
        "write_merges": device.writes.merged,
        "read_ticks": whole_millis(device.reads.time),
        "write_ticks": whole_millis(device.writes.time),
        "in_queue": whole_millis(device.queue_time),
        "util": device.busy.0 * 100.0,
    })
}

#[derive(Default)]
struct Samples {
    count: usize,
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
}

impl Samples {
    fn of(rates: &[f32]) -> Self {
        let n = rates.len();
        if n == 0 {
            return Self::default();
        }
        let all = || rates.iter().map(|rate| f64::from(*rate));
        let mean = all().sum::<f64>() / n as f64;
        let square = all().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>();
        Self {
            count: n,
            min: all().fold(f64::INFINITY, f64::min),
            max: all().fold(0.0, f64::max),
            mean,
            // fio divides by n - 1 (stat.c, calc_lat).
            deviation: if n > 1 { (square / (n - 1) as f64).sqrt() } else { 0.0 },
        }
    }
}

fn whole_millis(time: Seconds) -> u64 {
    millis(time.duration())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `Mon Nov 30 13:07:42 2026`, in UTC.
fn ctime(at: Duration) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + at).to_string();
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or("");
    // The epoch was a Thursday.
    let day = DAYS.get((at.as_secs() / 86_400 % 7) as usize).unwrap_or(&"");
    let month = part(5..7).parse::<usize>().ok().and_then(|m| MONTHS.get(m.wrapping_sub(1)));
    format!("{day} {} {} {} {}", month.unwrap_or(&""), part(8..10), part(11..19), part(0..4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_as_ctime_writes_it() {
        let at = Duration::from_secs(1_796_044_062);
        assert_eq!(ctime(at), "Mon Nov 30 13:07:42 2026");
        assert_eq!(ctime(Duration::ZERO), "Thu Jan 01 00:00:00 1970");
    }

    #[test]
    fn a_depth_falls_into_the_class_at_or_under_it() {
        let class = |depth| {
            let levels = levels(depth);
            let all = levels.as_object().unwrap();
            all.iter().find(|(_, share)| **share == json!(100.0)).unwrap().0.clone()
        };
        assert_eq!([1, 3, 4, 31, 63, 64].map(class), ["1", "2", "4", "16", "32", ">=64"]);
    }

    #[test]
    fn samples_have_the_deviation_of_a_sample() {
        let samples = Samples::of(&[2.0, 4.0, 6.0]);
        assert_eq!((samples.count, samples.min, samples.max), (3, 2.0, 6.0));
        assert_eq!((samples.mean, samples.deviation), (4.0, 2.0));
        assert_eq!(Samples::of(&[]).count, 0);
    }

    #[test]
    fn case_096_a_full_disk_is_error_28_and_no_failure_is_error_zero() {
        let full = Outcome::skipped(Skip::Full, "x");
        assert_eq!(error_of(&full), 28);
        for kind in FaultKind::ALL {
            assert!(error_of(&Outcome::failed(kind, "x")) > 0, "{kind:?}");
        }
    }
}
