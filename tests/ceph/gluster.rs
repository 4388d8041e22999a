//! A GlusterFS volume as it is by default: it takes direct I/O, and gives it to its caches.

use std::process::Command;

use serde_json::Value;

use crate::Promise;
use crate::harness::{BINARY, disk_dir, must};

pub const PROMISES: &[Promise] =
    &[Promise::new("a_gluster_volume_is_not_called_direct_and_its_flush_counts", volume)
        .root()
        .needs(&["glusterd", "gluster", "glusterfs", "ip"])];

/// A network of its own with the address that the volume has.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        let name = format!("loadline-gluster-{}", std::process::id());
        must("ip", &["netns", "add", &name]);
        let namespace = Self(name);
        must("ip", &["-n", &namespace.0, "link", "set", "lo", "up"]);
        must("ip", &["-n", &namespace.0, "addr", "add", "10.99.9.1/32", "dev", "lo"]);
        namespace
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn volume() {
    let namespace = Namespace::new();
    let dir = disk_dir();
    let path = dir.path().display().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ceph/gluster.sh");
    let probes = format!(
        "export STATE_DIRECTORY={path}/state; cd {path}\n\
         {BINARY} probe osd-bench --target mnt --bytes 64MiB --format json > osd_like.json\n\
         {BINARY} probe disk --target mnt --profile rand_read --size 64MiB --runtime 1s \
         --format json > read.json\n\
         {BINARY} probe osd-bench --target mnt --bytes 16MiB > table.txt 2> remarks.txt\n\
         ls -A mnt > left.txt\n"
    );
    must("ip", &["netns", "exec", &namespace.0, "bash", script, &path, "sh", "-ec", &probes]);
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let value = |name: &str| serde_json::from_str::<Value>(&read(name)).unwrap();
    for name in ["osd_like.json", "read.json"] {
        let done = value(name);
        assert!(done["flags"]["direct"].is_null(), "it took the flag, and may not heed it");
        assert!(done["flags"]["cached"].is_null(), "nobody here sees the brick's disk");
        assert!(done["evidence"]["devices"].as_array().unwrap().is_empty());
    }
    let leg = value("osd_like.json")["legs"][0].clone();
    assert_eq!(leg["writes"]["bytes"].as_u64(), Some(64 << 20));
    let (flush, elapsed) = (leg["flush"].as_f64().unwrap(), leg["elapsed"].as_f64().unwrap());
    assert!(flush > 0.0 && flush < elapsed, "the flush is part of the time: {leg}");
    let said = read("remarks.txt");
    assert!(said.contains("strict-o-direct") && said.contains("the final flush took"), "{said}");
    assert!(read("table.txt").contains("osd_like\twrite\t4\t16777216\t"));
    assert_eq!(read("left.txt"), "", "nothing is left");
}
