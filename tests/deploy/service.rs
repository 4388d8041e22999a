//! The unit at work: under a real systemd, probes do all they have to, and no more.

use std::process::Command;

use crate::check::Check;
use crate::files::{must, root, said, text, until};
use crate::host::Host;
use crate::loops::Loop;
use crate::package::package;
use crate::silence::Silence;

pub const CHECKS: &[Check] = &[
    Check::new("probes_work_under_the_unit", probes).needs(NEEDS).root().slow(),
    Check::new("the_unit_starts_again_what_crashed_but_not_what_is_wrong", restarts)
        .needs(NEEDS)
        .root()
        .slow(),
    Check::new("the_unit_starts_beside_a_target_that_answers_nothing", silent_target)
        .needs(NEEDS)
        .root()
        .slow(),
    Check::new("the_unit_is_restarted_while_a_worker_is_stuck_on_a_dead_disk", dead_disk)
        .needs(NEEDS)
        .root()
        .slow(),
];

const NEEDS: &[&str] = &["debootstrap", "cargo-deb", "unshare", "losetup", "fsfreeze"];
const CONFIG: &str = "/etc/loadline/loadline.yml";
const DROP_IN: &str = "/etc/systemd/system/loadline.service.d/raw-devices.conf";

/// One small probe of /data.
const COMMIT: &str = "\
targets: [{name: data, path: /data, ballast: 64MiB}]
probes: [{name: commit, kind: latency, target: data, every: 10s}]
guard: {reserve: 64MiB}
first_run: now
";
const SUCCESS: &str = "loadline_probe_last_success_timestamp_seconds{probe=\"commit\"";

fn installed() -> Host {
    installed_on(Host::boot())
}

fn installed_on(host: Host) -> Host {
    host.install(package());
    until("the daemon's page", || host.page());
    host
}

fn show(host: &Host, key: &str) -> String {
    let key = format!("--property={key}");
    host.must(&["systemctl", "show", &key, "--value", "loadline"]).trim().to_owned()
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
    let drop_in = std::fs::read_to_string(host.at(DROP_IN)).unwrap();
    host.write("/run/systemd/system/once.service.d/raw-devices.conf", &drop_in);
    host.must(&["systemctl", "daemon-reload"]);
    let ended = host.run(&["systemctl", "start", "once"]);
    let out = std::fs::read_to_string(host.at("/run/out")).unwrap_or_default();
    (ended.status.success(), format!("{out}\n{}", host.journal("once")))
}

/// Rights to a directory and to raw devices, given as docs/deploy.md says.
fn give_targets(host: &Host) {
    let recipe = "install -d -o loadline -g loadline -m 0700 /srv/.loadline";
    assert!(text("docs/deploy.md").contains(recipe), "docs/deploy.md says how");
    host.shell(&recipe.replace("/srv", "/data"));
    host.write(DROP_IN, &text("deploy/systemd/raw-devices.conf"));
    host.must(&["systemctl", "daemon-reload"]);
}

fn probes() {
    let (host, disk) = (installed(), Loop::new(16));
    disk.appear(&host);
    give_targets(&host);

    // The daemon itself: a directory target of its own, in a worker that is confined.
    host.write(CONFIG, COMMIT);
    host.must(&["systemctl", "restart", "loadline"]);
    let page = until("a run on /data", || {
        let page = host.page()?;
        let failed = page.lines().find(|line| {
            line.starts_with("loadline_probe_failures_total{") && !line.ends_with(" 0")
        });
        assert_eq!(failed, None, "{}", host.journal("loadline"));
        page.contains(SUCCESS).then_some(page)
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
        let (fine, said) = once(&host, &format!("{probe} /data/.loadline --engine {engine}"));
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
        "/usr/bin/chown root /data/.loadline",
    ] {
        let (fine, said) = once(host, command);
        assert!(!fine, "{command} was let through: {said}");
    }
    // The same by a way that is allowed: these fail for what they do, not for how they are run.
    let (fine, said) = once(host, "/usr/bin/touch /data/.loadline/here");
    assert!(fine, "{said}");
}

fn restarts() {
    let host = installed();
    let show = |key| show(&host, key);
    let first = show("MainPID");
    host.must(&["systemctl", "kill", "--kill-whom=main", "--signal=KILL", "loadline"]);
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

fn silent_target() {
    let silence = Silence::default();
    let mut session = None;
    let host = Host::boot_with(|data| session = Some(silence.mount(data)));
    host.install(package());
    until("the daemon's page", || host.page());
    host.write(CONFIG, COMMIT);
    let quiet = silence.begin();
    for _ in 0..2 {
        host.must(&["systemctl", "restart", "loadline"]);
        until("the daemon's page", || host.page());
    }
    assert!(quiet.was_asked(), "no worker looked at the target");
    drop(quiet);
}

/// Thaws when dropped: a file system that stays frozen can't be taken away.
struct Frozen(std::path::PathBuf);

impl Frozen {
    fn new(path: std::path::PathBuf) -> Self {
        must(Command::new("fsfreeze").arg("--freeze").arg(&path));
        Self(path)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.0).status();
    }
}

fn dead_disk() {
    let disk = Loop::new(512);
    must(Command::new("mkfs.ext4").args(["-q", &disk.0]));
    let host = installed_on(Host::boot_with(|data| {
        must(Command::new("mount").arg(&disk.0).arg(data));
    }));
    give_targets(&host);
    host.write(CONFIG, COMMIT);
    host.must(&["systemctl", "restart", "loadline"]);
    until("a run on /data", || host.page().filter(|page| page.contains(SUCCESS)));

    let frozen = Frozen::new(host.data());
    let hangs = |page: &String| {
        let hung = "loadline_probe_hung_seconds{probe=\"commit\",target=\"data\"} ";
        page.lines().any(|line| line.strip_prefix(hung).is_some_and(|s| s != "0"))
    };
    until("the hang to be named", || host.page().filter(hangs));
    let stuck = show(&host, "MainPID");
    // It ends with a time-out of the stop, which is no reason not to start again.
    let _ = host.run(&["systemctl", "restart", "loadline"]);
    until("another daemon", || {
        (show(&host, "ActiveState") == "active" && show(&host, "MainPID") != stuck).then_some(())
    });
    until("the new daemon to know of the stuck worker", || host.page().filter(hangs));
    drop(frozen);
    until("the target to be back", || host.page().filter(|page| page.contains(SUCCESS)));
}
