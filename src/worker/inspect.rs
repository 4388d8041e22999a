//! A look at a target: does it answer, how large is it, what lies under it.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, StatVfsMountFlags, StatxFlags, fstatvfs, makedev, open,
};

use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Bytes, Ratio};
use crate::host::roots::Roots;
use crate::host::{block, topology};
use crate::model::job::{Backing, Device, Place, Target};
use crate::model::outcome::Inspection;
use crate::workload::ballast;

/// Inspects `target` on the host whose tables are under `roots`.
///
/// # Errors
/// Those of the look at the target itself, and of finding the mount it lies on.
pub(super) fn inspect(target: &Target, roots: &Roots) -> Result<Inspection, Fault> {
    match &target.place {
        Place::Directory(path) => directory(path, &look(&target.place)?, roots),
        Place::Device(path) => Ok(device(path, &look(&target.place)?, roots)),
        Place::Cluster(cluster) => Ok(unasked(&cluster.conf)),
    }
}

/// A cluster has more to do than to answer each minute: its probe asks when it is due.
fn unasked(conf: &Path) -> Inspection {
    let (filesystem, source) = ("ceph".into(), conf.display().to_string());
    Inspection { filesystem, source, backing: Backing::Network, ..Inspection::default() }
}

fn directory(path: &Path, look: &Look, roots: &Roots) -> Result<Inspection, Fault> {
    // mountinfo knows places, not the links that lead to them.
    let place = path.canonicalize().map_err(|error| Fault::os(path.display(), &error))?;
    let under = topology::resolve(roots, &place, Some(look.device))?;
    Ok(Inspection {
        mount_point: under.mount_point,
        filesystem: under.filesystem,
        source: under.source,
        backing: under.backing,
        copy_on_write: under.copy_on_write,
        zoned: any_zoned(&under.devices),
        read_only: under.read_only || look.read_only,
        size: look.size,
        available: look.available,
        inodes_free: look.inodes_free,
        devices: under.devices,
        top: under.top,
        ballast: ballast::size(path),
    })
}

fn any_zoned(devices: &[Device]) -> bool {
    devices.iter().filter_map(|device| device.stat.parent()).any(block::is_zoned)
}

/// A raw device is mounted nowhere; it is its own source.
fn device(path: &Path, look: &Look, roots: &Roots) -> Inspection {
    let under = topology::under_node(roots, look.device);
    Inspection {
        mount_point: String::new(),
        filesystem: String::new(),
        source: path.display().to_string(),
        backing: under.backing,
        copy_on_write: under.copy_on_write,
        zoned: any_zoned(&under.devices),
        read_only: look.read_only,
        size: look.size,
        available: look.available,
        inodes_free: look.inodes_free,
        devices: under.devices,
        top: under.top,
        ballast: None,
    }
}

/// What the target itself says; the rest of an inspection comes from the host's tables.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Look {
    /// `st_dev` of a directory, `st_rdev` of a device.
    pub(super) device: u64,
    pub(super) size: Bytes,
    pub(super) available: Bytes,
    pub(super) inodes_free: Option<Ratio>,
    pub(super) read_only: bool,
}

/// Opens and measures the target. Every call here can hang with it.
///
/// # Errors
/// The kind follows errno; `Unsupported` where it is no directory or no block device.
pub(super) fn look(place: &Place) -> Result<Look, Fault> {
    let path = place.path();
    let at_path = |errno: rustix::io::Errno| Fault::os(path.display(), &errno.into());
    let is_directory = matches!(place, Place::Directory(_));
    let directory = if is_directory { OFlags::DIRECTORY } else { OFlags::empty() };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | directory;
    let file = File::from(open(path, flags, Mode::empty()).map_err(at_path)?);
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let stat = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, wanted).map_err(at_path)?;
    if is_directory {
        return space(&file, makedev(stat.stx_dev_major, stat.stx_dev_minor)).map_err(at_path);
    }
    if !FileType::from_raw_mode(stat.stx_mode.into()).is_block_device() {
        let text = format!("{}: not a block device", path.display());
        return Err(Fault::new(FaultKind::Unsupported, text));
    }
    whole(file, makedev(stat.stx_rdev_major, stat.stx_rdev_minor), path)
}

fn space(directory: &impl AsFd, device: u64) -> Result<Look, rustix::io::Errno> {
    let fs = fstatvfs(directory)?;
    let bytes = |blocks: u64| Bytes(blocks.saturating_mul(fs.f_frsize));
    Ok(Look {
        device,
        size: bytes(fs.f_blocks),
        available: bytes(fs.f_bavail),
        // btrfs and others count none.
        inodes_free: Ratio::of(fs.f_favail as f64, fs.f_files as f64),
        read_only: fs.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// A raw device is all there is: it has no free space, and is never written.
fn whole(mut file: File, device: u64, path: &Path) -> Result<Look, Fault> {
    let size = file.seek(SeekFrom::End(0)).map_err(|error| Fault::os(path.display(), &error))?;
    Ok(Look { device, size: Bytes(size), available: Bytes(0), inodes_free: None, read_only: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_tells_its_device_and_space() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let look = look(&Place::Directory(dir.path().into())).unwrap();
        let dev = std::fs::metadata(dir.path()).unwrap().dev();
        assert_eq!(look.device, dev);
        assert!(look.size.0 > 0 && look.available <= look.size);
        assert!(look.inodes_free.is_none_or(|share| share.0 > 0.0));
    }

    #[test]
    fn an_inspection_finds_the_mount_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/proc/self", &link).unwrap();
        let look_at = |path: &Path| {
            let target = Target { name: "t".into(), place: Place::Directory(path.into()) };
            inspect(&target, &Roots::default()).unwrap()
        };
        assert_eq!(look_at(&link).filesystem, "proc");
        let plain = look_at(dir.path());
        assert!(plain.size.0 > 0 && !plain.read_only && plain.ballast.is_none(), "{plain:?}");
        assert!(dir.path().canonicalize().unwrap().starts_with(&plain.mount_point));
    }

    #[test]
    fn a_target_of_the_wrong_sort_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let kind = |place| look(&place).unwrap_err().kind;
        assert_eq!(kind(Place::Directory(file.path().into())), FaultKind::Missing);
        assert_eq!(kind(Place::Device(file.path().into())), FaultKind::Unsupported);
        assert_eq!(kind(Place::Device("/dev/null".into())), FaultKind::Unsupported);
        assert_eq!(kind(Place::Directory("/no/such/target".into())), FaultKind::Missing);
    }
}
