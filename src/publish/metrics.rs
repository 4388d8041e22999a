//! Points to the text format 0.0.4: sorted, without duplicates, and parseable whatever they hold.
//!
//! Written straight into the text: no vector of live metrics should hold what are the kernel's
//! values, and a library's families, built by hand for each page, cost three times as much as the
//! page. The prometheus crate is the peer that a property test holds this against. Its encoder
//! spells an endless value `inf`, which strict readers refuse: such a value is a fault of ours and
//! is left out here.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Display;
use std::io::Write;

use crate::base::stats::Histogram;
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
        write_family(&mut text, desc, &points);
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

fn write_family(text: &mut Vec<u8>, desc: &Desc, points: &[&Point]) {
    let kind = match desc.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    put(text, &["# HELP ", desc.name, " "]);
    escape(text, desc.help, b"\\\n");
    put(text, &["\n# TYPE ", desc.name, " ", kind, "\n"]);
    for point in points {
        match &point.value {
            Value::Number(value) => Series { text, desc, point }.line("", None, value),
            Value::Histogram(histogram) => {
                write_histogram(&mut Series { text, desc, point }, histogram);
            }
        }
    }
}

fn write_histogram(series: &mut Series<'_>, histogram: &Histogram) {
    for (bound, count) in histogram.cumulative() {
        series.line("_bucket", Some(&bound), &count);
    }
    series.line("_bucket", Some(&"+Inf"), &histogram.count());
    series.line("_sum", None, &histogram.sum());
    series.line("_count", None, &histogram.count());
}

/// What the lines of one series have in common.
struct Series<'a> {
    text: &'a mut Vec<u8>,
    desc: &'a Desc,
    point: &'a Point,
}

impl Series<'_> {
    /// `name_suffix{labels,le="bound"} value`.
    fn line(&mut self, suffix: &str, bound: Option<&dyn Display>, value: &dyn Display) {
        put(self.text, &[self.desc.name, suffix]);
        let mut before = "{";
        for (name, value) in self.desc.labels.iter().zip(&self.point.labels) {
            put(self.text, &[before, name, "=\""]);
            escape(self.text, value, b"\\\n\"");
            self.text.push(b'"');
            before = ",";
        }
        // Writing to a Vec can't fail.
        if let Some(bound) = bound {
            let _ = write!(self.text, "{before}le=\"{bound}\"");
            before = ",";
        }
        let end = if before == "," { "}" } else { "" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

fn put(text: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        text.extend_from_slice(part.as_bytes());
    }
}

/// `special`: the bytes that get a backslash. A line feed is written `\n`.
fn escape(text: &mut Vec<u8>, plain: &str, special: &[u8]) {
    for piece in plain.as_bytes().split_inclusive(|byte| special.contains(byte)) {
        match piece.split_last() {
            Some((last, before)) if special.contains(last) => {
                text.extend_from_slice(before);
                text.extend_from_slice(&[b'\\', if *last == b'\n' { b'n' } else { *last }]);
            }
            _ => text.extend_from_slice(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus::{Encoder, TextEncoder, proto};
    use proptest::prelude::*;

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
        Point { desc, labels: labels(value).into(), value: Value::Number(n) }
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
        let histogram = Arc::new(Histogram::default());
        let (text, refused) = shown(&[
            number(&BUSY, &[], 1.0),
            number(&BUSY, &["a", "b"], 1.0),
            number(&TIMES, &["a", "b"], 1.0),
            Point {
                desc: &BUSY,
                labels: labels(&["a"]).into(),
                value: Value::Histogram(histogram),
            },
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
        let mut histogram = Histogram::new(&[0.000_02, 0.005]);
        histogram.observe(0.001, 3);
        histogram.observe(7.5, 1);
        let labels = labels(&["fast", "srv"]);
        let point = Point {
            desc: &TIMES,
            labels: labels.into(),
            value: Value::Histogram(Arc::new(histogram)),
        };
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

    /// The same series as the prometheus crate's encoder writes them.
    fn by_the_library(desc: &Desc, points: &[&Point]) -> String {
        let mut family = proto::MetricFamily::default();
        family.set_name(desc.name.to_owned());
        family.set_help(desc.help.to_owned());
        family.set_field_type(match desc.kind {
            MetricKind::Counter => proto::MetricType::COUNTER,
            MetricKind::Gauge => proto::MetricType::GAUGE,
            MetricKind::Histogram => proto::MetricType::HISTOGRAM,
        });
        family.set_metric(points.iter().map(|point| library_metric(desc, point)).collect());
        let mut text = Vec::new();
        TextEncoder::new().encode(&[family], &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn library_metric(desc: &Desc, point: &Point) -> proto::Metric {
        let labels = desc.labels.iter().zip(&point.labels).map(|(name, value)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value.as_ref().to_owned());
            pair
        });
        let mut metric = proto::Metric::from_label(labels.collect());
        match &point.value {
            Value::Histogram(of) => {
                let bucket = |(bound, count)| {
                    let mut bucket = proto::Bucket::default();
                    bucket.set_upper_bound(bound);
                    bucket.set_cumulative_count(count);
                    bucket
                };
                let mut histogram = proto::Histogram::default();
                histogram.set_bucket(of.cumulative().map(bucket).collect());
                histogram.set_sample_count(of.count());
                histogram.set_sample_sum(of.sum());
                metric.set_histogram(histogram);
            }
            Value::Number(value) if desc.kind == MetricKind::Counter => {
                let mut counter = proto::Counter::default();
                counter.set_value(*value);
                metric.set_counter(counter);
            }
            Value::Number(value) => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(*value);
                metric.set_gauge(gauge);
            }
        }
        metric
    }

    proptest! {
        #[test]
        fn the_text_is_the_librarys_to_the_byte(
            label in any::<String>(),
            value in any::<f64>().prop_filter("finite", |v| v.is_finite()),
            observed in prop::collection::vec((0.0..10.0f64, 1u64..1000), 0..8),
        ) {
            for desc in [&BUSY, &READS] {
                let point = number(desc, &[&label], value);
                prop_assert_eq!(shown(std::slice::from_ref(&point)).0, by_the_library(desc, &[&point]));
            }
            let mut histogram = Histogram::new(&[0.000_02, 0.005, 1.5]);
            for (value, times) in observed {
                histogram.observe(value, times);
            }
            let value = Value::Histogram(Arc::new(histogram));
            let point = Point { desc: &TIMES, labels: labels(&[&label, "t"]).into(), value };
            prop_assert_eq!(shown(std::slice::from_ref(&point)).0, by_the_library(&TIMES, &[&point]));
        }
    }
}
