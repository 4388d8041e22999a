//! `loadline probe disk`: one run by hand, through the same worker as the daemon's.

mod progress;
mod table;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::{EXIT_FAULT, EXIT_USAGE, Failure};
use crate::base::clock::{Clock, SystemClock};
use crate::base::units::{Bytes, MIB, Ratio, Seconds};
use crate::config::settings::TargetSettings;
use crate::daemon;
use crate::daemon::probing::INSPECT_DEADLINE;
use crate::daemon::targets::target_of;
use crate::host::roots::Roots;
use crate::model::job::{
    Access, Backing, EngineKind, Job, Place, Profile, Region, Run, Target, Task, WIRE_VERSION,
};
use crate::model::outcome::{Done, Inspection, Outcome, Reply};
use crate::probe::disk::{self, Preset};
use crate::schedule::turn::{Turn, TurnGuard};
use crate::worker::parent::ProcessRunner;
use crate::worker::{Ended, Runner, Stop};
use progress::Progress;

/// A one-shot command waits this long for another loadline.
const TURN_WAIT: Duration = Duration::from_secs(30);
const FILE_DEFAULT: Bytes = Bytes(512 * MIB);
/// More than this is written only with `--yes`.
const WRITES_WITHOUT_ASKING: Bytes = Bytes(16 << 30);
/// Laying the file out, opening, draining and flushing may take this long on top of the run.
const GRACE: Duration = Duration::from_secs(180);
/// Free space that a run by hand leaves.
const RESERVE: Bytes = Bytes(256 * MIB);

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum ProfileName {
    SeqRead,
    SeqWrite,
    RandRead,
    RandRw,
    RandWrite,
}

