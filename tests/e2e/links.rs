//! Links to peers: what a test by hand and a report tell of a wire whose rate is known.

use serde_json::Value;

use crate::Promise;
use crate::harness::{BINARY, Ran, disk_dir, loadline};
use crate::hosts::{Host, on_a_gigabit};

const NEEDS: &[&str] = &["ip", "tc", "ss", "ethtool", "iperf3"];

pub const PROMISES: &[Promise] = &[
    Promise::new("a_throughput_test_tells_the_ceiling_of_its_way_and_its_share", by_hand)
        .needs(NEEDS)
        .root()
        .alone(),
    Promise::new("a_report_fills_the_links_to_its_peers_and_names_a_dead_one", reported)
        .needs(NEEDS)
        .root()
        .alone(),
];

/// 1 Gbit/s with a VXLAN on it.
const CEILING: &str = "908.97";
const SOURCE: &str = "tbf on n99x, 984.39 Mbit/s, VXLAN, MTU 1500";

/// On a host that has its turn for itself.
fn on(host: &Host, arguments: &str) -> Ran {
    let script = format!("mount -t tmpfs none /run/lock && exec {BINARY} {arguments}");
    let output = host.command("sh -c").arg(script).output().unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn mbit(rate: &Value) -> String {
    format!("{:.2}", rate.as_f64().unwrap() * 8.0 / 1e6)
}

fn by_hand() {
    let [host, mut server] = on_a_gigabit();
    server.serve();
    let ran = on(&host, "probe throughput 10.98.0.2 -P 2 -t 1s --format json");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let measured: Value = serde_json::from_str(&ran.out).unwrap();
    let (flow, ceiling) = (&measured["forward"], &measured["forward"]["ceiling"]);
    assert_eq!(mbit(&ceiling["bytes_per_second"]), CEILING, "{measured:#}");
    assert_eq!(ceiling["source"], SOURCE);
    let number = |value: &Value| value.as_f64().unwrap();
    let rate = number(&flow["received"]) / number(&flow["receiver_time"]);
    let share = rate / number(&ceiling["bytes_per_second"]);
    assert!((number(&ceiling["share"]) - share).abs() < 1e-6 && share < 1.02, "{share}");

    let table = on(&host, "probe throughput 10.98.0.2 -t 1s --bidir").out;
    let told = format!("to the peer: ceiling {CEILING} Mbit/s ({SOURCE}), ");
    assert!(table.contains(&told) && table.contains(" % of it"), "{table}");
    assert!(table.contains("from the peer: ceiling unknown: n99x: its other end is in"), "{table}");
    let declared = on(&host, "probe throughput 10.98.0.2 -t 1s -R --path link=1Gbit").out;
    let told = format!("from the peer: ceiling {CEILING} Mbit/s (declared 1 Gbit/s, VXLAN, ");
    assert!(declared.contains(&told), "{declared}");
}

fn reported() {
    let [host, mut server] = on_a_gigabit();
    server.serve();
    let peers = "--peer 10.98.0.2 --peer 10.98.0.2:5299";
    let ran = on(&host, &format!("report {peers} --runtime 1s --format json"));
    assert_eq!(ran.code, Some(1), "not all that was asked for is there: {}", ran.err);
    for told in ["2/6  from 10.98.0.2, 4 streams: ", "to 10.98.0.2:5299, 4 streams: refused: "] {
        assert!(ran.err.contains(told), "`{told}` is missing in {}", ran.err);
    }
    let judged: Value = serde_json::from_str(&ran.out).unwrap();
    let runs = judged["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    let expected =
        ["to 10.98.0.2, 4 streams", "from 10.98.0.2, 4 streams", "to 10.98.0.2, 1 stream"];
    assert_eq!(names, expected);
    for run in runs {
        let evidence = &run["verdict"]["evidence"];
        assert_eq!(run["kind"], "throughput");
        assert!(run["bytes_per_second"].as_f64().unwrap() > 1e6, "{run:#}");
        assert!(evidence["second_leg"]["rate_per_second"].as_f64().unwrap() > 1e6, "{run:#}");
        let sent = run["name"].as_str().unwrap().starts_with("to ");
        assert_eq!(evidence["link"]["line"]["source"] == SOURCE, sent, "{run:#}");
        let limited = run["verdict"]["limit"] == "link" && sent;
        let ceiling = &run["verdict"]["ceiling"]["value"];
        assert!(!limited || mbit(ceiling) == CEILING, "{run:#}");
    }

    let state = disk_dir();
    let saved = state.path().join("saved.json");
    std::fs::write(&saved, &ran.out).unwrap();
    let saved = saved.display().to_string();
    let again = loadline(&["report", "--from", &saved, "--format", "json"], state.path());
    assert_eq!((again.code, &again.out), (Some(0), &ran.out), "judged again as it was");
}
