//! What is shipped beside the program: unit, package, image, manifests and examples, each held against
//! the tool or the host that takes it.
//!
//! The slow ones run with TIER=full; one that can't run here is shown as ignored, with the reason.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    unreachable_pub,
    reason = "tests"
)]

mod check;
mod compose;
mod files;
#[allow(dead_code, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness.rs"]
mod harness;
mod host;
mod image;
mod kubernetes;
mod loops;
mod operator;
mod package;
mod release;
mod scrape;
mod series;
mod service;
mod silence;
mod unit;

use libtest_mimic::Arguments;

fn main() {
    let checks = [
        unit::CHECKS,
        compose::CHECKS,
        kubernetes::CHECKS,
        operator::CHECKS,
        image::CHECKS,
        scrape::CHECKS,
        series::CHECKS,
        release::CHECKS,
        package::CHECKS,
        service::CHECKS,
    ];
    let trials = checks.into_iter().flatten().map(check::trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
