//! A real Prometheus scrapes a real daemon.

use std::process::{Command, Stdio};

use crate::Promise;
use crate::harness::{LoopDisk, NO_PROBES, Setup, disk_dir, free_port};
use crate::server::{AGENT, Prometheus, RULES};

pub const PROMISES: &[Promise] = &[
    Promise::new("prometheus_scrapes_the_disks_of_this_machine", scrapes).needs(&["prometheus"]),
    Promise::new("behind_an_agent_the_rules_work_where_it_writes_to", agent).needs(&["prometheus"]),
    Promise::new("two_servers_that_scrape_one_daemon_see_the_same_and_cost_no_probe", pair)
        .needs(&["prometheus"]),
    Promise::new("a_disk_at_its_limit_makes_the_98_percent_expression_true", busy_disk)
        .root()
        .needs(&["prometheus", "fio", "losetup"]),
];

fn scrapes() {
    let daemon = Setup::config(NO_PROBES).start();
    let prometheus = Prometheus::scraping(&[&daemon]);
    let rows = prometheus.until_some("loadline_disk_reads_completed_total");
    let named: Vec<&str> = rows.iter().filter_map(|(m, _)| m["device"].as_str()).collect();
    let page = daemon.page();
    let served = page.all("loadline_disk_reads_completed_total", &[]);
    assert_eq!(named.len(), served.len(), "{named:?}");
    prometheus.until_some("rate(loadline_disk_busy_seconds_total[30s])");
    prometheus.until_some("up{job=\"loadline\"} == 1");
    let down = prometheus.query("ALERTS{alertstate=\"firing\"}").unwrap();
    assert!(down.is_empty(), "nothing is wrong yet: {down:?}");
}

/// An agent has no rules and answers no query: both are where it writes to.
fn agent() {
    let daemon = Setup::config(NO_PROBES).start();
    let port = free_port();
    let central = Prometheus::start(port, RULES, &["--web.enable-remote-write-receiver"]);
    let config = format!(
        "remote_write: [{{url: 'http://127.0.0.1:{port}/api/v1/write'}}]\n\
         scrape_configs: [{{job_name: loadline, static_configs: [{{targets: ['127.0.0.1:{}']}}]}}]\n",
        daemon.port
    );
    let _agent = Prometheus::start(free_port(), &config, &[AGENT]);
    central.until_some("loadline_build_info{cluster=\"north\"}");
    drop(daemon);
    // The rule has seen it, and what fires keeps the label that the agent put there.
    let fires = "ALERTS{alertname=\"LoadlineDown\", alertstate=\"pending\", cluster=\"north\"}";
    central.until_some(fires);
}

/// Probes go by their own clock, and what a window's gauge says no scrape takes away.
fn pair() {
    let dir = disk_dir();
    let config = format!(
        "targets: [{{name: t, path: {}, ballast: 64MiB}}]\n\
         probes: [{{name: fast, kind: latency, target: t, every: 1h}}]\n",
        dir.path().display()
    );
    let daemon = Setup::config(config).start();
    let servers = [Prometheus::scraping(&[&daemon]), Prometheus::scraping(&[&daemon])];
    let one = "loadline_probe_runs_total == 1";
    servers.iter().for_each(|server| drop(server.until_some(one)));
    for server in &servers {
        server.until_some("count_over_time(up{job=\"loadline\"}[1m]) > 10");
        server.until_some("rate(loadline_disk_window_busy_ratio_count[10s]) > 0.7");
        assert_eq!(server.until_some(one).len(), 1, "scrapes made it run again");
    }
}

fn busy_disk() {
    let disk = LoopDisk::new(256);
    let daemon = Setup::config(NO_PROBES).start();
    let prometheus = Prometheus::scraping(&[&daemon]);
    let mut fio = Command::new("fio")
        .args(["--name=x", "--filename", &disk.device, "--rw=randrw", "--bs=1m"])
        .args(["--ioengine=libaio", "--direct=1", "--thread", "--iodepth=64", "--time_based"])
        .args(["--runtime=240", "--size=256M"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let expression = format!(
        "rate(loadline_disk_busy_seconds_total{{device=\"{}\"}}[1m]) >= 0.975",
        disk.name()
    );
    let rows = prometheus.until_some(&expression);
    let _ = fio.kill();
    let _ = fio.wait();
    assert!(rows[0].1 <= 1.05, "{rows:?}");
}
