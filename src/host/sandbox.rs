//! Confinement of workers: no_new_privs, priority, Landlock, seccomp. Never fatal: what doesn't
//! hold on this kernel is said, and published as `loadline_sandbox_enforced{part}`.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    path_beneath_rules,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::sys;

/// What a task has to be able to do once it is confined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Directories and files below which it reads and writes; everything else is not writable.
    pub write_below: Vec<PathBuf>,
    /// Directories and files below which it only reads; /proc and /sys come by themselves.
    pub read_below: Vec<PathBuf>,
    /// Gives way to everybody else: nice, idle I/O class.
    pub polite: bool,
    /// May execute a command, which then has the same confinement.
    pub executes: bool,
}

const ALWAYS_READABLE: [&str; 2] = ["/proc", "/sys"];
/// The newest rights asked for. Later ones restrict ioctls, which raw devices need (BLKGETSIZE64).
const LANDLOCK: ABI = ABI::V3;
const NICE: i32 = 10;

/// Confines the calling thread and every thread it starts from now on; seccomp and no_new_privs
/// also hold for the threads that are there already. Answers which parts hold.
///
/// Opening the paths of `needs` can hang with their file system: call it where that is expected.
pub fn confine(needs: &Needs) -> Vec<(String, bool)> {
    let mut parts = Vec::new();
    let mut part = |name: &str, holds: bool| parts.push((name.to_owned(), holds));
    if needs.polite {
        // On Linux nice belongs to the thread; threads inherit it from the one that starts them.
        part("nice", rustix::process::setpriority_process(None, NICE).is_ok());
        part("io_priority", sys::io_priority_idle().is_ok());
    }
    part("no_new_privs", rustix::thread::set_no_new_privs(true).is_ok());
    part("landlock", restrict_paths(needs).unwrap_or(false));
    part("seccomp", deny_calls(needs.executes).is_some());
    parts
}

/// True when every right that was asked for is enforced.
fn restrict_paths(needs: &Needs) -> Result<bool, landlock::RulesetError> {
    let mut read = AccessFs::ReadFile | AccessFs::ReadDir;
    if needs.executes {
        read |= AccessFs::Execute;
    }
    let readable = ALWAYS_READABLE.iter().map(PathBuf::from).chain(needs.read_below.clone());
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .create()?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(&needs.write_below, read | AccessFs::from_write(LANDLOCK)))?
        .restrict_self()?;
    Ok(status.ruleset == RulesetStatus::FullyEnforced)
}

fn deny_calls(but_execution: bool) -> Option<()> {
    seccompiler::apply_filter_all_threads(&deny_list(but_execution)?).ok()
}

/// A deny list: a list of what is allowed breaks when libc moves to a newer call.
fn deny_list(but_execution: bool) -> Option<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).ok()?;
    let rules =
        sys::forbidden_calls(but_execution).iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(rustix::io::Errno::PERM.raw_os_error() as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own: Landlock holds for that alone, the rest of `confine` would not.
    #[test]
    fn what_is_only_read_can_not_be_opened_for_writing_by_any_code() {
        let dir = tempfile::tempdir().unwrap();
        let [device, other] = ["device", "other"].map(|name| dir.path().join(name));
        let own = dir.path().join("own");
        std::fs::create_dir(&own).unwrap();
        for path in [&device, &other] {
            std::fs::write(path, "precious").unwrap();
        }
        let needs = Needs {
            write_below: vec![own.clone()],
            read_below: vec![device.clone()],
            ..Needs::default()
        };
        let holds = std::thread::scope(|scope| {
            let confined = scope.spawn(|| {
                if !restrict_paths(&needs).unwrap_or(false) {
                    return false;
                }
                let write = |path: &PathBuf| std::fs::File::options().write(true).open(path);
                let refused = std::io::ErrorKind::PermissionDenied;
                assert_eq!(write(&device).unwrap_err().kind(), refused);
                assert_eq!(write(&other).unwrap_err().kind(), refused);
                assert_eq!(std::fs::File::open(&other).unwrap_err().kind(), refused);
                let device = std::fs::File::open(&device).unwrap();
                assert_eq!(std::io::read_to_string(device).unwrap(), "precious");
                std::fs::write(own.join("ballast"), "blocks").unwrap();
                true
            });
            confined.join().unwrap()
        });
        if !holds {
            println!("skipped: this kernel has no Landlock, or not enough of it");
        }
    }

    #[test]
    fn the_deny_list_compiles_for_this_machine() {
        for but_execution in [false, true] {
            let calls = sys::forbidden_calls(but_execution).len();
            assert!(deny_list(but_execution).is_some_and(|program| program.len() > calls));
        }
    }
}
