//! Receiving below the sockets: packets that this host dropped or was late for, over all CPUs.

use std::collections::BTreeMap;

use super::{Kind, Reading, Sampler, Tick};
use crate::base::counter::Extended;
use crate::base::fault::Fault;
use crate::config::settings::SampleSettings;
use crate::host::links::net_directory;
use crate::host::roots::{KeptFile, Roots};
use crate::host::softnet::parse;
use crate::model::metric::{Desc, Point};

static DROPPED: Desc = Desc::counter(
    "loadline_softnet_dropped_packets_total",
    &[],
    "Received packets dropped because a CPU's backlog was full (net.core.netdev_max_backlog).",
    "/proc/net/softnet_stat column 2, all CPUs",
);
static SQUEEZED: Desc = Desc::counter(
    "loadline_softnet_squeezed_total",
    &[],
    "Times a CPU's turn at receiving ended with packets left; a rate, not an alarm by itself.",
    "/proc/net/softnet_stat column 3, all CPUs",
);

pub static KIND: Kind = Kind {
    name: "softnet",
    help: "Packets that the host dropped or was late for below its sockets.",
    descs: &[&DROPPED, &SQUEEZED],
    open,
};

fn open(roots: &Roots, _: &SampleSettings) -> Box<dyn Sampler> {
    let (directory, _) = net_directory(roots);
    let file = KeptFile::new(roots.proc(directory).join("softnet_stat"));
    Box::new(SoftnetSampler { file, cpus: BTreeMap::new() })
}

struct SoftnetSampler {
    file: KeptFile,
    /// Dropped and squeezed by CPU, past their 32 bits. A CPU that went offline keeps its part, so
    /// that the sums don't step back.
    cpus: BTreeMap<usize, (Extended, Extended)>,
}

/// A line's CPU is any number; there are no more of them than this.
const CPUS_MAX: usize = 8192;

impl Sampler for SoftnetSampler {
    fn read(&mut self, _: Tick<'_>, out: &mut Reading) -> Result<(), Fault> {
        let (lines, rejected) = parse(self.file.read()?);
        out.rejected += rejected;
        for line in lines {
            if self.cpus.len() < CPUS_MAX || self.cpus.contains_key(&line.cpu) {
                let (dropped, squeezed) = self.cpus.entry(line.cpu).or_default();
                dropped.take(u64::from(line.dropped));
                squeezed.take(u64::from(line.squeezed));
            }
        }
        let sum =
            |part: fn(&(Extended, Extended)) -> u64| self.cpus.values().map(part).sum::<u64>();
        let (dropped, squeezed) = (sum(|c| c.0.total()), sum(|c| c.1.total()));
        out.points.push(Point::number(&DROPPED, &[], dropped as f64));
        out.points.push(Point::number(&SQUEEZED, &[], squeezed as f64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::rig::Rig;

    fn rig(text: &str) -> Rig {
        let mut rig = Rig::new(|rig| {
            rig.host.file("proc/1/net/dev", "").file("proc/1/net/softnet_stat", text);
        });
        rig.open(&KIND);
        rig
    }

    #[test]
    fn sums_over_cpus_never_step_back_over_a_wrap_or_an_offline_cpu() {
        let mut rig = rig("1 fffffffe 1 0 0 0 0 0 0 0 0 0 0\n1 2 1 0 0 0 0 0 0 0 0 0 1\n");
        rig.tick();
        assert_eq!(rig.value("loadline_softnet_dropped_packets_total"), Some(4_294_967_296.0));
        rig.host.file("proc/1/net/softnet_stat", "1 1 1 0 0 0 0 0 0 0 0 0 0\n");
        rig.tick();
        let after = rig.value("loadline_softnet_dropped_packets_total");
        assert_eq!(after, Some(4_294_967_299.0), "three more over the wrap; CPU 1 is offline");
        assert_eq!(rig.value("loadline_softnet_squeezed_total"), Some(2.0));
    }

    #[test]
    fn a_host_without_the_file_says_so() {
        let mut rig = Rig::new(|rig| {
            rig.host.file("proc/1/net/dev", "");
        });
        rig.open(&KIND);
        assert_eq!(rig.try_tick().unwrap_err().kind, crate::base::fault::FaultKind::Missing);
    }
}
