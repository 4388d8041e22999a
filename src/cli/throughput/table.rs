//! A link probe for people, in the columns of iperf3: bits decimal, bytes binary.

use std::net::SocketAddr;

use crate::base::units::{Bytes, Rate, Ratio, Seconds};
use crate::model::link::{
    LinkCpu, LinkDirection, LinkFlow, LinkInterval, LinkMeasured, LinkProfile, LinkTick,
};
use crate::model::way::LinkCeiling;

pub(super) fn headline(peer: SocketAddr, profile: &LinkProfile) -> String {
    let what = match profile.direction {
        LinkDirection::Forward => "this host sends",
        LinkDirection::Reverse => "the peer sends",
        LinkDirection::Both => "both send",
    };
    let streams = if profile.streams == 1 {
        "1 stream".into()
    } else {
        format!("{} streams", profile.streams)
    };
    let bytes = profile.bytes_max.map_or(String::new(), |bytes| format!("{bytes}, at most "));
    let omit =
        if profile.omit.0 > 0.0 { format!(" after {}", profile.omit) } else { String::new() };
    format!(
        "Connected to {peer}: {what}, {streams}, {bytes}{}{omit}\n\
         [ ID][Role] Interval           Transfer     Bitrate         Retr  Cwnd          RTT",
        profile.runtime
    )
}

/// A row a stream, and one for their sum where there are several.
pub(super) fn interval(interval: &LinkInterval) -> String {
    let mut lines = Vec::new();
    let span = (interval.start, interval.end);
    for sends in [true, false] {
        let ticks: Vec<&LinkTick> =
            interval.streams.iter().filter(|tick| tick.sends == sends).collect();
        lines.extend(ticks.iter().map(|tick| {
            let name = format!("[{:3}]{}", tick.id, role(sends));
            let mut line = row(&name, span, (tick.bytes, tick.retransmits));
            if let Some(window) = tick.congestion_window {
                let rtt = tick.rtt.map_or(String::new(), |rtt| rtt.to_string());
                line.push_str(&format!("  {:>12}  {rtt}", transfer(window)));
            }
            line
        }));
        if ticks.len() > 1 {
            lines.push(row(&format!("[SUM]{}", role(sends)), span, interval.sum(sends)));
        }
    }
    let omitted = if interval.omitted { "  (omitted)" } else { "" };
    lines.iter().map(|line| format!("{}{omitted}", line.trim_end())).collect::<Vec<_>>().join("\n")
}

/// The sums in one line.
pub(super) fn line(interval: &LinkInterval) -> String {
    let sum = |sends, name: &str| {
        let seen = interval.streams.iter().any(|tick| tick.sends == sends);
        let time = interval.end.0 - interval.start.0;
        seen.then(|| format!("{name} {}", bits(interval.sum(sends).0, Seconds(time))))
    };
    let sums: Vec<String> =
        [sum(true, "sent"), sum(false, "received")].into_iter().flatten().collect();
    format!("{:.0} s   {}", interval.end.0, sums.join("   "))
}

/// `unknown`: why there is no ceiling where there is none.
pub(super) fn results(measured: &LinkMeasured, unknown: &str) -> String {
    let mut lines = vec![
        "- ".repeat(40).trim_end().to_owned(),
        "[ ID][Role] Interval           Transfer     Bitrate         Retr".to_owned(),
    ];
    lines.extend(measured.flows().flat_map(|(sends, flow)| totals(sends, flow)));
    lines.push(String::new());
    for (sends, flow) in measured.flows() {
        lines.extend(about(sends, flow));
        lines.extend(ceiling(sends, flow, unknown));
    }
    lines.push(format!("CPU: here {}, peer {}", cpu(&measured.own_cpu), cpu(&measured.peer_cpu)));
    lines.join("\n")
}

/// Two rows a stream, what was sent and what arrived, and their sums.
fn totals(sends: bool, flow: &LinkFlow) -> Vec<String> {
    let zero = Seconds(0.0);
    let both = |name: &str, sent, received, retransmits| {
        let name = format!("{name}{}", role(sends));
        [
            format!("{}  sender", pad(row(&name, (zero, flow.sender_time), (sent, retransmits)))),
            format!("{}  receiver", pad(row(&name, (zero, flow.receiver_time), (received, None)))),
        ]
    };
    let mut lines: Vec<String> = flow
        .streams
        .iter()
        .flat_map(|s| both(&format!("[{:3}]", s.id), s.sent, s.received, s.retransmits))
        .collect();
    if flow.streams.len() > 1 {
        lines.extend(both("[SUM]", flow.sent, flow.received, flow.retransmits));
    }
    lines
}

fn pad(row: String) -> String {
    format!("{row:<68}")
}

