//! A report that measures: looks at each target, runs everything on it, and keeps what is known
//! wherever it is stopped.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;

use super::plan::{self, Planned, Size};
use super::whole::Whole;
use super::{Declared, Gathered, machine};
use crate::base::units::{Bytes, MIB, Seconds};
use crate::cli::hand::{self, FILE_DEFAULT, Hand, RESERVE, WRITES_WITHOUT_ASKING};
use crate::cli::{CommonArguments, EXIT_USAGE, Failure};
use crate::config::settings::{Settings, TargetSettings};
use crate::daemon::{self, Options, targets::target_of};
use crate::judge::facts::Run as Judgeable;
use crate::judge::from_outcome::{self, Place};
use crate::model::job::{Backing, Place as JobPlace, Region, Run, Target};
use crate::model::outcome::{Done, Inspection, Outcome, Skip};
use crate::model::path::DeclaredPath;
use crate::publish::report::Curve;
use crate::schedule::writes::may_write;

/// A smaller file is soon all in some cache.
const FILE_MIN: Bytes = Bytes(64 * MIB);
/// A part of a run that lasted so long is a result.
const RESULT_SECONDS_MIN: f64 = 1.0;

/// What a report measures now.
#[derive(Debug, Args)]
pub(super) struct Live {
    /// Directory to measure, or raw device to read; repeatable [default: the configured targets,
    /// else the current directory]
    #[arg(long, value_name = "DIR")]
    target: Vec<PathBuf>,
    /// Peer to fill the link to
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(super) peer: Vec<String>,
    /// About a minute a target: 3 s and at most 352 MiB of writes, as the daemon runs them; the
    /// default, since it can be run beside other work, and most limits show in it
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// About six minutes a target: 60 s each, as fio would, and at most 16 GiB of writes in all;
    /// shows what outlasts credits and caches
    #[arg(long)]
    full: bool,
    /// Time of each profile, in place of 3 s or 60 s
    #[arg(long, value_name = "TIME")]
    runtime: Option<Seconds>,
    /// Size of the file that a directory is measured through [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Write more than 16 GiB without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: CommonArguments,
}

/// A target that answered.
struct Seen {
    settings: TargetSettings,
    target: Target,
    inspection: Inspection,
    /// Of the declared file: as it is there, or as it will be laid out; 0 for a raw device.
    file: Bytes,
    runs: Vec<Planned>,
}

/// Measures all targets. Only what makes a report impossible is a failure; the rest is in it.
pub(super) fn gather(live: Live, declared: Declared) -> Result<Gathered, Failure> {
    let state = hand::state_directory();
    let (settings, targets) = places(&live, &declared, state.clone())?;
    let size = Size { quick: !live.full, runtime: live.runtime };
    check(&live)?;
    let hand = Hand::until_interrupted(live.common.roots())?;
    let mut gathered = Gathered::default();
    let mut seen = Vec::new();
    for settings in targets {
        match look(&hand, &live, &settings) {
            Ok(found) => seen.push(found),
            Err(text) => gathered.fail(text),
        }
    }
    bound(&mut seen, &settings, (size, live.yes), &mut gathered)?;
    let path = declared.path.unwrap_or_else(|| settings.path.clone());
    gathered.about = about(&hand, &settings, &seen, &path);
    if seen.is_empty() {
        return Ok(gathered);
    }
    let turn = hand::wait_for_turn(&state)?;
    measure(&hand, &seen, &mut gathered);
    drop(turn);
    Ok(gathered)
}

fn check(live: &Live) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure { code: EXIT_USAGE, text: text.into() });
    if live.runtime.is_some_and(|time| !(1.0..=3600.0).contains(&time.0)) {
        return usage("--runtime: 1s to 1h");
    }
    if live.size.is_some_and(|size| size < FILE_MIN) {
        return usage("--size: at least 64MiB, or a cache holds it all");
    }
    Ok(())
}

/// What is configured, and the targets to measure: named ones, else configured ones, else the
/// current directory.
fn places(
    live: &Live,
    declared: &Declared,
    state: PathBuf,
) -> Result<(Settings, Vec<TargetSettings>), Failure> {
    let config = live.common.config.clone();
    let is_configured = config.is_some();
    let options = Options { config, listen: Vec::new(), roots: live.common.roots(), state };
    let (plan, _) = daemon::load(&options)?;
    let here = vec![PathBuf::from(".")];
    let named = match live.target.is_empty() {
        true if is_configured => Vec::new(),
        true => here,
        false => live.target.clone(),
    };
    let mut targets = Vec::new();
    for path in &named {
        let known = plan.targets.iter().find(|target| is_configured && target.path == *path);
        targets.push(match known {
            Some(known) => known.clone(),
            None => hand::target_by_hand(path, plan.settings.backing.clone())?,
        });
    }
    if named.is_empty() {
        targets.clone_from(&plan.targets);
    }
    if let Some(backing) = &declared.backing {
        targets.iter_mut().for_each(|target| target.backing = backing.clone());
    }
    Ok((plan.settings.clone(), targets))
}

