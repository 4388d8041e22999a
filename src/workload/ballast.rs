//! The ballast file: laid out once with unique blocks, checked, reused, given back.
//!
//! It is whole when its trailer says so, and the trailer comes after the data is on the disk; where
//! unnamed files are to be had it has no name before that. So a kill at any moment leaves at most
//! the one declared file, and half a file is never taken for a whole one.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{self, Errno};

use super::file::Handle;
use super::ground::Held;
use super::layout::{TRAILER_BYTES, is_filled, read_trailer, rounded, write_whole};
use super::own::{existing_directory, find, is_own, own_directory, remove, sweep, write_tag};
use super::{Halt, Watch};
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Bytes;
use crate::host::sys;

pub use super::layout::Layout;
pub use super::own::{DIRECTORY, NAME};

/// Name that an unnamed file has for an instant where file systems know none.
const UNNAMED: &str = ".loadline-unnamed";

/// A file that was written whole: no hole and no unwritten extent, as far as the file system tells.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) file: Handle,
    pub(super) name: String,
    pub(super) bytes: Bytes,
}

/// Lays the ballast file out, unless it is there, whole and of this size. Returns bytes written.
///
/// # Errors
/// `Skip::Full` where space or quota is short, `Skip::Stopped` when asked to stop (and nothing is
/// left then), `Refused` where somebody else's file is in its place.
pub fn lay_out(held: &Held, layout: &Layout, watch: &dyn Watch) -> Result<Bytes, Halt> {
    let size = layout.size()?;
    if let Some(dir) = existing_directory(held)?
        && let Some(found) = find(held, &dir, OFlags::RDONLY)?
    {
        if found.whole(held)? == Some(size) && is_filled(&found.file, size) {
            return Ok(Bytes(0));
        }
        remove(held, &dir, NAME)?;
    }
    let room = held.has_room(Bytes(size + TRAILER_BYTES), layout.reserve);
    let laid_out = room.and_then(|()| lay_out_anew(held, layout, watch));
    if laid_out.is_err() {
        // The fault that came first is the one to tell.
        let _ = sweep(held);
    }
    laid_out.map(|()| Bytes(size + TRAILER_BYTES))
}

fn lay_out_anew(held: &Held, layout: &Layout, watch: &dyn Watch) -> Result<(), Halt> {
    let dir = own_directory(held, true)?;
    write_tag(held, &dir)?;
    let place = format!("{DIRECTORY}/{NAME}");
    let name = held.path(&place);
    let fault = |errno| held.fault(&place, errno);
    if let Some(mut file) = unnamed_in(&dir) {
        write_whole(&mut file, &name, layout, watch)?;
        if link(&file, &dir).is_ok() {
            return Ok(fs::fsync(&dir).map_err(fault)?);
        }
    }
    let mut file = Handle::create(dir.as_fd(), NAME).map_err(fault)?;
    if let Err(halt) = write_whole(&mut file, &name, layout, watch) {
        remove(held, &dir, NAME)?;
        return Err(halt);
    }
    fs::fsync(&dir).map_err(fault)?;
    match fs::fstat(&file.fd).map_err(fault)?.st_nlink {
        0 => Err(Fault::new(FaultKind::Missing, format!("{name}: removed meanwhile")).into()),
        _ => Ok(()),
    }
}

/// The ballast file for a run; for reading only where the run doesn't write.
pub(super) fn open(held: &Held, bytes: Bytes, writes: bool) -> Result<Whole, Halt> {
    let name = format!("{DIRECTORY}/{NAME}");
    let size = rounded(bytes);
    let missing = || {
        let text = format!("{}: no whole ballast file of {bytes}", held.path(&name));
        Fault::new(FaultKind::Missing, text)
    };
    let dir = own_directory(held, false)?;
    let access = if writes { OFlags::RDWR } else { OFlags::RDONLY };
    let found = find(held, &dir, access)?.ok_or_else(missing)?;
    if found.whole(held)? != Some(size) || size == 0 || !is_filled(&found.file, size) {
        return Err(missing().into());
    }
    Ok(Whole { file: found.file, name: held.path(&name), bytes: Bytes(size) })
}

/// A file without a name, laid out; also says how many bytes that took.
pub(super) fn unnamed(
    held: &Held,
    layout: &Layout,
    watch: &dyn Watch,
) -> Result<(Whole, Bytes), Halt> {
    let size = layout.size()?;
    held.has_room(Bytes(size + TRAILER_BYTES), layout.reserve)?;
    let name = held.path("(unnamed file)");
    let mut file = match Handle::open(held.dir(), ".", OFlags::TMPFILE | OFlags::RDWR) {
        Ok(file) => file,
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            named_for_an_instant(held)?
        }
        Err(errno) => return Err(held.fault("", errno).into()),
    };
    write_whole(&mut file, &name, layout, watch)?;
    Ok((Whole { file, name, bytes: Bytes(size) }, Bytes(size + TRAILER_BYTES)))
}

