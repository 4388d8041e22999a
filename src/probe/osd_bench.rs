//! Kind `osd_bench`: has the OSDs of a Ceph cluster write and take away objects of their own, one OSD
//! after another. It measures each OSD's store alone: no network, no replicas, no placement groups
//! (Ceph, src/osd/OSD.cc). What it is good for is to compare OSDs with each other.

use serde::Deserialize;

use super::depths::Depths;
use super::{Kind, Shape, Wrong, osd_families, shape};
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Bytes, MIB, Ratio, Seconds};
use crate::ceph::command::{Client, Cut};
use crate::ceph::survey;
use crate::config::read;
use crate::model::ceph::{Bench, Health, OSDS_MAX, OsdResult};
use crate::model::job::{Access, Place, Profile, Run, What};
use crate::model::outcome::{Done, Outcome, Skip};
use crate::workload::{Halt, Watch};

pub static KIND: Kind = Kind {
    name: "osd_bench",
    help: "`ceph tell osd.N bench` over the OSDs of a target with a `ceph` section, one at a time, \
           while the cluster is HEALTH_OK and neither recovers nor scrubs",
    example: "osd_bench:\n  bytes: 256MiB\n  block_size: 4MiB\n  osds: 32\n  runtime: 60s\n",
    descs: osd_families::OSDS,
    points: osd_families::points,
    read: |section| shape(section, Options::shape),
    run,
};

/// Of one bench; an OSD that doesn't write so much in that time is worse than slow.
const RUNTIME: Seconds = Seconds(60.0);
const RUNTIME_SECONDS_MAX: f64 = 600.0;
/// Ceph refuses larger ones unless it is told otherwise (osd_bench_max_block_size).
const BLOCK_MAX: Bytes = Bytes(64 * MIB);
/// An OSD that has no more room than so many benches is left alone: one that fills up goes down.
const ROOM: u64 = 4;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Of each OSD.
    #[serde(deserialize_with = "read::quantity")]
    bytes: Bytes,
    #[serde(deserialize_with = "read::quantity")]
    block_size: Bytes,
    /// Most of one run; where there are more, each run begins at another.
    osds: usize,
    #[serde(deserialize_with = "read::quantity")]
    runtime: Seconds,
}

impl Default for Options {
    fn default() -> Self {
        Self { bytes: Bytes(256 * MIB), block_size: Bytes(4 * MIB), osds: 32, runtime: RUNTIME }
    }
}

impl Options {
    fn shape(&self) -> Result<Shape, Wrong> {
        let leg = leg(self.bytes, self.block_size, self.runtime);
        check(&leg)?;
        if !(1..=OSDS_MAX).contains(&self.osds) {
            return Err(("osds", format!("must be 1 to {OSDS_MAX}")));
        }
        Ok(Shape {
            summary: format!(
                "{} in blocks of {} on each of at most {} OSDs",
                self.bytes, self.block_size, self.osds
            ),
            legs: vec![leg; self.osds],
            engine: None,
            depths: Depths::AsNamed,
            every: Seconds(86_400.0),
            exempt_from_gate: false,
            calm: Seconds(0.0),
            quiet: Seconds(0.0),
            profile: KIND.name.into(),
        })
    }
}

/// The bench of one OSD: each is a leg of the run.
pub fn leg(bytes: Bytes, block: Bytes, runtime: Seconds) -> Profile {
    Profile {
        name: KIND.name.into(),
        access: Access::Sequential,
        reads: Ratio(0.0),
        block,
        depth: 1,
        jobs: 1,
        runtime,
        ramp: Seconds(0.0),
        bytes_max: bytes,
        operations_max: None,
        span: None,
        sync: false,
        flush: true,
        direct: true,
        oltp: None,
    }
}

/// Whether an OSD can be asked for it at all; what the cluster allows it says itself.
///
/// # Errors
/// The option that can't be, and why.
pub fn check(leg: &Profile) -> Result<(), Wrong> {
    if leg.block.0 == 0 || leg.block > BLOCK_MAX {
        return Err(("block_size", format!("must be more than 0 and at most {BLOCK_MAX}")));
    }
    if leg.bytes_max < leg.block {
        return Err(("bytes", format!("{} is less than a block", leg.bytes_max)));
    }
    if !(1.0..=RUNTIME_SECONDS_MAX).contains(&leg.runtime.0) {
        return Err(("runtime", "must be 1s to 10m".into()));
    }
    Ok(())
}

fn run(run: &Run, watch: &dyn Watch) -> Outcome {
    let Place::Cluster(cluster) = &run.target.place else {
        let text = format!("{}: no cluster", run.target.name);
        return Outcome::failed(FaultKind::Internal, text);
    };
    let stopped = || watch.stopped();
    let client = Client { cluster, stopped: &stopped };
    let mut done = Box::<Done>::default();
    match bench_all(&client, run, watch, &mut done) {
        Ok(()) => Outcome::Done(done),
        Err(halt) => {
            let any = done.osds.iter().any(|result| result.bench.is_some());
            halt.outcome(any.then_some(done))
        }
    }
}

