//! `loadline report`: which limit bound each run, how near it is, what to change. The runs are made
//! now, or were made before.

mod ceph;
mod course;
mod live;
mod machine;
mod peers;
mod plan;
mod seen;
mod whole;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use comfy_table::Table;

use super::cluster::ClusterArguments;
use super::import::{self, file, fio, iperf3, osd};
use super::{EXIT_FAULT, Failure};
use crate::base::fault::Fault;
use crate::config::complaint::Complaint;
use crate::config::declared;
use crate::config::document::Document;
use crate::judge::facts::Run;
use crate::judge::set::judge_all;
use crate::model::path::{DeclaredBacking, DeclaredPath};
use crate::publish::report::{Curve, Report, Style, declarations, json};

const EXAMPLES: &str = "\
Examples:
  loadline report --target /srv                    measures it now, in about a minute
  loadline report --target /srv --target /var --full
  loadline report --peer storage2 --path link=10Gbit
  loadline report --config /etc/loadline.yml --format markdown > report.md
  loadline report --from measurements.yml
  loadline report --fio a.json --iperf3 b.json --backing link=1Gbit,media=hdd,devices=3
  loadline report --from measurements.yml --format json > judged.json
  loadline report --from judged.json
  loadline report --from cluster.log --backing media=hdd,bandwidth=100MB/s,wal=same
  loadline report --ceph                           a cluster's OSDs, and their options in effect";

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Format {
    Table,
    Markdown,
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReportArguments {
    #[command(flatten)]
    live: live::Live,
    #[command(flatten)]
    saved: Saved,
    /// What lies under the storage, like link=1Gbit,media=hdd; replaces what a file declares
    #[arg(long, value_name = "KEYS")]
    backing: Option<String>,
    /// The way to peers, like link=10Gbit,mtu=9000; replaces what a file declares
    #[arg(long, value_name = "KEYS")]
    path: Option<String>,
    /// The OSDs of a Ceph cluster and the options that decide what clients get: nothing is measured
    #[arg(long, conflicts_with_all = MEASURING, conflicts_with_all = SAVED)]
    ceph: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// How to print it
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Nothing is measured beside results that are there already.
const MEASURING: [&str; 8] =
    ["target", "peer", "quick", "full", "runtime", "size", "yes", "config"];

const SAVED: [&str; 3] = ["from", "fio", "iperf3"];

/// Results that are there already.
#[derive(Debug, Args)]
struct Saved {
    /// Measurements in YAML or JSON, by hand or from --format json, or a log of `ceph tell osd.N bench`;
    /// `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = MEASURING)]
    from: Option<PathBuf>,
    /// fio's --output-format=json; repeatable
    #[arg(long, value_name = "FILE", conflicts_with_all = MEASURING)]
    fio: Vec<PathBuf>,
    /// iperf3's -J; repeatable
    #[arg(long, value_name = "FILE", conflicts_with_all = MEASURING)]
    iperf3: Vec<PathBuf>,
}

impl Saved {
    fn is_none(&self) -> bool {
        self.from.is_none() && self.fio.is_empty() && self.iperf3.is_empty()
    }
}

/// What a source of runs gives.
#[derive(Default)]
struct Gathered {
    about: Vec<(String, String)>,
    runs: Vec<Run>,
    curves: Vec<Curve>,
    /// What was not measured, and why.
    skipped: Vec<String>,
    /// Why this isn't all that was asked for, where that is no matter of course.
    failed: Vec<String>,
}

/// What the command line declares.
struct Declared {
    backing: Option<DeclaredBacking>,
    path: Option<DeclaredPath>,
}

pub(super) fn run(arguments: ReportArguments, out: &mut dyn Write) -> Result<(), Failure> {
    if arguments.ceph {
        let text = ceph::report(&arguments.cluster, arguments.format)?;
        return Ok(out.write_all(text.as_bytes()).context("standard output")?);
    }
    let declared = Declared {
        backing: section("backing", arguments.backing.as_deref(), declared::backing)?,
        path: section("path", arguments.path.as_deref(), declared::path)?,
    };
    if !arguments.saved.is_none() {
        return print(gather(&arguments.saved, declared)?, arguments.format, out);
    }
    let mut gathered = live::gather(arguments.live, declared)?;
    let mut failed = std::mem::take(&mut gathered.failed);
    if gathered.runs.is_empty() {
        // There is nothing to report but why.
        gathered.skipped.retain(|text| !failed.iter().any(|said| said.starts_with(text)));
        failed.append(&mut gathered.skipped);
    } else {
        print(gathered, arguments.format, out)?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure { code: EXIT_FAULT, text: failed.join("\n") }),
    }
}

fn print(gathered: Gathered, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let Gathered { about, runs, curves, skipped, .. } = gathered;
    if format == Format::Json {
        // It holds what is judged, and nothing else.
        for text in &skipped {
            let _ = writeln!(std::io::stderr(), "not measured: {text}");
        }
    }
    let report = Report { about, judged: judge_all(runs), curves, skipped };
    let width = if std::io::stdout().is_terminal() { Table::new().width() } else { None };
    let text = match format {
        Format::Table => report.text(Style::Table, width),
        Format::Markdown => report.text(Style::Markdown, None),
        Format::Json => json(&report.judged).context("the report as JSON")? + "\n",
    };
    Ok(out.write_all(text.as_bytes()).context("standard output")?)
}

/// `link=1Gbit,media=hdd`, or the same as YAML.
pub(super) fn section<T>(
    key: &str,
    typed: Option<&str>,
    read: fn(&crate::config::document::Section<'_>) -> Result<T, Complaint>,
) -> Result<Option<T>, Failure> {
    let Some(typed) = typed else { return Ok(None) };
    let keys = typed.trim().trim_start_matches('{').trim_end_matches('}').replace('=', ": ");
    let document = Document::parse(&format!("--{key}"), &format!("{key}: {{{keys}}}\n"))?;
    let section = document.root().get(key);
    Ok(section.map(|section| read(&section)).transpose()?)
}

/// Saved results, each with what is declared of its path.
fn gather(saved: &Saved, declared: Declared) -> Result<Gathered, Failure> {
    let mut gathered = Gathered::default();
    let mut names: Vec<String> = Vec::new();
    let (mut backing, mut path) = (declared.backing, declared.path);
    if let Some(from) = &saved.from {
        let bytes = import::read(from).map_err(failure)?;
        names.push(show(from));
        let (under, way) = (backing.clone().unwrap_or_default(), path.clone().unwrap_or_default());
        gathered.runs = osd::parse(&bytes, &under, &way);
        if gathered.runs.is_empty() {
            let given = file::Declared { backing: backing.take(), path: path.take() };
            let measurements = file::parse(from, &bytes, given)?;
            gathered.runs = measurements.runs;
            (backing, path) = (Some(measurements.backing), Some(measurements.path));
        }
    }
    let (backing, path) = (backing.unwrap_or_default(), path.unwrap_or_default());
    for from in &saved.fio {
        let runs = fio::parse(from, &import::read(from).map_err(failure)?).map_err(failure)?;
        let runs = runs.into_iter().map(|mut run| {
            run.facts.backing = backing.clone();
            run
        });
        gathered.runs.extend(runs);
        names.push(show(from));
    }
    for from in &saved.iperf3 {
        let mut run =
            iperf3::parse(from, &import::read(from).map_err(failure)?).map_err(failure)?;
        run.facts.path = path.clone();
        gathered.runs.push(run);
        names.push(show(from));
    }
    gathered.about = vec![("judged".into(), names.join(", "))];
    gathered.about.extend(declarations(&backing, &path));
    Ok(gathered)
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

fn failure(fault: Fault) -> Failure {
    Failure { code: EXIT_FAULT, text: fault.text }
}
