//! All that a run is judged by. Every field may be missing; what is missing is never guessed.
//!
//! Serialised, this is the `evidence` of a saved verdict: base units, units last in the names.

use serde::{Deserialize, Serialize};

use crate::base::legs::{Saturation, classify, rotational_rule, waits_at_device};
use crate::base::limits::{SPINDLE_BUSY, SPINDLE_QUEUE};
use crate::base::physics::{Band, Spread, latency_of, spindle_band, write_factor};
use crate::base::units::{Bytes, Frequency, Rate, Ratio, Seconds};
use crate::model::job::Access;
use crate::model::outcome::Flags;
use crate::model::path::{DeclaredBacking, DeclaredPath, Media};
use crate::model::verdict::Ceiling;
use crate::model::way::Line;

/// What a run went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A file system or device, which may lie behind a network.
    #[default]
    Storage,
    /// A storage daemon's own device: no network, whatever is declared.
    Store,
    /// The way to a peer.
    Link,
}

/// What was true of a run, in base units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub subject: Subject,
    /// Where it took place, where one report is of several places: what is under one says nothing of
    /// what is under another.
    pub place: Option<String>,
    pub access: Option<Access>,
    pub block_bytes: Option<Bytes>,
    /// Operations in flight of all jobs, or streams.
    pub depth: Option<f64>,
    pub duration_seconds: Option<Seconds>,
    pub read_operations_per_second: Option<Frequency>,
    pub write_operations_per_second: Option<Frequency>,
    pub read_bytes_per_second: Option<Rate>,
    pub write_bytes_per_second: Option<Rate>,
    /// Of a link run, as the receiver counted where it is known.
    pub goodput_bytes_per_second: Option<Rate>,
    pub latency_p50_seconds: Option<Seconds>,
    pub second_leg: Option<SecondLeg>,
    /// Of the rates in equal intervals of at least 100 operations, where there were so many.
    pub rate_cv: Option<f64>,
    pub device: DeviceFacts,
    pub cpu: CpuFacts,
    pub link: LinkFacts,
    pub flags: Flags,
    pub backing: DeclaredBacking,
    pub path: DeclaredPath,
    pub known: Known,
}

/// The same run with twice as much in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecondLeg {
    pub depth: Option<f64>,
    /// Operations, or bytes of a run that counts bytes: the same unit as the first leg's.
    pub rate_per_second: f64,
    pub latency_p50_seconds: Option<Seconds>,
}

/// What was seen of the devices under a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFacts {
    pub busy_ratio: Option<Ratio>,
    /// Mean requests in flight at the devices.
    pub in_flight: Option<f64>,
    /// Requests that the devices take at once.
    pub slots: Option<f64>,
    /// Share of the run in which they idled while requests waited.
    pub idle_ratio: Option<Ratio>,
    /// Bytes written at the topmost block device / bytes of the probe; copies taken out.
    pub write_amplification: Option<f64>,
    /// Bytes at the leaf disks / bytes of the probe, by direction.
    pub read_share: Option<f64>,
    pub write_share: Option<f64>,
    /// Bytes of others / bytes of the run.
    pub foreign_share: Option<f64>,
    /// Share of the run spent in flushes, the final one not counted.
    pub flush_ratio: Option<Ratio>,
    pub rotational: Option<bool>,
    /// virtio, Xen, Hyper-V, cloud: what is under it is somebody else's.
    pub is_virtual: Option<bool>,
    pub network_backed: Option<bool>,
    /// Somebody looked, and no disk was found under it: a layer of unknown kind takes what is written.
    pub unseen: Option<bool>,
    pub count: Option<u32>,
    /// Of the nearest cgroup limit on I/O.
    pub cgroup_ratio: Option<Ratio>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuFacts {
    /// The busiest CPU or thread that the run needed, at either end.
    pub busiest_ratio: Option<Ratio>,
    /// All CPUs that the run may use.
    pub allowed_ratio: Option<Ratio>,
    pub steal_ratio: Option<Ratio>,
    pub throttled_ratio: Option<Ratio>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkFacts {
    /// Line rate of the slowest physical NIC on the way, both ends; never of veth, tun or virtio.
    pub line_bytes_per_second: Option<Rate>,
    /// The same with the packets that were seen on it.
    pub line: Option<Line>,
    pub retransmits: Option<u64>,
    pub segment_payload_bytes: Option<Bytes>,
    pub round_trip_seconds: Option<Seconds>,
    /// The smaller of receive window and send buffer, of one stream.
    pub window_bytes: Option<Bytes>,
    /// Shares of the busy time.
    pub receive_window_limited_ratio: Option<Ratio>,
    pub send_buffer_limited_ratio: Option<Ratio>,
}

/// What other runs on the same backing said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The best large-block read.
    pub sequential_read_bytes_per_second: Option<Rate>,
    /// The same shape at another block size: `(block, operations a second)`.
    pub other_blocks: Vec<(Bytes, Frequency)>,
    pub ceilings: Vec<Ceiling>,
}

