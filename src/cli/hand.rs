//! Work by hand: what one-shot commands share. They wait for their turn, every call on a target is a
//! worker's, and Ctrl-C or SIGTERM stops it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::{EXIT_FAULT, Failure};
use crate::base::clock::{Clock, SystemClock};
use crate::base::fault::Fault;
use crate::base::units::{Bytes, GIB, MIB, Seconds};
use crate::config::settings::TargetSettings;
use crate::daemon;
use crate::daemon::probing::INSPECT_DEADLINE;
use crate::host::roots::Roots;
use crate::model::job::{Backing, Job, Region, Run, Target, Task, WIRE_VERSION, What};
use crate::model::outcome::{Done, Inspection, Outcome, Reply};
use crate::model::path::DeclaredBacking;
use crate::schedule::turn::{Turn, TurnGuard};
use crate::worker::parent::ProcessRunner;
use crate::worker::{Ended, Runner, Stop};

/// A one-shot command waits this long for another loadline.
const TURN_WAIT: Duration = Duration::from_secs(30);
/// Opening, draining and flushing may take this long on top of the run, and of laying the file out.
const GRACE: Duration = Duration::from_secs(180);
const GIVE_BACK_DEADLINE: Duration = Duration::from_secs(60);
/// Slowest disk on which a file of any size is still laid out in time.
const LAYOUT_BYTES_PER_SECOND: f64 = 10e6;

/// Of the file that a command works on.
pub(super) const FILE_DEFAULT: Bytes = Bytes(512 * MIB);
/// Free space that a command by hand leaves.
pub(super) const RESERVE: Bytes = Bytes(256 * MIB);
/// More than this is written only with `--yes`.
pub(super) const WRITES_WITHOUT_ASKING: Bytes = Bytes(16 * GIB);

/// Runs jobs in workers, until it is stopped.
pub(super) struct Hand {
    runner: ProcessRunner,
    pub(super) roots: Roots,
    pub(super) stop: Stop,
}

impl Hand {
    pub(super) fn new(roots: Roots) -> Self {
        let runner = ProcessRunner::new(Arc::new(SystemClock));
        Self { runner, roots, stop: Stop::default() }
    }

    /// Ctrl-C and SIGTERM stop its workers from here on, and no longer end the command.
    pub(super) fn until_interrupted(roots: Roots) -> Result<Self, Failure> {
        Ok(Self { stop: stop_on_interrupt()?, ..Self::new(roots) })
    }

    pub(super) fn inspect(&self, target: &Target) -> Result<Inspection, Outcome> {
        let Roots { procfs, sysfs, rootfs } = self.roots.clone();
        let task = Task::Inspect { target: target.clone(), procfs, sysfs, rootfs };
        match self.ask((target, task), INSPECT_DEADLINE, &mut |_| {})? {
            Reply::Inspected(inspection) => Ok(*inspection),
            _ => Err(foreign_reply()),
        }
    }

    pub(super) fn run(&self, run: Run, on_event: &mut dyn FnMut(&What)) -> Outcome {
        let legs: f64 = run.legs.iter().map(|leg| leg.runtime.0 + leg.ramp.0).sum();
        let laid_out = match run.region {
            Region::Unnamed(bytes) => bytes,
            Region::Ballast(_) | Region::WholeDevice => Bytes(0),
        };
        let deadline = Seconds(legs).duration() + layout_time(laid_out) + GRACE;
        let target = run.target.clone();
        match self.ask((&target, Task::Run(run)), deadline, on_event) {
            Ok(Reply::Ran(outcome)) | Err(outcome) => outcome,
            Ok(_) => foreign_reply(),
        }
    }

    /// Lays out the declared file of a target, unless it is there. Stopped, it leaves nothing.
    pub(super) fn lay_out(
        &self,
        target: &Target,
        bytes: Bytes,
        on_event: &mut dyn FnMut(&What),
    ) -> Result<Bytes, Outcome> {
        let target_of_task = target.clone();
        let task = Task::LayOut { target: target_of_task, bytes, reserve: RESERVE, seed: seed() };
        match self.ask((target, task), layout_time(bytes) + GRACE, on_event)? {
            Reply::LaidOut { written } => Ok(written),
            _ => Err(foreign_reply()),
        }
    }

