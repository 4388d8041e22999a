//! The physics as a real block device: a FUSE file with asynchronous direct I/O under a loop device.

#[path = "../fuse_end.rs"]
mod fuse_end;

use std::collections::{BinaryHeap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use tempfile::TempDir;

use super::model::{Disk, Physics};
use fuse_end::end;

const FILE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(3600);
/// The last stretch before an answer is due is spun through: a timer alone wakes too late.
const SPIN: Duration = Duration::from_micros(120);

/// Faults on command.
#[derive(Debug, Default)]
pub struct Commands {
    /// Answers nothing until it is false again.
    pub stalled: AtomicBool,
    /// Answers EIO.
    pub failing: AtomicBool,
}

enum Answer {
    Read(ReplyData, Vec<u8>),
    Write(ReplyWrite, u32),
}

impl Answer {
    fn send(self, failing: bool) {
        match self {
            Answer::Read(reply, _) if failing => reply.error(Errno::EIO),
            Answer::Write(reply, _) if failing => reply.error(Errno::EIO),
            Answer::Read(reply, data) => reply.data(&data),
            Answer::Write(reply, size) => reply.written(size),
        }
    }
}

#[derive(PartialEq)]
struct Due {
    at: f64,
    id: u64,
}

impl Eq for Due {}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.total_cmp(&self.at).then(other.id.cmp(&self.id))
    }
}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct Queue {
    disk: Disk,
    due: BinaryHeap<Due>,
    answers: HashMap<u64, Answer>,
    next_id: u64,
    ended: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    start: Instant,
    commands: Arc<Commands>,
}

impl Shared {
    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn submit(&self, offset: u64, bytes: u64, answer: Answer) {
        let now = self.now();
        let mut queue = self.queue.lock().unwrap();
        if queue.ended {
            return answer.send(true);
        }
        let id = queue.next_id;
        queue.next_id += 1;
        queue.answers.insert(id, answer);
        queue.disk.arrive(id, offset, bytes, now);
        self.changed.notify_one();
    }

    /// Answers each request at its time, and all that are left with EIO in the end: the disk may still
    /// be open somewhere, and who waits for it would wait for ever.
    fn serve(&self) {
        let mut queue = self.queue.lock().unwrap();
        loop {
            if queue.ended {
                return queue.answers.drain().for_each(|(_, answer)| answer.send(true));
            }
            let now = self.now();
            let begun = queue.disk.begin(now);
            queue.due.extend(begun.into_iter().map(|s| Due { at: s.done_at, id: s.id }));
            let stalled = self.commands.stalled.load(Ordering::Relaxed);
            let next = queue.due.peek().map(|due| due.at).filter(|_| !stalled);
            if next.is_some_and(|at| at <= now) {
                let due = queue.due.pop().unwrap();
                let answer = queue.answers.remove(&due.id).unwrap();
                drop(queue);
                answer.send(self.commands.failing.load(Ordering::Relaxed));
                queue = self.queue.lock().unwrap();
                continue;
            }
            let wake = [next, queue.disk.next_free().filter(|at| *at > now)];
            let wake = wake.into_iter().flatten().fold(f64::INFINITY, f64::min);
            let wait = Duration::from_secs_f64((wake - now).clamp(0.0, 0.05));
            if wait > SPIN {
                queue = self.changed.wait_timeout(queue, wait - SPIN).unwrap().0;
            } else {
                drop(queue);
                std::hint::spin_loop();
                queue = self.queue.lock().unwrap();
            }
        }
    }
}

/// One directory with one file, `disk`.
struct OneFile {
    shared: Arc<Shared>,
    backing: File,
    size: u64,
}

impl OneFile {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let file = ino == FILE;
        FileAttr {
            ino,
            size: if file { self.size } else { 0 },
            blocks: if file { self.size / 512 } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: if file { 0o600 } else { 0o755 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without this the kernel sends direct I/O one request at a time.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(256);
        let _ = config.set_congestion_threshold(256);
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&TTL, &self.attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = u64::from(size).min(self.size.saturating_sub(offset));
        let mut data = vec![0; length as usize];
        if self.backing.read_exact_at(&mut data, offset).is_err() {
            return reply.error(Errno::EIO);
        }
        self.shared.submit(offset, length, Answer::Read(reply, data));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.backing.write_all_at(data, offset).is_err() {
            return reply.error(Errno::EIO);
        }
        let size = data.len() as u32;
        self.shared.submit(offset, u64::from(size), Answer::Write(reply, size));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// A block device with physics; gone when dropped.
pub struct PhysicsDisk {
    /// `/dev/loop3`.
    pub device: String,
    pub commands: Arc<Commands>,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    server: Option<std::thread::JoinHandle<()>>,
    mount: TempDir,
}

impl PhysicsDisk {
    pub fn new(physics: Physics) -> Self {
        let size = physics.size;
        let commands = Arc::new(Commands::default());
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                disk: Disk::new(physics),
                due: BinaryHeap::new(),
                answers: HashMap::new(),
                next_id: 0,
                ended: false,
            }),
            changed: Condvar::new(),
            start: Instant::now(),
            commands: Arc::clone(&commands),
        });
        // Memory, so that only the physics take time.
        let backing = tempfile::tempfile_in("/dev/shm").unwrap();
        backing.set_len(size).unwrap();
        let mount = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("physics".into())];
        let file = OneFile { shared: Arc::clone(&shared), backing, size };
        let session = fuser::spawn_mount(file, mount.path(), &config).unwrap();
        let serving = Arc::clone(&shared);
        let server = std::thread::spawn(move || serving.serve());
        let path = mount.path().join("disk").display().to_string();
        let output = Command::new("losetup")
            .args(["-f", "--show", "--direct-io=on", &path])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Self { device, commands, shared, session: Some(session), server: Some(server), mount }
    }

    /// Kernel name: `loop3`.
    pub fn name(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }
}

impl Drop for PhysicsDisk {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap().ended = true;
        self.shared.changed.notify_all();
        drop(self.server.take().map(std::thread::JoinHandle::join));
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
        end(self.session.take(), self.mount.path());
    }
}
