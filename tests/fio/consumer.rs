//! A consumer of fio's report as dashboards and benchmark runners are: every key with its type, and
//! what must hold between the numbers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// fio's report as dashboards and benchmark runners decode it: every key with its type.
#[derive(Debug, Deserialize)]
pub struct Report {
    #[serde(rename = "fio version")]
    pub fio_version: String,
    pub timestamp: u64,
    pub timestamp_ms: u64,
    pub time: String,
    pub jobs: Vec<Job>,
    pub disk_util: Vec<Disk>,
}

#[derive(Debug, Deserialize)]
pub struct Job {
    pub jobname: String,
    pub error: i32,
    pub elapsed: u64,
    #[serde(rename = "job options")]
    pub options: BTreeMap<String, String>,
    pub read: Direction,
    pub write: Direction,
    pub trim: Direction,
    pub sync: Sync,
    pub job_runtime: u64,
    pub usr_cpu: f64,
    pub sys_cpu: f64,
    pub ctx: u64,
    pub majf: u64,
    pub minf: u64,
    pub iodepth_level: BTreeMap<String, f64>,
    pub latency_us: BTreeMap<String, f64>,
    pub latency_ms: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize)]
pub struct Direction {
    pub io_bytes: u64,
    pub io_kbytes: u64,
    pub bw_bytes: u64,
    pub bw: u64,
    pub iops: f64,
    pub runtime: u64,
    pub total_ios: u64,
    pub short_ios: u64,
    pub drop_ios: u64,
    pub slat_ns: Latency,
    pub clat_ns: Latency,
    pub lat_ns: Latency,
    pub bw_min: u64,
    pub bw_max: u64,
    pub bw_agg: f64,
    pub bw_mean: f64,
    pub bw_dev: f64,
    pub bw_samples: u64,
    pub iops_min: u64,
    pub iops_max: u64,
    pub iops_mean: f64,
    pub iops_stddev: f64,
    pub iops_samples: u64,
}

#[derive(Debug, Deserialize)]
pub struct Latency {
    pub min: u64,
    pub max: u64,
    pub mean: f64,
    pub stddev: f64,
    #[serde(rename = "N")]
    pub n: u64,
    #[serde(default)]
    pub percentile: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub struct Sync {
    pub lat_ns: Latency,
}

#[derive(Debug, Deserialize)]
pub struct Disk {
    pub name: String,
    pub read_ios: u64,
    pub write_ios: u64,
    pub read_merges: u64,
    pub write_merges: u64,
    pub read_ticks: u64,
    pub write_ticks: u64,
    pub in_queue: u64,
    pub util: f64,
}

/// A word for the type of a value; fio writes a counter without and a mean with a decimal point.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "real number",
        Value::Number(_) => "whole number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
        Value::Bool(_) | Value::Null => "nothing",
    }
}

/// Keys of `wanted` that `given` lacks, or has with another type.
pub fn lacking(place: &str, wanted: &Value, given: &Value, out: &mut Vec<String>) {
    if kind(wanted) != kind(given) {
        out.push(format!("{place}: {} is no {}", given, kind(wanted)));
        return;
    }
    match (wanted, given) {
        (Value::Object(wanted), Value::Object(given)) => {
            for (key, value) in wanted {
                let place = format!("{place}.{key}");
                match given.get(key) {
                    // What a job was asked for differs; that it is text is checked by decoding.
                    Some(_) if key == "job options" || key == "global options" => {}
                    Some(other) => lacking(&place, value, other, out),
                    None => out.push(format!("{place} is missing")),
                }
            }
        }
        (Value::Array(wanted), Value::Array(given)) => {
            for (index, value) in wanted.iter().enumerate() {
                match given.get(index).or(given.first()) {
                    Some(other) => lacking(&format!("{place}[{index}]"), value, other, out),
                    None => out.push(format!("{place}[{index}] is missing")),
                }
            }
        }
        _ => {}
    }
}

