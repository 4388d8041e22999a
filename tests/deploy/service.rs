//! The unit at work: under a real systemd, probes do all they have to, and no more.

use std::process::Command;

use crate::check::Check;
use crate::files::{disk_dir, must, root, said, text, until};
use crate::host::Host;
use crate::package::package;

pub const CHECKS: &[Check] = &[
    Check::new("probes_work_under_the_unit", probes).needs(NEEDS).root().slow(),
    Check::new("the_unit_starts_again_what_crashed_but_not_what_is_wrong", restarts)
        .needs(NEEDS)
        .root()
        .slow(),
];

const NEEDS: &[&str] = &["debootstrap", "cargo-deb", "unshare", "losetup"];
const CONFIG: &str = "/etc/loadline/loadline.yml";

fn installed() -> Host {
    let host = Host::boot();
    host.install(package());
    until("the daemon's page", || host.page());
    host
}

/// Runs a command once with all that the unit has, and returns how it ended and what it said.
fn once(host: &Host, command: &str) -> (bool, String) {
    const NOT_FOR_ONE_RUN: [&str; 4] = ["Type=", "ExecReload=", "Restart", "WatchdogSec="];
    let unit: String = text("deploy/systemd/loadline.service")
        .lines()
        .filter(|line| !NOT_FOR_ONE_RUN.iter().any(|key| line.starts_with(key)))
        .map(|line| match line.strip_prefix("ExecStart=") {
            Some(_) => {
                format!("Type=oneshot\nExecStart={command}\nStandardOutput=truncate:/run/out\n")
            }
            None => format!("{line}\n"),
        })
        .collect();
    host.write("/run/systemd/system/once.service", &unit);
    for source in ["/etc/systemd/system/loadline.service.d/targets.conf"] {
        let drop_in = std::fs::read_to_string(host.at(source)).unwrap();
        host.write("/run/systemd/system/once.service.d/targets.conf", &drop_in);
    }
    host.must(&["systemctl", "daemon-reload"]);
    let ended = host.run(&["systemctl", "start", "once"]);
    let out = std::fs::read_to_string(host.at("/run/out")).unwrap_or_default();
    (ended.status.success(), format!("{out}\n{}", host.journal("once")))
}

