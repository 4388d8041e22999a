//! The daemon as a user runs it, and what a test asks of it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_loadline");

/// Longest wait for anything that should happen soon; reached only by a fault.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|dir| dir.join(program).is_file())
    })
}

/// A directory on a real disk: temporary directories may be memory.
pub fn disk_dir() -> TempDir {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(base).unwrap();
    tempfile::tempdir_in(base).unwrap()
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Polls until `what` gives something; fails after [`PATIENCE`], naming what was awaited.
pub fn until<T>(awaited: &str, what: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, awaited, what)
}

pub fn until_within<T>(
    patience: Duration,
    awaited: &str,
    mut what: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(start.elapsed() < patience, "waited {patience:?} for {awaited}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// Waits until hardly a task of this host waits for I/O, as what promises something of an idle host
/// begins with: what ran before may still be written back.
pub fn until_idle() {
    until_within(PATIENCE * 4, "an idle host", || {
        let text = std::fs::read_to_string("/proc/pressure/io").unwrap_or_default();
        let some = text.lines().find_map(|line| line.strip_prefix("some avg10="));
        let share = some.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        share.is_none_or(|percent| percent < 4.0).then_some(())
    });
}

/// A parsed page: name and labels as they stand, to value.
#[derive(Debug, Default)]
pub struct Page {
    pub text: String,
    series: BTreeMap<String, f64>,
}

impl Page {
    pub fn parse(text: String) -> Self {
        let series = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(series, value)| Some((series.to_owned(), value.parse().ok()?)))
            .collect();
        Self { text, series }
    }

    /// The only value of `name` whose labels hold every `label="value"` of `having`.
    pub fn get(&self, name: &str, having: &[&str]) -> Option<f64> {
        self.all(name, having).first().map(|(_, value)| *value)
    }

    pub fn all(&self, name: &str, having: &[&str]) -> Vec<(&str, f64)> {
        self.series
            .iter()
            .filter(|(series, _)| series.split('{').next() == Some(name))
            .filter(|(series, _)| having.iter().all(|label| series.contains(label)))
            .map(|(series, value)| (series.as_str(), *value))
            .collect()
    }
}

/// A running daemon; killed and cleaned up when dropped.
pub struct Daemon {
    pub child: Child,
    pub port: u16,
    pub state: PathBuf,
    lines: Receiver<String>,
    /// Keeps the state directory until the end.
    _dir: Option<TempDir>,
}

/// How a daemon is started.
#[derive(Default)]
pub struct Setup {
    pub args: Vec<String>,
    pub config: Option<String>,
    pub state: Option<PathBuf>,
    pub port: Option<u16>,
    pub log: bool,
}

/// A configuration without probes, for tests of everything else.
pub const NO_PROBES: &str = "guard: {probes: false}\n";

impl Setup {
    pub fn config(text: impl Into<String>) -> Self {
        Self { config: Some(text.into()), ..Self::default() }
    }

    pub fn start(self) -> Daemon {
        let port = self.port.unwrap_or_else(free_port);
        let dir = disk_dir();
        let state = self.state.unwrap_or_else(|| dir.path().join("state"));
        let mut command = Command::new(BINARY);
        command.env("STATE_DIRECTORY", &state).stdout(Stdio::piped());
        command.stderr(if self.log { Stdio::inherit() } else { Stdio::null() });
        command.args(["--listen", &format!("127.0.0.1:{port}")]).args(&self.args);
        if let Some(text) = &self.config {
            let path = dir.path().join("loadline.yml");
            std::fs::write(&path, text).unwrap();
            command.arg("--config").arg(&path);
        }
        let mut child = command.spawn().unwrap();
        let (tx, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if tx.send(line).is_err() {
                    return;
                }
            }
        });
        let mut daemon = Daemon { child, port, state, lines, _dir: Some(dir) };
        until("the daemon to be ready", || {
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon did not start: {ended:?}");
            daemon.get("/-/ready").ok()
        });
        daemon
    }
}

impl Daemon {
    pub fn config_path(&self) -> PathBuf {
        self._dir.as_ref().unwrap().path().join("loadline.yml")
    }

    /// Body of a successful GET, else what went wrong.
    pub fn get(&self, path: &str) -> Result<String, String> {
        get(self.port, path)
    }

    pub fn page(&self) -> Page {
        Page::parse(until("a scrape", || self.get("/metrics").ok()))
    }

    /// The first lines that the daemon has printed so far, without the log.
    pub fn printed(&self) -> String {
        self.lines.try_iter().collect::<Vec<_>>().join("\n")
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        until_within(patience, "the daemon to end", || self.child.try_wait().unwrap())
    }

    /// Waits until a value of the page satisfies `check`: for long, since a probe waits itself until
    /// others leave this host's disks alone.
    pub fn until_metric(&self, name: &str, having: &[&str], check: impl Fn(f64) -> bool) -> f64 {
        until_within(PATIENCE * 4, &format!("{name} {having:?}"), || {
            self.page().get(name, having).filter(|value| check(*value))
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn get(port: u16, path: &str) -> Result<String, String> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10))).build().into();
    let url = format!("http://127.0.0.1:{port}{path}");
    let mut response = agent.get(&url).call().map_err(|e| e.to_string())?;
    response.body_mut().with_config().limit(64 << 20).read_to_string().map_err(|e| e.to_string())
}

/// Runs the binary to its end.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn loadline(args: &[&str], state: &Path) -> Ran {
    let output = Command::new(BINARY)
        .args(args)
        .env("STATE_DIRECTORY", state)
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs another program; fails unless it succeeds. Returns its standard output.
pub fn must(program: &str, args: &[&str]) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(args).env("PATH", path).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Feeds `input` to a program; returns exit code and everything it printed.
pub fn feed(program: &str, args: &[&str], input: &str) -> (Option<i32>, String) {
    use std::io::Write;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code(), text)
}

/// A loop device over a file of its own; detached when dropped.
pub struct LoopDisk {
    pub device: String,
    _backing: TempDir,
}

impl LoopDisk {
    /// e.g. `LoopDisk::new(256)`: 256 MiB, direct I/O to the file.
    pub fn new(mib: u64) -> Self {
        let backing = disk_dir();
        let file = backing.path().join("disk");
        must(
            "dd",
            &[
                "if=/dev/urandom",
                &format!("of={}", file.display()),
                "bs=1M",
                &format!("count={mib}"),
                "status=none",
            ],
        );
        let path = file.display().to_string();
        let device = must("losetup", &["-f", "--show", "--direct-io=on", &path]).trim().to_owned();
        Self { device, _backing: backing }
    }

    /// Kernel name: `loop3`.
    pub fn name(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// A file system mounted on a loop device; unmounted when dropped.
pub struct Mounted {
    pub path: PathBuf,
    _disk: LoopDisk,
    _dir: TempDir,
}

impl Mounted {
    pub fn ext4(mib: u64) -> Self {
        let disk = LoopDisk::new(mib);
        must("mkfs.ext4", &["-q", "-F", &disk.device]);
        let dir = disk_dir();
        let path = dir.path().to_path_buf();
        must("mount", &[&disk.device, &path.display().to_string()]);
        Self { path, _disk: disk, _dir: dir }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.path.display().to_string()]).status();
    }
}
