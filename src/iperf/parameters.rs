//! What a client asks for: the JSON of the parameter exchange, both ways. Pure.

use serde_json::{Map, Value};

use super::fields::Message;
use super::wire::{BLOCK_BYTES_MAX, STREAMS_MAX, code};
use crate::base::units::{Bytes, Rate, Seconds};
use crate::model::link::{LinkDirection, LinkIdentity, LinkProfile};

/// Stock peers allow no more.
const TIME_SECONDS_MAX: f64 = 86_400.0;
const OMIT_SECONDS_MAX: f64 = 600.0;
const WINDOW_BYTES_MAX: u64 = 512 << 20;
/// What a client means that names no block size.
const BLOCK_DEFAULT: u64 = 128 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

/// Parameters as a server reads them. Keys that only matter to a stock peer are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    pub transport: Transport,
    /// Per direction.
    pub streams: i64,
    pub direction: LinkDirection,
    /// 0 where the client bounds the test by bytes or blocks.
    pub time: i64,
    pub omit: i64,
    /// 0 is no bound. The client ends the test; a sender may stop there.
    pub bytes: u64,
    pub blocks: u64,
    pub block: u64,
    pub window: Option<u64>,
    pub congestion: Option<String>,
    /// Bits a second and stream.
    pub pacing: Option<u64>,
    pub nodelay: bool,
    pub type_of_service: u8,
    pub wants_authorisation: bool,
    pub identity: Option<LinkIdentity>,
}

/// Keys of the private part; stock peers ignore what they don't know, in every version.
pub(super) const BOOT_ID: &str = "loadline_boot_id";
pub(super) const LIST: &str = "loadline_list";
/// Bytes a second, of a server's line on its way to the client.
pub(super) const LINE_SENDS: &str = "loadline_line_sends";
pub(super) const LINE_RECEIVES: &str = "loadline_line_receives";

impl Parameters {
    /// # Errors
    /// Where it isn't one JSON object.
    pub fn read(json: &[u8]) -> Result<Self, String> {
        let fields = Message::<0>::read(json)?.fields;
        let transport = match (fields.flag("udp"), fields.flag("sctp")) {
            (true, _) => Transport::Udp,
            (_, true) => Transport::Sctp,
            _ => Transport::Tcp,
        };
        let direction = match (fields.flag("bidirectional"), fields.flag("reverse")) {
            (true, _) => LinkDirection::Both,
            (_, true) => LinkDirection::Reverse,
            _ => LinkDirection::Forward,
        };
        let positive = |key| fields.count(key).filter(|n| *n > 0);
        let pacing = [positive("bandwidth"), positive("fqrate")].into_iter().flatten().min();
        Ok(Self {
            transport,
            streams: fields.integer("parallel").unwrap_or(1),
            direction,
            time: fields.integer("time").unwrap_or(10),
            omit: fields.integer("omit").unwrap_or(0),
            bytes: fields.count("num").unwrap_or(0),
            blocks: fields.count("blockcount").unwrap_or(0),
            block: positive("len").unwrap_or(BLOCK_DEFAULT),
            window: positive("window"),
            congestion: fields.text("congestion").map(str::to_owned),
            pacing,
            nodelay: fields.flag("nodelay"),
            type_of_service: positive("TOS").and_then(|n| u8::try_from(n).ok()).unwrap_or(0),
            wants_authorisation: fields.text("authtoken").is_some(),
            identity: fields.text(BOOT_ID).map(|boot_id| LinkIdentity {
                boot_id: boot_id.into(),
                list_digest: fields.text(LIST).unwrap_or_default().into(),
                ..LinkIdentity::default()
            }),
        })
    }

