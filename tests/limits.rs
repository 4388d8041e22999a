//! docs/limits.md: each of its examples is judged and drawn here. BLESS=1 writes them there.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use loadline::base::physics::spindle_band;
use loadline::base::units::{Bytes, Rate};
use loadline::judge::facts::HDD_USUAL;
use loadline::model::verdict::Limit;
use loadline::publish::report::bar;
use serde_json::Value;

const WIDTH: usize = 100;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// What `loadline report` says of the examples, in one format.
fn judged(format: &str) -> String {
    let examples = docs().join("limits/examples.yml");
    let output = Command::new(env!("CARGO_BIN_EXE_loadline"))
        .args(["report", "--from", &examples.display().to_string(), "--format", format])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn runs() -> Vec<Value> {
    let judged: Value = serde_json::from_str(&judged("json")).unwrap();
    judged["runs"].as_array().unwrap().clone()
}

/// A number of a run, and how it is shown.
struct Row(String, f64, String);

fn show(run: &Value, bytes_or_operations: f64) -> String {
    match run["verdict"]["evidence"]["subject"] == "link" {
        true => format!("{:.2} Mbit/s", bytes_or_operations * 8.0 / 1e6),
        false if run["verdict"]["ceiling"]["unit"] == "bytes_per_second" => {
            Rate(bytes_or_operations).to_string()
        }
        false => format!("{bytes_or_operations:.0}/s"),
    }
}

/// The numbers that a verdict rests on: two depths, a share, or a result and its ceiling.
fn rows(run: &Value) -> Vec<Row> {
    let evidence = &run["verdict"]["evidence"];
    let number = |value: &Value| value.as_f64().unwrap();
    let percent =
        |label: &str, share: f64| Row(label.into(), share, format!("{:.1} %", share * 100.0));
    let operations = || number(&run["operations_per_second"]);
    let second = &evidence["second_leg"];
    match run["verdict"]["limit"].as_str().unwrap() {
        "contended" => vec![
            percent("the run", 1.0),
            percent("others", number(&evidence["device"]["foreign_share"])),
        ],
        "cpu" => vec![
            percent("one CPU", 1.0),
            percent("used", number(&evidence["cpu"]["busiest_ratio"])),
        ],
        "none" => ["depth", "in_flight"]
            .map(|key| match key {
                "depth" => ("asked for", number(&evidence["depth"])),
                _ => ("at the device", number(&evidence["device"][key])),
            })
            .map(|(label, n)| Row(label.into(), n, format!("{n:.1} in flight")))
            .into(),
        "cache" | "seek" => {
            let disks = number(&evidence["backing"]["devices"]);
            let band = spindle_band(7200.0, Bytes(4096), HDD_USUAL).times(disks);
            let row = |label: &str, n| Row(label.into(), n, format!("{n:.0}/s"));
            let best = format!("{disks} disks at best");
            vec![row("at worst", band.low), row("result", operations()), row(&best, band.high)]
        }
        _ if second.is_object() => {
            let (one, two) = (operations(), number(&second["rate_per_second"]));
            let (depth, deeper) = (number(&evidence["depth"]), number(&second["depth"]));
            let row =
                |depth: f64, rate: f64| Row(format!("depth {depth}"), rate, format!("{rate:.0}/s"));
            vec![row(depth, one), row(deeper, two)]
        }
        _ => {
            let (result, most) =
                (number(&run["bytes_per_second"]), number(&run["verdict"]["ceiling"]["value"]));
            let row = |label: &str, n| Row(label.into(), n, show(run, n));
            vec![row("result", result), row("ceiling", most)]
        }
    }
}

fn picture(run: &Value) -> Vec<String> {
    let rows = rows(run);
    let most = rows.iter().map(|Row(_, value, _)| *value).fold(0.0, f64::max);
    let width = rows.iter().map(|Row(label, ..)| label.len()).max().unwrap();
    let line =
        |Row(label, value, text): &Row| format!("{label:width$}  {:24}  {text}", bar(*value, most));
    rows.iter().map(line).collect()
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().unwrap();
        if !last.is_empty() && last.len() + 1 + word.len() > WIDTH {
            lines.push(word.into());
        } else {
            let space = if last.is_empty() { "" } else { " " };
            *last += &format!("{space}{word}");
        }
    }
    lines
}

/// The block that belongs under an example's mark.
fn block(run: &Value, report: &str) -> String {
    let name = run["name"].as_str().unwrap();
    let why = report.lines().find_map(|line| line.strip_prefix(&format!("  {name}: "))).unwrap();
    let verdict = &run["verdict"];
    let limit = verdict["limit"].as_str().unwrap().replace('_', " ");
    let mut lines =
        vec![format!("{name}: {limit}, confidence {:.2}", verdict["confidence"].as_f64().unwrap())];
    lines.extend(picture(run));
    lines.push(String::new());
    lines.extend(wrapped(why));
    format!("```text\n{}\n```\n", lines.join("\n"))
}

#[test]
fn every_example_is_what_the_code_says_of_it() {
    let path = docs().join("limits.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let report = judged("table");
    let runs = runs();
    let mut parts = page.split("<!-- example: ");
    let mut right = parts.next().unwrap().to_owned();
    let mut shown = 0;
    for part in parts {
        let (name, rest) = part.split_once(" -->\n").unwrap();
        let run = runs.iter().find(|run| run["name"] == name).unwrap();
        let old = rest.strip_prefix("```text\n").and_then(|rest| rest.split_once("\n```\n"));
        let after = old.map_or(rest, |(_, after)| after);
        right += &format!("<!-- example: {name} -->\n{}{after}", block(run, &report));
        shown += 1;
    }
    assert_eq!(shown, runs.len(), "each run is shown once");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, right).unwrap();
    } else {
        assert!(page == right, "BLESS=1 cargo test --test limits writes:\n{right}");
    }
}

#[test]
fn the_page_has_each_limit_in_its_order_with_a_run_that_has_it() {
    let page = std::fs::read_to_string(docs().join("limits.md")).unwrap();
    let runs = runs();
    let mut from = 0;
    for limit in Limit::ALL {
        let heading = format!("\n## {}\n", limit.words());
        let at = page[from..].find(&heading).unwrap_or_else(|| panic!("{heading:?} is missing"));
        let section = &page[from + at + heading.len()..];
        let section = section.split("\n## ").next().unwrap();
        let is_its = |run: &&Value| run["verdict"]["limit"] == limit.label();
        let run = runs.iter().find(is_its).unwrap_or_else(|| panic!("no run for {heading:?}"));
        let mark = format!("<!-- example: {} -->", run["name"].as_str().unwrap());
        assert!(section.contains(&mark), "`{mark}` belongs under {heading:?}");
        let confidence = run["verdict"]["confidence"].as_f64().unwrap();
        assert!(confidence >= 0.5 || limit == Limit::Unknown, "{heading:?}: {confidence}");
        from += at + heading.len();
    }
}
