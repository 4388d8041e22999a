//! /proc/self/mountinfo: which mount a path lies on, told from text alone.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::roots::{Roots, read_file};
use crate::base::fault::Fault;

/// A device number as the kernel splits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

impl DeviceNumber {
    /// From `st_dev` or `st_rdev` of stat(2).
    pub fn of(st_dev: u64) -> Self {
        Self { major: rustix::fs::major(st_dev), minor: rustix::fs::minor(st_dev) }
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (major, minor) = std::str::from_utf8(text).ok()?.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// One line of mountinfo (Documentation/filesystems/proc.rst 3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub id: u64,
    pub parent: u64,
    pub device: DeviceNumber,
    pub point: PathBuf,
    /// Of the mount or of the whole file system.
    pub read_only: bool,
    pub filesystem: String,
    /// `/dev/sda1`, `server:/export`; may be empty.
    pub source: String,
    /// Options of the file system itself, as printed.
    pub options: Vec<u8>,
}

impl Mount {
    /// `parent id major:minor root point options [optional ...] - type source options`.
    /// The part after the dash is split at single blanks: the source may be empty, and the last
    /// field may hold raw blanks (WSL2).
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ');
        let id = decimal(fields.next()?)?;
        let parent = decimal(fields.next()?)?;
        let device = DeviceNumber::parse(fields.next()?)?;
        let _root = fields.next()?;
        let point = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
        let mount_options = fields.next()?;
        fields.find(|field| *field == b"-")?;
        let filesystem = text(fields.next()?);
        let source = text(fields.next()?);
        let options = fields.collect::<Vec<_>>().join(&b' ');
        let read_only = has_option(mount_options, b"ro") || has_option(&options, b"ro");
        let whole = !filesystem.is_empty() && point.is_absolute();
        whole.then_some(Self { id, parent, device, point, read_only, filesystem, source, options })
    }

    /// Value of `name=value` among the file system's options.
    pub fn option(&self, name: &str) -> Option<PathBuf> {
        let value = self
            .options
            .split(|b| *b == b',')
            .find_map(|option| option.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(PathBuf::from(OsString::from_vec(unescape(value))))
    }
}

fn has_option(options: &[u8], name: &[u8]) -> bool {
    options.split(|b| *b == b',').any(|option| option == name)
}

fn decimal(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Blank, tab, newline, backslash and `#` are printed as three octal digits (fs/proc_namespace.c).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, next) = match rest {
            [b'\\', b'0', b'4', b'0', next @ ..] => (b' ', next),
            [b'\\', b'0', b'1', b'1', next @ ..] => (b'\t', next),
            [b'\\', b'0', b'1', b'2', next @ ..] => (b'\n', next),
            [b'\\', b'1', b'3', b'4', next @ ..] => (b'\\', next),
            [b'\\', b'0', b'4', b'3', next @ ..] => (b'#', next),
            _ => (first, after),
        };
        out.push(byte);
        rest = next;
    }
    out
}

/// All mounts of this process's namespace.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    pub mounts: Vec<Mount>,
    /// Lines that couldn't be read.
    pub rejected: u64,
}

impl Mounts {
    /// The mounts as this process sees them: the namespace in which its paths mean something.
    ///
    /// # Errors
    /// Where the file can't be read.
    pub fn read(roots: &Roots) -> Result<Self, Fault> {
        read_file(&roots.proc("self/mountinfo")).map(|text| Self::parse(&text))
    }

