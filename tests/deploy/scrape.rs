//! deploy/prometheus: the examples, as Prometheus itself reads them.

use serde_yaml::Value;

use crate::check::Check;
use crate::files::{answer, must, program, root, text, yaml};

pub const CHECKS: &[Check] = &[
    Check::new("promtool_accepts_the_scrape_examples", accepted).needs(&["promtool"]),
    Check::new("promtool_accepts_the_example_of_agent_mode", agent).needs(&["promtool"]),
    Check::new("promtool_finds_the_hosts_of_the_shared_list", discovered).needs(&["promtool"]),
    Check::new("every_scrape_example_names_the_job_as_the_rules_do", named),
    Check::new("every_scrape_example_is_explained", explained),
];

const FOLDER: &str = "deploy/prometheus";

fn examples() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root().join(FOLDER))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yml"))
        .collect();
    names.sort();
    names
}

fn accepted() {
    for name in examples().iter().filter(|name| *name != "agent.yml") {
        must(program("promtool").args(["check", "config", &format!("{FOLDER}/{name}")]));
    }
}

fn agent() {
    must(program("promtool").args(["check", "config", "--agent", &format!("{FOLDER}/agent.yml")]));
}

/// Relabelling as the server does it.
fn discovered() {
    let config = format!("{FOLDER}/prometheus.yml");
    let said =
        answer(program("promtool").args(["check", "service-discovery", &config, "loadline"]));
    let found: Value = serde_yaml::from_str(&said).unwrap();
    let found = found.as_sequence().unwrap();
    let list: Value = yaml(&format!("{FOLDER}/targets/hosts.yml"));
    let hosts: Vec<&str> = list
        .as_sequence()
        .unwrap()
        .iter()
        .flat_map(|group| group["targets"].as_sequence().unwrap())
        .map(|target| target.as_str().unwrap())
        .collect();
    assert_eq!(found.len(), hosts.len(), "{said}");
    for target in found {
        let labels = &target["labels"];
        let instance = labels["instance"].as_str().unwrap();
        assert!(hosts.contains(&&*format!("{instance}:9847")), "{said}");
        assert_eq!(labels["job"], "loadline");
        assert!(labels["rack"].is_string(), "labels of the list are kept");
    }
}

fn named() {
    for name in examples() {
        let config: Value = yaml(&format!("{FOLDER}/{name}"));
        let jobs = config["scrape_configs"].as_sequence().unwrap();
        assert!(jobs.iter().all(|job| job["job_name"] == "loadline"), "{name}");
    }
}

fn explained() {
    let doc = text("docs/deploy.md");
    for name in examples() {
        assert!(doc.contains(&format!("{FOLDER}/{name}")), "{name}: not in docs/deploy.md");
    }
}
