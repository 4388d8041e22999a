//! The load of others.

use std::process::{Child, Command, Stdio};

/// fio reads a disk at random in the background, until dropped.
pub struct Fio(Child);

impl Fio {
    pub fn reads(device: &str, depth: usize) -> Self {
        let child = Command::new("fio")
            .args(["--name=x", "--filename", device, "--rw=randread", "--bs=4k"])
            .args(["--ioengine=libaio", "--direct=1", "--thread", "--norandommap"])
            .args(["--time_based", "--runtime=120"])
            .arg(format!("--iodepth={depth}"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