impl ProfileName {
    fn preset(self) -> Preset {
        match self {
            ProfileName::SeqRead => Preset::SeqRead,
            ProfileName::SeqWrite => Preset::SeqWrite,
            ProfileName::RandRead => Preset::RandRead,
            ProfileName::RandRw => Preset::RandRw,
            ProfileName::RandWrite => Preset::RandWrite,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum EngineName {
    IoUring,
    Threads,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Format {
    Table,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  loadline probe disk --target /srv --profile rand_rw
  loadline probe disk --target /srv --profile seq_read --runtime 10s --format json
  loadline probe disk --target /dev/disk/by-id/wwn-0x5000c500a1b2c3d4 --profile rand_read";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DiskArguments {
    /// Directory to work in through an unnamed file, or raw device to read [default: the current one]
    #[arg(long, value_name = "DIR", default_value = ".")]
    target: PathBuf,
    /// Shape of the workload
    #[arg(long, value_enum, default_value = "rand_read")]
    profile: ProfileName,
    /// Share of reads, 0 to 1
    #[arg(long, value_name = "SHARE")]
    reads: Option<f64>,
    /// Size of an operation, like 4k
    #[arg(long, value_name = "SIZE")]
    block_size: Option<Bytes>,
    /// Operations in flight per job
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// Independent jobs over parts of the file
    #[arg(long, value_name = "N")]
    jobs: Option<u32>,
    /// How long, like 10s [default: 60s]
    #[arg(long, value_name = "TIME")]
    runtime: Option<Seconds>,
    /// Time before that counts, like 2s
    #[arg(long, value_name = "TIME")]
    ramp: Option<Seconds>,
    /// Most bytes moved [default: 16GiB]
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Size of the unnamed file [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Run through the page cache where the file system knows no direct I/O
    #[arg(long)]
    buffered: bool,
    /// Forces an engine [default: the first that works]
    #[arg(long, value_enum)]
    engine: Option<EngineName>,
    /// Seed of offsets and data [default: another each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How to print the result
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Write more than 16 GiB without asking
    #[arg(long)]
    yes: bool,
}

pub(super) fn run(arguments: DiskArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let profile = profile(&arguments)?;
    let target = target(&arguments.target)?;
    let state = daemon::state::directory(|name| std::env::var(name).ok())
        .unwrap_or_else(|_| std::env::temp_dir());
    let runner = ProcessRunner::new(Arc::new(SystemClock));
    let stop = stop_on_interrupt()?;
    let inspection = inspect(&runner, &target, &stop)?;
    if inspection.backing == Backing::Memory && profile.direct {
        let text = format!("{} is memory, not a disk: choose another --target", target.name);
        return Err(Failure { code: EXIT_FAULT, text });
    }
    let progress = Progress::new(std::io::stderr().is_terminal(), &profile);
    progress.headline(&table::headline(&target, &inspection, &profile));
    let turn = wait_for_turn(&state)?;
    let run = Run {
        kind: disk::KIND.name.into(),
        region: match target.place {
            Place::Directory(_) => Region::Unnamed(arguments.size.unwrap_or(FILE_DEFAULT)),
            Place::Device(_) => Region::WholeDevice,
        },
        target,
        legs: vec![profile.clone()],
        engine: arguments.engine.map(|engine| match engine {
            EngineName::IoUring => EngineKind::IoUring,
            EngineName::Threads => EngineKind::Threads,
        }),
        seed: arguments.seed.unwrap_or_else(|| SystemClock.now().wall.as_nanos() as u64),
        devices: inspection.devices,
        reserve: RESERVE,
        procfs: Roots::default().procfs,
        quiet: Seconds(1.0),
    };
    let deadline = (profile.runtime.duration() + profile.ramp.duration()) + GRACE;
    let job = Job { v: WIRE_VERSION, polite: false, task: Task::Run(run) };
    let ended = runner.run(&job, deadline, &stop, &mut |what| progress.take(what));
    drop(turn);
    progress.end();
    print(ended, arguments.format, out)
}

/// The profile with what was asked for in its place.
fn profile(arguments: &DiskArguments) -> Result<Profile, Failure> {
    let usage = |text: String| Failure { code: EXIT_USAGE, text };
    let shape = disk::shape(arguments.profile.preset());
    let base =
        shape.legs.first().map(disk::full).ok_or_else(|| usage("an empty profile".into()))?;
    let reads = arguments.reads.map_or(base.reads, Ratio);
    let profile = Profile {
        reads,
        block: arguments.block_size.unwrap_or(base.block),
        depth: arguments.depth.unwrap_or(base.depth),
        jobs: arguments.jobs.unwrap_or(base.jobs),
        runtime: arguments.runtime.unwrap_or(base.runtime),
        ramp: arguments.ramp.unwrap_or(base.ramp),
        bytes_max: arguments.bytes.unwrap_or(base.bytes_max),
        flush: reads.0 < 1.0,
        direct: !arguments.buffered,
        ..base.clone()
    };
    let of = |p: &Profile| (p.access, p.reads, p.block);
    let custom = of(&profile) != of(&base);
    let profile = Profile { name: if custom { "custom".into() } else { base.name }, ..profile };
    disk::check(&profile)
        .map_err(|(key, text)| usage(format!("--{}: {text}", key.replace('_', "-"))))?;
    let writes = profile.written_bytes_max();
    if writes > WRITES_WITHOUT_ASKING && !arguments.yes {
        return Err(usage(format!("this may write {writes}: add --yes, or set --bytes")));
    }
    Ok(profile)
}

/// Sequential and random are words in the table.
fn access(access: Access) -> &'static str {
    match access {
        Access::Sequential => "sequential",
        Access::Random => "random",
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
    let (done, failure): (Option<Box<Done>>, Option<String>) = match outcome {
        Outcome::Done(done) => (Some(done), None),
        Outcome::Failed { fault, partial } => {
            (partial, Some(format!("{fault}\n{}", fault.kind.advice())))
        }
        Outcome::Skipped { skip, text, partial } => {
            (partial, Some(format!("{}: {text}", skip.label())))
        }
        Outcome::Hung { text } => (None, Some(text)),
    };
    if let Some(done) = done {
        let text = match format {
            Format::Table => table::results(&done),
            Format::Json => serde_json::to_string_pretty(&done).context("the result as JSON")?,
        };
        writeln!(out, "{text}").context("standard output")?;
    }
    failure.map_or(Ok(()), |text| Err(Failure { code: EXIT_FAULT, text }))
}
