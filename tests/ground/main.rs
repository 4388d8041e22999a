//! What a worker works on: every file system, raw devices, and each way they can be bad, with the
//! real binary on the real thing. Case numbers are those of the collection of public bug reports.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    reason = "tests"
)]

mod ballast;
mod devices;
mod faults;
mod fuse;
#[allow(dead_code, reason = "shared with the end-to-end tests")]
#[path = "../e2e/harness.rs"]
mod harness;
mod numbers;
#[path = "../e2e/promise.rs"]
mod promise;
mod space;
mod systems;
mod together;
mod volume;
mod worker;

use libtest_mimic::Arguments;
pub use promise::Promise;

fn main() {
    let mut arguments = Arguments::from_args();
    // Most of the time of a test is a disk's.
    arguments.test_threads.get_or_insert(4);
    let promises = [
        together::PROMISES,
        systems::PROMISES,
        ballast::PROMISES,
        devices::PROMISES,
        faults::PROMISES,
        space::PROMISES,
        numbers::PROMISES,
    ];
    let trials = promises.iter().flat_map(|list| list.iter()).map(promise::trial).collect();
    libtest_mimic::run(&arguments, trials).exit();
}