    /// Takes the declared file of a target away; what stops everything else doesn't stop this.
    pub(super) fn give_back(&self, target: &Target) -> Result<Bytes, Outcome> {
        let unstopped = Self::new(self.roots.clone());
        let task = Task::GiveBack { target: target.clone() };
        match unstopped.ask((target, task), GIVE_BACK_DEADLINE, &mut |_| {})? {
            Reply::GivenBack { freed } => Ok(freed),
            _ => Err(foreign_reply()),
        }
    }

    /// One job and what came of it; the outcome where that is no answer.
    fn ask(
        &self,
        (target, task): (&Target, Task),
        deadline: Duration,
        on_event: &mut dyn FnMut(&What),
    ) -> Result<Reply, Outcome> {
        let job = Job { v: WIRE_VERSION, polite: false, task };
        match self.runner.run(&job, deadline, &self.stop, on_event) {
            Ended::Replied(Reply::Skipped { skip, text }) => Err(Outcome::skipped(skip, text)),
            Ended::Replied(Reply::Failed(fault)) | Ended::Failed(fault) => Err(failed(fault)),
            Ended::Replied(reply) => Ok(reply),
            Ended::Hung(_) => Err(Outcome::Hung { text: daemon::targets::hung(&target.name).text }),
        }
    }
}

fn failed(fault: Fault) -> Outcome {
    Outcome::Failed { fault, partial: None }
}

fn foreign_reply() -> Outcome {
    failed(daemon::account::foreign_reply())
}

fn layout_time(bytes: Bytes) -> Duration {
    Seconds(bytes.0 as f64 / LAYOUT_BYTES_PER_SECOND).duration()
}

/// Another each time.
pub(super) fn seed() -> u64 {
    SystemClock.now().wall.as_nanos() as u64
}

/// Memory has no limit that anybody asks for.
pub(super) fn is_disk(name: &str, inspection: &Inspection) -> Result<(), String> {
    if inspection.backing == Backing::Memory {
        return Err(format!("{name} is memory, not a disk: choose another --target"));
    }
    Ok(())
}

/// What was measured, and why that isn't all, with what to do about it.
pub(super) fn parts(outcome: Outcome) -> (Option<Box<Done>>, Option<String>) {
    let with_advice = |text: String, advice: &str| match advice {
        "" => text,
        advice => format!("{text}\n{advice}"),
    };
    match outcome {
        Outcome::Done(done) => (Some(done), None),
        Outcome::Failed { fault, partial } => {
            (partial, Some(with_advice(fault.to_string(), fault.kind.advice())))
        }
        Outcome::Skipped { skip, text, partial } => {
            (partial, Some(with_advice(format!("{}: {text}", skip.label()), skip.advice())))
        }
        Outcome::Hung { text } => (None, Some(text)),
    }
}

/// A directory or raw device that was named on the command line: it may be written, awake or not.
pub(super) fn target_by_hand(
    path: &Path,
    backing: DeclaredBacking,
) -> Result<TargetSettings, Failure> {
    // Lexically: a call on the path could hang, and is the worker's to make.
    let path = std::path::absolute(path).context("the current directory")?;
    Ok(TargetSettings {
        name: path.display().to_string(),
        path,
        writes: Some(true),
        ballast: None,
        budget: Bytes(u64::MAX),
        wake: true,
        backing,
        shared: None,
        shared_hosts: Vec::new(),
        is_default: false,
    })
}

/// Where the turn's lock may lie when no runtime directory is to be had.
pub(super) fn state_directory() -> PathBuf {
    daemon::state::directory(|name| std::env::var(name).ok())
        .unwrap_or_else(|_| std::env::temp_dir())
}

/// The turn on this host; says for what it waits, and for how long at most.
pub(super) fn wait_for_turn(state: &Path, stop: &Stop) -> Result<TurnGuard, Failure> {
    let places = daemon::turn_places(state);
    let clock = SystemClock;
    let begun = clock.now();
    let mut said = false;
    loop {
        match Turn::try_take(&places).map_err(daemon::StartFault::Other)? {
            Turn::Mine(turn) => return Ok(turn),
            Turn::Theirs(holder) if stop.is_set() => {
                let text = format!("{holder}: interrupted");
                return Err(Failure { code: EXIT_FAULT, text });
            }
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

/// Ctrl-C and SIGTERM cancel the worker, which answers or is killed within seconds.
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
