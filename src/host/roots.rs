//! Where /proc, /sys and / are, and bounded, looping reads of kernel files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use crate::base::fault::Fault;

/// Roots of everything that is read of the host. Tests and containers move them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub procfs: PathBuf,
    pub sysfs: PathBuf,
    /// Prefix of mount points, taken off what people see.
    pub rootfs: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { procfs: "/proc".into(), sysfs: "/sys".into(), rootfs: "/".into() }
    }
}

impl Roots {
    pub fn proc(&self, relative: &str) -> PathBuf {
        self.procfs.join(relative)
    }

    pub fn sys(&self, relative: &str) -> PathBuf {
        self.sysfs.join(relative)
    }
}

/// No kernel file that is read here is longer; a longer one is cut at a line's end.
pub const FILE_BYTES_MAX: usize = 8 << 20;
/// One attribute of sysfs.
const ATTRIBUTE_BYTES_MAX: usize = 4096;
const FIRST_BUFFER: usize = 16 << 10;

/// A kernel file that stays open and is read again each tick.
///
/// A seq_file answers at most a page a read (fs/seq_file.c), so reads loop at contiguous offsets
/// until nothing comes. A file that can't be opened yet is tried again on each read.
#[derive(Debug)]
pub struct KeptFile {
    path: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
}