/// What is there, or why it can't be measured.
fn look(hand: &Hand, live: &Live, settings: &TargetSettings) -> Result<Seen, String> {
    let target = target_of(settings);
    let inspection =
        hand.inspect(&target).map_err(|outcome| hand::parts(outcome).1.unwrap_or_default())?;
    let name = &settings.name;
    if inspection.backing == Backing::Memory {
        return Err(format!("{name} is memory, not a disk: choose another --target"));
    }
    let file = match target.place {
        JobPlace::Device(_) => Bytes(0),
        JobPlace::Directory(_) => file_size(live.size, &inspection)
            .ok_or_else(|| format!("{name}: {} free is too little", inspection.available))?,
    };
    Ok(Seen { settings: settings.clone(), target, inspection, file, runs: Vec::new() })
}

/// The file that is there, else one that leaves the reserve.
fn file_size(asked: Option<Bytes>, inspection: &Inspection) -> Option<Bytes> {
    if let Some(there) = inspection.ballast.filter(|there| *there >= FILE_MIN) {
        return Some(there);
    }
    let room = inspection.available.0.saturating_sub(RESERVE.0) / MIB * MIB;
    let size = asked.unwrap_or(FILE_DEFAULT.min(Bytes(room)));
    (FILE_MIN..=Bytes(room)).contains(&size).then_some(size)
}

/// Plans the runs on each target; what may not be written is left out and said.
fn bound(
    seen: &mut [Seen],
    settings: &Settings,
    (size, yes): (Size, bool),
    gathered: &mut Gathered,
) -> Result<(), Failure> {
    let laid_out = Bytes(seen.iter().map(Seen::laid_out).sum());
    let share = match yes {
        true => Bytes(u64::MAX),
        false => plan::share(WRITES_WITHOUT_ASKING, laid_out, seen.len() as u64),
    };
    if share < Bytes(MIB) {
        let text = format!("laying out files alone would write {laid_out}: add --yes");
        return Err(Failure { code: EXIT_USAGE, text });
    }
    for place in seen {
        let runs = plan::runs(size, share)?;
        let why_not = place.why_not_written(settings);
        let (run, left_out): (Vec<_>, Vec<_>) =
            runs.into_iter().partition(|run| why_not.is_none() || !run.writes_anything());
        place.runs = run;
        if let Some(why) = why_not {
            let names: Vec<&str> = left_out.iter().map(|run| run.name).collect();
            gathered.skipped.push(format!("{}: {why}", names.join(", ")));
        }
    }
    Ok(())
}

impl Seen {
    /// Bytes that are written before the first run.
    fn laid_out(&self) -> u64 {
        if self.inspection.ballast == Some(self.file) { 0 } else { self.file.0 }
    }

    fn why_not_written(&self, settings: &Settings) -> Option<String> {
        let name = &self.settings.name;
        if matches!(self.target.place, JobPlace::Device(_)) {
            return Some(format!("{name} is a raw device, which is only read"));
        }
        if self.inspection.read_only {
            return Some(format!("{name} is mounted read-only"));
        }
        (!may_write(&self.settings, &self.inspection, &settings.sample.disks))
            .then(|| format!("{name} may not be written ({})", self.inspection.filesystem))
    }

    fn time(&self) -> f64 {
        let runs: f64 = self.runs.iter().map(|run| run.time().0).sum();
        plan::layout_time(Bytes(self.laid_out())).0 + runs
    }

    fn run_of(&self, planned: &Planned, hand: &Hand) -> Run {
        Run {
            kind: planned.kind.into(),
            target: self.target.clone(),
            region: match self.target.place {
                JobPlace::Directory(_) => Region::Ballast(self.file),
                JobPlace::Device(_) => Region::WholeDevice,
            },
            legs: planned.legs.clone(),
            engine: None,
            seed: hand::seed(),
            devices: self.inspection.devices.clone(),
            top: self.inspection.top.clone(),
            reserve: RESERVE,
            procfs: hand.roots.procfs.clone(),
            quiet: planned.quiet,
        }
    }

    /// What a judge is given of a run.
    fn judgeable(&self, planned: &Planned, name: &str, done: &Done) -> Option<Judgeable> {
        let place = Place {
            inspection: Some(&self.inspection),
            devices: &self.inspection.devices,
            backing: &self.settings.backing,
        };
        let mut facts = from_outcome::storage(done, &place)?;
        facts.place = Some(self.settings.name.clone());
        Some(Judgeable {
            name: name.to_owned(),
            kind: planned.kind.into(),
            profile: Some(planned.profile.clone()),
            facts,
        })
    }
}

/// The head of the report, which is also what is said before the first run.
fn about(
    hand: &Hand,
    settings: &Settings,
    seen: &[Seen],
    path: &DeclaredPath,
) -> Vec<(String, String)> {
    let places: Vec<_> = seen.iter().map(|place| (&place.settings, &place.inspection)).collect();
    machine::about(&hand.roots, settings, &places, path)
}