    /// The protocol's number for what no server of ours does; `None` where it can be done.
    pub fn complaint(&self, runtime_max: Seconds) -> Option<i32> {
        let bounded = self.time > 0 || self.bytes > 0 || self.blocks > 0;
        let longest = runtime_max.0.min(TIME_SECONDS_MAX) as i64;
        let wrong = [
            (self.wants_authorisation, code::AUTHORISATION),
            (self.transport != Transport::Tcp, code::UNIMPLEMENTED),
            (!(1..=STREAMS_MAX as i64).contains(&self.streams), code::STREAMS),
            (self.block > BLOCK_BYTES_MAX, code::BLOCK),
            (!bounded || self.time < 0, code::DURATION),
            (!(0..=OMIT_SECONDS_MAX as i64).contains(&self.omit), code::DURATION),
            (self.time > longest || self.omit > longest, code::MAX_DURATION),
            (self.window.is_some_and(|w| w > WINDOW_BYTES_MAX), code::BUFFER),
        ];
        wrong.iter().find(|(holds, _)| *holds).map(|(_, code)| *code)
    }
}

/// The JSON that asks a server for this test: no key is false or null, since presence alone
/// switches on (`"reverse":false` reverses in every version, null crashes 3.12).
pub fn write(profile: &LinkProfile, identity: Option<&LinkIdentity>) -> String {
    let mut keys = Map::new();
    let mut put = |key: &str, value: Value| keys.insert(key.into(), value);
    put("tcp", true.into());
    put("omit", whole(profile.omit).into());
    put("time", whole(profile.runtime).into());
    // A sender stops at this number, and its omitted time ends a little before the receiver's: then
    // the receiver would wait for bytes that never come. The client alone ends such a test.
    let bytes = profile.bytes_max.filter(|_| profile.omit.0 <= 0.0);
    put("num", bytes.map_or(0, |bytes| bytes.0).into());
    put("blockcount", 0.into());
    put("parallel", profile.streams.into());
    match profile.direction {
        LinkDirection::Forward => None,
        LinkDirection::Reverse => put("reverse", true.into()),
        LinkDirection::Both => put("bidirectional", true.into()),
    };
    put("len", block(profile).into());
    if let Some(Bytes(window)) = profile.window {
        put("window", window.into());
    }
    if let Some(Rate(rate)) = profile.pacing {
        // Stock servers up to 3.12 at least heed only the first.
        put("bandwidth", ((rate * 8.0) as u64).into());
        put("fqrate", ((rate * 8.0) as u64).into());
    }
    if let Some(congestion) = &profile.congestion {
        put("congestion", congestion.as_str().into());
    }
    if profile.type_of_service > 0 {
        put("TOS", profile.type_of_service.into());
    }
    put("client_version", concat!("loadline ", env!("CARGO_PKG_VERSION")).into());
    if let Some(identity) = identity {
        put(BOOT_ID, identity.boot_id.as_str().into());
        put(LIST, identity.list_digest.as_str().into());
    }
    Value::Object(keys).to_string()
}

/// Whole seconds, as the protocol counts; the client's own clock ends the test to the millisecond.
fn whole(time: Seconds) -> u64 {
    time.0.clamp(0.0, TIME_SECONDS_MAX).ceil() as u64
}

/// Few large writes cost least; many streams would only fill the cache with their blocks.
pub fn block(profile: &LinkProfile) -> u64 {
    let best = if profile.streams > 8 { BLOCK_DEFAULT } else { BLOCK_BYTES_MAX };
    profile.block.map_or(best, |block| block.0)
}

