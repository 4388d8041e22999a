//! `loadline clean`: gives back what loadline keeps on its targets.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::{CommonArguments, EXIT_FAULT, Failure};
use crate::base::clock::SystemClock;
use crate::daemon;
use crate::daemon::targets::target_of;
use crate::model::job::{Job, Task, WIRE_VERSION};
use crate::model::outcome::Reply;
use crate::worker::parent::ProcessRunner;
use crate::worker::{Ended, Runner, Stop};

const DEADLINE: Duration = Duration::from_secs(60);

pub(super) fn run(arguments: CommonArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let options = arguments.options(Vec::new())?;
    let (plan, _) = daemon::load(&options)?;
    let turn = super::probe::wait_for_turn(&options.state)?;
    let runner = ProcessRunner::new(Arc::new(SystemClock));
    let mut failed = None;
    for settings in &plan.targets {
        let job = Job {
            v: WIRE_VERSION,
            polite: false,
            task: Task::GiveBack { target: target_of(settings) },
        };
        let path = settings.path.display();
        let line = match runner.run(&job, DEADLINE, &Stop::default(), &mut |_| {}) {
            Ended::Replied(Reply::GivenBack { freed }) if freed.0 == 0 => {
                format!("{path}\tnothing to give back")
            }
            Ended::Replied(Reply::GivenBack { freed }) => format!("{path}\t{freed} given back"),
            Ended::Replied(Reply::Skipped { text, .. }) => {
                failed = Some(format!("{path}: {text}"));
                continue;
            }
            Ended::Replied(Reply::Failed(fault)) | Ended::Failed(fault) => {
                failed = Some(format!("{fault}\n{}", fault.kind.advice()));
                continue;
            }
            Ended::Replied(_) | Ended::Hung(_) => {
                failed = Some(format!("{path} does not answer"));
                continue;
            }
        };
        writeln!(out, "{line}").context("standard output")?;
    }
    drop(turn);
    failed.map_or(Ok(()), |text| Err(Failure { code: EXIT_FAULT, text }))
}
