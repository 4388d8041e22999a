//! iperf3's JSON (`iperf3 -J`), of any version from 3.1 on, and what loadline writes in its place.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{document, json, malformed, number, some, text};
use crate::base::fault::Fault;
use crate::base::units::{Bytes, Rate, Ratio, Seconds};
use crate::judge::facts::{CpuFacts, Facts, LinkFacts, Run, Subject};

/// From here on each stream has a thread of its own.
const THREADED: (u32, u32) = (3, 16);

/// The run that iperf3's `bytes` hold; `path` names them in complaints.
pub(in crate::cli) fn parse(path: &Path, bytes: &[u8]) -> Result<Run, Fault> {
    let (file, behind) = json(path, bytes)?;
    // iperf3 ends with 0 after a fault that it wrote as JSON.
    if let Some(error) = text(&file, "error") {
        return Err(malformed(path, format!("iperf3 ended with: {error}")));
    }
    // The fault of some versions comes behind the document (esnet/iperf #1143).
    match String::from_utf8_lossy(behind).trim() {
        "" => {}
        more if more.starts_with('{') => {
            return Err(malformed(path, "a second document: give each result a file of its own"));
        }
        more => {
            let line = more.lines().next().unwrap_or_default();
            return Err(malformed(path, format!("behind the result: {line}")));
        }
    }
    let (Some(version), Some(end)) = (text(&file, "start.version"), file.get("end")) else {
        return Err(malformed(path, "no `start.version` and `end`: not what `iperf3 -J` writes"));
    };
    if is_bidirectional(&file, bytes) {
        return Err(malformed(path, "a test of both directions at once: run them one by one"));
    }
    if text(&file, "start.test_start.protocol") != Some("TCP") {
        return Err(malformed(path, "not a TCP test: what UDP sends is what it was told to"));
    }
    // What was sent says nothing: it may lie in the sender's buffer.
    let Some(received) = some(number(end, "sum_received.bits_per_second")) else {
        return Err(malformed(path, "no byte arrived: too short a test, or nothing comes through"));
    };
    let streams = number(&file, "start.test_start.num_streams").unwrap_or(1.0).max(1.0);
    let peer = text(&file, "start.connecting_to.host").unwrap_or("a peer");
    let facts = Facts {
        subject: Subject::Link,
        depth: Some(streams),
        duration_seconds: some(number(end, "sum_received.seconds")).map(Seconds),
        goodput_bytes_per_second: Some(Rate(received / 8.0)),
        cpu: CpuFacts { busiest_ratio: cpu(end, version, streams), ..CpuFacts::default() },
        link: link(&file, end),
        ..Facts::default()
    };
    let plural = if streams == 1.0 { "" } else { "s" };
    let name = format!("{peer}, {streams} stream{plural}");
    Ok(Run { name, kind: "throughput".into(), profile: None, facts })
}

fn link(file: &Value, end: &Value) -> LinkFacts {
    let senders: Vec<&Value> = end
        .get("streams")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .filter_map(|stream| stream.get("sender"))
        .collect();
    let each = |key: &str| senders.iter().filter_map(|s| some(number(s, key))).collect::<Vec<_>>();
    let round_trips = each("mean_rtt");
    let mean = round_trips.iter().sum::<f64>() / round_trips.len() as f64;
    let peer_window = each("max_snd_wnd").into_iter().reduce(f64::min);
    // 0: the kernel tunes the buffer, and says nowhere how large it got.
    let buffer = some(number(file, "start.sock_bufsize"));
    let window = [peer_window, buffer].into_iter().flatten().reduce(f64::min);
    // Versions 3.12 and 3.13 write -1 as 2^64 - 1.
    let resent = number(end, "sum_sent.retransmits").filter(|n| (0.0..1e15).contains(n));
    LinkFacts {
        retransmits: resent.map(|n| n as u64),
        segment_payload_bytes: some(number(file, "start.tcp_mss_default")).map(|n| Bytes(n as u64)),
        round_trip_seconds: some(Some(mean)).map(|us| Seconds(us / 1e6)),
        window_bytes: window.map(|bytes| Bytes(bytes as u64)),
        ..LinkFacts::default()
    }
}

/// The busier end, of the thread that has most to do if all have the same.
fn cpu(end: &Value, version: &str, streams: f64) -> Option<Ratio> {
    let of = |key: &str| number(end, &format!("cpu_utilization_percent.{key}"));
    let most = [of("host_total"), of("remote_total")].into_iter().flatten().reduce(f64::max)?;
    let threads = if is_threaded(version) { streams } else { 1.0 };
    Some(Ratio((most / 100.0 / threads).clamp(0.0, 1.0)))
}

/// From 3.10 on the second direction has sums of its own, and lately a flag; 3.7 to 3.9 write each
/// sum twice.
fn is_bidirectional(file: &Value, bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Once {
        #[serde(rename = "end")]
        _end: Sums,
    }
    #[derive(Deserialize)]
    struct Sums {
        #[serde(rename = "sum_received")]
        _received: Option<IgnoredAny>,
    }
    number(file, "start.test_start.bidir") == Some(1.0)
        || file.pointer("/end/sum_received_bidir_reverse").is_some()
        || serde_json::from_slice::<Once>(document(bytes)).is_err()
}

