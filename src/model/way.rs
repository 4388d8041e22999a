//! The way to a peer: what it carries in each direction, as far as anybody knows.

use serde::{Deserialize, Serialize};

use crate::base::physics::{FRAME_BYTES, Framing, goodput};
use crate::base::units::{Bytes, Rate, Ratio};

/// A measurement above this times a ceiling shows that the ceiling is none.
const BEYOND: f64 = 1.05;

/// What is known of the way to a peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerWay {
    /// Interfaces of this host that it goes through, from the socket down.
    pub devices: Vec<String>,
    /// To the peer, and from it; `None` where the rate isn't known.
    pub transmit: Option<Line>,
    pub receive: Option<Line>,
    /// Why a rate isn't known; empty where both are.
    pub unknown: String,
}

/// What an end of a way tells the other of its own line; `None` where it doesn't know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndLine {
    #[serde(rename = "sends_bytes_per_second")]
    pub sends: Option<Rate>,
    #[serde(rename = "receives_bytes_per_second")]
    pub receives: Option<Rate>,
}

impl PeerWay {
    /// This end's lines; shapers are none, which count frames by other rules.
    pub fn end(&self) -> EndLine {
        let wire = |line: &Option<Line>| {
            line.as_ref().filter(|line| line.framing.frame == FRAME_BYTES).map(|line| line.rate)
        };
        EndLine { sends: wire(&self.transmit), receives: wire(&self.receive) }
    }
}

/// What binds one direction of a way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Line rate for all flows together, and for one alone: over a bond these differ.
    #[serde(rename = "bytes_per_second")]
    pub rate: Rate,
    #[serde(rename = "flow_bytes_per_second")]
    pub flow: Rate,
    pub framing: Framing,
    /// By the operator.
    pub declared: bool,
    /// `eth0, 1 Gbit/s, VXLAN, MTU 1500`.
    pub source: String,
}

impl Line {
    pub fn rate_of(&self, streams: u32) -> Rate {
        if streams == 1 { self.flow } else { self.rate }
    }

    /// Most payload that so many streams get through; `segment` as TCP cuts it, where that is known.
    pub fn ceiling(&self, streams: u32, segment: Option<Bytes>) -> Option<Rate> {
        let framing = segment.map_or(self.framing, |bytes| self.framing.with_payload(bytes));
        goodput(self.rate_of(streams), framing)
    }
}

/// A result against what its way carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCeiling {
    #[serde(rename = "line_bytes_per_second")]
    pub line: Rate,
    /// Payload.
    #[serde(rename = "bytes_per_second")]
    pub rate: Rate,
    /// Received / ceiling; `None` where more was received than the ceiling allows for: it is none.
    pub share: Option<Ratio>,
    /// By the operator.
    #[serde(default)]
    pub declared: bool,
    pub source: String,
}

impl LinkCeiling {
    /// `None` where no ceiling can be computed.
    pub fn of(
        line: &Line,
        (streams, segment): (u32, Option<Bytes>),
        measured: Rate,
    ) -> Option<Self> {
        let rate = line.ceiling(streams, segment)?;
        let share = measured.0 / rate.0;
        Some(Self {
            line: line.rate_of(streams),
            rate,
            share: (share <= BEYOND).then_some(Ratio(share)),
            declared: line.declared,
            source: line.source.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bond() -> Line {
        Line {
            rate: Rate(250e6),
            flow: Rate(125e6),
            framing: Framing::default(),
            declared: false,
            source: "bond0".into(),
        }
    }

    #[test]
    fn one_flow_has_one_member_of_a_bond() {
        let mbit = |streams, segment: Option<u64>| {
            let rate = bond().ceiling(streams, segment.map(Bytes)).unwrap();
            format!("{:.2}", rate.0 * 8.0 / 1e6)
        };
        assert_eq!((mbit(1, None), mbit(2, None)), ("941.48".into(), "1882.96".into()));
        assert_eq!(mbit(1, Some(8948)), "990.04", "segments show what packets there are");
    }

    #[test]
    fn an_end_tells_of_wires_and_not_of_shapers() {
        let shaper = Line { framing: Framing { frame: 14, ..Framing::default() }, ..bond() };
        let way = |line| PeerWay { transmit: Some(line), ..PeerWay::default() }.end();
        assert_eq!(way(bond()), EndLine { sends: Some(Rate(250e6)), receives: None });
        assert_eq!(way(shaper), EndLine::default());
    }

    #[test]
    fn a_ceiling_that_was_left_behind_has_no_share() {
        let of = |measured| LinkCeiling::of(&bond(), (1, None), Rate(measured)).unwrap();
        assert!((of(110e6).share.unwrap().0 - 0.9347).abs() < 1e-4);
        assert_eq!(of(200e6).share, None);
    }
}
