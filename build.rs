//! Puts the revision into the binary, read from the checkout without running git.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a build script speaks to cargo on standard output and reads the checkout"
)]

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-env-changed=LOADLINE_REVISION");
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/logs/HEAD");
    let revision = std::env::var("LOADLINE_REVISION").ok().or_else(head);
    let short: String = revision.unwrap_or_else(|| "unknown".into()).chars().take(10).collect();
    println!("cargo:rustc-env=LOADLINE_REVISION={short}");
}

fn head() -> Option<String> {
    let git = Path::new(".git");
    let head = std::fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(name) = head.trim().strip_prefix("ref: ") else { return Some(head.trim().into()) };
    if let Ok(hash) = std::fs::read_to_string(git.join(name)) {
        return Some(hash.trim().into());
    }
    let packed = std::fs::read_to_string(git.join("packed-refs")).ok()?;
    packed.lines().find_map(|l| l.strip_suffix(name).map(|hash| hash.trim().to_owned()))
}