fn measure(hand: &Hand, seen: &[Seen], gathered: &mut Gathered) {
    let count: usize = seen.iter().map(|place| place.runs.len()).sum();
    let time = Seconds(seen.iter().map(Seen::time).sum());
    let mut whole = Whole::new(std::io::stderr().is_terminal(), time, count);
    whole.say(&estimate(seen, time, count));
    for place in seen {
        // With one target nobody asks which.
        let on =
            if seen.len() > 1 { format!(" on {}", place.settings.name) } else { String::new() };
        on_target(hand, (place, &on), &mut whole, gathered);
    }
    whole.end();
    if hand.stop.is_set() {
        gathered
            .failed
            .push(format!("interrupted: {} of {count} runs came to their end", whole.whole));
    }
}

/// `16 runs on /srv, /var: about 2m 20s, at most 1.7 GiB written`.
fn estimate(seen: &[Seen], time: Seconds, count: usize) -> String {
    let names: Vec<&str> = seen.iter().map(|place| place.settings.name.as_str()).collect();
    let of_runs = seen.iter().flat_map(|place| &place.runs);
    let runs: u64 = of_runs.map(|run| run.written_bytes_max().0).sum();
    let laid_out: u64 = seen.iter().map(Seen::laid_out).sum();
    let rounded = Seconds((time.0 / 5.0).ceil() * 5.0).duration();
    format!(
        "{count} runs on {}: about {}, at most {} written",
        names.join(", "),
        humantime::format_duration(rounded),
        Bytes(runs + laid_out)
    )
}

/// Lays the file out where there is none, runs everything on it, and takes it away again.
fn on_target(hand: &Hand, (place, on): (&Seen, &str), whole: &mut Whole, gathered: &mut Gathered) {
    let lays_out = place.laid_out() > 0;
    if lays_out && !hand.stop.is_set() {
        let laid_out = hand.lay_out(&place.target, place.file, &mut |what| whole.take(what));
        if let Err(outcome) = laid_out {
            gathered.missed(&format!("everything{on}"), &outcome);
        } else {
            whole.passed(plan::layout_time(place.file));
            all_runs(hand, (place, on), whole, gathered);
        }
        if let Err(outcome) = hand.give_back(&place.target) {
            gathered.fail(hand::parts(outcome).1.unwrap_or_default());
        }
    } else {
        all_runs(hand, (place, on), whole, gathered);
    }
}

fn all_runs(hand: &Hand, (place, on): (&Seen, &str), whole: &mut Whole, gathered: &mut Gathered) {
    let mut waiting = place.runs.iter();
    for planned in waiting.by_ref() {
        if hand.stop.is_set() {
            gathered.skipped.push(format!("{}{on}: interrupted before it began", planned.name));
            continue;
        }
        let name = format!("{}{on}", planned.name);
        whole.begin(&name, planned);
        let run = place.run_of(planned, hand);
        let outcome = hand.run(run, &mut |what| whole.take(what));
        let known = match &outcome {
            Outcome::Done(done) => Some(done),
            Outcome::Failed { partial, .. } | Outcome::Skipped { partial, .. } => partial
                .as_ref()
                .filter(|part| part.legs.first().is_some_and(|leg| is_a_result(leg.elapsed))),
            Outcome::Hung { .. } => None,
        };
        let run = known.and_then(|done| place.judgeable(planned, &name, done));
        whole.done(&name, run.as_ref(), matches!(outcome, Outcome::Done(_)));
        gathered.runs.extend(run);
        gathered.curves.extend(known.and_then(|done| curve(&name, done)));
        if !matches!(outcome, Outcome::Done(_)) {
            gathered.missed(&name, &outcome);
        }
        if matches!(outcome, Outcome::Hung { .. }) {
            break;
        }
    }
    gathered.skipped.extend(waiting.map(|run| format!("{}{on}: the target hangs", run.name)));
}

fn curve(name: &str, done: &Done) -> Option<Curve> {
    let knee = done.knee.as_ref()?;
    Some(Curve { name: name.into(), rungs: knee.rungs.clone(), knee: Some(knee.depth) })
}

fn is_a_result(elapsed: Seconds) -> bool {
    elapsed.0 >= RESULT_SECONDS_MIN
}

impl Gathered {
    /// A run without its whole result: skipped is no fault, all else is.
    fn missed(&mut self, name: &str, outcome: &Outcome) {
        let text = match outcome {
            Outcome::Done(_) => return,
            Outcome::Skipped { skip: Skip::Stopped, partial: Some(_), .. } => {
                format!("{name} to its end: interrupted")
            }
            Outcome::Skipped { skip: Skip::Stopped, .. } => format!("{name}: interrupted"),
            Outcome::Skipped { skip, text, .. } => format!("{name}: {}: {text}", skip.label()),
            Outcome::Failed { fault, .. } => format!("{name}: {fault}"),
            Outcome::Hung { text } => format!("{name}: {text}"),
        };
        if !matches!(outcome, Outcome::Skipped { .. }) {
            self.failed.push(text.clone());
        }
        self.skipped.push(text);
    }

    /// Something that was asked for is not to be had.
    fn fail(&mut self, text: String) {
        let first_line = text.lines().next().unwrap_or_default().to_owned();
        self.skipped.push(first_line);
        self.failed.push(text);
    }
}