impl KeptFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, buffer: Vec::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file as it is now.
    ///
    /// # Errors
    /// The kind follows errno; after an error the file is opened anew on the next read
    /// (a kept sysfs file answers ENODEV for ever after its device is gone).
    pub fn read(&mut self) -> Result<&[u8], Fault> {
        let result = self.fill();
        match result {
            Ok(length) => Ok(&self.buffer[..length]),
            Err(error) => {
                self.file = None;
                Err(Fault::os(self.path.display(), &error))
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(File::open(&self.path)?),
        };
        if self.buffer.is_empty() {
            self.buffer.resize(FIRST_BUFFER, 0);
        }
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                if length >= FILE_BYTES_MAX {
                    return Ok(last_line_end(&self.buffer));
                }
                self.buffer.resize((length * 2).min(FILE_BYTES_MAX), 0);
            }
            match file.read_at(&mut self.buffer[length..], length as u64) {
                Ok(0) => return Ok(length),
                Ok(n) => length += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn last_line_end(buffer: &[u8]) -> usize {
    buffer.iter().rposition(|b| *b == b'\n').map_or(buffer.len(), |at| at + 1)
}

/// The lines of a kernel file that have an end, and how many (one at most) have none: a reading that
/// was cut off may end within a number, which would then be another one.
pub fn whole_lines(text: &[u8]) -> (&[u8], u64) {
    let end = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    (&text[..end], u64::from(end < text.len()))
}

/// A small attribute that is read every second: its file stays open. After its device is gone an
/// open sysfs file answers ENODEV for ever (fs/kernfs), so it is then opened anew.
#[derive(Debug)]
pub struct KeptNumber {
    path: PathBuf,
    file: Option<File>,
}

impl KeptNumber {
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// The number as it is now; `None` where there is none.
    pub fn read(&mut self) -> Option<u64> {
        let kept = self.file.as_ref().and_then(number_in);
        if kept.is_some() {
            return kept;
        }
        self.file = File::open(&self.path).ok();
        self.file.as_ref().and_then(number_in)
    }
}

fn number_in(file: &File) -> Option<u64> {
    let mut buffer = [0; 32];
    let length = file.read_at(&mut buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..length]).ok()?.trim().parse().ok()
}

/// Where a name in a class directory of sysfs leads: one link, resolved by its text, since its target
/// holds no further link (canonicalize would ask for each directory on the way). `None` where nothing
/// is.
pub fn resolved(path: &Path) -> Option<PathBuf> {
    let target = match std::fs::read_link(path) {
        Ok(target) => target,
        // EINVAL: no link, but it is there.
        Err(error) => return (error.kind() == io::ErrorKind::InvalidInput).then(|| path.into()),
    };
    let mut at = path.parent()?.to_path_buf();
    for part in target.components() {
        match part {
            Component::ParentDir => drop(at.pop()),
            Component::CurDir => {}
            part => at.push(part),
        }
    }
    Some(at)
}

/// A whole file, once; at most [`FILE_BYTES_MAX`].
pub fn read_file(path: &Path) -> Result<Vec<u8>, Fault> {
    let mut kept = KeptFile::new(path.to_path_buf());
    let length = kept.read()?.len();
    kept.buffer.truncate(length);
    Ok(kept.buffer)
}

/// One sysfs attribute, trimmed; `None` where it is absent, refused or not text: attributes come and
/// go with drivers (EINVAL, EOPNOTSUPP, ENODEV, EIO are all normal).
pub fn attribute(path: &Path) -> Option<String> {
    asked(path).ok().flatten()
}

/// As [`attribute`], telling apart what can't be asked now from what has no answer.
///
/// # Errors
/// Where the process may not ask or has no descriptor left (EMFILE): that says nothing of the device,
/// and what was known of it still holds.
pub fn asked(path: &Path) -> Result<Option<String>, Fault> {
    match read_attribute(path) {
        Ok(text) => Ok(text),
        Err(error) if is_an_answer(&error) => Ok(None),
        Err(error) => Err(Fault::os(path.display(), &error)),
    }
}

fn read_attribute(path: &Path) -> io::Result<Option<String>> {
    let file = File::open(path)?;
    let mut buffer = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = file.read_at(&mut buffer, 0)?;
    buffer.truncate(length);
    let blank = |c: char| c.is_whitespace() || c == '\0';
    Ok(String::from_utf8(buffer).ok().map(|text| text.trim_matches(blank).to_owned()))
}

/// How drivers say that they have no such thing, or none now.
fn is_an_answer(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::NOENT
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::INVAL
                | Errno::OPNOTSUPP
                | Errno::NODEV
                | Errno::NXIO
                | Errno::IO
                | Errno::BUSY
                | Errno::AGAIN
                | Errno::NODATA
        )
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_longer_than_a_page_comes_whole_each_time() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for i in 0..20_000 {
            writeln!(file, "line {i}").unwrap();
        }
        let mut kept = KeptFile::new(file.path().to_path_buf());
        let first = kept.read().unwrap().to_vec();
        assert!(first.ends_with(b"line 19999\n"));
        assert_eq!(kept.read().unwrap(), first);
    }

    #[test]
    fn the_kernels_own_seq_files_come_whole() {
        let mut kept = KeptFile::new("/proc/kallsyms".into());
        let Ok(text) = kept.read() else { return };
        assert!(text.len() > 4096 && text.ends_with(b"\n"));
    }

    #[test]
    fn a_file_that_appears_later_is_read_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("late");
        let mut kept = KeptFile::new(path.clone());
        assert_eq!(kept.read().unwrap_err().kind, crate::base::fault::FaultKind::Missing);
        std::fs::write(&path, "now\n").unwrap();
        assert_eq!(kept.read().unwrap(), b"now\n");
    }

    #[test]
    fn case_088_what_cannot_be_asked_is_not_taken_for_an_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("speed");
        assert_eq!(asked(&path), Ok(None));
        // A link to itself fails on the way, as a spent limit of open files does.
        std::os::unix::fs::symlink("speed", &path).unwrap();
        let fault = asked(&path).unwrap_err();
        assert!(fault.text.contains("/speed: "), "{fault}");
        assert_eq!(attribute(&path), None);
        for errno in [rustix::io::Errno::MFILE, rustix::io::Errno::ACCESS] {
            assert!(!is_an_answer(&errno.into()));
        }
    }

    #[test]
    fn a_line_without_an_end_is_left_out_and_counted() {
        assert_eq!(whole_lines(b"a 1\nb 2"), (b"a 1\n".as_slice(), 1));
        assert_eq!(whole_lines(b"a 1\n"), (b"a 1\n".as_slice(), 0));
        assert_eq!(whole_lines(b""), (b"".as_slice(), 0));
    }

    #[test]
    fn a_missing_attribute_is_absent() {
        assert_eq!(attribute(Path::new("/sys/no/such/thing")), None);
        assert_eq!(attribute(Path::new("/sys")), None);
    }

    #[test]
    fn a_link_of_sysfs_leads_to_its_device_by_its_text() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("devices/pci0/net/eth0")).unwrap();
        std::fs::create_dir_all(dir.path().join("class/net")).unwrap();
        let class = dir.path().join("class/net");
        let target = dir.path().join("devices/pci0/net/eth0");
        std::os::unix::fs::symlink("../../devices/pci0/net/eth0", class.join("eth0")).unwrap();
        std::os::unix::fs::symlink(&target, class.join("eth1")).unwrap();
        std::fs::create_dir(class.join("eth2")).unwrap();
        assert_eq!(resolved(&class.join("eth0")), Some(target.clone()));
        assert_eq!(resolved(&class.join("eth1")), Some(target));
        assert_eq!(resolved(&class.join("eth2")), Some(class.join("eth2")));
        assert_eq!(resolved(&class.join("eth3")), None);
    }

    #[test]
    fn a_kept_number_follows_its_file() {
        let host = crate::host::fixture::Host::new();
        let path = host.path().join("diskseq");
        let mut kept = KeptNumber::new(path.clone());
        assert_eq!(kept.read(), None);
        std::fs::write(&path, "9\n").unwrap();
        assert_eq!(kept.read(), Some(9));
        std::fs::write(&path, "10\n").unwrap();
        assert_eq!(kept.read(), Some(10));
    }
}
