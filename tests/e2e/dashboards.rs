//! Every panel and variable of the dashboards, asked of a real Prometheus that scrapes real daemons.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::Promise;
use crate::harness::{Daemon, LoopDisk, Mounted, NO_PROBES, Setup, until_within};
use crate::prometheus::Prometheus;

pub const PROMISES: &[Promise] = &[Promise::new(
    "every_panel_and_variable_shows_what_daemons_export_and_nothing_without_them",
    all_panels,
)
.root()
.needs(&["prometheus", "losetup", "mkfs.ext4", "dd"])];

/// What no scrape here can have, by the beginning of its name or of an expression, and why.
const ABSENT: &[(&str, &str)] = &[
    ("loadline_disk_ceiling_", "a disk in memory ends at the CPU: no ceiling of it is learned"),
    ("loadline_ceiling_info", "a disk in memory ends at the CPU: no ceiling of it is learned"),
    ("loadline_ceiling_timestamp_seconds", "what is declared or detected was not measured"),
    ("loadline:probe_operations_per_second", "records are of an hour and a week"),
    ("loadline_probe_ceiling_ratio", "no number is known for what bound the runs"),
    ("loadline_probe_io_limit_used_ratio", "no control group limits I/O here"),
    ("loadline_probe_rate_variation_ratio", "runs of a second are too short to tell"),
    ("loadline_probe_cpu_steal_ratio", "needs a hypervisor"),
    ("loadline_cpu_throttled_seconds_total", "no control group limits CPUs here"),
    ("loadline_probe_cpu_throttled_ratio", "no control group limits CPUs here"),
    ("loadline_nic_allowance_exceeded_total", "needs a cloud's driver"),
    ("loadline_nic_busiest_member_utilization_ratio", "needs a bond"),
    ("loadline_nic_transmit_requeues_total", "the loopback has no queueing discipline"),
    ("loadline_nic_transmit_queue_drops_total", "the loopback has no queueing discipline"),
    ("loadline_nic_transmit_backlog_bytes", "the loopback has no queueing discipline"),
    ("loadline_network_namespace_mismatch", "needs the right to look at the first process"),
    ("loadline_disk_busy_unreliable", "not every disk has a busy time"),
    ("loadline_disk_degraded", "needs a measured ceiling"),
    ("loadline_disk_leaf_info", "needs a stack of disks"),
    ("peer=~", "no peers are configured"),
    ("loadline_link_probe_", "no peers are configured"),
    ("loadline_mesh_", "no peers are configured"),
    ("loadline_peer_tests_total", "no peers are configured"),
    ("loadline_oltp_", "no OLTP probe is configured"),
    ("loadline_osd_", "no OSD probe is configured"),
    ("ALERTS{", "nothing is wrong"),
    ("increase(loadline_samples_late_total", "no trouble"),
    ("increase(loadline_lane_restarts_total", "no trouble"),
    ("increase(loadline_sampler_rejected_total", "no trouble"),
    ("increase(loadline_sampler_failures_total", "no trouble"),
    ("increase(loadline_state_discarded_total", "no trouble"),
    ("sum without (probe) (increase(loadline_probe_skips_total", "nothing was skipped"),
    ("sum without (probe) (increase(loadline_probe_failures_total", "nothing failed"),
];

/// What only runs of the kind `disk` publish: on a host that others keep busy the guard lets none run.
const OF_DISK_RUNS: &str = "loadline_probe_foreign_load_ratio";

/// A whole first pass and two more of the probe that always may run.
const RUNS: f64 = 3.0;
const PATIENCE: Duration = Duration::from_secs(40);

struct Asked {
    panel: String,
    place: String,
    expression: String,
    legend: String,
    /// A table or a number: of now only.
    instant: bool,
    /// What the panel says where there is nothing.
    none: bool,
}

fn boards() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let json = paths.filter(|path| path.extension().is_some_and(|e| e == "json"));
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.file_stem().unwrap().display().to_string(), serde_json::from_str(&text).unwrap())
    };
    json.map(read).collect()
}

/// Variables as Grafana fills them in, with everything chosen and a scrape each second.
fn filled(text: &str) -> String {
    let mut text = text.replace("$__rate_interval", "20s");
    for variable in ["job", "instance", "device", "target", "probe", "peer"] {
        text = text.replace(&format!("\"${variable}\""), "\".+\"");
    }
    assert!(!text.contains('$'), "a variable without a value: {text}");
    text
}

