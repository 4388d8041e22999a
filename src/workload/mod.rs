//! Floor 3: workloads on storage. Everything here runs in a worker process: any call may hang.

mod aio;
pub mod ballast;
pub mod devices;
pub mod drive;
pub mod engine;
mod file;
pub mod ground;
mod intervals;
mod job;
mod layout;
pub mod oltp;
mod own;
pub mod pattern;
mod spread;
mod tally;
mod threads;
mod uring;

use std::sync::{Mutex, PoisonError};

use crate::base::fault::{Fault, FaultKind};
use crate::model::job::{Progress, What};
use crate::model::outcome::{Done, Outcome, Reply, Skip};

/// Whoever watches a run: asks it to stop, hears its events, reads its numbers.
pub trait Watch: Sync {
    /// True once the run should end; asked between operations, so it must be cheap.
    fn stopped(&self) -> bool;
    fn event(&self, what: What);
    /// Where the numbers of the running leg are left for a control thread to read.
    fn live(&self) -> &Live;
}

/// Why work on a target ended early.
#[derive(Clone, Debug, PartialEq)]
pub enum Halt {
    Failed(Fault),
    Skipped(Skip, String),
}

impl Halt {
    pub fn stopped() -> Self {
        Halt::Skipped(Skip::Stopped, "asked to stop".into())
    }

    pub fn outcome(self, partial: Option<Box<Done>>) -> Outcome {
        match self {
            Halt::Failed(fault) => Outcome::Failed { fault, partial },
            Halt::Skipped(skip, text) => Outcome::Skipped { skip, text, partial },
        }
    }

    pub fn reply(self) -> Reply {
        match self {
            Halt::Failed(fault) => Reply::Failed(fault),
            Halt::Skipped(skip, text) => Reply::Skipped { skip, text },
        }
    }
}

impl From<Fault> for Halt {
    /// A full target is no fault: it is left alone until there is room.
    fn from(fault: Fault) -> Self {
        match fault.kind {
            FaultKind::Full => Halt::Skipped(Skip::Full, fault.text),
            _ => Halt::Failed(fault),
        }
    }
}

/// The running leg's numbers, shared between the thread that does I/O and the one that reports.
///
/// The writer never waits: where the reader holds the lock, that update is left out.
#[derive(Debug, Default)]
pub struct Live {
    numbers: Mutex<Option<Progress>>,
    devices: Mutex<Option<devices::Window>>,
}

impl Live {
    /// The running leg as last published, with its leaf devices as they are now, unless they were seen
    /// when it was.
    pub fn progress(&self) -> Option<Progress> {
        let mut progress = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        if progress.device_queue.is_none() {
            self.see_devices(&mut progress);
        }
        Some(progress)
    }

    /// Adds the busiest leaf device as it is now.
    pub fn see_devices(&self, progress: &mut Progress) {
        // A copy: reading counters takes longer than anybody should wait for this lock.
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let busiest = devices.as_ref().and_then(devices::Window::busiest);
        progress.device_busy = busiest.as_ref().map(|device| device.busy);
        progress.device_queue = busiest.map(|device| device.queue);
    }

    /// Devices to report on from now, before a leg begins.
    pub fn watch_devices(&self, window: devices::Window) {
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = Some(window);
    }

    /// Leaves `progress` for the reader, or `None` between legs.
    pub fn publish(&self, progress: Option<Progress>) {
        if let Ok(mut numbers) = self.numbers.try_lock() {
            *numbers = progress;
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::base::units::{Bytes, Seconds};
    use crate::model::job::{Place, Profile, Region, Run, Target};

    /// Where test files lie on a disk: /tmp is memory on many hosts.
    pub(crate) fn on_disk_directory() -> PathBuf {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    pub(crate) fn disk_directory() -> tempfile::TempDir {
        tempfile::tempdir_in(on_disk_directory()).unwrap()
    }

    /// These legs in an unnamed file of `bytes`, with nothing known of what lies under it.
    pub(crate) fn run_in(directory: &Path, bytes: Bytes, legs: Vec<Profile>) -> Run {
        Run {
            kind: "disk".into(),
            target: Target { name: "t".into(), place: Place::Directory(directory.into()) },
            region: Region::Unnamed(bytes),
            legs,
            engine: None,
            seed: 1,
            devices: Vec::new(),
            top: Vec::new(),
            reserve: Bytes(0),
            procfs: "/proc".into(),
            quiet: Seconds(0.0),
        }
    }

    pub(crate) fn done(outcome: Outcome) -> Done {
        match outcome {
            Outcome::Done(done) => *done,
            other => panic!("{other:?}"),
        }
    }

    /// Hears all events; stops when told to, or at the first event that `stop_on` picks.
    #[derive(Default)]
    pub(crate) struct Ears {
        pub(crate) stop: AtomicBool,
        pub(crate) stop_on: Option<fn(&What) -> bool>,
        pub(crate) heard: Mutex<Vec<What>>,
        pub(crate) live: Live,
    }

    impl Watch for Ears {
        fn stopped(&self) -> bool {
            self.stop.load(Ordering::Relaxed)
        }

        fn event(&self, what: What) {
            if self.stop_on.is_some_and(|picks| picks(&what)) {
                self.stop.store(true, Ordering::Relaxed);
            }
            self.heard.lock().unwrap().push(what);
        }

        fn live(&self) -> &Live {
            &self.live
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_never_holds_the_writer_up() {
        let live = Live::default();
        live.publish(Some(Progress { leg: 1, ..Progress::default() }));
        let reader = live.numbers.lock().unwrap();
        live.publish(Some(Progress { leg: 2, ..Progress::default() }));
        drop(reader);
        assert_eq!(live.progress().map(|p| p.leg), Some(1));
        live.publish(None);
        assert_eq!(live.progress(), None);
    }
}