/// Benches as many OSDs as the run has legs; what came of them is in `done` wherever it ends.
fn bench_all(
    client: &Client<'_>,
    run: &Run,
    watch: &dyn Watch,
    done: &mut Done,
) -> Result<(), Halt> {
    let survey = survey::take(client)?;
    at_rest(&survey.health)?;
    let bytes = run.legs.iter().map(|leg| leg.bytes_max).max().unwrap_or_default();
    let of = |osd| OsdResult { osd, bench: None };
    done.osds = survey.osds.into_iter().map(of).collect();
    let chosen = choose(&done.osds, bytes, run).map_err(|why| because(why, &survey.unknown))?;
    let count = chosen.len();
    for (index, (at, leg)) in chosen.into_iter().zip(&run.legs).enumerate() {
        if index > 0 {
            at_rest(&survey::health(client)?)?;
        }
        let osd = done.osds[at].osd.id;
        let bench = bench_one(client, osd, leg)?;
        done.osds[at].bench = Some(bench);
        done.cost.written_bytes.0 += bench.bytes.0;
        watch.event(What::Benched { index, count, result: Box::new(done.osds[at].clone()) });
    }
    Ok(())
}

/// Nothing else may want the disks, and nothing may be at stake.
fn at_rest(health: &Health) -> Result<(), Halt> {
    if !health.is_ok() {
        let status = if health.status.is_empty() { "no health" } else { &health.status };
        let text = format!("the cluster is {status}: {}", health.checks.join(", "));
        return Err(Halt::Skipped(Skip::Unhealthy, text.trim_end_matches(": ").to_owned()));
    }
    if !health.busy.is_empty() {
        let text = format!("the cluster is at work: {}", health.busy.join(", "));
        return Err(Halt::Skipped(Skip::Busy, text));
    }
    Ok(())
}

/// Which of the OSDs have their turn: those that are up and have room, from another one on each time.
fn choose(all: &[OsdResult], bytes: Bytes, run: &Run) -> Result<Vec<usize>, Halt> {
    let up: Vec<usize> = (0..all.len()).filter(|at| all[*at].osd.up).collect();
    if up.is_empty() {
        let text = format!("{}: no OSD of {} is up", run.target.name, all.len());
        return Err(Halt::Failed(Fault::new(FaultKind::Missing, text)));
    }
    let needed = Bytes(bytes.0.saturating_mul(ROOM));
    let has_room = |at: &usize| all[*at].osd.available.is_some_and(|room| room >= needed);
    let mut able: Vec<usize> = up.iter().copied().filter(has_room).collect();
    if able.is_empty() {
        let most = up.iter().filter_map(|at| all[*at].osd.available).max();
        return Err(match most {
            Some(most) => {
                let text = format!("an OSD has at most {most} free, of {needed} needed");
                Halt::Skipped(Skip::Full, text)
            }
            None => Halt::Failed(Fault::new(FaultKind::Missing, "room on the OSDs is unknown")),
        });
    }
    if able.len() > run.legs.len() {
        let from = (run.seed % able.len() as u64) as usize;
        able.rotate_left(from);
        able.truncate(run.legs.len());
    }
    Ok(able)
}

/// What couldn't be asked is the reason of what isn't known.
fn because(why: Halt, unknown: &[Fault]) -> Halt {
    match (why, unknown.first()) {
        (Halt::Failed(why), Some(cause)) => {
            Halt::Failed(Fault::new(cause.kind, format!("{why}: {cause}")))
        }
        (why, _) => why,
    }
}

fn bench_one(client: &Client<'_>, osd: u32, leg: &Profile) -> Result<Bench, Halt> {
    let fault = match client.bench(osd, (leg.bytes_max, leg.block), leg.runtime) {
        Ok(bench) => return Ok(bench),
        Err(Cut::Failed(fault)) => fault,
        Err(stopped) => return Err(stopped.into()),
    };
    let gone = match survey::is_up(client, osd) {
        Ok(up) => !up || fault.text.contains("osd down"),
        Err(Cut::Failed(_)) => false,
        Err(stopped) => return Err(stopped.into()),
    };
    if gone {
        let text = format!("osd.{osd} went down during its bench: {fault}");
        return Err(Halt::Failed(Fault::new(FaultKind::Io, text)));
    }
    Err(Cut::Failed(fault).into())
}

impl From<Cut> for Halt {
    /// Full is what an OSD is that had room before: no reason to wait for more.
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::Stopped => Halt::stopped(),
            Cut::Failed(fault) => Halt::Failed(fault),
        }
    }
}

#[cfg(test)]
mod tests;
