//! The results that both ends exchange, as JSON. Pure.

use serde_json::{Map, Value, json};

use super::fields::{Fields, Message};
use super::parameters::{BOOT_ID, LINE_RECEIVES, LINE_SENDS, LIST};
use super::wire::STREAMS_MAX;
use crate::base::units::{Bytes, Rate, Seconds};
use crate::model::link::{LinkCpu, LinkIdentity, LinkRtt};
use crate::model::way::EndLine;

/// One end's results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub cpu: LinkCpu,
    pub sends: bool,
    pub congestion: Option<String>,
    pub streams: Vec<StreamReport>,
    /// Of all streams on which that end sends: between loadlines only.
    pub sender: Option<SenderReport>,
    pub identity: Option<LinkIdentity>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamReport {
    pub id: u32,
    pub bytes: Bytes,
    pub retransmits: Option<u64>,
    /// Counted time; 3.1 doesn't tell it.
    pub time: Option<Seconds>,
}

/// What only the sender's kernel knows, and the protocol has no key for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SenderReport {
    pub bytes_sent: Option<u64>,
    pub bytes_retransmitted: Option<u64>,
    /// Sums over the streams.
    pub busy: Option<Seconds>,
    pub rwnd_limited: Option<Seconds>,
    pub sndbuf_limited: Option<Seconds>,
    pub rtt: Option<LinkRtt>,
    pub mss: Option<u64>,
}

/// A list of keys beside the places they fill.
macro_rules! sender_keys {
    ($visit:ident) => {
        $visit!("loadline_bytes_sent", bytes_sent);
        $visit!("loadline_bytes_retransmitted", bytes_retransmitted);
        $visit!("loadline_mss", mss);
        $visit!("loadline_busy_seconds", busy, Seconds);
        $visit!("loadline_rwnd_limited_seconds", rwnd_limited, Seconds);
        $visit!("loadline_sndbuf_limited_seconds", sndbuf_limited, Seconds);
    };
}

const RTT_KEYS: [&str; 3] =
    ["loadline_rtt_min_seconds", "loadline_rtt_median_seconds", "loadline_rtt_p99_seconds"];

impl Report {
    /// # Errors
    /// What is missing or malformed.
    pub fn read(json: &[u8]) -> Result<Self, String> {
        let message = Message::<{ 2 * STREAMS_MAX }>::read(json)?;
        let fields = &message.fields;
        let need = |key: &str| fields.real(key).ok_or_else(|| format!("`{key}` is missing"));
        let streams = message.streams.ok_or("`streams` is missing")?;
        Ok(Self {
            cpu: LinkCpu {
                total: need("cpu_util_total")? / 100.0,
                user: need("cpu_util_user")? / 100.0,
                system: need("cpu_util_system")? / 100.0,
            },
            sends: need("sender_has_retransmits").map(|n| (0.0..2.0).contains(&n))?,
            congestion: fields.text("congestion_used").map(str::to_owned),
            streams: streams.iter().map(stream).collect::<Result<_, _>>()?,
            sender: sender(fields),
            identity: fields.text(BOOT_ID).map(|boot_id| LinkIdentity {
                boot_id: boot_id.into(),
                list_digest: fields.text(LIST).unwrap_or_default().into(),
                line: EndLine {
                    sends: fields.real(LINE_SENDS).filter(|rate| *rate > 0.0).map(Rate),
                    receives: fields.real(LINE_RECEIVES).filter(|rate| *rate > 0.0).map(Rate),
                },
            }),
        })
    }

    /// Every key that some version's reader needs.
    pub fn write(&self) -> String {
        let mut keys = Map::new();
        let mut put = |key: &str, value: Value| keys.insert(key.into(), value);
        put("cpu_util_total", percent(self.cpu.total));
        put("cpu_util_user", percent(self.cpu.user));
        put("cpu_util_system", percent(self.cpu.system));
        put("sender_has_retransmits", if self.sends { 1 } else { -1 }.into());
        if let Some(congestion) = &self.congestion {
            put("congestion_used", congestion.as_str().into());
        }
        put("streams", self.streams.iter().map(StreamReport::json).collect());
        if let Some(identity) = &self.identity {
            put(BOOT_ID, identity.boot_id.as_str().into());
            put(LIST, identity.list_digest.as_str().into());
            let EndLine { sends, receives } = identity.line;
            for (key, rate) in [(LINE_SENDS, sends), (LINE_RECEIVES, receives)] {
                if let Some(rate) = rate.filter(|rate| rate.0.is_finite()) {
                    put(key, json!(rate.0));
                }
            }
        }
        if let Some(sender) = &self.sender {
            sender.put(&mut keys);
        }
        Value::Object(keys).to_string()
    }
}

fn percent(share: f64) -> Value {
    json!(if share.is_finite() { share * 100.0 } else { 0.0 })
}

