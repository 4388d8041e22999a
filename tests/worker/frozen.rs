//! A file system that hangs.

use std::sync::{Arc, Mutex};

use fuser::{FileAttr, FileHandle, FileType, Filesystem, INodeNo, ReplyAttr, ReplyStatfs, Request};

use super::AMPLE;

/// A file system that never answers statfs, until it is told to.
pub struct Frozen(pub Arc<Mutex<Vec<ReplyStatfs>>>);

impl Filesystem for Frozen {
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let never = std::time::UNIX_EPOCH;
        let root = FileAttr {
            ino,
            size: 0,
            blocks: 0,
            atime: never,
            mtime: never,
            ctime: never,
            crtime: never,
            kind: FileType::Directory,
            perm: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 512,
            flags: 0,
        };
        reply.attr(&AMPLE, &root);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.0.lock().unwrap().push(reply);
    }
}
