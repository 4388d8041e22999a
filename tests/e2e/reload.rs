//! The configuration changes while the daemon runs.

use rustix::process::Signal;

use crate::Promise;
use crate::harness::{Daemon, NO_PROBES, Setup, until};

pub const PROMISES: &[Promise] = &[
    Promise::new("a_changed_file_is_taken_whole_or_refused_whole", file_change),
    Promise::new("sighup_reloads_at_once", sighup),
];

fn replace(daemon: &Daemon, text: &str) {
    // As editors and configuration management do: a new file under the old name.
    let new = daemon.config_path().with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, daemon.config_path()).unwrap();
}

fn file_change() {
    let daemon = Setup::config(NO_PROBES).start();
    daemon.until_metric("loadline_config_last_reload_successful", &[], |ok| ok == 1.0);
    replace(&daemon, "guard: {probes: false}\nprobess: []\n");
    daemon.until_metric("loadline_config_last_reload_successful", &[], |ok| ok == 0.0);
    assert!(
        daemon.page().get("loadline_probe_interval_seconds", &[]).is_some(),
        "the old plan stays"
    );
    replace(
        &daemon,
        "guard: {probes: false}\ntargets: [{name: t, path: /srv}]\n\
         probes: [{name: renamed, kind: latency, target: t, every: 20s}]\n",
    );
    daemon.until_metric("loadline_config_last_reload_successful", &[], |ok| ok == 1.0);
    let every = daemon.until_metric("loadline_probe_interval_seconds", &["renamed"], |_| true);
    assert_eq!(every, 20.0);
    until("the old probes to be gone", || {
        let all = daemon.page();
        (all.all("loadline_probe_interval_seconds", &[]).len() == 1).then_some(())
    });
}

fn sighup() {
    let daemon = Setup::config(NO_PROBES).start();
    let name = "loadline_config_last_reload_success_timestamp_seconds";
    let first = daemon.until_metric(name, &[], |_| true);
    daemon.signal(Signal::HUP);
    daemon.until_metric(name, &[], |at| at > first);
}