fn stream(fields: &Fields) -> Result<StreamReport, String> {
    let need =
        |key: &str| fields.count(key).ok_or_else(|| format!("a stream's `{key}` is missing"));
    let time = fields
        .real("end_time")
        .map(|end| end - fields.real("start_time").unwrap_or(0.0))
        .filter(|time| *time > 0.0 && *time < 1e6);
    Ok(StreamReport {
        id: u32::try_from(need("id")?).map_err(|_| "a stream's `id` is out of range")?,
        bytes: Bytes(need("bytes")?),
        // -1 was cut to 32 bits on its way through some versions (esnet/iperf #725).
        retransmits: fields.count("retransmits").filter(|n| *n < u64::from(u32::MAX) - 1),
        time: time.map(Seconds),
    })
}

fn sender(fields: &Fields) -> Option<SenderReport> {
    let mut report = SenderReport::default();
    macro_rules! read {
        ($key:literal, $field:ident) => {
            report.$field = fields.count($key);
        };
        ($key:literal, $field:ident, $unit:ident) => {
            report.$field = fields.real($key).filter(|n| *n >= 0.0 && *n < 1e9).map($unit);
        };
    }
    sender_keys!(read);
    let times = RTT_KEYS.map(|key| fields.real(key).filter(|n| *n >= 0.0 && *n < 1e3));
    if let [Some(min), Some(median), Some(p99)] = times {
        report.rtt =
            Some(LinkRtt { min: Seconds(min), median: Seconds(median), p99: Seconds(p99) });
    }
    (report != SenderReport::default()).then_some(report)
}

impl SenderReport {
    fn put(&self, keys: &mut Map<String, Value>) {
        macro_rules! write {
            ($key:literal, $field:ident $(, $unit:ident)?) => {
                if let Some(value) = self.$field {
                    keys.insert($key.into(), json!(value));
                }
            };
        }
        sender_keys!(write);
        if let Some(rtt) = self.rtt {
            for (key, Seconds(time)) in RTT_KEYS.into_iter().zip([rtt.min, rtt.median, rtt.p99]) {
                keys.insert(key.into(), json!(time));
            }
        }
    }
}

impl StreamReport {
    fn json(&self) -> Value {
        json!({
            "id": self.id,
            "bytes": self.bytes.0,
            "retransmits": self.retransmits.map_or(json!(-1), |n| json!(n)),
            "jitter": 0,
            "errors": 0,
            "omitted_errors": 0,
            "packets": 0,
            "omitted_packets": 0,
            "start_time": 0,
            "end_time": self.time.map_or(0.0, |time| time.0),
        })
    }
}

