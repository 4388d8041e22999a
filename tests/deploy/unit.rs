//! The systemd unit: hardened, and not past the point where it can't see the host any more.

use std::collections::BTreeSet;

use crate::check::Check;
use crate::files::{must, program, text};

pub const CHECKS: &[Check] = &[
    Check::new("the_unit_is_hardened_to_a_score_of_2_5", score).needs(&["systemd-analyze"]),
    Check::new("the_unit_hides_nothing_that_is_measured", sees_the_host),
    Check::new("a_stuck_worker_holds_a_stop_up_for_seconds_only", stops),
    Check::new("the_unit_calls_loadline_as_it_wants_to_be_called", commands),
];

const UNIT: &str = "deploy/systemd/loadline.service";

/// Values of a key, in the order of the file.
fn values(key: &str) -> Vec<String> {
    let values = |line: &str| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
    text(UNIT).lines().filter_map(values).collect()
}

fn score() {
    must(program("systemd-analyze").args([
        "security",
        "--no-pager",
        "--offline=true",
        "--threshold=25",
        UNIT,
    ]));
}

/// What other units are hardened with, and what each would take from this one.
const WOULD_HIDE: &[(&str, &str)] = &[
    ("ProtectProc", "who else uses the CPUs"),
    ("ProcSubset", "/proc/diskstats, /proc/net, /proc/pressure"),
    ("PrivateNetwork", "the host's links"),
    ("PrivateDevices", "raw devices"),
    ("PrivateUsers", "whose the turn is"),
    ("RootDirectory", "the host"),
    ("DynamicUser", "the owner of what lies on targets"),
    ("IPAddressDeny", "Prometheus"),
    ("ProtectHome", "that the daemon starts: systemd looks there first, and a hung mount hangs it"),
    ("ReadWritePaths", "the same"),
    ("ReadOnlyPaths", "the same"),
    ("InaccessiblePaths", "the same"),
];

fn sees_the_host() {
    for (key, what) in WOULD_HIDE {
        assert_eq!(values(key), [""; 0], "{key} would cost us {what}");
    }
    let families = values("RestrictAddressFamilies").join(" ");
    assert!(families.contains("AF_NETLINK"), "queues of links are read by rtnetlink");
    let calls = values("SystemCallFilter");
    let allowed: BTreeSet<&str> =
        calls.iter().filter(|c| !c.starts_with('~')).flat_map(|c| c.split(' ')).collect();
    for call in
        ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
    {
        assert!(allowed.contains(call), "workers confine themselves by {call}");
    }
    assert!(!calls.iter().any(|c| c.contains("~@resources")), "workers lower their priority");
    assert_eq!(values("DeviceAllow"), ["block-* r"], "raw devices are read, never written");
    assert_eq!(values("DevicePolicy"), ["closed"]);
    assert_eq!(values("ProtectSystem"), ["full"], "strict looks at every mount");
}

fn stops() {
    assert_eq!(values("KillMode"), ["mixed"], "the daemon tells its workers itself");
    assert_eq!(values("TimeoutStopSec"), ["8"]);
    assert_eq!(values("Type"), ["notify"]);
    assert!(!values("WatchdogSec").is_empty());
}

fn commands() {
    assert_eq!(values("RuntimeDirectory"), ["lock/loadline"], "the turn's place");
    assert_eq!(values("RuntimeDirectoryMode"), ["1777"], "anyone may take the turn");
    assert_eq!(values("RuntimeDirectoryPreserve"), ["yes"], "others hold it beyond a restart");
    assert_eq!(values("RestartPreventExitStatus"), ["2 3"], "exit codes of the README");
    let starts = values("ExecStart").join("");
    let Some(arguments) = starts.strip_prefix("/usr/bin/loadline serve ") else {
        panic!("{starts}");
    };
    assert_eq!(arguments, "--config /etc/loadline/loadline.yml");
    // The configuration of the package means what it says it means.
    must(
        std::process::Command::new(env!("CARGO_BIN_EXE_loadline"))
            .args(["check", "--config", "deploy/systemd/loadline.yml"])
            .env("STATE_DIRECTORY", crate::files::disk_dir().path())
            .current_dir(crate::files::root()),
    );
    let config: serde_yaml::Value = crate::files::yaml("deploy/systemd/loadline.yml");
    assert_eq!(config["first_run"], "spread", "a fleet doesn't start at once");
}
