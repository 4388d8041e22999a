//! What both ends counted, put together. Pure.

use std::collections::BTreeMap;

use super::report::{Report, SenderReport, StreamReport};
use super::totals::Totals;
use crate::base::units::{Bytes, Ratio, Seconds};
use crate::model::link::{LinkFlow, LinkMeasured, LinkProfile, LinkStream};

/// One test's results, with this end as the client.
///
/// # Errors
/// Where a stream's results are missing, or nothing arrived: a rate of 0 would be a lie about
/// the wire, since a test too short or cut off has no rate.
pub(super) fn measured(
    peer: String,
    profile: &LinkProfile,
    own: &Totals,
    theirs: &Report,
) -> Result<LinkMeasured, String> {
    let flow = |wanted: bool, sends| wanted.then(|| flow(sends, own, theirs)).transpose();
    Ok(LinkMeasured {
        peer,
        profile: profile.clone(),
        forward: flow(profile.direction.forward(), true)?,
        reverse: flow(profile.direction.reverse(), false)?,
        own_cpu: own.cpu,
        peer_cpu: theirs.cpu,
        identity: theirs.identity.clone(),
    })
}

/// The streams on which this end `sends`, or those on which it doesn't.
fn flow(sends: bool, own: &Totals, theirs: &Report) -> Result<LinkFlow, String> {
    let by_id: BTreeMap<u32, &StreamReport> = theirs.streams.iter().map(|s| (s.id, s)).collect();
    let mut flow = LinkFlow::default();
    let mut their_time = Seconds(0.0);
    for total in own.streams.iter().filter(|total| total.sends == sends) {
        let other =
            by_id.get(&total.id).ok_or_else(|| format!("no results of stream {}", total.id))?;
        let time = other.time.unwrap_or(own.time);
        their_time = Seconds(their_time.0.max(time.0));
        let (sent, received) =
            if sends { (total.bytes, other.bytes) } else { (other.bytes, total.bytes) };
        let retransmits = if sends { total.info.retransmits } else { other.retransmits };
        flow.sent.0 = flow.sent.0.saturating_add(sent.0);
        flow.received.0 = flow.received.0.saturating_add(received.0);
        flow.streams.push(LinkStream { id: total.id, sent, received, retransmits });
    }
    if flow.received.0 == 0 {
        return Err("no byte arrived: too short a test, or nothing comes through".into());
    }
    flow.retransmits = flow.streams.iter().map(|stream| stream.retransmits).sum();
    (flow.sender_time, flow.receiver_time) =
        if sends { (own.time, their_time) } else { (their_time, own.time) };
    flow.congestion = if sends { own.congestion.clone() } else { theirs.congestion.clone() };
    if let Some(sender) = if sends { own.sender() } else { theirs.sender } {
        fill(&mut flow, &sender);
    }
    Ok(flow)
}

/// What only the sender's kernel knows.
fn fill(flow: &mut LinkFlow, sender: &SenderReport) {
    let ratio = |part: Option<f64>, whole: Option<f64>| Ratio::of(part?, whole?);
    let real = |n: Option<u64>| n.map(|n| n as f64);
    let seconds = |time: Option<Seconds>| time.map(|time| time.0);
    let all = flow.sender_time.0 * flow.streams.len() as f64;
    flow.retransmit_ratio = ratio(real(sender.bytes_retransmitted), real(sender.bytes_sent));
    flow.busy = ratio(seconds(sender.busy), Some(all));
    flow.rwnd_limited = ratio(seconds(sender.rwnd_limited), seconds(sender.busy));
    flow.sndbuf_limited = ratio(seconds(sender.sndbuf_limited), seconds(sender.busy));
    flow.rtt = sender.rtt;
    flow.mss = sender.mss.map(Bytes);
}

#[cfg(test)]
mod tests {
    use super::super::info::Info;
    use super::super::totals::Total;
    use super::*;
    use crate::model::link::{LinkDirection, LinkRtt};

