//! The calls into the floors below: workloads, probe kinds, topology.

use std::path::Path;
use std::sync::Arc;

use super::desk::Desk;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Bytes;
use crate::host::roots::Roots;
use crate::host::topology;
use crate::model::job::{Place, Run, Target, Task, What};
use crate::model::outcome::{Inspection, Outcome, Reply};
use crate::probe;
use crate::workload::ballast::{self, Layout};
use crate::workload::{Halt, Live, Watch, ground};

impl Watch for Desk {
    fn stopped(&self) -> bool {
        Desk::stopped(self)
    }

    fn event(&self, what: What) {
        Desk::event(self, what);
    }

    fn live(&self) -> &Live {
        &self.live
    }
}

pub(super) fn lay_out(task: &Task, desk: &Desk) -> Reply {
    let Task::LayOut { target, bytes, reserve, seed } = task else {
        return Reply::Failed(Fault::new(FaultKind::Internal, "worker: not a layout"));
    };
    let layout = Layout { bytes: *bytes, reserve: *reserve, seed: *seed };
    ground::hold(target)
        .and_then(|held| ballast::lay_out(&held, &layout, desk))
        .map_or_else(Halt::reply, |written| Reply::LaidOut { written })
}

pub(super) fn run(run: &Run, desk: &Desk) -> Outcome {
    let live = Arc::clone(&desk.live);
    desk.show(move || live.progress());
    match probe::kind(&run.kind) {
        Some(kind) => (kind.run)(run, desk),
        None => {
            let text = format!("worker: no probe kind `{}`", run.kind);
            Outcome::failed(FaultKind::Unsupported, text)
        }
    }
}

pub(super) fn give_back(target: &Target) -> Reply {
    ground::hold(target)
        .and_then(|held| ballast::give_back(&held))
        .map_or_else(Halt::reply, |freed| Reply::GivenBack { freed })
}

/// Fills in where the target lies and what is under it; `device` is its device number, or its own.
pub(super) fn resolve(
    place: &Place,
    device: (u32, u32),
    roots: &Roots,
    found: &mut Inspection,
) -> Result<(), Fault> {
    let number = rustix::fs::makedev(device.0, device.1);
    let Place::Directory(path) = place else {
        let leaves = topology::under_node(roots, number);
        found.source = place.path().display().to_string();
        (found.backing, found.devices) = (leaves.backing, leaves.devices);
        return Ok(());
    };
    let path = std::fs::canonicalize(path).map_err(|e| Fault::os(path.display(), &e))?;
    let resolved = topology::resolve(roots, &path, Some(number))?;
    found.mount_point = resolved.mount_point;
    found.filesystem = resolved.filesystem;
    found.source = resolved.source;
    found.backing = resolved.backing;
    found.copy_on_write = resolved.copy_on_write;
    found.read_only |= resolved.read_only;
    found.devices = resolved.devices;
    Ok(())
}

pub(super) fn ballast_size(directory: &Path) -> Option<Bytes> {
    ballast::size(directory)
}
