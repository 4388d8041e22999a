//! `probe osd-bench` and `report --ceph` on a real cluster.

use rustix::process::Signal;
use serde_json::Value;

use crate::Promise;
use crate::cluster::{self, NEEDS};
use crate::harness::{BINARY, loadline, until};

pub const PROMISES: &[Promise] = &[
    Promise::new("each_osd_is_benched_and_held_against_the_median_of_its_class", benched)
        .root()
        .needs(NEEDS),
    Promise::new("what_the_cluster_refuses_is_named_with_its_option", refused).root().needs(NEEDS),
    Promise::new("a_cluster_without_monitors_ends_at_the_time_out", no_monitors).needs(&["ceph"]),
    Promise::new("options_of_the_osds_are_told_as_they_are_in_effect", options).root().needs(NEEDS),
    Promise::new("an_osd_that_goes_down_during_its_bench_is_named", goes_down).root().needs(NEEDS),
];

fn benched() {
    cluster::with(|cluster| {
        let ran = cluster.loadline(&["probe", "osd-bench", "--bytes", "64MiB", "--format", "json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let value: Value = serde_json::from_str(&ran.out).unwrap();
        let osds = value["osds"].as_array().unwrap();
        assert_eq!(osds.len(), 2, "{value}");
        let mut deviations = 0.0;
        for (osd, host) in osds.iter().zip(["h0", "h1"]) {
            assert_eq!((osd["host"].as_str(), osd["up"].as_bool()), (Some(host), Some(true)));
            assert_eq!(osd["separate_wal"].as_bool(), Some(false), "one file holds it all");
            assert_eq!(osd["bytes_written"].as_u64(), Some(64 << 20));
            assert_eq!(osd["blocksize"].as_u64(), Some(4 << 20));
            let rate = osd["bytes_per_sec"].as_f64().unwrap();
            let seconds = osd["elapsed_sec"].as_f64().unwrap();
            assert!((rate * seconds / (64 << 20) as f64 - 1.0).abs() < 0.01, "{osd}");
            deviations += osd["deviation_ratio"].as_f64().unwrap();
        }
        assert!(deviations.abs() < 1e-9, "of two, one is as much above as the other below");
        let left = cluster.ceph(&["osd", "df", "--format", "json"]);
        assert!(!left.contains("NaN"));
        // What it wrote down is read again.
        let saved = cluster.path("osds.json");
        std::fs::write(&saved, &ran.out).unwrap();
        let report = loadline(
            &["report", "--from", saved.to_str().unwrap(), "--backing", "bandwidth=100MB/s"],
            &cluster.path("state"),
        );
        assert_eq!(report.code, Some(0), "{}", report.err);
        assert!(report.out.contains("osd.0") && report.out.contains("osd.1"), "{}", report.out);
    });
}

fn refused() {
    cluster::with(|cluster| {
        let small = ["probe", "osd-bench", "--bytes", "64MiB", "--block-size", "4k", "--osd", "0"];
        let ran = cluster.loadline(&small);
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.contains("osd_bench_small_size_max_iops"), "{}", ran.err);
        assert!(ran.err.contains("osd.0"), "{}", ran.err);
        let ran = cluster.loadline(&["probe", "osd-bench", "--ceph-user", "client.weak"]);
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.contains("EACCES") && ran.err.contains("osd 'allow *'"), "{}", ran.err);
        let ran = cluster.loadline(&["probe", "osd-bench", "--ceph-user", "client.nobody"]);
        assert!(ran.err.contains("no keyring at"), "{}", ran.err);
        let ran = cluster.loadline(&["probe", "osd-bench", "--bytes", "1GiB", "--osd", "0"]);
        assert!(ran.err.contains("full: an OSD has at most"), "{}", ran.err);
        let ran = cluster.loadline(&["probe", "osd-bench", "--ceph-command", "no-such-ceph"]);
        assert!(ran.err.contains("no-such-ceph: no such command"), "{}", ran.err);
        let ran = cluster.loadline(&["probe", "osd-bench", "--osd", "7"]);
        assert!(ran.err.contains("osd.7: the cluster has none"), "{}", ran.err);
    });
}

/// A configuration whose monitor is nobody.
fn no_monitors() {
    let dir = crate::harness::disk_dir();
    let conf = dir.path().join("ceph.conf");
    std::fs::write(&conf, "[global]\nmon host = 127.0.0.1:1\nauth client required = none\n")
        .unwrap();
    let asked = ["probe", "osd-bench", "--ceph-timeout", "2s", "--ceph-conf"];
    let ran = loadline(&[&asked[..], &[conf.to_str().unwrap()]].concat(), dir.path());
    assert_eq!(ran.code, Some(1));
    let late = ran.err.contains("no monitor answers") || ran.err.contains("no answer within");
    assert!(late && ran.err.contains("ceph status"), "{}", ran.err);
}

fn options() {
    cluster::with(|cluster| {
        let ran = cluster.loadline(&["report", "--ceph", "--format", "json"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let value: Value = serde_json::from_str(&ran.out).unwrap();
        let value_of = |name: &str| {
            let options = value["options"].as_array().unwrap();
            let option = options.iter().find(|option| option["name"] == name);
            let option = option.unwrap_or_else(|| panic!("no {name}: {value}"));
            let shown = &option["values"][0];
            (shown["value"].as_str().unwrap(), shown["source"].as_str().unwrap())
        };
        assert_eq!(value_of("osd_max_backfills"), ("3", "file"), "as the recipe has it");
        assert_eq!(value_of("osd_mclock_profile").1, "default");
        for name in ["osd_scrub_begin_hour", "osd_memory_target", "bluestore_cache_size_hdd"] {
            assert!(!value_of(name).0.is_empty());
        }
        assert_eq!(value["health"]["status"], "HEALTH_OK");
        let table = cluster.loadline(&["report", "--ceph"]);
        assert!(table.out.contains("Options in effect"), "{}", table.out);
    });
}

/// It stops answering before its bench, and dies in it; what comes after is a cluster in need.
fn goes_down() {
    cluster::with(|cluster| {
        cluster.signal("osd.1", Signal::STOP);
        let mut command = std::process::Command::new(BINARY);
        command.args(["probe", "osd-bench", "--osd", "1", "--bytes", "64MiB"]);
        command
            .args(["--ceph-conf", &cluster.conf()])
            .env("STATE_DIRECTORY", cluster.path("state"));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        until("the bench to begin", || is_told("osd.1").then_some(()));
        cluster.signal("osd.1", Signal::KILL);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("osd.1 went down during its bench"), "{said}");
        let ran = cluster.loadline(&["probe", "osd-bench", "--osd", "0", "--bytes", "16MiB"]);
        assert_eq!(ran.code, Some(1), "{}", ran.out);
        assert!(ran.err.contains("unhealthy: the cluster is HEALTH_WARN"), "{}", ran.err);
        assert!(ran.err.contains("OSD_DOWN"), "{}", ran.err);
    });
}

/// Whether a `ceph tell` to this OSD runs now.
fn is_told(osd: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&format!("tell {osd} bench"))
    })
}
