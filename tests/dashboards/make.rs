//! Makes Grafana's JSON of a dashboard's source: the frame that every dashboard has, the place of each
//! panel, and the selection in each query.

use serde_json::{Value, json};

use crate::panel;
use crate::promql::Known;
use crate::source::{Board, Kind, Panel};

use std::collections::BTreeMap;

/// Grafana 10 to 13 load it; later ones are for newer servers only.
pub(crate) const SCHEMA: u64 = 41;
/// Of Grafana's grid.
const WIDTH: u64 = 24;

/// What a dashboard is made with.
pub(crate) struct Parts<'a> {
    pub(crate) known: &'a BTreeMap<String, Known>,
    /// Where an alert begins, and whether what is below is bad.
    pub(crate) limits: &'a BTreeMap<String, (f64, bool)>,
}

pub(crate) fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

pub(crate) fn dashboard(board: &Board, parts: &Parts<'_>) -> Value {
    json!({
        "id": null,
        "uid": format!("loadline-{}", board.name),
        "title": format!("loadline / {}", board.title),
        "description": board.description,
        "tags": ["loadline"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": false,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "1m",
        "time": {"from": format!("now-{}", board.span), "to": "now"},
        "timepicker": {},
        "weekStart": "",
        "fiscalYearStartMonth": 0,
        "links": [links()],
        "annotations": {"list": annotations()},
        "templating": {"list": variables(board, parts.known)},
        "panels": panels(board, parts),
    })
}

/// To the others, with what is chosen here.
fn links() -> Value {
    json!({
        "type": "dashboards", "title": "loadline", "tags": ["loadline"], "icon": "external link",
        "asDropdown": false, "includeVars": true, "keepTime": true, "targetBlank": false,
        "tooltip": "", "url": "",
    })
}

fn annotations() -> Value {
    let firing = selected(
        r#"ALERTS{alertname=~"Loadline.+", alertstate="firing"}"#,
        &["job".into(), "instance".into()],
        &crate::promql::known_metrics(),
    );
    json!([
        {
            "builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"},
            "enable": true, "hide": true, "iconColor": "rgba(0, 211, 255, 1)",
            "name": "Annotations & Alerts", "type": "dashboard",
        },
        {
            "datasource": datasource(), "enable": true, "hide": false, "iconColor": "orange",
            "name": "Firing alerts", "expr": firing, "step": "60s",
            "titleFormat": "{{alertname}}", "textFormat": "{{instance}} {{device}} {{target}}",
        },
    ])
}

fn variables(board: &Board, known: &BTreeMap<String, Known>) -> Vec<Value> {
    let source = json!({
        "name": "datasource", "label": "Data Source", "type": "datasource", "query": "prometheus",
        "current": {}, "hide": 0, "includeAll": false, "multi": false, "options": [], "refresh": 1,
        "regex": "",
    });
    let mut all = vec![source];
    let of = |label: &str, metric: &str| {
        let mut query = format!("label_values({metric}, {label})");
        // Jobs first, the instances of these, then the rest of both.
        let before: &[String] = match label {
            "job" => &[],
            "instance" => &["job".into()],
            _ => &["job".into(), "instance".into()],
        };
        query = selected(&query, before, known);
        json!({
            "name": label, "label": label, "type": "query", "datasource": datasource(),
            "definition": query, "query": {"query": query, "refId": "StandardVariableQuery"},
            "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".+",
            "current": {"text": ["All"], "value": ["$__all"]}, "hide": 0, "options": [], "regex": "",
        })
    };
    all.extend(["job", "instance"].map(|label| of(label, "loadline_build_info")));
    all.extend(board.variables.iter().map(|(label, metric)| of(label, metric)));
    all
}

/// From left to right, row under row.
fn panels(board: &Board, parts: &Parts<'_>) -> Vec<Value> {
    let mut chosen: Vec<String> = vec!["job".into(), "instance".into()];
    chosen.extend(board.variables.keys().cloned());
    let mut all: Vec<Value> = Vec::new();
    let mut y = 0;
    for row in &board.rows {
        all.push(json!({
            "id": all.len() + 1, "type": "row", "title": row.title, "collapsed": false,
            "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y}, "panels": [],
        }));
        y += 1;
        let (mut x, mut tallest) = (0, 0);
        for panel in &row.panels {
            let (width, height) = size(panel);
            if x + width > WIDTH {
                (x, y, tallest) = (0, y + tallest, 0);
            }
            let query = |expr: &str| selected(expr, &chosen, parts.known);
            let mut made = panel::panel(panel, &query, parts.limits);
            made["id"] = (all.len() + 1).into();
            made["gridPos"] = json!({"h": height, "w": width, "x": x, "y": y});
            all.push(made);
            (x, tallest) = (x + width, tallest.max(height));
        }
        y += tallest;
    }
    all
}

fn size(panel: &Panel) -> (u64, u64) {
    let (width, height) = if panel.kind == Kind::Number { (4, 4) } else { (12, 8) };
    (panel.width.unwrap_or(width), panel.height.unwrap_or(height))
}

/// An expression whose every selector takes the chosen values of the labels that its metric has.
pub(crate) fn selected(expr: &str, labels: &[String], known: &BTreeMap<String, Known>) -> String {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut made = String::new();
    let mut rest = expr;
    while let Some(start) = rest.find(is_of_a_name) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c| !is_of_a_name(c)).unwrap_or(from.len()));
        made += before;
        made += word;
        rest = after;
        let Some(metric) = known.get(word) else { continue };
        let matchers: Vec<String> = labels
            .iter()
            .filter(|label| metric.labels.contains(label.as_str()))
            .map(|label| format!("{label}=~\"${label}\""))
            .collect();
        if matchers.is_empty() {
            continue;
        }
        match after.strip_prefix('{') {
            Some(own) => {
                made += &format!("{{{}, ", matchers.join(", "));
                rest = own;
            }
            None => made += &format!("{{{}}}", matchers.join(", ")),
        }
    }
    made + rest
}
