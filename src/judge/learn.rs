//! What a run teaches of ceilings: only a clean one that is saturated teaches any.

use super::book::{Entry, Of, Reached, Resource, Way};
use super::facts::Facts;
use crate::base::clock::Moment;
use crate::base::legs::Saturation;
use crate::base::limits::{IO_LIMIT_SHARE, SUSTAINED_SECONDS};
use crate::base::units::{Bytes, Seconds};
use crate::model::job::{Place, Target};
use crate::model::outcome::{DeviceUse, Done, Inspection, Measured};
use crate::model::verdict::{Limit, Persistence, Trust, Unit, Verdict};

/// A judged run, where it took place, and who found it.
#[derive(Clone, Copy, Debug)]
pub struct Lesson<'a> {
    pub done: &'a Done,
    pub facts: &'a Facts,
    pub verdict: &'a Verdict,
    pub target: &'a Target,
    pub inspection: &'a Inspection,
    /// Key of the probe.
    pub by: &'a str,
    pub at: Moment,
}

/// What tells a target from another under its name: its path, what is mounted there, and the disks
/// under it as `told` tells them; where it tells none, the mount's source. The kernel's names of disks
/// are dealt out anew at each start.
pub fn identity(
    target: &Target,
    inspection: &Inspection,
    told: impl Fn(&str) -> Option<String>,
) -> String {
    let path = target.place.path().display();
    let disks: Vec<_> = inspection.devices.iter().map(|disk| told(&disk.name)).collect();
    let all: Option<Vec<String>> = disks.into_iter().collect();
    let below = match all.filter(|disks| !disks.is_empty()) {
        Some(disks) => disks.join("\n"),
        None => inspection.source.clone(),
    };
    let whole = format!("{path}\n{}\n{below}", inspection.filesystem);
    format!("{:08x}", crc32fast::hash(whole.as_bytes()))
}

