//! One panel: what Grafana wants to know of each kind.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::make::datasource;
use crate::source::{Kind, Panel, Query};

type Limits = BTreeMap<String, (f64, bool)>;

/// All but its number and place. `selected` puts the selection into an expression.
pub(crate) fn panel(panel: &Panel, selected: &dyn Fn(&str) -> String, limits: &Limits) -> Value {
    let mut made = json!({
        "type": grafana_type(panel.kind),
        "title": panel.title,
        "description": panel.description,
        "datasource": datasource(),
        "fieldConfig": {"defaults": defaults(panel, limits), "overrides": overrides(panel, limits)},
        "options": options(panel),
        "targets": targets(panel, selected),
    });
    let transformations = transformations(panel);
    if !transformations.is_empty() {
        made["transformations"] = transformations.into();
    }
    if let Some(board) = &panel.to {
        made["links"] = json!([{
            "title": format!("More of it: {board}"),
            "url": format!(
                "/d/loadline-{board}?${{datasource:queryparam}}&${{job:queryparam}}\
                 &${{instance:queryparam}}&${{__url_time_range}}"
            ),
            "targetBlank": false,
        }]);
    }
    made
}

fn grafana_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Lines => "timeseries",
        Kind::Number => "stat",
        Kind::Bars => "bargauge",
        Kind::Heatmap => "heatmap",
        Kind::States => "state-timeline",
        Kind::Points => "xychart",
        Kind::Table | Kind::Matrix => "table",
    }
}

/// Green, and from the limit on (or below it) orange where an alert begins, else red.
fn thresholds(alert: Option<&str>, red_from: Option<f64>, limits: &Limits) -> Value {
    let steps = match (alert, red_from) {
        (Some(alert), _) => {
            let (at, below) = *limits.get(alert).unwrap_or_else(|| panic!("no alert {alert}"));
            let (low, high) = if below { ("orange", "green") } else { ("green", "orange") };
            json!([{"color": low, "value": null}, {"color": high, "value": at}])
        }
        (None, Some(at)) => {
            json!([{"color": "green", "value": null}, {"color": "red", "value": at}])
        }
        (None, None) => json!([{"color": "green", "value": null}]),
    };
    json!({"mode": "absolute", "steps": steps})
}

fn defaults(panel: &Panel, limits: &Limits) -> Value {
    let lines = matches!(panel.kind, Kind::Lines | Kind::Points);
    let mut made = json!({
        "unit": panel.unit,
        "color": {"mode": if lines { "palette-classic" } else { "thresholds" }},
        "thresholds": thresholds(panel.alert.as_deref(), panel.red_from, limits),
        "mappings": mappings(&panel.words),
        "custom": custom(panel),
    });
    if lines && !panel.signed {
        made["min"] = 0.into();
    }
    if let Some(max) = panel.max {
        made["max"] = max.into();
    }
    if let Some(none) = &panel.none {
        made["noValue"] = none.as_str().into();
    }
    made
}

fn mappings(words: &BTreeMap<String, String>) -> Value {
    if words.is_empty() {
        return json!([]);
    }
    let of = |(index, (value, text)): (usize, (&String, &String))| {
        (value.clone(), json!({"text": text, "index": index}))
    };
    let options: serde_json::Map<_, _> = words.iter().enumerate().map(of).collect();
    json!([{"type": "value", "options": options}])
}

fn custom(panel: &Panel) -> Value {
    match panel.kind {
        Kind::Lines => json!({
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 0, "showPoints": "never",
            "spanNulls": false, "axisPlacement": "auto", "scaleDistribution": {"type": "linear"},
            "thresholdsStyle": {
                "mode": if panel.alert.is_some() { "dashed" } else { "off" },
            },
        }),
        Kind::States => json!({"lineWidth": 0, "fillOpacity": 70}),
        Kind::Points => json!({"show": "points", "pointSize": {"fixed": 8}}),
        Kind::Table => {
            json!({"align": "auto", "cellOptions": {"type": "auto"}, "filterable": true})
        }
        Kind::Matrix => json!({"align": "auto", "cellOptions": {"type": "color-background"}}),
        Kind::Heatmap => json!({"scaleDistribution": {"type": "linear"}}),
        Kind::Number | Kind::Bars => json!({}),
    }
}

fn overrides(panel: &Panel, limits: &Limits) -> Vec<Value> {
    let mut made = Vec::new();
    for query in &panel.queries {
        let Some(column) = &query.column else { continue };
        let mut properties = vec![json!({"id": "unit", "value": query.unit})];
        if query.alert.is_some() || query.red_from.is_some() {
            let steps = thresholds(query.alert.as_deref(), query.red_from, limits);
            properties.push(json!({"id": "thresholds", "value": steps}));
            properties.push(json!({"id": "custom.cellOptions", "value": {"type": "color-text"}}));
        }
        let matcher = json!({"id": "byName", "options": column});
        made.push(json!({"matcher": matcher, "properties": properties}));
    }
    if panel.queries.iter().any(|query| query.legend.ends_with(" ceiling")) {
        made.push(json!({
            "matcher": {"id": "byRegexp", "options": "/ ceiling$/"},
            "properties": [
                {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 10]}},
                {"id": "custom.lineWidth", "value": 2},
            ],
        }));
    }
    made
}

