//! What sysfs says of a block device: its class, its way to the host, its queue.
//! Names decide nothing where sysfs knows (Documentation/ABI/stable/sysfs-block).

use std::path::{Path, PathBuf};

use super::roots::{Roots, asked, attribute, read_file, resolved};
use super::transport::{HYPERVISOR_MODELS, backing, counts_nothing, nvme_head, transport};
use crate::base::fault::Fault;
use crate::base::units::Bytes;
use crate::model::job::Backing;

/// What a block device is to the one that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A whole disk, or what the host is shown as one.
    Disk,
    /// One of several paths to a disk that has a node of its own: counts what that one counts.
    Path,
    /// A dm-multipath map: the disk that its paths lead to.
    Multipath,
    /// LVM, dm-crypt and other device-mapper targets.
    Dm,
    Md,
    /// bcache and others that lean on slaves.
    Stack,
    /// A part of a disk, by a table on it or by kpartx.
    Partition,
    Loop,
    Zram,
    Ram,
}

impl Class {
    /// Leans on other devices for its data.
    pub fn is_stacked(self) -> bool {
        matches!(self, Class::Dm | Class::Md | Class::Stack | Class::Loop | Class::Multipath)
    }
}

/// Facts about one device; attributes that a driver doesn't have are `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub class: Class,
    /// 0 while nothing is attached (loop, nbd) or set up (zram).
    pub size: Option<Bytes>,
    /// What the kernel claims; see [`Facts::rotational`].
    pub rotational_claim: Option<bool>,
    /// From VPD page B1, where the disk tells.
    pub rpm: Option<u16>,
    /// `nvme`, `ata`, `usb`, `virtio`, `iscsi` ...; empty where unknown.
    pub transport: &'static str,
    pub backing: Backing,
    pub model: Option<String>,
    /// What stays the same when names don't: see [`identity`].
    pub identity: Option<String>,
    /// The active one.
    pub scheduler: Option<String>,
    pub nr_requests: Option<u32>,
    pub write_cache: Option<String>,
    pub logical_block: Option<Bytes>,
    pub dm_name: Option<String>,
    /// False: the queue counts nothing (`queue/iostats` is 0).
    pub counted: bool,
    /// Devices directly under this one, by kernel name.
    pub slaves: Vec<String>,
}

impl Facts {
    /// Spindle or not, where the kernel can be trusted with it: hypervisors show every disk alike
    /// (drivers/block/virtio_blk.c claims rotational always), and so do network block devices. A loop
    /// claims flash over any file that isn't on a disk (drivers/block/loop.c).
    pub fn rotational(&self) -> Option<bool> {
        if self.class == Class::Loop {
            return None;
        }
        if matches!(self.transport, "virtio" | "xen" | "hyperv" | "rbd" | "nbd" | "drbd") {
            return None;
        }
        if self.rpm.is_some() {
            return Some(true);
        }
        let model = self.model.as_deref().unwrap_or_default();
        let of_a_hypervisor = HYPERVISOR_MODELS.iter().any(|name| model.contains(name));
        if of_a_hypervisor || self.backing == Backing::Network {
            None
        } else {
            self.rotational_claim
        }
    }

    /// Reads about fifteen attributes; `None` where sysfs doesn't know the device.
    pub fn read(roots: &Roots, name: &str) -> Option<Self> {
        let dir = directory(roots, name)?;
        let get = |relative: &str| attribute(&dir.join(relative)).filter(|text| !text.is_empty());
        let number = |relative: &str| get(relative)?.parse::<u64>().ok();
        let model = get("device/model");
        let transport = transport(roots, name, &dir);
        let class = class(roots, name, &dir);
        let rate = rotation_rate(&dir);
        Some(Self {
            class,
            size: number("size").map(|sectors| Bytes(sectors.saturating_mul(512))),
            // A rate of 1 says "does not turn" (SBC-4, block device characteristics).
            rotational_claim: match rate {
                Some(1) => Some(false),
                _ => number("queue/rotational").map(|n| n != 0),
            },
            rpm: rate.filter(|rate| *rate > 0x400 && *rate < u16::MAX),
            backing: backing(class, transport, model.as_deref()),
            transport,
            model,
            identity: identity(&dir),
            scheduler: get("queue/scheduler").and_then(|text| active(&text)),
            nr_requests: number("queue/nr_requests").and_then(|n| n.try_into().ok()),
            write_cache: get("queue/write_cache"),
            logical_block: number("queue/logical_block_size").map(Bytes),
            dm_name: get("dm/name"),
            counted: number("queue/iostats") != Some(0),
            slaves: entries(&dir.join("slaves")),
        })
    }
}

