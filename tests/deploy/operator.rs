//! deploy/kubernetes: the Prometheus operator's resources. The rules are alerts/loadline.rules.yml
//! itself, indented into a PrometheusRule; BLESS=1 writes it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_yaml::Value;

use crate::check::Check;
use crate::files::{root, text, yaml};
use crate::kubernetes::{FOLDER, Metadata, Selector};

pub const CHECKS: &[Check] = &[
    Check::new("prometheusrule_holds_the_rules_of_alerts", same_rules),
    Check::new("prometheusrule_has_fields_of_the_api_only", rule_fields),
    Check::new("podmonitor_finds_the_pods_and_names_the_job_as_the_rules_do", finds),
];

const RULES: &str = "alerts/loadline.rules.yml";

/// monitoring.coreos.com/v1: the head that every resource has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Resource<S> {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: S,
}

/// PrometheusRuleSpec; groups may also have `labels`, `limit`, `query_offset` and
/// `partial_response_strategy`, which Prometheus 2.42 doesn't know.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleSpec {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct Group {
    name: String,
    interval: Option<String>,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct Rule {
    alert: Option<String>,
    record: Option<String>,
    expr: String,
    r#for: Option<String>,
    keep_firing_for: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

/// PodMonitorSpec, as far as this one goes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PodMonitorSpec {
    job_label: String,
    selector: Selector,
    sample_limit: u64,
    label_limit: u64,
    label_value_length_limit: u64,
    pod_metrics_endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct Endpoint {
    port: String,
    path: String,
    interval: String,
    scrape_timeout: String,
    relabelings: Vec<Relabeling>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "that a field may be there is the point")]
struct Relabeling {
    source_labels: Option<Vec<String>>,
    target_label: Option<String>,
    regex: Option<String>,
    action: Option<String>,
}

fn made() -> String {
    let mut made = String::from(
        "# Made from alerts/loadline.rules.yml: BLESS=1 cargo test --test deploy prometheusrule\n\
         apiVersion: monitoring.coreos.com/v1\n\
         kind: PrometheusRule\n\
         metadata:\n  name: loadline\n  namespace: loadline\n  labels:\n    \
         app.kubernetes.io/name: loadline\n\
         spec:\n",
    );
    for line in text(RULES).lines() {
        let indent = if line.is_empty() { "" } else { "  " };
        made.push_str(&format!("{indent}{line}\n"));
    }
    made
}

fn same_rules() {
    let path = format!("{FOLDER}/prometheusrule.yaml");
    let made = made();
    if std::env::var_os("BLESS").is_some() {
        // The checks beside this one read it.
        let beside = root().join("target/prometheusrule.yaml");
        std::fs::write(&beside, &made).unwrap();
        std::fs::rename(beside, root().join(&path)).unwrap();
    }
    assert!(
        std::fs::read_to_string(root().join(&path)).is_ok_and(|text| text == made),
        "{path} is not what {RULES} says: run `BLESS=1 cargo test --test deploy prometheusrule`"
    );
    let (rule, rules): (Value, Value) = (yaml(&path), yaml(RULES));
    assert_eq!(rule["spec"], rules, "indenting changed a text");
}

fn rule_fields() {
    let rule: Resource<RuleSpec> = yaml(&format!("{FOLDER}/prometheusrule.yaml"));
    assert_eq!((&*rule.api_version, &*rule.kind), ("monitoring.coreos.com/v1", "PrometheusRule"));
    for rule in rule.spec.groups.iter().flat_map(|group| &group.rules) {
        assert_ne!(rule.alert.is_some(), rule.record.is_some(), "{}", rule.expr);
        if rule.record.is_some() {
            assert!(rule.r#for.is_none() && rule.annotations.is_none(), "{}", rule.expr);
        }
    }
}

fn finds() {
    let monitor: Resource<PodMonitorSpec> = yaml(&format!("{FOLDER}/podmonitor.yaml"));
    assert_eq!((&*monitor.api_version, &*monitor.kind), ("monitoring.coreos.com/v1", "PodMonitor"));
    let daemonset: Value = yaml(&format!("{FOLDER}/daemonset.yaml"));
    let pod = &daemonset["spec"]["template"];
    for (label, value) in &monitor.spec.selector.match_labels {
        assert_eq!(pod["metadata"]["labels"][label.as_str()], **value);
    }
    let job = &pod["metadata"]["labels"][monitor.spec.job_label.as_str()];
    assert_eq!(job, "loadline", "the rules know the job by this name");
    assert_eq!(monitor.metadata.namespace.as_deref(), Some("loadline"));
    let [endpoint] = &monitor.spec.pod_metrics_endpoints[..] else { panic!("one endpoint") };
    let ports = pod["spec"]["containers"][0]["ports"].as_sequence().unwrap();
    assert!(ports.iter().any(|port| port["name"] == *endpoint.port));
    assert_eq!(endpoint.path, "/metrics");
    let named = endpoint.relabelings.iter().any(|r| r.target_label.as_deref() == Some("instance"));
    assert!(named, "nodes have names that stay");
    let limits: Value = yaml("deploy/prometheus/prometheus.yml");
    let limits = &limits["scrape_configs"][0];
    let spec = &monitor.spec;
    assert_eq!(limits["sample_limit"].as_u64(), Some(spec.sample_limit));
    assert_eq!(limits["label_limit"].as_u64(), Some(spec.label_limit));
    assert_eq!(limits["label_value_length_limit"].as_u64(), Some(spec.label_value_length_limit));
}