fn options(panel: &Panel) -> Value {
    let last = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
    let legend = json!({
        "displayMode": "table", "placement": "bottom", "showLegend": true,
        "calcs": ["mean", "max"], "sortBy": "Max", "sortDesc": true,
    });
    let tooltip = json!({"mode": "multi", "sort": "desc"});
    match panel.kind {
        Kind::Lines => json!({"legend": legend, "tooltip": tooltip}),
        Kind::Number => json!({
            "colorMode": "value", "graphMode": "none", "justifyMode": "auto",
            "orientation": "auto", "textMode": "value", "reduceOptions": last,
        }),
        Kind::Bars => json!({
            "displayMode": "basic", "orientation": "horizontal", "showUnfilled": true,
            "reduceOptions": last,
        }),
        Kind::Heatmap => json!({
            "calculate": false,
            "cellGap": 1,
            "cellValues": {"unit": "short"},
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
            "filterValues": {"le": 1e-9},
            "legend": {"show": true},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"mode": "single", "yHistogram": true},
            "yAxis": {"axisPlacement": "left", "unit": panel.unit},
        }),
        Kind::States => json!({
            "mergeValues": true, "showValue": "never", "alignValue": "left", "rowHeight": 0.9,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true},
            "tooltip": {"mode": "single", "sort": "none"},
        }),
        Kind::Points => points(panel),
        Kind::Table | Kind::Matrix => json!({
            "showHeader": true, "cellHeight": "sm",
            "footer": {"show": false, "reducer": ["sum"], "fields": "", "countRows": false},
        }),
    }
}

/// In the form of Grafana 10.0, which later ones change by themselves.
fn points(panel: &Panel) -> Value {
    let columns: Vec<_> = panel.queries.iter().filter_map(|q| q.column.as_ref()).collect();
    let [x, y] = columns[..] else { panic!("{}: points want two columns", panel.title) };
    json!({
        "seriesMapping": "manual",
        "dims": {"frame": 0},
        "series": [{"x": x, "y": y, "frame": 0}],
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    })
}

fn ref_id(index: usize) -> String {
    let letter = u8::try_from(index).ok().and_then(|i| b'A'.checked_add(i)).unwrap();
    assert!(letter.is_ascii_uppercase(), "26 queries are enough for a panel");
    char::from(letter).to_string()
}

fn targets(panel: &Panel, selected: &dyn Fn(&str) -> String) -> Vec<Value> {
    let of = |(index, query): (usize, &Query)| {
        let mut target = json!({
            "datasource": datasource(), "editorMode": "code", "refId": ref_id(index),
            "expr": selected(&query.expr), "legendFormat": query.legend,
        });
        match panel.kind {
            Kind::Lines | Kind::States => target["range"] = true.into(),
            Kind::Heatmap => {
                target["range"] = true.into();
                target["format"] = "heatmap".into();
                target["legendFormat"] = "{{le}}".into();
            }
            Kind::Number | Kind::Bars => target["instant"] = true.into(),
            Kind::Points | Kind::Table | Kind::Matrix => {
                target["instant"] = true.into();
                target["format"] = "table".into();
            }
        }
        if target["instant"] == true {
            target["range"] = false.into();
        }
        target
    };
    panel.queries.iter().enumerate().map(of).collect()
}

/// One row of a table for each set of labels, columns in the order in which they are written.
fn transformations(panel: &Panel) -> Vec<Value> {
    match panel.kind {
        Kind::Table | Kind::Points => {
            let mut hidden = json!({"Time": true, "__name__": true, "job": true});
            let (mut order, mut names) = (json!({}), json!({}));
            for (index, label) in panel.labels.iter().enumerate() {
                order[label] = index.into();
                names[label] = capital(label).into();
            }
            for (index, query) in panel.queries.iter().enumerate() {
                // With one query alone Grafana gives the column no letter.
                let value = match panel.queries.len() {
                    1 => "Value".to_owned(),
                    _ => format!("Value #{}", ref_id(index)),
                };
                match &query.column {
                    Some(column) => {
                        order[&value] = (panel.labels.len() + index).into();
                        names[&value] = column.as_str().into();
                    }
                    None => hidden[&value] = true.into(),
                }
            }
            vec![
                json!({"id": "merge", "options": {}}),
                json!({
                    "id": "organize",
                    "options": {
                        "excludeByName": hidden, "indexByName": order, "renameByName": names,
                    },
                }),
            ]
        }
        Kind::Matrix => {
            let [down, across] = &panel.labels[..] else {
                panic!("{}: a matrix wants two labels", panel.title)
            };
            vec![json!({
                "id": "groupingToMatrix",
                "options": {
                    "rowField": down, "columnField": across, "valueField": "Value",
                    "emptyValue": "null",
                },
            })]
        }
        _ => Vec::new(),
    }
}

/// `block_size` is `Block size` on a table's head.
fn capital(label: &str) -> String {
    let label = if label == "alertname" { "alert" } else { label };
    let words = label.replace('_', " ");
    words[..1].to_uppercase() + &words[1..]
}
