//! What a person types, and what happens when it is wrong.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::Promise;
use crate::harness::{
    BINARY, LoopDisk, Mounted, NO_PROBES, Setup, disk_dir, loadline, until_within,
};

pub const PROMISES: &[Promise] = &[
    Promise::new("each_start_up_fault_has_its_exit_code_and_says_what_to_do", exit_codes),
    Promise::new("check_prints_every_probe_and_its_bytes_a_day", check),
    Promise::new("probe_disk_measures_and_leaves_nothing_behind", probe_disk).alone(),
    Promise::new("an_fio_job_file_is_checked_like_any_other_probe", fio_job),
    Promise::new("an_interrupted_probe_prints_what_is_known_and_leaves_nothing", interrupted)
        .alone(),
    Promise::new("clean_gives_the_ballast_back", clean),
    Promise::new("a_full_target_is_skipped_and_never_filled", full_target)
        .root()
        .needs(&["mkfs.ext4", "losetup"]),
    Promise::new("a_read_only_target_is_a_named_state", read_only_target)
        .root()
        .needs(&["mkfs.ext4", "losetup"]),
    Promise::new("a_target_that_vanishes_is_missing_and_comes_back", vanishing_target),
    Promise::new("a_raw_device_is_measured_and_never_written", raw_device)
        .alone()
        .root()
        .needs(&["losetup"]),
    Promise::new("case_101_io_uring_denied_falls_back_to_aio_and_says_why", no_io_uring)
        .alone()
        .root(),
    Promise::new("memory_is_refused_as_a_target", memory),
    Promise::new("a_read_only_state_directory_stops_no_sampling", read_only_state)
        .root()
        .needs(&["mkfs.ext4", "losetup"]),
];

fn exit_codes() {
    let dir = disk_dir();
    let state = dir.path();
    let wrong = loadline(&["--lissten", ":1"], state);
    assert_eq!(wrong.code, Some(2), "{}", wrong.err);
    assert!(wrong.err.contains("--listen"), "{}", wrong.err);

    let config = dir.path().join("bad.yml");
    std::fs::write(&config, "targets:\n  - {name: t, pth: /srv}\n").unwrap();
    let path = config.display().to_string();
    for command in [vec!["--config", &path], vec!["check", "--config", &path]] {
        let bad = loadline(&command, state);
        assert_eq!(bad.code, Some(3), "{}", bad.err);
        assert!(
            bad.err.contains("bad.yml:2:") && bad.err.contains("did you mean `path`"),
            "{}",
            bad.err
        );
    }

    let holder = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let used = loadline(&["--listen", &format!("0.0.0.0:{port}")], state);
    assert_eq!(used.code, Some(1), "{}", used.err);
    assert!(used.err.contains(&format!("port {port} is in use")), "{}", used.err);
    assert!(used.err.contains("--listen"), "{}", used.err);

    let root = loadline(&["--path.procfs", "/no/such/proc"], state);
    assert_eq!(root.code, Some(1), "{}", root.err);
    assert!(
        root.err.contains("/no/such/proc") && root.err.contains("--path.procfs"),
        "{}",
        root.err
    );

    let missing = loadline(&["--config", "/no/such/loadline.yml"], state);
    assert!(
        missing.code != Some(0) && missing.err.contains("/no/such/loadline.yml"),
        "{}",
        missing.err
    );

    let help = loadline(&["--help"], state);
    assert_eq!(help.code, Some(0));
    assert!(help.out.contains("Examples:") && help.out.contains("loadline check"), "{}", help.out);
    assert!(loadline(&["--version"], state).out.starts_with("loadline 0."));
}

fn check() {
    let dir = disk_dir();
    let ran = loadline(&["check"], dir.path());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for wanted in ["latency", "seq_read", "rand_write", "6h", "a day", "600 TBW"] {
        assert!(ran.out.contains(wanted), "`{wanted}` is missing in\n{}", ran.out);
    }
}

fn probe_disk() {
    let dir = disk_dir();
    let target = dir.path().display().to_string();
    let ran = loadline(
        &[
            "probe",
            "disk",
            "--target",
            &target,
            "--profile",
            "rand_rw",
            "--runtime",
            "2s",
            "--size",
            "64MiB",
            "--format",
            "json",
        ],
        dir.path(),
    );
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let json: serde_json::Value = serde_json::from_str(&ran.out).expect("one JSON document");
    let leg = &json["legs"][0];
    assert!(leg["reads"]["operations"].as_u64().unwrap() > 0, "{json}");
    assert!(leg["writes"]["operations"].as_u64().unwrap() > 0, "{json}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");

    let table = loadline(
        &[
            "probe",
            "disk",
            "--target",
            &target,
            "--profile",
            "seq_read",
            "--runtime",
            "1s",
            "--size",
            "64MiB",
        ],
        dir.path(),
    );
    let rows: Vec<Vec<&str>> = table.out.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((rows.len(), rows[0].len(), rows[1].len()), (2, 14, 14), "{}", table.out);
    assert_eq!(rows[1][..2], ["seq_read", "read"], "a pipe gets a line a direction, with tabs");
    assert!(rows[1][4].parse::<f64>().unwrap() > 0.0, "{}", table.out);
    assert!(table.err.contains("seq_read: "), "what else there is to say: {}", table.err);
    assert!(!table.out.contains('\u{1b}'), "no colours into a pipe: {}", table.out);

    let bad =
        loadline(&["probe", "disk", "--target", &target, "--profile", "rand_raed"], dir.path());
    assert_eq!(bad.code, Some(2), "{}", bad.err);
    assert!(bad.err.contains("rand_read"), "{}", bad.err);
    let bad = loadline(&["probe", "disk", "--target", &target, "--depth", "0"], dir.path());
    assert_eq!(bad.code, Some(2), "{}", bad.err);
    assert!(bad.err.contains("--depth"), "{}", bad.err);
}

