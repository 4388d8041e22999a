//! A link probe: its shape, and what it measured of the way to a peer.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::units::{Bytes, Rate, Ratio, Seconds};
use crate::model::way::{EndLine, LinkCeiling, PeerWay};

/// Which end sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkDirection {
    /// This host sends.
    #[default]
    Forward,
    /// The peer sends.
    Reverse,
    /// Both at once, each on streams of its own.
    Both,
}

impl LinkDirection {
    pub fn forward(self) -> bool {
        self != LinkDirection::Reverse
    }

    pub fn reverse(self) -> bool {
        self != LinkDirection::Forward
    }
}

/// The shape of a link probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkProfile {
    /// TCP connections per direction, 1 to 128.
    pub streams: u32,
    pub direction: LinkDirection,
    /// Time bound, the omitted time not included.
    pub runtime: Seconds,
    /// Left out of every number.
    pub omit: Seconds,
    /// Bound on the bytes of all streams of one direction, the omitted ones not included.
    pub bytes_max: Option<Bytes>,
    /// Bytes handed to the kernel at a time, at most 1 MiB; `None` takes what measures best.
    pub block: Option<Bytes>,
    /// Socket buffers of the data connections; `None` leaves them to the kernel's tuning.
    pub window: Option<Bytes>,
    /// Congestion control of the data connections, on both ends; `None` is the hosts' own.
    pub congestion: Option<String>,
    /// Most payload a stream sends.
    pub pacing: Option<Rate>,
    /// Type of service of the data connections; 32 is CS1, the class for what may wait.
    pub type_of_service: u8,
}

impl LinkProfile {
    /// Forward, with everything that can be left to the kernels.
    pub fn plain(streams: u32, runtime: Seconds) -> Self {
        Self {
            streams,
            direction: LinkDirection::Forward,
            runtime,
            omit: Seconds(0.0),
            bytes_max: None,
            block: None,
            window: None,
            congestion: None,
            pacing: None,
            type_of_service: 0,
        }
    }
}

/// Why a link probe has no result: the `reason` of its failures, but for `Stopped`, which is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkReason {
    /// The peer is in another test.
    Busy,
    /// The peer didn't answer in time, or stopped answering.
    Timeout,
    /// Nobody listens there, or no way leads there.
    Refused,
    /// The peer doesn't admit this host or this test, or a kernel doesn't allow the test.
    Denied,
    /// What came isn't what the protocol says, or the peer ended the test.
    Protocol,
    /// This host was asked to stop.
    Stopped,
}

impl LinkReason {
    /// The failures.
    pub const FAILURES: [LinkReason; 5] = [
        LinkReason::Busy,
        LinkReason::Timeout,
        LinkReason::Refused,
        LinkReason::Denied,
        LinkReason::Protocol,
    ];

    /// Label value.
    pub fn label(self) -> &'static str {
        match self {
            LinkReason::Busy => "busy",
            LinkReason::Timeout => "timeout",
            LinkReason::Refused => "refused",
            LinkReason::Denied => "denied",
            LinkReason::Protocol => "protocol",
            LinkReason::Stopped => "stopped",
        }
    }
}

/// A link probe without a result: why, and a sentence that names the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct LinkFault {
    pub reason: LinkReason,
    pub text: String,
}

impl LinkFault {
    pub fn new(reason: LinkReason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text)
    }
}

/// Everything a link probe measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkMeasured {
    /// Address and port of the peer.
    pub peer: String,
    pub profile: LinkProfile,
    /// From this host to the peer.
    pub forward: Option<LinkFlow>,
    /// From the peer to this host.
    pub reverse: Option<LinkFlow>,
    pub own_cpu: LinkCpu,
    pub peer_cpu: LinkCpu,
    /// What a peer that is a loadline says of itself.
    pub identity: Option<LinkIdentity>,
}

impl LinkMeasured {
    /// Sets what arrived against what the way carries in that direction.
    pub fn set_against(&mut self, way: &PeerWay) {
        let streams = self.profile.streams;
        let ways = [(&mut self.forward, &way.transmit), (&mut self.reverse, &way.receive)];
        for (flow, line) in ways {
            let Some(flow) = flow else { continue };
            flow.ceiling = line
                .as_ref()
                .zip(flow.rate())
                .and_then(|(line, measured)| LinkCeiling::of(line, (streams, flow.mss), measured));
        }
    }

    /// The directions that were measured; true where this host sends.
    pub fn flows(&self) -> impl Iterator<Item = (bool, &LinkFlow)> + Clone {
        let both = [(true, self.forward.as_ref()), (false, self.reverse.as_ref())];
        both.into_iter().filter_map(|(sends, flow)| Some((sends, flow?)))
    }
}

