//! The worker's side: reads one job, confines itself, carries it out on a thread of its own, and
//! talks to the daemon on the thread that was there first, which never touches the target.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Stop;
use super::desk::Desk;
use super::tasks::{Perform, RealTasks, needs};
use super::wire::{self, Lines, Moved, decode_job, encode_event, read_now, write_now};
use crate::base::clock::{Clock, SystemClock};
use crate::base::fault::{Fault, FaultKind};
use crate::host::sandbox;
use crate::model::job::{Job, What};
use crate::model::outcome::Reply;
use crate::workload::Watch;

/// How a worker serves its one job.
#[derive(Clone)]
pub struct Service {
    pub tasks: Arc<dyn Perform>,
    /// False where the worker is a thread: confinement would stay with the process.
    pub confined: bool,
    /// Between two `progress` events.
    pub every: Duration,
    /// From the end of input until the worker ends by itself, whatever its task does. Longer than a
    /// daemon waits before SIGKILL: it counts when the daemon is dead.
    pub linger: Duration,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            tasks: Arc::new(RealTasks),
            confined: true,
            // The load of others has to be seen, and the run ended, within a second.
            every: Duration::from_millis(500),
            linger: Duration::from_secs(5),
        }
    }
}

/// The hidden `worker` command, and its exit code. The caller returns from `main` right after, which
/// ends the task's thread wherever it is.
pub fn main() -> u8 {
    u8::from(serve(&Service::default()).is_err())
}

/// Serves one job on standard input and output.
///
/// # Errors
/// Where the pipes can't be set up.
pub fn serve(service: &Service) -> io::Result<()> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    // A stray print goes to the log; on the wire it would be garbage.
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    converse(input, output, service)
}

/// Serves one job on the given pipes; returns when all is said, or nobody listens any more.
///
/// # Errors
/// Where the pipes can't be set up.
pub(super) fn converse(input: OwnedFd, output: OwnedFd, service: &Service) -> io::Result<()> {
    let stop = Stop::default();
    let desk = Arc::new(Desk::new(stop.clone())?);
    match read_job(&input) {
        Some(Ok(job)) => start(job, &desk, service),
        Some(Err(fault)) => desk.finish(Reply::Failed(fault)),
        None => return Ok(()), // the daemon was gone before it had said anything
    }
    wire::dont_wait(&output)?;
    Control::new(desk, stop, (input, output), service).run();
    Ok(())
}

/// The one line of input; `None` where it ends before.
fn read_job(input: &OwnedFd) -> Option<Result<Job, Fault>> {
    let mut lines = Lines::default();
    let mut chunk = [0; 4096];
    loop {
        if let Some(line) = lines.next() {
            return Some(line.and_then(decode_job));
        }
        match read_now(input.as_fd(), &mut chunk) {
            Moved::Bytes(n) => lines.push(&chunk[..n]),
            Moved::Later => {}
            Moved::Closed => return None,
        }
    }
}

fn start(job: Job, desk: &Arc<Desk>, service: &Service) {
    let theirs = Arc::clone(desk);
    let Service { tasks, confined, .. } = service.clone();
    let body = move || theirs.finish(carry_out(&job, &*tasks, confined, &theirs));
    if let Err(error) = std::thread::Builder::new().name("task".into()).spawn(body) {
        desk.finish(Reply::Failed(Fault::os("worker: no thread for the task", &error)));
    }
}

fn carry_out(job: &Job, tasks: &dyn Perform, confined: bool, desk: &Desk) -> Reply {
    let task = || {
        // Here and not on the control thread: to open the target for Landlock can hang as well.
        if confined {
            desk.event(What::Confined { parts: sandbox::confine(&needs(job)) });
        }
        tasks.perform(&job.task, desk)
    };
    catch_unwind(AssertUnwindSafe(task)).unwrap_or_else(|_| {
        let text = "worker: the task panicked; the log has its message";
        Reply::Failed(Fault::new(FaultKind::Internal, text))
    })
}

