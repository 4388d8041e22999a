//! The dashboards: they are made of `dashboards/*.yml`, import into any Grafana from 10 on, follow the
//! chosen data source, jobs and instances, and show only what loadline exports. BLESS=1 makes them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests"
)]

mod make;
mod panel;
#[path = "../promql.rs"]
mod promql;
mod source;

use std::collections::BTreeSet;
use std::time::Duration;

use loadline::model::verdict::Limit;

use promql_parser::parser::{Expr, LabelModifier};
use serde_json::{Value, json};

const DATASOURCE: &str = "${datasource}";
/// Ids of Grafana's units that a panel here may use.
const UNITS: [&str; 8] = ["iops", "Bps", "bytes", "s", "percentunit", "short", "pps", "cps"];
/// Stands for `$__rate_interval` where an expression is parsed.
const RATE_INTERVAL: Duration = Duration::from_secs(4242);
/// Counters that are shown as they are, and why.
const TOTALS: [(&str, &str); 3] = [
    ("loadline_probe_runs_total", "a table counts them since the start"),
    ("loadline_probe_failures_total", "a table counts them since the start"),
    ("loadline_probe_skips_total", "a table counts them since the start"),
];

/// `(file name, content)` of each dashboard, at least one.
fn dashboards() -> Vec<(String, Value)> {
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, value)
    };
    source::files("json").into_iter().map(read).collect()
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

#[test]
fn dashboards_are_made_of_their_sources() {
    let (known, limits) = (promql::known_metrics(), source::alert_limits());
    let parts = make::Parts { known: &known, limits: &limits };
    let boards = source::boards();
    for board in &boards {
        let path = source::folder().join(format!("{}.json", board.name));
        let made = make::dashboard(board, &parts);
        let text = serde_json::to_string_pretty(&made).unwrap() + "\n";
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(there == text, "{}: make it anew (BLESS=1)", path.display());
    }
    assert_eq!(source::files("json").len(), boards.len(), "a dashboard without its source");
}

#[test]
fn dashboards_import_anywhere_and_are_kept_as_code() {
    let mut uids = BTreeSet::new();
    for (file, d) in dashboards() {
        assert!(d["schemaVersion"].as_u64().unwrap() <= make::SCHEMA, "{file}");
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

/// A counter means nothing but by its growth.
#[test]
fn counters_are_shown_as_rates() {
    let known = promql::known_metrics();
    for (place, text, _) in queries() {
        let expr = parsed(&place, &text);
        let grows: BTreeSet<_> =
            promql::rates(&expr).into_iter().map(|(_, name, _)| name).collect();
        for name in promql::selectors(&expr).iter().filter_map(|s| s.name.as_deref()) {
            let as_it_is = TOTALS.iter().any(|(total, _)| *total == name);
            let fine = !known[name].counter || grows.contains(name) || as_it_is;
            assert!(fine, "{place}: `{name}` without a rate");
        }
    }
}

#[test]
fn rows_of_tables_are_of_the_labels_that_they_name() {
    for board in source::boards() {
        for panel in board.rows.iter().flat_map(|row| &row.panels) {
            let mut found = BTreeSet::new();
            for query in panel.queries.iter().filter(|_| !panel.labels.is_empty()) {
                let place = format!("{}: {}", board.name, panel.title);
                let Expr::Aggregate(a) = parsed(&place, &query.expr) else {
                    panic!("{place}: say which labels its rows have: max by (job, ...)")
                };
                let Some(LabelModifier::Include(by)) = a.modifier else {
                    panic!("{place}: aggregated without `by`")
                };
                found.extend(by.labels);
            }
            found.remove("job");
            let named: BTreeSet<_> = panel.labels.iter().cloned().collect();
            assert_eq!(found, named, "{}: {}", board.name, panel.title);
        }
    }
}

#[test]
fn what_may_be_empty_says_so_and_where_else_to_look_is_there() {
    let boards = source::boards();
    for board in &boards {
        for panel in board.rows.iter().flat_map(|row| &row.panels) {
            if let Some(to) = &panel.to {
                assert!(boards.iter().any(|b| b.name == *to), "{}: no {to}", panel.title);
            }
            let filters = panel.queries.iter().all(|query| query.expr.ends_with("> 0"));
            assert!(!filters || panel.none.is_some(), "{}: empty without a word", panel.title);
        }
    }
}

#[test]
fn every_limit_says_what_to_buy() {
    let boards = source::boards();
    let mut panels = boards.iter().flat_map(|b| &b.rows).flat_map(|row| &row.panels);
    let panel = panels.find(|panel| panel.title == "What to buy").unwrap();
    let named: BTreeSet<_> = panel.words.keys().map(String::as_str).collect();
    assert_eq!(named, Limit::ALL.iter().map(|limit| limit.label()).collect());
}