/// What loadlines tell each other beside the protocol.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkIdentity {
    /// Of the kernel: equal ones are one host, and no link lies between.
    pub boot_id: String,
    /// Of the list of peers: ends that hold differing lists keep differing schedules.
    pub list_digest: String,
    /// The server's, on its way to the client: the lower of both ends holds.
    #[serde(default)]
    pub line: EndLine,
}

/// Shares of one CPU that an end spent on the test; may exceed 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkCpu {
    pub total: f64,
    pub user: f64,
    pub system: f64,
}

/// All streams of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkFlow {
    pub sent: Bytes,
    pub sender_time: Seconds,
    pub received: Bytes,
    pub receiver_time: Seconds,
    /// Segments; `None` where the sender can't say.
    pub retransmits: Option<u64>,
    /// Bytes sent again / bytes sent.
    pub retransmit_ratio: Option<Ratio>,
    pub rtt: Option<LinkRtt>,
    /// Shares as the kernel counts them (Documentation/networking/tcp: chrono statistics): of the
    /// run, with data in flight or waiting; and of that, held back by the receiver's window, or by
    /// the send buffer.
    pub busy: Option<Ratio>,
    pub rwnd_limited: Option<Ratio>,
    pub sndbuf_limited: Option<Ratio>,
    /// The smallest of the streams'.
    pub mss: Option<Bytes>,
    /// What the sender used.
    pub congestion: Option<String>,
    /// What the way carries, where its line rate is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<LinkCeiling>,
    pub streams: Vec<LinkStream>,
}

impl LinkFlow {
    /// What arrived over the receiver's time: what is in the sender's buffer never arrived.
    pub fn rate(&self) -> Option<Rate> {
        (self.receiver_time.0 > 0.0).then(|| Rate(self.received.0 as f64 / self.receiver_time.0))
    }
}

/// Round-trip times as the sender saw them under load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkRtt {
    /// Of single packets; where time was omitted, of the smoothed value.
    pub min: Seconds,
    /// Of the kernel's smoothed value, ten times a second and stream.
    pub median: Seconds,
    pub p99: Seconds,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkStream {
    /// The protocol's number: 1, 3, 4, 5 ...
    pub id: u32,
    pub sent: Bytes,
    pub received: Bytes,
    pub retransmits: Option<u64>,
}

/// One interval of a run, as this end saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkInterval {
    /// Since the start of the counted time, or of the omitted time where `omitted`.
    pub start: Seconds,
    pub end: Seconds,
    pub omitted: bool,
    pub streams: Vec<LinkTick>,
}

/// One stream in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkTick {
    pub id: u32,
    /// This host sends on it.
    pub sends: bool,
    pub bytes: Bytes,
    /// Known to the sender only.
    pub retransmits: Option<u64>,
    pub congestion_window: Option<Bytes>,
    pub rtt: Option<Seconds>,
}

impl LinkInterval {
    /// Bytes, and retransmitted segments where known, of one direction.
    pub fn sum(&self, sends: bool) -> (Bytes, Option<u64>) {
        let of = || self.streams.iter().filter(move |tick| tick.sends == sends);
        let retransmits = of().map(|tick| tick.retransmits).sum::<Option<u64>>();
        (Bytes(of().map(|tick| tick.bytes.0).sum()), retransmits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_the_same_word_on_the_wire_and_in_the_label() {
        for reason in LinkReason::FAILURES {
            let wire = serde_json::to_string(&reason).unwrap();
            assert_eq!(wire, format!("\"{}\"", reason.label()));
        }
    }

    #[test]
    fn a_rate_is_what_arrived_over_the_receivers_time() {
        let flow = LinkFlow {
            sent: Bytes(210_453_632),
            sender_time: Seconds(4.0),
            received: Bytes(200_509_440),
            receiver_time: Seconds(4.606_981_039),
            ..LinkFlow::default()
        };
        let bits = flow.rate().unwrap().0 * 8.0;
        assert!((bits - 348_183_660.06).abs() < 1.0, "{bits}");
        assert_eq!(LinkFlow::default().rate(), None, "no time is no rate, and not 0");
    }

    #[test]
    fn the_two_directions_of_an_interval_are_never_added() {
        let tick = |sends, bytes, retransmits| LinkTick {
            sends,
            bytes: Bytes(bytes),
            retransmits,
            ..LinkTick::default()
        };
        let interval = LinkInterval {
            start: Seconds(0.0),
            end: Seconds(1.0),
            omitted: false,
            streams: vec![tick(true, 1, Some(2)), tick(false, 10, None), tick(true, 3, Some(1))],
        };
        assert_eq!(interval.sum(true), (Bytes(4), Some(3)));
        assert_eq!(interval.sum(false), (Bytes(10), None));
    }
}
