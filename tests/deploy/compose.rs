//! deploy/compose: what its files say of each other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_yaml::Value;

use crate::check::Check;
use crate::files::{disk_dir, must, program, root, yaml};

pub const CHECKS: &[Check] = &[
    Check::new("every_mount_of_compose_is_there", mounts),
    Check::new("each_daemon_of_compose_can_be_restarted_and_is_confined", daemons),
    Check::new("what_compose_publishes_is_for_this_machine_alone", ports),
    Check::new("images_of_compose_name_their_version", images),
    Check::new("prometheus_of_compose_finds_both_daemons_and_alertmanager", targets),
    Check::new("promtool_accepts_what_compose_mounts", promtool).needs(&["promtool"]),
    Check::new("grafana_of_compose_is_provisioned", grafana),
    Check::new("loadline_accepts_its_files_of_compose", configs),
];

const FOLDER: &str = "deploy/compose";
const DAEMONS: [&str; 2] = ["loadline", "neighbour"];

fn compose() -> Value {
    let mut compose: Value = yaml(&format!("{FOLDER}/compose.yml"));
    compose.apply_merge().unwrap();
    compose
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_sequence().map_or(vec![], |list| list.iter().map(|v| v.as_str().unwrap()).collect())
}

fn services(compose: &Value) -> impl Iterator<Item = (&str, &Value)> {
    compose["services"].as_mapping().unwrap().iter().map(|(k, v)| (k.as_str().unwrap(), v))
}

/// `(source, target)` of each of a service's mounts.
fn volumes(service: &Value) -> Vec<(&str, &str)> {
    strings(&service["volumes"])
        .into_iter()
        .map(|mount| {
            let mut parts = mount.split(':');
            (parts.next().unwrap(), parts.next().unwrap())
        })
        .collect()
}

/// Where a relative mount lies in the repository.
fn source(mount: &str) -> Option<PathBuf> {
    mount.starts_with('.').then(|| root().join(FOLDER).join(mount))
}

fn mounts() {
    let compose = compose();
    let named: BTreeSet<&str> =
        compose["volumes"].as_mapping().unwrap().keys().map(|k| k.as_str().unwrap()).collect();
    let mut used = BTreeSet::new();
    for (name, service) in services(&compose) {
        for (from, _) in volumes(service) {
            match source(from) {
                Some(path) => assert!(path.exists(), "{name}: {from} is not there"),
                None if from.starts_with('/') => {
                    assert!(["/", "/proc", "/sys", "/run/lock"].contains(&from), "{name}: {from}");
                }
                None => assert!(used.insert(from), "{name}: two services write in {from}"),
            }
        }
    }
    assert_eq!(used, named);
}

fn daemons() {
    let compose = compose();
    for name in DAEMONS {
        let daemon = &compose["services"][name];
        assert_eq!(daemon["pid"], "host", "{name}: process 1 of a namespace can't be restarted");
        assert_eq!(daemon["read_only"], true, "{name}");
        assert_eq!(strings(&daemon["cap_drop"]), ["ALL"], "{name}");
        assert_eq!(daemon["stop_grace_period"], "8s", "{name}");
        let targets: Vec<&str> = volumes(daemon).into_iter().map(|(_, to)| to).collect();
        for to in ["/var/lib/loadline", "/etc/loadline/loadline.yml"] {
            assert!(targets.contains(&to), "{name}: no {to}");
        }
        let takes_turns = name == "loadline";
        assert_eq!(targets.contains(&"/run/lock"), takes_turns, "{name}: a test has two ends");
    }
    let host = &compose["services"]["loadline"];
    assert_eq!(host["network_mode"], "host", "links are those of a network namespace");
    for root in ["procfs", "sysfs", "rootfs"] {
        let prefix = format!("--path.{root}=");
        let command = strings(&host["command"]);
        let path = command.iter().find_map(|a| a.strip_prefix(&prefix)).unwrap();
        assert!(volumes(host).iter().any(|(_, to)| *to == path), "{path} is not mounted");
    }
}

