//! The dashboards: they import into any Grafana from 10 on, follow the chosen data source, jobs
//! and instances, and show only what loadline exports.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests"
)]

mod promql;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use promql_parser::parser::Expr;
use serde_json::{Value, json};

const DATASOURCE: &str = "${datasource}";
/// Grafana 10 to 13 load it; later ones are for newer servers only.
const SCHEMA_MAX: u64 = 41;
/// Ids of Grafana's units that a panel here may use.
const UNITS: [&str; 7] = ["iops", "Bps", "bytes", "s", "percentunit", "short", "none"];
/// Stands for `$__rate_interval` where an expression is parsed.
const RATE_INTERVAL: Duration = Duration::from_secs(4242);
/// Panels whose coloured threshold is where an alert begins.
const THRESHOLDS: [(&str, &str); 9] = [
    ("Headroom", "LoadlineHeadroomLow"),
    ("Time at the ceiling", "LoadlineDiskAtCeiling"),
    ("Busy", "LoadlineDiskBusy"),
    ("Busiest disk", "LoadlineDiskBusy"),
    ("Queue", "LoadlineDiskBusyUnknownMedia"),
    ("Receive utilization", "LoadlineLinkNearlyFull"),
    ("Transmit utilization", "LoadlineLinkNearlyFull"),
    ("Fullest link", "LoadlineLinkNearlyFull"),
    ("Retransmit ratio", "LoadlineRetransmits"),
];

/// `(file name, content)` of each dashboard, at least one.
fn dashboards() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name, value)
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!found.is_empty());
    found
}

/// `(place, panel)` of every panel that shows something.
fn panels() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (file, dashboard) in dashboards() {
        for panel in dashboard["panels"].as_array().unwrap() {
            let inner = panel["panels"].as_array().cloned().unwrap_or_default();
            for panel in [panel.clone()].into_iter().chain(inner) {
                if panel["type"] != "row" {
                    let title = panel["title"].as_str().unwrap_or("no title").to_owned();
                    all.push((format!("{file}: {title}"), panel));
                }
            }
        }
    }
    assert!(!all.is_empty());
    all
}

/// `(place, expression, legend)` of every query of every panel.
fn queries() -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for (place, panel) in panels() {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        assert!(!targets.is_empty(), "{place}: no query");
        for target in targets {
            let text = |key: &str| target[key].as_str().unwrap_or("").to_owned();
            all.push((format!("{place} {}", text("refId")), text("expr"), text("legendFormat")));
        }
    }
    all
}

fn parsed(place: &str, text: &str) -> Expr {
    promql::parse(place, &text.replace("$__rate_interval", "4242s"))
}

/// Every `datasource` object in a value, however deep.
fn datasources(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().flat_map(datasources).collect(),
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, v)| if key == "datasource" { vec![v] } else { datasources(v) })
            .collect(),
        _ => Vec::new(),
    }
}

