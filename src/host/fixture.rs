//! A host of our own for tests: small trees of /proc and /sys, linked as the kernel links them.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;

use super::block::Facts;
use super::roots::Roots;

/// A real file, spoilt in the ways in which files are: cut off, with bytes and fields lost, doubled or
/// made nonsense of.
pub(crate) fn spoilt(real: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<Index>(), 0..8_u8, any::<u8>()), 0..6);
    changes.prop_map(move |changes| {
        let mut text = real.to_vec();
        for (at, kind, byte) in changes.into_iter().filter(|_| !real.is_empty()) {
            let at = at.index(text.len() + 1).min(text.len().saturating_sub(1));
            let rest = text.split_off(at);
            match kind {
                0 => {}
                1 => text.extend([&[byte], rest.get(1..).unwrap_or_default()].concat()),
                2 => text.extend([&[0], rest.get(1..).unwrap_or_default()].concat()),
                3 => text.extend(rest.get(1..).unwrap_or_default()),
                4 => text.extend([b" 18446744073709551615 ", &*rest].concat()),
                5 => text.extend([b" -1 ", &*rest].concat()),
                6 => text.extend([&rest[..rest.len().min(120)], &*rest].concat()),
                _ => text.extend([b"\n", &*rest].concat()),
            }
        }
        text
    })
}

pub(crate) struct Host(tempfile::TempDir);

impl Host {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn roots(&self) -> Roots {
        let under = |name| self.path().join(name);
        Roots { procfs: under("proc"), sysfs: under("sys"), rootfs: "/".into() }
    }

    /// Writes a file below the root, its directories with it.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// A device at its place below /sys/devices. An attribute that ends in `/` is a directory.
    pub(crate) fn device(&self, place: &str, attributes: &[(&str, &[u8])]) -> &Self {
        let dir = self.path().join("sys/devices").join(place);
        std::fs::create_dir_all(&dir).unwrap();
        let mut number = None;
        for (name, content) in attributes {
            if name.ends_with('/') {
                std::fs::create_dir_all(dir.join(name)).unwrap();
                continue;
            }
            self.file(&format!("sys/devices/{place}/{name}"), content);
            if *name == "dev" {
                number = Some(String::from_utf8_lossy(content).into_owned());
            }
        }
        let name = place.rsplit('/').next().unwrap();
        self.link("sys/block", name, &dir);
        self.link("sys/class/block", name, &dir);
        if let Some(number) = number {
            self.link("sys/dev/block", &number, &dir);
        }
        self
    }

    fn link(&self, list: &str, name: &str, to: &Path) {
        let path = format!("{list}/{name}");
        let _ = std::fs::remove_file(self.at(&path));
        self.symlink(&path, to);
    }

    /// A place below the root.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    pub(crate) fn dir(&self, path: &str) {
        std::fs::create_dir_all(self.at(path)).unwrap();
    }

    /// A link at `path`, its directories with it, to wherever `to` leads.
    pub(crate) fn symlink(&self, path: &str, to: impl AsRef<Path>) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.at(path);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn facts(&self, name: &str) -> Facts {
        Facts::read(&self.roots(), name).unwrap()
    }
}
