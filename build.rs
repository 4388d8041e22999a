//! Puts the revision into the binary, read from the checkout without running git.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a build script speaks to cargo on standard output and reads the checkout"
)]

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-env-changed=LOADLINE_REVISION");
    for changes in ["HEAD", "logs/HEAD"] {
        println!("cargo:rerun-if-changed={}", git().join(changes).display());
    }
    let revision = std::env::var("LOADLINE_REVISION").ok().or_else(head);
    let short: String = revision.unwrap_or_else(|| "unknown".into()).chars().take(10).collect();
    println!("cargo:rustc-env=LOADLINE_REVISION={short}");
}

/// The checkout's own directory; in a worktree `.git` is a file that names it.
fn git() -> PathBuf {
    let named = std::fs::read_to_string(".git").ok();
    let named = named.as_deref().and_then(|text| text.trim().strip_prefix("gitdir: "));
    named.unwrap_or(".git").into()
}

fn head() -> Option<String> {
    let git = git();
    let head = std::fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(name) = head.trim().strip_prefix("ref: ") else { return Some(head.trim().into()) };
    // Branches are those of the repository, which a worktree names in turn.
    let common = std::fs::read_to_string(git.join("commondir")).unwrap_or(".".into());
    let common = git.join(common.trim());
    if let Ok(hash) = std::fs::read_to_string(common.join(name)) {
        return Some(hash.trim().into());
    }
    let packed = std::fs::read_to_string(common.join("packed-refs")).ok()?;
    packed.lines().find_map(|l| l.strip_suffix(name).map(|hash| hash.trim().to_owned()))
}
