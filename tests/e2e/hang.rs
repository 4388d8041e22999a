//! A target that does not answer.

use std::time::{Duration, Instant};

use crate::Promise;
use crate::harness::{Mounted, Setup, must};

pub const PROMISES: &[Promise] = &[Promise::new(
    "a_hung_target_leaves_the_page_answering_and_the_daemon_restartable",
    frozen_target,
)
.root()
.needs(&["fsfreeze", "losetup", "mkfs.ext4"])];

/// Thaws when dropped, so that a failed test leaves no frozen file system.
struct Frozen(String);

impl Frozen {
    fn new(path: &std::path::Path) -> Self {
        let path = path.display().to_string();
        must("fsfreeze", &["-f", &path]);
        Self(path)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = std::process::Command::new("fsfreeze").args(["-u", &self.0]).status();
    }
}

fn frozen_target() {
    let disk = Mounted::ext4(512);
    let config = format!(
        "guard: {{reserve: 64MiB}}\n\
         targets: [{{name: t, path: {}, ballast: 64MiB}}]\n\
         probes: [{{name: fast, kind: latency, target: t, every: 10s}}]\n",
        disk.path.display()
    );
    let mut daemon = Setup::config(config.clone()).start();
    daemon.until_metric("loadline_probe_runs_total", &["probe=\"fast\""], |n| n >= 1.0);
    let frozen = Frozen::new(&disk.path);
    let hung = &["probe=\"fast\""];
    let first =
        crate::harness::until_within(Duration::from_secs(150), "the hang to be named", || {
            daemon.page().get("loadline_probe_hung_seconds", hung).filter(|s| *s > 0.0)
        });
    let begun = Instant::now();
    daemon.until_metric("loadline_probe_hung_seconds", hung, |seconds| seconds > first);
    daemon.get("/metrics").expect("the page answers");
    assert!(begun.elapsed() < Duration::from_secs(30), "scrapes were slow");

    // Killed and started again on the same port, while the worker is still stuck.
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let port = daemon.port;
    let state = daemon.state.clone();
    let again = Setup { port: Some(port), state: Some(state), ..Setup::config(config) }.start();
    assert!(again.get("/metrics").is_ok());
    drop(frozen);
    // The attempts that failed meanwhile made the wait for the next one a minute.
    again.until_metric("loadline_probe_last_success_timestamp_seconds", hung, |at| at > 0.0);
}
