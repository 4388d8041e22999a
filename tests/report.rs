//! `loadline report` on saved results: published figures, situations of the field, bad files.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

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

/// `(run, limit, least confidence, most confidence)`.
type Expected<'a> = (&'a str, &'a str, f64, f64);

fn check(file: &str, expected: &[Expected<'_>]) -> Value {
    let judged = judged(&["--from", file]);
    assert_eq!(runs(&judged).len(), expected.len(), "{file}");
    for (run, (name, limit, least, most)) in runs(&judged).iter().zip(expected) {
        let verdict = &run["verdict"];
        let confidence = verdict["confidence"].as_f64().unwrap();
        assert_eq!(run["name"], *name, "{file}");
        assert_eq!(verdict["limit"], *limit, "{file}: {run:#}");
        assert!((*least..=*most).contains(&confidence), "{file}: {name}: {confidence}");
    }
    judged
}

fn near(value: &Value, expected: f64) -> bool {
    (value.as_f64().unwrap() - expected).abs() < 0.0005
}

#[test]
fn golden_1_a_small_cloud_is_held_by_its_links_logs_and_heads() {
    let judged = check(
        "small-cloud.yml",
        &[
            ("network", "link", 1.0, 1.0),
            ("sequential read", "link", 0.75, 0.75),
            ("sequential write", "write_path", 0.5, 0.5),
            ("random mix", "seek", 0.75, 0.75),
            ("random write", "seek", 0.75, 0.75),
            ("later random write", "cache", 1.0, 1.0),
        ],
    );
    let verdict = |run: usize| &runs(&judged)[run]["verdict"];
    assert!(near(&verdict(0)["ratio"], 0.9989) && near(&verdict(1)["ratio"], 0.9534));
    let ceiling = |run: usize| verdict(run)["ceiling"]["value"].as_f64().unwrap() * 8.0 / 1e6;
    assert_eq!(format!("{:.2} {:.2}", ceiling(0), ceiling(1)), "908.97 941.48");
    assert!(near(&runs(&judged)[3]["operations_per_second"], 292.25));
}

#[test]
fn golden_1_the_link_comes_first_and_does_nothing_for_writes() {
    let judged = judged(&["--from", "small-cloud.yml"]);
    let advice = judged["advice"].as_array().unwrap();
    let changes: Vec<&str> = advice.iter().map(|a| a["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["10 Gbit/s link", "log/WAL on flash", "twice the spindles", "flash tier"]);
    let factor = |advice: &Value, run: &str| {
        let expected = advice["expected"].as_array().unwrap();
        expected.iter().find(|e| e["run"] == run).unwrap()["factor"].as_f64().unwrap()
    };
    assert!(factor(&advice[0], "sequential read") > 4.0 && advice[0]["binds_next"] == "disks");
    for run in ["sequential write", "random mix", "random write"] {
        assert_eq!(factor(&advice[0], run), 1.0, "{run}");
    }
    assert!((factor(&advice[1], "sequential write") - 1.65).abs() < 0.01);
    assert_eq!(
        (&advice[1]["binds_next"], factor(&advice[1], "random write")),
        (&"link".into(), 1.0)
    );
    assert_eq!(factor(&advice[2], "random write"), 2.0);
    assert!(factor(&advice[3], "random write") > 10.0);
}

#[test]
fn golden_2_a_journal_on_the_same_disk_and_one_that_absorbs() {
    check(
        "osd-journal.yml",
        &[
            ("osd.4", "cache", 0.75, 0.75),
            ("osd.5", "cache", 0.75, 0.75),
            ("osd.0", "write_path", 0.75, 1.0),
            ("osd.1", "write_path", 0.75, 1.0),
        ],
    );
}

/// Loads that were offered, not found: the bracket of a search over them is physics' own test.
#[test]
fn golden_3_offered_loads_without_a_second_leg_are_unknown() {
    let unknown = |name| (name, "unknown", 0.0, 0.0);
    check("pblio.yml", &[unknown("bsu 2"), unknown("bsu 60"), unknown("bsu 100")]);
}

#[test]
fn a_volume_behind_a_hypervisors_limit_is_throttled() {
    check(
        "rbd-behind-qos.yml",
        &[
            ("random read 4K", "throttle", 0.9, 1.0),
            ("random read 16K", "throttle", 0.9, 1.0),
            ("sequential read", "throttle", 0.7, 1.0),
        ],
    );
}

#[test]
fn an_nvme_drive_is_held_by_operations_bandwidth_or_latency_as_it_is_asked() {
    check(
        "nvme-pcie4.yml",
        &[
            ("random read 4K, depth 256", "operations", 0.9, 1.0),
            ("random read 4K, depth 1", "latency", 0.9, 1.0),
            ("sequential read 1M", "bandwidth", 0.7, 1.0),
            ("sequential write 1M", "bandwidth", 0.7, 1.0),
        ],
    );
}

#[test]
fn an_exhausted_fast_cache_is_the_drives_bandwidth_and_never_a_limiter() {
    check(
        "ssd-cache-exhausted.yml",
        &[
            ("long after the cache is full", "bandwidth", 0.7, 1.0),
            ("the cache fills up between the legs", "unknown", 0.0, 0.0),
            ("the cache fills up during the run", "unknown", 0.0, 0.0),
        ],
    );
}

#[test]
fn an_array_of_spindles_seeks_for_reads_and_for_what_parity_makes_of_writes() {
    check(
        "raid6-of-12.yml",
        &[
            ("random read 4K", "seek", 0.9, 1.0),
            ("random write 4K", "seek", 0.9, 1.0),
            ("sequential read 1M", "bandwidth", 0.7, 1.0),
        ],
    );
}

#[test]
fn a_fast_link_is_full_with_many_streams_and_a_cpu_with_one() {
    check(
        "25g-mtu-1500.yml",
        &[
            ("eight streams", "link", 0.9, 1.0),
            ("one stream", "cpu", 0.7, 1.0),
            ("one stream of which no CPU is known", "unknown", 0.0, 0.0),
        ],
    );
}

#[test]
fn one_flow_fills_one_member_of_a_bond() {
    check(
        "bond-one-flow.yml",
        &[
            ("one flow", "link", 0.9, 1.0),
            ("sixteen flows", "link", 0.9, 1.0),
            ("four flows on one member", "unknown", 0.0, 0.0),
            ("declared as one link of 20G", "unknown", 0.0, 0.0),
        ],
    );
}

#[test]
fn a_burstable_volume_is_throttled_with_credits_and_without() {
    check(
        "burstable-volume.yml",
        &[
            ("random read 4K", "throttle", 0.9, 1.0),
            ("random read 16K", "throttle", 0.9, 1.0),
            ("after the credits are spent", "throttle", 0.7, 1.0),
            ("the same, without its rates", "unknown", 0.0, 0.0),
        ],
    );
}

#[test]
fn copies_on_the_clients_link_halve_it_and_undeclared_nothing_is_claimed() {
    let judged = check(
        "pool-size-3-shared-1g.yml",
        &[
            ("sequential write", "link", 0.9, 1.0),
            ("sequential read", "link", 0.9, 1.0),
            ("sequential write, sharing not declared", "unknown", 0.0, 0.0),
        ],
    );
    let text = runs(&judged)[2]["verdict"]["text"].as_str().unwrap();
    assert!(text.contains("shared_link: true"), "{text}");
}

#[test]
fn a_dying_disk_is_degraded_and_never_sure() {
    let judged = check(
        "dying-disk.yml",
        &[("random read 4K", "seek", 0.5, 0.5), ("random read 4K, one leg", "seek", 0.5, 0.5)],
    );
    for run in runs(&judged) {
        assert!(run["verdict"]["text"].as_str().unwrap().contains("degraded"));
    }
}

#[test]
fn evidence_that_contradicts_what_is_declared_is_said_and_not_believed() {
    let judged = check(
        "contradictions.yml",
        &[
            ("3 Gbit/s on a link of 1", "unknown", 0.0, 0.0),
            ("a window on a link that can't be", "window", 0.75, 0.75),
            ("nothing", "unknown", 0.0, 0.0),
            ("zeros", "unknown", 0.0, 0.0),
            ("a commit", "unknown", 0.0, 0.0),
            ("nothing over a link", "unknown", 0.0, 0.0),
            ("more than its disks are declared to move", "unknown", 0.0, 0.0),
            ("more than its limit", "operations", 0.75, 0.75),
        ],
    );
    assert_eq!(runs(&judged)[3]["verdict"]["text"], "nothing moved: there is no result to judge");
    let text = said(&["--from", "contradictions.yml"]);
    assert_eq!(text.matches("is dropped").count(), 4, "{text}");
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
