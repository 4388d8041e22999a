//! The cluster of all tests: started by the first that wants it, ended with the last.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::harness::{Ran, disk_dir, free_port, loadline, must, until, until_within};

/// What a host needs for one.
pub const NEEDS: &[&str] = &["ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-authtool"];

static CLUSTER: Mutex<Option<Cluster>> = Mutex::new(None);

pub struct Cluster {
    dir: TempDir,
}

/// Gives the cluster to one test at a time.
pub fn with(test: impl FnOnce(&Cluster)) {
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = cluster.get_or_insert_with(Cluster::start);
    cluster.heal();
    test(cluster);
}

pub fn stop() {
    CLUSTER.lock().unwrap_or_else(PoisonError::into_inner).take();
}

impl Cluster {
    fn start() -> Self {
        // Sockets' paths are short.
        let dir = tempfile::Builder::new().prefix("ceph").tempdir_in(disk_dir_base()).unwrap();
        let cluster = Self { dir };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ceph/cluster.sh");
        let port = free_port().min(65_000);
        let path = cluster.path("").display().to_string();
        must("bash", &[script, path.trim_end_matches('/'), &port.to_string()]);
        cluster
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn conf(&self) -> String {
        self.path("ceph.conf").display().to_string()
    }

    pub fn ceph(&self, words: &[&str]) -> String {
        must("ceph", &[&["--conf", &self.conf(), "--connect-timeout=20"], words].concat())
    }

    /// The command under test, on this cluster.
    pub fn loadline(&self, words: &[&str]) -> Ran {
        loadline(&[words, &["--ceph-conf", &self.conf()]].concat(), &self.path("state"))
    }

    fn pid_file(&self, daemon: &str) -> PathBuf {
        self.path("run").join(format!("{daemon}.pid"))
    }

    pub fn pid(&self, daemon: &str) -> Pid {
        let text = std::fs::read_to_string(self.pid_file(daemon)).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    pub fn signal(&self, daemon: &str, signal: Signal) {
        kill_process(self.pid(daemon), signal).unwrap();
    }

    /// Starts OSDs that a test ended, and waits until all is well.
    fn heal(&self) {
        for osd in ["0", "1"] {
            let daemon = format!("osd.{osd}");
            if !self.pid_file(&daemon).exists() || test_kill_process(self.pid(&daemon)).is_err() {
                must("ceph-osd", &["--conf", &self.conf(), "-i", osd]);
            }
        }
        until_within(Duration::from_secs(120), "a healthy cluster", || {
            let status = self.ceph(&["status", "--format", "json"]);
            let told: serde_json::Value = serde_json::from_str(&status).ok()?;
            let states = told["pgmap"]["pgs_by_state"].as_array()?;
            // Groups that are still peering are work that a bench waits for.
            let clean = states.iter().all(|state| state["state_name"] == "active+clean");
            let quiet = clean && !states.is_empty();
            let healthy = told["health"]["status"] == "HEALTH_OK";
            (healthy && quiet && told["osdmap"]["num_up_osds"] == 2).then_some(())
        });
    }
}

fn disk_dir_base() -> PathBuf {
    disk_dir().path().parent().map(Path::to_path_buf).unwrap()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let files = std::fs::read_dir(self.path("run")).into_iter().flatten().flatten();
        let pids: Vec<Pid> = files
            .filter(|file| file.path().extension().is_some_and(|end| end == "pid"))
            .filter_map(|file| std::fs::read_to_string(file.path()).ok()?.trim().parse().ok())
            .filter_map(Pid::from_raw)
            .collect();
        for pid in &pids {
            let _ = kill_process(*pid, Signal::KILL);
        }
        // Its files go with it, once nobody writes them.
        until("the cluster to end", || {
            pids.iter().all(|pid| test_kill_process(*pid).is_err()).then_some(())
        });
    }
}
