//! The calls into the floors below that the workloads and the topology answer.

use std::path::Path;

use super::desk::Desk;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Bytes;
use crate::model::job::{Run, Target, Task};
use crate::model::outcome::{Inspection, Outcome, Reply};

fn unsupported() -> Fault {
    Fault::new(FaultKind::Unsupported, "worker: this build has no workloads")
}

pub(super) fn lay_out(_task: &Task, _desk: &Desk) -> Reply {
    Reply::Failed(unsupported())
}

pub(super) fn run(_run: &Run, _desk: &Desk) -> Outcome {
    Outcome::Failed { fault: unsupported(), partial: None }
}

pub(super) fn give_back(_target: &Target, _desk: &Desk) -> Reply {
    Reply::Failed(unsupported())
}

/// Fills in where the target lies and what is under it.
pub(super) fn resolve(
    _path: &Path,
    _device: (u32, u32),
    _found: &mut Inspection,
) -> Result<(), Fault> {
    Ok(())
}

pub(super) fn ballast_size(_directory: &Path) -> Option<Bytes> {
    None
}
