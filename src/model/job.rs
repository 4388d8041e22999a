//! The wire between daemon and worker: one [`Job`] in, JSON lines of [`Event`] out.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ceph::{Cluster, OsdResult};
use super::oltp::{Counts, Oltp, Step};
use super::outcome::{Measured, Reply};
use super::peer::LinkRun;
use crate::base::units::{Bytes, Ratio, Seconds};

/// Version of the wire; a worker refuses any other.
pub const WIRE_VERSION: u32 = 1;
/// Longest line on the wire in either direction.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// What lies under a target: from `inspect`, never from a call in the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Kernel name of a leaf disk: `sda`, `nvme0n1`.
    pub name: String,
    /// Its `stat` file under the sysfs root, read by the worker at start and end of a run.
    pub stat: PathBuf,
    /// Spindle or not; `None` where the kernel can't be trusted (virtio, hypervisors).
    pub rotational: Option<bool>,
}

/// What kind of thing answers behind a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backing {
    /// Disks of this host, or what the hypervisor shows as such.
    Local,
    /// NFS, Ceph, Gluster, iSCSI ...: the network is part of every answer.
    Network,
    /// tmpfs, zram: no disk at all.
    Memory,
    #[default]
    Unknown,
}

/// The thing a probe exercises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Name in the configuration and in labels.
    pub name: String,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    Directory(PathBuf),
    /// A raw block device: only ever opened for reading.
    Device(PathBuf),
    /// OSDs of a Ceph cluster, reached through its `ceph` command.
    Cluster(Box<Cluster>),
}

impl Place {
    /// Of a cluster its configuration.
    pub fn path(&self) -> &PathBuf {
        match self {
            Place::Directory(path) | Place::Device(path) => path,
            Place::Cluster(cluster) => &cluster.conf,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    Sequential,
    /// Independent draws: a block may come twice.
    Random,
    /// Each block once, in random order, before any comes twice.
    RandomMap,
}

/// How bytes are moved. Results of different engines are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    IoUring,
    Aio,
    Threads,
}

impl EngineKind {
    pub fn label(self) -> &'static str {
        match self {
            EngineKind::IoUring => "io_uring",
            EngineKind::Aio => "aio",
            EngineKind::Threads => "threads",
        }
    }
}

/// The shape of a workload: mix, block size, depth, jobs, bound in time and bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// `seq_read`, `rand_rw`, ... or the probe's own name for one written out.
    pub name: String,
    pub access: Access,
    /// Share of reads: 1 reads only, 0 writes only, between: a coin toss per operation.
    pub reads: Ratio,
    pub block: Bytes,
    /// Operations in flight per job.
    pub depth: u32,
    /// Independent submitters over disjoint parts of the file; in flight = jobs x depth.
    pub jobs: u32,
    /// Time bound, the ramp not included.
    pub runtime: Seconds,
    /// Left out of every number.
    pub ramp: Seconds,
    /// Bound on bytes moved, reads and writes together.
    pub bytes_max: Bytes,
    /// Bound on operations, where one is set.
    pub operations_max: Option<u64>,
    /// Works on so much from the start of the region; `None`: on all of it.
    #[serde(default)]
    pub span: Option<Bytes>,
    /// O_DSYNC on every write: what a commit feels.
    pub sync: bool,
    /// Flush at the end of a leg that wrote; its time is reported and included.
    pub flush: bool,
    /// Direct I/O or no run at all: through the page cache a run measures memory, and has to be
    /// asked for.
    pub direct: bool,
    /// The OLTP workload in place of one access, block and depth: an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oltp: Option<Oltp>,
}

impl Profile {
    /// Most bytes this leg can write.
    pub fn written_bytes_max(&self) -> Bytes {
        if self.reads.0 >= 1.0 {
            return Bytes(0);
        }
        let by_operations =
            self.operations_max.map_or(u64::MAX, |n| n.saturating_mul(self.block.0));
        Bytes(self.bytes_max.0.min(by_operations))
    }

    pub fn writes_anything(&self) -> bool {
        self.reads.0 < 1.0
    }

    pub fn in_flight_max(&self) -> u32 {
        self.depth.saturating_mul(self.jobs)
    }
}

/// Where a run's bytes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Region {
    /// The declared ballast file of the target, laid out once and kept.
    Ballast(Bytes),
    /// An unnamed file that is gone with the worker: one-shot commands.
    Unnamed(Bytes),
    /// The whole raw device, read only.
    WholeDevice,
    /// Objects that each OSD makes for its bench, and takes away.
    Objects,
}

