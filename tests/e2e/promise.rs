//! A promise to a user as a test: what it needs to run here, and its body.

use libtest_mimic::{Failed, Trial};

use crate::harness;

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

pub fn trial(promise: &'static Promise) -> Trial {
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