    pub fn parse(text: &[u8]) -> Self {
        let mut all = Self::default();
        for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            match Mount::parse(line) {
                Some(mount) => all.mounts.push(mount),
                None => all.rejected += 1,
            }
        }
        all
    }

    /// The mount that a walk to `path` ends on. Lexical: links are the caller's to resolve.
    ///
    /// Goes down from mount to mount as the kernel's walk does, so that what lies under an
    /// over-mounted directory is not found. A mount whose parent is unknown may follow any.
    pub fn covering(&self, path: &Path) -> Option<&Mount> {
        let mut left: Vec<&Mount> =
            self.mounts.iter().filter(|mount| path.starts_with(&mount.point)).collect();
        // Stable: of two mounts on one point the later line lies on top.
        left.sort_by_key(|mount| mount.point.components().count());
        let ids: Vec<u64> = left.iter().map(|mount| mount.id).collect();
        let orphan = |mount: &Mount| mount.parent == mount.id || !ids.contains(&mount.parent);
        let mut at: Option<&Mount> = None;
        for _ in 0..left.len() {
            let next = left
                .iter()
                .position(|mount| orphan(mount) || at.is_some_and(|at| mount.parent == at.id));
            let Some(next) = next else { break };
            at = Some(left.remove(next));
        }
        at
    }

    /// The mount of the file system with this number that covers `path` best, or any of it.
    pub fn of_device(&self, number: DeviceNumber, path: &Path) -> Option<&Mount> {
        let rank = |mount: &&Mount| match path.starts_with(&mount.point) {
            true => 1 + mount.point.components().count(),
            false => 0,
        };
        self.mounts.iter().filter(|mount| mount.device == number).max_by_key(rank)
    }
}

/// What a file system type says by itself, where no device number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Network,
    Memory,
    Other,
}

pub(super) fn kind_of(filesystem: &str) -> Kind {
    match filesystem.strip_prefix("fuse.").unwrap_or(filesystem) {
        "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "ceph" | "ceph-fuse" | "glusterfs"
        | "sshfs" | "s3fs" | "rclone" | "lustre" | "beegfs" | "gpfs" | "orangefs" | "pvfs2"
        | "ocfs2" | "gfs2" | "afs" | "coda" | "ncpfs" | "9p" | "virtiofs" | "vboxsf"
        | "juicefs" | "moosefs" | "mfs" | "lizardfs" | "seaweedfs" | "gcsfuse" | "davfs"
        | "davfs2" | "curlftpfs" => Kind::Network,
        "tmpfs" | "ramfs" | "devtmpfs" | "rootfs" => Kind::Memory,
        _ => Kind::Other,
    }
}

