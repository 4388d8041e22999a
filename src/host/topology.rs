//! From a directory to its leaf devices, without a call on the mount: mountinfo, then sysfs.

use std::collections::BTreeSet;
use std::path::Path;

use super::block::{Class, Facts, directory, entries, keeps_overwrites, kernel_name, named_by};
use super::mountinfo::{DeviceNumber, Kind, Mount, Mounts, copies_on_write, kind_of};
use super::roots::{Roots, attribute};
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
    let mut walk = Walk::new(roots, &mounts);
    walk.mount(mount);
    let leaves = walk.end();
    Ok(Resolved {
        mount_point: visible(roots, &mount.point),
        filesystem: mount.filesystem.clone(),
        source: mount.source.clone(),
        backing: leaves.backing,
        copy_on_write: leaves.copy_on_write,
        read_only: mount.read_only,
        devices: leaves.devices,
        top: leaves.top,
    })
}

/// Leaf disks under a block device node, by its `st_rdev`.
pub fn under_node(roots: &Roots, st_rdev: u64) -> Leaves {
    let mounts = Mounts::default();
    let mut walk = Walk::new(roots, &mounts);
    walk.number(DeviceNumber::of(st_rdev));
    walk.end()
}

/// Leaf disks under a block device, by kernel name; `mounts` tell where a loop's file lies.
pub fn under_device(roots: &Roots, name: &str, mounts: &Mounts) -> Leaves {
    let mut walk = Walk::new(roots, mounts);
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
    mounts: &'a Mounts,
    seen: BTreeSet<String>,
    leaves: Vec<Device>,
    top: Vec<Device>,
    network: bool,
    memory: bool,
    copy_on_write: bool,
}

impl<'a> Walk<'a> {
    fn new(roots: &'a Roots, mounts: &'a Mounts) -> Self {
        Self {
            roots,
            mounts,
            seen: BTreeSet::new(),
            leaves: Vec::new(),
            top: Vec::new(),
            network: false,
            memory: false,
            copy_on_write: false,
        }
    }

    fn end(mut self) -> Leaves {
        self.leaves.sort_by(|a, b| a.name.cmp(&b.name));
        let backing = match (self.network, self.leaves.is_empty(), self.memory) {
            (true, _, _) => Backing::Network,
            (_, false, _) => Backing::Local,
            (_, _, true) => Backing::Memory,
            _ => Backing::Unknown,
        };
        let (devices, top) = (self.leaves, self.top);
        Leaves { devices, top, backing, copy_on_write: self.copy_on_write }
    }

    fn first_visit(&mut self, what: String) -> bool {
        self.seen.len() < STEPS_MAX && self.seen.insert(what)
    }

    fn mount(&mut self, mount: &Mount) {
        if !self.first_visit(format!("mount {}", mount.id)) {
            return;
        }
        self.copy_on_write |= copies_on_write(&mount.filesystem);
        match kind_of(&mount.filesystem) {
            Kind::Network => self.network = true,
            Kind::Memory => self.memory = true,
            Kind::Other => {}
        }
        match mount.filesystem.as_str() {
            "overlay" => {
                if let Some(upper) = mount.option("upperdir") {
                    self.path(&upper);
                }
            }
            "btrfs" => self.btrfs(&mount.source),
            "bcachefs" => {
                for source in mount.source.split(':') {
                    self.node(source);
                }
            }
            _ if mount.device.major != 0 => self.number(mount.device),
            _ => {}
        }
    }

    fn path(&mut self, path: &Path) {
        let mounts = self.mounts;
        if let Some(mount) = mounts.covering(path) {
            self.mount(mount);
        }
    }

    fn number(&mut self, number: DeviceNumber) {
        let link = format!("dev/block/{}:{}", number.major, number.minor);
        let dir = self.roots.sys(&link).canonicalize().ok();
        if let Some(name) = dir.as_deref().and_then(kernel_name) {
            self.device(&name);
        }
    }

    /// A device node by its path: `/dev/sdb`, `/dev/mapper/vg-lv`.
    fn node(&mut self, source: &str) {
        if let Some(name) = named_by(self.roots, source) {
            self.device(&name);
        }
    }

    /// All devices of the one btrfs that `source` belongs to; its st_dev is of no device.
    fn btrfs(&mut self, source: &str) {
        let Some(own) = named_by(self.roots, source) else { return };
        let root = self.roots.sys("fs/btrfs");
        let members = entries(&root)
            .into_iter()
            .map(|id| entries(&root.join(id).join("devices")))
            .find(|devices| devices.contains(&own));
        for name in members.unwrap_or_else(|| vec![own]) {
            let top = std::mem::take(&mut self.top);
            self.device(&name);
            self.top = top.into_iter().chain(std::mem::take(&mut self.top)).collect();
        }
    }

    fn device(&mut self, name: &str) {
        if !self.first_visit(format!("device {name}")) {
            return;
        }
        let Some(dir) = directory(self.roots, name) else { return };
        let Some(facts) = Facts::read(self.roots, name) else { return };
        self.copy_on_write |= keeps_overwrites(&dir);
        self.network |= facts.backing == Backing::Network;
        if self.top.is_empty() {
            self.top.push(counting(name, &dir, facts.rotational()));
        }
        match facts.class {
            Class::Zram | Class::Ram => self.memory = true,
            Class::Loop => self.backing_file(&dir),
            // The map counts each request once, whichever path it took.
            Class::Multipath => {
                self.network |= facts.slaves.iter().any(|path| self.is_remote(path));
                self.leaf(name, &dir, facts.rotational());
            }
            Class::Partition if facts.slaves.is_empty() => {
                if let Some(disk) = dir.parent().and_then(kernel_name) {
                    self.device(&disk);
                }
            }
            _ if !facts.slaves.is_empty() => {
                for slave in &facts.slaves {
                    self.device(slave);
                }
            }
            _ => {
                for (name, dir) in counting_nodes(self.roots, name, &dir) {
                    self.leaf(&name, &dir, facts.rotational());
                }
            }
        }
    }

    fn leaf(&mut self, name: &str, dir: &Path, rotational: Option<bool>) {
        self.leaves.push(counting(name, dir, rotational));
    }

    fn is_remote(&self, name: &str) -> bool {
        Facts::read(self.roots, name).is_some_and(|facts| facts.backing == Backing::Network)
    }

    fn backing_file(&mut self, dir: &Path) {
        if let Some(file) = attribute(&dir.join("loop/backing_file")) {
            // A loop over a raw device is a stack like any other.
            match file.strip_prefix("/dev/") {
                Some(_) => self.node(&file),
                None => self.path(Path::new(&file)),
            }
        }
    }
}

fn counting(name: &str, dir: &Path, rotational: Option<bool>) -> Device {
    Device { name: name.to_owned(), stat: dir.join("stat"), rotational }
}

#[cfg(test)]
mod tests;