fn asked() -> Vec<Asked> {
    let mut all = Vec::new();
    for (board, json) in boards() {
        for panel in json["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let text = |key: &str| target[key].as_str().unwrap().to_owned();
                let title = format!("{board}: {}", panel["title"]);
                all.push(Asked {
                    place: format!("{title}: {}", text("refId")),
                    panel: title,
                    expression: filled(&text("expr")),
                    legend: text("legendFormat"),
                    instant: target["instant"] == true,
                    none: panel["fieldConfig"]["defaults"]["noValue"].is_string(),
                });
            }
        }
    }
    assert!(all.len() > 100);
    all
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Series of an instant query, and where the panel draws over time of a range query too.
fn answers(prometheus: &Prometheus, query: &Asked, at: f64) -> Result<Vec<Value>, String> {
    let text = query.expression.as_str();
    let (start, end) = ((at - 20.0).to_string(), at.to_string());
    let mut data = vec![prometheus.ask("query", &[("query", text), ("time", &end)])?];
    if !query.instant {
        let range = [("query", text), ("start", &start), ("end", &end), ("step", "2")];
        data.push(prometheus.ask("query_range", &range)?);
        let series = |n: usize| data[n]["result"].as_array().map_or(0, Vec::len);
        if series(0) > 0 && series(1) == 0 {
            return Err("something now, but nothing over time".into());
        }
    }
    Ok(data.iter().flat_map(|d| d["result"].as_array().cloned().unwrap_or_default()).collect())
}

/// What is wrong with a series: its values, its labels, or whose it is.
fn complaint(series: &Value, query: &Asked) -> Option<String> {
    let labels = &series["metric"];
    if labels["job"] == "other" {
        return Some(format!("shows what is not loadline's: {labels}"));
    }
    let over_time = series["values"].as_array().cloned().unwrap_or_default();
    let mut values = over_time.iter().chain(series.get("value")).map(|v| v[1].as_str().unwrap());
    if let Some(value) = values.find(|v| !v.parse::<f64>().is_ok_and(f64::is_finite)) {
        return Some(format!("{value} of {labels}"));
    }
    let mut named = query.legend.split("{{").skip(1).filter_map(|part| part.split("}}").next());
    let missing = named.find(|label| labels[label].as_str().is_none_or(str::is_empty))?;
    Some(format!("the legend names `{missing}`, and there is only {labels}"))
}

/// Daemons on two ports: one with disk probes in memory and links of known rate, one without
/// probes: they would take turns.
fn daemons(disk: &Mounted) -> (Daemon, Daemon) {
    let name = disk.disk.name();
    let config = format!(
        "guard: {{reserve: 64MiB}}\n\
         sample: {{disks: {{include: [{name}]}}}}\n\
         disks: {{{name}: {{media: hdd}}}}\n\
         links: {{lo: {{rate: 10Gbit}}}}\n\
         targets:\n  - {{name: t, path: {}, ballast: 64MiB, budget: 1024GiB,\n     \
         backing: {{media: ssd, operations_limit: 100000, bytes_limit: 1GB/s}}}}\n\
         probes:\n  - {{name: commit, kind: latency, target: t, every: 10s,\n     \
         latency: {{reads: 200, writes: 100}}}}\n  \
         - {{name: mix, kind: disk, target: t, every: 10s, disk: {{profile: rand_rw, runtime: 1s}}}}\n",
        disk.path.display()
    );
    (Setup::config(config).start(), Setup::config(NO_PROBES).start())
}

/// Whether the probe that only a quiet host lets run has run; panics if it should have.
fn disk_probe_ran(daemon: &Daemon) -> bool {
    let begun = Instant::now();
    // Runs take turns with those of every other test of this host.
    until_within(PATIENCE * 4, "several runs", || {
        daemon.page().get("loadline_probe_runs_total", &["\"commit\""]).filter(|n| *n >= RUNS)
    });
    loop {
        let page = daemon.page();
        let of_mix = |name| page.get(name, &["probe=\"mix\""]);
        if of_mix("loadline_probe_operations_per_second").is_some() {
            return true;
        }
        if begun.elapsed() > PATIENCE {
            let skips = page.get("loadline_probe_skips_total", &["\"mix\"", "reason=\"busy\""]);
            assert!(skips.is_some_and(|n| n > 0.0), "no run, and none was held back");
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(500));
    }
}

/// Reads a disk until it is dropped.
struct Reading(Child);

