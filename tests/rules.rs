//! The alert rules: Prometheus' own tool accepts them, their cases hold, and they keep the
//! conventions that the tool doesn't know.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests"
)]

mod promql;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use promql_parser::parser::Expr;
use promql_parser::parser::token::{T_LAND, T_LOR, T_LUNLESS};
use serde::Deserialize;

/// The slowest scrape that the rules are made for, four times: what a rate needs at least.
const RATE_WINDOW_MIN: Duration = Duration::from_secs(4 * 15);
const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];
const RUNBOOK_HEADINGS: [&str; 4] = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"];

/// Only the keys that Prometheus 2.42 knows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[allow(dead_code, reason = "a group without a name is refused")]
    name: String,
    #[allow(dead_code, reason = "allowed, not asked for")]
    interval: Option<String>,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rule {
    Alert(Alert),
    Record(Record),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    record: String,
    expr: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Alert {
    alert: String,
    expr: String,
    r#for: Option<String>,
    #[allow(dead_code, reason = "allowed, not asked for")]
    keep_firing_for: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct CaseFile {
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(default)]
    alert_rule_test: Vec<Check>,
}

#[derive(Deserialize)]
struct Check {
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<serde_yaml::Value>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files of a folder that end in `suffix`, at least one.
fn files(folder: &str, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "nothing in {folder}");
    found
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> T {
    let text = std::fs::read_to_string(path).unwrap();
    serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn rules() -> impl Iterator<Item = Rule> {
    files("alerts", ".rules.yml")
        .into_iter()
        .flat_map(|path| read::<RuleFile>(&path).groups)
        .flat_map(|group| group.rules)
}

fn alerts() -> Vec<Alert> {
    rules()
        .filter_map(|rule| if let Rule::Alert(alert) = rule { Some(alert) } else { None })
        .collect()
}

fn records() -> Vec<Record> {
    let of = |rule| if let Rule::Record(record) = rule { Some(record) } else { None };
    rules().filter_map(of).collect()
}

/// Whether an expression is empty when all is well: it compares, or asks for absence.
fn filters(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(p) => filters(&p.expr),
        Expr::Aggregate(a) => filters(&a.expr),
        Expr::Call(c) => c.func.name == "absent",
        Expr::Binary(b) => match b.op.id() {
            T_LAND => filters(&b.lhs) || filters(&b.rhs),
            T_LOR => filters(&b.lhs) && filters(&b.rhs),
            T_LUNLESS => filters(&b.lhs),
            _ => b.op.is_comparison_operator() && !b.return_bool(),
        },
        _ => false,
    }
}

#[test]
fn promtool_accepts_the_rules() {
    promql::promtool(
        &["check", "rules", "--lint=all", "--lint-fatal"],
        &files("alerts", ".rules.yml"),
    );
}

#[test]
fn promtool_finds_the_cases_true() {
    promql::promtool(&["test", "rules"], &files("alerts/tests", ".yml"));
}

#[test]
fn every_alert_has_a_case_that_fires_and_one_that_does_not() {
    let cases: Vec<CaseFile> = files("alerts/tests", ".yml").iter().map(|p| read(p)).collect();
    let checks = || cases.iter().flat_map(|f| &f.tests).flat_map(|c| &c.alert_rule_test);
    let named = |fires: bool| -> BTreeSet<&str> {
        checks().filter(|c| c.exp_alerts.is_empty() != fires).map(|c| &*c.alertname).collect()
    };
    let alerts = alerts();
    let names: BTreeSet<&str> = alerts.iter().map(|a| &*a.alert).collect();
    assert_eq!(&names - &named(true), BTreeSet::new(), "alerts without a case that fires");
    assert_eq!(&names - &named(false), BTreeSet::new(), "alerts without a case that doesn't");
    let all = &named(true) | &named(false);
    assert_eq!(&all - &names, BTreeSet::new(), "cases of alerts that don't exist");
}

#[test]
fn rules_name_only_metrics_and_labels_that_are_exported() {
    let known = promql::known_metrics();
    let alerts = alerts().into_iter().map(|alert| (alert.alert, alert.expr));
    let records = records().into_iter().map(|record| (record.record, record.expr));
    let found: Vec<_> = alerts
        .chain(records)
        .flat_map(|(name, text)| promql::complaints(&name, &promql::parse(&name, &text), &known))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_alert_compares_something() {
    for alert in alerts() {
        let expr = promql::parse(&alert.alert, &alert.expr);
        assert!(filters(&expr), "{}: fires whenever there is data", alert.alert);
    }
}

#[test]
fn rates_look_over_four_scrapes_at_least() {
    for alert in alerts() {
        for (function, name, range) in promql::rates(&promql::parse(&alert.alert, &alert.expr)) {
            assert!(range >= RATE_WINDOW_MIN, "{}: {function}({name}[{range:?}])", alert.alert);
        }
    }
}

#[test]
fn every_alert_waits_and_has_a_severity_and_its_three_annotations() {
    for Alert { alert, r#for, labels, annotations, .. } in alerts() {
        assert!(alert.starts_with("Loadline"), "{alert}: the name says whose it is");
        assert!(r#for.is_some(), "{alert}: no `for`");
        let severity = labels.get("severity").map(String::as_str).unwrap_or("");
        assert!(SEVERITIES.contains(&severity), "{alert}: severity `{severity}`");
        let keys: Vec<_> = annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["description", "runbook", "summary"], "{alert}");
    }
}

/// A value in a label makes a new alert of each evaluation; a summary groups many of them.
#[test]
fn values_stand_in_descriptions_alone_and_are_humanised() {
    for Alert { alert, labels, annotations, .. } in alerts() {
        for (name, text) in labels.iter().chain(annotations.iter().filter(|a| a.0 == "summary")) {
            assert!(!text.contains("{{"), "{alert}: {name} has a template");
        }
        let description = &annotations["description"];
        for value in description.split("{{").skip(1).filter(|part| part.contains("$value")) {
            assert!(value.contains("| humanize"), "{alert}: a bare $value in {description}");
        }
    }
}

#[test]
fn every_alert_has_its_runbook_and_every_runbook_its_alert() {
    let alerts = alerts();
    for Alert { alert, annotations, .. } in &alerts {
        let path = &annotations["runbook"];
        assert_eq!(path, &format!("docs/runbooks/{alert}.md"));
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
        let headings: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, RUNBOOK_HEADINGS, "{path}");
        assert!(text.starts_with(&format!("# {alert}\n")), "{path}");
    }
    let names: BTreeSet<_> = alerts.iter().map(|a| format!("{}.md", a.alert)).collect();
    for path in files("docs/runbooks", ".md") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(names.contains(&name), "{name}: no such alert");
    }
}
