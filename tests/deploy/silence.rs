//! A file system whose server is gone: it answers until it falls silent.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, FileAttr, FileHandle, FileType, Filesystem, INodeNo, ReplyAttr,
    Request, SessionACL,
};

/// Replies that are held back; `None` while it answers.
#[derive(Clone, Default)]
pub struct Silence(Arc<Mutex<Option<Vec<ReplyAttr>>>>);

/// The silence, until it is dropped.
pub struct Quiet(Silence);

impl Silence {
    pub fn mount(&self, path: &Path) -> BackgroundSession {
        // The daemon is another user.
        let mut config = Config::default();
        config.acl = SessionACL::All;
        fuser::spawn_mount(self.clone(), path, &config).unwrap()
    }

    pub fn begin(&self) -> Quiet {
        *self.0.lock().unwrap() = Some(Vec::new());
        Quiet(self.clone())
    }
}

impl Quiet {
    /// Whether anybody asked meanwhile, and waits.
    pub fn was_asked(&self) -> bool {
        self.0.0.lock().unwrap().as_ref().is_some_and(|held| !held.is_empty())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A reply that is dropped is an answer, too: an error.
        *self.0.0.lock().unwrap() = None;
    }
}

impl Filesystem for Silence {
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if let Some(held) = &mut *self.0.lock().unwrap() {
            return held.push(reply);
        }
        let root = FileAttr {
            ino,
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::Directory,
            perm: 0o777,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 512,
            flags: 0,
        };
        reply.attr(&Duration::ZERO, &root);
    }
}
