//! `loadline probe disk`: one run by hand, through the same worker as the daemon's.

mod arguments;
mod progress;
mod table;
mod work;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::{EXIT_FAULT, Failure};
use crate::base::clock::{Clock, SystemClock};
use crate::base::units::{Bytes, MIB, Seconds};
use crate::config::settings::TargetSettings;
use crate::daemon;
use crate::daemon::probing::INSPECT_DEADLINE;
use crate::daemon::targets::target_of;
use crate::host::roots::Roots;
use crate::model::job::{Access, Backing, Job, Place, Region, Run, Target, Task, WIRE_VERSION};
use crate::model::outcome::{Done, Inspection, Outcome, Reply};
use crate::probe::disk;
use crate::probe::fio::json;
use crate::schedule::turn::{Turn, TurnGuard};
use crate::worker::parent::ProcessRunner;
use crate::worker::{Ended, Runner, Stop};
pub(super) use arguments::DiskArguments;
use arguments::Format;
use progress::Progress;
use work::Work;

/// A one-shot command waits this long for another loadline.
const TURN_WAIT: Duration = Duration::from_secs(30);
/// Opening, draining and flushing may take this long on top of the run, and of laying the file out.
const GRACE: Duration = Duration::from_secs(180);
/// Slowest disk on which a file of any size is still laid out in time.
const LAYOUT_BYTES_PER_SECOND: f64 = 10e6;
/// Free space that a run by hand leaves.
const RESERVE: Bytes = Bytes(256 * MIB);

pub(super) fn run(arguments: DiskArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let work = Work::of(&arguments)?;
    let target = target(&arguments.target)?;
    let state = daemon::state::directory(|name| std::env::var(name).ok())
        .unwrap_or_else(|_| std::env::temp_dir());
    let runner = ProcessRunner::new(Arc::new(SystemClock));
    let stop = stop_on_interrupt()?;
    for note in &work.notes {
        let _ = writeln!(std::io::stderr(), "{note}");
    }
    let inspection = inspect(&runner, &target, &stop)?;
    if inspection.backing == Backing::Memory && !arguments.buffered {
        let text = format!("{} is memory, not a disk: choose another --target", target.name);
        return Err(Failure { code: EXIT_FAULT, text });
    }
    let progress = Progress::new(std::io::stderr().is_terminal(), &work.legs);
    for line in table::headlines(&target, &inspection, &work.legs) {
        progress.headline(&line);
    }
    let turn = wait_for_turn(&state)?;
    let deadline = deadline(&work);
    let run = run_of(work, target, inspection);
    let job = Job { v: WIRE_VERSION, polite: false, task: Task::Run(run) };
    let ended = runner.run(&job, deadline, &stop, &mut |what| progress.take(what));
    drop(turn);
    progress.end();
    print(ended, arguments.format, out)
}

fn deadline(work: &Work) -> Duration {
    let legs = work.legs.iter().map(|leg| leg.runtime.0 + leg.ramp.0).sum::<f64>();
    Seconds(legs + work.size.0 as f64 / LAYOUT_BYTES_PER_SECOND).duration() + GRACE
}

fn run_of(work: Work, target: Target, inspection: Inspection) -> Run {
    Run {
        kind: disk::KIND.name.into(),
        region: match target.place {
            Place::Directory(_) => Region::Unnamed(work.size),
            Place::Device(_) => Region::WholeDevice,
        },
        target,
        legs: work.legs,
        engine: work.engine,
        seed: work.seed.unwrap_or_else(|| SystemClock.now().wall.as_nanos() as u64),
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

fn target(path: &Path) -> Result<Target, Failure> {
    // Lexically: a call on the path could hang, and is the worker's to make.
    let absolute = std::path::absolute(path).context("the current directory")?;
    Ok(target_of(&TargetSettings {
        name: absolute.display().to_string(),
        path: absolute,
        writes: Some(true),
        ballast: None,
        budget: Bytes(u64::MAX),
        wake: true,
        backing: Default::default(),
        shared: None,
        shared_hosts: Vec::new(),
        is_default: false,
    }))
}

fn inspect(runner: &ProcessRunner, target: &Target, stop: &Stop) -> Result<Inspection, Failure> {
    let Roots { procfs, sysfs, rootfs } = Roots::default();
    let task = Task::Inspect { target: target.clone(), procfs, sysfs, rootfs };
    let job = Job { v: WIRE_VERSION, polite: false, task };
    match runner.run(&job, INSPECT_DEADLINE, stop, &mut |_| {}) {
        Ended::Replied(Reply::Inspected(inspection)) => Ok(*inspection),
        Ended::Replied(Reply::Failed(fault)) | Ended::Failed(fault) => {
            Err(daemon::StartFault::Other(fault).into())
        }
        Ended::Replied(_) => {
            Err(daemon::StartFault::Other(daemon::account::foreign_reply()).into())
        }
        Ended::Hung(_) => {
            Err(daemon::StartFault::Other(daemon::targets::hung(&target.name)).into())
        }
    }
}

/// The turn on this host; says for what it waits, and for how long at most.
pub(super) fn wait_for_turn(state: &Path) -> Result<TurnGuard, Failure> {
    let places = daemon::turn_places(state);
    let clock = SystemClock;
    let begun = clock.now();
    let mut said = false;
    loop {
        match Turn::try_take(&places).map_err(daemon::StartFault::Other)? {
            Turn::Mine(turn) => return Ok(turn),
            Turn::Theirs(holder) => {
                if clock.now().since(begun).duration() > TURN_WAIT {
                    let text = format!("{holder}: gave up after 30 s; try again when it is done");
                    return Err(Failure { code: EXIT_FAULT, text });
                }
                if !said {
                    let _ = writeln!(std::io::stderr(), "{holder}, at most 30 s");
                    said = true;
                }
                std::thread::park_timeout(Duration::from_millis(100));
            }
        }
    }
}

/// Ctrl-C and SIGTERM cancel the worker; a second one ends the command at once.
pub(super) fn stop_on_interrupt() -> Result<Stop, Failure> {
    let stop = Stop::default();
    let asked = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime for signals")?;
    let wait = move || {
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => asked.set(),
                    _ = terminate.recv() => asked.set(),
                }
            }
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("no thread")?;
    Ok(stop)
}

fn print(ended: Ended, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let outcome = match ended {
        Ended::Replied(Reply::Ran(outcome)) => outcome,
        Ended::Replied(Reply::Skipped { skip, text }) => Outcome::skipped(skip, text),
        Ended::Replied(Reply::Failed(fault)) | Ended::Failed(fault) => {
            Outcome::Failed { fault, partial: None }
        }
        Ended::Replied(_) => {
            Outcome::Failed { fault: daemon::account::foreign_reply(), partial: None }
        }
        Ended::Hung(_) => Outcome::Hung { text: "the target does not answer".into() },
    };
    let error = json::error_of(&outcome);
    let (done, failure): (Option<Box<Done>>, Option<String>) = match outcome {
        Outcome::Done(done) => (Some(done), None),
        Outcome::Failed { fault, partial } => {
            (partial, Some(format!("{fault}\n{}", fault.kind.advice())))
        }
        Outcome::Skipped { skip, text, partial } => {
            (partial, Some(format!("{}: {text}\n{}", skip.label(), skip.advice())))
        }
        Outcome::Hung { text } => (None, Some(text)),
    };
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
