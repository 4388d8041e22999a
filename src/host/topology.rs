//! From a directory to its leaf devices, without a call on the mount: mountinfo, then sysfs.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;

use super::block::{Class, Facts, directory, entries, keeps_overwrites, kernel_name, named_by};
use super::mountinfo::{DeviceNumber, Kind, Mount, Mounts, copies_on_write, kind_of};
use super::roots::{Roots, attribute, resolved};
use super::transport::counting_nodes;
use crate::base::fault::{Fault, FaultKind};
use crate::model::job::{Backing, Device};

/// Most devices and mounts that one walk looks at: stacks can be looped, and sysfs can be odd.
const STEPS_MAX: usize = 1024;

/// What lies under a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// As people see it: without the prefix of `--path.rootfs`.
    pub mount_point: String,
    pub filesystem: String,
    pub source: String,
    pub backing: Backing,
    pub copy_on_write: bool,
    pub read_only: bool,
    pub devices: Vec<Device>,
    pub top: Vec<Device>,
}

/// Leaf disks under a device or file system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leaves {
    pub devices: Vec<Device>,
    /// The topmost block device; all of them where a file system has several.
    pub top: Vec<Device>,
    pub backing: Backing,
    /// An overwrite is kept by a snapshot or a thin pool somewhere in the stack.
    pub copy_on_write: bool,
}

/// What lies under an absolute `path`, its links resolved by the caller. A worker that has looked
/// gives `st_dev` too, which is exact where names are not.
///
/// # Errors
/// Where mountinfo can't be read, or holds no mount for the path.
pub fn resolve(roots: &Roots, path: &Path, st_dev: Option<u64>) -> Result<Resolved, Fault> {
    let mounts = Mounts::read(roots)?;
    let by_number = st_dev.and_then(|dev| mounts.of_device(DeviceNumber::of(dev), path));
    let mount = by_number.or_else(|| mounts.covering(path)).ok_or_else(|| {
        Fault::new(
            FaultKind::Missing,
            format!("{}: no mount in mountinfo holds it", path.display()),
        )
    })?;
    let mount = mount.clone();
    let mut walk = Walk { mounts: OnceCell::from(mounts), ..Walk::new(roots) };
    walk.mount(&mount);
    let leaves = walk.end();
    Ok(Resolved {
        mount_point: visible(roots, &mount.point),
        filesystem: mount.filesystem.clone(),
        source: mount.source.clone(),
        backing: leaves.backing,
        copy_on_write: leaves.copy_on_write,
        read_only: mount.is_read_only(),
        devices: leaves.devices,
        top: leaves.top,
    })
}

/// Leaf disks under a block device node, by its `st_rdev`.
pub fn under_node(roots: &Roots, st_rdev: u64) -> Leaves {
    let mut walk = Walk::new(roots);
    walk.number(DeviceNumber::of(st_rdev));
    walk.end()
}

/// Leaf disks under a block device, by kernel name.
pub fn under_device(roots: &Roots, name: &str) -> Leaves {
    let mut walk = Walk::new(roots);
    walk.device(name);
    walk.end()
}

fn visible(roots: &Roots, point: &Path) -> String {
    let inside = point.strip_prefix(&roots.rootfs).unwrap_or(point);
    Path::new("/").join(inside).to_string_lossy().into_owned()
}

/// One walk down a stack. Bounded: nothing is visited twice, and no more than [`STEPS_MAX`].
struct Walk<'a> {
    roots: &'a Roots,
    /// Tell where a loop's file lies; read when one is met.
    mounts: OnceCell<Mounts>,
    /// What was looked at, and whether a device that counts lies under it.
    seen: BTreeMap<String, bool>,
    leaves: Vec<Device>,
    /// A leaf is a disk, and not a loop over what no disk is known of.
    disk: bool,
    top: Vec<Device>,
    network: bool,
    memory: bool,
    copy_on_write: bool,
}

impl<'a> Walk<'a> {
    fn new(roots: &'a Roots) -> Self {
        Self {
            roots,
            mounts: OnceCell::new(),
            seen: BTreeMap::new(),
            leaves: Vec::new(),
            disk: false,
            top: Vec::new(),
            network: false,
            memory: false,
            copy_on_write: false,
        }
    }

    fn end(mut self) -> Leaves {
        self.leaves.sort_by(|a, b| a.name.cmp(&b.name));
        let backing = match (self.network, self.disk, self.memory) {
            (true, _, _) => Backing::Network,
            (_, true, _) => Backing::Local,
            (_, _, true) => Backing::Memory,
            _ => Backing::Unknown,
        };
        let (devices, top) = (self.leaves, self.top);
        Leaves { devices, top, backing, copy_on_write: self.copy_on_write }
    }

    /// Takes one step, unless it was taken before. Each step says whether a device that counts lies
    /// there; one that leads back to itself counts what it stands on.
    fn step(&mut self, what: String, look: impl FnOnce(&mut Self) -> bool) -> bool {
        if let Some(found) = self.seen.get(&what) {
            return *found;
        }
        if self.seen.len() >= STEPS_MAX {
            return true;
        }
        self.seen.insert(what.clone(), true);
        let found = look(self);
        self.seen.insert(what, found);
        found
    }

