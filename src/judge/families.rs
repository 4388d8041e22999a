//! What is published of verdicts and ceilings.

use super::book::{Entry, Resource, Way};
use crate::base::clock::Moment;
use crate::base::physics::goodput;
use crate::model::live::KnownLine;
use crate::model::metric::{Desc, Label, Point, push_some};
use crate::model::path::Encapsulation;
use crate::model::peer::{LinkResult, LinkView};
use crate::model::snapshot::ProbeView;
use crate::model::verdict::{Limit, Persistence, Trust, Unit, Verdict};

static VERDICT: Desc = Desc::gauge(
    "loadline_verdict",
    &["probe", "target", "limit"],
    "1 for the limit that bound the last run, 0 for every other.",
    "judged from the last run",
);
static CONFIDENCE: Desc = Desc::gauge(
    "loadline_verdict_confidence_ratio",
    &["probe", "target"],
    "How sure the verdict on the last run is; 0 where the evidence doesn't decide.",
    "judged from the last run",
);
static CEILING_RATIO: Desc = Desc::gauge(
    "loadline_probe_ceiling_ratio",
    &["probe", "target"],
    "Result of the last run / the ceiling that bound it; absent where no number is known for it.",
    "judged from the last run",
);

static OSD_VERDICT: Desc = Desc::gauge(
    "loadline_osd_verdict_info",
    &["probe", "target", "osd", "limit"],
    "The limit that bound the last bench of an OSD.",
    "judged from the last run",
);
static OSD_CONFIDENCE: Desc = Desc::gauge(
    "loadline_osd_verdict_confidence_ratio",
    &["probe", "target", "osd"],
    "How sure the verdict on the last bench of an OSD is; 0 where the evidence doesn't decide.",
    "judged from the last run",
);
const WAY: &[&str] = &["probe", "peer", "direction"];
static LINK_VERDICT: Desc = VERDICT.labelled(&["probe", "peer", "direction", "limit"]);
static LINK_CONFIDENCE: Desc = CONFIDENCE.labelled(WAY);
static LINK_CEILING_RATIO: Desc = CEILING_RATIO.labelled(WAY);

/// The families of one resource: operations, then bytes; reads, then writes.
type FourDescs = [[Desc; 2]; 2];

macro_rules! ceilings_of {
    ($prefix:literal, $label:literal, $what:literal, $from:literal) => {
        [
            [
                ceiling_desc!($prefix, "read_operations", $label, $what, "reads", $from),
                ceiling_desc!($prefix, "write_operations", $label, $what, "writes", $from),
            ],
            [
                ceiling_desc!($prefix, "read_bytes", $label, $what, "bytes read", $from),
                ceiling_desc!($prefix, "write_bytes", $label, $what, "bytes written", $from),
            ],
        ]
    };
}

macro_rules! ceiling_desc {
    ($prefix:literal, $of:literal, $label:literal, $what:literal, $unit:literal, $from:literal) => {
        Desc::gauge(
            concat!($prefix, $of, "_per_second"),
            &[$label],
            concat!(
                "Most ",
                $unit,
                " a second that the ",
                $what,
                " gives; absent while none is known."
            ),
            $from,
        )
    };
}

static DISK: FourDescs =
    ceilings_of!("loadline_disk_ceiling_", "device", "disk", "clean saturated probe runs");
static TARGET: FourDescs = ceilings_of!(
    "loadline_target_ceiling_",
    "target",
    "target",
    "clean saturated probe runs, configuration"
);
static NIC: [Desc; 2] = [
    Desc::gauge(
        "loadline_nic_ceiling_receive_bytes_per_second",
        &["device"],
        "TCP payload that the line carries in the receive direction; absent while its rate is unknown.",
        "line rate and MTU",
    ),
    Desc::gauge(
        "loadline_nic_ceiling_transmit_bytes_per_second",
        &["device"],
        "TCP payload that the line carries in the transmit direction; absent while its rate is unknown.",
        "line rate and MTU",
    ),
];
static CEILING_INFO: Desc = Desc::gauge(
    "loadline_ceiling_info",
    &["device", "target", "ceiling", "source", "kind", "stroke"],
    "Where a ceiling comes from (declared, knee, detected) and whether it lasts (sustained, burst); \
     `stroke` is short where a spindle was measured on a small part of it.",
    "clean saturated probe runs, configuration",
);
static CEILING_AT: Desc = Desc::gauge(
    "loadline_ceiling_timestamp_seconds",
    &["device", "target", "ceiling"],
    "Unix time at which a ceiling was measured; absent for what is declared or detected.",
    "clean saturated probe runs",
);

/// Every family of verdicts and ceilings.
pub static DESCS: &[&Desc] = &[
    &VERDICT,
    &CONFIDENCE,
    &CEILING_RATIO,
    &OSD_VERDICT,
    &OSD_CONFIDENCE,
    &LINK_VERDICT,
    &LINK_CONFIDENCE,
    &LINK_CEILING_RATIO,
    &DISK[0][0],
    &DISK[0][1],
    &DISK[1][0],
    &DISK[1][1],
    &TARGET[0][0],
    &TARGET[0][1],
    &TARGET[1][0],
    &TARGET[1][1],
    &NIC[0],
    &NIC[1],
    &CEILING_INFO,
    &CEILING_AT,
];