fn ports() {
    let compose = compose();
    let mut seen = BTreeSet::new();
    for (name, service) in services(&compose) {
        for port in strings(&service["ports"]) {
            let (outside, inside) = port.rsplit_once(':').unwrap();
            assert!(outside.ends_with(inside), "{name}: {port} is another port outside");
            assert!(seen.insert(inside), "{name}: {port} twice");
            // Others' tests of links come from other hosts.
            assert!(outside.starts_with("127.0.0.1:") || inside == "5201", "{name}: {port}");
        }
    }
    assert_eq!(seen, ["3000", "5201", "9090", "9093"].into());
}

fn images() {
    for (name, service) in services(&compose()) {
        let image = service["image"].as_str().unwrap();
        if DAEMONS.contains(&name) {
            let context = service["build"]["context"].as_str().unwrap();
            assert!(source(context).unwrap().join("Dockerfile").exists(), "{name}");
        } else {
            let tag = image.rsplit_once(':').map(|(_, tag)| tag);
            assert!(tag.is_some_and(|tag| tag.contains('.')), "{name}: {image}");
        }
    }
}

fn targets() {
    let prometheus: Value = yaml(&format!("{FOLDER}/prometheus.yml"));
    let scrape = &prometheus["scrape_configs"][0];
    assert_eq!(scrape["job_name"], "loadline", "the rules know the job by this name");
    let targets: Vec<&str> = scrape["static_configs"]
        .as_sequence()
        .unwrap()
        .iter()
        .flat_map(|group| strings(&group["targets"]))
        .collect();
    assert_eq!(targets, ["host.docker.internal:9847", "neighbour:9847"]);
    let service = &compose()["services"]["prometheus"];
    assert_eq!(strings(&service["extra_hosts"]), ["host.docker.internal:host-gateway"]);
    let alertmanager = &prometheus["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"];
    assert_eq!(strings(alertmanager), ["alertmanager:9093"]);
    let service = &compose()["services"]["alertmanager"];
    assert!(strings(&service["ports"]).iter().any(|port| port.ends_with(":9093")));
}

/// What a service sees below `folder`, laid out in a directory.
fn seen(service: &str, folder: &str, dir: &Path) {
    for (from, to) in volumes(&compose()["services"][service]) {
        if let (Some(from), Some(to)) = (source(from), to.strip_prefix(folder)) {
            must(std::process::Command::new("cp").arg("-r").arg(from).arg(dir.join(to)));
        }
    }
}

fn promtool() {
    let dir = disk_dir();
    seen("prometheus", "/etc/prometheus/", dir.path());
    let said =
        must(program("promtool").args(["check", "config"]).arg(dir.path().join("prometheus.yml")));
    assert!(said.contains("rules found"), "{said}");
}

fn grafana() {
    let source: Value = yaml(&format!("{FOLDER}/grafana/datasources/prometheus.yml"));
    let source = &source["datasources"][0];
    assert_eq!(source["url"], "http://prometheus:9090");
    let prometheus: Value = yaml(&format!("{FOLDER}/prometheus.yml"));
    let interval = &prometheus["global"]["scrape_interval"];
    assert_eq!(&source["jsonData"]["timeInterval"], interval, "$__rate_interval is made from it");
    let provider: Value = yaml(&format!("{FOLDER}/grafana/dashboards/loadline.yml"));
    let path = provider["providers"][0]["options"]["path"].as_str().unwrap();
    let compose = compose();
    let service = &compose["services"]["grafana"];
    let from = volumes(service).into_iter().find(|(_, to)| *to == path).unwrap().0;
    let dashboards = self::source(from).unwrap();
    let home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].as_str();
    let home = home.unwrap().strip_prefix(path).unwrap().trim_start_matches('/');
    assert!(dashboards.join(home).exists(), "{home} is no dashboard");
}

fn configs() {
    for name in DAEMONS {
        must(
            std::process::Command::new(env!("CARGO_BIN_EXE_loadline"))
                .args(["check", "--config", &format!("{FOLDER}/{name}.yml")])
                .env("STATE_DIRECTORY", disk_dir().path())
                .current_dir(root()),
        );
    }
}
