//! What is published of the way to peers, and of the mesh.

pub use super::families::DESCS;
use super::families::*;
use crate::base::clock::Moment;
use crate::model::link::{LinkFlow, LinkReason};
use crate::model::metric::{Label, Point, push_some};
use crate::model::peer::{LINK_SKIPS, LinkDone, LinkResult, LinkView, MeshView};

/// All that is published of one link probe to one peer; results only while they are fresh.
pub fn points(view: &LinkView, now: Moment, out: &mut Vec<Point>) {
    let labels: [&Label; 2] = [&view.probe, &view.peer];
    lane(view, out);
    for (direction, sum) in DIRECTIONS.into_iter().zip(view.retransmits) {
        let labels = [labels[0], labels[1], &direction.into()];
        push_some(out, &RETRANSMITS, &labels, sum.map(|n| n as f64));
    }
    push_some(out, &LIST_MISMATCH, &labels, view.list_differs.map(number));
    let Some(LinkResult { done, .. }) = view.fresh(now) else { return };
    let streams = done.legs.first().map_or(0, |leg| leg.profile.streams).to_string();
    let info = [labels[0], labels[1], &super::NAME.into(), &streams.into()];
    out.push(Point::number(&PEER_INFO, &info, 1.0));
    let flag = [labels[0], labels[1], &"same_host_suspected".into()];
    push_some(out, &PEER_FLAGS, &flag, done.same_host_suspected().map(number));
    rates(labels, done, out);
    for (direction, flow) in DIRECTIONS.into_iter().zip([done.transmit(), done.receive()]) {
        if let Some(flow) = flow {
            path(labels, &direction.into(), (flow, out));
        }
    }
}

const DIRECTIONS: [&str; 2] = ["transmit", "receive"];

