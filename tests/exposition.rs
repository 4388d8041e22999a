//! The text that a scraper reads, whatever stands in it: read back as a strict reader would.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use loadline::base::fault::FaultKind;
use loadline::base::stats::Histogram;
use loadline::model::metric::{Desc, Label, Point, Value};
use loadline::model::outcome::Skip;
use loadline::publish::metrics::{Refused, render};
use proptest::prelude::*;

static BUSY: Desc = Desc::gauge("loadline_disk_busy_ratio", &["device"], "share", "t");
static READS: Desc =
    Desc::counter("loadline_disk_reads_completed_total", &["device"], "reads", "t");
static WINDOWS: Desc =
    Desc::histogram("loadline_disk_window_busy_ratio", &["device"], "share \\ of\ntime", "t");

fn number(desc: &'static Desc, value: &[&str], n: f64) -> Point {
    let labels = value.iter().map(|v| Label::from(*v)).collect();
    Point { desc, labels, value: Value::Number(n) }
}

fn shown(points: &[Point]) -> (String, Refused) {
    let exposition = render(points.iter());
    (String::from_utf8(exposition.text).unwrap(), exposition.refused)
}

/// `name{labels} value` lines as a strict reader takes them: `(name, label values, value)`.
fn parse(text: &str) -> Vec<(String, Vec<String>, f64)> {
    assert!(text.is_empty() || text.ends_with('\n'));
    text.split_terminator('\n').filter(|line| !line.starts_with('#')).map(sample).collect()
}

fn sample(line: &str) -> (String, Vec<String>, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut values = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (_, value) = rest.split_once("=\"").unwrap();
            let mut chars = value.char_indices();
            let mut raw = String::new();
            let close = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => raw.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("escape of {c:?}"),
                    }),
                    (_, c) => raw.push(c),
                }
            };
            values.push(raw);
            rest = &value[close + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap();
    }
    let value = rest.strip_prefix(' ').unwrap().replace("Inf", "inf").parse().unwrap();
    (name.to_owned(), values, value)
}

#[test]
fn label_values_get_three_escapes_and_no_more() {
    let raw = ["C:\\Program Files", "say \"hi\"", "two\nlines", "tab\traw", "💩\r", "", "\0"];
    let wire =
        ["C:\\\\Program Files", "say \\\"hi\\\"", "two\\nlines", "tab\traw", "💩\r", "", "\0"];
    for (raw, wire) in raw.into_iter().zip(wire) {
        let (text, _) = shown(&[number(&BUSY, &[raw], 1.0)]);
        assert!(text.contains(&format!("{{device=\"{wire}\"}} 1\n")), "{raw:?}: {text}");
    }
}

#[test]
fn names_that_differ_in_an_escaped_byte_stay_two_series() {
    let (text, refused) = shown(&[
        number(&BUSY, &["/mnt/a\\xC0b"], 1.0),
        number(&BUSY, &["/mnt/a\\xC1b"], 2.0),
        number(&BUSY, &["eth-0"], 3.0),
        number(&BUSY, &["eth_0"], 4.0),
    ]);
    assert_eq!(parse(&text).len(), 4);
    assert_eq!(refused, Refused::default());
}

#[test]
fn large_and_small_numbers_come_back_equal() {
    let values =
        [-0.0, 1e21, 5e-324, 9_007_199_254_740_993u64 as f64, u64::MAX as f64, 1625.0 / 1000.0];
    for value in values {
        let (text, _) = shown(&[number(&READS, &["x"], value)]);
        assert_eq!(parse(&text)[0].2, value, "{text}");
    }
    let (text, _) = shown(&[number(&READS, &["x"], 1.625)]);
    assert!(text.contains(" 1.625\n"));
    let (text, _) = shown(&[number(&READS, &["x"], 9_007_199_254_740_993u64 as f64)]);
    assert!(text.contains(" 9007199254740992\n"));
}

proptest! {
    #[test]
    fn whatever_a_label_or_value_holds_the_page_parses_to_it(
        points in prop::collection::vec((any::<String>(), any::<f64>()), 0..20),
    ) {
        let points: Vec<Point> =
            points.iter().map(|(l, v)| number(&BUSY, &[l.as_str()], *v)).collect();
        let (text, refused) = shown(&points);
        let read = parse(&text);
        let kept = points.len() as u64 - refused.duplicates - refused.not_finite;
        prop_assert_eq!(read.len() as u64, kept);
        for (_, values, value) in &read {
            let first = points.iter().find(|p| {
                p.labels[0].as_ref() == values[0]
                    && matches!(p.value, Value::Number(n) if n.is_finite())
            });
            prop_assert_eq!(&first.unwrap().value, &Value::Number(*value));
        }
    }
}

#[test]
fn reasons_are_a_closed_list_of_words() {
    let faults = FaultKind::ALL.map(FaultKind::label);
    let skips = Skip::ALL.map(Skip::label);
    assert!(faults.len() <= 20 && skips.len() <= 20);
    for word in faults.iter().chain(&skips) {
        assert!(word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{word}");
    }
}

#[test]
fn promtool_finds_nothing_on_a_page_of_odd_names() {
    let mut windows = Histogram::new(&[0.25, 0.98]);
    windows.observe(0.3, 7);
    let windows = Arc::new(windows);
    let mut points = Vec::new();
    for device in ["sda", "C:\\", "\"", "a\nb", "\t", "\r", "💩", "\0", "", "{}=,", "/mnt/a\\xC0b"]
    {
        points.push(number(&BUSY, &[device], 0.5));
        points.push(number(&READS, &[device], 1e21));
        points.push(Point::histogram(&WINDOWS, &[&device.into()], Arc::clone(&windows)));
    }
    let page = render(points.iter()).text;
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        eprintln!("skipped: promtool is not installed (apt-get install prometheus)");
        return;
    };
    promtool.stdin.take().unwrap().write_all(&page).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
