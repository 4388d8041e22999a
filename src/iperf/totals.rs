//! What one end counted in a test, and how the other end is told.

use super::info::Info;
use super::report::{Report, SenderReport, StreamReport};
use crate::base::units::{Bytes, Seconds};
use crate::model::link::{LinkCpu, LinkIdentity, LinkRtt};

/// What one end counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub time: Seconds,
    pub cpu: LinkCpu,
    pub streams: Vec<Total>,
    /// Where this end sends.
    pub rtt: Option<LinkRtt>,
    pub congestion: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Total {
    pub id: u32,
    pub sends: bool,
    pub bytes: Bytes,
    pub info: Info,
}

impl Totals {
    pub(super) fn report(&self, identity: Option<LinkIdentity>) -> Report {
        let stream = |total: &Total| StreamReport {
            id: total.id,
            bytes: total.bytes,
            retransmits: total.info.retransmits,
            time: Some(self.time),
        };
        Report {
            cpu: self.cpu,
            sends: self.streams.iter().any(|total| total.sends),
            congestion: self.congestion.clone(),
            streams: self.streams.iter().map(stream).collect(),
            sender: self.sender(),
            identity,
        }
    }

    /// Sums over the streams on which this end sends; a sum of which a part is unknown is unknown.
    pub(super) fn sender(&self) -> Option<SenderReport> {
        let infos: Vec<&Info> = self.streams.iter().filter(|t| t.sends).map(|t| &t.info).collect();
        if infos.is_empty() {
            return None;
        }
        let count = |of: fn(&Info) -> Option<u64>| infos.iter().map(|i| of(i)).sum::<Option<u64>>();
        let time = |of: fn(&Info) -> Option<Seconds>| {
            infos.iter().map(|i| of(i).map(|s| s.0)).sum::<Option<f64>>().map(Seconds)
        };
        Some(SenderReport {
            bytes_sent: count(|i| i.bytes_sent),
            bytes_retransmitted: count(|i| i.bytes_retransmitted),
            busy: time(|i| i.busy),
            rwnd_limited: time(|i| i.rwnd_limited),
            sndbuf_limited: time(|i| i.sndbuf_limited),
            rtt: self.rtt,
            mss: infos.iter().filter_map(|i| i.mss.map(|b| b.0)).min(),
        })
    }
}
