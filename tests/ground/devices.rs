//! Raw devices are read over their whole length and never opened for writing; workers confine
//! themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use loadline::base::fault::FaultKind;
use loadline::base::units::MIB;
use loadline::model::job::{Place, Region, Task, What};

use crate::Promise;
use crate::harness::{BINARY, Setup, disk_dir};
use crate::volume::Disk;
use crate::worker::{Worker, fault, lay_out, leg, measured, run, target, unnamed, work};

pub const PROMISES: &[Promise] = &[
    Promise::new("case_098_no_open_of_a_raw_device_could_write_to_it", traced)
        .root()
        .needs(&["losetup", "strace"]),
    Promise::new("case_098_a_device_is_refused_wherever_something_is_written", refused)
        .root()
        .needs(&["losetup"]),
    Promise::new("a_worker_at_work_is_confined_on_every_thread", confined),
    Promise::new("what_of_the_confinement_held_is_a_metric", published),
];

pub fn place(device: &str) -> Place {
    Place::Device(device.into())
}

/// A stable name for a device, removed when dropped.
struct StableName(PathBuf);

impl StableName {
    fn of(device: &str) -> Self {
        std::fs::create_dir_all("/dev/disk/by-id").unwrap();
        let name = format!("loadline-test-{}", device.trim_start_matches("/dev/"));
        let path = Path::new("/dev/disk/by-id").join(name);
        std::os::unix::fs::symlink(device, &path).unwrap();
        Self(path)
    }
}

impl Drop for StableName {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// All that a command and its workers ask of the kernel to open, move or change a device.
fn trace(arguments: &[&str]) -> (Option<i32>, String) {
    let dir = disk_dir();
    let calls = "trace=open,openat,openat2,creat,ioctl,preadv2,pwrite64,pwritev,pwritev2";
    let status = Command::new("strace")
        .args(["-ff", "-y", "-e", calls, "-o"])
        .arg(dir.path().join("trace"))
        .arg(BINARY)
        .args(arguments)
        .env("STATE_DIRECTORY", dir.path())
        .output()
        .unwrap()
        .status;
    // A file for each thread, so that no line is cut by another's.
    let files = std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.path());
    let logs = files.filter(|path| path.display().to_string().contains("/trace."));
    (status.code(), logs.map(|path| std::fs::read_to_string(path).unwrap()).collect())
}

fn traced() {
    let disk = Disk::new(64, &[]);
    std::fs::write(&disk.device, vec![0x5a; 1 << 20]).unwrap();
    let content = || crc32fast::hash(&std::fs::read(&disk.device).unwrap());
    let before = content();
    let name = StableName::of(&disk.device);
    let name = name.0.display().to_string();
    let opened = format!("<{}", disk.device);
    // 200 operations, however slow they are while they are traced.
    let bounds = ["--runtime", "50s", "--bytes", "800KiB", "--engine", "threads"];
    let common = [&["probe", "disk", "--target", &name][..], &bounds].concat();
    for (profile, code) in [("rand_read", 0), ("rand_rw", 1), ("rand_write", 1)] {
        let (ended, log) = trace(&[&common[..], &["--profile", profile]].concat());
        assert_eq!(ended, Some(code), "{profile}");
        let touches = |line: &&str| line.contains(&opened) || line.contains(&name);
        let lines: Vec<&str> = log.lines().filter(touches).collect();
        let opens = lines.iter().filter(|line| line.contains("open")).count();
        assert!(opens > 0, "{profile}: the trace shows no open at all");
        for line in &lines {
            let bad =
                ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "pwrite", "creat(", "BLKDISCARD"];
            assert!(!bad.iter().any(|word| line.contains(word)), "{profile}: {line}");
        }
        if code == 0 {
            whole_stroke(&lines);
        }
    }
    assert_eq!(content(), before, "not a byte has changed");
}

