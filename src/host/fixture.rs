//! A host of our own for tests: small trees of /proc and /sys, linked as the kernel links them.

use std::path::Path;

use super::block::Facts;
use super::roots::Roots;

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
        let list = self.path().join(list);
        std::fs::create_dir_all(&list).unwrap();
        let _ = std::fs::remove_file(list.join(name));
        std::os::unix::fs::symlink(to, list.join(name)).unwrap();
    }

    pub(crate) fn facts(&self, name: &str) -> Facts {
        Facts::read(&self.roots(), name).unwrap()
    }
}
