//! Promises to users, each kept by the real binary with real parts.
//!
//! Tests run one after another: they share the host's disks. One that can't run here is shown as
//! ignored, with the reason. `LOADLINE_REPEAT=5` runs each that often.

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

mod agree;
mod commands;
mod crash;
mod exposition;
mod hang;
mod harness;
mod prometheus;
mod reload;
mod start;

use libtest_mimic::{Arguments, Failed, Trial};

/// One promise.
pub struct Promise {
    pub name: &'static str,
    /// Programs that must be installed.
    pub needs: &'static [&'static str],
    pub root: bool,
    pub body: fn(),
}

impl Promise {
    pub const fn new(name: &'static str, body: fn()) -> Self {
        Self { name, needs: &[], root: false, body }
    }

    pub const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    pub const fn root(self) -> Self {
        Self { root: true, ..self }
    }

    fn cannot_run(&self) -> Option<String> {
        if let Some(missing) = self.needs.iter().find(|p| !harness::installed(p)) {
            return Some(format!("{missing} is not installed"));
        }
        if self.root && !rustix::process::geteuid().is_root() {
            return Some("needs root".into());
        }
        None
    }
}

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let promises = [
        start::PROMISES,
        exposition::PROMISES,
        commands::PROMISES,
        reload::PROMISES,
        hang::PROMISES,
        crash::PROMISES,
        agree::PROMISES,
        prometheus::PROMISES,
    ];
    let trials = promises.iter().flat_map(|list| list.iter()).map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(promise: &'static Promise) -> Trial {
    let repeat: usize =
        std::env::var("LOADLINE_REPEAT").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    match promise.cannot_run() {
        Some(reason) => Trial::test(promise.name, || Ok(()))
            .with_kind(format!("skipped: {reason}"))
            .with_ignored_flag(true),
        None => Trial::test(promise.name, move || {
            for _ in 0..repeat {
                std::panic::catch_unwind(promise.body).map_err(|panic| {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()));
                    Failed::from(text.unwrap_or_else(|| "panicked".into()))
                })?;
            }
            Ok(())
        }),
    }
}