/// What iperf3 has no column for.
fn about(sends: bool, flow: &LinkFlow) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(ratio) = flow.retransmit_ratio {
        parts.push(format!("{:.3} % of bytes sent again", ratio.0 * 100.0));
    }
    if let Some(rtt) = flow.rtt {
        parts.push(format!("round trip min {}, median {}, p99 {}", rtt.min, rtt.median, rtt.p99));
    }
    let share = |what: &str, ratio: Option<Ratio>| ratio.map(|ratio| format!("{what} {ratio}"));
    parts.extend(share("busy", flow.busy));
    parts.extend(share("held back by the receiver's window", flow.rwnd_limited));
    parts.extend(share("by the send buffer", flow.sndbuf_limited));
    parts.extend(flow.congestion.clone());
    let way = if sends { "to the peer" } else { "from the peer" };
    if parts.is_empty() { Vec::new() } else { vec![format!("{way}: {}", parts.join(", "))] }
}

/// What the way carries in that direction, and how much of it was used.
fn ceiling(sends: bool, flow: &LinkFlow, unknown: &str) -> Option<String> {
    let way = if sends { "to the peer" } else { "from the peer" };
    let Some(LinkCeiling { rate, share, source, .. }) = &flow.ceiling else {
        return (!unknown.is_empty()).then(|| format!("{way}: ceiling unknown: {unknown}"));
    };
    let used = match share {
        Some(share) => format!("{share} of it"),
        None => "less than what arrived, so it is none".into(),
    };
    Some(format!("{way}: ceiling {} ({source}), {used}", rate.bits()))
}

fn cpu(cpu: &LinkCpu) -> String {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    format!("{} (user {}, system {})", percent(cpu.total), percent(cpu.user), percent(cpu.system))
}

fn role(sends: bool) -> &'static str {
    if sends { "[TX] " } else { "[RX] " }
}

fn row(name: &str, span: (Seconds, Seconds), moved: (Bytes, Option<u64>)) -> String {
    let ((start, end), (bytes, retransmits)) = (span, moved);
    let span = format!("{:.2}-{:.2}", start.0, end.0);
    let retransmits = retransmits.map_or(String::new(), |n| n.to_string());
    format!(
        "{name} {span:>12} sec  {:>12}  {:>14}  {retransmits:>4}",
        transfer(bytes),
        bits(bytes, Seconds(end.0 - start.0))
    )
}

/// `1.10 GBytes`, binary.
fn transfer(bytes: Bytes) -> String {
    scaled(bytes.0 as f64, 1024.0, "Bytes")
}

/// `9.41 Gbits/sec`, decimal.
fn bits(bytes: Bytes, time: Seconds) -> String {
    let rate = if time.0 > 0.0 { Rate(bytes.0 as f64 / time.0) } else { Rate(0.0) };
    scaled(rate.0 * 8.0, 1000.0, "bits/sec")
}

/// Three digits, as iperf3 writes them.
fn scaled(mut value: f64, step: f64, unit: &str) -> String {
    let mut prefix = "";
    for next in ["K", "M", "G", "T"] {
        if value < step {
            break;
        }
        value /= step;
        prefix = next;
    }
    let digits = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_decimal_and_bytes_binary_as_iperf3_has_them() {
        assert_eq!(transfer(Bytes(1 << 30)), "1.00 GBytes");
        assert_eq!(transfer(Bytes(131_072)), "128 KBytes");
        assert_eq!(bits(Bytes(117_684_907), Seconds(1.0)), "941 Mbits/sec");
        assert_eq!(bits(Bytes(1_176_849_070), Seconds(1.0)), "9.41 Gbits/sec");
        assert_eq!(bits(Bytes(1), Seconds(0.0)), "0.00 bits/sec");
    }

    #[test]
    fn a_ceiling_is_told_with_its_share_or_why_there_is_none() {
        let of = |share| {
            let (line, rate, source) = (Rate(125e6), Rate(113_621_586.0), "eth0".into());
            let ceiling = Some(LinkCeiling { line, rate, share, declared: false, source });
            ceiling_of(&LinkFlow { ceiling, ..LinkFlow::default() })
        };
        fn ceiling_of(flow: &LinkFlow) -> String {
            ceiling(true, flow, "no route").unwrap()
        }
        assert_eq!(
            of(Some(Ratio(0.9989))),
            "to the peer: ceiling 908.97 Mbit/s (eth0), 99.9 % of it"
        );
        assert!(of(None).ends_with("so it is none"));
        assert_eq!(ceiling_of(&LinkFlow::default()), "to the peer: ceiling unknown: no route");
    }

    #[test]
    fn several_streams_have_a_sum_in_each_direction() {
        let tick = |id, sends, bytes| LinkTick {
            id,
            sends,
            bytes: Bytes(bytes),
            retransmits: sends.then_some(1),
            ..LinkTick::default()
        };
        let text = interval(&LinkInterval {
            start: Seconds(0.0),
            end: Seconds(1.0),
            omitted: false,
            streams: vec![
                tick(1, true, 125_000_000),
                tick(3, true, 125_000_000),
                tick(4, false, 250_000_000),
            ],
        });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[2].starts_with("[SUM][TX]") && lines[2].contains("2.00 Gbits/sec"), "{text}");
        assert!(lines[2].ends_with("   2"), "{text}");
        assert!(
            lines[3].starts_with("[  4][RX]") && lines[3].ends_with("2.00 Gbits/sec"),
            "{text}"
        );
    }
}
