//! What a person runs: `probe throughput`, `probe serve`, and a daemon that answers peers.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};

use loadline::model::link::LinkMeasured;
use serde_json::Value;

use crate::installed;
use crate::stock::{Stock, stock_client};

/// A host of its own as far as the turn goes: both ends are here, and a host has one.
fn loadline(arguments: &str) -> Option<Command> {
    if !rustix::process::geteuid().is_root() || !installed("unshare") {
        println!("skipped: a turn of its own needs root and unshare");
        return None;
    }
    let binary = env!("CARGO_BIN_EXE_loadline");
    let script = format!("mount -t tmpfs none /run/lock && exec {binary} {arguments}");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).stdin(Stdio::null());
    Some(command)
}

fn throughput(arguments: &str) -> Option<Output> {
    Some(loadline(&format!("probe throughput {arguments}"))?.output().unwrap())
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server; it is up once it says `word`.
fn server(arguments: &str, word: &str) -> Option<(Killed, SocketAddr)> {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let arguments = arguments.replace("ADDRESS", &address.to_string());
    let state = tempfile::tempdir().unwrap();
    let mut command = loadline(&arguments)?;
    command.env("STATE_DIRECTORY", state.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Killed(command.spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains(word))), "{arguments}");
    std::thread::spawn(move || {
        lines.for_each(drop);
        drop(state);
    });
    Some((child, address))
}

#[test]
fn the_table_has_a_row_a_second_and_stream_and_sums() {
    if !installed("iperf3") {
        return;
    }
    let stock = Stock::new(&[]);
    let Some(output) = throughput(&format!("{} -P 2 --bidir -t 2", stock.address)) else { return };
    let table = text(&output);
    let rows = |start: &str| table.lines().filter(|line| line.starts_with(start)).count();
    assert!(rows("[SUM][TX]") >= 4 && rows("[SUM][RX]") >= 4, "{table}");
    for id in [1, 3, 4, 5] {
        assert!(rows(&format!("[  {id}]")) >= 4, "stream {id}:\n{table}");
    }
    assert_eq!(table.lines().filter(|line| line.ends_with("  receiver")).count(), 6, "{table}");
    assert!(table.contains("bits/sec") && table.contains("CPU: here"), "{table}");
}

#[test]
fn documents_are_our_own_or_those_of_iperf3() {
    if !installed("iperf3") {
        return;
    }
    let stock = Stock::new(&[]);
    let ask = |more: &str| throughput(&format!("{} -n 8M {more}", stock.address));
    let Some(own) = ask("--format json") else { return };
    let own: LinkMeasured = serde_json::from_str(&text(&own)).unwrap();
    assert_eq!(own.forward.unwrap().sent.0, 8 << 20);
    let foreign: Value =
        serde_json::from_str(&text(&ask("--bidir --format iperf3-json").unwrap())).unwrap();
    let (_, theirs) = stock_client(stock.address, &["-n", "8M", "--bidir"]);
    for sum in ["sum_sent", "sum_received", "sum_sent_bidir_reverse", "sum_received_bidir_reverse"]
    {
        for (key, value) in theirs["end"][sum].as_object().unwrap() {
            let ours = &foreign["end"][sum][key];
            assert_eq!(ours.is_number(), value.is_number(), "{sum}.{key}: {ours} and {value}");
        }
    }
    for key in ["streams", "cpu_utilization_percent", "sender_tcp_congestion"] {
        assert!(!foreign["end"][key].is_null() && !theirs["end"][key].is_null(), "{key}");
    }
    assert!(foreign["intervals"][0]["sum"]["bytes"].is_u64(), "{foreign}");
}

#[test]
fn a_failure_is_a_word_an_exit_code_and_never_a_number() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Some(output) = throughput(&format!("{nobody} --format iperf3-json")) else { return };
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["error"].is_string() && document["end"]["sum_received"].is_null());
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("refused: "), "{output:?}");
    let unknown = throughput("no..such..host --format iperf3-json").unwrap();
    let document: Value = serde_json::from_slice(&unknown.stdout).unwrap();
    assert!(document["error"].as_str().unwrap().starts_with("no..such..host: "), "{unknown:?}");
    assert!(String::from_utf8_lossy(&unknown.stderr).starts_with("refused: "), "{unknown:?}");
    assert_eq!(unknown.status.code(), Some(1));
    let wrong = throughput(&format!("{nobody} -P 129")).unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

#[test]
fn the_server_by_hand_ends_after_one_test_where_asked() {
    if !installed("iperf3") {
        return;
    }
    let started = server("probe serve --once --listen ADDRESS", "answering");
    let Some((mut child, address)) = started else { return };
    assert_eq!(stock_client(address, &["-t", "1", "-R"]).0, None);
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_daemon_answers_configured_peers_and_no_other() {
    if !installed("iperf3") {
        return;
    }
    let config = tempfile::NamedTempFile::new().unwrap();
    let page = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        "listen: {page}\nguard: {{probes: false}}\npeers: {{listen: \"{address}\", allow: [127.0.0.1]}}\n"
    );
    std::fs::write(config.path(), text).unwrap();
    let arguments = format!("--config {}", config.path().display());
    let Some(_daemon) = server(&arguments, "open") else { return };
    assert_eq!(stock_client(address, &["-t", "1"]).0, None);
    let refused = stock_client(address, &["-t", "1", "-B", "127.0.0.99"]).0.unwrap();
    assert!(refused.contains("authorization"), "{refused}");
}

/// Two hosts and a wire between them.
struct Hosts;

const HOSTS: [&str; 2] = ["loadline-test-a", "loadline-test-b"];

impl Hosts {
    fn new() -> Option<Self> {
        let hosts = Self;
        for line in [
            format!("netns add {}", HOSTS[0]),
            format!("netns add {}", HOSTS[1]),
            format!("link add lta netns {} type veth peer name ltb netns {}", HOSTS[0], HOSTS[1]),
            format!("-n {} addr add 10.96.0.1/24 dev lta", HOSTS[0]),
            format!("-n {} addr add 10.96.0.2/24 dev ltb", HOSTS[1]),
            format!("-n {} link set lta up", HOSTS[0]),
            format!("-n {} link set ltb up", HOSTS[1]),
        ] {
            if !ip(&line) {
                println!("skipped: `ip {line}` is not possible here");
                return None;
            }
        }
        Some(hosts)
    }

    fn on(host: usize, arguments: &str) -> Command {
        let binary = env!("CARGO_BIN_EXE_loadline");
        let script = format!("mount -t tmpfs none /run/lock && exec {binary} probe {arguments}");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", HOSTS[host], "sh", "-c", &script]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in HOSTS {
            ip(&format!("netns del {host}"));
        }
    }
}

fn ip(line: &str) -> bool {
    let status = Command::new("ip").args(line.split(' ')).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn a_wire_that_is_cut_in_a_test_ends_it_on_both_sides() {
    let Some(_hosts) = Hosts::new() else { return };
    let mut serving = Killed(Hosts::on(1, "serve").spawn().unwrap());
    let mut lines = BufReader::new(serving.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("answering"))));
    let mut client = Hosts::on(0, "throughput 10.96.0.2 -t 60").spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("Connected"))));
    assert!(ip(&format!("-n {} link set ltb down", HOSTS[1])));
    lines.for_each(drop);
    let ended = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.starts_with("timeout: "), "{said}");
    assert!(ip(&format!("-n {} link set ltb up", HOSTS[1])));
    crate::until("the slot at the other end", || {
        Hosts::on(0, "throughput 10.96.0.2 -n 1M").output().unwrap().status.success()
    });
}
