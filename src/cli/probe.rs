//! `loadline probe disk`: one run by hand, through the same worker as the daemon's.

mod arguments;
pub(super) mod oltp;
mod osd;
pub(in crate::cli) mod osd_table;
mod table;
mod work;

use std::io::{IsTerminal, Write};

use anyhow::Context;

use super::hand::{self, Hand, RESERVE};
use super::progress::Progress;
use super::{EXIT_FAULT, Failure};
use crate::base::clock::{Clock, SystemClock};
use crate::base::units::Seconds;
use crate::daemon::targets::target_of;
use crate::host::roots::Roots;
use crate::model::job::{Access, Place, Region, Run, Target};
use crate::model::outcome::{Done, Inspection, Outcome};
use crate::probe::disk;
use crate::probe::fio::json;
pub(super) use arguments::DiskArguments;
use arguments::Format;
pub(super) use osd::{OsdArguments, run as bench_osds};
use work::Work;

pub(super) fn run(arguments: DiskArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let work = Work::of(&arguments)?;
    let target = target_of(&hand::target_by_hand(&arguments.target, Default::default())?);
    let hand = Hand::until_interrupted(Roots::default())?;
    for note in &work.notes {
        let _ = writeln!(std::io::stderr(), "{note}");
    }
    let inspection = hand.inspect(&target).map_err(failure)?;
    if !arguments.buffered {
        hand::is_disk(&target.name, &inspection)
            .map_err(|text| Failure { code: EXIT_FAULT, text })?;
    }
    let progress = Progress::new(std::io::stderr().is_terminal(), &work.legs);
    for line in table::headlines(&target, &inspection, &work.legs) {
        progress.headline(&line);
    }
    let turn = hand::wait_for_turn(&hand::state_directory(), &hand.stop)?;
    let outcome = hand.run(run_of(work, target, inspection), &mut |what| progress.take(what));
    drop(turn);
    progress.end();
    print(outcome, arguments.format, out)
}

fn failure(outcome: Outcome) -> Failure {
    Failure { code: EXIT_FAULT, text: hand::parts(outcome).1.unwrap_or_default() }
}

fn run_of(work: Work, target: Target, inspection: Inspection) -> Run {
    Run {
        kind: disk::KIND.name.into(),
        region: match target.place {
            Place::Directory(_) => Region::Unnamed(work.size),
            Place::Device(_) => Region::WholeDevice,
            Place::Cluster(_) => Region::Objects,
        },
        target,
        legs: work.legs,
        engine: work.engine,
        seed: work.seed.unwrap_or_else(hand::seed),
        devices: inspection.devices,
        top: inspection.top,
        reserve: RESERVE,
        procfs: Roots::default().procfs,
        quiet: Seconds(1.0),
    }
}

/// Sequential and random are words in the table.
fn access(access: Access) -> &'static str {
    match access {
        Access::Sequential => "sequential",
        Access::Random => "random",
        Access::RandomMap => "random (each block once)",
    }
}

fn print(outcome: Outcome, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let error = json::error_of(&outcome);
    let (done, failure) = hand::parts(outcome);
    if let Some(done) = done {
        writeln!(out, "{}", shown(&done, format, error)?).context("standard output")?;
    }
    failure.map_or(Ok(()), |text| Err(Failure { code: EXIT_FAULT, text }))
}

/// The result as text. Only the result goes to standard output: what else there is to say of it goes
/// beside a table on a terminal, and to standard error where a program reads the output.
fn shown(done: &Done, format: Format, error: i32) -> Result<String, anyhow::Error> {
    let pretty = |value: &serde_json::Value| {
        serde_json::to_string_pretty(value).context("the result as JSON")
    };
    match format {
        Format::Table if std::io::stdout().is_terminal() => Ok(table::for_people(done)),
        Format::Table => {
            for line in table::remarks(done) {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            Ok(table::tab_separated(done))
        }
        Format::Json => pretty(&serde_json::to_value(done).context("the result as JSON")?),
        Format::FioJson => pretty(&json::report(done, SystemClock.now().wall, error)),
    }
}
