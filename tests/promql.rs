//! What the tests of rules and dashboards ask of PromQL expressions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use loadline::model::metric::MetricKind;
use loadline::model::outcome::DURATION_BOUNDS;
use promql_parser::parser::{self, Expr, VectorSelector};

/// Labels that a server puts on every series that it scrapes.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

/// One metric name as a server stores it.
pub(crate) struct Known {
    /// May be given to `rate`.
    pub(crate) counter: bool,
    pub(crate) labels: BTreeSet<&'static str>,
}

/// Every name that loadline exports, histograms by their parts, what the
/// rules record, and those of the server itself.
pub(crate) fn known_metrics() -> BTreeMap<String, Known> {
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let mut add = |name: String, counter, labels: &[&'static str]| {
        // One name may have a set of labels for targets, and another for peers.
        let all = known.entry(name).or_insert(Known { counter, labels: BTreeSet::new() });
        all.labels.extend(labels.iter().chain(&TARGET_LABELS).copied());
    };
    for desc in loadline::daemon::descs() {
        let (name, labels) = (desc.name, desc.labels);
        match desc.kind {
            MetricKind::Counter => add(name.to_owned(), true, labels),
            MetricKind::Gauge => add(name.to_owned(), false, labels),
            MetricKind::Histogram => {
                add(format!("{name}_sum"), true, labels);
                add(format!("{name}_count"), true, labels);
                add(format!("{name}_bucket"), true, &[labels, &["le"]].concat());
            }
        }
    }
    for of in ["median1h", "median7d", "count7d"] {
        let name = format!("loadline:probe_operations_per_second:{of}");
        add(name, false, &["probe", "target"]);
    }
    for of in ["single_operations", "single_operations_slow"] {
        add(format!("loadline:{of}:total"), true, &["probe", "target", "direction"]);
    }
    for of_the_scrape in ["up", "scrape_duration_seconds", "scrape_samples_scraped"] {
        add(of_the_scrape.to_owned(), false, &[]);
    }
    // An alert has the labels of what it fires on, too.
    let of_an_alert = ["alertname", "alertstate", "severity", "device", "target", "probe", "peer"];
    add("ALERTS".to_owned(), false, &of_an_alert);
    known
}

/// Parses, or says where and why not.
pub(crate) fn parse(place: &str, text: &str) -> Expr {
    parser::parse(text).unwrap_or_else(|error| panic!("{place}: {error}\n{text}"))
}

/// Every node of an expression, parents first.
pub(crate) fn nodes(expr: &Expr) -> Vec<&Expr> {
    let mut all = vec![expr];
    let mut next = 0;
    while let Some(node) = all.get(next).copied() {
        match node {
            Expr::Aggregate(a) => {
                all.push(&a.expr);
                all.extend(a.param.as_deref());
            }
            Expr::Unary(u) => all.push(&u.expr),
            Expr::Binary(b) => all.extend([&*b.lhs, &*b.rhs]),
            Expr::Paren(p) => all.push(&p.expr),
            Expr::Subquery(s) => all.push(&s.expr),
            Expr::Call(c) => all.extend(c.args.args.iter().map(|a| &**a)),
            _ => {}
        }
        next += 1;
    }
    all
}

/// Every selector of an expression, those under a range too.
pub(crate) fn selectors(expr: &Expr) -> Vec<&VectorSelector> {
    nodes(expr)
        .into_iter()
        .filter_map(|node| match node {
            Expr::VectorSelector(v) => Some(v),
            Expr::MatrixSelector(m) => Some(&m.vs),
            _ => None,
        })
        .collect()
}

/// `(function, metric, range)` of each `rate` and its kin.
pub(crate) fn rates(expr: &Expr) -> Vec<(&str, &str, Duration)> {
    nodes(expr)
        .into_iter()
        .filter_map(|node| match node {
            Expr::Call(c) if ["rate", "irate", "increase"].contains(&c.func.name) => {
                match c.args.args.first().map(|a| &**a) {
                    Some(Expr::MatrixSelector(m)) => {
                        Some((c.func.name, m.vs.name.as_deref().unwrap_or(""), m.range))
                    }
                    _ => Some((c.func.name, "", Duration::ZERO)),
                }
            }
            _ => None,
        })
        .collect()
}

/// What is wrong with the names, labels and rates of an expression, in words.
pub(crate) fn complaints(place: &str, expr: &Expr, known: &BTreeMap<String, Known>) -> Vec<String> {
    let mut found = Vec::new();
    for selector in selectors(expr) {
        let name = selector.name.as_deref().unwrap_or("");
        let Some(metric) = known.get(name) else {
            found.push(format!("{place}: `{name}` is not exported"));
            continue;
        };
        let strange = selector
            .matchers
            .matchers
            .iter()
            .filter(|m| m.name != "__name__" && !metric.labels.contains(m.name.as_str()));
        found.extend(strange.map(|m| format!("{place}: `{name}` has no label `{}`", m.name)));
        // Of a bucket that isn't there the answer is silently nothing.
        let bounds = selector.matchers.matchers.iter().filter(|m| m.name == "le");
        let no_bound = bounds.filter(|m| !DURATION_BOUNDS.iter().any(|b| b.to_string() == m.value));
        found.extend(no_bound.map(|m| format!("{place}: no bucket of durations has {m}")));
    }
    for (function, name, _) in rates(expr) {
        if !known.get(name).is_some_and(|metric| metric.counter) {
            found.push(format!("{place}: {function} of `{name}`, which is no counter"));
        }
    }
    found
}

/// Runs promtool over `files`; says so and passes where there is none.
pub(crate) fn promtool(arguments: &[&str], files: &[PathBuf]) {
    match Command::new("promtool").args(arguments).args(files).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: no promtool here (Debian: prometheus)");
        }
        Err(error) => panic!("promtool: {error}"),
        Ok(output) => assert!(
            output.status.success(),
            "promtool {arguments:?}:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
