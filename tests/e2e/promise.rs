//! A promise to a user as a test: what it needs to run here, and its body.

use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use libtest_mimic::{Failed, Trial};

use crate::harness;

/// One promise.
pub struct Promise {
    pub name: &'static str,
    /// Programs that must be installed, and files by their whole path.
    pub needs: &'static [&'static str],
    pub root: bool,
    /// It asks for an idle host: nothing else runs meanwhile.
    pub alone: bool,
    pub body: fn(),
}

/// Held by all that run beside each other, or by the one that runs alone.
static HOST: RwLock<()> = RwLock::new(());

impl Promise {
    pub const fn new(name: &'static str, body: fn()) -> Self {
        Self { name, needs: &[], root: false, alone: false, body }
    }

    pub const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    pub const fn root(self) -> Self {
        Self { root: true, ..self }
    }

    pub const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Runs the body with the share of the host that it needs, and tells how long it took.
    fn keep(&self) -> std::thread::Result<()> {
        let body = || {
            let begun = Instant::now();
            let end = std::panic::catch_unwind(self.body);
            println!("{}: {:.1?}", self.name, begun.elapsed());
            end
        };
        if self.alone {
            let _alone = HOST.write().unwrap_or_else(PoisonError::into_inner);
            body()
        } else {
            let _beside = HOST.read().unwrap_or_else(PoisonError::into_inner);
            body()
        }
    }

    fn cannot_run(&self) -> Option<String> {
        let missing = |need: &&&str| match need.starts_with('/') {
            true => !std::path::Path::new(need).exists(),
            false => !harness::installed(need),
        };
        if let Some(need) = self.needs.iter().find(missing) {
            return Some(format!("no {need} here"));
        }
        if self.root && !rustix::process::geteuid().is_root() {
            return Some("needs root".into());
        }
        None
    }
}

pub fn trial(promise: &'static Promise) -> Trial {
    let repeat: usize =
        std::env::var("LOADLINE_REPEAT").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    match promise.cannot_run() {
        Some(reason) => Trial::test(promise.name, || Ok(()))
            .with_kind(format!("skipped: {reason}"))
            .with_ignored_flag(true),
        None => Trial::test(promise.name, move || {
            for _ in 0..repeat {
                promise.keep().map_err(|panic| {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()));
                    Failed::from(text.unwrap_or_else(|| "panicked".into()))
                })?;
            }
            Ok(())
        }),
    }
}
