//! fio's JSON (`--output-format=json`): one run per group of jobs that ran together.

use std::path::Path;

use serde_json::Value;

use super::{json, malformed, number, some, text};
use crate::base::fault::Fault;
use crate::base::units::{Bytes, Frequency, Rate, Ratio, Seconds};
use crate::judge::facts::{CpuFacts, DeviceFacts, Facts, Run, SecondLeg};
use crate::model::job::Access;
use crate::model::outcome::Flags;
use crate::probe::fio;

/// More than one file can hold of sound jobs.
const JOBS_MAX: usize = 1000;
/// fio looks at the disks four times a second: in a shorter run the last look is missed.
const DISKS_COUNT_FROM: Seconds = Seconds(5.0);
/// A leg at about twice the depth.
const SECOND_LEG: std::ops::RangeInclusive<f64> = 1.9..=2.1;

/// The runs that fio's `bytes` hold; `path` names them in complaints.
pub(in crate::cli) fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Run>, Fault> {
    let (file, _) = json(path, bytes)?;
    let jobs = file.get("jobs").and_then(Value::as_array);
    let (Some(_), Some(jobs)) = (text(&file, "fio version"), jobs) else {
        let text = "no `fio version` and `jobs`: not what `fio --output-format=json` writes";
        return Err(malformed(path, text));
    };
    if jobs.is_empty() || jobs.len() > JOBS_MAX {
        return Err(malformed(path, format!("{} jobs", jobs.len())));
    }
    let global = file.get("global options").unwrap_or(&Value::Null);
    let groups = groups(jobs);
    let disks = file.get("disk_util").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    // Of groups one after the other nobody says which kept the disks busy.
    let disks = if groups.len() == 1 { disks } else { &[] };
    let runs: Result<Vec<Run>, Fault> =
        groups.iter().map(|group| run(path, group, global, disks)).collect();
    let mut runs = runs?;
    let legs: Vec<Option<SecondLeg>> = runs.iter().map(|run| second_leg(run, &runs)).collect();
    for (run, leg) in runs.iter_mut().zip(legs) {
        run.facts.second_leg = leg;
    }
    Ok(runs)
}

