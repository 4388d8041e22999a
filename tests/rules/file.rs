//! The rules and their cases as files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use promql_parser::parser::Expr;
use serde::Deserialize;

use crate::promql;

/// Only the keys that Prometheus 2.42 knows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    #[allow(dead_code, reason = "a group without a name is refused")]
    name: String,
    #[allow(dead_code, reason = "allowed, not asked for")]
    interval: Option<String>,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Rule {
    Alert(Alert),
    Record(Record),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) record: String,
    pub(crate) expr: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Alert {
    pub(crate) alert: String,
    pub(crate) expr: String,
    pub(crate) r#for: Option<String>,
    pub(crate) keep_firing_for: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
pub(crate) struct CaseFile {
    pub(crate) tests: Vec<Case>,
}

#[derive(Deserialize)]
pub(crate) struct Case {
    #[serde(default)]
    pub(crate) alert_rule_test: Vec<Check>,
}

#[derive(Deserialize)]
pub(crate) struct Check {
    pub(crate) alertname: String,
    #[serde(default)]
    pub(crate) exp_alerts: Vec<serde_yaml::Value>,
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files of a folder that end in `suffix`, at least one.
pub(crate) fn files(folder: &str, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "nothing in {folder}");
    found
}

pub(crate) fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> T {
    let text = std::fs::read_to_string(path).unwrap();
    serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub(crate) fn rules() -> impl Iterator<Item = Rule> {
    files("alerts", ".rules.yml")
        .into_iter()
        .flat_map(|path| read::<RuleFile>(&path).groups)
        .flat_map(|group| group.rules)
}

pub(crate) fn alerts() -> Vec<Alert> {
    rules()
        .filter_map(|rule| if let Rule::Alert(alert) = rule { Some(alert) } else { None })
        .collect()
}

pub(crate) fn records() -> Vec<Record> {
    let of = |rule| if let Rule::Record(record) = rule { Some(record) } else { None };
    rules().filter_map(of).collect()
}

/// `(name, parsed expression)` of every alert.
pub(crate) fn alert_expressions() -> Vec<(String, Expr)> {
    let parsed = |alert: Alert| (alert.alert.clone(), promql::parse(&alert.alert, &alert.expr));
    alerts().into_iter().map(parsed).collect()
}

/// Those of records as well.
pub(crate) fn expressions() -> Vec<(String, Expr)> {
    let parsed = |r: Record| (r.record.clone(), promql::parse(&r.record, &r.expr));
    alert_expressions().into_iter().chain(records().into_iter().map(parsed)).collect()
}
