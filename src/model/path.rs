//! What an operator declares of things that the kernel can't see: what lies under a storage target,
//! and the way to peers.

use serde::{Deserialize, Serialize};

use crate::base::physics::{Framing, Parity};
use crate::base::units::{Frequency, Rate};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Media {
    Hdd,
    Ssd,
    Nvme,
}

impl Media {
    pub fn label(self) -> &'static str {
        match self {
            Media::Hdd => "hdd",
            Media::Ssd => "ssd",
            Media::Nvme => "nvme",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encapsulation {
    None,
    Vlan,
    Vxlan,
    Geneve,
    Gre,
}

impl Encapsulation {
    /// As a report calls it; a plain wire has no word.
    pub fn label(self) -> &'static str {
        match self {
            Encapsulation::None => "",
            Encapsulation::Vlan => "VLAN",
            Encapsulation::Vxlan => "VXLAN",
            Encapsulation::Geneve => "Geneve",
            Encapsulation::Gre => "GRE",
        }
    }

    /// Packets of `mtu` on the wire: outer IPv4; Geneve with the one option that OVN sets.
    pub fn framing(self, mtu: u32) -> Framing {
        let (encapsulation, tags) = match self {
            Encapsulation::None => (0, 0),
            Encapsulation::Vlan => (0, 1),
            Encapsulation::Vxlan => (50, 0),
            Encapsulation::Geneve => (58, 0),
            Encapsulation::Gre => (42, 0),
        };
        Framing { mtu, encapsulation, tags, ..Framing::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Raid {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "1")]
    Raid1,
    #[serde(rename = "5")]
    Raid5,
    #[serde(rename = "6")]
    Raid6,
    #[serde(rename = "10")]
    Raid10,
}

impl Raid {
    pub fn parity(self) -> Parity {
        match self {
            Raid::None => Parity::None,
            Raid::Raid1 | Raid::Raid10 => Parity::Mirror,
            Raid::Raid5 => Parity::Single,
            Raid::Raid6 => Parity::Double,
        }
    }
}

/// Where the journal or log of the storage lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wal {
    /// On the data's own device.
    Same,
    Separate,
}

/// What lies under a storage target, as evidence carries it: in base units. `link` says that it is behind a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeclaredBacking {
    #[serde(flatten)]
    pub wire: DeclaredPath,
    pub media: Option<Media>,
    pub rpm: Option<u32>,
    /// Disks that hold the data, all copies together.
    pub devices: Option<u32>,
    pub replicas: Option<u32>,
    pub raid: Option<Raid>,
    pub wal: Option<Wal>,
    /// Of one device, large blocks.
    #[serde(rename = "bandwidth_bytes_per_second")]
    pub bandwidth: Option<Rate>,
    /// Copies go over the same link as what clients read and write.
    pub shared_link: Option<bool>,
    /// Limits that somebody set: a volume's type, a hypervisor's quota.
    #[serde(rename = "operations_limit_per_second")]
    pub operations_limit: Option<Frequency>,
    #[serde(rename = "bytes_limit_per_second")]
    pub bytes_limit: Option<Rate>,
}

/// The way to a peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeclaredPath {
    /// Line rate of one direction of one link.
    #[serde(rename = "link_bytes_per_second")]
    pub link: Option<Rate>,
    pub encapsulation: Option<Encapsulation>,
    /// Of the wire under the encapsulation.
    pub mtu: Option<u32>,
    /// Links of that rate bonded to one.
    pub members: Option<u32>,
}