fn fio_job() {
    let dir = disk_dir();
    let job = dir.path().join("job.fio");
    let config = |more: &str| {
        format!(
            "targets: [{{name: t, path: {}, ballast: 64MiB, budget: 1GiB}}]\n\
             probes: [{{name: job, kind: disk, target: t, disk: {{fio_job: {}{more}}}}}]\n",
            dir.path().display(),
            job.display()
        )
    };
    let write = |more: &str| {
        let text = "[mine]\nrw=randwrite\nbs=8k\nsize=4m\ndirect=1\nioengine=io_uring\niodepth=2\n";
        std::fs::write(&job, format!("{text}{more}")).unwrap();
    };
    let checked = |more: &str| {
        let path = dir.path().join("c.yml");
        std::fs::write(&path, config(more)).unwrap();
        loadline(&["check", "--config", &path.display().to_string()], dir.path())
    };
    write("bssplit=4k/50\n");
    let refused = checked("");
    assert_eq!(refused.code, Some(3), "{}", refused.err);
    assert!(refused.err.contains("job.fio:8:1: `bssplit=4k/50`"), "{}", refused.err);
    write("time_based\nruntime=2\n");
    let unbounded = checked("");
    assert!(unbounded.err.contains("c.yml:2:") && unbounded.err.contains("`bytes: "));
    let bounded = checked(", bytes: 8MiB");
    assert_eq!(bounded.code, Some(0), "{}", bounded.err);
    assert!(bounded.out.contains("mine 8 KiB, 1 job x depth 2"), "{}", bounded.out);
}