    fn mount(&mut self, mount: &Mount) -> bool {
        self.step(format!("mount {}", mount.id), |walk| walk.under_mount(mount))
    }

    fn under_mount(&mut self, mount: &Mount) -> bool {
        self.copy_on_write |= copies_on_write(&mount.filesystem);
        match kind_of(&mount.filesystem) {
            Kind::Network => self.network = true,
            Kind::Memory => self.memory = true,
            Kind::Other => {}
        }
        match mount.filesystem.as_str() {
            "overlay" => mount.option("upperdir").is_some_and(|upper| self.path(&upper)),
            "btrfs" => self.btrfs(&mount.source),
            "bcachefs" => any(mount.source.split(':'), |source| self.node(source)),
            _ => mount.device.major != 0 && self.number(mount.device),
        }
    }

    fn path(&mut self, path: &Path) -> bool {
        let mounts = self.mounts.get_or_init(|| Mounts::read(self.roots).unwrap_or_default());
        let mount = mounts.covering(path).cloned();
        mount.is_some_and(|mount| self.mount(&mount))
    }

    fn number(&mut self, number: DeviceNumber) -> bool {
        let link = format!("dev/block/{}:{}", number.major, number.minor);
        let dir = resolved(&self.roots.sys(&link));
        dir.as_deref().and_then(kernel_name).is_some_and(|name| self.device(&name))
    }

    /// A device node by its path: `/dev/sdb`, `/dev/mapper/vg-lv`.
    fn node(&mut self, source: &str) -> bool {
        named_by(self.roots, source).is_some_and(|name| self.device(&name))
    }

    /// All devices of the one btrfs that `source` belongs to; its st_dev is of no device.
    fn btrfs(&mut self, source: &str) -> bool {
        let Some(own) = named_by(self.roots, source) else { return false };
        let root = self.roots.sys("fs/btrfs");
        let members = entries(&root)
            .into_iter()
            .map(|id| entries(&root.join(id).join("devices")))
            .find(|devices| devices.contains(&own));
        any(members.unwrap_or_else(|| vec![own]), |name| {
            // Each member is a top of its own.
            let top = std::mem::take(&mut self.top);
            let found = self.device(&name);
            self.top.splice(0..0, top);
            found
        })
    }

    fn device(&mut self, name: &str) -> bool {
        self.step(format!("device {name}"), |walk| walk.under_device(name))
    }

    fn under_device(&mut self, name: &str) -> bool {
        let Some(dir) = directory(self.roots, name) else { return false };
        let Some(facts) = Facts::read(self.roots, name) else { return false };
        self.copy_on_write |= keeps_overwrites(&dir);
        self.network |= facts.backing == Backing::Network;
        if self.top.is_empty() {
            self.top.push(counting(name, &dir, facts.rotational()));
        }
        match facts.class {
            Class::Zram | Class::Ram => {
                self.memory = true;
                false
            }
            Class::Loop => self.backing_file(&dir) || self.loop_leaf(name, &dir),
            // The map counts each request once, whichever path it took.
            Class::Multipath => {
                self.network |= facts.slaves.iter().any(|path| self.is_remote(path));
                self.disk(name, &dir, facts.rotational())
            }
            Class::Partition if facts.slaves.is_empty() => {
                let disk = dir.parent().and_then(kernel_name);
                disk.is_some_and(|disk| self.device(&disk))
            }
            _ if !facts.slaves.is_empty() => any(&facts.slaves, |slave| self.device(slave)),
            _ => any(counting_nodes(self.roots, name, &dir), |(name, dir)| {
                self.disk(&name, &dir, facts.rotational())
            }),
        }
    }

    fn disk(&mut self, name: &str, dir: &Path, rotational: Option<bool>) -> bool {
        self.disk = true;
        self.leaf(name, dir, rotational);
        true
    }

    /// A loop whose file lies on no disk that is known (FUSE, a network, memory): then the loop is
    /// what counts. Whether that turns is not known.
    fn loop_leaf(&mut self, name: &str, dir: &Path) -> bool {
        self.leaf(name, dir, None);
        true
    }

    fn leaf(&mut self, name: &str, dir: &Path, rotational: Option<bool>) {
        self.leaves.push(counting(name, dir, rotational));
    }

    fn is_remote(&self, name: &str) -> bool {
        Facts::read(self.roots, name).is_some_and(|facts| facts.backing == Backing::Network)
    }

    fn backing_file(&mut self, dir: &Path) -> bool {
        let Some(file) = attribute(&dir.join("loop/backing_file")) else { return false };
        // A loop over a raw device is a stack like any other.
        match file.strip_prefix("/dev/") {
            Some(_) => self.node(&file),
            None => self.path(Path::new(&file)),
        }
    }
}

fn counting(name: &str, dir: &Path, rotational: Option<bool>) -> Device {
    Device { name: name.to_owned(), stat: dir.join("stat"), rotational }
}

/// True where `found` is so of any; each is asked.
fn any<T>(all: impl IntoIterator<Item = T>, found: impl FnMut(T) -> bool) -> bool {
    all.into_iter().map(found).filter(|found| *found).count() > 0
}

#[cfg(test)]
mod tests;
