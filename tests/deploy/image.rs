//! The Dockerfile: its rules, and its final stage put together without a container engine.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::check::Check;
use crate::files::{disk_dir, must, program, root, text, until};
use crate::harness::{free_port, get};

pub const CHECKS: &[Check] = &[
    Check::new("the_final_stage_runs_as_a_user_without_a_shell", final_stage),
    Check::new("what_the_builder_needs_is_in_the_context", context),
    Check::new("hadolint_is_content", hadolint).needs(&["hadolint"]).slow(),
    Check::new("the_final_stage_runs_in_a_chroot", runs)
        .needs(&["apt-get", "dpkg", "unshare", "chroot"])
        .root()
        .slow(),
];

/// Instructions of the last stage, continued lines joined.
fn stage() -> Vec<(String, String)> {
    let whole = text("Dockerfile").replace("\\\n", " ");
    let instructions = whole.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut stage = Vec::new();
    for line in instructions {
        let (name, rest) = line.split_once(' ').unwrap();
        if name == "FROM" {
            stage.clear();
        }
        stage.push((name.to_owned(), rest.trim().to_owned()));
    }
    stage
}

fn all(name: &str) -> Vec<String> {
    stage().into_iter().filter(|(n, _)| n == name).map(|(_, rest)| rest).collect()
}

fn one(name: &str) -> String {
    let [rest] = &all(name)[..] else { panic!("{name}: not once") };
    rest.clone()
}

fn list(name: &str) -> Vec<String> {
    serde_json::from_str(&one(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn final_stage() {
    assert!(one("FROM").ends_with(":nonroot"), "{}", one("FROM"));
    assert_eq!(one("USER"), "65532:65532");
    assert_eq!(all("RUN"), [""; 0], "there is no shell to run it");
    assert_eq!(one("EXPOSE"), "9847");
    assert_eq!(list("VOLUME"), ["/var/lib/loadline"]);
    assert_eq!(one("ENV"), "STATE_DIRECTORY=/var/lib/loadline");
}

/// A file that Cargo.toml names and the context leaves out breaks every build.
fn context() {
    let ignored: Vec<String> = text(".dockerignore").lines().map(str::to_owned).collect();
    let manifest = text("Cargo.toml");
    let named =
        manifest.lines().filter_map(|line| line.strip_prefix("path = \"")?.split('"').next());
    for path in named.chain(["build.rs", "Cargo.lock", "templates/page.html"]) {
        assert!(root().join(path).exists(), "{path}");
        let hidden = ignored.iter().any(|dir| Path::new(path).starts_with(dir.trim_matches('/')));
        assert!(!hidden, "{path} is not in the context");
    }
    assert!(ignored.contains(&".git".to_owned()), "which changes with every commit");
    assert!(ignored.contains(&"target".to_owned()), "which is large");
}

fn hadolint() {
    must(program("hadolint").args(["--failure-threshold", "style", "Dockerfile"]));
}

/// What the base image has of Debian, as its build takes it: packages, unpacked.
const BASE: [&str; 2] = ["libc6", "libgcc-s1"];

fn image(dir: &Path) {
    must(Command::new("apt-get").args(["download", "-q"]).args(BASE).current_dir(dir));
    for entry in std::fs::read_dir(dir).unwrap() {
        let package = entry.unwrap().path();
        if package.extension().is_some_and(|e| e == "deb") {
            must(Command::new("dpkg").arg("-x").arg(&package).arg(dir.join("root")));
        }
    }
    let image = dir.join("root");
    // What any engine puts in.
    for folder in ["proc", "host/proc", "host/sys", "host/root", "etc", "tmp"] {
        std::fs::create_dir_all(image.join(folder)).unwrap();
    }
    std::fs::write(image.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    for copy in all("COPY") {
        let words: Vec<&str> = copy.split(' ').filter(|word| !word.starts_with("--")).collect();
        let [from, to] = words[..] else { panic!("{copy}") };
        let to = image.join(to.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        match from {
            "/src/target/release/loadline" => {
                std::fs::copy(env!("CARGO_BIN_EXE_loadline"), &to).map(drop).unwrap();
            }
            "/state" => {
                std::fs::create_dir(&to).unwrap();
                std::fs::set_permissions(&to, PermissionsExt::from_mode(0o750)).unwrap();
                assert!(copy.contains("--chown=65532:65532"), "{copy}");
                chown(&to, Some(65532), Some(65532)).unwrap();
            }
            other => panic!("{other}: nobody makes it"),
        }
    }
}

/// Mounts of the Dockerfile's head, in a namespace that goes with the process.
const START: &str = r#"
mount --make-rprivate /
mount --bind "$1" "$1"
mount --rbind /proc "$1/proc"
mount --rbind /proc "$1/host/proc"
mount --rbind /sys "$1/host/sys"
mount --rbind / "$1/host/root"
for at in proc host/proc host/root; do mount -o remount,bind,ro "$1/$at"; done
image=$1 user=$2 env=$3 chroot=$(command -v chroot)
shift 3
exec env -i "$env" "$chroot" --userspec="$user" "$image" "$@"
"#;

struct Container(Child);

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn runs() {
    let dir = disk_dir();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    image(dir.path());
    let port = free_port();
    let child = Command::new("unshare")
        .args(["--mount", "sh", "-euc", START, "sh"])
        .arg(dir.path().join("root"))
        .args([one("USER"), one("ENV")])
        .args(list("ENTRYPOINT"))
        .args(list("CMD"))
        // By name: the C library of the image looks it up.
        .arg(format!("--listen=localhost:{port}"))
        .stdout(Stdio::null())
        .spawn();
    let mut container = Container(child.unwrap());
    let page = until("a worker's run in the image", || {
        let ended = container.0.try_wait().unwrap();
        assert!(ended.is_none(), "it ended: {ended:?}");
        let page = get(port, "/metrics").ok()?;
        page.contains("loadline_sandbox_enforced{part=\"seccomp\"} 1").then_some(page)
    });
    for sampler in ["disk", "link", "tcp", "cpu"] {
        let up = format!("loadline_sampler_up{{sampler=\"{sampler}\"}} 1");
        assert!(page.contains(&up), "{sampler} can't be read in the image");
    }
    assert!(page.contains("loadline_filesystem_size_bytes{target=\"root\"}"), "the state's disk");
}
