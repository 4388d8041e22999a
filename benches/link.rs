//! Link probes beside iperf3: both ends loadline's, then both ends iperf3's, in turns.
//!
//! `cargo bench --bench link`, as root; `-- loopback`, `-- veth` or `-- gigabit` for one wire. Ratios of throughput and of CPU per byte of both ends
//! together, medians of alternating runs, the same congestion control, default settings otherwise.
//! Never part of CI: on a machine with other work its figures say little.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use loadline::base::stats::median;
use serde_json::Value;

const ROUNDS: usize = 5;
const SECONDS: &str = "3";
const PORT: &str = "5399";
const NAMESPACES: [&str; 2] = ["loadline-bench-a", "loadline-bench-b"];

fn main() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: namespaces of its own need root");
        return;
    }
    if run("iperf3", &["--version"]).is_none() {
        println!("skipped: iperf3 is not installed");
        return;
    }
    println!("| wire | streams | direction | throughput | CPU per byte | loadline | iperf3 |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let named: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |wire: &Wire| named.is_empty() || named.iter().any(|name| wire.name() == name);
    for wire in [Wire::Loopback, Wire::Veth, Wire::Gigabit].into_iter().filter(wanted) {
        let Some(_held) = wire.lay() else {
            println!("skipped: {}: no namespaces here", wire.name());
            continue;
        };
        for streams in ["1", "4"] {
            for reverse in [false, true] {
                row(wire, streams, reverse);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Wire {
    Loopback,
    /// Two namespaces.
    Veth,
    /// The same, shaped to 1 Gbit/s of Ethernet.
    Gigabit,
}

impl Wire {
    fn name(self) -> &'static str {
        match self {
            Wire::Loopback => "loopback",
            Wire::Veth => "veth",
            Wire::Gigabit => "gigabit",
        }
    }

    fn server(self) -> &'static str {
        if self == Wire::Loopback { "127.0.0.1" } else { "10.97.0.2" }
    }

    fn lay(self) -> Option<Laid> {
        if self == Wire::Loopback {
            return Some(Laid(false));
        }
        let [a, b] = NAMESPACES;
        let laid = Laid(true);
        let ip = |line: &str| run("ip", &line.split(' ').collect::<Vec<_>>());
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("link add lla netns {a} type veth peer name llb netns {b}"))?;
        for (namespace, link, address) in [(a, "lla", "10.97.0.1/24"), (b, "llb", "10.97.0.2/24")] {
            ip(&format!("-n {namespace} addr add {address} dev {link}"))?;
            ip(&format!("-n {namespace} link set {link} up"))?;
            if self == Wire::Gigabit {
                shape(namespace, link)?;
            }
        }
        Some(laid)
    }
}

/// 1 Gbit/s with Ethernet's 24 bytes a packet beyond the frame: whole frames of 1514 of 1538 bytes.
fn shape(namespace: &str, link: &str) -> Option<()> {
    // One packet a buffer: the shaper counts a larger one's headers once.
    run("ip", &["-n", namespace, "link", "set", link, "gso_max_segs", "1"])?;
    let tbf = ["-n", namespace, "qdisc", "add", "dev", link, "root", "tbf"];
    let rate = ["rate", "984395kbit", "burst", "64kb", "latency", "5ms"];
    run("tc", &[&tbf[..], &rate].concat()).map(|_| ())
}

/// Namespaces that are gone with it.
struct Laid(bool);

impl Drop for Laid {
    fn drop(&mut self) {
        if self.0 {
            for namespace in NAMESPACES {
                run("ip", &["netns", "del", namespace]);
            }
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then_some(output)
}

/// Gigabits a second, and CPU seconds a gigabyte.
#[derive(Clone, Copy)]
struct Cost {
    rate: f64,
    cpu: f64,
}

fn row(wire: Wire, streams: &str, reverse: bool) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(measure(wire, true, streams, reverse));
        theirs.push(measure(wire, false, streams, reverse));
    }
    let ratio = |of: fn(&Cost) -> f64| {
        median(&ours.iter().zip(&theirs).map(|(a, b)| of(a) / of(b)).collect::<Vec<_>>()).unwrap()
    };
    let middle = |all: &[Cost]| {
        let of = |f: fn(&Cost) -> f64| median(&all.iter().map(f).collect::<Vec<_>>()).unwrap();
        format!("{:.2} Gbit/s, {:.0} ms/GB", of(|c| c.rate), of(|c| c.cpu) * 1e3)
    };
    println!(
        "| {} | {streams} | {} | {:.3} | {:.2} | {} | {} |",
        wire.name(),
        if reverse { "reverse" } else { "forward" },
        ratio(|c| c.rate),
        ratio(|c| c.cpu),
        middle(&ours),
        middle(&theirs)
    );
}

/// CPU seconds of the children that were waited for: both ends, and the shells before them.
fn children_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: f64 = fields[13].parse::<f64>().unwrap() + fields[14].parse::<f64>().unwrap();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// In the namespace, and without the other end's turn: a host has one, and here are two hosts.
fn on_host(wire: Wire, host: usize, line: &str) -> Command {
    let script = format!("mount -t tmpfs none /run/lock && exec {line}");
    let mut command = if wire == Wire::Loopback {
        let mut unshare = Command::new("unshare");
        unshare.arg("-m");
        unshare
    } else {
        let mut ip = Command::new("ip");
        ip.args(["netns", "exec", NAMESPACES[host]]);
        ip
    };
    command.args(["sh", "-c", &script]).stderr(Stdio::inherit());
    command
}

fn measure(wire: Wire, ours: bool, streams: &str, reverse: bool) -> Cost {
    let binary = env!("CARGO_BIN_EXE_loadline");
    let address = wire.server();
    let before = children_cpu();
    let server = if ours {
        format!("{binary} probe serve --once --listen {address}:{PORT}")
    } else {
        format!("iperf3 -s -1 --forceflush -p {PORT}")
    };
    let mut server = on_host(wire, 1, &server).stdout(Stdio::piped()).spawn().unwrap();
    let _lines = listening(&mut server);
    let options = format!("-P {streams} -t {SECONDS} -C cubic{}", if reverse { " -R" } else { "" });
    let client = if ours {
        format!("{binary} probe throughput {address}:{PORT} {options} --format iperf3-json")
    } else {
        format!("iperf3 -J -c {address} -p {PORT} {options}")
    };
    let output = on_host(wire, 0, &client).output().unwrap();
    server.wait().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{client}: {error}: {output:?}"));
    let received = &document["end"]["sum_received"];
    let bytes = received["bytes"].as_f64().unwrap_or_else(|| panic!("{client}: {document}"));
    Cost {
        rate: received["bits_per_second"].as_f64().unwrap() / 1e9,
        cpu: (children_cpu() - before) / (bytes / 1e9),
    }
}

/// Waits for the first word that a server listens; what it prints further has a reader as long as
/// the result is kept.
fn listening(server: &mut Child) -> Lines<BufReader<ChildStdout>> {
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let up = lines.any(|l| l.is_ok_and(|l| l.contains("listening") || l.contains("answering")));
    assert!(up, "the server did not start");
    // It says so a moment before it does.
    std::thread::sleep(Duration::from_millis(100));
    lines
}
