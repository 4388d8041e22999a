//! `loadline probe oltp`: the OLTP workload by hand, with pblio's flags, its last line and its data
//! file; or a search for the highest rate under a limit.

mod arguments;
mod data;
mod print;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use self::data::DataFile;
use super::failure;
use crate::base::units::{Bytes, Seconds};
use crate::cli::hand::{self, FILE_DEFAULT, Hand, RESERVE, WRITES_WITHOUT_ASKING};
use crate::cli::progress::Progress;
use crate::cli::{EXIT_FAULT, EXIT_USAGE, Failure};
use crate::daemon::targets::target_of;
use crate::host::roots::Roots;
use crate::model::job::{Backing, Profile, Region, Run, Target, What};
use crate::model::oltp::{BSU_OPERATIONS, Load, MEAN_BYTES, Oltp};
use crate::model::outcome::{Inspection, Outcome};
use crate::probe::oltp;
pub(in crate::cli) use arguments::{OltpArguments, go_flags};

/// More than the bytes that a load moves by its mean.
const BYTES_MARGIN: f64 = 1.25;
/// Share of bytes that are written, at most, of any variant.
const WRITTEN_SHARE: f64 = 0.667;

pub(in crate::cli) fn run(arguments: OltpArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let leg = leg(&arguments)?;
    let places = places(&arguments, &leg)?;
    let mut data = arguments.data.as_deref().map(DataFile::create).transpose()?;
    let hand = Hand::until_interrupted(Roots::default())?;
    let (target, inspection) = inspected(&hand, &places)?;
    if inspection.backing == Backing::Memory && leg.direct {
        let text = format!("{} is memory, not a disk: choose another place", target.name);
        return Err(Failure { code: EXIT_FAULT, text });
    }
    let is_search = leg.oltp.as_ref().is_some_and(|o| matches!(o.load, Load::Search { .. }));
    let planned = if is_search { Vec::new() } else { vec![leg.clone()] };
    let progress = Progress::new(std::io::stderr().is_terminal(), &planned);
    for line in print::headlines(&target, &inspection, &leg) {
        progress.headline(&line);
    }
    let turn = hand::wait_for_turn(&hand::state_directory(), &hand.stop)?;
    let run = run_of(&arguments, leg, (target, inspection));
    let mut wrong = None;
    let text = arguments.format.is_text();
    let outcome = hand.run(run, &mut |what| {
        progress.take(what);
        let said = match what {
            What::Counts { elapsed, counts } => {
                let line = data.as_mut().map(|data| data.add(counts));
                let shown = text.then(|| writeln!(out, "{}", print::so_far(*elapsed, counts)));
                line.unwrap_or(Ok(())).and(shown.unwrap_or(Ok(())))
            }
            What::Step { step } => {
                progress.headline(&print::step(step));
                Ok(())
            }
            _ => Ok(()),
        };
        wrong = wrong.take().or(said.err());
    });
    drop(turn);
    progress.end();
    end((outcome, arguments.format), data, out)?;
    wrong.map_or(Ok(()), |error| Err(anyhow::Error::from(error).context("output").into()))
}

fn end(
    (outcome, format): (Outcome, arguments::Format),
    data: Option<DataFile>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (done, failure) = hand::parts(outcome);
    if let Some(done) = done {
        if let (Some(mut data), Some(oltp)) = (data, &done.oltp) {
            data.add(&data::counts_of(&oltp.asus)).context("the data file")?;
        }
        writeln!(out, "{}", print::shown(&done, format)?).context("standard output")?;
    }
    failure.map_or(Ok(()), |text| Err(Failure { code: EXIT_FAULT, text }))
}

fn usage(text: impl Into<String>) -> Failure {
    Failure { code: EXIT_USAGE, text: text.into() }
}