/// A run and everything that is known of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    pub name: String,
    pub kind: String,
    pub profile: Option<String>,
    pub facts: Facts,
}

/// 128 KiB and more would still be large; 256 KiB is what no elevator splits.
pub const LARGE_BLOCK: Bytes = Bytes(256 << 10);
const RPM_DEFAULT: u32 = 7200;
const HDD_BANDWIDTH: Rate = Rate(300e6);
/// What one moves on the mean of its tracks.
pub const HDD_USUAL: Rate = Rate(150e6);
const SATA_BANDWIDTH: Rate = Rate(600e6);
const NVME_BANDWIDTH: Rate = Rate(15e9);
/// A second leg with less than this times the depth is no second leg.
const TWICE: f64 = 1.9;

fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

impl Facts {
    pub fn is_link(&self) -> bool {
        self.subject == Subject::Link
    }

    pub fn operations(&self) -> Option<f64> {
        let [reads, writes] =
            [self.read_operations_per_second, self.write_operations_per_second].map(value);
        positive(reads + writes)
    }

    pub fn bytes(&self) -> Option<f64> {
        if self.is_link() {
            return positive(self.goodput_bytes_per_second?.0);
        }
        positive(self.read_bytes() + self.write_bytes())
    }

    pub fn read_bytes(&self) -> f64 {
        self.read_bytes_per_second.map_or(0.0, |r| r.0)
    }

    pub fn write_bytes(&self) -> f64 {
        self.write_bytes_per_second.map_or(0.0, |r| r.0)
    }

    /// Least share of what the run moved that reached the leaf disks, of the ways that it went; `None`
    /// where nobody saw.
    pub fn device_share(&self) -> Option<f64> {
        let reads = self.device.read_share.filter(|_| self.read_bytes() > 0.0);
        let writes = self.device.write_share.filter(|_| self.write_bytes() > 0.0);
        [reads, writes].into_iter().flatten().reduce(f64::min)
    }

    /// The rate that legs are compared by: operations where they are known, else bytes.
    pub fn rate(&self) -> Option<f64> {
        if self.is_link() { self.bytes() } else { self.operations().or(self.bytes()) }
    }

    pub fn mean_block(&self) -> Option<f64> {
        match (self.bytes(), self.operations()) {
            (Some(bytes), Some(operations)) => Some(bytes / operations),
            _ => self.block_bytes.map(|block| block.0 as f64),
        }
    }

    pub fn is_large(&self) -> Option<bool> {
        self.mean_block().map(|block| block >= LARGE_BLOCK.0 as f64 * 0.99)
    }

    /// Share of writes in what moved, by operations where they are known.
    pub fn write_ratio(&self) -> Option<f64> {
        let share = |part: f64, whole: f64| positive(whole).map(|whole| part / whole);
        match self.operations() {
            Some(all) => share(value(self.write_operations_per_second), all),
            None => share(self.write_bytes(), self.read_bytes() + self.write_bytes()),
        }
    }

    pub fn writes(&self) -> bool {
        self.write_ratio().is_some_and(|w| w > 0.0)
    }

    pub fn is_random(&self) -> bool {
        matches!(self.access, Some(Access::Random | Access::RandomMap))
    }

    pub fn is_sequential(&self) -> bool {
        self.access == Some(Access::Sequential)
    }

    pub fn rotational(&self) -> Option<bool> {
        match self.backing.media {
            Some(media) => Some(media == Media::Hdd),
            None => self.device.rotational,
        }
    }

    /// Behind a network, as declared or as the mount says.
    pub fn network_backed(&self) -> bool {
        self.subject == Subject::Storage
            && (self.backing.wire.link.is_some() || self.device.network_backed == Some(true))
    }

    /// Nobody knows what is under it: virtual, behind a network, or simply not said.
    pub fn is_opaque(&self) -> bool {
        self.device.is_virtual == Some(true)
            || self.network_backed()
            || (self.backing.media.is_none() && self.device.rotational.is_none())
    }

    /// Disks under it; one where it is known that nothing but a disk is there.
    pub fn devices(&self) -> Option<f64> {
        let known = self.backing.devices.or(self.device.count).map(f64::from);
        let alone = !self.network_backed() && self.device.is_virtual != Some(true);
        known.or(alone.then_some(1.0))
    }

    pub fn replicas(&self) -> f64 {
        if self.network_backed() { self.backing.replicas.map_or(1.0, f64::from) } else { 1.0 }
    }

    /// Most that one device of this medium moves a second, as declared, else by its interface.
    pub fn medium_bandwidth(&self) -> Option<Rate> {
        if let Some(declared) = self.backing.bandwidth {
            return Some(declared);
        }
        match (self.backing.media, self.device.rotational) {
            (Some(Media::Hdd), _) | (None, Some(true)) => Some(HDD_BANDWIDTH),
            (Some(Media::Ssd), _) => Some(SATA_BANDWIDTH),
            (Some(Media::Nvme), _) => Some(NVME_BANDWIDTH),
            (None, _) => None,
        }
    }

