//! A daemon with a cluster among its targets.

use std::time::Duration;

use crate::Promise;
use crate::cluster::{self, Cluster, NEEDS};
use crate::harness::{Daemon, Setup, installed, until, until_within};
use crate::panels::{self, Asked};
use crate::server::Prometheus;

pub const PROMISES: &[Promise] = &[
    Promise::new("a_daemon_publishes_each_osd_and_its_deviation", publishes).root().needs(NEEDS),
    Promise::new("monitors_that_are_gone_cost_the_daemon_a_failure_and_nothing_else", gone)
        .needs(&["ceph"]),
];

fn config(conf: &str, timeout: &str) -> String {
    format!(
        "targets:\n  - {{name: pool, ceph: {{conf: {conf}, timeout: {timeout}}}, budget: 1TiB, \
         backing: {{bandwidth: 50KB/s}}}}\n\
         probes:\n  - {{name: osds, kind: osd_bench, target: pool, every: 30s, osd_bench: {{bytes: \
         16MiB, osds: 2}}}}\n"
    )
}

/// What the guard sees of this host are files that never change: it waits for nobody's load.
fn on_a_quiet_host(config: String) -> Setup {
    let fixture = |part| format!("{}/tests/fixtures/host/{part}", env!("CARGO_MANIFEST_DIR"));
    let roots = [("--path.procfs", "proc"), ("--path.sysfs", "sys")];
    let args = roots.iter().flat_map(|(flag, part)| [(*flag).to_owned(), fixture(*part)]);
    Setup { args: args.collect(), ..Setup::config(config) }
}

fn publishes() {
    cluster::with(|cluster| {
        let daemon = on_a_quiet_host(config(&cluster.conf(), "10s")).start();
        let page = until_within(Duration::from_secs(180), "both OSDs", || {
            let page = daemon.page();
            let osds = page.all("loadline_osd_bench_bytes_per_second", &[]).len();
            (osds == 2).then_some(page)
        });
        let of = |name: &str, osd: &str| page.get(name, &[&format!("osd=\"osd.{osd}\"")]);
        for osd in ["0", "1"] {
            let class = ["device_class=\"hdd\"", "probe=\"osds\"", "target=\"pool\""];
            assert_eq!(page.all("loadline_osd_bench_bytes_per_second", &class).len(), 2);
            assert!(of("loadline_osd_bench_bytes_per_second", osd).unwrap() > 1e5);
            assert_eq!(of("loadline_osd_separate_wal", osd), Some(0.0));
            // Any disk is faster than what is declared.
            let limit = ["limit=\"cache\"", &format!("osd=\"osd.{osd}\"")];
            assert_eq!(page.get("loadline_osd_verdict_info", &limit), Some(1.0));
            assert_eq!(of("loadline_osd_verdict_confidence_ratio", osd), Some(0.75));
        }
        let deviations =
            ["0", "1"].map(|osd| of("loadline_osd_bench_deviation_ratio", osd).unwrap());
        assert!((deviations[0] + deviations[1]).abs() < 1e-9, "{deviations:?}");
        assert_eq!(page.all("loadline_osd_verdict_info", &[]).len(), 2, "one limit each");
        assert!(daemon.get("/").unwrap().contains("osd.0, osd.1: <b>cache</b>: something above"));
        let target = ["target=\"pool\""];
        assert_eq!(page.get("loadline_probe_written_bytes_total", &target), Some(33_554_432.0));
        assert_eq!(page.get("loadline_filesystem_size_bytes", &target), None, "nobody asked");
        if installed("prometheus") {
            panels_show(cluster, &daemon);
        } else {
            println!("skipped: prometheus is not installed: no panel was asked");
        }
    });
}

/// What dashboards show of OSDs, which needs a cluster, as tests/e2e/dashboards.rs asks all others.
fn panels_show(cluster: &Cluster, daemon: &Daemon) {
    let prometheus = Prometheus::scraping(&[daemon]);
    // An OSD tells how long its latest writes took: somebody has to write when a run begins.
    until_within(Duration::from_secs(150), "commits", || {
        cluster.ceph(&["tell", "osd.*", "bench", "1048576", "65536"]);
        prometheus.query("loadline_osd_commit_latency_seconds").filter(|rows| !rows.is_empty())
    });
    let of_osds = |query: &Asked| query.expression.contains("loadline_osd_");
    let asked: Vec<Asked> = panels::asked().into_iter().filter(of_osds).collect();
    assert!(asked.len() >= 3, "throughput, deviation and commits");
    for query in &asked {
        let found = panels::until_some(&prometheus, query, true).unwrap();
        assert!(!found.is_empty(), "{}: empty: {}", query.place, query.expression);
        let wrong = found.iter().find_map(|series| panels::complaint(series, query));
        assert_eq!(wrong, None, "{}", query.place);
    }
}

fn gone() {
    let dir = crate::harness::disk_dir();
    let conf = dir.path().join("ceph.conf");
    std::fs::write(&conf, "[global]\nmon host = 127.0.0.1:1\nauth client required = none\n")
        .unwrap();
    let daemon = on_a_quiet_host(config(&conf.display().to_string(), "5s")).start();
    let late = ["probe=\"osds\"", "reason=\"timed_out\""];
    until_within(Duration::from_secs(120), "the failure", || {
        daemon.page().get("loadline_probe_failures_total", &late).filter(|n| *n >= 1.0)
    });
    until("fresh samples", || {
        let page = daemon.page();
        (page.get("loadline_snapshot_stale", &[]) == Some(0.0)).then_some(())
    });
    assert_eq!(daemon.page().all("loadline_osd_bench_bytes_per_second", &[]).len(), 0);
}
