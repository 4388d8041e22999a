//! A real Prometheus, for as long as a promise needs it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Daemon, disk_dir, free_port, until_within};

pub const RULES: &str =
    concat!("rule_files: [", env!("CARGO_MANIFEST_DIR"), "/alerts/*.rules.yml]\n");
pub const AGENT: &str = "--enable-feature=agent";

/// A server of its own, with the alert rules; killed when dropped.
pub struct Prometheus {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Prometheus {
    /// Every second the daemons, and itself as the job `other`.
    pub fn scraping(daemons: &[&Daemon]) -> Self {
        let of = |daemon: &&Daemon| format!("127.0.0.1:{}", daemon.port);
        Self::scraping_at(&daemons.iter().map(of).collect::<Vec<_>>())
    }

    /// As [`Self::scraping`], with where they are.
    pub fn scraping_at(daemons: &[String]) -> Self {
        let port = free_port();
        let targets: Vec<_> = daemons.iter().map(|at| format!("'{at}'")).collect();
        let jobs = format!(
            "  - {{job_name: loadline, static_configs: [{{targets: [{}]}}]}}\n  \
             - {{job_name: other, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n",
            targets.join(", ")
        );
        Self::start(port, &format!("{RULES}scrape_configs:\n{jobs}"), &[])
    }

    /// With `data` below its own directory, where flags name it.
    pub fn start(port: u16, config: &str, flags: &[&str]) -> Self {
        let dir = disk_dir();
        let file = dir.path().join("prometheus.yml");
        let every = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n";
        let agent = "global: {scrape_interval: 1s, external_labels: {cluster: north}}\n";
        let is_agent = flags.contains(&AGENT);
        let head = if is_agent { agent } else { every };
        std::fs::write(&file, format!("{head}{config}")).unwrap();
        let storage = if is_agent { "agent" } else { "tsdb" };
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.{storage}.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(flags)
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
    pub fn query(&self, expression: &str) -> Option<Vec<(Value, f64)>> {
        let data = self.ask("query", &[("query", expression)]).ok()?;
        let rows = data["result"].as_array()?;
        let value = |row: &Value| row["value"][1].as_str()?.parse().ok();
        Some(rows.iter().filter_map(|row| Some((row["metric"].clone(), value(row)?))).collect())
    }

    pub fn until_some(&self, expression: &str) -> Vec<(Value, f64)> {
        until_within(Duration::from_secs(150), expression, || {
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