/// What is wrong with a profile, in words; the wire would carry it, but no server take it.
///
/// # Errors
/// The key, and what it may be.
pub fn check(profile: &LinkProfile) -> Result<(), (&'static str, String)> {
    let within = |time: Seconds, most: f64| time.0.is_finite() && (0.0..=most).contains(&time.0);
    let rate = profile.pacing.map_or(1e6, |rate| rate.0);
    let size = |bytes: Option<Bytes>| bytes.map_or(1, |bytes| bytes.0);
    let word = |name: &str| {
        !name.is_empty() && name.len() < 16 && name.bytes().all(|b| b.is_ascii_graphic())
    };
    let right = [
        ("streams", (1..=STREAMS_MAX as u32).contains(&profile.streams), "1 to 128"),
        (
            "runtime",
            within(profile.runtime, TIME_SECONDS_MAX) && profile.runtime.0 > 0.0,
            "over 0, up to 24h",
        ),
        ("omit", within(profile.omit, OMIT_SECONDS_MAX), "0 to 10m"),
        ("bytes", size(profile.bytes_max) > 0, "over 0"),
        ("block", (1..=BLOCK_BYTES_MAX).contains(&size(profile.block)), "1 to 1MiB"),
        ("window", (1..=WINDOW_BYTES_MAX).contains(&size(profile.window)), "1 to 512MiB"),
        ("congestion", profile.congestion.as_deref().is_none_or(word), "a name like cubic"),
        ("pacing", rate.is_finite() && rate >= 1.0, "a rate like 100Mbit"),
    ];
    match right.into_iter().find(|(_, holds, _)| !holds) {
        None => Ok(()),
        Some((key, _, may)) => Err((key, format!("must be {may}"))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn profile() -> LinkProfile {
        LinkProfile { block: Some(Bytes(131_072)), ..LinkProfile::plain(4, Seconds(10.0)) }
    }

    #[test]
    fn what_is_off_is_not_there() {
        let json = write(&profile(), None);
        assert!(!json.contains("false") && !json.contains("null"), "{json}");
        for key in
            ["reverse", "bidirectional", "window", "fqrate", "congestion", "TOS", "loadline_"]
        {
            assert!(!json.contains(key), "{key} in {json}");
        }
        assert_eq!(
            Parameters::read(json.as_bytes()).unwrap(),
            Parameters { streams: 4, time: 10, block: 131_072, ..Parameters::default() }
        );
    }

    #[test]
    fn what_is_on_is_true_or_a_number() {
        let full = LinkProfile {
            direction: LinkDirection::Both,
            bytes_max: Some(Bytes(5)),
            window: Some(Bytes(65536)),
            congestion: Some("cubic".into()),
            pacing: Some(Rate(125e5)),
            type_of_service: 32,
            ..profile()
        };
        let (boot_id, list_digest) = ("b".into(), "l".into());
        let identity = LinkIdentity { boot_id, list_digest, ..LinkIdentity::default() };
        let json = write(&full, Some(&identity));
        for part in
            [r#""bidirectional":true"#, r#""fqrate":100000000"#, r#""TOS":32"#, r#""num":5"#]
        {
            assert!(json.contains(part), "{part} in {json}");
        }
        assert!(!json.contains("reverse"));
        let read = Parameters::read(json.as_bytes()).unwrap();
        assert_eq!((read.direction, read.pacing), (LinkDirection::Both, Some(100_000_000)));
        assert_eq!((read.window, read.identity), (Some(65536), Some(identity)));
    }

    #[test]
    fn no_test_is_without_an_end() {
        // `"time":0` dies after 49 s between some versions (esnet/iperf #1233).
        let short = LinkProfile { runtime: Seconds(0.1), omit: Seconds(1.2), ..profile() };
        let read = Parameters::read(write(&short, None).as_bytes()).unwrap();
        assert_eq!((read.time, read.omit), (1, 2));
    }

    /// Cases 117 and 118: lines of real conversations with 3.12.
    fn captured(name: &str) -> Parameters {
        let line = name.lines().find(|l| l.contains("7b22746370")).unwrap();
        let json = &line[line.find("{\"tcp\"").unwrap()..=line.rfind('}').unwrap()];
        Parameters::read(json.as_bytes()).unwrap()
    }

    #[test]
    fn stock_parameters_are_read() {
        let one = captured(include_str!(
            "../../tests/fixtures/cases/117-iperf-u64-max-minus-one.input-tcp.txt"
        ));
        let right = Parameters { streams: 1, time: 1, block: 131_072, ..Parameters::default() };
        assert_eq!(one, right);
        let two = captured(include_str!(
            "../../tests/fixtures/cases/117-iperf-u64-max-minus-one.input-reverse-2-streams.txt"
        ));
        assert_eq!(two, Parameters { streams: 2, direction: LinkDirection::Reverse, ..right });
    }

    #[test]
    fn flags_of_the_wrong_type_are_off_as_since_3_18() {
        let read = |json: &str| Parameters::read(json.as_bytes()).unwrap();
        assert_eq!(read(r#"{"reverse":1}"#).direction, LinkDirection::Forward);
        assert_eq!(read(r#"{"reverse":false}"#).direction, LinkDirection::Forward);
        assert_eq!(read(r#"{"udp":true}"#).transport, Transport::Udp);
        assert_eq!(read(r#"{"tcp":1,"time":"3"}"#).time, 10);
        assert_eq!(read(r#"{"title":null,"bandwidth":0}"#).pacing, None);
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_the_protocols_number() {
        let of = |json: &str| Parameters::read(json.as_bytes()).unwrap().complaint(Seconds(60.0));
        for (json, code) in [
            (r#"{"time":10}"#, None),
            (r#"{"time":0,"num":1000}"#, None),
            (r#"{"time":0,"blockcount":10}"#, None),
            (r#"{"time":0}"#, Some(code::DURATION)),
            (r#"{"time":61}"#, Some(code::MAX_DURATION)),
            (r#"{"time":-5}"#, Some(code::DURATION)),
            (r#"{"omit":601}"#, Some(code::DURATION)),
            (r#"{"parallel":129}"#, Some(code::STREAMS)),
            (r#"{"parallel":0}"#, Some(code::STREAMS)),
            (r#"{"parallel":-1}"#, Some(code::STREAMS)),
            (r#"{"len":1048577}"#, Some(code::BLOCK)),
            (r#"{"window":1073741824}"#, Some(code::BUFFER)),
            (r#"{"udp":true}"#, Some(code::UNIMPLEMENTED)),
            (r#"{"sctp":true}"#, Some(code::UNIMPLEMENTED)),
            (r#"{"authtoken":"eA=="}"#, Some(code::AUTHORISATION)),
        ] {
            assert_eq!(of(json), code, "{json}");
        }
    }

    #[test]
    fn a_profile_that_no_server_takes_is_named_by_its_key() {
        assert_eq!(check(&profile()), Ok(()));
        let wrong = |change: fn(&mut LinkProfile)| {
            let mut profile = profile();
            change(&mut profile);
            check(&profile).unwrap_err().0
        };
        assert_eq!(wrong(|p| p.streams = 129), "streams");
        assert_eq!(wrong(|p| p.streams = 0), "streams");
        assert_eq!(wrong(|p| p.runtime = Seconds(f64::NAN)), "runtime");
        assert_eq!(wrong(|p| p.runtime = Seconds(0.0)), "runtime");
        assert_eq!(wrong(|p| p.omit = Seconds(601.0)), "omit");
        assert_eq!(wrong(|p| p.block = Some(Bytes(2 << 20))), "block");
        assert_eq!(wrong(|p| p.congestion = Some("a b".into())), "congestion");
        assert_eq!(wrong(|p| p.bytes_max = Some(Bytes(0))), "bytes");
    }

    proptest! {
        #[test]
        fn mutated_parameters_are_survived(at: usize, byte: u8, cut in 0usize..200) {
            let mut json = write(&profile(), None).into_bytes();
            let at = at % json.len();
            json[at] = byte;
            json.truncate(json.len() - cut.min(json.len()) * usize::from(byte % 2 == 0));
            if let Ok(read) = Parameters::read(&json) {
                let _ = read.complaint(Seconds(60.0));
            }
        }
    }
}
