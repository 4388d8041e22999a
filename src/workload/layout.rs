//! Writes a file whole: every block unique, synced, its extents checked, and only then its trailer.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{self, IFlags};
use rustix::io::{self, Errno};

use super::engine::Buffer;
use super::file::{BTRFS_MAGIC, Handle};
use super::pattern::Filler;
use super::{Halt, Watch};
use crate::base::clock::monotonic;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Bytes, MIB};
use crate::host::sys;
use crate::model::job::What;

/// Behind the data: says that the file is whole, and how long.
pub(super) const TRAILER_BYTES: u64 = 4096;
const CHUNK_BYTES: u64 = MIB;
const EVENT_EVERY: Duration = Duration::from_millis(500);

/// How a file is to be laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Rounded down to whole MiB.
    pub bytes: Bytes,
    /// Space that must stay free.
    pub reserve: Bytes,
    pub seed: u64,
}

impl Layout {
    pub(super) fn size(&self) -> Result<u64, Fault> {
        match rounded(self.bytes) {
            0 => Err(Fault::new(FaultKind::Unsupported, "a ballast file under 1 MiB is no use")),
            bytes => Ok(bytes),
        }
    }
}

pub(super) fn rounded(bytes: Bytes) -> u64 {
    bytes.0 / CHUNK_BYTES * CHUNK_BYTES
}

/// Writes every block, syncs, checks the extents, and only then says so in the trailer.
pub(super) fn write_whole(
    file: &mut Handle,
    name: &str,
    layout: &Layout,
    watch: &dyn Watch,
) -> Result<(), Halt> {
    let size = layout.size()?;
    let fault = |errno: Errno| Fault::os(name, &errno.into());
    set_attributes(file);
    write_blocks(file, name, (size, layout.seed), watch)?;
    let mut trailer = Buffer::new(TRAILER_BYTES as usize, file.alignment().memory);
    write_trailer(trailer.bytes(), size);
    write_all(file, trailer.bytes(), size).map_err(fault)?;
    fs::fsync(&file.fd).map_err(fault)?;
    file.drop_cache();
    Ok(())
}

/// Writes unique data over the first `size` bytes, syncs, and checks the extents.
pub(super) fn write_blocks(
    file: &mut Handle,
    name: &str,
    (size, seed): (u64, u64),
    watch: &dyn Watch,
) -> Result<(), Halt> {
    let half = |errno: Errno, done: u64| {
        let text = format!("{name}: {errno} after {} of {}", Bytes(done), Bytes(size));
        Fault::new(Fault::os(name, &errno.into()).kind, text)
    };
    let mut filler = Filler::new(seed);
    let mut buffer = Buffer::new(CHUNK_BYTES as usize, file.alignment().memory);
    let (mut done, mut told) = (0, monotonic());
    while done < size {
        if watch.stopped() {
            return Err(Halt::stopped());
        }
        let chunk = CHUNK_BYTES.min(size - done);
        let bytes = buffer.bytes().get_mut(..chunk as usize).unwrap_or_default();
        filler.fill(bytes);
        write_all(file, bytes, done).map_err(|errno| half(errno, done))?;
        done += chunk;
        if done == size || monotonic().saturating_sub(told) >= EVENT_EVERY {
            watch.event(What::Layout { done: Bytes(done), total: Bytes(size) });
            told = monotonic();
        }
    }
    fs::fsync(&file.fd).map_err(|errno| Fault::os(name, &errno.into()))?;
    if !is_filled(file, size) {
        let text = format!("{name}: the file system keeps holes where blocks were written");
        return Err(Fault::new(FaultKind::Unsupported, text).into());
    }
    Ok(())
}

