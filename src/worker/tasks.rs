//! The tasks of a worker: what each needs to be allowed, and who carries it out.

use std::path::{Path, PathBuf};

use super::desk::Desk;
use super::{inspect, save};
use crate::base::fault::{Fault, FaultKind};
use crate::ceph::command::Client;
use crate::ceph::{settings, survey};
use crate::host::roots::Roots;
use crate::host::sandbox::Needs;
use crate::model::job::{Job, Place, Run, Target, Task};
use crate::model::outcome::{Outcome, Reply};
use crate::probe;
use crate::workload::ballast::{Layout, give_back, lay_out};
use crate::workload::ground::hold;
use crate::workload::{Halt, Watch};

/// Carries out tasks. Calls may hang; `desk` says when to stop, and takes events.
pub trait Perform: Send + Sync {
    fn perform(&self, task: &Task, desk: &Desk) -> Reply;
}

/// The tasks as they are done on a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealTasks;

impl Perform for RealTasks {
    fn perform(&self, task: &Task, desk: &Desk) -> Reply {
        match task {
            Task::Inspect { target, procfs, sysfs, rootfs } => {
                let (procfs, sysfs, rootfs) = (procfs.clone(), sysfs.clone(), rootfs.clone());
                let inspection = inspect::inspect(target, &Roots { procfs, sysfs, rootfs });
                reply(inspection.map(|i| Reply::Inspected(Box::new(i))))
            }
            Task::LayOut { target, bytes, reserve, seed } => {
                let layout = Layout { bytes: *bytes, reserve: *reserve, seed: *seed };
                let laid_out = hold(target).and_then(|held| lay_out(&held, &layout, desk));
                laid_out.map_or_else(Halt::reply, |written| Reply::LaidOut { written })
            }
            Task::Run(run) => Reply::Ran(self::run(run, desk)),
            Task::Survey { target } => look_over(target, desk),
            Task::Link(run) => Reply::Linked(Box::new(probe::throughput::run(run, desk))),
            Task::GiveBack { target } => {
                let given_back = hold(target).and_then(|held| give_back(&held));
                given_back.map_or_else(Halt::reply, |freed| Reply::GivenBack { freed })
            }
            Task::Save { directory, name, content } => {
                reply(save::save(directory, name, content).map(|()| Reply::Saved))
            }
            Task::Load { directory, name } => {
                reply(save::load(directory, name).map(|content| Reply::Loaded { content }))
            }
        }
    }
}

fn run(run: &Run, desk: &Desk) -> Outcome {
    match probe::kind(&run.kind) {
        Some(kind) => (kind.run)(run, desk),
        None => Outcome::failed(FaultKind::Unsupported, format!("no probe kind `{}`", run.kind)),
    }
}

/// Nothing here costs the cluster I/O.
fn look_over(target: &Target, desk: &Desk) -> Reply {
    let Place::Cluster(cluster) = &target.place else {
        let text = format!("{}: no cluster", target.name);
        return Reply::Failed(Fault::new(FaultKind::Internal, text));
    };
    let stopped = || desk.stopped();
    let client = Client { cluster, stopped: &stopped };
    let surveyed = survey::take(&client).and_then(|mut survey| {
        let settings = settings::ask(&client, &survey.osds, &mut survey.unknown)?;
        Ok(Reply::Surveyed { survey: Box::new(survey), settings })
    });
    surveyed.unwrap_or_else(|cut| Halt::from(cut).reply())
}

fn reply(result: Result<Reply, Fault>) -> Reply {
    result.unwrap_or_else(Reply::Failed)
}

/// What a name is resolved by: its files, and the libraries that glibc loads for it (nsswitch.conf).
const RESOLVER: [&str; 6] = ["/etc", "/run", "/lib", "/lib64", "/usr/lib", "/usr/lib64"];

