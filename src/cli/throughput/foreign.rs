//! The document that `iperf3 -J` writes, for whoever has a reader of it already.

use serde_json::{Map, Value, json};

use crate::base::units::{Bytes, Seconds};
use crate::iperf::parameters::block;
use crate::model::link::{LinkFault, LinkFlow, LinkInterval, LinkMeasured, LinkTick};

pub(super) fn document(
    measured: &LinkMeasured,
    intervals: &[LinkInterval],
    began_at: f64,
) -> String {
    let document = json!({
        "start": start(measured, began_at),
        "intervals": intervals.iter().map(interval).collect::<Vec<_>>(),
        "end": end(measured, intervals),
    });
    format!("{document:#}")
}

/// As stock iperf3 has it: readers look for the key before anything else.
pub(super) fn error(fault: &LinkFault) -> String {
    format!("{:#}", json!({ "start": {}, "intervals": [], "end": {}, "error": fault.text }))
}

fn start(measured: &LinkMeasured, began_at: f64) -> Value {
    let profile = &measured.profile;
    let (host, port) = measured.peer.rsplit_once(':').unwrap_or((&measured.peer, ""));
    json!({
        "version": concat!("loadline ", env!("CARGO_PKG_VERSION")),
        "timestamp": { "timesecs": began_at as u64 },
        "tcp_mss_default": measured.flows().find_map(|(_, flow)| flow.mss).map_or(0, |mss| mss.0),
        "sock_bufsize": profile.window.map_or(0, |window| window.0),
        "connecting_to": { "host": host, "port": port.parse::<u16>().unwrap_or(0) },
        "test_start": {
            "protocol": "TCP",
            "num_streams": profile.streams,
            "blksize": block(profile),
            "omit": profile.omit.0,
            "duration": profile.runtime.0,
            "bytes": profile.bytes_max.map_or(0, |bytes| bytes.0),
            "blocks": 0,
            "reverse": i32::from(!profile.direction.forward()),
            "bidir": i32::from(profile.direction.forward() && profile.direction.reverse()),
            "tos": profile.type_of_service,
        },
    })
}

fn interval(interval: &LinkInterval) -> Value {
    let span = (interval.start, interval.end);
    let streams: Vec<Value> = interval
        .streams
        .iter()
        .map(|tick| {
            let mut row = moved(span, tick.bytes, tick.retransmits, tick.sends);
            row.insert("socket".into(), json!(tick.id));
            row.insert("omitted".into(), json!(interval.omitted));
            sender_only(&mut row, tick);
            Value::Object(row)
        })
        .collect();
    let mut all = Map::from_iter([("streams".to_owned(), json!(streams))]);
    let directions = [true, false];
    let present = directions.into_iter().filter(|s| interval.streams.iter().any(|t| t.sends == *s));
    for (key, sends) in ["sum", "sum_bidir_reverse"].into_iter().zip(present) {
        let (bytes, retransmits) = interval.sum(sends);
        let mut sum = moved(span, bytes, retransmits, sends);
        sum.insert("omitted".into(), json!(interval.omitted));
        all.insert(key.into(), Value::Object(sum));
    }
    Value::Object(all)
}

fn sender_only(row: &mut Map<String, Value>, tick: &LinkTick) {
    if let Some(window) = tick.congestion_window {
        row.insert("snd_cwnd".into(), json!(window.0));
    }
    if let Some(rtt) = tick.rtt {
        row.insert("rtt".into(), json!((rtt.0 * 1e6) as u64));
    }
}

fn end(measured: &LinkMeasured, intervals: &[LinkInterval]) -> Value {
    let streams = measured.flows().flat_map(|(sends, flow)| {
        flow.streams.iter().map(move |stream| {
            let of = |time, bytes, retransmits| {
                let mut row = moved((Seconds(0.0), time), bytes, retransmits, sends);
                row.insert("socket".into(), json!(stream.id));
                row
            };
            let mut sender = of(flow.sender_time, stream.sent, stream.retransmits);
            if let Some(rtt) = mean_rtt(flow, stream.id, intervals) {
                sender.insert("mean_rtt".into(), json!((rtt.0 * 1e6).round() as u64));
            }
            let receiver = of(flow.receiver_time, stream.received, None);
            json!({ "sender": sender, "receiver": receiver })
        })
    });
    let mut all = Map::from_iter([("streams".to_owned(), streams.collect())]);
    for ((sends, flow), suffix) in measured.flows().zip(["", "_bidir_reverse"]) {
        let sum = |time, bytes, retransmits| {
            Value::Object(moved((Seconds(0.0), time), bytes, retransmits, sends))
        };
        all.insert(format!("sum_sent{suffix}"), sum(flow.sender_time, flow.sent, flow.retransmits));
        all.insert(format!("sum_received{suffix}"), sum(flow.receiver_time, flow.received, None));
    }
    let (own, peer) = (&measured.own_cpu, &measured.peer_cpu);
    all.insert(
        "cpu_utilization_percent".into(),
        json!({
            "host_total": own.total * 100.0,
            "host_user": own.user * 100.0,
            "host_system": own.system * 100.0,
            "remote_total": peer.total * 100.0,
            "remote_user": peer.user * 100.0,
            "remote_system": peer.system * 100.0,
        }),
    );
    if let Some(congestion) = measured.flows().next().and_then(|(_, flow)| flow.congestion.clone())
    {
        all.insert("sender_tcp_congestion".into(), json!(congestion));
    }
    Value::Object(all)
}

