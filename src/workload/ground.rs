//! A target held by this process, and the region of it that a run works on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::ballast::{self, Layout};
use super::engine::{self, Buffer, Chosen, Needs};
use super::file::{Handle, LOGICAL};
use super::{Halt, Watch};
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Bytes;
use crate::model::job::{EngineKind, Place, Profile, Region, Run, Target, What};
use crate::model::outcome::Skip;

/// A target under lock. The lock ends with the process that took it, stuck or not.
#[derive(Debug)]
pub struct Held {
    /// The directory, or the device opened for reading.
    fd: OwnedFd,
    place: Place,
}

/// Opens a target and locks it against every other loadline.
///
/// # Errors
/// `Skip::Locked` where another holds it; `Refused` where the place is not what it was declared
/// to be (a device given as a directory above all: nothing ever writes to one).
pub fn hold(target: &Target) -> Result<Held, Halt> {
    let path = target.place.path();
    let fault = |errno: Errno| Fault::os(path.display(), &errno.into());
    let look = fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(fault)?;
    let is = FileType::from_raw_mode(fs::fstat(&look).map_err(fault)?.st_mode);
    let refuse = |what: &str| {
        Err(Fault::new(FaultKind::Refused, format!("{}: {what}", path.display())).into())
    };
    let flags = match (&target.place, is) {
        (Place::Directory(_), FileType::Directory) => OFlags::DIRECTORY,
        (Place::Directory(_), FileType::BlockDevice) => {
            return refuse("is a block device, not a directory: nothing is written to devices");
        }
        (Place::Directory(_), _) => return refuse("is no directory"),
        (Place::Device(_), FileType::BlockDevice) => OFlags::empty(),
        (Place::Device(_), _) => return refuse("is no block device"),
        (Place::Cluster(_), _) => return refuse("is a cluster, neither directory nor device"),
    };
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = fs::open(path, flags, Mode::empty()).map_err(fault)?;
    match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Held { fd, place: target.place.clone() }),
        Err(Errno::WOULDBLOCK) => {
            let text = format!("{}: another loadline works there", path.display());
            Err(Halt::Skipped(Skip::Locked, text))
        }
        // NFS has no such lock on a directory, some file systems have none at all: there the turn,
        // of which a host has one, is what keeps probes apart.
        Err(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Ok(Held { fd, place: target.place.clone() })
        }
        Err(errno) => Err(fault(errno).into()),
    }
}

impl Held {
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Path of something in the target, for people.
    pub(super) fn path(&self, name: &str) -> String {
        self.place.path().join(name).display().to_string()
    }

    pub(super) fn fault(&self, name: &str, errno: Errno) -> Fault {
        Fault::os(self.path(name), &errno.into())
    }

    /// Whether `bytes` more would leave the reserve, and more than 1 % of inodes.
    pub(super) fn has_room(&self, bytes: Bytes, reserve: Bytes) -> Result<(), Halt> {
        let vfs = fs::fstatvfs(&self.fd).map_err(|errno| self.fault("", errno))?;
        let free = Bytes(vfs.f_bavail.saturating_mul(vfs.f_frsize));
        let full = |text: String| {
            let text = format!("{}: {text}", self.place.path().display());
            Err(Halt::Skipped(Skip::Full, text))
        };
        if free.0 < bytes.0.saturating_add(reserve.0) {
            return full(format!("{free} free, needed {bytes} and a reserve of {reserve}"));
        }
        if vfs.f_files > 0 && vfs.f_ffree <= vfs.f_files / 100 {
            return full(format!("{} of {} inodes free", vfs.f_ffree, vfs.f_files));
        }
        Ok(())
    }
}

/// An open region that legs run on.
#[derive(Debug)]
pub struct Ground {
    pub(super) file: Handle,
    /// For faults.
    pub(super) name: String,
    pub bytes: Bytes,
    /// Written now, to lay an unnamed file out.
    pub laid_out: Bytes,
    /// Every block holds unique data that was written before; `None` on raw devices.
    pub prefilled: Option<bool>,
    /// Why nothing here counts as direct, whatever was opened; `None`: it does.
    not_direct: Option<&'static str>,
}

impl Ground {
    /// Opens the region of a run on a held target; an unnamed one is laid out first.
    pub fn open(held: &Held, run: &Run, watch: &dyn Watch) -> Result<Self, Halt> {
        let writes = run.legs.iter().any(|leg| leg.writes_anything());
        let ground = match (&held.place, run.region) {
            (Place::Device(path), Region::WholeDevice) => {
                if writes {
                    let text = format!("{}: nothing is written to devices", path.display());
                    return Err(Fault::new(FaultKind::Refused, text).into());
                }
                Self::device(held)?
            }
            (Place::Directory(_), Region::Ballast(bytes)) => {
                if writes {
                    held.has_room(Bytes(0), run.reserve)?;
                }
                Self::on(ballast::open(held, bytes, writes)?, Bytes(0))
            }
            (Place::Directory(_), Region::Unnamed(bytes)) => {
                let layout = Layout { bytes, reserve: run.reserve, seed: run.seed };
                let (file, written) = ballast::unnamed(held, &layout, watch)?;
                Self::on(file, written)
            }
            (place, region) => {
                let text = format!("{}: no {region:?} there", place.path().display());
                return Err(Fault::new(FaultKind::Internal, text).into());
            }
        };
        Ok(ground)
    }

