//! Small trees of /proc and /sys for tests.

use std::path::{Path, PathBuf};

use super::roots::Roots;

/// A directory of its own that goes with the test.
pub struct Tree(tempfile::TempDir);

#[allow(clippy::unwrap_used, reason = "only tests build trees")]
impl Tree {
    #[allow(clippy::new_without_default, reason = "it creates a directory")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    /// Roots `proc` and `sys` in this tree.
    pub fn roots(&self) -> Roots {
        Roots { procfs: self.path("proc"), sysfs: self.path("sys"), rootfs: self.path("root") }
    }

    pub fn dir(&self, relative: &str) {
        std::fs::create_dir_all(self.path(relative)).unwrap();
    }

    pub fn file(&self, relative: &str, content: impl AsRef<[u8]>) {
        self.parent(relative);
        std::fs::write(self.path(relative), content).unwrap();
    }

    pub fn link(&self, relative: &str, to: &str) {
        self.parent(relative);
        std::os::unix::fs::symlink(to, self.path(relative)).unwrap();
    }

    pub fn remove(&self, relative: &str) {
        let path = self.path(relative);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }

    fn parent(&self, relative: &str) {
        if let Some(parent) = self.path(relative).parent().filter(|p| !Path::exists(p)) {
            std::fs::create_dir_all(parent).unwrap();
        }
    }
}
