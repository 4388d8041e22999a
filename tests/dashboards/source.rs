//! A dashboard as it is written by hand: `dashboards/NAME.yml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use promql_parser::parser::Expr;
use serde::Deserialize;

use crate::promql;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Board {
    /// Of the file, also its uid after `loadline-`.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    /// Shown when it is opened: `1h`.
    #[serde(default = "an_hour")]
    pub(crate) span: String,
    /// What can be chosen beside jobs and instances: a label, and the metric that has all its values.
    #[serde(default)]
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) title: String,
    pub(crate) panels: Vec<Panel>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Lines,
    /// The last value of each query, large.
    Number,
    /// The last value of each series.
    Bars,
    /// Buckets over time.
    Heatmap,
    /// Values with a word each, over time.
    States,
    /// The second column over the first.
    Points,
    Table,
    /// The first label's values down, the second's across.
    Matrix,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) kind: Kind,
    /// Grafana's name of it.
    #[serde(default = "short")]
    pub(crate) unit: String,
    /// Of the axis, which begins at 0 ...
    pub(crate) max: Option<f64>,
    /// ... unless values may lie below.
    #[serde(default)]
    pub(crate) signed: bool,
    /// Colours change where this alert begins ...
    pub(crate) alert: Option<String>,
    /// ... or here.
    pub(crate) red_from: Option<f64>,
    /// Stands where there is nothing to show; a panel without it always has something to show.
    pub(crate) none: Option<String>,
    /// The dashboard with more of it.
    pub(crate) to: Option<String>,
    /// Of the rows of a table or matrix.
    #[serde(default)]
    pub(crate) labels: Vec<String>,
    /// What a value or a label's value is called.
    #[serde(default)]
    pub(crate) words: BTreeMap<String, String>,
    pub(crate) width: Option<u64>,
    pub(crate) height: Option<u64>,
    pub(crate) queries: Vec<Query>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    /// Without the selection of jobs, instances and variables.
    pub(crate) expr: String,
    #[serde(default)]
    pub(crate) legend: String,
    /// Name of its values in a table; without one they are left out.
    pub(crate) column: Option<String>,
    #[serde(default = "short")]
    pub(crate) unit: String,
    pub(crate) alert: Option<String>,
    pub(crate) red_from: Option<f64>,
}

fn an_hour() -> String {
    "1h".into()
}

fn short() -> String {
    "short".into()
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards")
}

/// Files of the folder with this ending, at least one.
pub(crate) fn files(ending: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

pub(crate) fn boards() -> Vec<Board> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let board: Board =
            serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Board { name: path.file_stem().unwrap().to_string_lossy().into_owned(), ..board }
    };
    files("yml").into_iter().map(read).collect()
}

/// Where each alert begins: the first number that its expression is compared with, and whether it
/// fires below it.
pub(crate) fn alert_limits() -> BTreeMap<String, (f64, bool)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/loadline.rules.yml");
    let rules: serde_yaml::Value =
        serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let groups = rules["groups"].as_sequence().unwrap();
    let mut limits = BTreeMap::new();
    for rule in groups.iter().flat_map(|group| group["rules"].as_sequence().unwrap()) {
        let Some(alert) = rule["alert"].as_str() else { continue };
        let expr = promql::parse(alert, rule["expr"].as_str().unwrap());
        let first = promql::nodes(&expr).into_iter().find_map(|node| match node {
            Expr::Binary(b) if b.op.is_comparison_operator() => match &*b.rhs {
                Expr::NumberLiteral(n) => Some((n.val, b.op.to_string().starts_with('<'))),
                _ => None,
            },
            _ => None,
        });
        if let Some(limit) = first {
            limits.entry(alert.to_owned()).or_insert(limit);
        }
    }
    limits
}