    pub(super) fn on(file: ballast::Whole, laid_out: Bytes) -> Self {
        let ballast::Whole { file, name, bytes } = file;
        let not_direct = if file.is_memory() {
            Some("it is memory, not a disk")
        } else if file.is_checksummed() {
            Some("btrfs keeps checksums of it and writes through the page cache")
        } else {
            None
        };
        Self { file, name, bytes, laid_out, prefilled: Some(true), not_direct }
    }

    fn device(held: &Held) -> Result<Self, Halt> {
        let name = held.path("");
        let name = name.trim_end_matches('/').to_owned();
        let fault = |errno: Errno| Fault::os(&name, &errno.into());
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held.fd));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        // By the descriptor that was checked: the path may mean another device by now.
        let (fd, direct) = match fs::open(path, flags, Mode::empty()) {
            Ok(fd) => (fd, true),
            Err(_) => (held.fd.try_clone().map_err(|e| Fault::os(&name, &e))?, false),
        };
        let bytes = fs::seek(&fd, fs::SeekFrom::End(0)).map_err(fault)?;
        Ok(Self {
            file: Handle { fd, direct },
            name,
            bytes: Bytes(bytes),
            laid_out: Bytes(0),
            prefilled: None,
            not_direct: None,
        })
    }

    /// Picks the engine on the real file and says what was opened. Where direct I/O is refused, or
    /// there is no disk behind it, a run goes through the page cache only when that was asked for,
    /// and every result says so.
    pub fn choose_engine(
        &mut self,
        profile: &Profile,
        forced: Option<EngineKind>,
        watch: &dyn Watch,
    ) -> Result<Chosen, Halt> {
        self.check_alignment(profile)?;
        let chosen = loop {
            match engine::choose(&self.needs(profile), forced, watch) {
                Ok((_, chosen)) => break chosen,
                Err(_) if watch.stopped() => return Err(Halt::stopped()),
                Err(fault) if fault.kind == FaultKind::Unsupported && self.file.direct => {
                    self.check_block(profile)?;
                    self.make_buffered()?;
                }
                Err(fault) => {
                    let text = format!("{}: {}", self.name, fault.text);
                    return Err(Fault::new(fault.kind, text).into());
                }
            }
        };
        if profile.direct && !self.direct() {
            return Err(self.no_direct().into());
        }
        let (engine, reason) = (chosen.kind, chosen.reason.clone());
        watch.event(What::Opened { engine, reason, direct: self.direct() });
        Ok(chosen)
    }

    fn no_direct(&self) -> Fault {
        let why = self.not_direct.unwrap_or("no direct I/O there");
        let text = format!("{}: {why} (`direct: false` runs it all the same)", self.name);
        Fault::new(FaultKind::Unsupported, text)
    }

    fn make_buffered(&mut self) -> Result<(), Fault> {
        let made = self.file.make_buffered();
        made.map(|_| ()).map_err(|errno| Fault::os(&self.name, &errno.into()))
    }

    fn check_alignment(&mut self, profile: &Profile) -> Result<(), Fault> {
        match self.file.alignment().offset.filter(|_| self.file.direct) {
            // The file takes no direct I/O at all (statx(2), STATX_DIOALIGN).
            Some(0) => self.make_buffered(),
            Some(align) if !profile.block.0.is_multiple_of(align) => {
                let (name, block, align) = (&self.name, profile.block, Bytes(align));
                let text =
                    format!("{name}: direct I/O there asks for multiples of {align}, not {block}");
                Err(Fault::new(FaultKind::Unsupported, text))
            }
            _ => Ok(()),
        }
    }

    /// Whether a read was refused for its size alone, where the kernel doesn't say what it asks for.
    fn check_block(&self, profile: &Profile) -> Result<(), Fault> {
        let page = Bytes(LOGICAL as u64);
        let alignment = self.file.alignment();
        if alignment.offset.is_some() || profile.block.0.is_multiple_of(page.0) {
            return Ok(());
        }
        let mut buffer = Buffer::new(LOGICAL, alignment.memory);
        match rustix::io::pread(&self.file.fd, buffer.bytes(), 0) {
            Ok(_) => {
                let (name, block) = (&self.name, profile.block);
                let text = format!("{name}: direct I/O there takes blocks of {page}, not {block}");
                Err(Fault::new(FaultKind::Unsupported, text))
            }
            Err(_) => Ok(()),
        }
    }

    /// The part of the region that a profile works on.
    pub(super) fn span_of(&self, profile: &Profile) -> Result<Bytes, Fault> {
        match profile.span {
            Some(span) if span > self.bytes => {
                let (name, bytes) = (&self.name, self.bytes);
                let text = format!("{name}: {bytes}, and the profile works on {span}");
                Err(Fault::new(FaultKind::Unsupported, text))
            }
            Some(span) => Ok(span),
            None => Ok(self.bytes),
        }
    }

    /// What an engine needs to know for a leg here.
    pub(super) fn needs(&self, profile: &Profile) -> Needs<'_> {
        Needs {
            file: self.file.as_fd(),
            others: &[],
            slots: profile.in_flight_max().max(1) as usize,
            block: usize::try_from(profile.block.0).unwrap_or(usize::MAX),
            align: self.file.alignment().memory,
            sync: profile.sync,
        }
    }

    #[cfg(test)]
    pub(super) fn for_test(fd: OwnedFd, bytes: Bytes) -> Self {
        let file = Handle { fd, direct: false };
        let (name, laid_out) = ("test".to_owned(), Bytes(0));
        Self { file, name, bytes, laid_out, prefilled: None, not_direct: None }
    }

    /// The page cache is out of the path, and there is a disk behind it.
    pub fn direct(&self) -> bool {
        self.file.direct && self.not_direct.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(place: Place) -> Target {
        Target { name: "t".into(), place }
    }

    fn fault_of<T: std::fmt::Debug>(result: Result<T, Halt>) -> Fault {
        match result {
            Err(Halt::Failed(fault)) => fault,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_process_at_a_time_holds_a_target() {
        let dir = tempfile::tempdir().unwrap();
        let target = target(Place::Directory(dir.path().to_path_buf()));
        let first = hold(&target).unwrap();
        let second = hold(&target).unwrap_err();
        assert!(matches!(second, Halt::Skipped(Skip::Locked, _)), "{second:?}");
        drop(first);
        hold(&target).unwrap();
    }

    #[test]
    fn only_what_was_declared_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let user_file = dir.path().join("file.img");
        std::fs::write(&user_file, "precious").unwrap();
        let device_link = dir.path().join("link-to-dev");
        std::os::unix::fs::symlink("/dev/null", &device_link).unwrap();
        for place in [
            Place::Directory(user_file.clone()),
            Place::Directory("/dev/null".into()),
            Place::Directory(device_link),
            Place::Device(user_file),
            Place::Device("/dev/null".into()),
            Place::Device(dir.path().to_path_buf()),
        ] {
            let fault = fault_of(hold(&target(place.clone())));
            assert_eq!(fault.kind, FaultKind::Refused, "{place:?}");
        }
        let gone = fault_of(hold(&target(Place::Directory(dir.path().join("gone")))));
        assert_eq!(gone.kind, FaultKind::Missing);
    }

    #[test]
    fn a_profile_keeps_to_its_span_and_none_is_longer_than_the_file() {
        use crate::model::job::Access;
        use crate::workload::pattern::tests::profile;

        let file = tempfile::tempfile().unwrap();
        let ground = Ground::for_test(file.into(), Bytes(1 << 20));
        let mut reads = profile(Access::Random, 1.0, 4096);
        assert_eq!(ground.span_of(&reads), Ok(Bytes(1 << 20)));
        reads.span = Some(Bytes(1 << 16));
        assert_eq!(ground.span_of(&reads), Ok(Bytes(1 << 16)));
        reads.span = Some(Bytes(1 << 21));
        let fault = ground.span_of(&reads).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unsupported);
        assert_eq!(fault.text, "test: 1 MiB, and the profile works on 2 MiB");
    }

    /// Any block device of this machine; only ever looked at or read.
    fn block_device() -> Option<std::path::PathBuf> {
        use std::os::unix::fs::FileTypeExt;
        let entries = std::fs::read_dir("/dev").ok()?.flatten();
        entries.map(|e| e.path()).find(|path| {
            let is = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
            is && std::fs::File::open(path).is_ok_and(|f| {
                use std::os::unix::fs::FileExt;
                f.read_exact_at(&mut [0; 4096], 0).is_ok()
            })
        })
    }

    #[test]
    fn a_device_is_no_directory_and_is_only_read() {
        let Some(path) = block_device() else {
            println!("skipped: no readable block device here");
            return;
        };
        let fault = fault_of(hold(&target(Place::Directory(path.clone()))));
        assert!(fault.text.ends_with("nothing is written to devices"), "{fault}");
        let held = hold(&target(Place::Device(path))).unwrap();
        let flags = fs::fcntl_getfl(&held.fd).unwrap();
        assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY);
        let ground = Ground::device(&held).unwrap();
        assert!(ground.bytes.0 > 0);
        let flags = fs::fcntl_getfl(&ground.file.fd).unwrap();
        assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY);
    }
}