fn interrupted() {
    let dir = disk_dir();
    let target = dir.path().display().to_string();
    let mut child = Command::new(BINARY)
        .args([
            "probe",
            "disk",
            "--target",
            &target,
            "--profile",
            "rand_read",
            "--runtime",
            "60s",
            "--size",
            "64MiB",
        ])
        .env("STATE_DIRECTORY", dir.path().join("state"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The worker is at work once it has read something.
    crate::harness::until("the worker", || {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let worker = std::fs::read_to_string(children).ok()?.trim().to_owned();
        let io = std::fs::read_to_string(format!("/proc/{worker}/io")).ok()?;
        let read = io.lines().find_map(|l| l.strip_prefix("syscr: ")?.parse::<u64>().ok())?;
        let written =
            io.lines().find_map(|l| l.strip_prefix("write_bytes: ")?.parse::<u64>().ok())?;
        (read > 0 && written >= 64 << 20).then_some(())
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    until_within(Duration::from_secs(5), "the end", || child.try_wait().unwrap());
    let _ = std::fs::remove_dir_all(dir.path().join("state"));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn clean() {
    let dir = disk_dir();
    let config = dir.path().join("c.yml");
    let target = dir.path().join("t");
    std::fs::create_dir(&target).unwrap();
    let text = format!(
        "targets: [{{name: t, path: {}, ballast: 64MiB}}]\n\
         probes: [{{name: p, kind: latency, target: t, every: 10s}}]\n",
        target.display()
    );
    std::fs::write(&config, &text).unwrap();
    let mut daemon = Setup::config(text).start();
    daemon.until_metric("loadline_probe_runs_total", &[], |n| n >= 1.0);
    daemon.signal(Signal::TERM);
    daemon.wait(Duration::from_secs(5));
    assert!(target.join(".loadline/ballast").exists());
    let ran =
        loadline(&["clean", "--config", &config.display().to_string()], &dir.path().join("s"));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("64.0 MiB given back"), "{}", ran.out);
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}

fn target_config(path: &std::path::Path) -> String {
    format!(
        "targets: [{{name: t, path: {}, ballast: 64MiB, budget: 100GiB}}]\n\
         probes:\n  - {{name: fast, kind: latency, target: t, every: 10s}}\n  \
         - {{name: write, kind: disk, target: t, every: 1h, disk: {{profile: seq_write}}}}\n",
        path.display()
    )
}

fn full_target() {
    let disk = Mounted::ext4(96);
    let daemon = Setup::config(target_config(&disk.path)).start();
    daemon.until_metric(
        "loadline_probe_skips_total",
        &["probe=\"write\"", "reason=\"full\""],
        |n| n >= 1.0,
    );
    assert!(!disk.path.join(".loadline/ballast").exists());
    let page = daemon.page();
    assert!(page.get("loadline_probe_operations_per_second", &["probe=\"write\""]).is_none());
    assert!(page.get("loadline_filesystem_available_bytes", &["target=\"t\""]).is_some());
}

fn read_only_target() {
    let disk = Mounted::ext4(96);
    crate::harness::must("mount", &["-o", "remount,ro", &disk.path.display().to_string()]);
    let daemon = Setup::config(target_config(&disk.path)).start();
    let write = &["probe=\"write\"", "reason=\"read_only\""];
    daemon.until_metric("loadline_probe_skips_total", write, |n| n >= 1.0);
    assert!(daemon.page().get("loadline_probe_operations_per_second", write).is_none());
}

fn vanishing_target() {
    let dir = disk_dir();
    let target = dir.path().join("t");
    let daemon = Setup::config(target_config(&target)).start();
    daemon.until_metric("loadline_probe_failures_total", &["reason=\"missing\""], |n| n >= 1.0);
    let page = daemon.page();
    assert!(page.get("loadline_filesystem_available_bytes", &["target=\"t\""]).is_none());
    std::fs::create_dir(&target).unwrap();
    let fast = &["probe=\"fast\""];
    daemon.until_metric("loadline_probe_last_success_timestamp_seconds", fast, |at| at > 0.0);
}

fn read_only_state() {
    let disk = Mounted::ext4(96);
    crate::harness::must("mount", &["-o", "remount,ro", &disk.path.display().to_string()]);
    let daemon = Setup { state: Some(disk.path.join("state")), ..Setup::default() }.start();
    daemon.until_metric("loadline_sampler_up", &["sampler=\"disk\""], |up| up == 1.0);
    assert!(daemon.get("/-/healthy").is_ok());
    let daemon = Setup { state: Some(disk.path.join("state")), ..Setup::config(NO_PROBES) }.start();
    assert!(daemon.get("/metrics").is_ok());
}

fn raw_device() {
    let disk = LoopDisk::new(64);
    std::fs::write(&disk.device, vec![0x5a; 1 << 20]).unwrap();
    let content = || std::fs::read(&disk.device).unwrap();
    let before = content();
    let dir = disk_dir();
    let ran = loadline(
        &["probe", "disk", "--target", &disk.device, "--profile", "rand_write", "--runtime", "1s"],
        dir.path(),
    );
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("nothing is written to devices"), "{}", ran.err);
    let read = loadline(
        &["probe", "disk", "--target", &disk.device, "--profile", "rand_read", "--runtime", "1s"],
        dir.path(),
    );
    assert_eq!(read.code, Some(0), "{}", read.err);
    let config = format!("targets: [{{name: raw, path: {}}}]\n", disk.device);
    let daemon = Setup::config(config).start();
    daemon.until_metric("loadline_probe_operations_per_second", &["probe=\"rand_read\""], |rate| {
        rate > 0.0
    });
    let page = daemon.page();
    assert!(page.get("loadline_probe_interval_seconds", &["probe=\"seq_write\""]).is_none());
    drop(daemon);
    assert!(content() == before, "not a byte has changed");
}

/// Puts the kernel's switch back when dropped.
struct Switch(String);

const IO_URING_SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = std::fs::write(IO_URING_SWITCH, &self.0);
    }
}

fn no_io_uring() {
    let Ok(was) = std::fs::read_to_string(IO_URING_SWITCH) else {
        return println!("skipped: this kernel has no {IO_URING_SWITCH}");
    };
    let _switch = Switch(was);
    std::fs::write(IO_URING_SWITCH, "2").unwrap();
    let dir = disk_dir();
    let target = dir.path().display().to_string();
    let probe = ["probe", "disk", "--target", &target, "--runtime", "1s", "--size", "64MiB"];
    let ran = loadline(&[&probe[..], &["--format", "json"]].concat(), dir.path());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let leg = &json["legs"][0];
    assert_eq!(leg["engine"], "aio", "{leg}");
    assert!(leg["engine_reason"].as_str().unwrap().contains("io_uring"), "{leg}");
    let forced = loadline(&[&probe[..], &["--engine", "io_uring"]].concat(), dir.path());
    assert_eq!(forced.code, Some(1), "a forced engine is not replaced: {}", forced.out);
}

fn memory() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return println!("skipped: no /dev/shm");
    };
    let target = dir.path().display().to_string();
    let state = disk_dir();
    let ran = loadline(&["probe", "disk", "--target", &target, "--runtime", "1s"], state.path());
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.err.contains("memory, not a disk"), "{}", ran.err);
    let daemon = Setup::config(target_config(dir.path())).start();
    let refused = &["probe=\"fast\"", "reason=\"unsupported\""];
    daemon.until_metric("loadline_probe_failures_total", refused, |n| n >= 1.0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was laid out");
}
