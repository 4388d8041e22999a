//! What a scenario borrows from its host, given back when dropped.

use std::path::{Path, PathBuf};
use std::process::Command;

use loadline::base::units::MIB;

use super::harness::must;
use super::model::Physics;
use super::physics::PhysicsDisk;
use super::volume::Mounted;

/// ext4 on a disk with physics.
pub struct Volume {
    pub mounted: Mounted,
    _disk: PhysicsDisk,
}

impl Volume {
    /// `options` are those of the mount. What ext4 would write later by itself it writes now.
    pub fn ext4(physics: Physics, options: &str) -> Self {
        let disk = PhysicsDisk::new(physics);
        let journal = ["-J", "size=4", "-N", "4096"];
        let now = ["-E", "lazy_itable_init=0,lazy_journal_init=0", &disk.device];
        must("mkfs.ext4", &[&["-q", "-F"], &journal[..], &now].concat());
        let mounted = Mounted::new(&["-o", options, &disk.device]);
        Self { mounted, _disk: disk }
    }

    pub fn path(&self) -> &Path {
        &self.mounted.path
    }
}

/// A group of a controller of cgroup version 1.
pub struct Group(pub PathBuf);

impl Group {
    pub fn new(controller: &str) -> Self {
        let name = format!("loadline-scenario-{}", std::process::id());
        let path = Path::new("/sys/fs/cgroup").join(controller).join(name);
        let _ = std::fs::remove_dir(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn set(&self, file: &str, value: &str) {
        std::fs::write(self.0.join(file), value).unwrap();
    }

    /// Operations a second of a device.
    pub fn limit(&self, file: &str, device: &str, most: u64) {
        let number = std::fs::read_to_string(format!("/sys/block/{device}/dev")).unwrap();
        self.set(file, &format!("{} {most}", number.trim()));
    }

    /// Shell that puts itself into it.
    pub fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A worker that has just ended still counts for a moment.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
    }
}

/// A compressed disk in memory.
pub struct Zram(String);

impl Zram {
    pub fn new(mib: u64) -> Self {
        let number = std::fs::read_to_string("/sys/class/zram-control/hot_add").unwrap();
        let zram = Self(number.trim().into());
        let size = (mib * MIB).to_string();
        std::fs::write(format!("/sys/block/zram{}/disksize", zram.0), size).unwrap();
        zram
    }

    pub fn device(&self) -> String {
        format!("/dev/zram{}", self.0)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = std::fs::write(format!("/sys/block/zram{}/reset", self.0), "1");
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

/// A loop device over a file, through the page cache.
pub struct BufferedLoop(pub String);

impl BufferedLoop {
    pub fn over(file: &Path) -> Self {
        let path = file.display().to_string();
        Self(must("losetup", &["-f", "--show", &path]).trim().to_owned())
    }
}

impl Drop for BufferedLoop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}