/// Punches, discards and removes the ballast file and its directory. Returns bytes freed.
///
/// # Errors
/// `Refused` where the file is somebody else's: nothing is removed then.
pub fn give_back(held: &Held) -> Result<Bytes, Halt> {
    let Some(dir) = existing_directory(held)? else { return Ok(Bytes(0)) };
    let mut freed = 0;
    if let Some(found) = find(held, &dir, OFlags::RDWR)? {
        let stat = fs::fstat(&found.file.fd).map_err(|errno| held.fault(DIRECTORY, errno))?;
        freed = (stat.st_blocks as u64).saturating_mul(512);
        punch(&found.file, (stat.st_size as u64).max(1));
        remove(held, &dir, NAME)?;
    }
    sweep(held)?;
    Ok(Bytes(freed))
}

/// Punched before it is removed: a stuck worker that still has the file open would hold the space.
/// What a thin or flash device keeps of it is discarded, where that is allowed. All best effort.
fn punch(file: &Handle, length: u64) {
    let extents = sys::extents(file.as_fd(), length);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // Blocks are free for others, and for a discard, once the journal has said so.
    let free = fs::fallocate(&file.fd, punch, 0, length).and_then(|()| fs::fsync(&file.fd));
    if free.is_err() {
        return;
    }
    for extent in extents.ok().flatten().into_iter().flatten() {
        if sys::discard_free(file.as_fd(), extent.physical, extent.length).is_err() {
            return;
        }
    }
}

/// Size of the whole ballast file in a directory; `None` where there is none. Takes no lock.
pub fn size(directory: &Path) -> Option<Bytes> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = fs::open(directory.join(DIRECTORY), flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let file = Handle::open(dir.as_fd(), NAME, flags | OFlags::NONBLOCK).ok()?;
    is_own(&fs::fstat(&file.fd).ok()?, FileType::RegularFile)
        .then(|| read_trailer(&file).ok().flatten())?
        .filter(|size| is_filled(&file, *size))
        .map(Bytes)
}

/// A file without a name in `dir`, where the file system has such.
fn unnamed_in(dir: &OwnedFd) -> Option<Handle> {
    Handle::open(dir.as_fd(), ".", OFlags::TMPFILE | OFlags::RDWR).ok()
}

/// Gives an unnamed file its name: through /proc, else by the descriptor (that needs Linux 6.10 or
/// CAP_DAC_READ_SEARCH).
fn link(file: &Handle, dir: &OwnedFd) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.fd.as_raw_fd());
    fs::linkat(fs::CWD, path, dir, NAME, AtFlags::SYMLINK_FOLLOW)
        .or_else(|_| fs::linkat(&file.fd, "", dir, NAME, AtFlags::EMPTY_PATH))
}

