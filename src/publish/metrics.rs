//! Points to the text format 0.0.4: sorted, without duplicates, and parseable whatever they hold.
//!
//! The prometheus crate writes the text; families are made by hand, one at a time, since the values
//! are the kernel's and no vector of live metrics should hold them. Its encoder spells an endless
//! value `inf`, which strict readers refuse: such a value is a fault of ours and is left out here.

use std::cmp::Ordering;
use std::collections::HashMap;

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Encoder, TextEncoder};

use crate::model::metric::{Desc, MetricKind, Point, Value};

/// The exact type that a strict scraper asks for.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A sample's line, by experience, with its share of HELP and TYPE.
const LINE_BYTES: usize = 80;

/// What a scraper reads, and what was kept from it.
#[derive(Debug, Default)]
pub struct Exposition {
    pub text: Vec<u8>,
    pub refused: Refused,
}

/// Points that would have spoilt the page; each is a fault of the code that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The same name and labels a second time: the first is kept.
    pub duplicates: u64,
    /// Labels or value are not what the description says.
    pub misfits: u64,
    /// Not a number, or endless: what is unknown should have been absent.
    pub not_finite: u64,
    /// The first of them.
    pub example: Option<String>,
}

/// A family's description and its points.
type Family<'a> = (&'static Desc, Vec<&'a Point>);

/// The text for `points`, in any order.
pub fn render<'a>(points: impl Iterator<Item = &'a Point>) -> Exposition {
    let mut refused = Refused::default();
    let mut text = Vec::with_capacity(points.size_hint().0 * LINE_BYTES);
    for (desc, mut points) in families(points, &mut refused) {
        // Stable, so that the first of two equal series stays; samplers give devices in order,
        // so this mostly finds one run.
        points.sort_by(|a, b| a.labels.cmp(&b.labels));
        points.dedup_by(|second, first| {
            let same = second.labels == first.labels;
            if same {
                refused.duplicates += 1;
                refused.note(second, "twice");
            }
            same
        });
        if TextEncoder::new().encode(&[family(desc, &points)], &mut text).is_err() {
            refused.misfits += points.len() as u64;
        }
    }
    Exposition { text, refused }
}

impl Refused {
    fn note(&mut self, point: &Point, why: &str) {
        if self.example.is_none() {
            self.example = Some(format!("{}{:?}: {why}", point.desc.name, point.labels));
        }
    }

    /// True, and counted, where `point` can't be shown under `desc`.
    fn refuses(&mut self, point: &Point, desc: &Desc) -> bool {
        let (count, why) = match &point.value {
            Value::Number(_) if desc.kind == MetricKind::Histogram => (&mut self.misfits, "kind"),
            Value::Histogram(_) if desc.kind != MetricKind::Histogram => {
                (&mut self.misfits, "kind")
            }
            _ if point.labels.len() != desc.labels.len() => (&mut self.misfits, "labels"),
            Value::Number(n) if !n.is_finite() => (&mut self.not_finite, "not finite"),
            Value::Histogram(h) if !h.sum().is_finite() => (&mut self.not_finite, "not finite"),
            _ => return false,
        };
        *count += 1;
        self.note(point, why);
        true
    }
}

/// Groups by description, in order of names. By address first: names share long beginnings, and
/// comparing five thousand of them costs more than writing them.
fn families<'a>(points: impl Iterator<Item = &'a Point>, refused: &mut Refused) -> Vec<Family<'a>> {
    let mut places: HashMap<*const Desc, usize> = HashMap::new();
    let mut families: Vec<Family<'a>> = Vec::new();
    for point in points {
        if refused.refuses(point, point.desc) {
            continue;
        }
        let place = *places.entry(std::ptr::from_ref(point.desc)).or_insert_with(|| {
            families.push((point.desc, Vec::new()));
            families.len() - 1
        });
        families[place].1.push(point);
    }
    families.sort_by(|a, b| a.0.name.cmp(b.0.name));
    // HELP and TYPE stand once: a second description of a name joins the first or is refused.
    families.dedup_by(|second, first| {
        let same = second.0.name.cmp(first.0.name) == Ordering::Equal;
        if same {
            let fits = second.0.labels == first.0.labels && second.0.kind == first.0.kind;
            for point in second.1.drain(..) {
                if fits {
                    first.1.push(point);
                } else {
                    refused.misfits += 1;
                    refused.note(point, "described twice");
                }
            }
        }
        same
    });
    families
}

fn family(desc: &Desc, points: &[&Point]) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(desc.name.to_owned());
    family.set_help(desc.help.to_owned());
    family.set_field_type(match desc.kind {
        MetricKind::Counter => MetricType::COUNTER,
        MetricKind::Gauge => MetricType::GAUGE,
        MetricKind::Histogram => MetricType::HISTOGRAM,
    });
    family.set_metric(points.iter().map(|point| metric(desc, point)).collect());
    family
}

fn metric(desc: &Desc, point: &Point) -> Metric {
    let labels = desc.labels.iter().zip(&point.labels).map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value.as_ref().to_owned());
        pair
    });
    let mut metric = Metric::from_label(labels.collect());
    match (&point.value, desc.kind) {
        (Value::Histogram(histogram), _) => metric.set_histogram(buckets(histogram)),
        (Value::Number(value), MetricKind::Counter) => {
            let mut counter = Counter::default();
            counter.set_value(*value);
            metric.set_counter(counter);
        }
        (Value::Number(value), _) => {
            let mut gauge = Gauge::default();
            gauge.set_value(*value);
            metric.set_gauge(gauge);
        }
    }
    metric
}