impl Facts {
    /// What a name alone says, where there is no sysfs: only what can't be meant otherwise.
    /// Xen's `xvda1` may be a whole disk, and so is read as one.
    pub fn guessed(name: &str) -> Self {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let numbered = stem.len() < name.len();
        let part = |prefix: &str| {
            stem.strip_prefix(prefix)
                .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_lowercase()))
        };
        let of_numbered = stem.strip_suffix('p').is_some_and(|s| s.ends_with(char::is_numeric));
        let class = match stem {
            "loop" => Class::Loop,
            "zram" => Class::Zram,
            "ram" => Class::Ram,
            "dm-" => Class::Dm,
            "md" => Class::Md,
            _ if numbered && (of_numbered || part("sd") || part("vd") || part("hd")) => {
                Class::Partition
            }
            _ => Class::Disk,
        };
        Self {
            class,
            size: None,
            rotational_claim: None,
            rpm: None,
            transport: "",
            backing: Backing::Unknown,
            model: None,
            identity: None,
            scheduler: None,
            nr_requests: None,
            write_cache: None,
            logical_block: None,
            dm_name: None,
            counted: true,
            slaves: Vec::new(),
        }
    }
}

/// What the device says that it is, the same after a reboot that gives its name to another: the world
/// wide id, else a uuid, else a serial number.
pub fn identity(dir: &Path) -> Option<String> {
    ["wwid", "device/wwid", "dm/uuid", "md/uuid", "serial", "device/serial"]
        .iter()
        .filter_map(|name| attribute(&dir.join(name)))
        .find(|text| !text.is_empty())
}

/// What tells a disk from another that bears its name: [`identity`], else the number that the kernel
/// gave it in this boot and its size. `None` where there is neither. At most 64 plain characters: what
/// is longer (of NVMe often) keeps its beginning and a checksum.
pub fn told_by(
    identity: Option<&str>,
    sequence: Option<u64>,
    size: Option<Bytes>,
) -> Option<String> {
    let numbered = || Some(format!("disk {} of {} bytes", sequence?, size?.0));
    let text = identity.map(str::to_owned).or_else(numbered)?;
    let plain: String =
        text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '_' }).collect();
    let plain = plain.replace(['"', '\\'], "_");
    Some(match plain.get(..48).filter(|_| plain.len() > 64) {
        Some(begin) => format!("{begin} {:08x}", crc32fast::hash(text.as_bytes())),
        None => plain,
    })
}

/// [`told_by`] of a device as it is now.
pub fn told(roots: &Roots, name: &str) -> Option<String> {
    let dir = directory(roots, name)?;
    let number = |relative: &str| attribute(&dir.join(relative))?.parse::<u64>().ok();
    let size = number("size").map(|sectors| Bytes(sectors.saturating_mul(512)));
    told_by(identity(&dir).as_deref(), number("diskseq"), size)
}

/// Why sysfs can't be asked about a device that it has; what was known of it then still holds.
pub fn refusal(roots: &Roots, name: &str) -> Option<Fault> {
    asked(&directory(roots, name)?.join("size")).err()
}

/// The device's directory in sysfs, links resolved; partitions too.
pub fn directory(roots: &Roots, name: &str) -> Option<PathBuf> {
    // A slash in a kernel name is `!` in sysfs, which also keeps odd names within the directory.
    let name = name.replace('/', "!");
    ["class/block", "block"].iter().find_map(|parent| resolved(&roots.sys(parent).join(&name)))
}

/// Kernel name of a directory in sysfs.
pub fn kernel_name(dir: &Path) -> Option<String> {
    Some(dir.file_name()?.to_string_lossy().replace('!', "/"))
}

/// Kernel names listed in a directory, sorted; none where it can't be read.
pub fn entries(dir: &Path) -> Vec<String> {
    let Ok(list) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<_> = list.filter_map(|entry| kernel_name(&entry.ok()?.path())).collect();
    names.sort();
    names
}