/// Jobs that ran together, in the order of the file.
fn groups(jobs: &[Value]) -> Vec<Vec<&Value>> {
    let mut groups: Vec<(Option<i64>, Vec<&Value>)> = Vec::new();
    for job in jobs {
        let id = job.get("groupid").and_then(Value::as_i64);
        match groups.iter_mut().find(|(known, _)| id.is_some() && *known == id) {
            Some((_, group)) => group.push(job),
            None => groups.push((id, vec![job])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn run(path: &Path, group: &[&Value], global: &Value, disks: &[Value]) -> Result<Run, Fault> {
    let jobs: Vec<Job<'_>> = group.iter().map(|value| Job { value, global }).collect();
    for job in &jobs {
        if let Some(error) = number(job.value, "error").filter(|error| *error != 0.0) {
            return Err(malformed(path, format!("job `{}` ended with error {error}", job.name())));
        }
    }
    let mut names: Vec<&str> = jobs.iter().map(Job::name).collect();
    names.dedup();
    let (read, write) = (Flow::of(&jobs, "read"), Flow::of(&jobs, "write"));
    let duration = jobs.iter().filter_map(Job::seconds).reduce(f64::max).map(Seconds);
    let cpu = jobs.iter().filter_map(|job| job.cpu()).reduce(f64::max);
    let facts = Facts {
        access: same(jobs.iter().map(Job::access)).flatten(),
        block_bytes: same(jobs.iter().map(Job::block)).flatten(),
        depth: Some(jobs.iter().map(Job::in_flight).sum()),
        duration_seconds: duration,
        device: device(disks, duration, (&read, &write)),
        read_operations_per_second: some(Some(read.operations)).map(Frequency),
        write_operations_per_second: some(Some(write.operations)).map(Frequency),
        read_bytes_per_second: some(Some(read.bytes)).map(Rate),
        write_bytes_per_second: some(Some(write.bytes)).map(Rate),
        latency_p50_seconds: if read.operations >= write.operations {
            read.latency
        } else {
            write.latency
        },
        cpu: CpuFacts { busiest_ratio: cpu.map(Ratio), ..CpuFacts::default() },
        flags: Flags {
            direct: same(jobs.iter().map(|job| job.option(&["direct"]) == Some("1"))),
            ..Flags::default()
        },
        ..Facts::default()
    };
    Ok(Run { name: names.join(" + "), kind: "disk".into(), profile: None, facts })
}

/// What all say; `None` where they differ.
fn same<T: PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

/// One entry of `jobs`, which stands for several where fio reported a group as one.
struct Job<'a> {
    value: &'a Value,
    global: &'a Value,
}

impl<'a> Job<'a> {
    fn name(&self) -> &'a str {
        text(self.value, "jobname").unwrap_or("fio")
    }

    /// By any of its names, of the job or else of all jobs.
    fn option(&self, names: &[&str]) -> Option<&'a str> {
        let of = |options: &'a Value| names.iter().find_map(|name| text(options, name));
        self.value.get("job options").and_then(of).or(of(self.global))
    }

    fn access(&self) -> Option<Access> {
        match self.option(&["rw", "readwrite"]).unwrap_or("read") {
            rw if rw.contains("trim") => None,
            rw if rw.starts_with("rand") => Some(Access::Random),
            _ => Some(Access::Sequential),
        }
    }

    /// Where it is the same in each direction: `4k`, `4k,4k`.
    fn block(&self) -> Option<Bytes> {
        let sizes = self.option(&["bs", "blocksize"])?.split(',');
        same(sizes.map(|size| fio::size(size, self.kilo()).ok())).flatten().map(Bytes)
    }

    fn kilo(&self) -> u64 {
        if self.option(&["kb_base"]) == Some("1000") { 1000 } else { 1024 }
    }

    /// Time of the slower direction.
    fn seconds(&self) -> Option<f64> {
        let of = |direction: &str| some(number(self.value, &format!("{direction}.runtime")));
        [of("read"), of("write")].into_iter().flatten().reduce(f64::max).map(|ms| ms / 1e3)
    }

    /// `job_runtime` is the sum over the jobs that this entry stands for: whether they were grouped
    /// is said nowhere.
    fn count(&self) -> f64 {
        let all = some(number(self.value, "job_runtime")).map(|ms| ms / 1e3);
        all.zip(self.seconds()).map_or(1.0, |(all, each)| (all / each).round().max(1.0))
    }

    /// Engines that wait for each operation have one in flight, whatever depth is asked for.
    fn in_flight(&self) -> f64 {
        let waits = matches!(
            self.option(&["ioengine"]),
            None | Some("sync" | "psync" | "vsync" | "pvsync" | "pvsync2" | "mmap")
        );
        let asked = self.option(&["iodepth"]).map(|depth| fio::count(depth, self.kilo()));
        let depth = asked.and_then(Result::ok).filter(|_| !waits).unwrap_or(1).max(1);
        f64::from(depth) * self.count()
    }

    /// Of one CPU, the mean of the jobs.
    fn cpu(&self) -> Option<f64> {
        let (usr, sys) = number(self.value, "usr_cpu").zip(number(self.value, "sys_cpu"))?;
        Some(((usr + sys) / 100.0).clamp(0.0, 1.0))
    }
}

/// One direction of all jobs of a group.
#[derive(Default)]
struct Flow {
    operations: f64,
    bytes: f64,
    total_operations: f64,
    total_bytes: f64,
    latency: Option<Seconds>,
}

impl Flow {
    fn of(jobs: &[Job<'_>], direction: &str) -> Flow {
        let mut flow = Flow::default();
        for job in jobs {
            let at = |key: &str| number(job.value, &format!("{direction}.{key}")).unwrap_or(0.0);
            flow.operations += at("iops");
            flow.bytes += if at("bw_bytes") > 0.0 { at("bw_bytes") } else { at("bw") * 1024.0 };
            flow.total_operations += at("total_ios");
            flow.total_bytes += at("io_bytes");
            flow.latency = flow.latency.or(median(job.value, direction));
        }
        flow
    }
}

/// The keys of fio's percentiles hold dots themselves.
fn median(job: &Value, direction: &str) -> Option<Seconds> {
    let at = ["clat_ns", "percentile", "50.000000"];
    let value = at.iter().try_fold(job.get(direction)?, |value, key| value.get(key))?;
    some(value.as_f64()).map(|ns| Seconds(ns / 1e9))
}

/// What fio saw of the disks.
fn device(disks: &[Value], time: Option<Seconds>, (read, write): (&Flow, &Flow)) -> DeviceFacts {
    let time = time.filter(|time| *time >= DISKS_COUNT_FROM);
    // A stacked device stands beside what is under it: sums would count twice.
    let stacked = disks.iter().any(|disk| disk.get("aggr_util").is_some());
    if disks.is_empty() || stacked || time.is_none() {
        return DeviceFacts::default();
    }
    let all = |key: &str| disks.iter().map(|disk| number(disk, key)).sum::<Option<f64>>();
    let share = |direction: &str, flow: &Flow| {
        // Merged or not, each operation counts; fio from 3.36 on tells sectors too.
        let sectors = all(&format!("{direction}_sectors")).map(|n| n * 512.0 / flow.total_bytes);
        let operations = all(&format!("{direction}_ios"))
            .zip(all(&format!("{direction}_merges")))
            .map(|(ios, merges)| (ios + merges) / flow.total_operations);
        sectors.or(operations).filter(|share| share.is_finite())
    };
    let busy = disks.iter().filter_map(|disk| number(disk, "util")).reduce(f64::max);
    DeviceFacts {
        busy_ratio: busy.map(|percent| Ratio((percent / 100.0).clamp(0.0, 1.0))),
        in_flight: all("in_queue").zip(time).map(|(ms, time)| ms / 1e3 / time.0),
        read_share: share("read", read),
        write_share: share("write", write),
        count: u32::try_from(disks.len()).ok(),
        ..DeviceFacts::default()
    }
}

/// Another group of the same shape with about twice as much in flight.
fn second_leg(run: &Run, all: &[Run]) -> Option<SecondLeg> {
    let first = &run.facts;
    let shape = |facts: &Facts| (facts.access, facts.block_bytes);
    let mix = |facts: &Facts| facts.write_ratio().map(|w| (w * 20.0).round());
    let leg = all.iter().map(|run| &run.facts).find(|facts| {
        let times = facts.depth.zip(first.depth).map(|(second, first)| second / first);
        shape(facts) == shape(first)
            && mix(facts) == mix(first)
            && times.is_some_and(|times| SECOND_LEG.contains(&times))
    })?;
    Some(SecondLeg {
        depth: leg.depth,
        rate_per_second: leg.rate()?,
        latency_p50_seconds: leg.latency_p50_seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<Vec<Run>, String> {
        parse(Path::new("a.json"), text.as_bytes()).map_err(|fault| fault.text)
    }

    fn job(name: &str, group: u32, depth: u32, iops: f64) -> String {
        format!(
            r#"{{"jobname": "{name}", "groupid": {group}, "error": 0, "job_runtime": 20000,
               "job options": {{"rw": "randread", "bs": "4k", "iodepth": "{depth}"}},
               "usr_cpu": 10.5, "sys_cpu": 20.5,
               "read": {{"iops": {iops}, "bw_bytes": {}, "runtime": 10000, "total_ios": 1000,
                         "clat_ns": {{"percentile": {{"50.000000": 1500000}}}}}}}}"#,
            iops * 4096.0
        )
    }

    fn file(jobs: &[String]) -> String {
        let jobs = jobs.join(", ");
        format!(
            r#"fio: a warning
            {{"fio version": "fio-3.33", "global options": {{"ioengine": "libaio", "direct": "1"}},
              "jobs": [{jobs}], "disk_util": [{{"name": "sda", "util": 99.5, "in_queue": 79000,
              "read_ios": 990, "read_merges": 5, "write_ios": 0, "write_merges": 0}}]}}"#
        )
    }

    #[test]
    fn a_group_reported_as_one_is_as_deep_as_all_its_jobs() {
        let runs = parse_text(&file(&[job("a", 0, 4, 100.0)])).unwrap();
        let facts = &runs[0].facts;
        assert_eq!((facts.depth, facts.operations()), (Some(8.0), Some(100.0)));
        assert_eq!(facts.device.busy_ratio, Some(Ratio(0.995)));
        assert_eq!((facts.device.in_flight, facts.device.read_share), (Some(7.9), Some(0.995)));
        assert_eq!(facts.latency_p50_seconds, Some(Seconds(0.0015)));
        assert_eq!((facts.flags.direct, facts.cpu()), (Some(true), Some(0.31)));
    }

    #[test]
    fn jobs_of_one_group_ran_together_and_later_ones_are_a_second_leg() {
        let jobs = [job("a", 0, 4, 60.0), job("a", 0, 4, 40.0), job("b", 1, 16, 110.0)];
        let runs = parse_text(&file(&jobs)).unwrap();
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[0].facts.operations(), Some(100.0));
        let leg = runs[0].facts.second_leg.unwrap();
        assert_eq!((leg.depth, leg.rate_per_second), (Some(32.0), 110.0));
        assert_eq!(runs[0].facts.device, DeviceFacts::default(), "nobody says whose it was");
        assert_eq!(runs[1].facts.second_leg, None);
    }

    #[test]
    fn sizes_are_read_as_fio_reads_them() {
        for (typed, binary, decimal) in [
            ("4k", Some(4096), Some(4000)),
            ("4kB", Some(4096), Some(4000)),
            ("4KiB", Some(4000), Some(4096)),
            ("4k,4k", Some(4096), Some(4000)),
            ("4k,4096,0x1000", Some(4096), None),
            ("4k,8k", None, None),
            ("a few", None, None),
        ] {
            let text = file(&[job("a", 0, 4, 1.0).replace("4k", typed)]);
            let block = |text: &str| parse_text(text).unwrap()[0].facts.block_bytes;
            assert_eq!(block(&text), binary.map(Bytes), "{typed}");
            let text = text.replace("\"direct\"", "\"kb_base\": \"1000\", \"direct\"");
            assert_eq!(block(&text), decimal.map(Bytes), "{typed} with kb_base=1000");
        }
        let deep = file(&[job("a", 0, 4, 1.0).replace("\"4\"", "\"1k\"")]);
        assert_eq!(parse_text(&deep).unwrap()[0].facts.depth, Some(2048.0));
    }

    #[test]
    fn case_102_a_report_between_what_people_read() {
        let bytes =
            include_bytes!("../../../tests/fixtures/cases/102-fio-json-plus-normal-text.input");
        let runs = parse(Path::new("a.json"), bytes).unwrap();
        let [run] = runs.as_slice() else { panic!("{runs:?}") };
        assert_eq!((run.name.as_str(), run.facts.depth), ("/dev/nvme8n4", Some(10.0)));
        assert_eq!(run.facts.operations(), Some(3_295.040_992));
        assert_eq!(run.facts.write_bytes(), 13_500_173.0);
    }

    #[test]
    fn words_around_a_report_are_no_part_of_it_whatever_they_hold() {
        let plain = file(&[job("a", 0, 4, 700.0)]);
        let facts = |text: &str| parse_text(text).unwrap().remove(0).facts;
        for (before, behind) in [
            ("x{1}.fio: {a} is set\n", ""),
            ("note: {\nfio-3.33 } \r\n", "\na: (groupid=0): {read: IOPS=1}\n}"),
            ("\u{0}\u{feff}\n", "\n\u{0}"),
        ] {
            let text = format!("{before}{plain}{behind}");
            assert_eq!(facts(&text), facts(&plain), "{before:?}");
        }
    }

    #[test]
    fn what_is_no_result_of_fio_is_refused_in_words() {
        let failed = job("a", 0, 4, 1.0).replace("\"error\": 0", "\"error\": 5");
        for (text, said) in [
            ("", "a.json: empty"),
            (
                "{}",
                "a.json: no `fio version` and `jobs`: not what `fio --output-format=json` writes",
            ),
            ("{\"fio version\": \"x\", \"jobs\": []}", "a.json: 0 jobs"),
            (
                "{\"fio version\": ",
                "a.json: not JSON: EOF while parsing a value at line 1 column 16",
            ),
            (&file(&[failed]), "a.json: job `a` ended with error 5"),
        ] {
            assert_eq!(parse_text(text).unwrap_err(), said);
        }
    }
}
