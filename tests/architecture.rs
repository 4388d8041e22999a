//! The house keeps its own rules: floors, siblings, sizes, and where `unsafe` may stand.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Modules by floor, lowest first. A module names only lower floors; siblings never name each other.
const FLOORS: &[&[&str]] = &[
    &["base"],
    &["model"],
    &["config", "host"],
    &["workload", "iperf", "ceph"],
    &["sample", "probe", "schedule"],
    &["judge", "worker"],
    &["publish"],
    &["web"],
    &["daemon"],
    &["cli"],
];

const UNSAFE_FILES: &[&str] = &["host/sys.rs", "workload/uring.rs", "workload/aio.rs"];
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 400;

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// `(path below src, text)` of every source file.
fn house() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    paths
        .into_iter()
        .map(|p| {
            let name = p.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&p).unwrap();
            (name, text)
        })
        .collect()
}

/// Top-level modules that a text names through `crate::`, grouped imports included.
fn named_modules(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            let list = rest.strip_prefix('{').map_or(rest, |l| l.split('}').next().unwrap_or(l));
            let grouped = rest.starts_with('{');
            for part in list.split(',').take(if grouped { usize::MAX } else { 1 }) {
                let word: String = part
                    .trim()
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect();
                if !word.is_empty() {
                    found.push(word);
                }
            }
        }
    }
    found
}

/// Faults of one file against the floors.
fn upward_edges(name: &str, text: &str) -> Vec<String> {
    let module = name.split('/').next().unwrap().trim_end_matches(".rs");
    let Some(here) = floor_of(module) else { return Vec::new() };
    named_modules(text)
        .into_iter()
        .filter(|other| other != module)
        .filter(|other| floor_of(other).is_some_and(|floor| floor >= here))
        .map(|other| format!("{name} (floor {here}) names crate::{other}"))
        .collect()
}

#[test]
fn a_module_names_only_lower_floors() {
    let faults: Vec<_> = house().iter().flat_map(|(n, t)| upward_edges(n, t)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_module_has_its_floor() {
    for name in house().keys().filter(|n| *n != "lib.rs" && *n != "main.rs") {
        let module = name.split('/').next().unwrap();
        assert!(floor_of(module).is_some(), "{name}: no floor knows `{module}`");
    }
}

#[test]
fn the_check_itself_sees_upward_and_sideways_edges() {
    assert_eq!(upward_edges("base/x.rs", "use crate::model::job;").len(), 1);
    assert_eq!(upward_edges("sample/x.rs", "use crate::probe::Kind;").len(), 1);
    assert_eq!(upward_edges("model/x.rs", "use crate::{base::units, web};").len(), 1);
    assert!(upward_edges("model/x.rs", "use crate::base::units;").is_empty());
}

#[test]
fn unsafe_stands_only_where_it_may() {
    for (name, text) in house() {
        let uses = text.lines().map(|l| l.split("//").next().unwrap_or("")).any(|l| {
            l.contains("unsafe {") || l.contains("unsafe fn") || l.contains("unsafe impl")
        });
        assert!(!uses || UNSAFE_FILES.contains(&name.as_str()), "{name} holds unsafe code");
    }
}

#[test]
fn files_and_functions_stay_small() {
    let mut faults = Vec::new();
    for (name, text) in house() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            faults.push(format!("{name}: {lines} lines"));
        }
        faults.extend(long_functions(&name, &text));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn long_functions(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut open: Option<(usize, usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let code = line.trim_start();
        let starts =
            ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "const fn ", "async fn "]
                .iter()
                .any(|p| code.starts_with(p))
                || code.starts_with("pub async fn ")
                || code.starts_with("pub const fn ");
        if starts && open.is_none() && !code.ends_with(';') {
            open = Some((number, indent, code.chars().take(60).collect()));
        }
        // A signature without a body, as traits have it.
        let bodiless = |at: usize| indent == at && code.ends_with(';');
        if open.as_ref().is_some_and(|(_, at, _)| bodiless(*at)) {
            open = None;
        }
        if let Some((start, at, what)) = &open
            && line.trim_end() == format!("{}}}", " ".repeat(*at))
        {
            let length = number - start + 1;
            if length > FUNCTION_LINES_MAX {
                faults.push(format!("{name}:{}: {length} lines: {what}", start + 1));
            }
            open = None;
        }
    }
    faults
}

#[test]
fn only_main_and_cli_speak_anyhow() {
    for (name, text) in house() {
        let may = name == "main.rs" || name.starts_with("cli/");
        assert!(may || !text.contains("anyhow"), "{name} names anyhow");
    }
}