/// What the task has to be able to do, and no more.
pub(super) fn needs(job: &Job) -> Needs {
    let cluster = |target: &Target| matches!(target.place, Place::Cluster(_));
    match &job.task {
        Task::Run(Run { target, .. }) | Task::Survey { target } if cluster(target) => {
            return asking(job.polite);
        }
        _ => {}
    }
    let (write_below, read_below) = match &job.task {
        Task::Inspect { target, procfs, sysfs, .. } => {
            (vec![], vec![target.place.path().clone(), procfs.clone(), sysfs.clone()])
        }
        Task::LayOut { target, .. } | Task::GiveBack { target } | Task::Survey { target } => {
            place(target)
        }
        Task::Run(run) => running(run),
        Task::Link(_) => (vec![], RESOLVER.iter().map(PathBuf::from).collect()),
        Task::Save { directory, .. } => (vec![directory.clone()], vec![]),
        // The first start makes the directory, so that it may write where that will be.
        Task::Load { directory, .. } => (there(directory).into_iter().collect(), vec![]),
    };
    Needs { write_below, read_below, polite: job.polite, executes: false }
}

/// `ceph` is Python and a library of its own: it reads where it likes, and writes nowhere.
fn asking(polite: bool) -> Needs {
    let (write_below, read_below) = (vec!["/dev/null".into()], vec!["/".into()]);
    Needs { write_below, read_below, polite, executes: true }
}

fn running(run: &Run) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut write_below, mut read_below) = place(&run.target);
    let oltp = run.legs.iter().filter_map(|leg| leg.oltp.as_ref());
    write_below.extend(oltp.flat_map(|oltp| oltp.files().cloned()));
    read_below.push(run.procfs.clone());
    // A device's directory, where its counters and in-flight numbers are.
    let stats = run.devices.iter().filter_map(|device| device.stat.parent());
    read_below.extend(stats.map(Path::to_path_buf));
    (write_below, read_below)
}

/// The directory, or the nearest above it that is there.
fn there(directory: &Path) -> Option<PathBuf> {
    directory.ancestors().find(|path| path.exists()).map(Path::to_path_buf)
}

/// Raw devices are only ever read.
fn place(target: &Target) -> (Vec<PathBuf>, Vec<PathBuf>) {
    match &target.place {
        Place::Directory(path) => (vec![path.clone()], vec![]),
        Place::Device(path) => (vec![], vec![path.clone()]),
        Place::Cluster(_) => (vec![], vec![]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::WIRE_VERSION;

    #[test]
    fn a_raw_device_is_never_among_what_may_be_written() {
        let target = Target { name: "raw".into(), place: Place::Device("/dev/sdb".into()) };
        let job = Job { v: WIRE_VERSION, polite: true, task: Task::GiveBack { target } };
        let needs = needs(&job);
        assert!(needs.write_below.is_empty() && needs.polite);
        assert_eq!(needs.read_below, [PathBuf::from("/dev/sdb")]);
    }

    #[test]
    fn only_what_asks_a_cluster_may_execute_and_it_writes_nowhere() {
        let place = Place::Cluster(Box::default());
        let target = Target { name: "pool".into(), place };
        let needs = |task| needs(&Job { v: WIRE_VERSION, polite: true, task });
        let asking = needs(Task::Survey { target: target.clone() });
        assert!(asking.executes && asking.polite);
        assert_eq!(asking.write_below, [PathBuf::from("/dev/null")]);
        let inspecting = needs(Task::GiveBack { target });
        assert!(!inspecting.executes && inspecting.write_below.is_empty());
    }

    #[test]
    fn an_inspection_writes_nowhere_and_a_save_only_in_its_directory() {
        let target = Target { name: "srv".into(), place: Place::Directory("/srv".into()) };
        let (procfs, sysfs, rootfs) = ("/h/proc".into(), "/h/sys".into(), "/h".into());
        let inspect = Task::Inspect { target, procfs, sysfs, rootfs };
        let save = Task::Save { directory: "/state".into(), name: "s".into(), content: "".into() };
        let needs = |task| needs(&Job { v: WIRE_VERSION, polite: false, task });
        assert!(needs(inspect).write_below.is_empty());
        assert_eq!(needs(save).write_below, [PathBuf::from("/state")]);
    }
}
