//! The few ways something can be wrong. Each kind is a label value and a sentence that helps.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Closed set of kinds: the `reason` of failure metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The thing is not there.
    Missing,
    /// The kernel or the operator forbids it.
    Denied,
    /// It is there and not what it should be.
    Malformed,
    /// It didn't answer within its deadline.
    TimedOut,
    /// A call into it does not return.
    Hung,
    /// This kernel, file system or device has no such thing.
    Unsupported,
    /// Somebody else holds it, or said no.
    Refused,
    /// No space, quota or inodes.
    Full,
    /// The device reported an error (EIO and its kin).
    Io,
    /// The worker process ended without an outcome.
    WorkerDied,
    /// A fault of loadline itself.
    Internal,
}

impl FaultKind {
    pub const ALL: [FaultKind; 11] = [
        FaultKind::Missing,
        FaultKind::Denied,
        FaultKind::Malformed,
        FaultKind::TimedOut,
        FaultKind::Hung,
        FaultKind::Unsupported,
        FaultKind::Refused,
        FaultKind::Full,
        FaultKind::Io,
        FaultKind::WorkerDied,
        FaultKind::Internal,
    ];

    /// Label value.
    pub fn label(self) -> &'static str {
        match self {
            FaultKind::Missing => "missing",
            FaultKind::Denied => "denied",
            FaultKind::Malformed => "malformed",
            FaultKind::TimedOut => "timed_out",
            FaultKind::Hung => "hung",
            FaultKind::Unsupported => "unsupported",
            FaultKind::Refused => "refused",
            FaultKind::Full => "full",
            FaultKind::Io => "io",
            FaultKind::WorkerDied => "worker_died",
            FaultKind::Internal => "internal",
        }
    }

    /// What a person can do about it.
    pub fn advice(self) -> &'static str {
        match self {
            FaultKind::Missing => "check the path, and that it is mounted where loadline runs",
            FaultKind::Denied => {
                "give loadline's user the right, mount it writable, or drop it from the configuration"
            }
            FaultKind::Malformed => "report the input: it is skipped until then",
            FaultKind::TimedOut => "the target is slow or stuck: look at it, and at its network",
            FaultKind::Hung => "calls into the target do not return: look at the device and dmesg",
            FaultKind::Unsupported => {
                "this kernel, file system or device can't do it: choose another target"
            }
            FaultKind::Refused => "somebody else holds it: wait, or end the other",
            FaultKind::Full => "make room: nothing is written below the space reserve",
            FaultKind::Io => "the device reports errors: look at dmesg and its health",
            FaultKind::WorkerDied => {
                "the worker process ended early: look at the log and at memory limits"
            }
            FaultKind::Internal => "this is a fault of loadline: please report it with the log",
        }
    }
}

/// One thing that went wrong: its kind, and a sentence that names the place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Fault {
    pub kind: FaultKind,
    /// Lower case, no full stop, names the place: `/srv: no space left (4 MiB of 64 MiB written)`.
    pub text: String,
}

impl Fault {
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Classifies an error of the operating system; `place` is the path or thing it concerns.
    pub fn os(place: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(kind_of(error), format!("{place}: {error}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text)
    }
}

fn kind_of(error: &std::io::Error) -> FaultKind {
    use rustix::io::Errno;
    let Some(errno) = Errno::from_io_error(error) else {
        return match error.kind() {
            std::io::ErrorKind::NotFound => FaultKind::Missing,
            std::io::ErrorKind::PermissionDenied => FaultKind::Denied,
            std::io::ErrorKind::TimedOut => FaultKind::TimedOut,
            std::io::ErrorKind::InvalidData => FaultKind::Malformed,
            std::io::ErrorKind::Unsupported => FaultKind::Unsupported,
            _ => FaultKind::Io,
        };
    };
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO | Errno::STALE => {
            FaultKind::Missing
        }
        // The limit of open files is one that the operator set.
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::MFILE | Errno::NFILE => {
            FaultKind::Denied
        }
        Errno::NOSPC | Errno::DQUOT => FaultKind::Full,
        Errno::TIMEDOUT => FaultKind::TimedOut,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => FaultKind::Unsupported,
        Errno::BUSY | Errno::WOULDBLOCK | Errno::ADDRINUSE | Errno::EXIST => FaultKind::Refused,
        _ => FaultKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_label_and_advice() {
        let labels: std::collections::BTreeSet<_> =
            FaultKind::ALL.iter().map(|k| k.label()).collect();
        assert_eq!(labels.len(), FaultKind::ALL.len());
        for kind in FaultKind::ALL {
            let wire = serde_json::to_string(&kind).unwrap();
            assert_eq!(wire, format!("\"{}\"", kind.label()), "wire and label are one word");
            assert!(!kind.advice().is_empty());
        }
    }

    #[test]
    fn errno_decides_the_kind() {
        let of = |e: rustix::io::Errno| Fault::os("/x", &e.into()).kind;
        assert_eq!(of(rustix::io::Errno::DQUOT), FaultKind::Full);
        assert_eq!(of(rustix::io::Errno::ROFS), FaultKind::Denied);
        assert_eq!(of(rustix::io::Errno::MFILE), FaultKind::Denied);
        assert_eq!(of(rustix::io::Errno::IO), FaultKind::Io);
        assert_eq!(of(rustix::io::Errno::NODEV), FaultKind::Missing);
        let own = std::io::Error::new(std::io::ErrorKind::Unsupported, "no such thing here");
        assert_eq!(Fault::os("/x", &own).kind, FaultKind::Unsupported);
    }
}
