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
}

/// Leaf disks under a device or file system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leaves {
    pub devices: Vec<Device>,
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
        Leaves { devices: self.leaves, backing, copy_on_write: self.copy_on_write }
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
            self.device(&name);
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
        self.leaves.push(Device { name: name.to_owned(), stat: dir.join("stat"), rotational });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fixture::Host;

    const ATA: &str = "pci0/ata1/host0/target0:0:0/0:0:0:0/block";

    /// Two disks: sda with a partition of number 8:2, sdb whole as 8:16.
    fn host(mountinfo: impl AsRef<[u8]>) -> Host {
        let host = Host::new();
        host.file("proc/self/mountinfo", mountinfo)
            .device(&format!("{ATA}/sda"), &[("dev", b"8:0"), ("queue/rotational", b"1")])
            .device(&format!("{ATA}/sda/sda2"), &[("dev", b"8:2"), ("partition", b"2")])
            .device("pci0/ata2/block/sdb", &[("dev", b"8:16"), ("queue/rotational", b"0")]);
        host
    }

    fn under(host: &Host, path: &str) -> Resolved {
        resolve(&host.roots(), Path::new(path), None).unwrap()
    }

    fn names(devices: &[Device]) -> Vec<&str> {
        devices.iter().map(|device| device.name.as_str()).collect()
    }

    fn stack(host: &Host, name: &str, attributes: &[(&str, &[u8])]) {
        host.device(&format!("virtual/block/{name}"), attributes);
    }

    #[test]
    fn a_partition_leads_to_its_disk() {
        let host = host("20 1 8:2 / / rw - ext4 /dev/root ro\n");
        let found = under(&host, "/srv");
        assert_eq!(names(&found.devices), ["sda"]);
        assert_eq!((found.backing, found.read_only), (Backing::Local, true));
        assert_eq!(found.devices[0].rotational, Some(true));
        assert!(found.devices[0].stat.ends_with("block/sda/stat"));
    }

    #[test]
    fn lvm_over_md_over_parts_leads_to_all_disks_once() {
        let host = host("20 1 253:0 / / rw - xfs /dev/mapper/vg-root rw\n");
        stack(&host, "dm-0", &[("dev", b"253:0"), ("dm/uuid", b"LVM-x"), ("slaves/md0/", b"")]);
        stack(&host, "md0", &[("md/level", b"raid1"), ("slaves/sda2/", b""), ("slaves/sdb/", b"")]);
        let found = under(&host, "/var");
        assert_eq!(names(&found.devices), ["sda", "sdb"]);
        assert!(!found.copy_on_write);
    }

    #[test]
    fn a_thin_volume_keeps_what_is_overwritten() {
        let host = host("20 1 253:9 / / rw - xfs /dev/mapper/vg-thin rw\n");
        stack(&host, "dm-9", &[("dev", b"253:9"), ("dm/uuid", b"LVM-y"), ("slaves/dm-8/", b"")]);
        stack(&host, "dm-8", &[("dm/uuid", b"LVM-z-tpool"), ("slaves/sdb/", b"")]);
        assert!(under(&host, "/").copy_on_write);
    }

    #[test]
    fn a_multipath_map_is_one_leaf_and_tells_of_its_network() {
        let host = host("20 1 253:0 / / rw - xfs /dev/mapper/mpatha rw\n");
        stack(
            &host,
            "dm-0",
            &[
                ("dev", b"253:0"),
                ("dm/uuid", b"mpath-36"),
                ("slaves/sdc/", b""),
                ("slaves/sdd/", b""),
            ],
        );
        host.device("platform/host3/session1/target3:0:0/block/sdc", &[("holders/dm-0/", b"")]);
        host.device("platform/host4/session2/target4:0:0/block/sdd", &[("holders/dm-0/", b"")]);
        let found = under(&host, "/srv");
        assert_eq!((names(&found.devices), found.backing), (vec!["dm-0"], Backing::Network));
        assert_eq!(host.facts("sdc").class, Class::Path);
    }

    #[test]
    fn an_nvme_head_that_counts_nothing_gives_way_to_its_paths() {
        let host = host("20 1 259:1 / / rw - xfs /dev/nvme0n1 rw\n");
        let (idle, used) = (b"0 0 0 0 0 0 0 0 0 0 0".as_slice(), b"9 0 72 1 0 0 0 0 0 1 1");
        let head = "virtual/nvme-subsystem/nvme-subsys0/nvme0n1";
        host.device(head, &[("dev", b"259:1"), ("stat", idle)]);
        host.device("pci0/nvme/nvme0/nvme0c0n1", &[("stat", used)]);
        host.device("pci1/nvme/nvme1/nvme0c1n1", &[("stat", idle)]);
        assert_eq!(names(&under(&host, "/").devices), ["nvme0c0n1"]);
        host.file(&format!("sys/devices/{head}/stat"), used);
        assert_eq!(names(&under(&host, "/").devices), ["nvme0n1"]);
    }

    #[test]
    fn a_loop_leads_to_the_disk_of_its_file_and_a_circle_ends() {
        let host = host(
            "20 1 8:16 / / rw - ext4 /dev/sdb rw\n21 20 7:0 / /img rw - ext4 /dev/loop0 rw\n\
             22 20 7:1 / /self rw - ext4 /dev/loop1 rw\n",
        );
        stack(&host, "loop0", &[("dev", b"7:0"), ("loop/backing_file", b"/var/disk.img\n")]);
        stack(&host, "loop1", &[("dev", b"7:1"), ("loop/backing_file", b"/self/disk.img\n")]);
        assert_eq!(names(&under(&host, "/img/x").devices), ["sdb"]);
        let circle = under(&host, "/self");
        assert_eq!((circle.devices.len(), circle.backing), (0, Backing::Unknown));
    }

    #[test]
    fn btrfs_has_all_its_devices_and_no_other_ones() {
        let host = host("20 1 0:30 /@ / rw - btrfs /dev/mapper/luks rw\n");
        stack(&host, "dm-3", &[("dm/name", b"luks\n"), ("slaves/sda2/", b"")]);
        host.file("sys/fs/btrfs/features/x", "").file("sys/fs/btrfs/other/devices/sdz", "");
        host.file("sys/fs/btrfs/uuid/devices/dm-3", "").file("sys/fs/btrfs/uuid/devices/sdb", "");
        let found = resolve(&host.roots(), Path::new("/home"), Some(77)).unwrap();
        assert_eq!(names(&found.devices), ["sda", "sdb"]);
        assert!(found.copy_on_write && found.backing == Backing::Local);
    }

    #[test]
    fn an_overlay_lies_where_its_upper_directory_does() {
        let host = host(
            "20 1 8:16 / / rw - ext4 /dev/sdb rw\n\
             30 20 0:50 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir=/var/up,workdir=/w\n",
        );
        assert_eq!(names(&under(&host, "/merged/x").devices), ["sdb"]);
        let inside = self::host("1 0 0:50 / / rw - overlay overlay rw,upperdir=/var/up\n");
        assert_eq!(under(&inside, "/").backing, Backing::Unknown, "the host's path, not ours");
    }

    #[test]
    fn network_and_memory_file_systems_have_no_disk() {
        for (filesystem, backing) in [
            ("nfs4", Backing::Network),
            ("fuse.glusterfs", Backing::Network),
            ("ceph", Backing::Network),
            ("tmpfs", Backing::Memory),
            ("zfs", Backing::Unknown),
            ("fuse.unheard-of", Backing::Unknown),
        ] {
            let host = host(format!("20 1 0:40 / / rw - {filesystem} tank/x rw\n"));
            let found = under(&host, "/srv");
            assert_eq!((found.backing, found.devices), (backing, vec![]), "{filesystem}");
            assert_eq!(found.copy_on_write, filesystem == "zfs");
        }
    }

    #[test]
    fn case_081_mount_points_are_shown_without_the_prefix_of_the_root() {
        let case = include_bytes!("../../tests/fixtures/cases/081-mountinfo-rhcos-container.input");
        let host = host(case);
        let roots = Roots { rootfs: "/host".into(), ..host.roots() };
        let seen = |path: &str| resolve(&roots, Path::new(path), None).unwrap().mount_point;
        assert_eq!(seen("/host/var/lib/x"), "/var");
        assert_eq!(seen("/host/srv"), "/");
    }

    #[test]
    fn a_number_that_only_a_worker_knows_beats_the_path() {
        let host = host("20 1 8:16 / / rw - ext4 /dev/sdb rw\n21 20 8:2 / /a rw - xfs x rw\n");
        let number = rustix::fs::makedev(8, 2);
        let found = resolve(&host.roots(), Path::new("/link"), Some(number)).unwrap();
        assert_eq!((&*found.mount_point, names(&found.devices)), ("/a", vec!["sda"]));
        assert_eq!(names(&under_node(&host.roots(), number).devices), ["sda"]);
    }
}
