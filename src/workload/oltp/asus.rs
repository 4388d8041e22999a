//! The storage units as files: parts of a run's region, or files that somebody named.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::io::{self, Errno};

use super::space::{Sizes, Unit};
use super::streams::BLOCKS_MAX;
use crate::base::clock::monotonic;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Bytes, Seconds};
use crate::model::job::{EngineKind, Profile, Run, What};
use crate::model::oltp::{BLOCK_BYTES, Oltp};
use crate::model::outcome::Skip;
use crate::workload::ballast::Whole;
use crate::workload::engine::{self, Buffer, Chosen, Engine, Needs};
use crate::workload::file::Handle;
use crate::workload::ground::{Ground, Held};
use crate::workload::layout::{is_filled, write_blocks};
use crate::workload::{Halt, Watch};

/// Most operations in flight; where threads do it, one for each.
const SLOTS: usize = 512;
const SLOTS_OF_THREADS: usize = 64;
/// On a file that holds nothing but what this workload wrote: when it was last written.
const MARK: &str = "user.loadline.asu";
/// A file that is zero in so many places, and where its holes end, holds nothing.
const LOOKS: u64 = 1024;

/// The three storage units, open and written whole.
#[derive(Debug)]
pub struct Asus {
    grounds: Vec<Ground>,
    pub(super) units: [Unit; 3],
    pub sizes: Sizes,
    /// The files are somebody's, and stay.
    named: bool,
    /// Bytes written to lay files out.
    pub laid_out: Bytes,
}

impl Asus {
    /// Opens the units of a run on a held target; what was never written is laid out first.
    ///
    /// # Errors
    /// `Refused` for what is no plain file, or holds data of somebody; `Skip::Full` and
    /// `Skip::Locked` as for any target.
    pub fn open(held: &Held, run: &Run, oltp: &Oltp, watch: &dyn Watch) -> Result<Self, Halt> {
        if oltp.has_files() {
            return Self::on_files(run, oltp, watch);
        }
        let ground = Ground::open(held, run, watch)?;
        let sizes = Sizes::within(ground.bytes)?;
        let [first, second, _] = sizes.0;
        let unit = |from: u64, each: u64| Unit { file: 0, from, each };
        let units = [unit(0, first), unit(first, second), unit(first + second, sizes.0[2])];
        let laid_out = ground.laid_out;
        Ok(Self { grounds: vec![ground], units, sizes, named: false, laid_out })
    }

    fn on_files(run: &Run, oltp: &Oltp, watch: &dyn Watch) -> Result<Self, Halt> {
        let mut files = Vec::new();
        let mut units = [(); 3].map(|()| Unit { file: 0, from: 0, each: 0 });
        let mut given = [0; 3];
        for (index, paths) in oltp.asus.iter().enumerate() {
            let first = files.len();
            for path in paths {
                files.push(Named::open(path)?);
            }
            // As large as the smallest of its files, each.
            let smallest = files[first..].iter().map(|file| file.blocks).min().unwrap_or(0);
            if smallest < BLOCKS_MAX {
                let text = format!("asu{}: a file is empty, or there is none", index + 1);
                return Err(Fault::new(FaultKind::Unsupported, text).into());
            }
            units[index] = Unit { file: first, from: 0, each: smallest };
            given[index] = smallest.saturating_mul(paths.len() as u64);
        }
        let sizes = Sizes::common(given)?;
        let (mut grounds, mut laid_out) = (Vec::new(), 0_u64);
        let used = |index: usize| {
            let unit = units.iter().rposition(|unit| unit.file <= index).unwrap_or(0);
            let before = (index - units[unit].file) as u64 * units[unit].each;
            let left = sizes.0[unit].saturating_sub(before);
            left.min(units[unit].each)
        };
        for (index, file) in files.iter_mut().enumerate() {
            file.check_spare(oltp.overwrite, used(index))?;
        }
        for (index, file) in files.into_iter().enumerate() {
            let bytes = Bytes(used(index) * BLOCK_BYTES);
            let (ground, written) = file.prepare(bytes, run, watch)?;
            laid_out = laid_out.saturating_add(written.0);
            grounds.push(ground);
        }
        Ok(Self { grounds, units, sizes, named: true, laid_out: Bytes(laid_out) })
    }