    fn own(sends: bool) -> Totals {
        let info = Info {
            retransmits: Some(3),
            bytes_sent: Some(1000),
            bytes_retransmitted: Some(10),
            busy: Some(Seconds(5.0)),
            rwnd_limited: Some(Seconds(1.0)),
            sndbuf_limited: Some(Seconds(0.0)),
            mss: Some(Bytes(1448)),
            ..Info::default()
        };
        let stream = |id| Total {
            id,
            sends,
            bytes: Bytes(600),
            info: if sends { info } else { Info::default() },
        };
        Totals {
            time: Seconds(10.0),
            streams: vec![stream(1), stream(3)],
            rtt: sends.then(LinkRtt::default),
            ..Totals::default()
        }
    }

    fn theirs(bytes: [u64; 2], retransmits: Option<u64>) -> Report {
        let stream = |(id, bytes)| StreamReport {
            id,
            bytes: Bytes(bytes),
            retransmits,
            time: Some(Seconds(8.0)),
        };
        Report { streams: [1, 3].into_iter().zip(bytes).map(stream).collect(), ..Report::default() }
    }

    fn profile(direction: LinkDirection) -> LinkProfile {
        LinkProfile { direction, ..super::super::parameters::tests::profile() }
    }

    #[test]
    fn the_receiver_gives_bytes_and_time_and_the_sender_the_rest() {
        let profile = profile(LinkDirection::Forward);
        let all = measured("p".into(), &profile, &own(true), &theirs([500, 300], None)).unwrap();
        let flow = all.forward.unwrap();
        assert_eq!((flow.sent, flow.received), (Bytes(1200), Bytes(800)));
        assert_eq!(flow.rate().unwrap().0, 100.0);
        assert_eq!((flow.retransmits, flow.retransmit_ratio), (Some(6), Some(Ratio(0.01))));
        assert_eq!(flow.busy, Some(Ratio(0.5)), "10 s of two streams' 20");
        assert_eq!((flow.rwnd_limited, flow.sndbuf_limited), (Some(Ratio(0.2)), Some(Ratio(0.0))));
        assert!(all.reverse.is_none());
    }

    #[test]
    fn a_stock_sender_tells_retransmits_and_nothing_more() {
        let profile = profile(LinkDirection::Reverse);
        let theirs = theirs([700, 700], Some(2));
        let flow = measured("p".into(), &profile, &own(false), &theirs).unwrap().reverse.unwrap();
        assert_eq!((flow.sent, flow.received), (Bytes(1400), Bytes(1200)));
        assert_eq!(flow.rate().unwrap().0, 120.0, "our bytes over our time");
        assert_eq!(flow.retransmits, Some(4));
        assert_eq!((flow.retransmit_ratio, flow.rtt, flow.busy), (None, None, None));
    }

    #[test]
    fn an_unknown_part_makes_the_sum_unknown() {
        let profile = profile(LinkDirection::Reverse);
        let mut theirs = theirs([700, 700], Some(2));
        theirs.streams[1].retransmits = None;
        let flow = measured("p".into(), &profile, &own(false), &theirs).unwrap().reverse.unwrap();
        assert_eq!(flow.retransmits, None);
    }

    #[test]
    fn streams_are_matched_by_their_number_and_not_by_their_place() {
        let profile = profile(LinkDirection::Forward);
        let mut theirs = theirs([500, 300], None);
        theirs.streams.reverse();
        let flow = measured("p".into(), &profile, &own(true), &theirs).unwrap().forward.unwrap();
        let received: Vec<_> = flow.streams.iter().map(|s| (s.id, s.received.0)).collect();
        assert_eq!(received, [(1, 500), (3, 300)]);
    }

    #[test]
    fn nothing_that_arrived_is_no_rate() {
        let profile = profile(LinkDirection::Forward);
        assert!(measured("p".into(), &profile, &own(true), &theirs([0, 0], None)).is_err());
        let huge = theirs([u64::MAX, u64::MAX], None);
        assert!(measured("p".into(), &profile, &own(true), &huge).is_ok(), "and nothing overflows");
    }
}
