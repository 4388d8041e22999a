//! What is known to go wrong in rules, and Prometheus' own tool doesn't look for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use promql_parser::parser::token::{T_BOTTOMK, T_DIV, T_LAND, T_LOR, T_LUNLESS, T_TOPK};
use promql_parser::parser::{
    BinaryExpr, Expr, LabelModifier, Offset, VectorMatchCardinality, VectorSelector,
};

use crate::file::{Alert, alert_expressions, alerts, expressions, records};
use crate::promql::{self, Known};

/// The slowest scrape that the rules are made for, four times: what a rate needs at least.
const RATE_WINDOW_MIN: Duration = Duration::from_secs(4 * 15);
/// What a server keeps unless it is told otherwise: what lies before is silently nothing.
const RETENTION: Duration = Duration::from_secs(15 * 86_400);
/// What is divided by without a look whether it is 0, and why it isn't.
const NEVER_ZERO: [(&str, &str); 3] = [
    ("loadline_nic_capacity_bytes_per_second", "a line of no rate has no series"),
    ("loadline:probe_operations_per_second:median7d", "compared with a floor beside it"),
    ("loadline_tcp_original_segments_total", "compared with a floor beside it"),
];

/// Whether an expression is empty when all is well: it compares, or asks for absence.
fn filters(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(p) => filters(&p.expr),
        Expr::Aggregate(a) => filters(&a.expr),
        Expr::Call(c) => c.func.name == "absent",
        Expr::Binary(b) => match b.op.id() {
            T_LAND => filters(&b.lhs) || filters(&b.rhs),
            T_LOR => filters(&b.lhs) && filters(&b.rhs),
            // What was there and isn't: absence, with the labels of what is gone.
            T_LUNLESS => filters(&b.lhs) || was_there(&b.lhs),
            _ => b.op.is_comparison_operator() && !b.return_bool(),
        },
        _ => false,
    }
}

fn was_there(expr: &Expr) -> bool {
    matches!(expr, Expr::VectorSelector(v) if v.offset.is_some())
}