    /// Picks one engine for all files, on the first; says what was opened.
    pub fn choose_engine(
        &mut self,
        profile: &Profile,
        forced: Option<EngineKind>,
        watch: &dyn Watch,
    ) -> Result<Chosen, Halt> {
        let profile = Profile {
            block: Bytes(BLOCK_BYTES),
            depth: SLOTS_OF_THREADS as u32,
            jobs: 1,
            ..profile.clone()
        };
        let mut chosen: Option<Chosen> = None;
        for ground in &mut self.grounds {
            let kind = chosen.as_ref().map_or(forced, |chosen| Some(chosen.kind));
            let this = ground.choose_engine(&profile, kind, watch)?;
            chosen.get_or_insert(this);
        }
        chosen.ok_or_else(|| Fault::new(FaultKind::Internal, "no storage units").into())
    }

    /// The engine that was chosen, on all files, and its slots.
    pub(super) fn engine(&self, chosen: &Chosen) -> Result<(Box<dyn Engine>, usize), Fault> {
        let files: Vec<BorrowedFd<'_>> = self.grounds.iter().map(|g| g.file.as_fd()).collect();
        let align = self.grounds.iter().map(|g| g.file.alignment().memory).max();
        let Some((first, others)) = files.split_first() else {
            return Err(Fault::new(FaultKind::Internal, "no storage units"));
        };
        let needs = |slots| Needs {
            file: *first,
            others,
            slots,
            block: (BLOCKS_MAX * BLOCK_BYTES) as usize,
            align: align.unwrap_or(1),
            sync: false,
        };
        let slots = if chosen.kind == EngineKind::Threads { SLOTS_OF_THREADS } else { SLOTS };
        match engine::reopen(&needs(slots), chosen) {
            Ok(engine) => Ok((engine, slots)),
            // The host has no room for so many.
            Err(_) => Ok((engine::reopen(&needs(SLOTS_OF_THREADS), chosen)?, SLOTS_OF_THREADS)),
        }
    }

    /// Makes what was written last; answers how long that took.
    pub fn flush(&self, watch: &dyn Watch) -> Result<Seconds, Fault> {
        let before = monotonic();
        for ground in &self.grounds {
            fs::fdatasync(&ground.file.fd).map_err(|errno| {
                Fault::os(format_args!("{}: final flush", ground.name), &errno.into())
            })?;
        }
        let seconds = Seconds::from(monotonic().saturating_sub(before));
        watch.event(What::Flush { seconds });
        Ok(seconds)
    }

    /// Says on each file that somebody named that nobody else wrote to it, once all is written.
    pub fn mark(&self) {
        if self.named {
            self.grounds.iter().for_each(|ground| mark(&ground.file));
        }
    }

    /// Of the first file, for faults.
    pub(super) fn name(&self) -> &str {
        self.grounds.first().map_or("", |ground| &ground.name)
    }

    pub fn direct(&self) -> bool {
        self.grounds.iter().all(Ground::direct)
    }

    pub fn prefilled(&self) -> Option<bool> {
        self.grounds.iter().all(|ground| ground.prefilled == Some(true)).then_some(true)
    }
}

impl Drop for Asus {
    fn drop(&mut self) {
        // A ring that was closed holds its files for a while yet, and with them their locks.
        for ground in self.grounds.iter().filter(|_| self.named) {
            let _ = fs::flock(&ground.file.fd, FlockOperation::NonBlockingUnlock);
        }
    }
}

/// When a file was last written, as its mark says it.
fn written_at(file: &Handle) -> io::Result<String> {
    let stat = fs::fstat(&file.fd)?;
    Ok(format!("{}.{:09}", stat.st_mtime, stat.st_mtime_nsec))
}

/// Whether nobody wrote to a file since this workload did.
fn is_own(file: &Handle) -> bool {
    let mut mark = [0_u8; 64];
    let length = fs::fgetxattr(&file.fd, MARK, &mut mark).unwrap_or(0);
    let mark = mark.get(..length).unwrap_or_default();
    !mark.is_empty() && written_at(file).is_ok_and(|at| at.as_bytes() == mark)
}

/// Where there are no such attributes, the next run asks for --yes.
fn mark(file: &Handle) {
    if let Ok(at) = written_at(file) {
        let _ = fs::fsetxattr(&file.fd, MARK, at.as_bytes(), XattrFlags::empty());
    }
}

/// A file that somebody named, under lock.
struct Named {
    file: Handle,
    name: String,
    blocks: u64,
}

