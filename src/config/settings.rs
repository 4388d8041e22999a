//! The core keys of the configuration, as typed and defaulted. Kinds read their own options.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::base::network::Network;
use crate::base::units::{Bytes, Rate, Seconds};
use crate::model::ceph::Cluster;
use crate::model::job::EngineKind;
pub use crate::model::path::Media;
use crate::model::path::{DeclaredBacking, DeclaredPath};
use crate::model::peer::Peer;

/// Everything a configuration file can say, except the kinds' own options.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Addresses to listen on; the command line's `--listen` replaces them.
    pub listen: Vec<String>,
    pub sample: SampleSettings,
    pub targets: Vec<TargetSettings>,
    /// What lies under targets that declare nothing of their own.
    pub backing: DeclaredBacking,
    /// The way to peers.
    pub path: DeclaredPath,
    /// `None`: the default probes on every target.
    pub probes: Option<Vec<ProbeSettings>>,
    pub guard: GuardSettings,
    /// `None`: there are none.
    pub peers: Option<PeerSettings>,
    pub first_run: FirstRun,
}

/// What the samplers look at.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleSettings {
    pub every: Seconds,
    pub disks: BTreeMap<String, DiskSettings>,
    pub links: BTreeMap<String, LinkSettings>,
    /// Glob patterns on kernel names, after the class rules; `include` wins over `exclude`.
    pub disk_filter: Filter,
    pub link_filter: Filter,
    /// Most devices per sampler; what the cap drops is counted.
    pub devices_max: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}

/// What an operator declares of a disk that the kernel can't know.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskSettings {
    pub media: Option<Media>,
    /// Shingled: probes never write there. Disks that hide it from the kernel have to be declared.
    pub smr: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkSettings {
    /// Line rate of one direction.
    #[serde(deserialize_with = "super::read::optional")]
    pub rate: Option<Rate>,
}

/// A directory or raw device that probes may exercise.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSettings {
    pub name: String,
    pub path: PathBuf,
    /// `None`: yes, except for the default target on copy-on-write, thin and network file systems.
    pub writes: Option<bool>,
    /// Size of the ballast file; `None`: min(512 MiB, 1 % of free space), at least 64 MiB or none.
    pub ballast: Option<Bytes>,
    /// Device bytes that probes may write a day.
    pub budget: Bytes,
    /// Run even when a rotational disk may be asleep.
    pub wake: bool,
    /// What lies under it that the kernel can't see.
    pub backing: DeclaredBacking,
    /// The backend that targets of other hosts lie on as well (one Ceph pool): they take turns.
    pub shared: Option<String>,
    /// Names of all these hosts, the own one included; empty: each picks a turn by its own name, and
    /// two may meet.
    pub shared_hosts: Vec<String>,
    /// True for the one that nobody configured.
    pub is_default: bool,
    /// OSDs of this cluster, in place of a directory; `path` is its configuration then.
    pub ceph: Option<Cluster>,
}

/// One probe as configured; `options` under the kind's own name are the kind's to read.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeSettings {
    pub name: String,
    pub kind: String,
    /// Empty where the kind goes to peers.
    pub target: String,
    pub every: Option<Seconds>,
    pub engine: Option<EngineKind>,
    /// Place in the document, to read the options and to complain about: index in `probes`.
    pub index: usize,
}

/// Hosts that test the way to each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerSettings {
    /// `:5201` or one address, where peers may test the way to this host; `None`: nowhere.
    pub listen: Option<String>,
    /// Who may, besides the addresses of peers.
    pub allow: Vec<Network>,
    /// Name of this host in lists; `None`: its host name.
    pub own_name: Option<String>,
    pub list: Vec<Peer>,
    /// Files of more of them; `*` and `?` in the last part of a path.
    pub files: Vec<String>,
    /// Port of peers in files, in place of what the files say.
    pub files_port: Option<u16>,
    /// So many peers each host picks where there are more.
    pub partners: usize,
    /// Measures peers that run on this host's kernel: for tests.
    pub allow_same_kernel: bool,
    /// Tests though this host's clock is not synchronised.
    pub any_clock: bool,
    /// Fills lines that a cluster's own traffic goes over.
    pub i_know: bool,
}

impl PeerSettings {
    /// There is somebody to test.
    pub fn has_peers(&self) -> bool {
        !self.list.is_empty() || !self.files.is_empty()
    }
}

/// When probes may run.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardSettings {
    /// The one switch that stops all probes.
    pub probes: bool,
    /// Everything but the run itself.
    pub dry_run: bool,
    pub allowed_hours: Vec<Hours>,
    pub blackout: Vec<Hours>,
    /// Free space that must stay: the larger of a share and an amount.
    pub reserve_share: f64,
    pub reserve: Bytes,
}

/// A daily span of wall-clock time, minutes after midnight, `utc_offset` minutes east of UTC.
/// `from > to` goes over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    pub from: u32,
    pub to: u32,
    pub utc_offset: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirstRun {
    /// A first pass at start: by hand.
    Now,
    /// At an offset by host hash, at least 10 minutes after boot: units and packages.
    Spread,
}

impl Default for SampleSettings {
    fn default() -> Self {
        Self {
            every: Seconds(1.0),
            disks: BTreeMap::new(),
            links: BTreeMap::new(),
            disk_filter: Filter::default(),
            link_filter: Filter::default(),
            devices_max: 256,
        }
    }
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            probes: true,
            dry_run: false,
            allowed_hours: Vec::new(),
            blackout: Vec::new(),
            reserve_share: 0.05,
            reserve: Bytes(2 << 30),
        }
    }
}

/// The kind that goes to peers and not to a target.
pub const LINK_KIND: &str = "throughput";
/// Name of the target that is there when none is configured.
pub const DEFAULT_TARGET: &str = "root";
/// Budget of a target where none is set: 2 GiB a day.
pub const BUDGET_DEFAULT: Bytes = Bytes(2 << 30);
/// The same for all OSDs of a cluster together.
pub const BUDGET_OF_CLUSTER: Bytes = Bytes(16 << 30);

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: vec![":9847".into()],
            sample: SampleSettings::default(),
            targets: Vec::new(),
            backing: DeclaredBacking::default(),
            path: DeclaredPath::default(),
            probes: None,
            guard: GuardSettings::default(),
            peers: None,
            first_run: FirstRun::Now,
        }
    }
}
