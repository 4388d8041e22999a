//! Scenarios whose limit is known by construction: each makes its ground, lets the real worker run
//! on it, and compares the verdict with the truth. `--repeat 5` or `LOADLINE_REPEAT=5` repeats all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::too_many_arguments,
    unreachable_pub,
    reason = "tests"
)]

mod disks;
#[path = "../fio.rs"]
mod fio;
#[allow(dead_code, reason = "shared with the end-to-end tests, which use more of it")]
#[path = "../../e2e/harness.rs"]
mod harness;
#[path = "../hosts.rs"]
pub mod hosts;
mod layers;
mod links;
mod matrix;
mod measure;
#[allow(dead_code, reason = "shared with the lab, which tests it")]
#[path = "../model.rs"]
pub mod model;
mod network;
#[allow(dead_code, reason = "shared with the lab, which uses more of it")]
#[path = "../physics.rs"]
pub mod physics;
mod place;
mod throttles;
#[allow(dead_code, reason = "shared with the ground tests, which use more of it")]
#[path = "../../ground/volume.rs"]
mod volume;

use libtest_mimic::{Arguments, Failed, Trial};

use loadline::model::verdict::Limit;
use measure::Sight;

/// One limit that is known, and how to come by it.
pub struct Scenario {
    pub name: &'static str,
    /// The first is what it is; others are said as rightly where the host makes it so.
    pub truth: &'static [Limit],
    /// Takes too long for every day.
    pub slow: bool,
    /// Programs, and files or directories by their whole path.
    pub needs: &'static [&'static str],
    /// Makes the ground, measures there, and takes all away again. The number is a seed.
    pub look: fn(u64) -> Sight,
}

impl Scenario {
    pub const fn new(name: &'static str, truth: &'static [Limit], look: fn(u64) -> Sight) -> Self {
        Self { name, truth, slow: false, needs: &[], look }
    }

    pub const fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    pub const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    fn cannot_run(&self, full: bool) -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("needs root".into());
        }
        if self.slow && !full {
            return Some("takes long: TIER=full runs it".into());
        }
        let needs = ["/dev/fuse", "/dev/loop-control", "losetup"].iter().chain(self.needs);
        let missing = |need: &&&str| match need.starts_with('/') {
            true => !std::path::Path::new(need).exists(),
            false => !harness::installed(need),
        };
        needs.into_iter().find(missing).map(|need| format!("no {need} here"))
    }

    fn trial(&'static self, repeat: u64, full: bool) -> Trial {
        if let Some(reason) = self.cannot_run(full) {
            return Trial::test(self.name, || Ok(()))
                .with_kind(format!("skipped: {reason}"))
                .with_ignored_flag(true);
        }
        Trial::test(self.name, move || {
            (1..=repeat).try_for_each(|seed| match std::panic::catch_unwind(|| self.try_at(seed)) {
                Ok(result) => result.map_err(Failed::from),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()));
                    Err(Failed::from(text.unwrap_or_else(|| "panicked".into())))
                }
            })
        })
    }

    /// One repetition; once more where the host's CPUs, which others use too, were not there for the
    /// model of the disk.
    fn try_at(&self, seed: u64) -> Result<(), String> {
        let begun = std::time::Instant::now();
        let mut row = matrix::Row::of(self, (self.look)(seed));
        if row.wrong().is_some() && row.was_crowded() {
            println!("{}: again, as others used the CPUs: {}", self.name, row.describe());
            row = matrix::Row::of(self, (self.look)(seed + 1000));
        }
        println!("{} in {:.1?}: {}", self.name, begun.elapsed(), row.describe());
        if row.is_moot() {
            println!("{}: not counted: others held the run back above its disk", self.name);
            matrix::set_aside();
            return Ok(());
        }
        let wrong = row.wrong();
        matrix::add(row);
        wrong.map_or(Ok(()), Err)
    }
}

/// With `TIER=full`, unless told otherwise.
const REPEAT_FULL: u64 = 5;

/// Takes `--repeat N` out of the arguments, which the test library doesn't know.
fn arguments(full: bool) -> (Arguments, u64) {
    let mut words: Vec<String> = std::env::args().collect();
    let at = words.iter().position(|word| word == "--repeat");
    let asked = at.map(|at| words.drain(at..(at + 2).min(words.len())).nth(1));
    let number = |text: String| text.parse().ok();
    let everywhere = || std::env::var("LOADLINE_REPEAT").ok().and_then(number);
    let least = if full { REPEAT_FULL } else { 1 };
    let repeat = asked.flatten().and_then(number);
    let repeat = repeat.unwrap_or_else(|| everywhere().unwrap_or(1).max(least));
    (Arguments::from_iter(words), repeat)
}

fn main() {
    let full = std::env::var("TIER").is_ok_and(|tier| tier == "full");
    let (mut arguments, repeat) = arguments(full);
    // The models of disks answer in time, whatever else this host does; what is started inherits it.
    let _ = rustix::process::setpriority_process(None, -15);
    // One disk at a time: they share the CPUs that make them what they are.
    arguments.test_threads = Some(1);
    let lists = [
        disks::SCENARIOS,
        throttles::SCENARIOS,
        layers::SCENARIOS,
        network::SCENARIOS,
        links::SCENARIOS,
    ];
    let trials = lists.into_iter().flatten().map(|one| one.trial(repeat, full)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let kept = matrix::conclude();
    if !kept {
        std::process::exit(1);
    }
    conclusion.exit();
}
