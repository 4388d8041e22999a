//! A real Prometheus scrapes a real daemon.

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::Promise;
use crate::harness::{Daemon, LoopDisk, NO_PROBES, Setup, disk_dir, free_port, until_within};

pub const PROMISES: &[Promise] = &[
    Promise::new("prometheus_scrapes_the_disks_of_this_machine", scrapes).needs(&["prometheus"]),
    Promise::new("a_disk_at_its_limit_makes_the_98_percent_expression_true", busy_disk)
        .root()
        .needs(&["prometheus", "fio", "losetup"]),
];

/// A server of its own, with the alert rules; killed when dropped.
pub struct Prometheus {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Prometheus {
    /// Every second the daemons, and itself as the job `other`.
    pub fn scraping(daemons: &[&Daemon]) -> Self {
        let dir = disk_dir();
        let port = free_port();
        let targets: Vec<_> = daemons.iter().map(|d| format!("'127.0.0.1:{}'", d.port)).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{}/alerts/*.yml]\n\
             scrape_configs:\n  \
             - {{job_name: loadline, static_configs: [{{targets: [{}]}}]}}\n  \
             - {{job_name: other, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n",
            env!("CARGO_MANIFEST_DIR"),
            targets.join(", ")
        );
        let file = dir.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, port, _dir: dir }
    }

    /// The `data` of a successful answer of its API, else what it says is wrong.
    pub fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let plain = ureq::Agent::config_builder().http_status_as_error(false);
        let agent: ureq::Agent = plain.build().into();
        let mut request = agent.get(format!("http://127.0.0.1:{}/api/v1/{path}", self.port));
        for (key, value) in parameters {
            request = request.query(key, value);
        }
        let mut response = request.call().map_err(|e| e.to_string())?;
        let json: Value = response.body_mut().read_json().map_err(|e| e.to_string())?;
        if json["status"] == "success" {
            Ok(json["data"].clone())
        } else {
            Err(json["error"].to_string())
        }
    }

    /// Label sets and values that an instant query returns now.
    fn query(&self, expression: &str) -> Option<Vec<(Value, f64)>> {
        let data = self.ask("query", &[("query", expression)]).ok()?;
        let rows = data["result"].as_array()?;
        let value = |row: &Value| row["value"][1].as_str()?.parse().ok();
        Some(rows.iter().filter_map(|row| Some((row["metric"].clone(), value(row)?))).collect())
    }

    pub fn until_some(&self, expression: &str) -> Vec<(Value, f64)> {
        until_within(std::time::Duration::from_secs(150), expression, || {
            self.query(expression).filter(|rows| !rows.is_empty())
        })
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
