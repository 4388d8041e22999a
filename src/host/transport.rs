//! How a disk is reached, and so what kind of thing answers: from its place in the device tree.

use std::path::{Path, PathBuf};

use super::block::{Class, directory, entries};
use super::disks;
use super::roots::{Roots, attribute, read_file};
use crate::model::job::Backing;

/// Names in a model string that say the disk is a picture of one.
pub(super) const HYPERVISOR_MODELS: [&str; 6] =
    ["QEMU", "VBOX", "Virtual", "PersistentDisk", "Elastic Block Store", "EphemeralDisk"];
/// Models of clouds that are volumes behind a network (reference: vendors' udev rules).
const CLOUD_VOLUMES: [&str; 4] =
    ["Elastic Block Store", "MSFT NVMe Accelerator", "PersistentDisk", "nvme_card-pd"];
/// First match along the device's path in sysfs, from the bus outwards.
const TRANSPORTS: [(&str, &str); 11] = [
    ("session", "iscsi"),
    ("rport-", "fc"),
    ("end_device-", "sas"),
    ("usb", "usb"),
    ("ata", "ata"),
    ("virtio", "virtio"),
    ("vbd-", "xen"),
    ("VMBUS:", "hyperv"),
    ("vmbus_", "hyperv"),
    ("mmc_host", "mmc"),
    ("host", "scsi"),
];
/// Drivers without a bus to be seen, by the names that they alone give.
const DRIVERS: [(&str, &str); 4] =
    [("rbd", "rbd"), ("nbd", "nbd"), ("drbd", "drbd"), ("zd", "zfs")];

/// How the disk is reached. NVMe says it itself; others by their place in the device tree.
pub(super) fn transport(roots: &Roots, name: &str, dir: &Path) -> &'static str {
    if name.starts_with("nvme") {
        return nvme_transport(dir);
    }
    let place = dir.strip_prefix(&roots.sysfs).unwrap_or(dir);
    let parts: Vec<_> = place.components().filter_map(|part| part.as_os_str().to_str()).collect();
    let is = |part: &str, prefix: &str| {
        part.strip_prefix(prefix).is_some_and(|rest| {
            prefix.ends_with(['-', ':', '_', 't']) && rest.is_empty()
                || rest.starts_with(|c: char| c.is_ascii_hexdigit())
        })
    };
    let by_bus = TRANSPORTS.iter().find(|(prefix, _)| parts.iter().any(|part| is(part, prefix)));
    let by_name = || DRIVERS.iter().find(|(prefix, _)| is(name, prefix));
    by_bus.or_else(by_name).map_or("", |(_, transport)| transport)
}

/// `transport` of the controller, or of any controller of a multipath head's subsystem.
fn nvme_transport(dir: &Path) -> &'static str {
    let subsystem = dir.join("device");
    let controllers = entries(&subsystem)
        .into_iter()
        .filter(|name| name.starts_with("nvme"))
        .map(|name| subsystem.join(name));
    std::iter::once(subsystem.clone())
        .chain(controllers)
        .find_map(|controller| attribute(&controller.join("transport")))
        .map_or("nvme", |text| match text.as_str() {
            "tcp" => "nvme_tcp",
            "rdma" => "nvme_rdma",
            "fc" => "nvme_fc",
            _ => "nvme",
        })
}

pub(super) fn backing(class: Class, transport: &str, model: Option<&str>) -> Backing {
    let of_a_cloud = CLOUD_VOLUMES.iter().any(|name| model.is_some_and(|m| m.contains(name)));
    match (class, transport) {
        (Class::Zram | Class::Ram, _) => Backing::Memory,
        (_, "iscsi" | "fc" | "rbd" | "nbd" | "drbd" | "nvme_tcp" | "nvme_rdma" | "nvme_fc") => {
            Backing::Network
        }
        _ if of_a_cloud => Backing::Network,
        (Class::Dm | Class::Md | Class::Stack | Class::Loop, _) => Backing::Unknown,
        _ => Backing::Local,
    }
}

/// Paths of native NVMe multipath (`nvme0c3n1`) that lead to `head` (`nvme0n1`).
pub fn nvme_paths(roots: &Roots, head: &str) -> Vec<String> {
    if !head.starts_with("nvme") {
        return Vec::new();
    }
    let mut all = entries(&roots.sys("block"));
    all.retain(|name| nvme_head(name).as_deref() == Some(head));
    all
}

