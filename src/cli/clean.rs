//! `loadline clean`: gives back what loadline keeps on its targets.

use std::io::Write;

use anyhow::Context;

use super::hand::{self, Hand};
use super::{CommonArguments, EXIT_FAULT, Failure};
use crate::daemon;
use crate::daemon::targets::target_of;
use crate::model::job::Place;

pub(super) fn run(arguments: CommonArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let options = arguments.options(Vec::new())?;
    let (plan, _) = daemon::load(&options)?;
    let hand = Hand::new(options.roots);
    let turn = hand::wait_for_turn(&options.state, &hand.stop)?;
    let mut failed = None;
    for settings in plan.targets.iter().filter(|target| target.ceph.is_none()) {
        let path = settings.path.display();
        let target = target_of(settings);
        // Nothing is ever kept on a device, which may not even be ours to open.
        if matches!(target.place, Place::Device(_)) {
            continue;
        }
        let line = match hand.give_back(&target) {
            Ok(freed) if freed.0 == 0 => format!("{path}\tnothing to give back"),
            Ok(freed) => format!("{path}\t{freed} given back"),
            Err(outcome) => {
                failed = hand::parts(outcome).1;
                continue;
            }
        };
        writeln!(out, "{line}").context("standard output")?;
    }
    drop(turn);
    failed.map_or(Ok(()), |text| Err(Failure { code: EXIT_FAULT, text }))
}
