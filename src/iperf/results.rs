//! What both ends counted, put together. Pure.

use std::collections::BTreeMap;

use super::report::{Report, SenderReport, StreamReport};
use super::transfer::Totals;
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