/// Reads came from the first and the last tenth of 64 MiB.
fn whole_stroke(lines: &[&str]) {
    let offset = |line: &&str| -> Option<u64> {
        let arguments = line.split_once("preadv2(")?.1.rsplit_once(") = ")?.0;
        arguments.rsplit(", ").nth(1)?.parse().ok()
    };
    let offsets: Vec<u64> = lines.iter().filter_map(offset).collect();
    let share = |at: Option<&u64>| *at.unwrap() as f64 / (64 * MIB) as f64;
    assert!(offsets.len() >= 100, "{} reads", offsets.len());
    assert!(share(offsets.iter().min()) < 0.1 && share(offsets.iter().max()) > 0.9);
}

fn refused() {
    let disk = Disk::new(16, &[]);
    let name = StableName::of(&disk.device);
    let elsewhere = disk_dir();
    let link = elsewhere.path().join("link-to-dev");
    std::os::unix::fs::symlink(&disk.device, &link).unwrap();
    let file = elsewhere.path().join("file.img");
    std::fs::write(&file, "mine").unwrap();
    let writes = || leg(0.5);
    for path in [Path::new(&disk.device), &name.0, &link, &file] {
        for task in [Task::Run(unnamed(path, writes())), lay_out(path)] {
            let fault = fault(work(task));
            assert_eq!(fault.kind, FaultKind::Refused, "{}: {fault}", path.display());
        }
        let device = run(target(Place::Device(path.into())), Region::WholeDevice, writes());
        let fault = fault(work(Task::Run(device)));
        assert_eq!(fault.kind, FaultKind::Refused, "{}: {fault}", path.display());
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    assert!(std::fs::read(&disk.device).unwrap().iter().all(|byte| *byte == 0));
}

/// A field of each thread's status.
fn threads(pid: u32, field: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let value = |status: String| {
        status
            .lines()
            .find_map(|l| l.strip_prefix(field)?.strip_prefix(':').map(str::trim))
            .map(str::to_owned)
    };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .filter_map(value)
        .collect()
}

fn confined() {
    let dir = disk_dir();
    let mut seen = Vec::new();
    let mut parts = Vec::new();
    let worker = Worker::start(Command::new(BINARY), Task::Run(unnamed(dir.path(), leg(1.0))));
    measured(worker.listen(|worker, what| match what {
        What::Confined { parts: held } => parts = held.clone(),
        What::Opened { .. } => {
            let pid = worker.0.id();
            seen = ["NoNewPrivs", "Seccomp"].map(|field| threads(pid, field)).to_vec();
        }
        _ => {}
    }));
    let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["nice", "io_priority", "no_new_privs", "landlock", "seccomp"]);
    let held = |part: &str| parts.iter().any(|(name, held)| name == part && *held);
    assert!(held("no_new_privs"), "{parts:?}");
    assert!(seen[0].iter().all(|value| value == "1"), "{seen:?}");
    if held("seccomp") {
        assert!(seen[1].len() > 1 && seen[1].iter().all(|value| value == "2"), "{seen:?}");
    }
}

fn published() {
    let dir = disk_dir();
    let config = format!(
        "targets: [{{name: t, path: {}, ballast: 64MiB}}]\n\
         probes: [{{name: p, kind: latency, target: t, every: 10s}}]\n",
        dir.path().display()
    );
    let daemon = Setup::config(config).start();
    // A worker of the same binary on the same host confines itself the same way.
    let mut parts = Vec::new();
    let worker = Worker::start(Command::new(BINARY), Task::Run(unnamed(dir.path(), leg(0.2))));
    measured(worker.listen(|_, what| {
        if let What::Confined { parts: held } = what {
            parts = held.clone();
        }
    }));
    assert_eq!(parts.len(), 5);
    for (part, held) in parts {
        let label = format!("part=\"{part}\"");
        let told = daemon.until_metric("loadline_sandbox_enforced", &[&label], |_| true);
        assert_eq!(told == 1.0, held, "{part}: {told}");
    }
}
