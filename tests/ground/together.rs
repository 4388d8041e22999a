//! A host whose targets are all bad: each is named, and the page comes on time all the while.

use std::time::{Duration, Instant};

use fuser::Errno;

use crate::Promise;
use crate::fuse::{Call, Faults, Fuse};
use crate::harness::{Page, Setup, disk_dir};
use crate::volume::Volume;

pub const PROMISES: &[Promise] =
    &[Promise::new("case_112_bad_targets_are_named_while_the_page_stays_on_time", bad_targets)
        .root()
        .needs(&["fusermount3", "losetup", "mkfs.ext4"])];

/// Longest answer of the page.
const SCRAPE_MAX: Duration = Duration::from_secs(2);

fn bad_targets() {
    let hangs = Fuse::new(Faults::default());
    let fails = Fuse::new(Faults::default());
    let refuses = Fuse::new(Faults { no_direct: true, ..Faults::default() });
    let small = Volume::ext4(64);
    let gone = disk_dir();
    let places = [
        ("hangs", hangs.path.clone()),
        ("fails", fails.path.clone()),
        ("refuses", refuses.path.clone()),
        ("small", small.path().to_path_buf()),
        ("gone", gone.path().join("gone")),
    ];
    hangs.stall(true);
    fails.fail(Call::Write, Errno::EIO);
    let mut config = String::from("guard: {reserve: 1MiB}\ntargets:\n");
    for (name, path) in &places {
        let path = path.display();
        config += &format!("  - {{name: {name}, path: {path}, ballast: 64MiB, writes: true}}\n");
    }
    config += "probes:\n";
    for (name, _) in &places {
        config += &format!("  - {{name: on_{name}, kind: latency, target: {name}, every: 10s}}\n");
    }
    let daemon = Setup::config(config).start();
    // A call that SIGKILL ends is late, one that it doesn't is hung: the kernel decides.
    let mut wanted = vec![
        ("hangs", &["timed_out", "hung"][..]),
        ("fails", &["io"]),
        ("refuses", &["unsupported"]),
        ("small", &["full"]),
        ("gone", &["missing"]),
    ];
    let mut sampled = false;
    let begin = Instant::now();
    while !wanted.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(50), "not named: {wanted:?}");
        let asked = Instant::now();
        let page = Page::parse(daemon.get("/metrics").expect("the page answers"));
        assert!(asked.elapsed() < SCRAPE_MAX, "{:?}", asked.elapsed());
        let samples = page.all("loadline_disk_reads_completed_total", &[]).len();
        assert!(samples > 0 || !sampled, "a page without samples of the last three seconds");
        sampled |= samples > 0;
        wanted.retain(|(target, reasons)| {
            let is_named = |metric, reason| {
                let labels = [format!("target=\"{target}\""), format!("reason=\"{reason}\"")];
                page.get(metric, &[&labels[0], &labels[1]]).is_some_and(|n| n > 0.0)
            };
            let metrics = ["loadline_probe_failures_total", "loadline_probe_skips_total"];
            !reasons.iter().any(|reason| metrics.iter().any(|metric| is_named(metric, reason)))
        });
        let rates = page.all("loadline_probe_operations_per_second", &[]);
        assert!(rates.is_empty(), "a number for a bad target: {rates:?}");
        std::thread::park_timeout(Duration::from_millis(200));
    }
    assert!(sampled);
}