impl Reading {
    fn of(disk: &Mounted) -> Self {
        let from = format!("if={}", disk.disk.device);
        let again = "while dd \"$0\" of=/dev/null bs=64k count=200 iflag=direct; do :; done";
        let mut shell = Command::new("sh");
        Self(shell.args(["-c", again, &from]).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn all_panels() {
    let disk = Mounted::on(LoopDisk::in_memory(512));
    let (probing, plain) = daemons(&disk);
    let prometheus = Prometheus::scraping(&[&probing, &plain]);
    prometheus.until_some("up{job=\"loadline\"}");
    let asked = asked();

    // A dashboard that is imported where no daemon is scraped: no error, and no zero that looks well.
    for query in &asked {
        let found = answers(&prometheus, query, 1000.0);
        assert_eq!(found, Ok(Vec::new()), "{}: without data", query.place);
    }

    let quiet = disk_probe_ran(&probing);
    // The server has seen runs begin and end, and how long a read takes.
    for way in ["read", "write"] {
        let count = format!("loadline_probe_{way}_duration_seconds_count");
        prometheus.until_some(&format!("increase({count}[5m]) > 0"));
    }
    let _reading = Reading::of(&disk);
    prometheus.until_some("loadline_disk_read_latency_seconds");
    let (mut wrong, mut shown) = (unused(&asked), BTreeSet::new());
    for query in &asked {
        let reason = rightly_empty(&query.expression, quiet);
        match until_some(&prometheus, query, reason.is_none()) {
            Err(error) => wrong.push(format!("{}: {error}", query.place)),
            Ok(found) if found.is_empty() => match reason {
                Some(reason) => println!("empty: {}: {reason}", query.place),
                None => wrong.push(format!("{}: empty: {}", query.place, query.expression)),
            },
            Ok(found) => {
                shown.insert(&query.panel);
                let complaints = found.iter().filter_map(|series| complaint(series, query));
                wrong.extend(complaints.take(1).map(|text| format!("{}: {text}", query.place)));
            }
        }
    }
    let silent = asked.iter().filter(|query| !query.none && !shown.contains(&query.panel));
    wrong.extend(silent.map(|query| format!("{}: empty without a word (`none`)", query.panel)));
    wrong.extend(variables(&prometheus));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Reasons that excuse nothing any more.
fn unused(asked: &[Asked]) -> Vec<String> {
    let excuses = |name: &str| asked.iter().any(|query| query.expression.contains(name));
    let idle = ABSENT.iter().filter(|(name, _)| !excuses(name));
    idle.map(|(name, _)| format!("no panel asks for {name}")).collect()
}

fn rightly_empty(expression: &str, quiet: bool) -> Option<&'static str> {
    let absent = ABSENT.iter().find(|(name, _)| expression.contains(name)).map(|(_, why)| *why);
    let of_disk_runs = !quiet && expression.contains(OF_DISK_RUNS);
    absent.or(of_disk_runs.then_some("others kept the host busy: the guard let no disk probe run"))
}

/// A window's gauge may be absent in one scrape and there in the next.
fn until_some(prometheus: &Prometheus, query: &Asked, wanted: bool) -> Result<Vec<Value>, String> {
    let begun = Instant::now();
    loop {
        let found = answers(prometheus, query, now())?;
        if !found.is_empty() || !wanted || begun.elapsed() > Duration::from_secs(5) {
            return Ok(found);
        }
        std::thread::park_timeout(Duration::from_millis(500));
    }
}

/// What is wrong with the values that can be chosen.
fn variables(prometheus: &Prometheus) -> Vec<String> {
    let mut wrong = Vec::new();
    for (board, json) in boards() {
        for variable in json["templating"]["list"].as_array().unwrap() {
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let inner = query.strip_prefix("label_values(").and_then(|q| q.strip_suffix(')'));
            let (selector, label) = inner.unwrap().rsplit_once(", ").unwrap();
            let path = format!("label/{label}/values");
            let values = prometheus.ask(&path, &[("match[]", &filled(selector))]).unwrap();
            let values: Vec<_> = values.as_array().unwrap().iter().collect();
            let place = format!("{board}: ${label}");
            if values.is_empty() && rightly_empty(selector, true).is_none() {
                wrong.push(format!("{place}: nothing to choose"));
            }
            if label == "instance" && values.len() != 2 {
                wrong.push(format!("{place}: {values:?}, but there are two daemons"));
            }
        }
    }
    wrong
}