fn number(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// Counts and times of the lane itself.
fn lane(view: &LinkView, out: &mut Vec<Point>) {
    let labels: [&Label; 2] = [&view.probe, &view.peer];
    out.push(Point::number(&PEER_RUNS, &labels, view.runs as f64));
    let always = LinkReason::FAILURES.into_iter().map(|reason| reason.label());
    let others = view.failures.keys().copied().filter(|r| !always.clone().any(|a| a == *r));
    for reason in always.clone().chain(others) {
        let n = view.failures.get(reason).copied().unwrap_or(0);
        let labels = [labels[0], labels[1], &reason.into()];
        out.push(Point::number(&PEER_FAILURES, &labels, n as f64));
    }
    for skip in LINK_SKIPS {
        let n = view.skips.get(&skip).copied().unwrap_or(0);
        let labels = [labels[0], labels[1], &skip.label().into()];
        out.push(Point::number(&PEER_SKIPS, &labels, n as f64));
    }
    push_some(out, &PEER_LAST_RUN, &labels, view.last_run.map(|at| at.unix_seconds()));
    push_some(out, &PEER_LAST_SUCCESS, &labels, view.last_success.map(|at| at.unix_seconds()));
    out.push(Point::number(&PEER_INTERVAL, &labels, view.every.0));
    push_some(out, &PEER_RUN_TIME, &labels, view.last_run_seconds.map(|s| s.0));
    out.push(Point::number(&BUSY, &labels, view.busy as f64));
}

fn rates(labels: [&Label; 2], done: &LinkDone, out: &mut Vec<Point>) {
    let rate = |flow: &LinkFlow| flow.rate().map(|rate| rate.0);
    push_some(out, &TRANSMIT, &labels, done.transmit().and_then(rate));
    push_some(out, &RECEIVE, &labels, done.receive().and_then(rate));
    let single = done.single.as_ref();
    let flows = [single.and_then(|s| s.forward.as_ref()), single.and_then(|s| s.reverse.as_ref())];
    for (direction, flow) in DIRECTIONS.into_iter().zip(flows) {
        let labels = [labels[0], labels[1], &direction.into()];
        push_some(out, &SINGLE, &labels, flow.and_then(rate));
    }
}

/// What one direction's flow says of the path.
fn path(labels: [&Label; 2], direction: &Label, (flow, out): (&LinkFlow, &mut Vec<Point>)) {
    let [probe, peer] = labels;
    let ceiling = flow.ceiling.as_ref();
    push_some(out, &LINE, &[probe, peer, direction], ceiling.map(|ceiling| ceiling.line.0));
    push_some(out, &CEILING, &[probe, peer, direction], ceiling.map(|ceiling| ceiling.rate.0));
    let ratio = flow.retransmit_ratio.map(|ratio| ratio.0);
    push_some(out, &RETRANSMIT_RATIO, &[probe, peer, direction], ratio);
    if let Some(rtt) = flow.rtt {
        for (q, value) in [("0", rtt.min), ("0.5", rtt.median), ("0.99", rtt.p99)] {
            out.push(Point::number(&RTT, &[probe, peer, direction, &q.into()], value.0));
        }
    }
    for stream in flow.streams.iter().filter(|_| flow.receiver_time.0 > 0.0) {
        let rate = stream.received.0 as f64 / flow.receiver_time.0;
        let id = Label::from(stream.id.to_string());
        out.push(Point::number(&STREAM_RATE, &[probe, peer, direction, &id], rate));
    }
}

/// What is published of the mesh as a whole; served even when all else is stale.
pub fn mesh_points(mesh: &MeshView, out: &mut Vec<Point>) {
    if mesh.members > 0 {
        out.push(Point::number(&LIST_INFO, &[&mesh.digest], 1.0));
        out.push(Point::number(&MEMBERS, &[], mesh.members as f64));
    }
    for source in &mesh.sources {
        let label = [&source.name];
        out.push(Point::number(&SOURCE_PEERS, &label, source.peers as f64));
        push_some(out, &SOURCE_READ, &label, source.read_at.map(|at| at.unix_seconds()));
        out.push(Point::number(&SOURCE_FAILURES, &label, source.failures as f64));
    }
    for (reason, n) in &mesh.dropped {
        out.push(Point::number(&DROPPED, &[&(*reason).into()], *n as f64));
    }
    for (result, n) in mesh.served.iter().flatten() {
        out.push(Point::number(&SERVED, &[&(*result).into()], *n as f64));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::units::{Bytes, Rate, Ratio, Seconds};
    use crate::model::link::{LinkMeasured, LinkProfile, LinkRtt, LinkStream};
    use crate::model::metric::Value;
    use crate::model::way::LinkCeiling;

    fn page(view: &LinkView, now: Moment) -> BTreeMap<String, f64> {
        let mut out = Vec::new();
        points(view, now, &mut out);
        let mut page = BTreeMap::new();
        for point in out {
            let Value::Number(value) = point.value else { continue };
            let labels: Vec<&str> = point.labels.iter().map(|l| &**l).collect();
            let name = point.desc.name.trim_start_matches("loadline_");
            let series = format!("{name}{{{}}}", labels.join(","));
            assert!(page.insert(series, value).is_none(), "a series came twice");
        }
        page
    }

    fn flow(rate: u64) -> LinkFlow {
        let streams =
            [1, 3].map(|id| LinkStream { id, received: Bytes(rate), ..LinkStream::default() });
        LinkFlow {
            received: Bytes(rate * 2),
            receiver_time: Seconds(2.0),
            retransmits: Some(7),
            retransmit_ratio: Some(Ratio(0.01)),
            rtt: Some(LinkRtt { min: Seconds(0.1), median: Seconds(0.2), p99: Seconds(0.3) }),
            streams: streams.into(),
            ..LinkFlow::default()
        }
    }

    fn measured(forward: Option<LinkFlow>, reverse: Option<LinkFlow>) -> LinkMeasured {
        LinkMeasured {
            peer: "b".into(),
            profile: LinkProfile::plain(2, Seconds(2.0)),
            forward,
            reverse,
            own_cpu: Default::default(),
            peer_cpu: Default::default(),
            identity: None,
        }
    }

    fn view() -> LinkView {
        let done = LinkDone {
            single: Some(measured(Some(flow(10)), None)),
            legs: vec![measured(Some(flow(100)), None), measured(None, Some(flow(90)))],
        };
        LinkView {
            probe: "mesh".into(),
            peer: "b".into(),
            every: Seconds(100.0),
            runs: 2,
            busy: 3,
            failures: BTreeMap::from([("busy", 1), ("worker_died", 1)]),
            retransmits: [Some(9), None],
            last_success: Some(Moment::default()),
            last: Some(Arc::new(LinkResult { done, verdicts: [None, None] })),
            ..LinkView::default()
        }
    }

    #[test]
    fn a_result_is_published_by_direction() {
        let page = page(&view(), Moment::default());
        assert_eq!(page["link_probe_transmit_bytes_per_second{mesh,b}"], 100.0);
        assert_eq!(page["link_probe_receive_bytes_per_second{mesh,b}"], 90.0);
        assert_eq!(page["link_probe_single_stream_bytes_per_second{mesh,b,transmit}"], 10.0);
        assert_eq!(page["link_probe_stream_bytes_per_second{mesh,b,receive,3}"], 45.0);
        assert_eq!(page["link_probe_rtt_seconds{mesh,b,transmit,0.99}"], 0.3);
        assert_eq!(page["link_probe_retransmits_total{mesh,b,transmit}"], 9.0);
        assert!(!page.contains_key("link_probe_retransmits_total{mesh,b,receive}"));
        assert_eq!(page["probe_info{mesh,b,throughput,2}"], 1.0);
        assert_eq!(page["link_probe_busy_total{mesh,b}"], 3.0);
    }

    #[test]
    fn what_the_way_carries_is_there_where_a_line_rate_is_known() {
        let series = |name: &str, direction| format!("link_probe_{name}{{mesh,b,{direction}}}");
        let mut known = view();
        let result = Arc::make_mut(known.last.as_mut().unwrap());
        result.done.legs[0].forward.as_mut().unwrap().ceiling = Some(LinkCeiling {
            line: Rate(125.0),
            rate: Rate(117.0),
            share: Some(Ratio(0.85)),
            declared: true,
            source: String::new(),
        });
        let page = page(&known, Moment::default());
        assert_eq!(page[&series("line_bytes_per_second", "transmit")], 125.0);
        assert_eq!(page[&series("ceiling_bytes_per_second", "transmit")], 117.0);
        assert!(!page.contains_key(&series("ceiling_bytes_per_second", "receive")));
        assert_eq!(page["probe_flag{mesh,b,same_host_suspected}"], 0.0);
    }

    #[test]
    fn a_failure_is_a_count_by_reason_and_never_a_rate_of_nothing() {
        let mut failed = view();
        failed.last = None;
        let page = page(&failed, Moment::default());
        assert!(!page.keys().any(|key| key.contains("bytes_per_second") || key.contains("rtt")));
        assert_eq!(page["probe_failures_total{mesh,b,busy}"], 1.0);
        assert_eq!(page["probe_failures_total{mesh,b,timeout}"], 0.0, "there from the start");
        assert_eq!(page["probe_failures_total{mesh,b,worker_died}"], 1.0);
        assert_eq!(page["probe_skips_total{mesh,b,clock}"], 0.0);
    }

    #[test]
    fn after_three_intervals_a_result_is_absent() {
        let later = Moment::default().plus(Duration::from_secs(301));
        let page = page(&view(), later);
        assert!(!page.contains_key("link_probe_transmit_bytes_per_second{mesh,b}"));
        assert_eq!(page["probe_runs_total{mesh,b}"], 2.0);
    }
}