/// A ceiling in force, with what is to be known of it.
pub fn ceiling(entry: &Entry, out: &mut Vec<Point>) {
    let (unit, word) = match entry.of.unit {
        Unit::OperationsPerSecond => (0, "operations"),
        Unit::BytesPerSecond => (1, "bytes"),
    };
    let way = usize::from(entry.of.way == Way::Write);
    let none = Label::from("");
    let (desc, name, is_disk) = match &entry.of.resource {
        Resource::Disk(name) => (&DISK[unit][way], Label::from(name.as_str()), true),
        Resource::Target(name) => (&TARGET[unit][way], Label::from(name.as_str()), false),
    };
    let (device, target) = if is_disk { (&name, &none) } else { (&none, &name) };
    let which = Label::from(format!("{}_{word}", entry.of.way.label()));
    out.push(Point::number(desc, &[&name], entry.value));
    let source = Label::from(entry.trust.label());
    let kind = Label::from(entry.kind.label());
    let stroke = Label::from(if entry.short_stroke { "short" } else { "" });
    let labels = [device, target, &which, &source, &kind, &stroke];
    out.push(Point::number(&CEILING_INFO, &labels, 1.0));
    push_some(out, &CEILING_AT, &[device, target, &which], entry.at);
}

/// What a line carries of payload, one direction after the other.
pub fn line(line: &KnownLine, out: &mut Vec<Point>) {
    let none = Label::from("");
    let tagged = if line.tagged { Encapsulation::Vlan } else { Encapsulation::None };
    let trust = if line.declared { Trust::Declared } else { Trust::Detected };
    let labels = [trust.label(), Persistence::Sustained.label()].map(Label::from);
    let ways = [("receive_bytes", line.receive), ("transmit_bytes", line.transmit)];
    for (desc, (which, rate)) in NIC.iter().zip(ways) {
        let Some(value) = goodput(rate, tagged.framing(line.mtu)) else { continue };
        out.push(Point::number(desc, &[&line.device], value.0));
        let all = [&line.device, &none, &which.into(), &labels[0], &labels[1], &none];
        out.push(Point::number(&CEILING_INFO, &all, 1.0));
    }
}

/// The verdicts on a probe's last run, for as long as its result is published.
pub fn verdict(view: &ProbeView, now: Moment, out: &mut Vec<Point>) {
    if view.fresh(now).is_some() {
        osds(view, out);
    }
    let Some(verdict) = view.fresh_verdict(now) else { return };
    let labels: [&Label; 2] = [&view.name, &view.target];
    limits(&VERDICT, &labels, (verdict, out));
    out.push(Point::number(&CONFIDENCE, &labels, verdict.confidence));
    push_some(out, &CEILING_RATIO, &labels, view.ceiling_ratio);
}

/// A series for each OSD alone, not for each limit: clusters have many.
fn osds(view: &ProbeView, out: &mut Vec<Point>) {
    for (id, verdict) in view.osd_verdicts.iter() {
        let (osd, limit) = (Label::from(format!("osd.{id}")), Label::from(verdict.limit.label()));
        let labels: [&Label; 4] = [&view.name, &view.target, &osd, &limit];
        out.push(Point::number(&OSD_VERDICT, &labels, 1.0));
        out.push(Point::number(&OSD_CONFIDENCE, &labels[..3], verdict.confidence));
    }
}

/// As [`verdict`], of a test with a peer: each direction has its own.
pub fn link_verdict(view: &LinkView, now: Moment, out: &mut Vec<Point>) {
    let Some(LinkResult { done, verdicts }) = view.fresh(now) else { return };
    let ways = [("transmit", done.transmit()), ("receive", done.receive())];
    for ((direction, flow), verdict) in ways.into_iter().zip(verdicts) {
        let labels: [&Label; 3] = [&view.probe, &view.peer, &direction.into()];
        if let Some(verdict) = verdict {
            limits(&LINK_VERDICT, &labels, (verdict, out));
            out.push(Point::number(&LINK_CONFIDENCE, &labels, verdict.confidence));
        }
        let share = flow.and_then(|flow| flow.ceiling.as_ref()?.share);
        push_some(out, &LINK_CEILING_RATIO, &labels, share.map(|share| share.0));
    }
}