impl Lesson<'_> {
    /// The ceilings that this run found, of its target and of the one disk under it; `told` says
    /// what tells a disk from others.
    pub fn entries(&self, told: impl Fn(&str) -> Option<String>) -> Vec<Entry> {
        if !self.teaches() {
            return Vec::new();
        }
        self.found(told).into_iter().map(|found| self.entry(found)).collect()
    }

    /// What this run reached, whether or not it is a ceiling, of the same; nothing where a cache
    /// answered or may have.
    pub fn reached(&self, told: impl Fn(&str) -> Option<String>) -> Vec<Reached> {
        let flags = &self.facts.flags;
        let by_cache = self.verdict.limit == Limit::Cache
            || flags.cached == Some(true)
            || flags.direct == Some(false);
        if by_cache { Vec::new() } else { self.found(told) }
    }

    fn found(&self, told: impl Fn(&str) -> Option<String>) -> Vec<Reached> {
        let Some((way, unit, rate)) = self.rate() else { return Vec::new() };
        let Some(block) = self.facts.mean_block() else { return Vec::new() };
        let of = |resource, identity, rate: f64, block: f64| Reached {
            of: Of { resource, way, unit },
            identity,
            value: match unit {
                Unit::OperationsPerSecond => rate,
                Unit::BytesPerSecond => rate * block,
            },
            kind: self.kind(way),
            block: Bytes(block.max(0.0) as u64),
        };
        let target = Resource::Target(self.target.name.clone());
        let mut found =
            vec![of(target, identity(self.target, self.inspection, &told), rate, block)];
        if let Some((device, rate, block)) = self.at_disk(way, rate * block) {
            let told = told(&device);
            found.extend(told.map(|told| of(Resource::Disk(device), told, rate, block)));
        }
        found
    }

    /// Clean, long enough, saturated, and held by what is below the probe.
    fn teaches(&self) -> bool {
        let against = [
            self.facts.flags.against().next().is_some(),
            // What a limit on our own control group lets through is no disk's ceiling.
            self.facts.device.cgroup_ratio.is_some_and(|used| used.0 >= IO_LIMIT_SHARE),
            // Each names something else than the resource, or that there was more to have.
            matches!(
                self.verdict.limit,
                Limit::Contended | Limit::Cache | Limit::Cpu | Limit::None | Limit::Latency
            ),
        ];
        let says = match &self.done.knee {
            Some(knee) => knee.says,
            None => self.facts.saturation(),
        };
        self.done.legs.len() == 1 && says == Some(Saturation::Saturated) && !against.contains(&true)
    }

    /// Direction, unit, and the best operations a second of a run that goes one way.
    fn rate(&self) -> Option<(Way, Unit, f64)> {
        let facts = self.facts;
        let way = match facts.write_ratio()? {
            writes if writes <= 0.0 => Way::Read,
            writes if writes >= 1.0 => Way::Write,
            _ => return None,
        };
        let streams = facts.rotational() == Some(true) && facts.is_sequential();
        let unit = match facts.is_large()? || streams {
            true => Unit::BytesPerSecond,
            false => Unit::OperationsPerSecond,
        };
        let second = self.second().map(Measured::operations_per_second);
        let best = self.done.knee.as_ref().map(|knee| knee.operations_per_second);
        let rates = [facts.operations(), second, best].into_iter().flatten();
        rates.reduce(f64::max).map(|rate| (way, unit, rate))
    }

    fn second(&self) -> Option<&Measured> {
        self.done.second_leg.as_ref().map(|second| &second.measured)
    }

    /// The one disk under the target: its name, requests a second and their size. Of several nobody
    /// knows which were full.
    fn at_disk(&self, way: Way, bytes: f64) -> Option<(String, f64, f64)> {
        let ([known], [used]) = (&self.inspection.devices[..], &self.done.evidence.devices[..])
        else {
            return None;
        };
        let DeviceUse { device, reads, writes, read_bytes, written_bytes, .. } = used;
        let evidence = &self.done.evidence;
        let (requests, moved, share) = match way {
            Way::Read => (reads.completed, read_bytes.0, evidence.device_read_share?),
            Way::Write => (writes.completed, written_bytes.0, evidence.write_amplification?),
        };
        let block = moved as f64 / requests as f64;
        let rate = bytes * share / block;
        let sound = known.name == *device && rate.is_finite() && rate > 0.0;
        sound.then(|| (device.clone(), rate, block))
    }

    fn kind(&self, way: Way) -> Persistence {
        let time = self.done.legs.iter().chain(self.second()).map(|leg| leg.elapsed.0).sum::<f64>();
        let flash_writes = way == Way::Write && self.facts.rotational() != Some(true);
        match time < SUSTAINED_SECONDS && (self.facts.is_opaque() || flash_writes) {
            true => Persistence::Burst,
            false => Persistence::Sustained,
        }
    }

    fn entry(&self, Reached { of, identity, value, kind, block }: Reached) -> Entry {
        let first = self.done.legs.first();
        let seeks = self.facts.is_random() && self.facts.rotational() == Some(true);
        let whole = matches!(self.target.place, Place::Device(_))
            && of.way == Way::Read
            && first.is_some_and(|leg| leg.profile.span.is_none());
        Entry {
            of,
            identity,
            by: self.by.to_owned(),
            value,
            trust: Trust::Knee,
            kind,
            short_stroke: seeks && !self.facts.network_backed() && !whole,
            block,
            depth: self.facts.depth.unwrap_or(0.0),
            latency: first.map_or(Seconds(0.0), Measured::latency_mean),
            source: self.source(),
            at: Some(self.at.unix_seconds()),
            fallen: 0,
        }
    }

    fn source(&self) -> String {
        match (&self.done.knee, self.facts.gain()) {
            (Some(knee), _) => format!("a knee at depth {}", knee.depth),
            (None, Some(gain)) => format!("twice the depth gave {gain:.2} x the rate"),
            (None, None) => "a saturated run".to_owned(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