/// A loop device that goes with the test.
struct Loop(String, #[allow(dead_code, reason = "holds the file")] tempfile::TempDir);

impl Loop {
    fn new() -> Self {
        let dir = disk_dir();
        let file = dir.path().join("disk");
        std::fs::write(&file, vec![7; 16 << 20]).unwrap();
        let device = must(Command::new("losetup").args(["--find", "--show"]).arg(&file));
        Self(device.trim().to_owned(), dir)
    }

    /// Makes its node on the host, as udev would.
    fn appear(&self, host: &Host) {
        let minor = self.0.trim_start_matches("/dev/loop");
        let device = &self.0;
        host.shell(&format!("mknod -m 660 {device} b 7 {minor}; chgrp disk {device}"));
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

/// Rights to a directory and to raw devices, given as docs/deploy.md says.
fn give_targets(host: &Host) {
    let drop_in: String = text("deploy/systemd/targets.conf")
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if setting.starts_with(char::is_alphabetic) => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert!(
        drop_in.contains("\nReadWritePaths=-/srv\nSupplementaryGroups=disk\n") || {
            drop_in.contains("\nReadWritePaths=-/srv\n")
                && drop_in.contains("\nSupplementaryGroups=disk\n")
        }
    );
    host.write("/etc/systemd/system/loadline.service.d/targets.conf", &drop_in);
    let recipe = "install -d -o loadline -g loadline -m 0700 /srv/.loadline";
    assert!(text("docs/deploy.md").contains(recipe), "docs/deploy.md says how");
    host.shell(recipe);
    host.must(&["systemctl", "daemon-reload"]);
}

fn probes() {
    let (host, disk) = (installed(), Loop::new());
    disk.appear(&host);
    give_targets(&host);

    // The daemon itself: a directory target of its own, in a worker that is confined.
    host.write(
        CONFIG,
        "targets: [{name: srv, path: /srv, ballast: 64MiB}]\n\
         probes: [{name: commit, kind: latency, target: srv, every: 10s}]\n\
         first_run: now\n",
    );
    host.must(&["systemctl", "restart", "loadline"]);
    let success = "loadline_probe_last_success_timestamp_seconds{probe=\"commit\"";
    let page = until("a run on /srv", || {
        let page = host.page()?;
        let failed = page.lines().find(|line| {
            line.starts_with("loadline_probe_failures_total{") && !line.ends_with(" 0")
        });
        assert_eq!(failed, None, "{}", host.journal("loadline"));
        page.contains(success).then_some(page)
    });
    for part in ["io_priority", "landlock", "nice", "no_new_privs", "seccomp"] {
        let holds = format!("loadline_sandbox_enforced{{part=\"{part}\"}} 1");
        let at_all = format!("loadline_sandbox_enforced{{part=\"{part}\"}}");
        // Landlock is the kernel's to have.
        let free = part == "landlock" && !std::path::Path::new("/sys/kernel/security").exists();
        assert!(page.contains(&holds) || free && page.contains(&at_all), "{part} doesn't hold");
    }
    for sampler in ["cpu", "disk", "link", "namespace", "pressure", "qdisc", "softnet", "tcp"] {
        let up = format!("loadline_sampler_up{{sampler=\"{sampler}\"}} 1");
        assert!(page.contains(&up), "{sampler} is not read: {}", host.journal("loadline"));
    }
    assert!(page.contains("loadline_disk_reads_completed_total{device="), "no disk is seen");

    // By hand, under the same unit: each engine on a directory, and a raw device.
    let probe = "/usr/bin/loadline probe disk --profile rand_read --runtime 1s --one-leg \
                 --size 64MiB --format json --target";
    for engine in ["io_uring", "aio", "threads"] {
        let (fine, said) = once(&host, &format!("{probe} /srv/.loadline --engine {engine}"));
        assert!(fine && said.contains(&format!("\"{engine}\"")), "{engine}: {said}");
    }
    let (fine, said) = once(&host, &format!("{probe} {}", disk.0));
    assert!(fine && said.contains("operations"), "raw: {said}");
    forbidden(&host, &disk.0);
}

/// What the unit must keep from whatever runs in it.
fn forbidden(host: &Host, device: &str) {
    let dd = format!("/usr/bin/dd if=/dev/zero of={device} bs=512 count=1 conv=notrunc");
    let (fine, said) = once(host, &dd);
    assert!(!fine && said.contains("not permitted"), "a raw device was written: {said}");
    for command in [
        "/usr/bin/touch /etc/passwd.new",
        "/usr/bin/touch /home/here",
        "/usr/bin/unshare --net true",
        "/usr/bin/mount -t tmpfs none /tmp",
        "/usr/bin/chown root /srv/.loadline",
    ] {
        let (fine, said) = once(host, command);
        assert!(!fine, "{command} was let through: {said}");
    }
    // The same by a way that is allowed: these fail for what they do, not for how they are run.
    let (fine, said) = once(host, "/usr/bin/touch /srv/.loadline/here");
    assert!(fine, "{said}");
}

fn restarts() {
    let host = installed();
    let show = |key: &str| {
        let key = format!("--property={key}");
        host.must(&["systemctl", "show", &key, "--value", "loadline"]).trim().to_owned()
    };
    let first = show("MainPID");
    host.must(&["kill", "-KILL", &first]);
    until("another daemon", || {
        (show("ActiveState") == "active" && show("MainPID") != first).then(|| host.page())?
    });

    // A file with a mistake: refused before the daemon is told, and it works on.
    let good = std::fs::read_to_string(root().join("deploy/systemd/loadline.yml")).unwrap();
    host.write(CONFIG, "targts: []\n");
    let refused = host.run(&["systemctl", "reload", "loadline"]);
    assert!(!refused.status.success(), "{}", said(&refused));
    assert_eq!(show("ActiveState"), "active");
    assert!(host.journal("loadline").contains("targets"), "the nearest key is named");
    host.write(CONFIG, &good);
    host.must(&["systemctl", "reload", "loadline"]);

    // What is wrong is not tried again and again.
    host.write(CONFIG, "targts: []\n");
    assert!(!host.run(&["systemctl", "restart", "loadline"]).status.success());
    until("the unit to give up", || (show("ActiveState") == "failed").then_some(()));
    assert_eq!(show("NRestarts"), "0");
}
