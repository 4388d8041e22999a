//! OSDs and volumes that are real: a Ceph cluster of two OSDs, and a GlusterFS volume in a namespace,
//! with the real binary on them. The volume is of every day; the cluster is `TIER=full`'s.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    unreachable_pub,
    reason = "tests"
)]

mod cluster;
mod daemon;
mod gluster;
#[allow(dead_code, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness.rs"]
mod harness;
mod osds;
#[allow(dead_code, reason = "shared with the end-to-end tests")]
#[path = "../e2e/panels.rs"]
mod panels;
#[path = "../e2e/promise.rs"]
mod promise;
#[allow(dead_code, reason = "shared with the end-to-end tests")]
#[path = "../e2e/server.rs"]
mod server;

use libtest_mimic::{Arguments, Trial};
pub use promise::Promise;

/// Takes long: only the full tier runs it.
fn slow(promise: &'static Promise) -> Trial {
    if std::env::var("TIER").is_ok_and(|tier| tier == "full") {
        return promise::trial(promise);
    }
    Trial::test(promise.name, || Ok(()))
        .with_kind("skipped: takes long: TIER=full runs it")
        .with_ignored_flag(true)
}

fn main() {
    let mut arguments = Arguments::from_args();
    // The volume beside the cluster, which its tests use one after another.
    arguments.test_threads.get_or_insert(2);
    let quick = gluster::PROMISES.iter().map(promise::trial);
    let long = osds::PROMISES.iter().chain(daemon::PROMISES).map(slow);
    let trials = quick.chain(long).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    cluster::stop();
    conclusion.exit();
}
