//! A file system in memory that fails, hangs, lies and comes short on command.

#[path = "../fuse_end.rs"]
mod fuse_end;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuse_end::end;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    WriteFlags,
};
use rustix::fs::OFlags;
use tempfile::TempDir;

const ROOT: u64 = 1;
const TTL: Duration = Duration::ZERO;
const BLOCK: u32 = 4096;
/// As the kernel has it (asm-generic/fcntl.h); that of rustix means O_SYNC.
const O_DSYNC: i32 = 0o10000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Open,
    Read,
    Write,
    Fsync,
    /// A write that is to be on the disk when it is answered.
    Commit,
}

/// What goes wrong from now on.
#[derive(Default)]
pub struct Faults {
    /// This call fails with this errno, once it was made so many times.
    pub fails: Option<(Call, Errno, u64)>,
    /// Opens with O_DIRECT are refused.
    pub no_direct: bool,
    /// Every fourth read gives half of what was asked for.
    pub short: bool,
    /// Reads that are no multiple of it are refused.
    pub sector: u32,
    pub made: BTreeMap<Call, u64>,
}

impl Faults {
    /// How often a call was made.
    pub fn made(&self, call: Call) -> u64 {
        self.made.get(&call).copied().unwrap_or(0)
    }

    fn make(&mut self, call: Call) -> Result<(), Errno> {
        let made = self.made.entry(call).or_default();
        *made += 1;
        match self.fails {
            Some((failing, errno, after)) if failing == call && *made > after => Err(errno),
            _ => Ok(()),
        }
    }
}

struct Node {
    parent: u64,
    name: OsString,
    kind: FileType,
    mode: u32,
    links: u32,
    data: Vec<u8>,
}

#[derive(Default)]
struct Tree {
    nodes: BTreeMap<u64, Node>,
    last: u64,
}

impl Tree {
    fn find(&self, parent: INodeNo, name: &OsStr) -> Option<u64> {
        let is = |node: &Node| node.links > 0 && node.parent == parent.0 && node.name == name;
        self.nodes.iter().find(|(_, node)| is(node)).map(|(ino, _)| *ino)
    }

    fn make(&mut self, at: (INodeNo, &OsStr), kind: FileType, mode: u32) -> FileAttr {
        self.last += 1;
        let (parent, name) = (at.0.0, at.1.to_owned());
        let node = Node { parent, name, kind, mode, links: 1, data: Vec::new() };
        self.nodes.insert(self.last, node);
        self.attr(self.last).unwrap()
    }

    fn remove(&mut self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let ino = self.find(parent, name).ok_or(Errno::ENOENT)?;
        if self.nodes.values().any(|node| node.links > 0 && node.parent == ino) {
            return Err(Errno::ENOTEMPTY);
        }
        self.nodes.get_mut(&ino).unwrap().links = 0;
        Ok(())
    }

    fn attr(&self, ino: u64) -> Result<FileAttr, Errno> {
        let node = self.nodes.get(&ino).ok_or(Errno::ENOENT)?;
        Ok(FileAttr {
            ino: INodeNo(ino),
            size: node.data.len() as u64,
            blocks: node.data.len().div_ceil(512) as u64,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: node.kind,
            perm: (node.mode & 0o777) as u16,
            nlink: node.links,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        })
    }
}

struct Memory {
    tree: Mutex<Tree>,
    faults: Arc<Mutex<Faults>>,
    stalled: Arc<AtomicBool>,
}

impl Memory {
    /// Answers no more while it is stalled; then says whether the call fails.
    fn make(&self, call: Call) -> Result<(), Errno> {
        self.answer();
        self.faults.lock().unwrap().make(call)
    }

