//! Whether the network that is read is the host's: counters of links and TCP are those of one network
//! namespace, and in a container that may be the container's own.

use super::{Kind, Reading, Sampler, Tick};
use crate::base::clock::Moment;
use crate::base::fault::Fault;
use crate::config::settings::SampleSettings;
use crate::host::links::net_directory;
use crate::host::roots::Roots;
use crate::model::metric::{Desc, push_some};

static MISMATCH: Desc = Desc::gauge(
    "loadline_network_namespace_mismatch",
    &[],
    "Whether links and TCP are read of another network namespace than the host's first process has, \
     0 or 1; absent where it can't be known.",
    "/proc/self/ns/net, /proc/1/ns/net",
);

pub static KIND: Kind = Kind {
    name: "namespace",
    help: "Whether the network that is read is the host's.",
    descs: &[&MISMATCH],
    open: |roots, _: &SampleSettings| {
        Box::new(NamespaceSampler { roots: roots.clone(), asked: None, mismatch: None })
    },
};

struct NamespaceSampler {
    roots: Roots,
    asked: Option<Moment>,
    mismatch: Option<bool>,
}

/// A process doesn't change its namespace; a host's first process may be another after a restart.
const ASK_EVERY_SECONDS: f64 = 60.0;

impl NamespaceSampler {
    fn ask(&self) -> Option<bool> {
        let (directory, _) = net_directory(&self.roots);
        if directory == "1/net" {
            return Some(false);
        }
        let of = |process: &str| std::fs::read_link(self.roots.proc(process).join("ns/net")).ok();
        Some(of("self")? != of("1")?)
    }
}

impl Sampler for NamespaceSampler {
    fn read(&mut self, tick: Tick<'_>, out: &mut Reading) -> Result<(), Fault> {
        if self.asked.is_none_or(|asked| tick.at.since(asked).0 >= ASK_EVERY_SECONDS) {
            self.asked = Some(tick.at);
            self.mismatch = self.ask();
        }
        push_some(&mut out.points, &MISMATCH, &[], self.mismatch.map(|m| f64::from(u8::from(m))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::rig::Rig;

    /// A host whose processes 1 and self have the given network namespaces.
    fn mismatch(first: Option<&str>, own: &str) -> Option<f64> {
        let mut rig = Rig::new(|rig| {
            rig.host.symlink("proc/self/ns/net", own);
            if let Some(first) = first {
                rig.host.symlink("proc/1/ns/net", first);
            }
        });
        rig.open(&KIND);
        rig.tick();
        rig.value("loadline_network_namespace_mismatch")
    }

    #[test]
    fn case_048_a_container_with_its_own_network_says_so() {
        assert_eq!(mismatch(Some("net:[1]"), "net:[2]"), Some(1.0));
        assert_eq!(mismatch(Some("net:[1]"), "net:[1]"), Some(0.0));
        assert_eq!(mismatch(None, "net:[1]"), None, "the first process may not be looked at");
    }

    #[test]
    fn reading_the_first_process_is_reading_the_host() {
        let mut rig = Rig::new(|rig| {
            rig.host.file("proc/1/net/dev", "");
        });
        rig.open(&KIND);
        rig.tick();
        assert_eq!(rig.value("loadline_network_namespace_mismatch"), Some(0.0));
    }
}
