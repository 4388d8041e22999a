//! What is published: descriptions and points. Every family is described once, beside what fills it.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::stats::Histogram;

/// Prometheus type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric family. Descs are statics; the metric reference is made from them.
#[derive(Debug)]
pub struct Desc {
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
    /// Label names, in the order in which points give the values.
    pub labels: &'static [&'static str],
    /// Where the number comes from, for the metric reference: `/proc/diskstats field 10`.
    pub source: &'static str,
}

impl Desc {
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Counter, help, labels, source }
    }

    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Gauge, help, labels, source }
    }

    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, kind: MetricKind::Histogram, help, labels, source }
    }
}

/// A label value: shared, since a device's name stands on fifty series a second.
pub type Label = Arc<str>;

/// The label values of a point. Most have one: without an allocation for each, a tick costs a sixth less.
pub type Labels = SmallVec<[Label; 1]>;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(f64),
    Histogram(Arc<Histogram>),
}

/// One series at one instant.
#[derive(Clone, Debug)]
pub struct Point {
    pub desc: &'static Desc,
    pub labels: Labels,
    pub value: Value,
}

impl Point {
    /// A number under `desc`; `labels` in the order of `desc.labels`.
    pub fn number(desc: &'static Desc, labels: &[&Label], value: f64) -> Self {
        debug_assert_eq!(labels.len(), desc.labels.len(), "{}", desc.name);
        Self {
            desc,
            labels: labels.iter().map(|l| Arc::clone(l)).collect(),
            value: Value::Number(value),
        }
    }

    pub fn histogram(desc: &'static Desc, labels: &[&Label], value: Arc<Histogram>) -> Self {
        debug_assert_eq!(labels.len(), desc.labels.len(), "{}", desc.name);
        Self {
            desc,
            labels: labels.iter().map(|l| Arc::clone(l)).collect(),
            value: Value::Histogram(value),
        }
    }
}

/// Pushes a number where there is one: an unknown value is an absent series, never a zero.
pub fn push_some(out: &mut Vec<Point>, desc: &'static Desc, labels: &[&Label], value: Option<f64>) {
    if let Some(value) = value {
        out.push(Point::number(desc, labels, value));
    }
}