    fn answer(&self) {
        while self.stalled.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    fn opened(&self, flags: i32) -> Result<(), Errno> {
        self.make(Call::Open)?;
        let direct = OFlags::from_bits_retain(flags as u32).contains(OFlags::DIRECT);
        match direct && self.faults.lock().unwrap().no_direct {
            true => Err(Errno::EINVAL),
            false => Ok(()),
        }
    }

    fn bytes(&self, ino: INodeNo, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        self.make(Call::Read)?;
        let faults = self.faults.lock().unwrap();
        if !size.is_multiple_of(faults.sector.max(1)) {
            return Err(Errno::EINVAL);
        }
        let short = faults.short && faults.made(Call::Read).is_multiple_of(4);
        let wanted = if short { size / 2 } else { size };
        let tree = self.tree.lock().unwrap();
        let data = &tree.nodes.get(&ino.0).ok_or(Errno::ENOENT)?.data;
        let start = data.len().min(offset as usize);
        Ok(data[start..data.len().min(start + wanted as usize)].to_vec())
    }

    fn put(&self, ino: INodeNo, offset: u64, bytes: &[u8]) -> Result<u32, Errno> {
        self.make(Call::Write)?;
        let mut tree = self.tree.lock().unwrap();
        let data = &mut tree.nodes.get_mut(&ino.0).ok_or(Errno::ENOENT)?.data;
        let end = offset as usize + bytes.len();
        if data.len() < end {
            data.resize(end, 0);
        }
        data[offset as usize..end].copy_from_slice(bytes);
        Ok(bytes.len() as u32)
    }
}

fn done(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Memory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer();
        let tree = self.tree.lock().unwrap();
        match tree.find(parent, name).ok_or(Errno::ENOENT).and_then(|ino| tree.attr(ino)) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer();
        match self.tree.lock().unwrap().attr(ino.0) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let mut tree = self.tree.lock().unwrap();
        let attr = tree.make((parent, name), FileType::Directory, mode);
        reply.entry(&TTL, &attr, Generation(0));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.tree.lock().unwrap().remove(parent, name), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.unlink(request, parent, name, reply);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        // As the kernel's own order is: the entry is there before the open is refused.
        let attr = self.tree.lock().unwrap().make((parent, name), FileType::RegularFile, mode);
        match self.opened(flags) {
            Ok(()) => {
                let flags = FopenFlags::empty();
                reply.created(&TTL, &attr, Generation(0), FileHandle(0), flags);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.opened(flags.0) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.bytes(ino, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if flags.0 & O_DSYNC != 0 {
            let _ = self.make(Call::Commit);
        }
        match self.put(ino, offset, data) {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.make(Call::Fsync), reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = self.tree.lock().unwrap();
        let within = tree.nodes.iter().filter(|(_, n)| n.links > 0 && n.parent == ino.0);
        for (at, (ino, node)) in within.enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*ino), at as u64 + 1, node.kind, &node.name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.answer();
        let blocks = (4 << 30) / u64::from(BLOCK);
        reply.statfs(blocks, blocks, blocks, 0, 0, BLOCK, 255, BLOCK);
    }
}

/// The mounted file system; answers again and is unmounted when dropped.
pub struct Fuse {
    pub path: PathBuf,
    pub faults: Arc<Mutex<Faults>>,
    stalled: Arc<AtomicBool>,
    session: Option<BackgroundSession>,
    _dir: TempDir,
}

impl Fuse {
    pub fn new(faults: Faults) -> Self {
        let faults = Arc::new(Mutex::new(faults));
        let stalled = Arc::new(AtomicBool::new(false));
        let mut tree = Tree { last: ROOT, ..Tree::default() };
        let root = FileType::Directory;
        let (name, data) = (OsString::new(), Vec::new());
        tree.nodes.insert(ROOT, Node { parent: 0, name, kind: root, mode: 0o755, links: 1, data });
        let memory = Memory {
            tree: Mutex::new(tree),
            faults: Arc::clone(&faults),
            stalled: Arc::clone(&stalled),
        };
        let dir = tempfile::tempdir().unwrap();
        let session = fuser::spawn_mount(memory, dir.path(), &Config::default()).unwrap();
        let path = dir.path().to_path_buf();
        Self { path, faults, stalled, session: Some(session), _dir: dir }
    }

    pub fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().unwrap());
    }

    /// From now on a call fails.
    pub fn fail(&self, call: Call, errno: Errno) {
        self.set(|faults| faults.fails = Some((call, errno, 0)));
    }

    pub fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.stall(false);
        end(self.session.take(), &self.path);
    }
}