/// One of the full set is 1.
fn limits(desc: &'static Desc, labels: &[&Label], (verdict, out): (&Verdict, &mut Vec<Point>)) {
    for limit in Limit::ALL {
        let which = Label::from(limit.label());
        let labels: Vec<&Label> = labels.iter().copied().chain([&which]).collect();
        let is_it = f64::from(u8::from(limit == verdict.limit));
        out.push(Point::number(desc, &labels, is_it));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::units::{Bytes, Rate, Ratio, Seconds};
    use crate::judge::facts::Facts;
    use crate::judge::limits::judge;
    use crate::model::link::{LinkCpu, LinkFlow, LinkMeasured, LinkProfile};
    use crate::model::metric::Value;
    use crate::model::outcome::Done;
    use crate::model::peer::LinkDone;
    use crate::model::way::LinkCeiling;

    fn at(seconds: u64) -> Moment {
        Moment::default().plus(Duration::from_secs(seconds))
    }

    fn view() -> ProbeView {
        ProbeView {
            name: "fast".into(),
            target: "srv".into(),
            every: Seconds(10.0),
            last_success: Some(at(100)),
            last: Some(Arc::new(Done::default())),
            verdict: Some(Arc::new(judge(&Facts::default()))),
            ..ProbeView::default()
        }
    }

    fn page(view: &ProbeView, now: Moment) -> Vec<(String, f64)> {
        let mut out = Vec::new();
        verdict(view, now, &mut out);
        numbers(out)
    }

    fn numbers(points: Vec<Point>) -> Vec<(String, f64)> {
        let number = |point: Point| match point.value {
            Value::Number(n) => (format!("{}{:?}", point.desc.name, point.labels), n),
            Value::Histogram(_) => panic!("no histogram is of a verdict"),
        };
        points.into_iter().map(number).collect()
    }

    /// Of a test whose way to the peer is known, and the way back isn't.
    fn link_page(now: Moment) -> BTreeMap<String, f64> {
        let flow = |share: Option<f64>| LinkFlow {
            received: Bytes(900),
            receiver_time: Seconds(1.0),
            ceiling: share.map(|share| LinkCeiling {
                line: Rate(1000.0),
                rate: Rate(900.0),
                share: Some(Ratio(share)),
                declared: false,
                source: String::new(),
            }),
            ..LinkFlow::default()
        };
        let leg = LinkMeasured {
            peer: "b".into(),
            profile: LinkProfile::plain(4, Seconds(1.0)),
            forward: Some(flow(Some(0.9))),
            reverse: Some(flow(None)),
            own_cpu: LinkCpu::default(),
            peer_cpu: LinkCpu::default(),
            identity: None,
        };
        let unknown = judge(&Facts::default());
        let link = Verdict { limit: Limit::Link, confidence: 0.75, ..unknown.clone() };
        let result = LinkResult {
            done: LinkDone { single: None, legs: vec![leg] },
            verdicts: [Some(link), Some(unknown)],
        };
        let view = LinkView {
            probe: "mesh".into(),
            peer: "b".into(),
            every: Seconds(10.0),
            last_success: Some(at(100)),
            last: Some(Arc::new(result)),
            ..LinkView::default()
        };
        let mut out = Vec::new();
        link_verdict(&view, now, &mut out);
        numbers(out).into_iter().collect()
    }

    #[test]
    fn each_direction_of_a_link_has_a_verdict_and_a_share_where_its_line_is_known() {
        let page = link_page(at(130));
        let of =
            |name: &str, more: &str| page.get(&format!("loadline_{name}[\"mesh\", \"b\", {more}]"));
        assert_eq!(of("verdict", r#""transmit", "link""#), Some(&1.0));
        assert_eq!(of("verdict", r#""receive", "link""#), Some(&0.0));
        assert_eq!(of("verdict", r#""receive", "unknown""#), Some(&1.0));
        assert_eq!(of("verdict_confidence_ratio", r#""transmit""#), Some(&0.75));
        assert_eq!(of("probe_ceiling_ratio", r#""transmit""#), Some(&0.9));
        assert_eq!(of("probe_ceiling_ratio", r#""receive""#), None, "no line, no share");
        assert_eq!(page.len(), 2 * (Limit::ALL.len() + 1) + 1);
        assert!(link_page(at(131)).is_empty(), "a verdict leaves with its result");
    }

    #[test]
    fn one_limit_of_the_full_set_is_one() {
        let page = page(&view(), at(105));
        let limits: Vec<_> =
            page.iter().filter(|(n, _)| n.starts_with("loadline_verdict[")).collect();
        assert_eq!(limits.len(), Limit::ALL.len());
        assert_eq!(limits.iter().map(|(_, n)| n).sum::<f64>(), 1.0);
        assert!(page.contains(&(r#"loadline_verdict["fast", "srv", "unknown"]"#.into(), 1.0)));
        assert!(!page.iter().any(|(name, _)| name.contains("ceiling")), "no ceiling, no share");
    }

    #[test]
    fn a_verdict_leaves_with_its_result() {
        let osds = Arc::new([(3, judge(&Facts::default()))].into());
        let of_osds = ProbeView { osd_verdicts: osds, ..view() };
        assert!(page(&of_osds, at(131)).is_empty());
    }

    #[test]
    fn an_osd_has_one_series_for_its_limit_and_one_for_how_sure_it_is() {
        let osds = [0, 3].map(|id| (id, judge(&Facts::default())));
        let view = ProbeView { verdict: None, osd_verdicts: Arc::new(osds.into()), ..view() };
        let page = page(&view, at(105));
        assert_eq!(page.len(), 4, "{page:?}");
        let limit = r#"loadline_osd_verdict_info["fast", "srv", "osd.3", "unknown"]"#;
        assert_eq!(page[2], (limit.into(), 1.0));
        assert_eq!(page[3].1, 0.0);
    }
}
