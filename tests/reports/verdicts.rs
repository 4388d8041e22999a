//! What bound the runs of published figures and of situations of the field.

use serde_json::Value;

use super::{judged, runs, said};

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
fn a_network_file_system_that_absorbs_writes_is_no_sure_backend() {
    check(
        "absorbed-writes.yml",
        &[
            ("random write 4K for 3 s", "backend", 0.5, 0.5),
            ("sequential write beyond its link", "cache", 0.5, 0.5),
            ("random mix for 3 s, direct", "backend", 0.5, 0.5),
            ("random write 4K for 10 min, direct", "backend", 0.9, 1.0),
            ("random read 4K for 3 s", "backend", 0.9, 1.0),
        ],
    );
    let text = said(&["--from", "absorbed-writes.yml"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text.matches("may have taken the writes").count(), 2, "{text}");
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
