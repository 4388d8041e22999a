//! A report that measures: whole, interrupted, and where there is nothing to measure.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Promise;
use crate::harness::{BINARY, disk_dir, loadline, until, until_within};

pub const PROMISES: &[Promise] = &[
    Promise::new("a_report_judges_every_profile_and_is_judged_the_same_again", whole).alone(),
    Promise::new("an_interrupted_report_tells_what_is_known_and_leaves_nothing", interrupted)
        .alone(),
    Promise::new("a_report_names_what_it_cannot_measure", nothing_to_measure),
];

const NAMES: [&str; 8] = [
    "single read 4K",
    "single commit 4K",
    "sequential read 1M",
    "random read 4K",
    "random read 4K at its knee",
    "sequential write 1M",
    "random 4K 70/30",
    "random write 4K",
];

/// The shortest that has two depths of each profile.
const SHORT: [&str; 4] = ["--runtime", "2s", "--size", "64MiB"];

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

fn whole() {
    let (dir, state) = (disk_dir(), disk_dir());
    let target = dir.path().display().to_string();
    let arguments = ["report", "--target", &target, "--format", "json"];
    let ran =
        loadline(&[&arguments[..], &SHORT, &["--backing", "media=ssd"]].concat(), state.path());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(is_empty(dir.path()), "nothing is left");
    let estimate = ran.err.lines().next().unwrap();
    assert!(estimate.contains(&format!("8 runs on {target}: about ")), "{estimate}");
    assert!(ran.err.contains("8/8  random write 4K: "), "a line for each run: {}", ran.err);
    assert!(!ran.err.contains('\u{1b}'), "and no bar where there is no terminal: {}", ran.err);

    let judged: Value = serde_json::from_str(&ran.out).unwrap();
    let runs = judged["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    for run in runs {
        let (verdict, evidence) = (&run["verdict"], &run["verdict"]["evidence"]);
        assert!(run["operations_per_second"].as_f64().unwrap() > 0.0, "{run:#}");
        assert!(verdict["text"].as_str().is_some_and(|text| !text.is_empty()), "{run:#}");
        let confidence = verdict["confidence"].as_f64().unwrap();
        assert_eq!(verdict["limit"] == "unknown", confidence == 0.0, "{run:#}");
        assert_eq!(evidence["backing"]["media"], "ssd", "what was declared is in it");
    }
    // Short writes may be over before there is a second depth, and a knee may be the last rung.
    for run in &runs[2..4] {
        assert!(run["verdict"]["evidence"]["second_leg"].is_object(), "{run:#}");
    }

    let saved = state.path().join("saved.json");
    std::fs::write(&saved, &ran.out).unwrap();
    let saved = saved.display().to_string();
    let again = loadline(&["report", "--from", &saved, "--format", "json"], state.path());
    assert_eq!((again.code, &again.out), (Some(0), &ran.out));
}

fn interrupted() {
    let (dir, state) = (disk_dir(), disk_dir());
    let mut child = Command::new(BINARY)
        .args(["report", "--target", &dir.path().display().to_string()])
        .args(["--runtime", "60s", "--size", "64MiB"])
        .env("STATE_DIRECTORY", state.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("2/8 ")), "two runs are soon done");
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let workers = || std::fs::read_to_string(&children).unwrap_or_default();
    let worker =
        until("the third run", || Some(workers().trim().to_owned()).filter(|w| !w.is_empty()));
    assert!(dir.path().join(".loadline/ballast").exists(), "it works on its declared file");

    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = until_within(Duration::from_secs(10), "the end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let said: Vec<String> = said.collect();
    assert_eq!(said.last().unwrap(), "interrupted: 2 of 8 runs came to their end", "{said:?}");
    let report = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    for known in ["single read 4K ", "single commit 4K ", "Where it caps out", "Not measured: "] {
        assert!(report.contains(known), "`{known}` is missing in\n{report}");
    }
    assert!(report.contains("random write 4K: interrupted before it began"), "{report}");
    assert!(is_empty(dir.path()), "nothing is left");
    assert!(!Path::new(&format!("/proc/{worker}")).exists(), "no worker is left");
}

fn nothing_to_measure() {
    let (dir, state) = (disk_dir(), disk_dir());
    let gone = dir.path().join("gone").display().to_string();
    let ran = loadline(&["report", "--target", &gone], state.path());
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
    assert!(ran.err.contains(&format!("{gone}: No such file")), "{}", ran.err);
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let memory = memory.path().display().to_string();
        let ran = loadline(&["report", "--target", &memory, "--target", &gone], state.path());
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
        for text in [format!("{memory} is memory, not a disk"), format!("{gone}: No such")] {
            assert!(ran.err.contains(&text), "`{text}` is missing in {}", ran.err);
        }
    }
    let config = dir.path().join("c.yml");
    std::fs::write(&config, format!("targets: [{{name: srv, path: {gone}}}]\n")).unwrap();
    let config = config.display().to_string();
    let ran = loadline(&["report", "--config", &config], state.path());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains(&format!("{gone}: No such")), "a configured target: {}", ran.err);
}
