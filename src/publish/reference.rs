//! The metric reference, made from the descriptions, and the rules that promtool doesn't know.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::model::metric::{Desc, MetricKind, Point, Value};

/// How a name ends and the unit that it says, longest first.
const UNITS: [(&str, &str); 6] = [
    ("_timestamp_seconds", "seconds since 1970"),
    ("_operations_per_second", "operations/s"),
    ("_bytes_per_second", "bytes/s"),
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_ratio", "ratio"),
];

/// Ends of names of gauges that say whether something is so.
const STATES: [&str; 13] = [
    "_up",
    "_stale",
    "_known",
    "_stalled",
    "_mismatch",
    "_unreliable",
    "_degraded",
    "_at_ceiling",
    "_enforced",
    "_successful",
    "_flag",
    "_verdict",
    "_separate_wal",
];

/// Ends of names of gauges that count things which are there now.
const COUNTS: [&str; 7] =
    ["_in_flight", "_queue_depth", "_dropped_devices", "_threads", "_fds", "_cpus", "_peers"];

/// Labels that Prometheus or its users set, or that would mean nothing.
const LABELS_TAKEN: [&str; 7] = ["instance", "job", "type", "cluster", "env", "le", "quantile"];

/// Words that hide a unit which isn't a base unit, and that promtool lets pass.
const WORDS_BAD: [&str; 4] = ["percent", "iops", "pct", "throughput"];

/// Ends that the parts of a histogram have.
const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// The unit that a family's name says; `None` where it says none, which is a fault.
pub fn unit(desc: &Desc) -> Option<&'static str> {
    let name = desc.name.strip_suffix("_total").unwrap_or(desc.name);
    if let Some((_, unit)) = UNITS.iter().find(|(end, _)| name.ends_with(end)) {
        return Some(unit);
    }
    match desc.kind {
        MetricKind::Counter => Some("count"),
        _ if name.ends_with("_info") => Some("always 1"),
        _ if STATES.iter().any(|end| name.ends_with(end)) => Some("0 or 1"),
        _ if COUNTS.iter().any(|end| name.ends_with(end)) => Some("count"),
        _ => None,
    }
}

/// What is wrong with the descriptions beyond what `promtool check metrics` finds, one sentence
/// each; empty when all is well.
pub fn own_lint(descs: &[&Desc]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut names: BTreeMap<&str, &Desc> = BTreeMap::new();
    for desc in descs {
        let mut fault = |text: &str| faults.push(format!("{}: {text}", desc.name));
        let other = names.insert(desc.name, desc);
        if other.is_some_and(|other| !other.is_family_of(desc) || other.labels == desc.labels) {
            fault("described twice");
        }
        if !(desc.name.starts_with("loadline_") || desc.name.starts_with("process_")) {
            fault("has no prefix of ours");
        }
        if !is_plain(desc.name) {
            fault("has a character outside a-z, 0-9 and _");
        }
        if let Some(word) = WORDS_BAD.iter().find(|word| desc.name.split('_').any(|w| w == **word))
        {
            fault(&format!("says `{word}`, which is no base unit"));
        }
        if (desc.kind == MetricKind::Counter) != desc.name.ends_with("_total") {
            fault("counters, and only they, end in _total");
        }
        if PARTS.iter().any(|part| desc.name.ends_with(part)) {
            fault("ends as a part of a histogram does");
        }
        if unit(desc).is_none() {
            fault("says no unit");
        }
        if desc.help.trim().is_empty() || desc.source.trim().is_empty() {
            fault("has no help or no source");
        }
        for label in desc.labels.iter().filter(|l| LABELS_TAKEN.contains(l) || !is_plain(l)) {
            fault(&format!("label `{label}` is taken or misspelt"));
        }
        if desc.labels.iter().collect::<BTreeSet<_>>().len() != desc.labels.len() {
            fault("has a label twice");
        }
    }
    faults
}

/// Histograms among `points` with an integer `le`: clients print it as `1` or as `1.0`, and the
/// series would change its name with the format.
pub fn integer_bounds(points: &[Point]) -> Vec<String> {
    let whole = |point: &Point| match &point.value {
        Value::Histogram(h) => h.cumulative().map(|(bound, _)| bound).find(|b| b.fract() == 0.0),
        Value::Number(_) => None,
    };
    let fault = |point: &Point| whole(point).map(|b| format!("{}: le {b}", point.desc.name));
    points.iter().filter_map(fault).collect()
}

/// What stands over the table.
const HEAD: &str = "\
# Metrics

Made from the code by `loadline reference`; a test holds it to that. What can't be known is absent, and
so is what has gone stale: a probe's results after three intervals, a window's gauges after three
windows. The label `device` is the kernel's name, as node_exporter has it.

| name | type | unit | labels | meaning | source |
| --- | --- | --- | --- | --- | --- |
";

/// What stands below the table.
const FOOT: &str = "
## What `loadline_disk_busy_ratio` means