pub(super) fn copies_on_write(filesystem: &str) -> bool {
    matches!(filesystem, "btrfs" | "zfs" | "bcachefs" | "nilfs2")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    macro_rules! case {
        ($name:literal) => {
            include_bytes!(concat!("../../tests/fixtures/cases/", $name)).as_slice()
        };
    }

    fn on<'a>(mounts: &'a Mounts, path: &str) -> &'a Mount {
        mounts.covering(Path::new(path)).unwrap()
    }

    #[test]
    fn case_069_an_empty_source_shifts_nothing() {
        let mounts = Mounts::parse(case!("069-mountinfo-empty-source.input"));
        let tmp = on(&mounts, "/tmp/bb/x");
        assert_eq!((tmp.filesystem.as_str(), tmp.source.as_str()), ("tmpfs", ""));
        assert_eq!(tmp.options, b"rw,seclabel");
        assert_eq!(tmp.device, DeviceNumber { major: 0, minor: 66 });
        assert!(on(&mounts, "/etc").read_only);
    }

    #[test]
    fn case_070_any_number_of_optional_fields_and_dashes_in_names() {
        let mounts = Mounts::parse(case!("070-mountinfo-optional-fields-0-to-n.input"));
        assert_eq!((mounts.mounts.len(), mounts.rejected), (6, 0));
        assert_eq!(on(&mounts, "/run/snapd/ns/lxd.mnt").filesystem, "nsfs");
        assert_eq!(on(&mounts, "/mnt/stateful_partition").source, "/dev/sda1");
        let odd = on(&mounts, "/c - d/file");
        assert_eq!((odd.filesystem.as_str(), odd.source.as_str()), ("xfs", "/dev/sdb1"));
    }

    #[test]
    fn case_072_raw_blanks_of_wsl2_stay_in_the_last_field() {
        let mounts = Mounts::parse(case!("072-mountinfo-wsl2-raw-blank.input"));
        assert_eq!((mounts.mounts.len(), mounts.rejected), (3, 0));
        assert_eq!((&*mounts.mounts[1].source, &*mounts.mounts[1].filesystem), ("drvfs", "9p"));
        assert_eq!(mounts.mounts[2].source, r"C:\Program Files\Docker\Docker\resources");
        assert_eq!(on(&mounts, "/").filesystem, "ext4");
    }

    #[test]
    fn case_074_the_last_mount_on_a_point_is_what_a_path_meets() {
        let mounts = Mounts::parse(case!("074-mountinfo-overmount-duplicate-series.input"));
        let source = |path| on(&mounts, path).source.as_str();
        assert_eq!(
            ["/data", "/mnt/x", "/nfs"].map(source),
            ["/dev/sdb1", "/dev/sdd1", "192.0.2.11:/vol"]
        );
    }

    #[test]
    fn case_077_rootfs_under_the_root_is_never_met() {
        let mounts = Mounts::parse(case!("077-dev-root-and-rootfs.input"));
        assert_eq!(on(&mounts, "/srv").device, DeviceNumber { major: 179, minor: 2 });
    }

    #[test]
    fn case_081_long_lines_of_a_container_host() {
        let mounts = Mounts::parse(case!("081-mountinfo-rhcos-container.input"));
        assert_eq!((mounts.mounts.len(), mounts.rejected), (10, 0));
        assert_eq!(on(&mounts, "/host/var/lib/x").device, DeviceNumber { major: 8, minor: 4 });
        assert_eq!(on(&mounts, "/host-data").filesystem, "overlay");
        assert!(on(&mounts, "/host/boot").read_only);
    }

    #[test]
    fn case_082_broken_lines_cost_themselves_only() {
        let mounts = Mounts::parse(case!("082-mountinfo-bad-lines.input"));
        let points: Vec<_> = mounts.mounts.iter().map(|m| m.point.to_str().unwrap()).collect();
        assert_eq!((points, mounts.rejected), (vec!["/a", "/b"], 5));
    }

    #[test]
    fn what_lies_under_an_over_mounted_directory_is_not_found() {
        let mounts = Mounts::parse(
            b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /m rw - ext4 /dev/sda2 rw\n\
              3 2 8:3 / /m/a rw - ext4 /dev/sda3 rw\n4 2 8:4 / /m rw - ext4 /dev/sda4 rw\n",
        );
        assert_eq!(on(&mounts, "/m/a/x").source, "/dev/sda4");
    }

    #[test]
    fn a_device_number_finds_its_best_mount() {
        let mounts = Mounts::parse(case!("081-mountinfo-rhcos-container.input"));
        let number = DeviceNumber { major: 8, minor: 4 };
        let best = |path| mounts.of_device(number, Path::new(path)).unwrap().point.clone();
        assert_eq!(best("/host/var/x"), Path::new("/host/var"));
        assert!(mounts.of_device(DeviceNumber { major: 9, minor: 9 }, Path::new("/")).is_none());
    }

    #[test]
    fn names_come_back_as_they_were() {
        assert_eq!(unescape(br"a\040b\011c\012d\134e\043f\077\04"), b"a b\tc\nd\\e#f\\077\\04");
    }

    proptest! {
        #[test]
        fn any_bytes_are_mounts_or_rejected(text in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mounts = Mounts::parse(&text);
            let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count();
            prop_assert_eq!(mounts.mounts.len() + mounts.rejected as usize, lines);
            let _ = mounts.covering(Path::new("/srv/data"));
        }

        #[test]
        fn a_spoilt_file_still_answers(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = case!("081-mountinfo-rhcos-container.input").to_vec();
            let at = at.index(text.len());
            text[at] = byte;
            let mounts = Mounts::parse(&text);
            prop_assert!(mounts.mounts.len() >= 8);
            prop_assert!(mounts.covering(Path::new("/host/var/x")).is_some());
        }
    }
}