/// Created under one fixed name and unlinked at once; what a kill in between left is taken away.
fn named_for_an_instant(held: &Held) -> Result<Handle, Fault> {
    let fault = |errno| held.fault(UNNAMED, errno);
    let left_over = fs::statat(held.dir(), UNNAMED, AtFlags::SYMLINK_NOFOLLOW);
    if left_over.is_ok_and(|stat| is_own(&stat, FileType::RegularFile)) {
        fs::unlinkat(held.dir(), UNNAMED, AtFlags::empty()).map_err(fault)?;
    }
    let file = Handle::create(held.dir(), UNNAMED).map_err(fault)?;
    fs::unlinkat(held.dir(), UNNAMED, AtFlags::empty()).map_err(fault)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::own::TAG;
    use super::*;
    use crate::base::units::MIB;
    use crate::model::job::{Place, Target};
    use crate::model::outcome::Skip;
    use crate::workload::ground::hold;
    use crate::workload::testing::{Ears, disk_directory};

    const LAYOUT: Layout = Layout { bytes: Bytes(2 * MIB), reserve: Bytes(0), seed: 5 };

    fn held() -> (tempfile::TempDir, Held) {
        let dir = disk_directory();
        let place = Place::Directory(dir.path().to_path_buf());
        let held = hold(&Target { name: "t".into(), place }).unwrap();
        (dir, held)
    }

    fn names(dir: &Path) -> Vec<String> {
        let all = std::fs::read_dir(dir).unwrap();
        let mut all: Vec<_> = all.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn the_file_is_laid_out_once_reused_and_given_back() {
        let (dir, held) = held();
        assert_eq!(size(dir.path()), None);
        let written = lay_out(&held, &LAYOUT, &Ears::default()).unwrap();
        assert_eq!(written, Bytes(2 * MIB + TRAILER_BYTES));
        assert_eq!(size(dir.path()), Some(Bytes(2 * MIB)));
        assert_eq!(names(&dir.path().join(DIRECTORY)), [TAG, NAME]);
        assert_eq!(lay_out(&held, &LAYOUT, &Ears::default()), Ok(Bytes(0)), "nothing to do");
        assert_eq!(open(&held, Bytes(2 * MIB), true).unwrap().bytes, Bytes(2 * MIB));
        assert!(give_back(&held).unwrap().0 >= 2 * MIB);
        assert_eq!(names(dir.path()), [] as [&str; 0]);
        assert_eq!(give_back(&held), Ok(Bytes(0)));
    }

    #[test]
    fn another_size_and_half_a_file_are_laid_out_anew() {
        let (dir, held) = held();
        lay_out(&held, &LAYOUT, &Ears::default()).unwrap();
        let larger = Layout { bytes: Bytes(3 * MIB), ..LAYOUT };
        assert!(lay_out(&held, &larger, &Ears::default()).unwrap().0 > 0);
        assert_eq!(size(dir.path()), Some(Bytes(3 * MIB)));
        // As a kill leaves it where there are no unnamed files.
        let half = std::fs::File::options()
            .write(true)
            .open(dir.path().join(DIRECTORY).join(NAME))
            .unwrap();
        half.set_len(MIB).unwrap();
        assert_eq!(size(dir.path()), None);
        let Err(Halt::Failed(fault)) = open(&held, Bytes(3 * MIB), false) else {
            panic!("half a file was opened")
        };
        assert_eq!(fault.kind, FaultKind::Missing);
        assert!(lay_out(&held, &larger, &Ears::default()).unwrap().0 > 0);
        assert_eq!(size(dir.path()), Some(Bytes(3 * MIB)));
    }

    #[test]
    fn what_isnt_ours_is_left_alone() {
        let (dir, held) = held();
        let own = dir.path().join(DIRECTORY);
        std::fs::create_dir(&own).unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let refused = |result: Result<Bytes, Halt>| match result {
            Err(Halt::Failed(fault)) => assert_eq!(fault.kind, FaultKind::Refused, "{fault}"),
            other => panic!("{other:?}"),
        };
        symlink(&victim, own.join(NAME)).unwrap();
        refused(lay_out(&held, &LAYOUT, &Ears::default()));
        refused(give_back(&held));
        std::fs::remove_file(own.join(NAME)).unwrap();
        std::fs::hard_link(&victim, own.join(NAME)).unwrap();
        refused(lay_out(&held, &LAYOUT, &Ears::default()));
        refused(give_back(&held));
        assert_eq!(std::fs::metadata(&victim).unwrap().len(), 8);
        std::fs::remove_file(own.join(NAME)).unwrap();
        std::fs::remove_dir(&own).unwrap();
        symlink("/tmp", &own).unwrap();
        refused(lay_out(&held, &LAYOUT, &Ears::default()));
    }

    #[test]
    fn strangers_in_the_directory_survive_giving_back() {
        let (dir, held) = held();
        lay_out(&held, &LAYOUT, &Ears::default()).unwrap();
        std::fs::write(dir.path().join(DIRECTORY).join("job1.0.0"), "x").unwrap();
        give_back(&held).unwrap();
        assert_eq!(names(&dir.path().join(DIRECTORY)), ["job1.0.0"]);
    }

    #[test]
    fn the_reserve_is_kept_and_a_stop_leaves_nothing_half() {
        let (dir, held) = held();
        let greedy = Layout { reserve: Bytes(u64::MAX), ..LAYOUT };
        for result in [
            lay_out(&held, &greedy, &Ears::default()).map(|_| ()),
            unnamed(&held, &greedy, &Ears::default()).map(|_| ()),
        ] {
            assert!(matches!(result, Err(Halt::Skipped(Skip::Full, _))), "{result:?}");
        }
        assert_eq!(names(dir.path()), [] as [&str; 0], "nothing is made where there is no room");
        let ears = Ears::default();
        ears.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(lay_out(&held, &LAYOUT, &ears), Err(Halt::stopped()));
        assert_eq!(names(dir.path()), [] as [&str; 0]);
    }

    #[test]
    fn an_unnamed_file_leaves_no_trace_even_where_it_needs_a_name_for_an_instant() {
        let (dir, held) = held();
        let (whole, written) = unnamed(&held, &LAYOUT, &Ears::default()).unwrap();
        assert_eq!((whole.bytes, written.0), (Bytes(2 * MIB), 2 * MIB + TRAILER_BYTES));
        assert_eq!(names(dir.path()), [] as [&str; 0]);
        std::fs::write(dir.path().join(UNNAMED), "left by a kill").unwrap();
        let file = named_for_an_instant(&held).unwrap();
        assert_eq!(names(dir.path()), [] as [&str; 0]);
        assert_eq!(fs::fstat(&file.fd).unwrap().st_nlink, 0);
    }
}
