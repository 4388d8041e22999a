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
        "end": end(measured),
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

fn end(measured: &LinkMeasured) -> Value {
    let flows: Vec<(bool, &LinkFlow)> = [(true, &measured.forward), (false, &measured.reverse)]
        .into_iter()
        .filter_map(|(sends, flow)| flow.as_ref().map(|flow| (sends, flow)))
        .collect();
    let streams = flows.iter().flat_map(|(sends, flow)| {
        flow.streams.iter().map(move |stream| {
            let of = |time, bytes, retransmits| {
                let mut row = moved((Seconds(0.0), time), bytes, retransmits, *sends);
                row.insert("socket".into(), json!(stream.id));
                Value::Object(row)
            };
            json!({
                "sender": of(flow.sender_time, stream.sent, stream.retransmits),
                "receiver": of(flow.receiver_time, stream.received, None),
            })
        })
    });
    let mut all = Map::from_iter([("streams".to_owned(), streams.collect())]);
    for ((sends, flow), suffix) in flows.iter().zip(["", "_bidir_reverse"]) {
        let sum = |time, bytes, retransmits| {
            Value::Object(moved((Seconds(0.0), time), bytes, retransmits, *sends))
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
    if let Some(congestion) = flows.first().and_then(|(_, flow)| flow.congestion.clone()) {
        all.insert("sender_tcp_congestion".into(), json!(congestion));
    }
    Value::Object(all)
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