impl Named {
    fn open(path: &Path) -> Result<Self, Halt> {
        let name = path.display().to_string();
        let fault = |errno: Errno| Fault::os(&name, &errno.into());
        let refuse = |what: &str| Fault::new(FaultKind::Refused, format!("{name}: {what}"));
        let look = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let look = fs::open(path, look, Mode::empty()).map_err(fault)?;
        match FileType::from_raw_mode(fs::fstat(&look).map_err(fault)?.st_mode) {
            FileType::RegularFile => {}
            FileType::BlockDevice | FileType::CharacterDevice => {
                let text = "is a device: nothing is written to one. Name files, on a file system";
                return Err(refuse(text).into());
            }
            FileType::Symlink => return Err(refuse("is a link: name the file itself").into()),
            _ => return Err(refuse("is no file").into()),
        }
        let path: PathBuf = path.into();
        let (dir, base) = (path.parent().unwrap_or(Path::new("/")), path.file_name());
        let dir = fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(fault)?;
        let base = base.unwrap_or_default().to_string_lossy();
        let file = Handle::open(dir.as_fd(), &base, OFlags::RDWR).map_err(fault)?;
        let stat = fs::fstat(&file.fd).map_err(fault)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refuse("became something else meanwhile").into());
        }
        // Some file systems have no locks: there nothing is known of other users.
        let lock = fs::flock(&file.fd, FlockOperation::NonBlockingLockExclusive);
        if lock == Err(Errno::WOULDBLOCK) {
            let text = format!("{name}: is in use, or named twice");
            return Err(Halt::Skipped(Skip::Locked, text));
        }
        let blocks = u64::try_from(stat.st_size).unwrap_or(0) / BLOCK_BYTES;
        Ok(Self { file, name, blocks })
    }

    /// Whether it holds nothing that anybody could miss in its first `blocks`.
    fn check_spare(&mut self, overwrite: bool, blocks: u64) -> Result<(), Fault> {
        if overwrite || is_own(&self.file) {
            return Ok(());
        }
        let fault = |errno: Errno| Fault::os(&self.name, &errno.into());
        let mut buffer = Buffer::new(BLOCK_BYTES as usize, self.file.alignment().memory);
        for look in 0..LOOKS.min(blocks) {
            let from = look * blocks / LOOKS.min(blocks);
            let block = match fs::seek(&self.file.fd, SeekFrom::Data(from * BLOCK_BYTES)) {
                Ok(data) => data / BLOCK_BYTES,
                Err(Errno::NXIO) => return Ok(()),
                Err(_) => from,
            };
            if block >= blocks {
                return Ok(());
            }
            let bytes = buffer.bytes();
            let got = io::pread(&self.file.fd, &mut *bytes, block * BLOCK_BYTES).map_err(fault)?;
            if bytes.iter().take(got).any(|byte| *byte != 0) {
                let text = format!(
                    "{}: holds data, which would be written over: --yes does it, or name an \
                     empty file (truncate -s 1G FILE)",
                    self.name
                );
                return Err(Fault::new(FaultKind::Refused, text));
            }
        }
        Ok(())
    }

    /// Written whole, unless it is already; also says how many bytes that took.
    fn prepare(
        mut self,
        bytes: Bytes,
        run: &Run,
        watch: &dyn Watch,
    ) -> Result<(Ground, Bytes), Halt> {
        let mut written = Bytes(0);
        if bytes.0 > 0 && !(is_own(&self.file) && is_filled(&self.file, bytes.0)) {
            self.has_room(bytes, run.reserve)?;
            write_blocks(&mut self.file, &self.name, (bytes.0, run.seed), watch)?;
            self.file.drop_cache();
            mark(&self.file);
            written = bytes;
        }
        let Self { file, name, .. } = self;
        Ok((Ground::on(Whole { file, name, bytes }, written), written))
    }

    /// Whether what isn't allocated yet of it would leave the reserve.
    fn has_room(&self, bytes: Bytes, reserve: Bytes) -> Result<(), Halt> {
        let fault = |errno: Errno| Fault::os(&self.name, &errno.into());
        let vfs = fs::fstatvfs(&self.file.fd).map_err(fault)?;
        let stat = fs::fstat(&self.file.fd).map_err(fault)?;
        let free = Bytes(vfs.f_bavail.saturating_mul(vfs.f_frsize));
        let missing = Bytes(bytes.0.saturating_sub((stat.st_blocks as u64).saturating_mul(512)));
        if missing.0 > 0 && free.0 < missing.0.saturating_add(reserve.0) {
            let name = &self.name;
            let text = format!("{name}: {free} free, needed {missing} and a reserve of {reserve}");
            return Err(Halt::Skipped(Skip::Full, text));
        }
        Ok(())
    }
}