/// Kernel name of a device node, from its path alone.
pub(super) fn named_by(roots: &Roots, source: &str) -> Option<String> {
    let node = source.strip_prefix("/dev/")?;
    let Some(mapped) = node.strip_prefix("mapper/") else {
        return directory(roots, node).as_deref().and_then(kernel_name);
    };
    let is_it = |name: &String| {
        let path = roots.sys("class/block").join(name).join("dm/name");
        name.starts_with("dm-") && attribute(&path).as_deref() == Some(mapped)
    };
    entries(&roots.sys("class/block")).into_iter().find(is_it)
}

/// LVM marks the hidden halves of thin pools, VDO and snapshots by a suffix of the uuid.
pub(super) fn keeps_overwrites(dir: &Path) -> bool {
    let uuid = attribute(&dir.join("dm/uuid")).unwrap_or_default();
    ["-tpool", "-vpool", "-cow", "-real"].iter().any(|suffix| uuid.ends_with(suffix))
}

fn class(roots: &Roots, name: &str, dir: &Path) -> Class {
    let dm_uuid = attribute(&dir.join("dm/uuid")).unwrap_or_default();
    let starts = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
    };
    if dir.join("partition").exists() || dm_uuid.starts_with("part") {
        Class::Partition
    } else if dm_uuid.starts_with("mpath-") {
        Class::Multipath
    } else if dir.join("dm").exists() {
        Class::Dm
    } else if dir.join("md").exists() {
        Class::Md
    } else if dir.join("loop").exists() || starts("loop") {
        Class::Loop
    } else if starts("zram") {
        Class::Zram
    } else if starts("ram") {
        Class::Ram
    } else if is_path(roots, name, dir) {
        Class::Path
    } else if !entries(&dir.join("slaves")).is_empty() {
        Class::Stack
    } else {
        Class::Disk
    }
}

/// A path of dm-multipath, or of an NVMe head that counts for itself (since Linux 6.4).
fn is_path(roots: &Roots, name: &str, dir: &Path) -> bool {
    let head = nvme_head(name).and_then(|head| directory(roots, &head));
    let is_map = |holder: &String| {
        attribute(&roots.sys("block").join(holder).join("dm/uuid"))
            .is_some_and(|uuid| uuid.starts_with("mpath-"))
    };
    head.is_some_and(|head| !counts_nothing(&head))
        || entries(&dir.join("holders")).iter().any(is_map)
}

/// `none [mq-deadline] kyber` -> `mq-deadline`; a lone word stands for itself.
fn active(schedulers: &str) -> Option<String> {
    let inside = |text: &str| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned());
    inside(schedulers).or_else(|| (!schedulers.contains(' ')).then(|| schedulers.to_owned()))
}

/// Nominal medium rotation rate of VPD page B1; 0 is "not reported".
fn rotation_rate(dir: &Path) -> Option<u16> {
    let page = read_file(&dir.join("device/vpd_pgb1")).ok()?;
    let rate = u16::from_be_bytes([*page.get(4)?, *page.get(5)?]);
    (rate != 0).then_some(rate)
}

/// Written in zones, in order only (Documentation/ABI/stable/sysfs-block, `queue/zoned`).
pub fn is_zoned(dir: &Path) -> bool {
    let zoned = attribute(&dir.join("queue/zoned"));
    zoned.is_some_and(|kind| !kind.is_empty() && kind != "none")
}

/// Requests that a disk takes at once: what its queues have tags for (block/blk-mq-sysfs.c), and of
/// SCSI what the disk was found to bear. `None` where its driver tells neither.
pub fn slots(dir: &Path) -> Option<u32> {
    let number = |path: &Path| attribute(path)?.parse::<u32>().ok();
    let tags = |queue: String| number(&dir.join("mq").join(queue).join("nr_tags"));
    let queues = entries(&dir.join("mq"));
    let tags: Option<u32> = queues.into_iter().map(tags).sum::<Option<u32>>().filter(|n| *n > 0);
    let requests = tags.or_else(|| number(&dir.join("queue/nr_requests")));
    let borne = number(&dir.join("device/queue_depth"));
    [requests, borne].into_iter().flatten().filter(|n| *n > 0).min()
}

#[cfg(test)]
mod tests;
