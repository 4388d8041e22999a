//! Starts worker processes. The one place that executes anything, and only loadline itself.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};

use super::stuck::Body;
use super::talk::{Patience, Talk};
use super::{Ended, Runner, Stop, wire};
use crate::base::clock::Clock;
use crate::base::fault::{Fault, FaultKind};
use crate::host::sys;
use crate::model::job::{Job, What};

/// Runs each job in a process of its own.
#[derive(Clone)]
pub struct ProcessRunner {
    pub clock: Arc<dyn Clock>,
    /// The file that runs now, also after an upgrade has replaced the one on disk.
    pub exe: PathBuf,
    pub arguments: Vec<OsString>,
    pub patience: Patience,
}

impl ProcessRunner {
    /// Runs this program's own `worker` command.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            exe: "/proc/self/exe".into(),
            arguments: vec!["worker".into()],
            patience: Patience::default(),
        }
    }
}

impl Runner for ProcessRunner {
    fn run(
        &self,
        job: &Job,
        deadline: Duration,
        stop: &Stop,
        on_event: &mut dyn FnMut(&What),
    ) -> Ended {
        match wire::encode_job(job).and_then(|line| self.start(line, stop)) {
            Ok(talk) => talk.run(deadline, on_event),
            Err(fault) => Ended::Failed(fault),
        }
    }
}

impl ProcessRunner {
    /// Starts a worker; `job`, one line, is ready to be sent to it.
    #[allow(clippy::disallowed_methods, reason = "workers are processes; it is loadline itself")]
    fn start<'a>(&'a self, job: Vec<u8>, stop: &'a Stop) -> Result<Talk<'a>, Fault> {
        // Ours are close-on-exec from birth; this is for what we inherited. Old kernels lack it.
        let _ = sys::close_all_on_exec();
        let at_exe = |error| Fault::os(format_args!("{}", self.exe.display()), &error);
        let mut child = Command::new(&self.exe)
            .args(&self.arguments)
            .env_clear()
            .process_group(0) // Ctrl-C on a terminal is for the command line alone
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(at_exe)?;
        let input = child.stdin.take().map(OwnedFd::from);
        let output = child.stdout.take().map(OwnedFd::from);
        let mut body = Box::new(Process::new(child));
        let quiet = input.iter().chain(&output).try_for_each(wire::dont_wait);
        if let Err(error) = quiet {
            body.kill();
            let text = format!("worker: pipes that don't wait: {error}");
            return Err(Fault::new(FaultKind::Internal, text));
        }
        let (patience, clock) = (self.patience, &*self.clock);
        Ok(Talk { body, input, output, unsent: job, patience, stop, clock })
    }
}

/// A worker process. Nobody else waits for it, so its pid is its own until it is reaped here.
#[derive(Debug)]
struct Process {
    child: Child,
    pid: Option<Pid>,
    /// `None` before Linux 5.3: then each turn asks.
    pidfd: Option<OwnedFd>,
    end: Option<String>,
}

impl Process {
    fn new(child: Child) -> Self {
        let pid = Pid::from_raw(child.id() as i32);
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Self { child, pid, pidfd, end: None }
    }

    /// True when it has ended; it keeps its pid. An error means that it is not our child any more
    /// (SIGCHLD was ignored when we were started): then the pid may be anybody's.
    fn has_ended(&self) -> Result<bool, rustix::io::Errno> {
        let pid = self.pid.ok_or(rustix::io::Errno::CHILD)?;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), look).map(|status| status.is_some())
    }

    fn kill_group(&self) {
        if let Some(pid) = self.pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Body for Process {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn end(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    fn kill(&mut self) {
        if self.end.is_some() {
            return;
        }
        if let Some(pidfd) = &self.pidfd {
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
        if self.has_ended().is_ok() {
            self.kill_group();
        }
    }

    fn reap(&mut self) -> Option<String> {
        if self.end.is_none() {
            match self.has_ended() {
                Ok(false) => return None,
                // What it may have left in its group goes first, while the pid still names it.
                Ok(true) => self.kill_group(),
                Err(_) => {}
            }
            self.end = match self.child.try_wait() {
                Ok(Some(status)) => Some(end_of(status)),
                Ok(None) => None,
                Err(error) => Some(format!("exit status unknown ({error})")),
            };
        }
        self.end.clone()
    }
}

fn end_of(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(9), _) => "signal 9 (SIGKILL: by hand, or out of memory)".into(),
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => status.to_string(),
    }
}
