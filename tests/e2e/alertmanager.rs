//! A real Alertmanager with the configuration that comes as an example.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Promise;
use crate::harness::{disk_dir, free_port, get, until};

pub const PROMISES: &[Promise] = &[Promise::new(
    "the_example_holds_back_alerts_that_say_nothing_new_beside_another",
    holds_back,
)
.needs(&[PROGRAM])];

/// As Debian calls it.
const PROGRAM: &str = "prometheus-alertmanager";

struct Alertmanager {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Alertmanager {
    fn start() -> Self {
        let dir = disk_dir();
        let port = free_port();
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/alerts/alertmanager.example.yml");
        let child = Command::new(PROGRAM)
            .arg(format!("--config.file={example}"))
            .arg(format!("--storage.path={}", dir.path().display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Self { child, port, _dir: dir };
        until("Alertmanager to be ready", || get(port, "/-/ready").ok());
        started
    }

    fn fire(&self, alerts: &Value) {
        let agent: ureq::Agent = ureq::Agent::config_builder().build().into();
        let url = format!("http://127.0.0.1:{}/api/v2/alerts", self.port);
        agent.post(url).send_json(alerts).unwrap();
    }

    /// Names of alerts that wait for another to end, in order; nothing before all were looked at.
    fn held_back(&self, all: usize) -> Option<Vec<String>> {
        let text = get(self.port, "/api/v2/alerts").ok()?;
        let alerts: Vec<Value> = serde_json::from_str(&text).ok()?;
        let known = |alert: &&Value| alert["status"]["state"] != "unprocessed";
        if alerts.iter().filter(known).count() < all {
            return None;
        }
        let held = alerts.iter().filter(|alert| alert["status"]["state"] == "suppressed");
        let name = |alert: &Value| alert["labels"]["alertname"].as_str().map(str::to_owned);
        let mut names: Vec<String> = held.filter_map(name).collect();
        names.sort();
        Some(names)
    }
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn holds_back() {
    let manager = Alertmanager::start();
    let alert = |name: &str, instance: &str, more: Value| {
        let mut labels = json!({"alertname": name, "job": "loadline", "instance": instance});
        let more = more.as_object().unwrap().clone();
        labels.as_object_mut().unwrap().extend(more);
        json!({"labels": labels})
    };
    let (sda, srv) = (json!({"device": "sda"}), json!({"target": "srv", "probe": "commit"}));
    let alerts = json!([
        // Of a host that can't be scraped nothing else is news; of its neighbour it is.
        alert("LoadlineDown", "a", json!({})),
        alert("LoadlineRetransmits", "a", json!({})),
        alert("LoadlineRetransmits", "b", json!({})),
        // A disk at its limit has no headroom; another disk has its own.
        alert("LoadlineDiskBusy", "b", sda.clone()),
        alert("LoadlineHeadroomLow", "b", sda),
        alert("LoadlineHeadroomLow", "b", json!({"device": "sdb"})),
        // A target that hangs; another host's probe fails for its own reasons.
        alert("LoadlineTargetHung", "c", json!({"target": "srv"})),
        alert("LoadlineProbeSkipped", "c", srv.clone()),
        alert("LoadlineProbeFailing", "b", srv),
    ]);
    manager.fire(&alerts);
    let expected = ["LoadlineHeadroomLow", "LoadlineProbeSkipped", "LoadlineRetransmits"];
    let all = alerts.as_array().unwrap().len();
    let held = until("all alerts to be looked at", || {
        manager.held_back(all).filter(|names| names.len() >= expected.len())
    });
    assert_eq!(held, expected);
}
