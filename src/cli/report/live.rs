//! A report that measures: looks at each target, runs everything on it, and keeps what is known
//! wherever it is stopped.

use std::path::PathBuf;

use clap::Args;

use super::course::{Course, measure};
use super::peers::{Ground, Peer, find};
use super::plan::{self, Size};
use super::seen::{FILE_MIN, Seen};
use super::{Declared, Gathered, machine};
use crate::base::units::{Bytes, MIB, Seconds};
use crate::cli::hand::{self, Hand, WRITES_WITHOUT_ASKING};
use crate::cli::{CommonArguments, EXIT_USAGE, Failure};
use crate::config::settings::{Settings, TargetSettings};
use crate::daemon::{self, Options};

/// What a report measures now.
#[derive(Debug, Args)]
pub(super) struct Live {
    /// Directory to measure, or raw device to read; repeatable [default: the configured targets,
    /// else the current directory]
    #[arg(long, value_name = "DIR")]
    target: Vec<PathBuf>,
    /// Peer that runs iperf3 -s or a loadline, to fill the link to; repeatable. Alone it is all that
    /// is measured
    #[arg(long, value_name = "HOST[:PORT]")]
    peer: Vec<String>,
    /// About a minute a target: 3 s each, and at most 353 MiB written beside the file; the default,
    /// since it hurts nobody for long, and most limits show in it
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

/// Measures all targets. Only what makes a report impossible is a failure; the rest is in it.
pub(super) fn gather(live: Live, declared: Declared) -> Result<Gathered, Failure> {
    let state = hand::state_directory();
    let (settings, targets) = places(&live, &declared, state.clone())?;
    let size = Size { quick: !live.full, runtime: live.runtime };
    check(&live)?;
    let mut gathered = Gathered::default();
    let path = declared.path.unwrap_or_else(|| settings.path.clone());
    let ground = Ground::new(live.common.roots(), &settings, path);
    // Nothing stops a name service but the end of the process: until then Ctrl-C is left as it is.
    let peers = find(&live.peer, size, &ground, &mut gathered);
    let hand = Hand::until_interrupted(live.common.roots())?;
    let mut seen = Vec::new();
    for settings in targets {
        match Seen::look(&hand, settings, live.size) {
            Ok(found) => seen.push(found),
            Err(text) => gathered.fail(text),
        }
    }
    bound(&mut seen, &settings, (size, live.yes), &mut gathered)?;
    let places: Vec<_> = seen.iter().map(|place| (&place.settings, &place.inspection)).collect();
    gathered.about = machine::about(&hand.roots, &settings, &places, &ground.path);
    gathered.about.extend(peers.iter().map(Peer::about));
    if !seen.is_empty() || !peers.is_empty() {
        let turn = hand::wait_for_turn(&state, &hand.stop)?;
        measure(&hand, &Course { seen: &seen, peers: &peers }, &mut gathered);
        drop(turn);
    }
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
        true if is_configured || !live.peer.is_empty() => Vec::new(),
        true => here,
        false => live.target.clone(),
    };
    let mut targets: Vec<TargetSettings> = Vec::new();
    for path in &named {
        let typed = hand::target_by_hand(path, plan.settings.backing.clone())?;
        let known = plan.targets.iter().find(|target| is_configured && target.path == typed.path);
        // One that is named twice is measured once.
        if !targets.iter().any(|target| target.path == typed.path) {
            targets.push(known.cloned().unwrap_or(typed));
        }
    }
    if named.is_empty() && is_configured {
        let on_disks = plan.targets.iter().filter(|target| target.ceph.is_none());
        targets = on_disks.cloned().collect();
    }
    if let Some(backing) = &declared.backing {
        targets.iter_mut().for_each(|target| target.backing = backing.clone());
    }
    Ok((plan.settings.clone(), targets))
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
