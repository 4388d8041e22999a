//! The repository's files and the programs that look at them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde::de::DeserializeOwned;

pub use crate::harness::disk_dir;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Text of a file of the repository.
pub fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub fn yaml<T: DeserializeOwned>(path: &str) -> T {
    serde_yaml::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The path of a program, of those that tests/tools installs first.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(root().join("target/tools/bin"))
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// The program in the repository's root; it is there, or the check was skipped.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(installed(name).unwrap_or_else(|| panic!("no {name}")));
    command.current_dir(root());
    command
}

/// Both streams, as a person sees them.
pub fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
    format!("{out}{err}")
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    output
}

/// Runs the command; fails with all that it said where it fails. Returns what it said.
pub fn must(command: &mut Command) -> String {
    said(&succeed(command))
}

/// The same; returns its standard output alone.
pub fn answer(command: &mut Command) -> String {
    String::from_utf8(succeed(command).stdout).unwrap()
}

/// Longest wait for what should happen soon, a boot too; reached only by a fault.
const PATIENCE: Duration = Duration::from_secs(180);

/// Polls until `what` gives something; fails after [`PATIENCE`], naming what was awaited.
pub fn until<T>(awaited: &str, what: impl FnMut() -> Option<T>) -> T {
    crate::harness::until_within(PATIENCE, awaited, what)
}
