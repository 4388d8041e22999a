//! The example of a configuration for Alertmanager: its own tool accepts it, every alert reaches the
//! receiver of its severity, and it names only alerts and labels that there are.

use std::collections::BTreeSet;
use std::process::Command;

use serde_yaml::Value;

use crate::file::{alert_expressions, alerts, read, root};
use crate::promql;

const EXAMPLE: &str = "alerts/alertmanager.example.yml";

/// What amtool says; `None`, and said so, where there is none.
fn amtool(arguments: &[&str]) -> Option<String> {
    match Command::new("amtool").args(arguments).current_dir(root()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: no amtool here (Debian: prometheus-alertmanager)");
            None
        }
        Err(error) => panic!("amtool: {error}"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "amtool {arguments:?}: {text}");
            Some(text)
        }
    }
}

#[test]
fn amtool_accepts_the_example() {
    amtool(&["check-config", EXAMPLE]);
}

#[test]
fn every_alert_reaches_the_receiver_of_its_severity() {
    let example = format!("--config.file={EXAMPLE}");
    for alert in alerts() {
        let severity = alert.labels["severity"].as_str();
        let wanted = match severity {
            "critical" => "pager",
            "warning" => "ticket",
            _ => "digest",
        };
        let labels = [format!("alertname={}", alert.alert), format!("severity={severity}")];
        let arguments = ["config", "routes", "test", &example, &labels[0], &labels[1]];
        let Some(said) = amtool(&arguments) else { return };
        assert_eq!(said.trim(), wanted, "{}", alert.alert);
    }
}

/// Names of alerts that a matcher like `alertname=~"A|B.+"` stands for.
fn named(matcher: &str) -> Vec<String> {
    let Some(rest) = matcher.strip_prefix("alertname") else { return Vec::new() };
    let value = rest.trim_start_matches(['=', '~', '!']).trim_matches('"');
    value.split('|').map(str::to_owned).collect()
}

#[test]
fn what_is_held_back_are_alerts_with_the_labels_that_have_to_agree() {
    let example: Value = read(&root().join(EXAMPLE));
    let alerts = alert_expressions();
    let known = promql::known_metrics();
    let labels_of = |name: &str| -> BTreeSet<&str> {
        let of = alerts.iter().filter(|(alert, _)| match name.strip_suffix(".+") {
            Some(start) => alert.starts_with(start),
            None => alert == name,
        });
        let selectors = of.flat_map(|(_, expr)| promql::selectors(expr));
        let metrics = selectors.filter_map(|selector| known.get(selector.name.as_deref()?));
        metrics.flat_map(|metric| metric.labels.iter().copied()).collect()
    };
    let words = |value: &Value| -> Vec<String> {
        let items = value.as_sequence().unwrap().iter();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    for rule in example["inhibit_rules"].as_sequence().unwrap() {
        let matchers = [words(&rule["source_matchers"]), words(&rule["target_matchers"])].concat();
        for name in matchers.iter().flat_map(|matcher| named(matcher)) {
            let mut labels = labels_of(&name);
            assert!(!labels.is_empty(), "no alert {name}");
            // Put there by the rules themselves.
            labels.insert("direction");
            let missing: Vec<_> = words(&rule["equal"])
                .into_iter()
                .filter(|l| !labels.contains(l.as_str()))
                .collect();
            assert!(missing.is_empty(), "{name} has no {missing:?}");
        }
    }
}
