//! A Debian host with its own systemd, from a debootstrap folder, to install the package on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::files::{disk_dir, must, program, root, said, until};

/// The release whose glibc the binary here runs with.
const RELEASE: &str = "bookworm";

/// The folder that debootstrap made: once, and kept, since that takes minutes. Only ever read.
static BASE: LazyLock<PathBuf> = LazyLock::new(|| {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (base, partial) = (tmp.join(format!("debian-{RELEASE}")), tmp.join("debian-partial"));
    if !base.exists() {
        let _ = std::fs::remove_dir_all(&partial);
        must(
            program("debootstrap")
                .args(["--variant=minbase", "--include=systemd,systemd-sysv", RELEASE])
                .arg(&partial),
        );
        std::fs::rename(&partial, &base).unwrap();
    }
    base
});

/// A running host. Dropping it ends all that runs there.
pub struct Host {
    unshare: Child,
    /// Of its systemd, as seen from here.
    init: u32,
    dir: TempDir,
}

impl Host {
    pub fn boot() -> Self {
        Self::boot_with(|_| ())
    }

    /// With what `mount` mounts there at /data.
    pub fn boot_with(mount: impl FnOnce(&Path)) -> Self {
        let dir = disk_dir();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        mount(&data);
        let mut unshare = Command::new("bash")
            .arg(root().join("tests/deploy/host.sh"))
            .arg(&*BASE)
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = unshare.id();
        let init = until("the host's first process", || {
            let ended = unshare.try_wait().unwrap();
            assert!(ended.is_none(), "the host did not start: {ended:?}");
            let children = format!("/proc/{pid}/task/{pid}/children");
            let init = std::fs::read_to_string(children).ok()?.trim().parse().ok()?;
            // Before that the shell still mounts.
            let name = std::fs::read_to_string(format!("/proc/{init}/comm")).ok()?;
            (name.trim() == "systemd").then_some(init)
        });
        let host = Self { unshare, init, dir };
        until("the host to be up", || {
            let state = said(&host.run(&["systemctl", "is-system-running"]));
            ["running", "degraded"].contains(&state.trim()).then_some(())
        });
        host
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--all", "--root", "--wd"]);
        command.args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command there; fails with what it said.
    pub fn must(&self, arguments: &[&str]) -> String {
        must(&mut self.command(arguments))
    }

    pub fn shell(&self, script: &str) -> String {
        self.must(&["sh", "-euc", script])
    }

    /// What is /data on the host, from here.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A file of the host, from here.
    pub fn at(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Installs a package that lies here.
    pub fn install(&self, package: &Path) -> String {
        std::fs::copy(package, self.at("/root/loadline.deb")).unwrap();
        let said = self.must(&["dpkg", "--install", "/root/loadline.deb"]);
        std::fs::remove_file(self.at("/root/loadline.deb")).unwrap();
        said
    }

    /// The daemon's page; the host has a network of its own.
    pub fn page(&self) -> Option<String> {
        const GET: &str = "exec 3<>/dev/tcp/127.0.0.1/9847
            printf 'GET /metrics HTTP/1.1\\r\\nHost: h\\r\\nConnection: close\\r\\n\\r\\n' >&3
            cat <&3";
        let answer = self.run(&["bash", "-c", GET]);
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        text.starts_with("HTTP/1.1 200").then_some(text)
    }

    /// Everything that was written since the base was made, directories apart.
    pub fn written(&self) -> BTreeSet<PathBuf> {
        fn below(dir: &Path, top: &Path, found: &mut BTreeSet<PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() && !path.is_symlink() {
                    true => below(&path, top, found),
                    false => drop(found.insert(path.strip_prefix(top).unwrap().to_owned())),
                }
            }
        }
        let mut found = BTreeSet::new();
        for top in ["upper", "data"] {
            let top = self.dir.path().join(top);
            below(&top, &top, &mut found);
        }
        found
    }

    pub fn journal(&self, unit: &str) -> String {
        said(&self.run(&["journalctl", "--no-pager", "--output=cat", "--unit", unit]))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Its first process ends with it, and all others with that.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        // Fails where nothing was mounted.
        let _ = Command::new("umount").arg("--lazy").arg(self.data()).output();
        let cgroup = std::fs::read_to_string(self.dir.path().join("cgroup")).unwrap_or_default();
        let cgroup = cgroup.trim();
        if cgroup.contains("/loadline-host-") {
            let remove = ["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"];
            let find = || Command::new("find").arg(cgroup).args(remove).output();
            until("the host's cgroup to be empty", || {
                let _ = find();
                (!Path::new(cgroup).exists()).then_some(())
            });
        }
    }
}
