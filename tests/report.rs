//! `loadline report` on saved results: what it reads, writes and refuses, and its verdicts.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

#[path = "reports/verdicts.rs"]
mod verdicts;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports")
}

fn loadline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loadline"))
        .arg("report")
        .args(arguments)
        .current_dir(folder())
        .output()
        .unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = loadline(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn judged(arguments: &[&str]) -> Value {
    let text = said(&[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&text).unwrap()
}

fn runs(judged: &Value) -> &Vec<Value> {
    judged["runs"].as_array().unwrap()
}

fn measurement_files() -> Vec<String> {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yml"))
        .collect();
    files.sort();
    assert!(files.len() > 10);
    files
}

#[test]
fn a_saved_report_is_judged_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    for file in measurement_files() {
        let first = said(&["--from", &file, "--format", "json"]);
        let saved = dir.path().join("saved.json");
        std::fs::write(&saved, &first).unwrap();
        let again = said(&["--from", saved.to_str().unwrap(), "--format", "json"]);
        assert_eq!(first, again, "{file}");
    }
}

#[test]
fn hundreds_of_saved_runs_are_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let one = judged(&["--from", "small-cloud.yml"]);
    let many: Vec<&Value> = runs(&one).iter().cycle().take(400).collect();
    let saved = dir.path().join("saved.json");
    let text = format!("{:#}", serde_json::json!({ "runs": many }));
    assert!(text.len() > 256 << 10, "larger than a configuration may be: {}", text.len());
    std::fs::write(&saved, text).unwrap();
    let again = judged(&["--from", saved.to_str().unwrap()]);
    assert_eq!(runs(&again).len(), 400);
    for (run, first) in runs(&again).iter().zip(runs(&one).iter().cycle()) {
        assert_eq!(run["verdict"]["limit"], first["verdict"]["limit"], "{run:#}");
    }
}

#[test]
fn a_saved_report_has_the_documented_keys_and_no_others() {
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let judged = judged(&["--from", "small-cloud.yml"]);
    assert_eq!(keys(&judged), ["advice", "runs"]);
    let run = &runs(&judged)[0];
    assert_eq!(
        keys(run),
        ["bytes_per_second", "kind", "name", "operations_per_second", "profile", "verdict"]
    );
    assert_eq!(
        keys(&run["verdict"]),
        ["ceiling", "confidence", "evidence", "limit", "ratio", "rivals", "text"]
    );
    assert_eq!(keys(&run["verdict"]["ceiling"]), ["source", "unit", "value"]);
    let advice = &judged["advice"][0];
    assert_eq!(keys(advice), ["binds_next", "change", "effort", "expected", "text"]);
    assert_eq!(keys(&advice["expected"][0]), ["factor", "from", "run", "to"]);
    assert_eq!(keys(&runs(&judged)[2]["verdict"]["rivals"][0]), ["limit", "ratio"]);
}

#[test]
fn results_of_fio_and_iperf3_get_a_verdict() {
    let judged = judged(&[
        "--fio",
        "tools/fio-3.33.json",
        "--iperf3",
        "tools/iperf3-3.12.json",
        "--backing",
        "media=ssd",
        "--path",
        "{link: 100Gbit, mtu: 9000}",
    ]);
    let names: Vec<&str> = runs(&judged).iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["depth-4", "depth-8", "127.0.0.1, 2 streams"]);
    let evidence = &runs(&judged)[0]["verdict"]["evidence"];
    assert_eq!((&evidence["depth"], &evidence["second_leg"]["depth"]), (&4.0.into(), &8.0.into()));
    assert_eq!(evidence["backing"]["media"], "ssd");
    let network = &runs(&judged)[2]["verdict"]["evidence"];
    assert_eq!(network["path"]["link_bytes_per_second"], 12.5e9);
    assert!(network["link"]["round_trip_seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_the_command_line_declares_replaces_the_files() {
    let judged = judged(&["--from", "small-cloud.yml", "--path", "link=10Gbit"]);
    assert_eq!(runs(&judged)[0]["verdict"]["limit"], "unknown", "a tenth of it");
    assert_eq!(runs(&judged)[1]["verdict"]["limit"], "link");
}

#[test]
fn the_report_reads_as_it_is_shown() {
    insta::assert_snapshot!("small-cloud", said(&["--from", "small-cloud.yml"]));
    let markdown = said(&["--from", "raid6-of-12.yml", "--format", "markdown"]);
    insta::assert_snapshot!("raid6-markdown", markdown);
    insta::assert_snapshot!("contradictions", said(&["--from", "contradictions.yml"]));
    insta::assert_snapshot!("pool-size-3", said(&["--from", "pool-size-3-shared-1g.yml"]));
}

/// The complaint stands in the first lines, `# ` before each; BLESS=1 writes it there.
#[test]
fn every_bad_file_is_refused_in_its_own_words() {
    let mut wrong = Vec::new();
    let invalid = folder().join("invalid");
    for entry in std::fs::read_dir(&invalid).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let output = loadline(&["--from", &format!("invalid/{name}")]);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{name}: {complaint}");
        let header: String = complaint.lines().map(|line| format!("# {line}\n")).collect();
        let text = std::fs::read_to_string(&path).unwrap();
        if std::env::var_os("BLESS").is_some() {
            let rest: String = text
                .lines()
                .skip_while(|line| line.starts_with("# "))
                .map(|line| format!("{line}\n"))
                .collect();
            std::fs::write(&path, header + &rest).unwrap();
        } else if !text.starts_with(&header) {
            wrong.push(complaint);
        }
    }
    assert!(wrong.is_empty(), "other words than expected:\n{}", wrong.join("\n"));
}

#[test]
fn what_the_command_line_gets_wrong_is_said() {
    for (arguments, code, text) in [
        (
            &["--from", "pblio.yml", "--target", "/srv"][..],
            2,
            "'--from <FILE>' cannot be used with",
        ),
        (&["--fio", "pblio.yml", "--quick"][..], 2, "cannot be used with '--quick'"),
        (&["--quick", "--full"][..], 2, "'--quick' cannot be used with '--full'"),
        (&["--runtime", "10ms"][..], 2, "--runtime: 1s to 1h"),
        (&["--size", "1MiB"][..], 2, "--size: at least 64MiB"),
        (&["--peer", "127.0.0.1:1"][..], 1, "to 127.0.0.1:1, 4 streams: refused: "),
        (&["--from", "nowhere.yml"][..], 1, "nowhere.yml: No such file or directory"),
        (&["--fio", "small-cloud.yml"][..], 1, "small-cloud.yml: not JSON"),
        (&["--iperf3", "tools/fio-3.33.json"][..], 1, "not what `iperf3 -J` writes"),
        (&["--fio", "tools/iperf3-3.12.json"][..], 1, "--output-format=json` writes"),
        (
            &["--from", "pblio.yml", "--backing", "medium=hdd"][..],
            3,
            "unknown key `medium` in `backing` (did you mean `media`?)",
        ),
    ] {
        let output = loadline(arguments);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{complaint}");
        assert!(complaint.contains(text), "{complaint}");
    }
}