/// What must hold in any report of a job that went well: one document and nothing beside it (case
/// 102), whose numbers agree with each other.
pub fn consume(text: &str) -> Report {
    let report: Report = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert!(!report.fio_version.is_empty() && !report.time.is_empty());
    assert_eq!(report.timestamp_ms / 1000, report.timestamp);
    for job in &report.jobs {
        assert_eq!((job.error, job.trim.total_ios), (0, 0), "{}", job.jobname);
        assert!(!job.jobname.is_empty() && job.options.contains_key("rw") && job.elapsed > 0);
        assert!(job.usr_cpu >= 0.0 && job.sys_cpu >= 0.0, "{job:?}");
        // The sum over the jobs that are reported as one; of a short one the start has a part in it.
        let longest = job.read.runtime.max(job.write.runtime);
        let jobs = job.job_runtime as f64 / longest as f64;
        let grouped: f64 = job.options.get("numjobs").map_or(1.0, |n| n.parse().unwrap());
        // Each is rounded by itself.
        assert!(job.job_runtime + 1 >= longest, "{job:?}");
        assert!(longest < 1000 || (jobs / grouped - 1.0).abs() < 0.2, "{jobs}: {job:?}");
        assert!(job.ctx > 0 && job.majf < 1_000_000 && job.minf < 1_000_000, "{job:?}");
        let whole = |shares: &BTreeMap<String, f64>| shares.values().sum::<f64>();
        let latency = whole(&job.latency_us) + whole(&job.latency_ms);
        assert!((98.0..102.0).contains(&latency), "{latency} % of all have a class");
        assert!((98.0..102.0).contains(&whole(&job.iodepth_level)), "{:?}", job.iodepth_level);
        for direction in [&job.read, &job.write].into_iter().filter(|d| d.total_ios > 0) {
            consume_direction(direction);
        }
        assert!(job.sync.lat_ns.max >= job.sync.lat_ns.min);
    }
    for disk in &report.disk_util {
        assert!(!disk.name.is_empty() && (0.0..=100.5).contains(&disk.util), "{disk:?}");
        let all = [disk.read_merges, disk.write_merges, disk.read_ticks, disk.write_ticks];
        assert!(all.iter().all(|n| *n < 1 << 40) && disk.in_queue < 1 << 40, "{disk:?}");
    }
    report
}

fn consume_direction(of: &Direction) {
    assert_eq!((of.short_ios, of.drop_ios, of.io_kbytes), (0, 0, of.io_bytes / 1024));
    assert!(of.runtime > 0 && of.iops > 0.0 && of.bw_bytes > 0, "{of:?}");
    assert!(of.bw.abs_diff(of.bw_bytes / 1024) <= 1, "{of:?}");
    let rate = of.total_ios as f64 / (of.runtime as f64 / 1000.0);
    // The runtime is rounded to a millisecond.
    let slack = 1.0 + 2.0 / of.runtime as f64;
    assert!(rate <= of.iops * slack && of.iops <= rate * slack, "{rate} {of:?}");
    for latency in [&of.lat_ns, &of.clat_ns] {
        assert_eq!(latency.n, of.total_ios);
        let (min, max) = (latency.min as f64, latency.max as f64);
        assert!(min <= latency.mean && latency.mean <= max && latency.stddev >= 0.0, "{latency:?}");
    }
    assert!(of.lat_ns.mean * 1.001 >= of.clat_ns.mean && of.slat_ns.max <= of.lat_ns.max);
    let percentiles = &of.clat_ns.percentile;
    let at = |name: &str| percentiles[name];
    assert!(at("50.000000") <= at("95.000000") && at("95.000000") <= at("99.990000"));
    // A class of fio's histogram is up to a 64th wider than what fell into it.
    assert!(at("99.990000") as f64 <= of.clat_ns.max as f64 * 1.02, "{of:?}");
    assert!(of.bw_min <= of.bw_max && of.iops_min <= of.iops_max);
    assert_eq!(of.bw_samples > 0, of.bw_agg > 0.0);
    assert_eq!(of.iops_samples > 0, of.iops_mean > 0.0);
    assert!(of.bw_dev >= 0.0 && of.iops_stddev >= 0.0 && of.bw_mean >= 0.0);
}
