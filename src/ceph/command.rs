//! The one place that runs `ceph`: bounded in time and output, killed when it is told to stop.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;

use super::{json, words};
use crate::base::clock::monotonic;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Seconds;
use crate::model::ceph::Cluster;

/// The metadata of a thousand OSDs are 3 MB.
const OUTPUT_BYTES_MAX: usize = 32 << 20;
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Between two looks at whether to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Clients of a host are often told to keep a log and a socket: a confined worker can't.
const QUIET: [&str; 2] = ["--log-file=", "--admin-socket="];

/// Why there is no answer.
#[derive(Debug, PartialEq)]
pub enum Cut {
    /// Somebody asked for an end.
    Stopped,
    Failed(Fault),
}

impl From<Fault> for Cut {
    fn from(fault: Fault) -> Self {
        Cut::Failed(fault)
    }
}

/// Asks one cluster.
pub struct Client<'a> {
    pub cluster: &'a Cluster,
    pub stopped: &'a dyn Fn() -> bool,
}

impl Client<'_> {
    /// The answer to `words` as JSON, within the cluster's time-out.
    ///
    /// # Errors
    /// `Stopped`, or a fault that names what was asked and what `ceph` said.
    pub fn ask(&self, words: &[&str]) -> Result<Value, Cut> {
        self.ask_within(words, self.cluster.timeout)
    }

    /// The same within `time`; errors as [`Client::ask`].
    pub fn ask_within(&self, words: &[&str], time: Seconds) -> Result<Value, Cut> {
        let asked = format!("ceph {}", words.join(" "));
        let out = self.run(&asked, words, time)?;
        Ok(json::parse(&asked, &out)?)
    }

    fn run(&self, asked: &str, words: &[&str], time: Seconds) -> Result<Vec<u8>, Cut> {
        let until = monotonic() + time.duration();
        let mut child = self.start(words, time)?;
        let end = self.listen(&mut child, until);
        if !matches!(end, Ok((Some(_), ..))) {
            let _ = child.kill();
            let _ = child.wait();
        }
        let fault = |kind, text: String| Err(Fault::new(kind, format!("{asked}: {text}")).into());
        match end? {
            (Some(status), out, _) if status.success() => Ok(out),
            (Some(status), _, err) => {
                Err(words::fault(asked, &String::from_utf8_lossy(&err), status.code()).into())
            }
            (None, out, _) if out.len() > OUTPUT_BYTES_MAX => {
                fault(FaultKind::Malformed, "an endless answer".into())
            }
            (None, ..) => fault(FaultKind::TimedOut, format!("no answer within {time}")),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "the one command beside loadline itself")]
    fn start(&self, words: &[&str], time: Seconds) -> Result<Child, Fault> {
        let cluster = self.cluster;
        let mut command = Command::new(&cluster.command);
        command.env_clear().env("LANG", "C.UTF-8");
        command.env("PATH", cluster.search_path.as_deref().unwrap_or(SEARCH_PATH));
        command.arg("--conf").arg(&cluster.conf);
        if let Some(user) = &cluster.user {
            command.args(["--name", user]);
        }
        if let Some(keyring) = &cluster.keyring {
            command.arg("--keyring").arg(keyring);
        }
        // Whole seconds; without it the command waits for monitors for five minutes.
        command.arg(format!("--connect-timeout={}", time.0.min(cluster.timeout.0).ceil().max(1.0)));
        command.args(QUIET).args(["--format", "json"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| {
            let fault = Fault::os(cluster.command.display(), &error);
            let text = match fault.kind {
                FaultKind::Missing => format!(
                    "{}: no such command (install ceph-common, or say with `command` where it is)",
                    cluster.command.display()
                ),
                _ => fault.text,
            };
            Fault::new(fault.kind, text)
        })
    }

    /// What it writes until it ends; without a status where it is out of time or writes too much.
    fn listen(&self, child: &mut Child, until: Duration) -> Result<Heard, Cut> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut pipes = [stdout.map(OwnedFd::from), stderr.map(OwnedFd::from)];
        let broken = |error: std::io::Error| Fault::os("ceph: its output", &error);
        for pipe in pipes.iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true).map_err(|e| broken(e.into()))?;
        }
        loop {
            let status = child.try_wait().map_err(broken)?;
            take(&mut pipes[0], &mut out);
            take(&mut pipes[1], &mut err);
            if status.is_some() || out.len() > OUTPUT_BYTES_MAX || monotonic() >= until {
                let late = out.len() > OUTPUT_BYTES_MAX;
                return Ok((status.filter(|_| !late), out, err));
            }
            if (self.stopped)() {
                return Err(Cut::Stopped);
            }
            let open = pipes.iter().flatten();
            let mut fds: Vec<_> = open.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
            let _ = poll(&mut fds, Some(&LOOK));
        }
    }
}

