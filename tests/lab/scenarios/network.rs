//! Storage behind a network: real GlusterFS, its servers in a namespace of their own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use loadline::base::units::{Bytes, MIB, Rate};
use loadline::model::path::{DeclaredBacking, DeclaredPath};
use loadline::model::verdict::Limit;
use loadline::probe::disk::Preset;
use tempfile::TempDir;

use super::Scenario;
use super::harness::{disk_dir, must, until};
use super::measure::{Measurement, Sight, profile};
use super::model::Physics;
use super::place::Volume;

const NEEDS: &[&str] = &["glusterd", "ip", "tc", "ethtool", "nsenter", "mkfs.ext4"];

pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("gluster_over_a_gigabit", &[Limit::Link], over_a_gigabit).slow().needs(NEEDS),
    // A fifth of that leaves room for CPUs that others use.
    Scenario::new("gluster_over_a_slow_wire", &[Limit::Link], over_a_slow_wire).slow().needs(NEEDS),
    Scenario::new("gluster_on_one_spindle", &[Limit::Backend], on_a_spindle).slow().needs(NEEDS),
];

const HERE: &str = "10.99.9.1";
const THERE: &str = "10.99.9.2";
const NAMESPACE: &str = "loadline-scenario";

const GIGABIT: f64 = 125e6;
/// Of a full frame on the wire, what the kernel counts: all but preamble, checksum and gap.
const COUNTED: f64 = 1514.0 / 1538.0;

/// A namespace at the end of a veth, and everything started in it; gone when dropped.
struct Servers {
    daemon: Option<Child>,
    /// Logs, state and sockets.
    dir: TempDir,
}

impl Servers {
    /// `brick` is where the one brick lies; `wire`: its line rate, else as fast
    /// as memory.
    fn with_brick(brick: &Path, wire: Option<Rate>) -> Self {
        let mut servers = Self { daemon: None, dir: disk_dir() };
        let ip = |words: &str| must("ip", &words.split(' ').collect::<Vec<_>>());
        ip(&format!("netns add {NAMESPACE}"));
        ip(&format!("link add llscn0 type veth peer name llscn1 netns {NAMESPACE}"));
        ip(&format!("addr add {HERE}/24 dev llscn0"));
        ip("link set llscn0 up");
        inside("ip link set lo up");
        inside(&format!("ip addr add {THERE}/24 dev llscn1"));
        inside("ip link set llscn1 up");
        // What fills a queue of its own accord, whatever this host prefers.
        let route = format!("10.99.9.0/24 dev llscn1 src {THERE}");
        inside(&format!("ip route replace {route} congctl cubic"));
        if let Some(rate) = wire {
            shape(rate);
        }
        let place = servers.dir.path().display();
        let volfile = format!(
            "volume management\n type mgmt/glusterd\n option working-directory {place}/state\n \
             option transport-type socket\n option transport.socket.listen-backlog 64\n \
             option run-directory {place}/run\n option transport.address-family inet\n \
             end-volume\n"
        );
        for name in ["state", "run", "log"] {
            std::fs::create_dir(servers.dir.path().join(name)).unwrap();
        }
        let file = servers.dir.path().join("glusterd.vol");
        std::fs::write(&file, volfile).unwrap();
        let command = format!(
            "glusterd --no-daemon --volfile={} --pid-file={place}/pid --log-file={place}/log/d",
            file.display()
        );
        servers.daemon = Some(enter(&command).stdout(Stdio::null()).spawn().unwrap());
        until("glusterd", || gluster("volume info").ok());
        let brick = brick.display();
        for words in [
            &format!("create gv0 {THERE}:{brick}/brick force"),
            // What is asked to be direct is so at the brick too.
            "set gv0 performance.strict-o-direct on",
            "set gv0 network.remote-dio disable",
            "start gv0",
        ] {
            gluster(&format!("volume {words}")).unwrap_or_else(|text| panic!("{words}: {text}"));
        }
        servers
    }

    fn mount(&self) -> Mount {
        let dir = disk_dir();
        let log = self.dir.path().join("log/client").display().to_string();
        let at = dir.path().display().to_string();
        let server = format!("--volfile-server={THERE}");
        let log = format!("--log-file={log}");
        must("glusterfs", &[&server, "--volfile-id=gv0", "--direct-io-mode=enable", &log, &at]);
        Mount(dir)
    }
}

fn gluster(words: &str) -> Result<(), String> {
    let output = enter(&format!("gluster --mode=script {words}")).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&text).into_owned()) }
}

fn enter(command: &str) -> Command {
    let mut enter = Command::new("nsenter");
    enter.arg(format!("--net=/run/netns/{NAMESPACE}")).args(command.split_whitespace());
    enter.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    enter
}

fn inside(command: &str) {
    assert!(enter(command).status().unwrap().success(), "{command}");
}

fn shape(line: Rate) {
    let kbit = (line.0 * COUNTED * 8.0 / 1000.0) as u64;
    for (device, at) in [("llscn0", false), ("llscn1", true)] {
        let features = format!("ethtool -K {device} tso off gso off gro off");
        let rate = format!("rate {kbit}kbit burst 128kb latency 20ms");
        let queue = format!("tc qdisc add dev {device} root tbf {rate}");
        for command in [features, queue] {
            let words: Vec<&str> = command.split(' ').collect();
            if at { inside(&command) } else { drop(must(words[0], &words[1..])) }
        }
    }
}

/// The processes in the namespace.
fn processes() -> Vec<i32> {
    let output = Command::new("ip").args(["netns", "pids", NAMESPACE]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().filter_map(|line| line.trim().parse().ok()).collect()
}

impl Drop for Servers {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let left = processes();
            for pid in left.iter().filter_map(|pid| rustix::process::Pid::from_raw(*pid)) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            if let Some(child) = &mut self.daemon {
                let _ = child.try_wait();
            }
            if left.is_empty() || Instant::now() > until {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        drop(self.daemon.take().map(|mut child| child.wait()));
        let _ = Command::new("ip").args(["netns", "del", NAMESPACE]).status();
        let _ = Command::new("ip").args(["link", "del", "llscn0"]).stderr(Stdio::null()).status();
    }
}

struct Mount(TempDir);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn behind(line: Rate) -> DeclaredBacking {
    let wire = DeclaredPath { link: Some(line), mtu: Some(1500), ..DeclaredPath::default() };
    DeclaredBacking { wire, ..DeclaredBacking::default() }
}

fn over_a_gigabit(seed: u64) -> Sight {
    over_a_wire(seed, Rate(GIGABIT))
}

fn over_a_slow_wire(seed: u64) -> Sight {
    over_a_wire(seed, Rate(GIGABIT / 5.0))
}

fn over_a_wire(seed: u64, line: Rate) -> Sight {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let servers = Servers::with_brick(memory.path(), Some(line));
    let mount = servers.mount();
    let reads = profile(Preset::SeqRead, 8, 6.0);
    let measurement = Measurement::in_directory(mount.0.path(), Bytes(128 * MIB), &reads);
    measurement.declare(behind(line)).seed(seed).take()
}

fn on_a_spindle(seed: u64) -> Sight {
    let volume = Volume::ext4(Physics { seed, ..Physics::spindle() }, "noatime");
    let servers = Servers::with_brick(volume.path(), None);
    let mount = servers.mount();
    let reads = profile(Preset::RandRead, 8, 6.0);
    let measurement = Measurement::in_directory(mount.0.path(), Bytes(64 * MIB), &reads);
    measurement.declare(behind(Rate(10.0 * GIGABIT))).seed(seed).take()
}