/// `iperf 3.12`; a loadline has always been.
fn is_threaded(version: &str) -> bool {
    if version.starts_with(env!("CARGO_PKG_NAME")) {
        return true;
    }
    let numbers = version.trim_start_matches(|c: char| !c.is_ascii_digit());
    let mut parts =
        numbers.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= THREADED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: &str, retransmits: &str) -> String {
        format!(
            r#"{{"start": {{"version": "{version}", "tcp_mss_default": 1398, "sock_bufsize": 0,
                 "connecting_to": {{"host": "storage2", "port": 5201}},
                 "test_start": {{"protocol": "TCP", "num_streams": 4, "reverse": 0}}}},
               "intervals": [],
               "end": {{"streams": [{{"sender": {{"mean_rtt": 4000, "max_snd_wnd": 524288}}}}],
                 "sum_sent": {{"bits_per_second": 9.1e8, "retransmits": {retransmits}}},
                 "sum_received": {{"seconds": 30.0, "bits_per_second": 9.08e8}},
                 "cpu_utilization_percent": {{"host_total": 20.0, "remote_total": 160.0}}}}}}"#
        )
    }

    macro_rules! case {
        ($name:literal) => {
            include_str!(concat!("../../../tests/fixtures/cases/", $name))
        };
    }

    fn parse_text(text: &str) -> Result<Run, String> {
        parse(Path::new("b.json"), text.as_bytes()).map_err(|fault| fault.text)
    }

    #[test]
    fn what_the_receiver_counted_is_the_result() {
        let run = parse_text(&file("iperf 3.12", "1989")).unwrap();
        assert_eq!(run.name, "storage2, 4 streams");
        assert_eq!(run.facts.bytes(), Some(113.5e6));
        assert_eq!(run.facts.link.retransmits, Some(1989));
        assert_eq!(run.facts.link.round_trip_seconds, Some(Seconds(0.004)));
        assert_eq!(run.facts.cpu(), Some(1.0), "one thread for all streams");
        let threaded = parse_text(&file("iperf 3.16", "1989")).unwrap();
        assert_eq!(threaded.facts.cpu(), Some(0.4));
    }

    /// Cases 124, 125 and 130.
    #[test]
    fn the_rate_of_real_results_is_what_arrived_in_the_counted_time() {
        for (text, bits_per_second, retransmits) in [
            (case!("124-iperf-json-normal-36.input-v36.json"), 348_183_660.06, 15),
            (
                case!("124-iperf-json-normal-36.input-v312.json"),
                7_716_208_640.0 * 8.0 / 2.000351,
                21,
            ),
            (case!("125-iperf-tiny-transfer-nonsense.input-v39.json"), 265_501.735, 0),
            (case!("130-iperf-omit-intervals.input.json"), 13_154_123_776.0 * 8.0 / 3.0004, 41),
        ] {
            let facts = parse_text(text).unwrap().facts;
            let found = facts.bytes().unwrap() * 8.0;
            assert!((found / bits_per_second - 1.0).abs() < 1e-6, "{found} {bits_per_second}");
            assert_eq!(facts.link.retransmits, Some(retransmits));
        }
    }

    #[test]
    fn minus_one_as_an_unsigned_number_is_no_count() {
        let run = parse_text(&file("iperf 3.12", "18446744073709551615")).unwrap();
        assert_eq!(run.facts.link.retransmits, None);
    }

    #[test]
    fn what_is_no_result_of_iperf3_is_refused_in_words() {
        let one = file("iperf 3.12", "0");
        let udp = one.replace("TCP", "UDP");
        let both = "b.json: a test of both directions at once: run them one by one";
        let flagged = one.replace("\"reverse\"", "\"bidir\": 1, \"reverse\"");
        for (text, said) in [
            (flagged.as_str(), both),
            (case!("128-iperf-bidir-duplicate-keys.input-v312.json"), both),
            (case!("128-iperf-bidir-duplicate-keys.input-v37.txt"), both),
            (
                &format!("{one}\n{one}"),
                "b.json: a second document: give each result a file of its own",
            ),
            (
                case!("129-iperf-json-trailing-or-double.input"),
                "b.json: behind the result: iperf3: error - unable to send control message: Broken pipe",
            ),
            (
                case!("116-iperf-json-error-exit-zero.input-refused.json"),
                "b.json: iperf3 ended with: unable to connect to server: Connection refused",
            ),
            (
                case!("116-iperf-json-error-exit-zero.input-old.json"),
                "b.json: iperf3 ended with: error - unable to connect to server: No route to host",
            ),
            (
                case!("125-iperf-tiny-transfer-nonsense.input-v312.json"),
                "b.json: no byte arrived: too short a test, or nothing comes through",
            ),
            (
                case!("126-iperf-udp-sum-semantics.input-v312.json"),
                "b.json: not a TCP test: what UDP sends is what it was told to",
            ),
            (
                case!("126-iperf-udp-sum-semantics.input-report560.json"),
                "b.json: not a TCP test: what UDP sends is what it was told to",
            ),
            (
                case!("126-iperf-udp-sum-semantics.input-old.json"),
                "b.json: not a TCP test: what UDP sends is what it was told to",
            ),
            (
                r#"{"start": {}, "error": "the server is busy"}"#,
                "b.json: iperf3 ended with: the server is busy",
            ),
            ("{}", "b.json: no `start.version` and `end`: not what `iperf3 -J` writes"),
            (&udp, "b.json: not a TCP test: what UDP sends is what it was told to"),
        ] {
            assert_eq!(parse_text(text).unwrap_err(), said);
        }
    }
}
