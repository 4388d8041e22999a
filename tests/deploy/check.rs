//! A claim about what is shipped: what it needs to be held here, and its body.

use libtest_mimic::{Failed, Trial};

use crate::files::installed;

pub struct Check {
    name: &'static str,
    needs: &'static [&'static str],
    root: bool,
    slow: bool,
    body: fn(),
}

impl Check {
    pub const fn new(name: &'static str, body: fn()) -> Self {
        Self { name, needs: &[], root: false, slow: false, body }
    }

    /// Programs that must be there.
    pub const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    pub const fn root(self) -> Self {
        Self { root: true, ..self }
    }

    /// In the full tier only.
    pub const fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    fn cannot_run(&self) -> Option<String> {
        if self.slow && std::env::var("TIER").as_deref() != Ok("full") {
            return Some("TIER=full only".into());
        }
        if self.root && !rustix::process::geteuid().is_root() {
            return Some("needs root".into());
        }
        let missing = self.needs.iter().find(|program| installed(program).is_none())?;
        Some(format!("{missing} is not installed (see tests/run, tests/tools)"))
    }
}

pub fn trial(check: &'static Check) -> Trial {
    let skip = check.cannot_run();
    let trial = Trial::test(check.name, || {
        std::panic::catch_unwind(check.body).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).into()));
            Failed::from(text.unwrap_or_else(|| "panicked".into()))
        })
    });
    match skip {
        Some(reason) => trial.with_kind(format!("skipped: {reason}")).with_ignored_flag(true),
        None => trial,
    }
}
