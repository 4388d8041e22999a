//! The page as Prometheus reads it.

use crate::Promise;
use crate::harness::{NO_PROBES, Setup, feed};

pub const PROMISES: &[Promise] = &[
    Promise::new("promtool_finds_nothing_on_a_live_page", promtool_is_content).needs(&["promtool"]),
    Promise::new("a_fixture_root_gives_the_golden_page", golden),
    Promise::new("every_series_is_described_in_the_reference", all_described),
    Promise::new("a_missing_proc_file_costs_only_its_own_families", missing_file),
];

fn promtool_is_content() {
    let dir = crate::harness::disk_dir();
    let config = format!(
        "targets: [{{name: t, path: {}, ballast: 64MiB}}]\n\
         probes: [{{name: fast, kind: latency, target: t, every: 10s}}]\n",
        dir.path().display()
    );
    let daemon = Setup::config(config).start();
    daemon.until_metric("loadline_probe_runs_total", &["probe=\"fast\""], |n| n >= 1.0);
    let (code, text) = feed("promtool", &["check", "metrics"], &daemon.page().text);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.trim().is_empty(), "{text}");
}

/// Values that differ between runs and machines, by family.
const VOLATILE: &[&str] = &[
    "loadline_build_info",
    "loadline_sampler_last_success_timestamp_seconds",
    "loadline_sampler_read_seconds",
    "loadline_config_last_reload_success_timestamp_seconds",
    "loadline_samples_late_total",
    "loadline_disk_window_",
    "loadline_nic_window_",
    "loadline_filesystem_",
    "loadline_sandbox_enforced",
    "process_",
];

fn golden() {
    let root = format!("{}/tests/fixtures/node", env!("CARGO_MANIFEST_DIR"));
    let daemon = Setup {
        args: vec![format!("--path.procfs={root}/proc"), format!("--path.sysfs={root}/sys")],
        ..Setup::config(NO_PROBES)
    }
    .start();
    // From the second reading on there are windows.
    daemon.until_metric("loadline_nic_receive_bytes_per_second", &[], |_| true);
    // The first pass is refused by the one switch, the writes last.
    let last = &["probe=\"rand_write\"", "reason=\"off\""];
    daemon.until_metric("loadline_probe_skips_total", last, |n| n >= 1.0);
    let stable: String = daemon
        .page()
        .text
        .lines()
        .filter(|line| {
            let name = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
            line.starts_with('#') || !VOLATILE.iter().any(|family| name.starts_with(family))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    insta::with_settings!({snapshot_path => "../golden", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("page", stable);
    });
}

fn all_described() {
    let known: std::collections::BTreeSet<&str> =
        loadline::daemon::descs().iter().map(|desc| desc.name).collect();
    let page = Setup::config(NO_PROBES).start().page();
    for line in page.text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(known.contains(name), "{name} is not described");
    }
    let reference =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).unwrap();
    let made = loadline::publish::reference::reference(&loadline::daemon::descs());
    assert!(
        reference == made,
        "docs/metrics.md is not what the code says: run `cargo run -- reference > docs/metrics.md`"
    );
}

fn missing_file() {
    let root = crate::harness::disk_dir();
    let from = format!("{}/tests/fixtures/node/.", env!("CARGO_MANIFEST_DIR"));
    crate::harness::must("cp", &["-a", &from, &root.path().display().to_string()]);
    std::fs::remove_file(root.path().join("proc/stat")).unwrap();
    let daemon = Setup {
        args: vec![
            format!("--path.procfs={}/proc", root.path().display()),
            format!("--path.sysfs={}/sys", root.path().display()),
        ],
        ..Setup::config(NO_PROBES)
    }
    .start();
    let page = daemon.page();
    assert_eq!(page.get("loadline_sampler_up", &["sampler=\"cpu\""]), Some(0.0));
    assert_eq!(page.get("loadline_sampler_up", &["sampler=\"disk\""]), Some(1.0));
    assert!(page.get("loadline_cpu_utilization_ratio", &[]).is_none());
    assert!(page.get("loadline_disk_reads_completed_total", &[]).is_some());
}
