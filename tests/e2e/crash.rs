//! Killed at any moment.

use std::path::Path;
use std::time::Duration;

use crate::Promise;
use crate::harness::{Setup, disk_dir, until};

pub const PROMISES: &[Promise] =
    &[Promise::new("kill_9_at_random_moments_leaves_only_the_declared_file", killed_at_random)
        .alone()];

fn files(dir: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, out);
        } else {
            out.push(path.display().to_string());
        }
    }
}

fn workers() -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| std::fs::read(e.path().join("cmdline")).ok())
        .filter(|line| line.ends_with(b"\0worker\0"))
        .count()
}

fn killed_at_random() {
    let dir = disk_dir();
    let target = dir.path().join("t");
    std::fs::create_dir(&target).unwrap();
    let config = format!(
        "targets: [{{name: t, path: {}, ballast: 64MiB, budget: 100GiB}}]\n\
         probes:\n  - {{name: w, kind: disk, target: t, every: 10m, disk: {{profile: seq_write}}}}\n  \
         - {{name: r, kind: disk, target: t, every: 10m, disk: {{profile: rand_rw}}}}\n",
        target.display()
    );
    let seed = std::process::id() as u64;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let state = dir.path().join("state");
    for round in 0..20 {
        let mut daemon =
            Setup { state: Some(state.clone()), ..Setup::config(config.clone()) }.start();
        std::thread::park_timeout(Duration::from_millis(random.u64(0..1500)));
        daemon.child.kill().unwrap();
        daemon.child.wait().unwrap();
        until("the worker to see the end of its input", || (workers() == 0).then_some(()));
        let mut left = Vec::new();
        files(&target, &mut left);
        let declared =
            |f: &String| f.ends_with(".loadline/ballast") || f.ends_with(".loadline/CACHEDIR.TAG");
        assert!(left.iter().all(declared), "round {round}: {left:?}");
        let mut kept = Vec::new();
        files(&state, &mut kept);
        assert!(kept.iter().all(|f| f.ends_with("/state")), "round {round}: {kept:?}");
    }
    // What is left is whole: the next daemon measures at once and believes its state.
    let daemon = Setup { state: Some(state), ..Setup::config(config) }.start();
    daemon
        .until_metric("loadline_probe_operations_per_second", &["probe=\"w\""], |rate| rate > 0.0);
    let discarded = daemon
        .page()
        .all("loadline_state_discarded_total", &[])
        .iter()
        .map(|(_, n)| *n)
        .sum::<f64>();
    assert_eq!(discarded, 0.0);
}