type Heard = (Option<ExitStatus>, Vec<u8>, Vec<u8>);

/// All that a pipe holds now; it is `None` once nobody writes into it.
fn take(pipe: &mut Option<OwnedFd>, into: &mut Vec<u8>) {
    let Some(reader) = pipe else { return };
    let mut chunk = [0; 16 << 10];
    while into.len() <= OUTPUT_BYTES_MAX {
        match rustix::io::read(&*reader, &mut chunk) {
            Ok(0) => return *pipe = None,
            Ok(n) => into.extend_from_slice(&chunk[..n]),
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A `ceph` that does what the script says.
    fn client(dir: &tempfile::TempDir, script: &str) -> Cluster {
        let path = dir.path().join("ceph");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let search_path = Some(format!("{}:/usr/bin:/bin", dir.path().display()));
        Cluster { search_path, ..Cluster::default() }
    }

    fn ask(cluster: &Cluster, stopped: &dyn Fn() -> bool) -> Result<Value, Cut> {
        Client { cluster, stopped }.ask(&["status"])
    }

    fn fault(result: Result<Value, Cut>) -> Fault {
        match result {
            Err(Cut::Failed(fault)) => fault,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_is_told_whom_to_be_and_how_long_to_wait() {
        let dir = tempfile::tempdir().unwrap();
        let plain = client(&dir, r#"printf '{"said": "%s"}' "$*""#);
        let cluster = Cluster {
            conf: "/c.conf".into(),
            user: Some("client.l".into()),
            keyring: Some("/k".into()),
            timeout: Seconds(2.5),
            ..plain
        };
        let said = ask(&cluster, &|| false).unwrap();
        assert_eq!(
            said["said"],
            "--conf /c.conf --name client.l --keyring /k --connect-timeout=3 --log-file= \
             --admin-socket= --format json status"
        );
    }

    #[test]
    fn no_command_is_named_and_so_is_one_that_may_not_run() {
        let cluster = Cluster { command: "/no/such/ceph".into(), ..Cluster::default() };
        let missing = fault(ask(&cluster, &|| false));
        assert_eq!(missing.kind, FaultKind::Missing);
        assert!(missing.text.contains("/no/such/ceph: no such command (install"), "{missing}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let cluster = Cluster { command: file.path().into(), ..Cluster::default() };
        assert_eq!(fault(ask(&cluster, &|| false)).kind, FaultKind::Denied);
    }

    #[test]
    fn one_that_never_answers_is_killed_at_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster { timeout: Seconds(0.2), ..client(&dir, "exec sleep 600") };
        let late = fault(ask(&cluster, &|| false));
        assert_eq!(late.kind, FaultKind::TimedOut);
        assert!(late.text.starts_with("ceph status: no answer within"), "{late}");
        assert_eq!(ask(&cluster, &|| true), Err(Cut::Stopped));
    }

    #[test]
    fn an_endless_answer_ends_at_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster { timeout: Seconds(60.0), ..client(&dir, "exec yes") };
        let fault = fault(ask(&cluster, &|| false));
        assert_eq!(fault.kind, FaultKind::Malformed);
    }

    #[test]
    fn a_refusal_keeps_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = client(&dir, "echo 'Error EACCES: access denied' >&2; exit 13");
        let refused = fault(ask(&cluster, &|| false));
        assert_eq!(refused.kind, FaultKind::Denied);
        assert!(refused.text.contains("EACCES: access denied"), "{refused}");
    }
}
