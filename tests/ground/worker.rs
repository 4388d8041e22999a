//! One job for one real worker, spoken to as the daemon does.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};

use loadline::base::fault::Fault;
use loadline::base::units::{Bytes, MIB, Ratio, Seconds};
use loadline::model::job::{
    Event, Job, Place, Profile, Region, Run, Target, Task, WIRE_VERSION, What,
};
use loadline::model::outcome::{Done, Outcome, Reply, Skip};
use loadline::probe::disk::{Preset, shape};

use crate::harness::{BINARY, PATIENCE};

/// Size of the files that tests work in.
pub const FILE: Bytes = Bytes(8 * MIB);

pub fn target(place: Place) -> Target {
    Target { name: "t".into(), place }
}

pub fn in_directory(path: &Path) -> Target {
    target(Place::Directory(path.to_path_buf()))
}

/// A third of a second of random 4 KiB operations.
pub fn leg(reads: f64) -> Profile {
    let base = shape(Preset::RandRead).legs.remove(0);
    let runtime = Seconds(0.3);
    Profile { reads: Ratio(reads), depth: 4, jobs: 1, runtime, flush: reads < 1.0, ..base }
}

pub fn run(target: Target, region: Region, leg: Profile) -> Run {
    Run {
        kind: "disk".into(),
        target,
        region,
        legs: vec![leg],
        engine: None,
        seed: 11,
        devices: Vec::new(),
        top: Vec::new(),
        reserve: Bytes(0),
        procfs: "/proc".into(),
        quiet: Seconds(0.0),
    }
}

/// A run in an unnamed file, as the command by hand does.
pub fn unnamed(path: &Path, leg: Profile) -> Run {
    run(in_directory(path), Region::Unnamed(FILE), leg)
}

/// A run in the ballast file, as the daemon does.
pub fn in_ballast(path: &Path, leg: Profile) -> Run {
    run(in_directory(path), Region::Ballast(FILE), leg)
}

pub fn lay_out(path: &Path) -> Task {
    Task::LayOut { target: in_directory(path), bytes: FILE, reserve: Bytes(0), seed: 5 }
}

pub fn give_back(path: &Path) -> Task {
    Task::GiveBack { target: in_directory(path) }
}

/// A worker that was given its job; killed when dropped.
pub struct Worker(pub Child);

impl Worker {
    pub fn start(mut command: Command, task: Task) -> Self {
        let mut child =
            command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let job = Job { v: WIRE_VERSION, polite: true, task };
        let line = serde_json::to_string(&job).unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{line}").unwrap();
        Self(child)
    }

    /// Hears it out.
    pub fn listen(mut self, mut on_event: impl FnMut(&Self, &What)) -> Reply {
        let (tell, told) = channel();
        let output = BufReader::new(self.0.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        loop {
            let line = match told.recv_timeout(PATIENCE) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => panic!("the worker says nothing"),
                Err(RecvTimeoutError::Disconnected) => panic!("the worker ended without a reply"),
            };
            let event: Event = serde_json::from_str(&line).unwrap();
            match event.what {
                What::Outcome { reply } => return *reply,
                what => on_event(&self, &what),
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn work(task: Task) -> Reply {
    Worker::start(Command::new(BINARY), task).listen(|_, _| {})
}

pub fn measured(reply: Reply) -> Done {
    match reply {
        Reply::Ran(Outcome::Done(done)) => *done,
        other => panic!("{other:?}"),
    }
}

/// What a run or another task failed with.
pub fn fault(reply: Reply) -> Fault {
    match reply {
        Reply::Ran(Outcome::Failed { fault, .. }) | Reply::Failed(fault) => fault,
        other => panic!("{other:?}"),
    }
}

pub fn skip(reply: Reply) -> (Skip, String) {
    match reply {
        Reply::Ran(Outcome::Skipped { skip, text, .. }) | Reply::Skipped { skip, text } => {
            (skip, text)
        }
        other => panic!("{other:?}"),
    }
}

/// The ballast is laid out now.
pub fn laid_out(path: &Path) {
    match work(lay_out(path)) {
        Reply::LaidOut { written } => assert!(written > FILE, "{written}"),
        other => panic!("{other:?}"),
    }
}