/// The nodes that count what a disk does, each with its directory: itself, save that before Linux
/// 6.4 the head of a native NVMe multipath counts nothing and its paths do.
pub(super) fn counting_nodes(roots: &Roots, name: &str, dir: &Path) -> Vec<(String, PathBuf)> {
    let own = || vec![(name.to_owned(), dir.to_owned())];
    if !counts_nothing(dir) {
        return own();
    }
    let paths: Vec<_> = nvme_paths(roots, name)
        .into_iter()
        .filter_map(|path| directory(roots, &path).map(|dir| (path, dir)))
        .filter(|(_, dir)| !counts_nothing(dir))
        .collect();
    if paths.is_empty() { own() } else { paths }
}

/// Nothing was ever read or written, as its own `stat` has it.
pub(super) fn counts_nothing(dir: &Path) -> bool {
    let stat = read_file(&dir.join("stat")).ok().and_then(|text| disks::stat(&text));
    stat.is_none_or(|counters| counters.reads == 0 && counters.writes == 0)
}

/// The node that an NVMe path device belongs to.
pub fn nvme_head(path: &str) -> Option<String> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (subsystem, rest) = path.strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    let whole = [subsystem, controller, namespace].into_iter().all(digits);
    whole.then(|| format!("nvme{subsystem}n{namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fixture::Host;

    #[test]
    fn the_place_in_the_tree_tells_the_transport() {
        let host = Host::new();
        let scsi = "target3:0:0/3:0:0:0/block";
        for (place, transport, backing) in [
            (format!("platform/host3/session1/{scsi}/sdc"), "iscsi", Backing::Network),
            (format!("pci0/host1/rport-1:0-2/{scsi}/sdd"), "fc", Backing::Network),
            (format!("pci0/usb1/1-1/1-1:1.0/host6/{scsi}/sde"), "usb", Backing::Local),
            (format!("LNXSYSTM:00/VMBUS:01/a/host0/{scsi}/sdf"), "hyperv", Backing::Local),
            (format!("pci0/virtio2/host2/{scsi}/sdg"), "virtio", Backing::Local),
            (format!("pci0/host7/{scsi}/sdh"), "scsi", Backing::Local),
            ("vbd-51712/block/xvda1".into(), "xen", Backing::Local),
            ("rbd/0/block/rbd0".into(), "rbd", Backing::Network),
            ("virtual/block/nbd0".into(), "nbd", Backing::Network),
            ("pci0/mmc_host/mmc0/mmc0:1/block/mmcblk0".into(), "mmc", Backing::Local),
        ] {
            let name = place.rsplit('/').next().unwrap().to_owned();
            host.device(&place, &[]);
            let facts = host.facts(&name);
            assert_eq!((facts.transport, facts.backing), (transport, backing), "{place}");
            assert_eq!(
                facts.class,
                Class::Disk,
                "{place}: a name ending in a digit is no partition"
            );
        }
    }

    #[test]
    fn nvme_over_a_network_is_no_local_disk() {
        let host = Host::new();
        host.device("virtual/nvme-fabrics/ctl/nvme0/nvme0n1", &[("device/transport", b"tcp\n")]);
        host.device(
            "pci0/nvme/nvme1/nvme1n1",
            &[
                ("device/transport", b"pcie\n"),
                ("device/model", b"Amazon Elastic Block Store              \n"),
                ("queue/rotational", b"0\n"),
            ],
        );
        assert_eq!(host.facts("nvme0n1").backing, Backing::Network);
        let volume = host.facts("nvme1n1");
        assert_eq!((volume.transport, volume.backing), ("nvme", Backing::Network));
        assert_eq!(volume.rotational(), None, "st1 volumes are spindles behind NVMe");
    }

    #[test]
    fn nvme_paths_are_told_from_heads_by_their_shape() {
        assert_eq!(nvme_head("nvme10c2n1").as_deref(), Some("nvme10n1"));
        for other in ["nvme0n1", "nvme0n1p1", "nvmecn", "sdc", "nvme0c1n1p2"] {
            assert_eq!(nvme_head(other), None, "{other}");
        }
    }
}
