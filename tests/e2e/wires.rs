//! Hosts that are network namespaces on one switch, and daemons in them that this machine reaches.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::{BINARY, Page, disk_dir, must, until};
use crate::hosts::{Host, shape};

/// This machine as one of the hosts.
pub const HERE: &str = "254";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A switch with a link to each host, and one to this machine, to look at their pages.
pub struct Wires {
    id: u32,
    hub: Host,
    hosts: BTreeMap<&'static str, Host>,
    /// Of configurations and states.
    dir: TempDir,
}

impl Wires {
    /// Hosts by the last number of their addresses, without this one; what each link lets through in
    /// bits a second of one direction, with Ethernet's headers.
    pub fn between(hosts: &[&'static str], line_bits: f64) -> Self {
        let id = std::process::id() + COUNT.fetch_add(1, Ordering::Relaxed);
        let hub = Host::namespace();
        hub.run("ip link add hub type bridge");
        hub.run("ip link set hub up");
        let hosts = hosts.iter().map(|name| (*name, Host::namespace())).collect();
        let wires = Self { id, hub, hosts, dir: disk_dir() };
        let hub = &wires.hub.name;
        let bucket = format!("tbf rate {line_bits} burst 32kb latency 20ms");
        for (name, host) in &wires.hosts {
            host.run(&format!("ip link add eth0 type veth peer name to{name} netns {hub}"));
            host.run(&format!("ip addr add {}/24 dev eth0", wires.address(name)));
            wires.plug(name);
            host.run("ip link set eth0 up");
            shape(host, "eth0", &bucket);
            shape(&wires.hub, &format!("to{name}"), &bucket);
        }
        let own = format!("llp{}", wires.id);
        ip(&format!("link add {own} type veth peer name toroot netns {hub}"));
        ip(&format!("addr add {}/24 dev {own}", wires.address(HERE)));
        ip(&format!("link set {own} up"));
        wires.plug("root");
        wires
    }

    fn plug(&self, name: &str) {
        self.hub.run(&format!("ip link set to{name} master hub"));
        self.hub.run(&format!("ip link set to{name} up"));
    }

    /// In the range for benchmarks (RFC 2544), which nobody routes.
    pub fn address(&self, name: &str) -> String {
        format!("198.18.{}.{name}", self.id % 250)
    }

    /// Where a daemon's page is.
    pub fn endpoint(&self, host: &str) -> String {
        format!("{}:9847", self.address(host))
    }

    /// Runs the daemon on a host, with its configuration, and waits until it answers.
    pub fn daemon(&self, host: &str, config: &str, flags: &str) -> Inside {
        let file = self.dir.path().join(format!("{host}.yml"));
        std::fs::write(&file, config).unwrap();
        let (file, listen) = (file.display(), self.endpoint(host));
        let command = format!("{BINARY} --config {file} --listen {listen} {flags}");
        let mut daemon = self.run(host, &command);
        until("the daemon to be ready", || {
            let ended = daemon.0.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon on {host} did not start: {ended:?}");
            self.page(host)
        });
        daemon
    }

    /// The host's turn is a lock under /run/lock: each host has its own.
    pub fn run(&self, host: &str, command: &str) -> Inside {
        let state = self.dir.path().join(host);
        let script = format!("mount -t tmpfs none /run/lock && exec {command}");
        let mut shell = match host {
            HERE => Command::new("unshare"),
            host => self.hosts[host].command("unshare"),
        };
        shell.args(["--mount", "sh", "-c", &script]).env("STATE_DIRECTORY", state);
        Inside(shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Flags for a /proc without CPU and pressure, where load of others keeps no test from its slot, and
    /// whose first process is in the reader's network.
    pub fn quiet(&self) -> String {
        let proc = self.dir.path().join("proc");
        std::fs::create_dir(&proc).unwrap();
        for (name, source) in
            [("diskstats", "diskstats"), ("self", "self"), ("1", "self"), ("sys", "sys")]
        {
            std::os::unix::fs::symlink(Path::new("/proc").join(source), proc.join(name)).unwrap();
        }
        format!("--path.procfs {}", proc.display())
    }

    pub fn page(&self, host: &str) -> Option<Page> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .build()
            .into();
        let url = format!("http://{}/metrics", self.endpoint(host));
        let text = agent.get(&url).call().ok()?.body_mut().read_to_string().ok()?;
        Some(Page::parse(text))
    }
}

fn ip(arguments: &str) {
    must("ip", &arguments.split_whitespace().collect::<Vec<_>>());
}

/// A process on a host; killed when dropped.
pub struct Inside(Child);

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
