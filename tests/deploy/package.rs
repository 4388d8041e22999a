//! The Debian package, made by cargo-deb from Cargo.toml, on a host of debootstrap's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::check::Check;
use crate::files::{disk_dir, must, program, root, text, until};
use crate::host::Host;

pub const CHECKS: &[Check] = &[
    Check::new("what_the_package_takes_is_there", assets),
    Check::new("the_package_installs_starts_and_purges_cleanly", lives)
        .needs(&["debootstrap", "cargo-deb", "unshare"])
        .root()
        .slow(),
];

/// The package around the binary of this build. cargo-deb packs only what lies under `release`.
static PACKAGE: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let dir = disk_dir();
    std::fs::create_dir(dir.path().join("release")).unwrap();
    let binary = dir.path().join("release/loadline");
    must(Command::new("strip").arg("-o").arg(&binary).arg(env!("CARGO_BIN_EXE_loadline")));
    let package = dir.path().join("loadline.deb");
    let said = must(
        program("cargo-deb")
            .args(["deb", "--no-build", "--no-strip", "--fast", "--locked", "--output"])
            .arg(&package)
            .env("CARGO_TARGET_DIR", dir.path()),
    );
    assert!(!said.contains("warning"), "{said}");
    (dir, package)
});

pub fn package() -> &'static Path {
    &PACKAGE.1
}

fn assets() {
    let manifest = text("Cargo.toml");
    let metadata = manifest.split("[package.metadata.deb]").nth(1).unwrap();
    let lines = metadata.split("\n]").next().unwrap().lines();
    let assets: Vec<_> = lines.filter_map(|l| l.trim().strip_prefix("[\"")).collect();
    assert!(assets.len() > 5, "{metadata}");
    for asset in assets {
        let source = asset.split('"').next().unwrap();
        let folder = source.split('*').next().unwrap();
        assert!(folder.starts_with("target/") || root().join(folder).exists(), "{source}");
    }
}

/// What a purge leaves: the user, and what systems note of every package.
fn may_stay(path: &Path) -> bool {
    const USERS: [&str; 5] = ["passwd", "group", "shadow", "gshadow", ".pwd.lock"];
    let is_of_users = path
        .strip_prefix("etc")
        .is_ok_and(|name| USERS.contains(&name.to_string_lossy().trim_end_matches('-')));
    is_of_users || path.starts_with("var/lib/dpkg") || path.starts_with("var/log")
}

fn lives() {
    let host = Host::boot();
    let before = host.written();
    host.install(package());
    until("the daemon's page", || host.page().filter(|p| p.contains("loadline_build_info{")));
    assert_eq!(host.must(&["systemctl", "is-enabled", "loadline"]).trim(), "enabled");
    let user = host.must(&["systemctl", "show", "--property=User", "--value", "loadline"]);
    let pid = host.must(&["systemctl", "show", "--property=MainPID", "--value", "loadline"]);
    let owner = host.must(&["stat", "-c", "%U", &format!("/proc/{}", pid.trim())]);
    assert_eq!((user.trim(), owner.trim()), ("loadline", "loadline"));
    let turn = host.must(&["stat", "-c", "%a", "/run/lock/loadline"]);
    assert_eq!(turn.trim(), "1777", "anyone may take the turn");

    // An upgrade keeps what an administrator wrote, and restarts the daemon.
    let changed = "first_run: spread\nguard: {probes: false}\n";
    host.write("/etc/loadline/loadline.yml", changed);
    host.install(package());
    let kept = std::fs::read_to_string(host.at("/etc/loadline/loadline.yml")).unwrap();
    assert_eq!(kept, changed);
    let next = host.must(&["systemctl", "show", "--property=MainPID", "--value", "loadline"]);
    assert_ne!(next, pid, "the daemon of the old package still runs");

    // As probes leave it behind.
    host.shell(
        "cd /var/lib/loadline; runuser -u loadline -- sh -c \
         'mkdir -p .loadline; head -c 1M /dev/urandom > .loadline/ballast'",
    );
    let said = host.must(&["dpkg", "--remove", "loadline"]);
    assert!(said.contains("given back"), "{said}");
    assert!(!host.at("/var/lib/loadline/.loadline/ballast").exists(), "{said}");
    assert!(host.at("/etc/loadline/loadline.yml").exists(), "kept until the purge");
    host.must(&["dpkg", "--purge", "loadline"]);
    let left: Vec<_> = host.written().difference(&before).cloned().collect();
    let left: Vec<_> = left.iter().filter(|path| !may_stay(path)).collect();
    assert!(left.is_empty(), "a purge leaves {left:?}");
    for folder in ["/etc/loadline", "/var/lib/loadline", "/run/lock/loadline"] {
        assert!(!host.at(folder).exists(), "{folder}");
    }
    let failed = host.must(&["systemctl", "--failed", "--no-legend", "--plain"]);
    assert_eq!(failed.trim(), "");
}