    /// One spindle, at this run's block size.
    pub fn spindle(&self) -> Option<Band> {
        (self.rotational()? && self.is_random()).then(|| {
            let rpm = f64::from(self.backing.rpm.unwrap_or(RPM_DEFAULT));
            let block = Bytes(self.mean_block().unwrap_or(4096.0) as u64);
            spindle_band(rpm, block, self.backing.bandwidth.unwrap_or(HDD_USUAL))
        })
    }

    /// Disk operations that one small write costs, copies included.
    pub fn penalty(&self) -> f64 {
        let raid = self.backing.raid.map_or(1.0, |raid| raid.parity().write_penalty());
        self.replicas() * raid
    }

    /// How many spindles' worth of this mix the disks give.
    pub fn spindles(&self) -> Option<f64> {
        let devices = self.devices()?;
        let spread = Spread {
            devices,
            outstanding: self.depth.and_then(positive).unwrap_or(devices),
            writes: self.write_ratio()?,
            penalty: self.penalty(),
        };
        positive(spread.spindles())
    }

    /// All spindles together.
    pub fn band(&self) -> Option<Band> {
        Some(self.spindle()?.times(self.spindles()?))
    }

    /// As measured, else by Little's law.
    pub fn latency(&self) -> Option<Seconds> {
        self.latency_p50_seconds.or_else(|| latency_of(self.depth?, self.operations()?))
    }

    /// Second rate / first rate.
    pub fn gain(&self) -> Option<f64> {
        let second = self.second_leg?;
        let first = self.depth.zip(second.depth);
        if first.is_some_and(|(first, second)| second < TWICE * first) {
            return None;
        }
        Some(second.rate_per_second / self.rate()?).filter(|gain| gain.is_finite())
    }

    /// What the second leg says; `None` without one.
    pub fn saturation(&self) -> Option<Saturation> {
        let gain = self.gain()?;
        let second = self.second_leg?;
        let (first_depth, times) = match (self.depth, second.depth) {
            (Some(first), Some(second)) => (first, second / first),
            (Some(first), None) => (first, 2.0),
            _ => (1.0, 2.0),
        };
        let rate = self.rate()?;
        let little = |depth: f64, rate: f64| latency_of(depth, rate).unwrap_or(Seconds(0.0));
        // Links need only the rate; a measured latency of one leg alone compares with nothing.
        let measured = self.latency_p50_seconds.zip(second.latency_p50_seconds);
        let (before, after) = measured.filter(|_| !self.is_link()).unwrap_or((
            little(first_depth, rate),
            little(first_depth * times, second.rate_per_second),
        ));
        let rule = self.is_random() && self.rotational() == Some(true) && self.weaker_rule();
        Some(classify((rate, before), (rate * gain, after), rule))
    }

    fn weaker_rule(&self) -> bool {
        let penalty = write_factor(self.write_ratio().unwrap_or(0.0), self.penalty());
        let depth = self.depth.unwrap_or(0.0).clamp(0.0, 1e6) as u32;
        self.devices().is_some_and(|n| rotational_rule(depth, penalty, n.clamp(0.0, 1e6) as usize))
    }

    /// Spindles that were busy all the time with a queue. A queue not given is the depth.
    pub fn busy_spindles(&self) -> bool {
        let queue = self.device.in_flight.or(self.depth);
        self.rotational() == Some(true)
            && self.device.busy_ratio.is_some_and(|busy| busy.0 >= SPINDLE_BUSY)
            && queue.is_some_and(|queue| queue > SPINDLE_QUEUE)
    }

    pub fn is_saturated(&self) -> bool {
        match self.saturation() {
            Some(saturation) => saturation == Saturation::Saturated,
            None => self.is_random() && self.busy_spindles(),
        }
    }

    /// Of what could be in flight at the devices: the depth, or their slots where those are fewer.
    pub fn in_flight_share(&self) -> Option<f64> {
        let depth = self.depth?;
        let room = self.device.slots.map_or(depth, |slots| slots.min(depth));
        positive(room).and_then(|room| Some(self.device.in_flight? / room))
    }

    /// At least 9 in 10 of what was asked for was in flight at the devices.
    pub fn keeps_depth(&self) -> bool {
        let in_flight = self.device.in_flight.zip(self.depth);
        in_flight.is_some_and(|(in_flight, depth)| waits_at_device(in_flight, depth))
    }

    /// The busiest of what is known of CPUs.
    pub fn cpu(&self) -> Option<f64> {
        let CpuFacts { busiest_ratio, allowed_ratio, .. } = self.cpu;
        [busiest_ratio, allowed_ratio].into_iter().flatten().map(|r| r.0).reduce(f64::max)
    }
}

fn value(rate: Option<Frequency>) -> f64 {
    rate.map_or(0.0, |rate| rate.0)
}