/// The control thread: the only one that knows the pipes, and one that never waits but in `poll`.
struct Control<'a> {
    service: &'a Service,
    desk: Arc<Desk>,
    stop: Stop,
    /// `None` once it has ended: nobody wants anything any more.
    input: Option<OwnedFd>,
    /// `None` once nobody reads it.
    output: Option<OwnedFd>,
    /// What is left of the line that is being written.
    line: Vec<u8>,
    /// The outcome is in `line`, or written.
    last: bool,
    /// Monotonic time at which the worker goes, whatever its task does.
    ends_at: Option<Duration>,
    next_progress: Duration,
}

impl<'a> Control<'a> {
    fn new(
        desk: Arc<Desk>,
        stop: Stop,
        (input, output): (OwnedFd, OwnedFd),
        service: &'a Service,
    ) -> Self {
        Self {
            service,
            desk,
            stop,
            input: Some(input),
            output: Some(output),
            line: Vec::new(),
            last: false,
            ends_at: None,
            next_progress: now() + service.every,
        }
    }

    fn run(mut self) {
        while !(self.last && self.line.is_empty()) {
            self.wait();
            if self.input_ended() {
                self.input = None;
                self.leave();
            }
            self.write();
            if now() >= self.next_progress {
                self.progress();
            }
            if self.ends_at.is_some_and(|at| now() >= at) {
                return;
            }
        }
    }

    /// Nobody wants the result any more: the task is asked to end, and not waited for long.
    fn leave(&mut self) {
        self.stop.set();
        self.ends_at.get_or_insert(now() + self.service.linger);
    }

    fn wait(&self) {
        let until = self.ends_at.map_or(self.next_progress, |at| at.min(self.next_progress));
        let mut fds = vec![PollFd::new(&self.desk.bell, PollFlags::IN)];
        fds.extend(self.input.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        if let Some(output) = self.output.as_ref().filter(|_| !self.line.is_empty()) {
            fds.push(PollFd::new(output, PollFlags::OUT));
        }
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timespec(until.saturating_sub(now()))));
        // The bell doesn't wait; once read it rings for new things only.
        let _ = rustix::io::read(&self.desk.bell, &mut [0u8; 8]);
    }

    /// True when the input has ended. What comes before that means nothing.
    fn input_ended(&self) -> bool {
        let Some(input) = &self.input else { return false };
        let mut fds = [PollFd::new(input, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&timespec(Duration::ZERO))).is_ok_and(|n| n > 0);
        ready && matches!(read_now(input.as_fd(), &mut [0; 512]), Moved::Closed)
    }

    /// Writes as much as the pipe takes now.
    fn write(&mut self) {
        loop {
            while !self.line.is_empty() {
                let Some(output) = &self.output else { return self.line.clear() };
                match write_now(output.as_fd(), &self.line) {
                    Moved::Bytes(n) => drop(self.line.drain(..n)),
                    Moved::Later => return,
                    Moved::Closed => {
                        self.output = None;
                        self.leave();
                    }
                }
            }
            match self.desk.take() {
                Some(what) if !self.last => self.put(what),
                _ => return,
            }
        }
    }

    fn progress(&mut self) {
        self.next_progress = now() + self.service.every;
        if self.line.is_empty()
            && let Some(what) = self.desk.progress()
        {
            self.put(what);
            self.write();
        }
    }

    /// Makes `what` the line to write. One that doesn't fit is left out; an outcome says so instead.
    fn put(&mut self, what: What) {
        self.last = matches!(what, What::Outcome { .. });
        let line = encode_event(what).or_else(|fault| match self.last {
            true => encode_event(What::Outcome { reply: Box::new(Reply::Failed(fault)) }),
            false => Err(fault),
        });
        self.line = line.unwrap_or_default();
    }
}

fn timespec(left: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    }
}

fn now() -> Duration {
    SystemClock.now().mono
}
