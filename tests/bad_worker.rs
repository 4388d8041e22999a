//! A worker that breaks its contract, in the way that its first argument names; the parent and the
//! tasks of `tests/worker` too.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests"
)]

use std::fs;
use std::io::{BufRead, Read, Write, stdin, stdout};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio, abort};
use std::sync::Arc;
use std::thread::park;
use std::time::Duration;

use loadline::base::clock::SystemClock;
use loadline::base::units::Bytes;
use loadline::model::job::{Event, Job, Progress, Task, WIRE_VERSION, What};
use loadline::model::outcome::{Outcome, Reply, Skip};
use loadline::worker::child::{Service, serve};
use loadline::worker::parent::ProcessRunner;
use loadline::worker::tasks::Perform;
use loadline::worker::{Desk, Ended, Patience, Runner, Stop};
use loadline::workload::Watch;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let kind = arguments.first().map_or("", String::as_str);
    match kind {
        "serve" => well_behaved(&Service::default()),
        "parent" => parent(&arguments[1..]),
        "census" => census(&arguments[1..]),
        "job" | "panics" | "prints" | "blocks" | "tries" => well_behaved(&Service {
            tasks: Arc::new(Act(kind.to_owned())),
            every: Duration::from_millis(20),
            linger: Duration::from_millis(50),
            ..Service::default()
        }),
        _ => misbehave(kind),
    }
}

fn well_behaved(service: &Service) -> ExitCode {
    serve(service).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn misbehave(kind: &str) -> ExitCode {
    if kind != "reads_nothing" {
        stdin().lock().read_line(&mut String::new()).unwrap();
    }
    match kind {
        "silent" => {
            stdin().lock().read_to_end(&mut Vec::new()).unwrap();
            return ExitCode::SUCCESS;
        }
        "garbage" => say("*** stack smashing detected ***\n"),
        "endless_line" => loop {
            say(&"x".repeat(4096));
        },
        "no_outcome" => return ExitCode::from(3),
        "partial_line" => {
            say(r#"{"v":1,"event":"outc"#);
            return ExitCode::SUCCESS;
        }
        "foreign" => say("{\"v\":2,\"event\":\"outcome\",\"reply\":\"saved\"}\n"),
        "outcome_twice" => {
            let second = Reply::GivenBack { freed: Bytes(1) };
            say(&(line(outcome(Reply::Saved)) + &line(outcome(second))));
            return ExitCode::SUCCESS;
        }
        "stays" => say(&line(outcome(Reply::Saved))),
        "floods" => loop {
            say(&line(What::Progress(Progress::default())));
        },
        "aborts" => abort(),
        "closes_output" => drop(rustix::stdio::dup2_stdout(fs::File::open("/dev/null").unwrap())),
        "has_child" => has_child(),
        _ => {}
    }
    loop {
        park(); // the end of input means nothing to it
    }
}

/// A process in the worker's group that holds its pipes, and would outlive it.
fn has_child() {
    let exe = std::env::current_exe().unwrap();
    #[allow(clippy::zombie_processes, reason = "its parent ends first: that is the case")]
    let child = Command::new(exe).arg("deaf").stdin(Stdio::piped()).spawn().unwrap();
    say(&line(note("child", child.id())));
    say(&line(outcome(Reply::Saved)));
}

fn say(text: &str) {
    let mut out = stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        park();
    }
}

fn line(what: What) -> String {
    serde_json::to_string(&Event::new(what)).unwrap() + "\n"
}

fn outcome(reply: Reply) -> What {
    What::Outcome { reply: Box::new(reply) }
}

fn note(name: &str, number: u32) -> What {
    What::Layout { done: Bytes(number.into()), total: Bytes(name.len() as u64) }
}

/// Tasks that look at their worker from inside.
struct Act(String);

impl Perform for Act {
    fn perform(&self, task: &Task, desk: &Desk) -> Reply {
        match self.0.as_str() {
            "panics" => panic!("on purpose"),
            "prints" => {
                println!("a stray print");
                rustix::io::write(rustix::stdio::stdout(), b"and one past std\n").unwrap();
            }
            "tries" => desk.event(What::Confined { parts: tries(task) }),
            "blocks" => {
                desk.event(note("blocked", 1));
                loop {
                    park();
                }
            }
            _ => {
                desk.event(note("started", std::process::id()));
                while !desk.stopped() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return Reply::Ran(Outcome::skipped(Skip::Stopped, "asked to stop"));
            }
        }
        Reply::Saved
    }
}

/// What a confined worker can do, and what it can see of its parent.
fn tries(task: &Task) -> Vec<(String, bool)> {
    let Task::Save { directory, .. } = task else { return Vec::new() };
    let inside = fs::write(directory.join("inside"), "x").is_ok();
    let outside = fs::write(directory.with_extension("outside"), "x").is_ok();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let exec = Command::new("/bin/true").status().is_ok();
    let held = fs::read_dir("/proc/self/fd").unwrap().map(|e| fs::read_link(e.unwrap().path()));
    let inherited = held.flatten().any(|to| to == Path::new("/dev/full"));
    let group = rustix::process::getpgrp();
    [
        ("writes_inside", inside),
        ("writes_outside", outside),
        ("executes", exec),
        ("no_new_privs", status.contains("NoNewPrivs:\t1")),
        ("filtered", status.contains("Seccomp:\t2")),
        ("nice", rustix::process::getpriority_process(None) == Ok(10)),
        ("environment", std::env::vars_os().next().is_some()),
        ("holds_inherited", inherited),
        ("own_group", group == rustix::process::getpid()),
    ]
    .map(|(name, so)| (name.to_owned(), so))
    .into()
}

fn runner(kind: &str) -> ProcessRunner {
    ProcessRunner {
        clock: Arc::new(SystemClock),
        exe: "/proc/self/exe".into(),
        arguments: vec![kind.into()],
        patience: Patience { stop: Duration::from_millis(50), kill: Duration::from_secs(20) },
    }
}

fn job() -> Job {
    let save = Task::Save { directory: "/".into(), name: "x".into(), content: "x".into() };
    Job { v: WIRE_VERSION, polite: true, task: save }
}

/// A daemon with one worker of the given kind: says when its task has started.
fn parent(arguments: &[String]) -> ExitCode {
    let forever = Duration::from_secs(600);
    let mut hear = |what: &What| {
        if matches!(what, What::Layout { .. }) {
            println!("started");
        }
    };
    let ended = runner(&arguments[0]).run(&job(), forever, &Stop::default(), &mut hear);
    println!("{ended:?}");
    ExitCode::SUCCESS
}

/// Runs one worker of each kind, and says what is left of them afterwards.
fn census(kinds: &[String]) -> ExitCode {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for kind in kinds {
        let deadline = Duration::from_millis(50);
        let ended = runner(kind).run(&job(), deadline, &Stop::default(), &mut |_| {});
        assert!(!matches!(ended, Ended::Hung(_)), "{kind}: {ended:?}");
        let no_child = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
        assert_eq!(no_child.unwrap_err(), rustix::io::Errno::CHILD, "{kind} left a zombie");
        assert_eq!(descriptors(), before, "{kind} left a descriptor");
    }
    println!("none left");
    ExitCode::SUCCESS
}
