//! The OLTP workload by hand: pblio's command line, its last line and its data file.

use std::path::Path;

use tempfile::TempDir;

use crate::Promise;
use crate::harness::{Daemon, Page, Ran, Setup, disk_dir, loadline};
use crate::model::Physics;
use crate::place::Volume;

pub const PROMISES: &[Promise] = &[
    Promise::new("probe_oltp_takes_pblios_line_and_prints_its_last_one", pblio).alone(),
    Promise::new("case_098_probe_oltp_never_writes_over_somebodys_data_unasked", precious).alone(),
    Promise::new("a_search_in_a_daemon_ends_with_its_rate_and_its_curve", in_a_daemon)
        .alone()
        .root()
        .needs(&["losetup", "mkfs.ext4"]),
];

/// A file of so many MiB that holds nothing.
fn empty(path: &Path, mib: u64) -> String {
    std::fs::File::create(path).unwrap().set_len(mib << 20).unwrap();
    path.display().to_string()
}

fn probe(words: &[&str], state: &Path) -> Ran {
    loadline(&[&["probe", "oltp"], words].concat(), state)
}

fn pblio() {
    // Files of one ASU lie in different directories, which the worker may then write in.
    let [one, two] = [disk_dir(), disk_dir()];
    let asu1 = [empty(&one.path().join("1a"), 12), empty(&two.path().join("1b"), 12)].join(",");
    let asu1 = format!("-asu1={asu1}");
    let [asu2, asu3] = [empty(&one.path().join("2"), 24), empty(&two.path().join("3"), 6)];
    let data = one.path().join("pblio.data").display().to_string();
    let files = [asu1.as_str(), "-asu2", &asu2, "-asu3", &asu3, "-bsu", "4", "-runlen", "3"];
    let ran = probe(&[&files[..], &["-data", &data, "-dataperiod=1"]].concat(), one.path());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let last = ran.out.lines().last().unwrap();
    let words: Vec<&str> = last.split(' ').collect();
    let [avg, rate, "", "Avg", latency, "ms"] = words[..] else { panic!("{last}") };
    assert_eq!(avg, "Avg");
    let number = |word: &str, name: &str| word.strip_prefix(name).unwrap().parse::<f64>().unwrap();
    let rate = number(rate, "IOPS:");
    assert!((100.0..300.0).contains(&rate), "4 BSU are 200 a second: {last}");
    assert!(number(latency, "Latency:") > 0.0, "{last}");
    let period = ran.out.lines().next().unwrap();
    assert!(period.starts_with("ios:") && period.ends_with(" ms"), "{period}");
    let lines = std::fs::read_to_string(&data).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 3, "one each second, and the whole at the end");
    let ios = |line: &serde_json::Value| line["spc"]["total"]["ios"].as_u64().unwrap();
    assert!(lines.is_sorted_by_key(ios), "since the run began");
    let seconds = ios(lines.last().unwrap()) as f64 / rate;
    assert!((2.0..4.0).contains(&seconds), "{seconds}");
}

fn precious() {
    let dir = disk_dir();
    let [asu1, asu3] = ["1", "3"].map(|name| empty(&dir.path().join(name), 12));
    let data = dir.path().join("2");
    std::fs::write(&data, vec![7; 12 << 20]).unwrap();
    let asu2 = data.display().to_string();
    let files = ["-asu1", &asu1, "-asu2", &asu2, "-asu3", &asu3, "-bsu", "1", "-runlen", "1"];
    let refused = probe(&files, dir.path());
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.err.contains("--yes"), "{}", refused.err);
    assert_eq!(std::fs::read(&data).unwrap(), vec![7; 12 << 20]);
    let device = probe(&["-asu1=/dev/sda", "-asu2=/dev/sdb", "-asu3=/dev/sdc"], dir.path());
    assert_eq!(device.code, Some(2), "{}", device.err);
    assert!(device.err.contains("nothing is written to devices"), "{}", device.err);
    let told = probe(&[&files[..], &["--yes"]].concat(), dir.path());
    assert_eq!(told.code, Some(0), "{}", told.err);
}

/// What a guard sees of this host: its disks and mounts as they are now. It waits for nobody's load.
fn quiet_host() -> TempDir {
    let proc = tempfile::tempdir().unwrap();
    std::fs::create_dir(proc.path().join("self")).unwrap();
    for file in ["diskstats", "self/mountinfo"] {
        let now = std::fs::read(format!("/proc/{file}")).unwrap();
        std::fs::write(proc.path().join(file), now).unwrap();
    }
    proc
}

/// A head that serves a thousand operations a second, so that little is moved; how many it was found
/// to serve is the lab's to hold against theory, on an idle host.
fn in_a_daemon() {
    let volume = Volume::ext4(Physics::constant(1000.0, 1), "noatime");
    let proc = quiet_host();
    let config = format!(
        "guard: {{reserve: 64MiB}}\n\
         targets: [{{name: srv, path: {}, ballast: 64MiB, budget: 16GiB}}]\n\
         probes: [{{name: search, kind: oltp, target: srv, oltp: {{limit: 50ms, runtime: 44s}}}}]\n",
        volume.path().display()
    );
    let args = vec!["--path.procfs".to_owned(), proc.path().display().to_string()];
    let daemon = Setup { args, ..Setup::config(config) }.start();
    let of = ["probe=\"search\"", "target=\"srv\""];
    daemon.until_metric("loadline_probe_runs_total", &of, |runs| runs >= 1.0);
    let page = daemon.page();
    let get = |name: &str| {
        let name = format!("loadline_oltp_{name}");
        page.get(&name, &of).unwrap_or_else(|| panic!("no {name}: {}", said(&daemon)))
    };
    let max = get("max_operations_per_second");
    assert!(max > 0.0 && get("offered_operations_per_second") == max);
    assert_eq!(get("limit_seconds"), 0.05);
    let achieved = get("achieved_operations_per_second");
    assert!(achieved > 0.0 && get("mean_latency_seconds") < 0.05, "{achieved}");
    a_curve_up_to(achieved, &page);
    assert!(page.get("loadline_probe_written_bytes_total", &of[1..]).unwrap() > 0.0);
    assert!(page.all("loadline_verdict", &of).is_empty(), "an open loop isn't judged");
    let html = daemon.get("/").unwrap();
    for words in
        ["oltp, the highest rate under 50 ms", "oltp read", ", the most under 50 ms</span>"]
    {
        assert!(html.contains(words), "{words}: {html}");
    }
}

/// What the daemon tells people of its probes.
fn said(daemon: &Daemon) -> String {
    daemon.get("/").unwrap_or_else(|text| text)
}

/// The hockey stick ends at the rate that was found.
fn a_curve_up_to(achieved: f64, page: &Page) {
    let at = |name: &str, load: &str| {
        let name = format!("loadline_oltp_{name}");
        let load = format!("load=\"{load}\"");
        page.get(&name, &[&load]).unwrap_or_else(|| panic!("no {name}{{{load}}}: {}", page.text))
    };
    // Those near the end are drawn last, where a busy host has left the time.
    for load in ["0.1", "0.5", "0.8", "1"] {
        assert!(at("latency_seconds", load) > 0.0);
    }
    let rates = ["0.1", "0.5", "1"].map(|load| at("operations_per_second", load));
    assert!(rates.is_sorted() && rates[2] == achieved, "{rates:?} up to {achieved}");
    assert!(at("latency_seconds", "1") < 0.05, "it held");
}