/// Of a stream's intervals, as iperf3 takes it. A peer that sends tells the median of all its streams.
fn mean_rtt(flow: &LinkFlow, id: u32, intervals: &[LinkInterval]) -> Option<Seconds> {
    let counted = intervals.iter().filter(|interval| !interval.omitted);
    let ticks = counted.flat_map(|interval| &interval.streams).filter(|tick| tick.id == id);
    let times: Vec<f64> = ticks.filter_map(|tick| tick.rtt.map(|rtt| rtt.0)).collect();
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    if times.is_empty() { flow.rtt.map(|rtt| rtt.median) } else { Some(Seconds(mean)) }
}

fn moved(
    (start, end): (Seconds, Seconds),
    bytes: Bytes,
    retransmits: Option<u64>,
    sends: bool,
) -> Map<String, Value> {
    let seconds = end.0 - start.0;
    let rate = if seconds > 0.0 { bytes.0 as f64 * 8.0 / seconds } else { 0.0 };
    let mut row = Map::from_iter([
        ("start".to_owned(), json!(start.0)),
        ("end".to_owned(), json!(end.0)),
        ("seconds".to_owned(), json!(seconds)),
        ("bytes".to_owned(), json!(bytes.0)),
        ("bits_per_second".to_owned(), json!(rate)),
        ("sender".to_owned(), json!(sends)),
    ]);
    if let Some(retransmits) = retransmits {
        row.insert("retransmits".into(), json!(retransmits));
    }
    row
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::base::units::Ratio;
    use crate::cli::import::iperf3;
    use crate::model::link::{
        LinkCpu, LinkDirection, LinkProfile, LinkReason, LinkRtt, LinkStream,
    };

    fn measured(direction: LinkDirection) -> LinkMeasured {
        let stream =
            |id| LinkStream { id, sent: Bytes(700), received: Bytes(600), retransmits: Some(3) };
        let time = |ms: f64| Seconds(ms / 1e3);
        let flow = LinkFlow {
            sent: Bytes(1400),
            sender_time: Seconds(2.0),
            received: Bytes(1200),
            receiver_time: Seconds(2.5),
            retransmits: Some(6),
            rtt: Some(LinkRtt { min: time(1.0), median: time(4.0), p99: time(9.0) }),
            mss: Some(Bytes(1398)),
            streams: vec![stream(1), stream(3)],
            ..LinkFlow::default()
        };
        let window = Some(Bytes(65536));
        let profile = LinkProfile { direction, window, ..LinkProfile::plain(2, Seconds(2.0)) };
        let cpu = |total| LinkCpu { total, user: 0.0, system: total };
        LinkMeasured {
            peer: "10.0.0.2:5201".into(),
            profile,
            forward: direction.forward().then(|| flow.clone()),
            reverse: direction.reverse().then_some(flow),
            own_cpu: cpu(0.5),
            peer_cpu: cpu(1.5),
            identity: None,
        }
    }

    #[test]
    fn what_is_written_is_read_again_as_it_was_measured() {
        let tick = |omitted, rtt| LinkInterval {
            start: Seconds(0.0),
            end: Seconds(1.0),
            omitted,
            streams: [1, 3]
                .map(|id| LinkTick { id, sends: true, rtt, ..LinkTick::default() })
                .into(),
        };
        let ticks = [(true, 50.0), (false, 1.0), (false, 3.0)]
            .map(|(omitted, ms)| tick(omitted, Some(Seconds(ms / 1e3))));
        for (direction, intervals, rtt) in [
            (LinkDirection::Forward, &ticks[..], Seconds(0.002)),
            (LinkDirection::Reverse, &[], Seconds(0.004)),
        ] {
            let text = document(&measured(direction), intervals, 0.0);
            let run = iperf3::parse(Path::new("a.json"), text.as_bytes()).unwrap();
            assert_eq!(run.name, "10.0.0.2, 2 streams");
            let (facts, link) = (&run.facts, &run.facts.link);
            assert_eq!(facts.bytes(), Some(480.0), "{text}");
            assert_eq!(facts.cpu.busiest_ratio, Some(Ratio(0.75)), "a thread a stream");
            assert_eq!((facts.depth, facts.duration_seconds), (Some(2.0), Some(Seconds(2.5))));
            assert_eq!(link.segment_payload_bytes, Some(Bytes(1398)));
            assert_eq!((link.round_trip_seconds, link.retransmits), (Some(rtt), Some(6)));
            assert_eq!(link.window_bytes, Some(Bytes(65536)));
        }
    }

    #[test]
    fn what_has_no_one_rate_is_refused_when_it_is_read_again() {
        let read = |text: &str| iperf3::parse(Path::new("a"), text.as_bytes()).unwrap_err().text;
        let both = document(&measured(LinkDirection::Both), &[], 0.0);
        assert!(read(&both).contains("both directions"), "{}", read(&both));
        let failed = error(&LinkFault::new(LinkReason::Busy, "busy with another test"));
        assert_eq!(read(&failed), "a: iperf3 ended with: busy with another test");
    }
}