/// Numbers of the streams in the order of their making: 1, 3, 4, 5 ...; 2 is never used.
pub fn stream_ids() -> impl Iterator<Item = u32> {
    std::iter::once(1).chain(3..)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::{Inbox, RESULTS_BYTES_MAX, framed};
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.trim().bytes().collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// The results of both ends in a captured conversation, the client's first.
    fn captured(text: &str) -> Vec<Report> {
        let lines = text.lines().filter_map(|line| line.split(' ').nth(1));
        let hex: Vec<&str> = lines.filter(|hex| hex.contains("6370755f7574696c")).collect();
        let cut = |hex: &&str| {
            let bytes = bytes(hex);
            let (start, end) = (
                bytes.iter().position(|b| *b == b'{').unwrap(),
                bytes.iter().rposition(|b| *b == b'}').unwrap(),
            );
            Report::read(&bytes[start..=end]).unwrap()
        };
        hex.iter().map(cut).collect()
    }

    #[test]
    fn unknown_retransmits_of_3_12_are_unknown() {
        let one = captured(include_str!(
            "../../tests/fixtures/cases/117-iperf-u64-max-minus-one.input-tcp.txt"
        ));
        let [client, server] = one.as_slice() else { panic!("{one:?}") };
        assert_eq!(client.streams[0].retransmits, Some(33));
        assert!(client.sends && !server.sends);
        assert_eq!(server.streams[0].retransmits, None);
        assert_eq!(server.streams[0].bytes, Bytes(1_508_963_220));
        assert_eq!(server.streams[0].time, Some(Seconds(1.039_554)));
        let two = captured(include_str!(
            "../../tests/fixtures/cases/117-iperf-u64-max-minus-one.input-reverse-2-streams.txt"
        ));
        let [client, server] = two.as_slice() else { panic!("{two:?}") };
        let retransmits: Vec<_> = server.streams.iter().map(|s| s.retransmits).collect();
        assert_eq!((retransmits, server.sends), (vec![Some(27), Some(40)], true));
        assert!(client.streams.iter().all(|s| s.retransmits.is_none()) && !client.sends);
    }

    #[test]
    fn unknown_retransmits_may_have_lost_their_upper_half() {
        for unknown in ["-1", "4294967295", "4294967294", "18446744073709551615"] {
            let json = format!(
                r#"{{"cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,
                "sender_has_retransmits":{unknown},
                "streams":[{{"id":1,"bytes":1.5e6,"retransmits":{unknown}}}]}}"#
            );
            let report = Report::read(json.as_bytes()).unwrap();
            assert_eq!((report.sends, report.streams[0].retransmits), (false, None), "{unknown}");
            assert_eq!(report.streams[0].bytes, Bytes(1_500_000));
        }
    }

    #[test]
    fn results_of_128_streams_are_longer_than_8_kib() {
        let framed = bytes(include_str!(
            "../../tests/fixtures/cases/120-iperf-results-over-8k-and-stream-ids.input.hex"
        ));
        let mut inbox = Inbox::default();
        inbox.push(&framed);
        let message = inbox.message(RESULTS_BYTES_MAX).unwrap().unwrap();
        let report = Report::read(&message).unwrap();
        let ids: Vec<u32> = report.streams.iter().map(|s| s.id).collect();
        assert_eq!(ids, stream_ids().take(128).collect::<Vec<_>>());
        assert_eq!((&ids[..4], ids[127]), (&[1, 3, 4, 5][..], 129));
        assert_eq!(report.streams.iter().map(|s| s.bytes.0).sum::<u64>(), 12_800_008_128);
    }

    fn full() -> Report {
        let stream = |(n, id): (u64, u32)| StreamReport {
            id,
            bytes: Bytes(n << 40),
            retransmits: n.is_multiple_of(2).then_some(n),
            time: Some(Seconds(5.5)),
        };
        Report {
            cpu: LinkCpu { total: 1.5, user: 0.25, system: 1.25 },
            sends: true,
            congestion: Some("cubic".into()),
            streams: (1..).zip(stream_ids()).take(256).map(stream).collect(),
            sender: Some(SenderReport {
                bytes_sent: Some(9),
                bytes_retransmitted: Some(1),
                busy: Some(Seconds(2.5)),
                rwnd_limited: None,
                sndbuf_limited: Some(Seconds(0.0)),
                rtt: Some(LinkRtt { min: Seconds(0.25), median: Seconds(0.5), p99: Seconds(1.0) }),
                mss: Some(1448),
            }),
            identity: Some(LinkIdentity {
                boot_id: "b".into(),
                list_digest: "l".into(),
                line: EndLine { sends: Some(Rate(125e6)), receives: None },
            }),
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        assert_eq!(Report::read(full().write().as_bytes()), Ok(full()));
        let plain = Report { sender: None, identity: None, ..full() };
        assert_eq!(Report::read(plain.write().as_bytes()), Ok(plain));
    }

    #[test]
    fn a_report_has_every_key_that_stock_readers_need() {
        let json: Value = serde_json::from_str(&full().write()).unwrap();
        for key in ["cpu_util_total", "cpu_util_user", "cpu_util_system", "sender_has_retransmits"]
        {
            assert!(json[key].is_number(), "{key}");
        }
        // Null crashes 3.12, and a flag that is there is on.
        let text = full().write();
        assert!(!text.contains("null") && !text.contains("false"), "{text}");
        for key in ["id", "bytes", "retransmits", "jitter", "errors", "packets"] {
            assert!(json["streams"][0][key].is_number(), "{key}");
        }
        let stream = json["streams"][0].as_object().unwrap();
        assert_eq!(
            stream.contains_key("omitted_errors"),
            stream.contains_key("omitted_packets"),
            "both or neither"
        );
        assert_eq!(json["streams"][0]["retransmits"], -1, "never 2^64 - 1");
    }

    #[test]
    fn a_missing_key_is_named() {
        let fault = Report::read(br#"{"cpu_util_total":1}"#).unwrap_err();
        assert!(fault.contains("streams") || fault.contains("cpu_util"), "{fault}");
        let no_id = full().write().replace("\"id\"", "\"di\"");
        assert!(Report::read(no_id.as_bytes()).unwrap_err().contains("id"));
    }

    #[test]
    fn one_stream_too_many_is_refused() {
        let mut report = full();
        report.streams.push(StreamReport::default());
        assert!(Report::read(report.write().as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn mutated_reports_are_survived(at: usize, byte: u8) {
            let report = Report { streams: full().streams[..2].to_vec(), ..full() };
            let mut json = report.write().into_bytes();
            let at = at % json.len();
            json[at] = byte;
            if let Ok(read) = Report::read(&json) {
                prop_assert!(read.streams.len() <= 256);
            }
            let mut inbox = Inbox::default();
            inbox.push(&framed(&report.write())[..at.min(4 + json.len())]);
            let _ = inbox.message(RESULTS_BYTES_MAX);
        }
    }
}
