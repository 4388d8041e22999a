//! Hosts that are network namespaces, and wires between them.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A wire of a gigabit, where a token bucket counts 24 bytes less of each frame.
pub const GIGABIT: &str = "tbf rate 984395kbit burst 128kb latency 5ms";
const VXLAN_PORT: u16 = 4789;
/// How often what waits looks whether it should end.
const LOOK: Duration = Duration::from_millis(20);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A network namespace; gone when dropped, with everything that runs in it.
pub struct Host {
    pub name: String,
    children: Vec<Child>,
}

impl Host {
    pub fn namespace() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("llhost{}-{number}", std::process::id());
        run(&format!("ip netns add {name}"));
        let host = Self { name, children: Vec::new() };
        host.run("ip link set lo up");
        host
    }

    /// Runs a command in it.
    pub fn run(&self, words: &str) {
        run(&format!("ip netns exec {} {words}", self.name));
    }

    pub fn command(&self, words: &str) -> Command {
        command(&format!("ip netns exec {} {words}", self.name))
    }

    /// Starts one that ends with the host.
    pub fn start(&mut self, words: &str) {
        let child = self.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.children.push(child.unwrap());
    }

    /// A stock server at port 5201, up by the time that this returns.
    pub fn serve(&mut self) {
        self.start("iperf3 -s");
        let begun = Instant::now();
        let listens = || {
            let output = self.command("ss -Hltn sport = :5201").output().unwrap();
            !output.stdout.is_empty()
        };
        while !listens() {
            assert!(begun.elapsed() < Duration::from_secs(20), "iperf3 doesn't listen");
            std::thread::park_timeout(LOOK);
        }
    }

    /// What `look` gives on a thread of this host: its sockets are the namespace's.
    pub fn inside<T: Send>(&self, look: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter();
                    look()
                })
                .join()
                .unwrap()
        })
    }

    fn enter(&self) {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.name)).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = command(&format!("ip netns del {}", self.name)).status();
    }
}

/// A cable between two hosts, with an address of 10.NET.0.1 and one of 10.NET.0.2 at its ends.
pub fn cable(one: &Host, other: &Host, net: u8) {
    let ends = [(one, format!("n{net}x"), 1), (other, format!("n{net}y"), 2)];
    let [(_, x, _), (_, y, _)] = &ends;
    let (a, b) = (&one.name, &other.name);
    run(&format!("ip link add {x} netns {a} type veth peer name {y} netns {b}"));
    for (host, device, end) in &ends {
        host.run(&format!("ip addr add 10.{net}.0.{end}/24 dev {device}"));
        host.run(&format!("ip link set {device} up"));
    }
}

/// What is sent over a device is shaped. The kernel counts the headers of each frame in what it hands
/// to a device as one (net/core/dev.c, qdisc_pkt_len_init).
pub fn shape(host: &Host, device: &str, bucket: &str) {
    host.run(&format!("tc qdisc add dev {device} root {bucket}"));
}

/// A VXLAN on a device, as 10.NET.0.END.
pub fn vxlan(host: &Host, (device, remote): (&str, &str), (net, end): (u8, u8)) {
    let port = VXLAN_PORT;
    let name = format!("vx{net}");
    host.run(&format!(
        "ip link add {name} type vxlan id 42 dev {device} remote {remote} dstport {port}"
    ));
    host.run(&format!("ip addr add 10.{net}.0.{end}/24 dev {name}"));
    host.run(&format!("ip link set {name} up"));
}

/// Two hosts on a wire of one gigabit, 10.99.0.1 and 10.99.0.2, with a VXLAN on it, 10.98.0.1 and
/// 10.98.0.2.
pub fn on_a_gigabit() -> [Host; 2] {
    let [a, b] = [Host::namespace(), Host::namespace()];
    cable(&a, &b, 99);
    for (host, device, end) in [(&a, "n99x", 1), (&b, "n99y", 2)] {
        shape(host, device, GIGABIT);
        vxlan(host, (device, &format!("10.99.0.{}", 3 - end)), (98, end));
    }
    [a, b]
}

/// Holds each packet of a VXLAN for a while: both hosts of it send to the one in the middle.
pub struct Delay {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Delay {
    /// On `host`, between two addresses of other hosts.
    pub fn on(host: &Host, ends: [&str; 2], delay: Duration) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let socket = host.inside(|| UdpSocket::bind(("0.0.0.0", VXLAN_PORT)).unwrap());
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let sending = socket.try_clone().unwrap();
        let ends = ends.map(|end| SocketAddr::new(end.parse().unwrap(), VXLAN_PORT));
        let (put, take) = channel::<(Instant, SocketAddr, Vec<u8>)>();
        let ended = Arc::clone(&over);
        let receive = move || {
            let mut buffer = [0; 2048];
            while !ended.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                let to = if from.ip() == ends[0].ip() { ends[1] } else { ends[0] };
                let _ = put.send((Instant::now() + delay, to, buffer[..length].to_vec()));
            }
        };
        let send = move || {
            for (due, to, packet) in take {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let _ = sending.send_to(&packet, to);
            }
        };
        Self { over, threads: vec![std::thread::spawn(receive), std::thread::spawn(send)] }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn command(words: &str) -> Command {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null());
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

fn run(words: &str) {
    let output = command(words).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}