fn write_all(file: &mut Handle, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match io::pwrite(&file.fd, rest, offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) if file.make_buffered()? => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// No dump takes the file along; on btrfs, direct writes stay direct only without checksums.
/// Both are best effort: many file systems have no such flags.
fn set_attributes(file: &Handle) {
    let set = |flag: IFlags| {
        let now = fs::ioctl_getflags(&file.fd)?;
        fs::ioctl_setflags(&file.fd, now | flag)
    };
    let _ = set(IFlags::NODUMP);
    if file.magic() == Some(BTRFS_MAGIC) {
        let _ = set(IFlags::NOCOW);
    }
}

/// Whether the disk really holds each of the first `size` bytes.
pub(super) fn is_filled(file: &Handle, size: u64) -> bool {
    match sys::written_bytes(file.as_fd(), size) {
        Ok(Some(written)) => written >= size,
        // No extents to look at: allocated blocks give compression and deduplication away.
        _ => fs::fstat(&file.fd)
            .is_ok_and(|stat| (stat.st_blocks as u64).saturating_mul(512) >= size / 100 * 95),
    }
}

fn trailer_text(size: u64) -> String {
    let text = format!("loadline ballast v1 {size}");
    format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
}

fn write_trailer(block: &mut [u8], size: u64) {
    for (to, from) in block.iter_mut().zip(trailer_text(size).bytes()) {
        *to = from;
    }
}

/// Size of a whole file, by its trailer; `None`: half of one.
pub(super) fn read_trailer(file: &Handle) -> io::Result<Option<u64>> {
    let length = u64::try_from(fs::fstat(&file.fd)?.st_size).unwrap_or_default();
    let Some(size) = length.checked_sub(TRAILER_BYTES) else { return Ok(None) };
    let mut trailer = Buffer::new(TRAILER_BYTES as usize, file.alignment().memory);
    match io::pread(&file.fd, &mut *trailer.bytes(), size) {
        Ok(_) => {}
        // A length that direct I/O can't reach the end of was cut off somewhere.
        Err(Errno::INVAL) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    Ok(trailer.bytes().starts_with(trailer_text(size).as_bytes()).then_some(size))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::workload::testing::{Ears, on_disk_directory};

    const LAYOUT: Layout = Layout { bytes: Bytes(3 * MIB + 17), reserve: Bytes(0), seed: 5 };

    fn on_disk() -> Handle {
        let file = tempfile::tempfile_in(on_disk_directory()).unwrap();
        Handle { fd: file.into(), direct: false }
    }

    #[test]
    fn a_whole_file_is_filled_and_says_so() {
        let (mut file, ears) = (on_disk(), Ears::default());
        write_whole(&mut file, "x", &LAYOUT, &ears).unwrap();
        assert_eq!(read_trailer(&file), Ok(Some(3 * MIB)));
        assert!(is_filled(&file, 3 * MIB));
        let last = ears.heard.lock().unwrap().last().cloned();
        assert_eq!(last, Some(What::Layout { done: Bytes(3 * MIB), total: Bytes(3 * MIB) }));
    }

    #[test]
    fn half_a_file_is_never_whole() {
        let mut file = on_disk();
        write_whole(&mut file, "x", &LAYOUT, &Ears::default()).unwrap();
        for length in [0, 1, MIB, 3 * MIB, 3 * MIB + TRAILER_BYTES - 1, 4 * MIB] {
            fs::ftruncate(&file.fd, length).unwrap();
            assert_eq!(read_trailer(&file), Ok(None), "{length}");
        }
    }

    #[test]
    fn a_file_with_a_hole_is_not_filled() {
        let mut file = on_disk();
        write_whole(&mut file, "x", &LAYOUT, &Ears::default()).unwrap();
        let punch = fs::FallocateFlags::PUNCH_HOLE | fs::FallocateFlags::KEEP_SIZE;
        if fs::fallocate(&file.fd, punch, MIB, MIB).is_ok() {
            assert!(!is_filled(&file, 3 * MIB));
        }
    }

    #[test]
    fn every_block_of_the_file_is_another() {
        let mut file = on_disk();
        write_whole(&mut file, "x", &LAYOUT, &Ears::default()).unwrap();
        let mut bytes = vec![0; 3 * MIB as usize];
        std::fs::File::from(file.fd).read_exact_at(&mut bytes, 0).unwrap();
        let seen: std::collections::HashSet<_> = bytes.chunks(4096).collect();
        assert_eq!(seen.len(), 3 * 256);
    }

    #[test]
    fn a_stop_ends_the_layout() {
        let ears = Ears::default();
        ears.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(write_whole(&mut on_disk(), "x", &LAYOUT, &ears), Err(Halt::stopped()));
    }
}
