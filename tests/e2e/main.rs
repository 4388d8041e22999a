//! Promises to users, each kept by the real binary with real parts.
//!
//! Those that need an idle host run one after another, the others beside each other. One that
//! can't run here is shown as ignored, with the reason. `LOADLINE_REPEAT=5` runs each that often.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::too_many_arguments,
    unreachable_pub,
    reason = "tests"
)]

mod agree;
mod alertmanager;
mod commands;
mod crash;
mod dashboards;
mod exposition;
mod hang;
mod harness;
#[allow(dead_code, reason = "shared with the lab, which uses more of it")]
#[path = "../lab/hosts.rs"]
mod hosts;
mod links;
#[allow(dead_code, reason = "shared with the lab, which uses more of it")]
#[path = "../lab/model.rs"]
mod model;
mod oltp;
mod panels;
mod peers;
#[allow(dead_code, reason = "shared with the lab, which uses more of it")]
#[path = "../lab/physics.rs"]
mod physics;
#[allow(dead_code, reason = "shared with the lab, which uses more of it")]
#[path = "../lab/scenarios/place.rs"]
mod place;
mod prometheus;
mod promise;
mod reload;
mod report;
mod server;
mod start;
#[allow(dead_code, reason = "shared with the ground tests, which use more of it")]
#[path = "../ground/volume.rs"]
mod volume;
mod wires;

use libtest_mimic::Arguments;
pub use promise::Promise;

/// So many promises that need no idle host run at once: they mostly wait.
const BESIDE: usize = 4;

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(BESIDE);
    // Those that wait for longest first.
    let promises = [
        peers::PROMISES,
        dashboards::PROMISES,
        hang::PROMISES,
        prometheus::PROMISES,
        agree::PROMISES,
        start::PROMISES,
        exposition::PROMISES,
        commands::PROMISES,
        oltp::PROMISES,
        reload::PROMISES,
        report::PROMISES,
        crash::PROMISES,
        links::PROMISES,
        alertmanager::PROMISES,
    ];
    let mut promises: Vec<_> = promises.into_iter().flatten().collect();
    // First those that run beside each other.
    promises.sort_by_key(|promise| promise.alone);
    let trials = promises.into_iter().map(promise::trial).collect();
    libtest_mimic::run(&arguments, trials).exit();
}
