//! Workers that can't be killed: kept until the kernel lets them go.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::host::roots::{attribute, read_file};

/// What carries out a job at the other end of the pipes.
pub(super) trait Body: Send + fmt::Debug {
    fn pid(&self) -> u32;
    /// Becomes readable when it ends; `None` where the kernel has no such thing.
    fn end(&self) -> Option<BorrowedFd<'_>>;
    fn kill(&mut self);
    /// How it ended, once it has. Never waits.
    fn reap(&mut self) -> Option<String>;
}

/// A worker that SIGKILL doesn't end, because a call of its into the kernel doesn't return.
#[derive(Debug)]
pub struct Stuck {
    record: StuckRecord,
    body: Box<dyn Body>,
}

impl Stuck {
    pub(super) fn new(body: Box<dyn Body>) -> Self {
        Self { record: StuckRecord::of(body.pid()), body }
    }

    /// What to keep in the state, so that a restarted daemon still knows of it.
    pub fn record(&self) -> &StuckRecord {
        &self.record
    }

    /// Tries to collect it, without waiting; true once it is gone, and ever after.
    pub fn reap(&mut self) -> bool {
        self.body.reap().is_some()
    }

    /// True while the process of `record`, a child of an earlier daemon, is still there.
    pub fn still_there(record: &StuckRecord) -> bool {
        record.start_time.is_some() && *record == StuckRecord::of(record.pid)
    }
}

/// Names one process for good: the kernel uses pids again, and start times anew after a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckRecord {
    pub pid: u32,
    /// Clock ticks from boot to its start; `None` where it couldn't be read.
    pub start_time: Option<u64>,
    pub boot_id: Option<String>,
}

impl StuckRecord {
    /// The process that has this pid now. Always from /proc itself: a pid is of our own namespace,
    /// whatever `--path.procfs` says.
    fn of(pid: u32) -> Self {
        let stat = read_file(Path::new(&format!("/proc/{pid}/stat")));
        Self {
            pid,
            start_time: stat.ok().and_then(|stat| start_time(&stat)),
            boot_id: attribute(Path::new("/proc/sys/kernel/random/boot_id")),
        }
    }
}

/// Field 22 of /proc/PID/stat (fs/proc/array.c). Field 2 is the command in parentheses and may hold
/// any bytes, so fields count from the last `)`. A zombie counts as there: the first thread of a
/// stuck process may have ended before the others.
fn start_time(stat: &[u8]) -> Option<u64> {
    let after_command = stat.iter().rposition(|b| *b == b')')? + 1;
    let text = std::str::from_utf8(&stat[after_command..]).ok()?;
    text.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_spaces_and_brackets_hides_no_field() {
        let stat = b"7 (a) 3 (b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 9 9 9\n";
        assert_eq!(start_time(stat), Some(4242));
        assert_eq!(start_time(b"7 (a"), None);
        assert_eq!(start_time(b"7 (a) S 1"), None);
    }

    #[test]
    fn a_process_is_known_again_until_pid_start_or_boot_differ() {
        let this = StuckRecord::of(std::process::id());
        assert!(Stuck::still_there(&this));
        assert!(!Stuck::still_there(&StuckRecord { start_time: Some(1), ..this.clone() }));
        assert!(!Stuck::still_there(&StuckRecord {
            boot_id: Some("other".into()),
            ..this.clone()
        }));
        let nobody = StuckRecord { pid: u32::MAX, start_time: None, ..this.clone() };
        assert!(!Stuck::still_there(&nobody), "two unknown start times are not the same process");
        let wire = serde_json::to_string(&this).unwrap();
        assert_eq!(serde_json::from_str::<StuckRecord>(&wire).unwrap(), this);
    }
}
