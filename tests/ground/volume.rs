//! Disks and file systems of a test's own, gone when dropped.

use std::path::{Path, PathBuf};
use std::process::Command;

use loadline::model::job::Device;
use tempfile::TempDir;

use crate::harness::{disk_dir, must};

/// A loop device over a sparse file.
pub struct Disk {
    /// `/dev/loop3`.
    pub device: String,
    pub backing: PathBuf,
    _dir: TempDir,
}

impl Disk {
    pub fn new(mib: u64, options: &[&str]) -> Self {
        let dir = disk_dir();
        let backing = dir.path().join("disk");
        std::fs::File::create(&backing).unwrap().set_len(mib << 20).unwrap();
        let path = backing.display().to_string();
        let fixed = ["-f", "--show", "--direct-io=on"];
        let device = must("losetup", &[&fixed, options, &[&path]].concat()).trim().to_owned();
        Self { device, backing, _dir: dir }
    }

    /// As a run is told of it.
    pub fn leaf(&self) -> Device {
        let name = self.device.trim_start_matches("/dev/").to_owned();
        let stat = Path::new("/sys/block").join(&name).join("stat");
        Device { name, stat, rotational: None }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// Something mounted on a directory of its own.
pub struct Mounted {
    pub path: PathBuf,
    _dir: TempDir,
}

impl Mounted {
    /// `mount` with these arguments, and the directory as the last.
    pub fn new(arguments: &[&str]) -> Self {
        let dir = disk_dir();
        let path = dir.path().to_path_buf();
        must("mount", &[arguments, &[&path.display().to_string()]].concat());
        Self { path, _dir: dir }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.path.display().to_string()]).status();
    }
}

/// A file system on a disk of its own.
pub struct Volume {
    mounted: Mounted,
    pub disk: Disk,
}

impl Volume {
    pub fn on(disk: Disk, mkfs: &[&str], options: &str) -> Self {
        must(mkfs[0], &[&mkfs[1..], &[&disk.device]].concat());
        let mounted = Mounted::new(&["-o", options, &disk.device]);
        Self { mounted, disk }
    }

    pub fn ext4(mib: u64) -> Self {
        Self::on(Disk::new(mib, &[]), &["mkfs.ext4", "-q", "-F"], "rw")
    }

    pub fn btrfs() -> Self {
        Self::on(Disk::new(256, &[]), &["mkfs.btrfs", "-q", "-f"], "rw")
    }

    pub fn path(&self) -> &Path {
        &self.mounted.path
    }
}

/// Everything below a directory, sorted, relative to it.
pub fn below(dir: &Path) -> Vec<String> {
    fn walk(dir: &Path, root: &Path, out: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            out.push(path.strip_prefix(root).unwrap().display().to_string());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(&path, root, out);
            }
        }
    }
    let mut all = Vec::new();
    walk(dir, dir, &mut all);
    all.retain(|name| name != "lost+found");
    all.sort();
    all
}