#[test]
fn rules_name_only_metrics_and_labels_that_are_exported() {
    let known = promql::known_metrics();
    let complaints = |(name, expr): (String, Expr)| promql::complaints(&name, &expr, &known);
    let found: Vec<_> = expressions().into_iter().flat_map(complaints).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_alert_compares_something() {
    for (alert, expr) in alert_expressions() {
        assert!(filters(&expr), "{alert}: fires whenever there is data");
    }
}

#[test]
fn rates_look_over_four_scrapes_at_least() {
    for (place, expr) in expressions() {
        for (function, name, range) in promql::rates(&expr) {
            assert!(range >= RATE_WINDOW_MIN, "{place}: {function}({name}[{range:?}])");
        }
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

/// `absent` of one lost scrape is no absence, and an alert on it has only the labels that it asks for.
#[test]
fn absence_is_asked_of_a_series_that_a_server_always_has() {
    for (alert, expr) in alert_expressions() {
        for node in promql::nodes(&expr) {
            let Expr::Call(call) = node else { continue };
            if !call.func.name.starts_with("absent") {
                continue;
            }
            let of: Vec<_> = promql::selectors(node).iter().map(|s| s.to_string()).collect();
            assert_eq!(of, [r#"up{job="loadline"}"#], "{alert}");
        }
    }
}

/// 0 / 0 is no number, compares as false, and hides what it should tell.
#[test]
fn nothing_is_divided_by_what_may_be_zero() {
    for (place, expr) in expressions() {
        for node in promql::nodes(&expr) {
            let Expr::Binary(b) = node else { continue };
            let excused = |s: &&VectorSelector| {
                NEVER_ZERO.iter().any(|(name, _)| s.name.as_deref() == Some(*name))
            };
            let fine = b.op.id() != T_DIV
                || matches!(&*b.rhs, Expr::NumberLiteral(n) if n.val != 0.0)
                || filters(&b.rhs)
                || promql::selectors(&b.rhs).iter().any(excused);
            assert!(fine, "{place}: {b} may divide by 0: compare the right side with > 0");
        }
    }
}

/// Which of many series is the largest changes all the time, and with it what fires.
#[test]
fn no_alert_picks_the_largest_of_many() {
    for (alert, expr) in alert_expressions() {
        let picks = promql::nodes(&expr).into_iter().any(
            |node| matches!(node, Expr::Aggregate(a) if [T_TOPK, T_BOTTOMK].contains(&a.op.id())),
        );
        assert!(!picks, "{alert}: topk or bottomk");
    }
}

/// What servers add to tell clusters and replicas apart has to survive.
#[test]
fn aggregations_drop_named_labels_only() {
    for (place, expr) in expressions() {
        for node in promql::nodes(&expr) {
            let Expr::Aggregate(a) = node else { continue };
            let Some(LabelModifier::Exclude(dropped)) = &a.modifier else {
                panic!("{place}: {a}: write `without`")
            };
            let kept = ["job", "instance"].iter().all(|l| !dropped.labels.iter().any(|d| d == l));
            assert!(kept, "{place}: {a} drops whose it is");
        }
    }
}

/// A label that one side lacks matches nothing but its own absence: so `peer` keeps link probes away.
#[test]
fn both_sides_have_the_labels_that_they_are_matched_on() {
    let known = promql::known_metrics();
    for (place, expr) in expressions() {
        for node in promql::nodes(&expr) {
            let Expr::Binary(b) = node else { continue };
            for side in [&b.lhs, &b.rhs] {
                let labels = labels(side, &known);
                let missing: Vec<_> =
                    matched(b).filter(|l| *l != "peer" && !labels.contains(*l)).collect();
                assert!(missing.is_empty(), "{place}: {side} has no {missing:?}");
            }
        }
    }
}

fn matched(b: &BinaryExpr) -> impl Iterator<Item = &str> {
    let on = b.modifier.as_ref().and_then(|modifier| match modifier.matching.as_ref()? {
        LabelModifier::Include(labels) => Some(&labels.labels),
        LabelModifier::Exclude(_) => None,
    });
    on.into_iter().flatten().map(String::as_str)
}

/// Labels that some series of an expression may have.
fn labels<'a>(expr: &Expr, known: &'a BTreeMap<String, Known>) -> BTreeSet<&'a str> {
    let names = promql::selectors(expr).into_iter().filter_map(|s| s.name.clone());
    names.flat_map(|name| known[&name].labels.iter().copied()).collect()
}

/// Two vectors with other labels never meet: without `on` or `ignoring` the result is silently nothing.
#[test]
fn sides_that_are_matched_on_all_labels_have_the_same() {
    let known = promql::known_metrics();
    for (place, expr) in expressions() {
        for node in promql::nodes(&expr) {
            let Expr::Binary(b) = node else { continue };
            let one = |side: &Expr| promql::selectors(side).len() == 1 && !aggregated(side);
            let of_all = b.modifier.as_ref().is_none_or(|modifier| {
                modifier.matching.is_none() && modifier.card == VectorMatchCardinality::OneToOne
            });
            if b.op.id() != T_LOR && of_all && one(&b.lhs) && one(&b.rhs) {
                assert_eq!(labels(&b.lhs, &known), labels(&b.rhs, &known), "{place}: {b}");
            }
        }
    }
}

fn aggregated(expr: &Expr) -> bool {
    promql::nodes(expr).iter().any(|node| matches!(node, Expr::Aggregate(_)))
}

#[test]
fn regular_expressions_are_used_where_one_is_needed() {
    for (place, expr) in expressions() {
        for selector in promql::selectors(&expr) {
            for matcher in &selector.matchers.matchers {
                let is_pattern = matcher.op.to_string().contains('~');
                let needed = matcher.value.contains(['|', '.', '*', '+', '[', '(']);
                assert!(!is_pattern || needed, "{place}: {matcher} needs no pattern");
                assert!(
                    !matcher.value.contains(['^', '$']),
                    "{place}: {matcher} is anchored anyway"
                );
            }
        }
    }
}

#[test]
fn nothing_is_asked_for_that_a_server_no_longer_keeps() {
    for (place, expr) in expressions() {
        let (mut range, mut offset) = (Duration::ZERO, Duration::ZERO);
        for node in promql::nodes(&expr) {
            match node {
                Expr::MatrixSelector(m) => range = range.max(m.range),
                Expr::Subquery(s) => range = range.max(s.range),
                _ => {}
            }
        }
        for selector in promql::selectors(&expr) {
            if let Some(Offset::Pos(back)) = selector.offset {
                offset = offset.max(back);
            }
        }
        assert!(range + offset <= RETENTION, "{place}: {range:?} before {offset:?} ago");
    }
}

#[test]
fn records_are_named_by_their_level_metric_and_operation() {
    for record in records() {
        let parts: Vec<_> = record.record.split(':').collect();
        assert!(parts.len() == 3 && parts[0] == "loadline", "{}", record.record);
    }
}

#[test]
fn rules_of_one_name_differ_in_their_labels() {
    let mut seen = BTreeSet::new();
    let alerts = alerts().into_iter().map(|alert| (alert.alert, alert.labels));
    for rule in alerts.chain(records().into_iter().map(|record| (record.record, record.labels))) {
        assert!(seen.insert(rule.clone()), "{rule:?} is there twice");
    }
}
