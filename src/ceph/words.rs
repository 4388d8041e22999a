//! What `ceph` says when it says no: standard error into a fault that names what to change.

use crate::base::fault::{Fault, FaultKind};

/// The fault of a call that ended with `code` and this on standard error; `asked` is what was asked.
pub(super) fn fault(asked: &str, stderr: &str, code: Option<i32>) -> Fault {
    if let Some(keyring) = stderr.split("unable to find a keyring on ").nth(1) {
        let place = keyring.split(": (2)").next().unwrap_or(keyring);
        let place = place.lines().next().unwrap_or(place);
        return Fault::new(FaultKind::Missing, format!("{asked}: no keyring at {place}"));
    }
    let said = last_words(stderr);
    let errno = errno(&said).or(code.and_then(by_number));
    let kind = match errno {
        Some("EACCES" | "EPERM") => FaultKind::Denied,
        Some("EINVAL" | "EOPNOTSUPP" | "ENOSYS") => FaultKind::Unsupported,
        Some("ETIMEDOUT") => FaultKind::TimedOut,
        Some("ENOENT" | "ENXIO" | "ENODEV" | "ESRCH") => FaultKind::Missing,
        Some("EBUSY" | "EAGAIN") => FaultKind::Refused,
        _ if is_late(&said) => FaultKind::TimedOut,
        _ if said.contains("ObjectNotFound") || said.contains("No such file") => FaultKind::Missing,
        _ if said.contains("PermissionDenied") => FaultKind::Denied,
        _ => FaultKind::Io,
    };
    let more = match kind {
        FaultKind::Denied if asked.contains("bench") => {
            " (a bench needs a key with osd 'allow *' and mon 'allow r')"
        }
        FaultKind::Denied => " (the key needs mon 'allow r' and mgr 'allow r')",
        FaultKind::TimedOut => " (no monitor answers)",
        _ => "",
    };
    Fault::new(kind, format!("{asked}: {said}{more}"))
}

fn is_late(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    said.contains("timed out") || said.contains("timedout") || said.contains("connection aborted")
}

/// The line that tells why; the log lines of the client library around it say how.
fn last_words(stderr: &str) -> String {
    const CHARS_MAX: usize = 400;
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let tells = |line: &&str| line.starts_with("Error ") || line.starts_with("[errno ");
    let line = lines().rfind(tells).or(lines().next_back()).unwrap_or("ended without a word");
    line.trim_start_matches("Error ").chars().take(CHARS_MAX).collect()
}

/// `EINVAL: block ...`, `[errno 13] RADOS permission denied (...)`.
fn errno(said: &str) -> Option<&str> {
    if let Some(rest) = said.strip_prefix("[errno ") {
        return by_number(rest.split(']').next()?.trim().parse().ok()?);
    }
    let word = said.split([':', ' ']).next()?;
    let named = word.len() > 2 && word.starts_with('E');
    (named && word.bytes().all(|b| b.is_ascii_uppercase())).then_some(word)
}

/// `ceph` ends with the number of the error; 1 is any.
fn by_number(number: i32) -> Option<&'static str> {
    Some(match number {
        2 => "ENOENT",
        6 => "ENXIO",
        11 => "EAGAIN",
        13 => "EACCES",
        16 => "EBUSY",
        22 => "EINVAL",
        95 => "EOPNOTSUPP",
        110 => "ETIMEDOUT",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As Ceph 16.2.15 said it.
    #[test]
    fn each_refusal_has_its_kind_and_keeps_the_words_that_help() {
        for (stderr, code, kind, words) in [
            (
                "Error EINVAL: block 'size' values are capped at 64 MiB. If you wish to use a \
                 higher value, please adjust 'osd_bench_max_block_size'\n",
                22,
                FaultKind::Unsupported,
                "osd_bench_max_block_size",
            ),
            (
                "Error EACCES: problem getting command descriptions from osd.0\n",
                13,
                FaultKind::Denied,
                "osd 'allow *'",
            ),
            (
                "Error ENXIO: problem getting command descriptions from osd.0\n",
                6,
                FaultKind::Missing,
                "osd.0",
            ),
            ("timed out\n", 1, FaultKind::TimedOut, "no monitor answers"),
            (
                "Error initializing cluster client: ObjectNotFound('RADOS object not found (error \
                 calling conf_read_file)')\n",
                1,
                FaultKind::Missing,
                "conf_read_file",
            ),
            (
                "2026-11-30T16:51:59 7fab -1 monclient(hunting): handle_auth_bad_method server \
                 allowed_methods [2] but i only support [2]\n\n[errno 13] RADOS permission denied \
                 (error connecting to the cluster)\n",
                1,
                FaultKind::Denied,
                "permission denied",
            ),
            (
                "2026 -1 auth: unable to find a keyring on /etc/ceph/k: (2) No such file or \
                 directory\n\n[errno 2] RADOS object not found (error connecting to the cluster)\n",
                1,
                FaultKind::Missing,
                "no keyring at /etc/ceph/k",
            ),
        ] {
            let fault = fault("osd.0 bench", stderr, Some(code));
            assert_eq!(fault.kind, kind, "{fault}");
            assert!(fault.text.contains(words), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn no_words_break_it(stderr in "\\PC{0,300}", code in any::<Option<i32>>()) {
            let fault = fault("status", &stderr, code);
            prop_assert!(fault.text.len() < 2000 && fault.text.starts_with("status: "));
        }
    }
}