/// The encoder adds the bucket `+Inf` from the count.
fn buckets(histogram: &crate::base::stats::Histogram) -> Histogram {
    let bucket = |(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    };
    let mut proto = Histogram::default();
    proto.set_bucket(histogram.cumulative().map(bucket).collect());
    proto.set_sample_count(histogram.count());
    proto.set_sample_sum(histogram.sum());
    proto
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::metric::Label;

    static BUSY: Desc = Desc::gauge("loadline_b_busy_ratio", &["device"], "share \\ of\ntime", "t");
    static READS: Desc = Desc::counter("loadline_a_reads_total", &["device"], "reads", "t");
    static TIMES: Desc = Desc::histogram("loadline_c_seconds", &["probe", "target"], "times", "t");
    static TWIN: Desc = Desc::gauge("loadline_b_busy_ratio", &["device"], "another text", "t");
    static ALIEN: Desc = Desc::gauge("loadline_b_busy_ratio", &["link"], "another label", "t");

    fn labels(values: &[&str]) -> Vec<Label> {
        values.iter().map(|v| Label::from(*v)).collect()
    }

    fn number(desc: &'static Desc, value: &[&str], n: f64) -> Point {
        Point { desc, labels: labels(value), value: Value::Number(n) }
    }

    fn shown(points: &[Point]) -> (String, Refused) {
        let exposition = render(points.iter());
        (String::from_utf8(exposition.text).unwrap(), exposition.refused)
    }

    #[test]
    fn families_and_series_are_in_order_with_help_and_type_once() {
        let (text, refused) = shown(&[
            number(&BUSY, &["sdb"], 0.5),
            number(&READS, &["sda"], 3.0),
            number(&BUSY, &["sda"], 0.25),
        ]);
        assert_eq!(
            text,
            "# HELP loadline_a_reads_total reads\n\
             # TYPE loadline_a_reads_total counter\n\
             loadline_a_reads_total{device=\"sda\"} 3\n\
             # HELP loadline_b_busy_ratio share \\\\ of\\ntime\n\
             # TYPE loadline_b_busy_ratio gauge\n\
             loadline_b_busy_ratio{device=\"sda\"} 0.25\n\
             loadline_b_busy_ratio{device=\"sdb\"} 0.5\n"
        );
        assert_eq!(refused, Refused::default());
    }

    #[test]
    fn no_points_are_an_empty_page() {
        assert_eq!(shown(&[]).0, "");
    }

    #[test]
    fn the_first_of_two_equal_series_stays_and_the_second_is_counted() {
        let (text, refused) = shown(&[
            number(&BUSY, &["sda"], 0.25),
            number(&BUSY, &["sdb"], 0.5),
            number(&TWIN, &["sda"], 0.75),
        ]);
        assert!(text.contains("{device=\"sda\"} 0.25\n") && !text.contains("0.75"));
        assert_eq!(text.matches("# TYPE").count(), 1);
        assert_eq!(refused.duplicates, 1);
        assert!(refused.example.unwrap().contains("loadline_b_busy_ratio"));
    }

    #[test]
    fn what_does_not_fit_its_description_is_dropped_and_counted() {
        let histogram = Arc::new(crate::base::stats::Histogram::default());
        let (text, refused) = shown(&[
            number(&BUSY, &[], 1.0),
            number(&BUSY, &["a", "b"], 1.0),
            number(&TIMES, &["a", "b"], 1.0),
            Point { desc: &BUSY, labels: labels(&["a"]), value: Value::Histogram(histogram) },
            number(&BUSY, &["sda"], 1.0),
            number(&ALIEN, &["eth0"], 1.0),
        ]);
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 1);
        assert_eq!(refused.misfits, 5);
    }

    #[test]
    fn an_endless_value_is_absent_and_counted() {
        let (text, refused) = shown(&[
            number(&BUSY, &["a"], f64::NAN),
            number(&BUSY, &["b"], f64::INFINITY),
            number(&BUSY, &["c"], f64::NEG_INFINITY),
        ]);
        assert_eq!((text.as_str(), refused.not_finite), ("", 3));
    }

    #[test]
    fn a_histogram_ends_in_inf_which_is_its_count() {
        let mut histogram = crate::base::stats::Histogram::new(&[0.000_02, 0.005]);
        histogram.observe(0.001, 3);
        histogram.observe(7.5, 1);
        let labels = labels(&["fast", "srv"]);
        let point = Point { desc: &TIMES, labels, value: Value::Histogram(Arc::new(histogram)) };
        let (text, _) = shown(&[point]);
        let lines: Vec<_> = text.lines().skip(2).collect();
        let series = "probe=\"fast\",target=\"srv\"";
        assert_eq!(
            lines,
            [
                format!("loadline_c_seconds_bucket{{{series},le=\"0.00002\"}} 0"),
                format!("loadline_c_seconds_bucket{{{series},le=\"0.005\"}} 3"),
                format!("loadline_c_seconds_bucket{{{series},le=\"+Inf\"}} 4"),
                format!("loadline_c_seconds_sum{{{series}}} 7.503"),
                format!("loadline_c_seconds_count{{{series}}} 4"),
            ]
        );
    }
}
