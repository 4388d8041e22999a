//! What a release has to say of itself.

use std::collections::BTreeSet;
use std::process::Command;

use crate::check::Check;
use crate::files::{must, program, root, said, text};

pub const CHECKS: &[Check] = &[
    Check::new("every_line_of_the_changelog_has_one_of_five_tags", changelog),
    Check::new("the_version_says_the_revision", version),
    Check::new("the_oldest_rust_is_the_one_that_is_declared_and_tested", oldest_rust),
    Check::new("only_known_licenses_sources_and_single_versions_are_in", deny)
        .needs(&["cargo-deny"])
        .slow(),
    Check::new("no_dependency_has_an_open_advisory", advisories).needs(&["cargo-deny"]).slow(),
];

const TAGS: [&str; 5] = ["[CHANGE]", "[FEATURE]", "[ENHANCEMENT]", "[BUGFIX]", "[SECURITY]"];

fn changelog() {
    let text = text("CHANGELOG.md");
    let head = format!("## {} / ", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&head), "no `{head}`: the version of Cargo.toml has no chapter");
    for line in text.lines().filter_map(|line| line.strip_prefix("- ")) {
        let tag = line.split(' ').next().unwrap();
        assert!(TAGS.contains(&tag), "`{line}` has no tag of {TAGS:?}");
    }
    let versions: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("## ")?.split(" / ").next()).collect();
    let once: BTreeSet<_> = versions.iter().collect();
    assert_eq!(once.len(), versions.len(), "a version twice");
}

fn version() {
    let said = must(Command::new(env!("CARGO_BIN_EXE_loadline")).arg("--version"));
    let Some(revision) =
        said.trim().strip_prefix(concat!("loadline ", env!("CARGO_PKG_VERSION"), " ("))
    else {
        panic!("{said}");
    };
    let revision = revision.trim_end_matches(')');
    // Of whichever commit was the last when it was built.
    if root().join(".git").exists() {
        assert_eq!(revision.len(), 10, "{said}");
        assert!(revision.bytes().all(|b| b.is_ascii_hexdigit()), "{said}");
    }
}

/// rust-version, the image's builder and the README name the same, and it compiles this.
fn oldest_rust() {
    let manifest = text("Cargo.toml");
    let declared = manifest.split("rust-version = \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(text("Dockerfile").contains(&format!("FROM rust:{declared}-")), "Dockerfile");
    assert!(text("README.md").contains(&format!("Rust {declared}")), "README.md");
    // CI has one toolchain: while it is the declared one, every build is a test of it.
    let rustc = must(Command::new("rustc").arg("--version"));
    let minor = |version: &str| -> (u32, u32) {
        let mut parts = version.split('.').map(|part| part.parse().unwrap());
        (parts.next().unwrap(), parts.next().unwrap())
    };
    let runs = minor(rustc.split(' ').nth(1).unwrap().split('-').next().unwrap());
    assert!(runs >= minor(declared), "{rustc}");
    if runs > minor(declared) {
        println!("note: {} builds this, {declared} is only declared", rustc.trim());
    }
}

fn deny() {
    let check = ["--locked", "check", "bans", "licenses", "sources"];
    must(program("cargo-deny").arg("deny").args(check));
}

/// Their database is a git repository, which not every network reaches.
fn advisories() {
    let run = |what: &[&str]| program("cargo-deny").arg("deny").args(what).output().unwrap();
    let fetched = run(&["fetch", "db"]);
    if !fetched.status.success() {
        println!("skipped: the database of advisories can't be reached\n{}", said(&fetched));
        return;
    }
    let checked = run(&["--locked", "check", "--disable-fetch", "advisories"]);
    assert!(checked.status.success(), "{}", said(&checked));
}