/// What is asked for, within its bounds.
fn leg(arguments: &OltpArguments) -> Result<Profile, Failure> {
    arguments.refuse_what_is_of_the_cache()?;
    let load = match (arguments.search, arguments.bsu) {
        (true, _) => Load::Search { limit: arguments.limit.unwrap_or(Seconds(0.03)) },
        (false, bsu) => Load::Bsu(bsu.unwrap_or(50)),
    };
    let absolute = |files: &[PathBuf]| files.iter().map(std::path::absolute).collect();
    let [one, two, three] = [&arguments.asu1, &arguments.asu2, &arguments.asu3]
        .map(|files| -> std::io::Result<Vec<PathBuf>> { absolute(files) });
    let asus = [one, two, three];
    let asus: Result<Vec<_>, _> = asus.into_iter().collect();
    let asus = asus.context("the current directory")?.try_into().unwrap_or_default();
    let workload = Oltp {
        asus,
        contexts: arguments.contexts,
        overwrite: arguments.yes,
        counts_every: (!arguments.search).then_some(Seconds(arguments.dataperiod.0.max(0.1))),
        ..Oltp::of_region(arguments.variant.variant(), load)
    };
    let runtime = arguments.runlen.unwrap_or(Seconds(300.0));
    let ramp = arguments.ramp.unwrap_or_default();
    let by_load = match load {
        Load::Bsu(bsu) => {
            let operations = f64::from(bsu) * BSU_OPERATIONS * (runtime.0 + ramp.0);
            // `as` saturates.
            Bytes((operations * MEAN_BYTES * BYTES_MARGIN) as u64 + FILE_DEFAULT.0)
        }
        Load::Search { .. } => WRITES_WITHOUT_ASKING,
    };
    let leg = Profile {
        runtime,
        ramp,
        bytes_max: arguments.bytes.unwrap_or(by_load),
        direct: arguments.directio.unwrap_or(true),
        ..oltp::profile(workload)
    };
    oltp::check(&leg).map_err(|(key, text)| {
        let flag = if key == "runtime" { "runlen" } else { key };
        usage(format!("--{flag}: {text}"))
    })?;
    let written = Bytes((leg.bytes_max.0 as f64 * WRITTEN_SHARE / BYTES_MARGIN) as u64);
    if written > WRITES_WITHOUT_ASKING && !arguments.yes {
        let text = format!("this writes {written}: add --yes, or bound it with --bytes");
        return Err(usage(text));
    }
    Ok(leg)
}

/// Directories that are looked at: those of the files, or the target itself.
fn places(arguments: &OltpArguments, leg: &Profile) -> Result<Vec<PathBuf>, Failure> {
    let Some(oltp) = leg.oltp.as_ref().filter(|oltp| oltp.has_files()) else {
        return Ok(vec![arguments.target.clone()]);
    };
    let mut places: Vec<PathBuf> = Vec::new();
    for file in oltp.files() {
        // Lexically: a look at it could hang. The worker looks before it opens anything.
        if file.starts_with("/dev") && !file.starts_with("/dev/shm") {
            let text = format!("{}: nothing is written to devices: name files", file.display());
            return Err(usage(text));
        }
        let parent = file.parent().unwrap_or(Path::new("/"));
        if !places.iter().any(|place| place == parent) {
            places.push(parent.into());
        }
    }
    Ok(places)
}

/// The first place as the target, with the disks under all of them.
fn inspected(hand: &Hand, places: &[PathBuf]) -> Result<(Target, Inspection), Failure> {
    let mut whole: Option<(Target, Inspection)> = None;
    for place in places {
        let target = target_of(&hand::target_by_hand(place, Default::default())?);
        let inspection = hand.inspect(&target).map_err(failure)?;
        let Some((_, all)) = &mut whole else {
            whole = Some((target, inspection));
            continue;
        };
        for (mine, more) in [(&mut all.devices, inspection.devices), (&mut all.top, inspection.top)]
        {
            for device in more {
                if !mine.iter().any(|known| known.name == device.name) {
                    mine.push(device);
                }
            }
        }
    }
    whole.ok_or_else(|| usage("--target: no place to work in"))
}

fn run_of(
    arguments: &OltpArguments,
    leg: Profile,
    (target, inspection): (Target, Inspection),
) -> Run {
    Run {
        kind: oltp::KIND.name.into(),
        region: Region::Unnamed(arguments.size.unwrap_or(FILE_DEFAULT)),
        target,
        legs: vec![leg],
        engine: arguments.engine.map(|engine| engine.kind()),
        seed: arguments.seed.unwrap_or_else(hand::seed),
        devices: inspection.devices,
        top: inspection.top,
        reserve: RESERVE,
        procfs: Roots::default().procfs,
        quiet: Seconds(1.0),
    }
}
