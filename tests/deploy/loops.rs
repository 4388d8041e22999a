//! Loop devices for hosts.

use std::process::Command;

use tempfile::TempDir;

use crate::files::{disk_dir, must};
use crate::host::Host;

/// A loop device and its file; both go with the test.
pub struct Loop(pub String, #[allow(dead_code, reason = "holds the file")] TempDir);

impl Loop {
    pub fn new(mebibytes: u64) -> Self {
        let dir = disk_dir();
        let path = dir.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
        let device = must(Command::new("losetup").args(["--find", "--show"]).arg(&path));
        Self(device.trim().to_owned(), dir)
    }

    /// Makes its node on the host, as udev would.
    pub fn appear(&self, host: &Host) {
        let device = &self.0;
        let minor = device.trim_start_matches("/dev/loop");
        host.shell(&format!("mknod -m 660 {device} b 7 {minor}; chgrp disk {device}"));
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}
