//! The alert rules: Prometheus' own tool accepts them, their cases hold, and they keep the
//! conventions that the tool doesn't know.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests"
)]

mod file;
mod lint;
#[path = "../promql.rs"]
mod promql;
mod routes;

use std::collections::BTreeSet;

use file::{Alert, CaseFile, alerts, files, read, root};

/// Every alert stands here with a daemon that is restarted and one whose data end.
const RESTART: &str = "restart.yml";
const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];
const RUNBOOK_HEADINGS: [&str; 4] = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"];

#[test]
fn promtool_accepts_the_rules() {
    promql::promtool(
        &["check", "rules", "--lint=all", "--lint-fatal"],
        &files("alerts", ".rules.yml"),
    );
}

#[test]
fn promtool_finds_the_cases_true() {
    let check = |file| std::thread::spawn(|| promql::promtool(&["test", "rules"], &[file]));
    let checks: Vec<_> = files("alerts/tests", ".yml").into_iter().map(check).collect();
    checks.into_iter().for_each(|check| check.join().unwrap());
}

/// Each range a millisecond shorter, which selects in 2.42 what the whole range selects in 3.x.
fn open_at_the_left(rules: &str) -> String {
    let mut parts = rules.split('[');
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let unit = match part.as_bytes().get(digits) {
            Some(b'm') => 60_000,
            Some(b'h') => 3_600_000,
            Some(b'd') => 86_400_000,
            _ => 0,
        };
        match part[..digits].parse::<u64>() {
            Ok(number) if unit > 0 => {
                text += &format!("[{}ms{}", number * unit - 1, &part[digits + 1..]);
            }
            _ => text += &format!("[{part}"),
        }
    }
    text
}

#[test]
fn the_cases_hold_where_ranges_leave_out_their_left_end_as_in_prometheus_3() {
    if !std::env::var("TIER").is_ok_and(|tier| tier == "full") {
        return eprintln!("skipped: all cases once more take a while: TIER=full runs them");
    }
    let dir = tempfile::tempdir().unwrap();
    let cases = dir.path().join("tests");
    std::fs::create_dir(&cases).unwrap();
    for path in files("alerts", ".rules.yml") {
        let text = std::fs::read_to_string(&path).unwrap();
        let open = open_at_the_left(&text);
        assert!(open.contains("[299999ms]") && !open.contains("[5m]"), "{}", path.display());
        std::fs::write(dir.path().join(path.file_name().unwrap()), open).unwrap();
    }
    let copied = files("alerts/tests", ".yml").into_iter().map(|path| {
        let copy = cases.join(path.file_name().unwrap());
        std::fs::copy(&path, &copy).unwrap();
        copy
    });
    promql::promtool(&["test", "rules"], &copied.collect::<Vec<_>>());
}

#[test]
fn every_alert_has_a_case_that_fires_and_one_that_does_not() {
    let cases: Vec<CaseFile> = files("alerts/tests", ".yml").iter().map(|p| read(p)).collect();
    let checks = || cases.iter().flat_map(|f| &f.tests).flat_map(|c| &c.alert_rule_test);
    let named = |fires: bool| -> BTreeSet<&str> {
        checks().filter(|c| c.exp_alerts.is_empty() != fires).map(|c| &*c.alertname).collect()
    };
    let alerts = alerts();
    let names: BTreeSet<&str> = alerts.iter().map(|a| &*a.alert).collect();
    assert_eq!(&names - &named(true), BTreeSet::new(), "alerts without a case that fires");
    assert_eq!(&names - &named(false), BTreeSet::new(), "alerts without a case that doesn't");
    let all = &named(true) | &named(false);
    assert_eq!(&all - &names, BTreeSet::new(), "cases of alerts that don't exist");
}

#[test]
fn a_restart_and_the_end_of_data_make_no_alert_by_themselves() {
    let path = root().join("alerts/tests").join(RESTART);
    let cases: CaseFile = read(&path);
    let checks = cases.tests.iter().flat_map(|case| &case.alert_rule_test);
    let quiet: BTreeSet<_> =
        checks.filter(|c| c.exp_alerts.is_empty()).map(|c| c.alertname.clone()).collect();
    let names: BTreeSet<_> = alerts().into_iter().map(|alert| alert.alert).collect();
    assert_eq!(&names - &quiet, BTreeSet::new(), "alerts that {RESTART} leaves out");
}

#[test]
fn every_alert_waits_lingers_and_has_a_severity_and_its_three_annotations() {
    for Alert { alert, r#for, keep_firing_for, labels, annotations, .. } in alerts() {
        assert!(alert.starts_with("Loadline"), "{alert}: the name says whose it is");
        assert!(r#for.is_some(), "{alert}: no `for`");
        assert!(keep_firing_for.is_some(), "{alert}: no `keep_firing_for`");
        let severity = labels.get("severity").map(String::as_str).unwrap_or("");
        assert!(SEVERITIES.contains(&severity), "{alert}: severity `{severity}`");
        let keys: Vec<_> = annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["description", "runbook", "summary"], "{alert}");
    }
}

#[test]
fn every_alert_stands_in_the_table_of_the_docs() {
    let text = std::fs::read_to_string(root().join("docs/prometheus.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| Loadline"));
    let cells = rows.filter_map(|row| row.trim_start_matches("| ").split(" |").next());
    let named: BTreeSet<_> = cells.flat_map(|cell| cell.split(", ")).map(str::to_owned).collect();
    assert_eq!(named, alerts().into_iter().map(|alert| alert.alert).collect());
}

#[test]
fn every_alert_has_its_runbook_and_every_runbook_its_alert() {
    let alerts = alerts();
    for Alert { alert, annotations, .. } in &alerts {
        let path = &annotations["runbook"];
        assert_eq!(path, &format!("docs/runbooks/{alert}.md"));
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
        let headings: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, RUNBOOK_HEADINGS, "{path}");
        assert!(text.starts_with(&format!("# {alert}\n")), "{path}");
    }
    let names: BTreeSet<_> = alerts.iter().map(|a| format!("{}.md", a.alert)).collect();
    for path in files("docs/runbooks", ".md") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(names.contains(&name), "{name}: no such alert");
    }
}