It is iostat's `%util`: the share of the window in which at least one request was outstanding. Nothing
more. A single spindle serves one request at a time, so for it busy is fullness, and 0.98 is the limit.
Flash, arrays, virtual disks and network volumes serve many at once: one request always outstanding
makes them 100 % busy at a few per cent of what they can do. For those look at the queue and the
latency, and hold the load against what a probe has reached there.
The kernel counts in jiffies: short requests are rounded up to one or lost, kernels 5.7 to 6.9 show much
too much on fast disks, and some have a busy time that runs away. Where it can't be true, the ratio is
absent and `loadline_disk_busy_unreliable` is 1: exclude those devices from alerts on busy time. A disk
that answers nothing is 100 % busy too, with no requests completed: `loadline_disk_stalled` says that.
";

/// The reference as a Markdown table, in order of names.
pub fn reference(descs: &[&Desc]) -> String {
    let mut sorted: Vec<&&Desc> = descs.iter().collect();
    sorted.sort_by_key(|desc| desc.name);
    let mut out = String::from(HEAD);
    for desc in sorted {
        let kind = match desc.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels: Vec<String> = desc.labels.iter().map(|l| format!("`{l}`")).collect();
        let (unit, help, source) = (unit(desc).unwrap_or(""), cell(desc.help), cell(desc.source));
        let labels = labels.join(" ");
        // Writing to a String doesn't fail.
        let _ =
            writeln!(out, "| `{}` | {kind} | {unit} | {labels} | {help} | {source} |", desc.name);
    }
    out.push_str(FOOT);
    out
}

fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    name.bytes().all(plain) && name.starts_with(|c: char| c.is_ascii_lowercase())
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::stats::Histogram;

    #[test]
    fn own_families_are_in_order() {
        assert_eq!(own_lint(crate::publish::DESCS), [""; 0]);
    }

    #[test]
    fn each_rule_finds_its_own_fault() {
        let gauge = |name, labels| Desc::gauge(name, labels, "help", "source");
        let cases = [
            (gauge("loadline_busy_percent", &[]), "says `percent`"),
            (gauge("loadline_disk_iops", &[]), "says `iops`"),
            (gauge("loadline_disk_busy", &[]), "says no unit"),
            (gauge("disk_busy_ratio", &[]), "has no prefix"),
            (gauge("loadline_Disk_ratio", &[]), "has a character"),
            (gauge("loadline_reads_total", &[]), "counters, and only they"),
            (gauge("loadline_seconds_sum", &[]), "ends as a part"),
            (gauge("loadline_a_ratio", &["job"]), "label `job`"),
            (gauge("loadline_a_ratio", &["le"]), "label `le`"),
            (gauge("loadline_a_ratio", &["a-b"]), "label `a-b`"),
            (gauge("loadline_a_ratio", &["a", "a"]), "has a label twice"),
            (Desc::counter("loadline_reads", &[], "help", "source"), "counters, and only they"),
            (Desc::gauge("loadline_a_ratio", &[], " ", "source"), "has no help"),
        ];
        for (desc, expected) in cases {
            let faults = own_lint(&[&desc]);
            assert!(faults.iter().any(|f| f.contains(expected)), "{}: {faults:?}", desc.name);
        }
        let twice = gauge("loadline_a_ratio", &[]);
        assert_eq!(own_lint(&[&twice, &twice]), ["loadline_a_ratio: described twice"]);
    }

    #[test]
    fn names_of_the_contract_say_their_units() {
        let cases = [
            ("loadline_disk_busy_ratio", "ratio"),
            ("loadline_probe_last_run_timestamp_seconds", "seconds since 1970"),
            ("loadline_nic_receive_bytes_per_second", "bytes/s"),
            ("loadline_disk_read_operations_per_second", "operations/s"),
            ("loadline_disk_info", "always 1"),
            ("loadline_sampler_up", "0 or 1"),
            ("loadline_disk_in_flight", "count"),
        ];
        for (name, expected) in cases {
            assert_eq!(unit(&Desc::gauge(name, &[], "h", "s")), Some(expected), "{name}");
        }
        let busy = Desc::counter("loadline_disk_busy_seconds_total", &[], "h", "s");
        assert_eq!(unit(&busy), Some("seconds"));
    }

    #[test]
    fn an_integer_bound_is_found() {
        static TIMES: Desc = Desc::histogram("loadline_a_seconds", &[], "h", "s");
        let point = |bounds| Point::histogram(&TIMES, &[], Arc::new(Histogram::new(bounds)));
        assert_eq!(integer_bounds(&[point(&[0.5, 1.0])]), ["loadline_a_seconds: le 1"]);
        assert!(integer_bounds(&[point(&[0.5, 1.1])]).is_empty());
    }

    #[test]
    fn the_reference_has_a_row_a_family_in_order() {
        let b = Desc::gauge("loadline_b_ratio", &["device"], "this | that", "/proc/b");
        let a = Desc::counter("loadline_a_total", &[], "things", "/proc/a");
        let text = reference(&[&b, &a]);
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(
            rows,
            [
                "| `loadline_a_total` | counter | count |  | things | /proc/a |",
                "| `loadline_b_ratio` | gauge | ratio | `device` | this \\| that | /proc/b |",
            ]
        );
    }
}