/// One execution of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Kind of the probe that knows how to run it: `disk`, `latency`.
    pub kind: String,
    pub target: Target,
    pub region: Region,
    pub legs: Vec<Profile>,
    /// Forces an engine; `None` takes the ladder.
    pub engine: Option<EngineKind>,
    /// Every offset and every byte follow from it; it is part of the result.
    pub seed: u64,
    /// Leaf disks whose counters the worker reads.
    pub devices: Vec<Device>,
    /// The topmost block device, or devices, under the target.
    #[serde(default)]
    pub top: Vec<Device>,
    /// Space that must stay free on the target's file system.
    pub reserve: Bytes,
    /// Where the worker reads CPU and cgroup counters from.
    pub procfs: PathBuf,
    /// Seconds of quiet window before and after the legs, to see foreign load.
    pub quiet: Seconds,
}

/// What a worker is asked to do. Every call that can hang on a target is in one of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Opens and measures the target: space, file system, alignment, leaf devices.
    Inspect {
        target: Target,
        procfs: PathBuf,
        sysfs: PathBuf,
        /// Taken off mount points.
        rootfs: PathBuf,
    },
    /// Lays out the ballast file if it isn't there and whole.
    LayOut {
        target: Target,
        bytes: Bytes,
        reserve: Bytes,
        seed: u64,
    },
    Run(Run),
    /// Asks a cluster what it tells without any I/O of ours.
    Survey {
        target: Target,
    },
    /// Tests the way to a peer: names that don't resolve and peers that are silent can hang.
    Link(LinkRun),
    /// Punches and removes the ballast file.
    GiveBack {
        target: Target,
    },
    /// Replaces `directory/name` by `content`, atomically and synced.
    Save {
        directory: PathBuf,
        name: String,
        content: String,
    },
    /// Reads `directory/name` whole.
    Load {
        directory: PathBuf,
        name: String,
    },
}

/// One line on a worker's standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub v: u32,
    /// Low priority: nice, idle I/O class. False for one-shot commands by hand.
    pub polite: bool,
    pub task: Task,
}

/// Cumulative state of a running leg, twice a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Index of the leg.
    pub leg: usize,
    /// Since the leg's start, ramp included.
    pub elapsed: Seconds,
    pub read_operations: u64,
    pub write_operations: u64,
    pub read_bytes: Bytes,
    pub written_bytes: Bytes,
    /// Of everything so far in this leg; `None` before the first completion.
    pub latency_p50: Option<Seconds>,
    pub latency_p99: Option<Seconds>,
    /// Of the busiest leaf device since the leg's start.
    pub device_busy: Option<Ratio>,
    pub device_queue: Option<f64>,
    /// Mean of what the leg itself had in flight, where that isn't always as much as it may; as devices
    /// count theirs, each operation when it is done.
    #[serde(default)]
    pub own_queue: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// What of the worker's own confinement held, by part: `landlock`, `seccomp`, `no_new_privs` ...
    Confined {
        parts: Vec<(String, bool)>,
    },
    /// The target answered and an engine was chosen.
    Opened {
        engine: EngineKind,
        reason: String,
        direct: bool,
    },
    /// The ballast file is being written.
    Layout {
        done: Bytes,
        total: Bytes,
    },
    Progress(Progress),
    /// A leg ended.
    Leg {
        index: usize,
        measured: Box<Measured>,
    },
    /// The bench of an OSD ended, the `index`th of `count`.
    Benched {
        index: usize,
        count: usize,
        result: Box<OsdResult>,
    },
    /// The final flush ended.
    Flush {
        seconds: Seconds,
    },
    /// A search ended one of its steps.
    Step {
        step: Step,
    },
    /// What an OLTP run did so far, for who asked for it.
    Counts {
        elapsed: Seconds,
        counts: Counts,
    },
    /// The last line.
    Outcome {
        reply: Box<Reply>,
    },
}

/// One line on a worker's standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub v: u32,
    #[serde(flatten)]
    pub what: What,
}

impl Event {
    pub fn new(what: What) -> Self {
        Self { v: WIRE_VERSION, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object() {
        let event = Event::new(What::Layout { done: Bytes(1), total: Bytes(2) });
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(line, r#"{"v":1,"event":"layout","done":1,"total":2}"#);
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }

    #[test]
    fn a_mix_can_write_all_it_moves() {
        let profile = Profile {
            name: "rand_rw".into(),
            access: Access::Random,
            reads: Ratio(0.7),
            block: Bytes(4096),
            depth: 4,
            jobs: 2,
            runtime: Seconds(3.0),
            ramp: Seconds(0.0),
            bytes_max: Bytes(32 << 20),
            operations_max: Some(10),
            span: None,
            sync: false,
            flush: true,
            direct: true,
            oltp: None,
        };
        assert_eq!(profile.written_bytes_max(), Bytes(40960));
        assert_eq!(Profile { reads: Ratio(1.0), ..profile }.written_bytes_max(), Bytes(0));
    }
}
