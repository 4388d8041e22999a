//! What a real worker sees of a ground, as the judge is told of it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};

use loadline::base::units::{Bytes, GIB, MIB, Seconds};
use loadline::judge::facts::Facts;
use loadline::judge::from_outcome::{self, Place as Known};
use loadline::model::job::{
    Event, Job, Place, Profile, Region, Run, Target, Task, WIRE_VERSION, What,
};
use loadline::model::outcome::{Done, Inspection, Outcome, Reply};
use loadline::model::path::{DeclaredBacking, Media};
use loadline::probe::depths::two_legs;
use loadline::probe::disk::{Preset, shape};

use super::harness::{BINARY, PATIENCE};

/// What a scenario came to.
pub struct Sight {
    pub facts: Facts,
    pub done: Done,
    /// What was promised of it and does not hold.
    pub broken: Vec<String>,
}

impl Sight {
    /// A number has to be within a share of what the model says.
    #[must_use]
    pub fn near(self, what: &str, ours: Option<f64>, model: f64, share: f64) -> Self {
        let range = model * (1.0 - share)..=model * (1.0 + share);
        self.within(what, ours, range)
    }

    #[must_use]
    pub fn within(
        mut self,
        what: &str,
        ours: Option<f64>,
        range: std::ops::RangeInclusive<f64>,
    ) -> Self {
        if !ours.is_some_and(|ours| range.contains(&ours)) {
            self.broken.push(format!("{what} is {ours:.4?}, not within {range:.4?}"));
        }
        self
    }

    pub fn busy(&self) -> Option<f64> {
        self.facts.device.busy_ratio.map(|busy| busy.0)
    }
}

/// One measurement, from the place to what is declared of it.
pub struct Measurement {
    kind: &'static str,
    place: Place,
    region: Region,
    pub legs: Vec<Profile>,
    pub backing: DeclaredBacking,
    /// Comes before the worker's own command: `sh -c '... exec "$0" "$@"'`.
    before: Vec<String>,
    seed: u64,
    quiet: Seconds,
}

/// A profile of one job, at `depth` for `seconds`, that no bound of bytes ends.
pub fn profile(preset: Preset, depth: u32, seconds: f64) -> Profile {
    let named = shape(preset).legs.remove(0);
    let (runtime, bytes_max) = (Seconds(seconds), Bytes(64 * GIB));
    Profile { depth, jobs: 1, runtime, bytes_max, ..named }
}

pub fn declared(media: Media) -> DeclaredBacking {
    DeclaredBacking { media: Some(media), ..DeclaredBacking::default() }
}

impl Measurement {
    /// Reads of a whole device, at the depth and at twice that.
    pub fn of_device(device: &str, profile: &Profile) -> Self {
        Self::of(Place::Device(device.into()), Region::WholeDevice, profile)
    }

    /// In a file of its own in a directory.
    pub fn in_directory(path: &Path, size: Bytes, profile: &Profile) -> Self {
        Self::of(Place::Directory(path.into()), Region::Unnamed(size), profile)
    }

    fn of(place: Place, region: Region, profile: &Profile) -> Self {
        Self {
            kind: "disk",
            place,
            region,
            legs: two_legs(profile, None),
            backing: DeclaredBacking::default(),
            before: Vec::new(),
            seed: 1,
            quiet: Seconds(0.5),
        }
    }

    pub fn kind(self, kind: &'static str, legs: Vec<Profile>) -> Self {
        Self { kind, legs, ..self }
    }

    pub fn declare(self, backing: DeclaredBacking) -> Self {
        Self { backing, ..self }
    }

    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The worker is started by this shell command, which ends in `exec "$0" "$@"`.
    pub fn through_shell(self, command: &str) -> Self {
        let text = format!("{command} && exec \"$0\" \"$@\"");
        Self { before: vec!["sh".into(), "-c".into(), text], ..self }
    }

    pub fn take(&self) -> Sight {
        self.take_while(|_| {})
    }

    /// `on_leg_progress` hears how many seconds of a leg have passed.
    pub fn take_while(&self, on_progress: impl FnMut(f64)) -> Sight {
        let inspection = self.inspect();
        let run = Run {
            kind: self.kind.into(),
            target: self.target(),
            region: self.region,
            legs: self.legs.clone(),
            engine: None,
            seed: self.seed,
            devices: inspection.devices.clone(),
            top: inspection.top.clone(),
            reserve: Bytes(MIB),
            procfs: "/proc".into(),
            quiet: self.quiet,
        };
        let done = match self.ask(Task::Run(run), on_progress) {
            Reply::Ran(Outcome::Done(done)) => *done,
            other => panic!("{other:?}"),
        };
        let devices = &inspection.devices;
        let known = Known { inspection: Some(&inspection), devices, backing: &self.backing };
        let facts = from_outcome::storage(&done, &known).expect("a leg");
        Sight { facts, done, broken: Vec::new() }
    }

    fn target(&self) -> Target {
        Target { name: "lab".into(), place: self.place.clone() }
    }

    fn inspect(&self) -> Inspection {
        let (procfs, sysfs, rootfs) = ("/proc".into(), "/sys".into(), "/".into());
        let task = Task::Inspect { target: self.target(), procfs, sysfs, rootfs };
        match self.ask(task, |_| {}) {
            Reply::Inspected(inspection) => *inspection,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&self, task: Task, mut on_progress: impl FnMut(f64)) -> Reply {
        let mut words = self.before.iter().map(String::as_str).chain([BINARY, "worker"]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut worker = Worker(command.spawn().unwrap());
        let job = Job { v: WIRE_VERSION, polite: false, task };
        let line = serde_json::to_string(&job).unwrap();
        writeln!(worker.0.stdin.as_mut().unwrap(), "{line}").unwrap();
        let (tell, told) = channel();
        let output = BufReader::new(worker.0.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        loop {
            let line = match told.recv_timeout(PATIENCE) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => panic!("the worker says nothing"),
                Err(RecvTimeoutError::Disconnected) => panic!("the worker ended without a reply"),
            };
            match serde_json::from_str::<Event>(&line).unwrap().what {
                What::Outcome { reply } => return *reply,
                What::Progress(progress) => on_progress(progress.elapsed.0),
                _ => {}
            }
        }
    }
}

/// Killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