/// Right sides of comparisons that are plain numbers.
fn thresholds(expr: &Expr) -> Vec<f64> {
    promql::nodes(expr)
        .into_iter()
        .filter_map(|node| match node {
            Expr::Binary(b) if b.op.is_comparison_operator() => match &*b.rhs {
                Expr::NumberLiteral(n) => Some(n.val),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

#[test]
fn dashboards_import_anywhere_and_are_kept_as_code() {
    let mut uids = BTreeSet::new();
    for (file, d) in dashboards() {
        assert!(d["schemaVersion"].as_u64().unwrap() <= SCHEMA_MAX, "{file}");
        assert!(d["id"].is_null(), "{file}: an id of one server");
        assert!(d.get("__inputs").is_none(), "{file}: resolved by the import dialog only");
        assert!(uids.insert(d["uid"].as_str().unwrap().to_owned()), "{file}: uid taken twice");
        assert_eq!(d["editable"], false, "{file}");
        assert_eq!(d["graphTooltip"], 1, "{file}: shared crosshair");
        let ids: Vec<_> =
            d["panels"].as_array().unwrap().iter().map(|p| p["id"].as_u64()).collect();
        let distinct: BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{file}: panel ids");
    }
}

#[test]
fn everything_follows_the_chosen_data_source() {
    for (file, d) in dashboards() {
        for source in datasources(&d) {
            let builtin = source["uid"] == "-- Grafana --";
            assert!(builtin || source["uid"] == DATASOURCE, "{file}: {source}");
        }
    }
    for (place, panel) in panels() {
        let targets = panel["targets"].as_array().unwrap().iter();
        for part in targets.chain([&panel]) {
            assert_eq!(part["datasource"]["uid"], DATASOURCE, "{place}");
        }
    }
}

#[test]
fn the_data_source_jobs_and_instances_can_be_chosen() {
    for (file, d) in dashboards() {
        let variables = d["templating"]["list"].as_array().unwrap();
        let named = |name: &str| variables.iter().find(|v| v["name"] == name).unwrap();
        let source = named("datasource");
        assert_eq!(source["type"], "datasource", "{file}");
        assert_eq!(source["query"], "prometheus", "{file}");
        for name in ["job", "instance"] {
            let v = named(name);
            assert_eq!((&v["multi"], &v["includeAll"]), (&true.into(), &true.into()), "{file}");
            assert_eq!(v["allValue"], ".+", "{file}: {name}: an empty list would match nothing");
            assert_eq!(v["refresh"], 2, "{file}: {name}: on change of the time range");
            let query = v["query"]["query"].as_str().unwrap();
            assert!(query.contains("loadline_build_info"), "{file}: {name}: a series always there");
        }
    }
}

#[test]
fn every_panel_has_a_title_a_description_and_a_unit_of_grafana() {
    for (place, panel) in panels() {
        for key in ["title", "description"] {
            assert!(!panel[key].as_str().unwrap_or("").is_empty(), "{place}: no {key}");
        }
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or("");
        assert!(UNITS.contains(&unit), "{place}: unit `{unit}`");
        let overrides = panel["fieldConfig"]["overrides"].as_array().unwrap();
        for property in overrides.iter().flat_map(|o| o["properties"].as_array().unwrap()) {
            let unit = property["value"].as_str().unwrap_or("");
            assert!(property["id"] != "unit" || UNITS.contains(&unit), "{place}: unit `{unit}`");
        }
    }
}

#[test]
fn queries_and_legends_name_only_metrics_and_labels_that_are_exported() {
    let known = promql::known_metrics();
    let mut found = Vec::new();
    for (place, text, legend) in queries() {
        let expr = parsed(&place, &text);
        found.extend(promql::complaints(&place, &expr, &known));
        let labels: BTreeSet<_> = promql::selectors(&expr)
            .iter()
            .filter_map(|s| known.get(s.name.as_deref()?))
            .flat_map(|metric| metric.labels.iter().copied())
            .collect();
        for label in legend.split("{{").skip(1).filter_map(|part| part.split("}}").next()) {
            if !labels.contains(label.trim()) {
                found.push(format!("{place}: the legend names `{label}`"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The parser of these tests knows newer functions too; the oldest supported server has the last word.
#[test]
fn promtool_accepts_every_query() {
    let rules: Vec<_> = queries()
        .iter()
        .enumerate()
        .map(|(n, (place, text, _))| {
            json!({
                "record": format!("panel:query:{n}"),
                "expr": text.replace("$__rate_interval", "1m"),
                "labels": {"place": place},
            })
        })
        .collect();
    let file = tempfile::Builder::new().suffix(".yml").tempfile().unwrap();
    let groups = json!({"groups": [{"name": "panels", "rules": rules}]});
    std::fs::write(file.path(), groups.to_string()).unwrap();
    promql::promtool(&["check", "rules"], &[file.path().to_path_buf()]);
}

#[test]
fn every_selector_takes_the_chosen_jobs_and_instances() {
    for (place, text, _) in queries() {
        for selector in promql::selectors(&parsed(&place, &text)) {
            for (label, variable) in [("job", "$job"), ("instance", "$instance")] {
                let chosen: Vec<_> = selector
                    .matchers
                    .matchers
                    .iter()
                    .filter(|m| m.name == label)
                    .map(|m| (m.op.to_string(), m.value.as_str()))
                    .collect();
                assert_eq!(chosen, [("=~".to_owned(), variable)], "{place}: {selector}");
            }
        }
    }
}

#[test]
fn rates_follow_the_zoom() {
    for (place, text, _) in queries() {
        for (function, name, range) in promql::rates(&parsed(&place, &text)) {
            let fixed_span_is_meant = function == "increase" && range >= Duration::from_secs(3600);
            assert!(range == RATE_INTERVAL || fixed_span_is_meant, "{place}: {function}({name})");
        }
    }
}

#[test]
fn coloured_thresholds_are_those_of_the_alerts() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/loadline.rules.yml");
    let rules: Value = serde_yaml::from_str(&std::fs::read_to_string(rules).unwrap()).unwrap();
    let rules: Vec<_> = rules["groups"].as_array().unwrap().iter().map(|g| &g["rules"]).collect();
    let panels = panels();
    for (title, alert) in THRESHOLDS {
        let limits: Vec<f64> = rules
            .iter()
            .flat_map(|r| r.as_array().unwrap())
            .filter(|rule| rule["alert"] == alert)
            .flat_map(|r| thresholds(&promql::parse(alert, r["expr"].as_str().unwrap())))
            .collect();
        let (_, panel) = panels.iter().find(|(_, p)| p["title"] == title).unwrap();
        let steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"].as_array().unwrap();
        let shown: Vec<f64> = steps.iter().filter_map(|s| s["value"].as_f64()).collect();
        assert_eq!(shown.len(), 1, "{title}");
        assert!(limits.contains(&shown[0]), "{title}: {shown:?}, {alert}: {limits:?}");
    }
}
