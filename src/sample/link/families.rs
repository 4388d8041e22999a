//! The families of links, and what one link says in them.

use std::sync::Arc;

use super::track::{Ceiling, Track};
use crate::base::units::Ratio;
use crate::model::load::{FlowCounters, FlowLoad, LinkCounters};
use crate::model::metric::{Desc, Label, Point, push_some};
use crate::sample::Reading;

/// Families that exist once a direction.
struct FlowDescs {
    bytes: Desc,
    packets: Desc,
    errors: Desc,
    drops: Desc,
    rate: Desc,
    utilization: Desc,
    headroom: Desc,
    window_utilization: Desc,
    at_ceiling: Desc,
    at_ceiling_seconds: Desc,
    saturation: Desc,
}

const DEVICE: &[&str] = &["device"];
const NET_DEV: &str = "/proc/net/dev";
const WIRE: &str = "(bytes + 24 x packets) of /proc/net/dev / capacity";

macro_rules! flow_descs {
    ($direction:literal, $drops:literal) => {
        FlowDescs {
            bytes: Desc::counter(
                concat!("loadline_nic_", $direction, "_bytes_total"),
                DEVICE,
                concat!("Bytes, ", $direction, " direction, without preamble, FCS and gap."),
                NET_DEV,
            ),
            packets: Desc::counter(
                concat!("loadline_nic_", $direction, "_packets_total"),
                DEVICE,
                concat!("Packets, ", $direction, " direction, as the driver counts them."),
                NET_DEV,
            ),
            errors: Desc::counter(
                concat!("loadline_nic_", $direction, "_errors_total"),
                DEVICE,
                concat!("Packets with an error, ", $direction, " direction."),
                NET_DEV,
            ),
            drops: Desc::counter(
                concat!("loadline_nic_", $direction, "_drops_total"),
                DEVICE,
                $drops,
                NET_DEV,
            ),
            rate: Desc::gauge(
                concat!("loadline_nic_", $direction, "_bytes_per_second"),
                DEVICE,
                concat!("Bytes a second in the last window, ", $direction, " direction."),
                NET_DEV,
            ),
            utilization: Desc::gauge(
                concat!("loadline_nic_", $direction, "_utilization_ratio"),
                DEVICE,
                concat!(
                    "Share of the line used in the last window, ",
                    $direction,
                    " direction, wire overhead included; absent while the capacity is unknown."
                ),
                WIRE,
            ),
            headroom: Desc::gauge(
                concat!("loadline_nic_", $direction, "_headroom_ratio"),
                DEVICE,
                concat!("1 - utilization, ", $direction, " direction."),
                WIRE,
            ),
            window_utilization: Desc::histogram(
                concat!("loadline_nic_window_", $direction, "_utilization_ratio"),
                DEVICE,
                concat!("Utilization of each window, ", $direction, " direction."),
                WIRE,
            ),
            at_ceiling: Desc::gauge(
                concat!("loadline_nic_", $direction, "_at_ceiling"),
                DEVICE,
                concat!(
                    "1 once 8 of the last 10 windows used 90 % of the line or more, 0 once 3 did, ",
                    $direction,
                    " direction."
                ),
                WIRE,
            ),
            at_ceiling_seconds: Desc::counter(
                concat!("loadline_nic_", $direction, "_at_ceiling_seconds_total"),
                DEVICE,
                concat!(
                    "Seconds of windows that used 90 % of the line or more, ",
                    $direction,
                    " direction."
                ),
                WIRE,
            ),
            saturation: Desc::gauge(
                concat!("loadline_nic_", $direction, "_saturation_ratio"),
                DEVICE,
                concat!(
                    "Share of the last 60 windows at 90 % of the line or more, ",
                    $direction,
                    " direction."
                ),
                WIRE,
            ),
        }
    };
}

static RECEIVE: FlowDescs = flow_descs!(
    "receive",
    "Received packets that the host dropped; where receive_missed is absent, missed ones as well."
);
static TRANSMIT: FlowDescs =
    flow_descs!("transmit", "Packets dropped before they were transmitted.");
static MISSED: Desc = Desc::counter(
    "loadline_nic_receive_missed_total",
    DEVICE,
    "Packets that the device had no buffer for: the host took them too slowly.",
    "/sys/class/net/*/statistics/rx_missed_errors",
);
static CAPACITY: Desc = Desc::gauge(
    "loadline_nic_capacity_bytes_per_second",
    DEVICE,
    "Line rate of one direction (transmit, where a bond's mode makes them differ); absent when \
     unknown.",
    "links.NAME.rate, /sys/class/net/*/speed, bonding",
);
static CAPACITY_KNOWN: Desc = Desc::gauge(
    "loadline_nic_capacity_known",
    DEVICE,
    "1 when the line rate is known; 0: utilization is absent until links.NAME.rate is set.",
    "links.NAME.rate, /sys/class/net/*/speed, bonding",
);
static ALLOWANCE: Desc = Desc::counter(
    "loadline_nic_allowance_exceeded_total",
    &["device", "allowance"],
    "Packets that the cloud held back or dropped because the instance had used up this allowance; \
     only where the card's driver tells (ENA), asked once a minute.",
    "ethtool statistics *_allowance_exceeded",
);
static BUSIEST_MEMBER: Desc = Desc::gauge(
    "loadline_nic_busiest_member_utilization_ratio",
    DEVICE,
    "Utilization of the fullest line of a bond, in its fuller direction: few flows can fill one while \
     the bond has room.",
    WIRE,
);
static INFO: Desc = Desc::gauge(
    "loadline_nic_info",
    &["device", "class", "bond", "duplex"],
    "What the interface is: its class, the bond it is a slave of, its duplex mode.",
    "/sys/class/net/*",
);

macro_rules! all_of {
    ($flow:ident) => {
        [
            &$flow.bytes,
            &$flow.packets,
            &$flow.errors,
            &$flow.drops,
            &$flow.rate,
            &$flow.utilization,
            &$flow.headroom,
            &$flow.window_utilization,
            &$flow.at_ceiling,
            &$flow.at_ceiling_seconds,
            &$flow.saturation,
        ]
    };
}

static RECEIVE_DESCS: [&Desc; 11] = all_of!(RECEIVE);
static TRANSMIT_DESCS: [&Desc; 11] = all_of!(TRANSMIT);

/// Every family of this sampler.
pub(super) static DESCS: &[&Desc] = &{
    let mut all = [&INFO; 28];
    let mut at = 0;
    while at < 11 {
        all[at] = RECEIVE_DESCS[at];
        all[at + 11] = TRANSMIT_DESCS[at];
        at += 1;
    }
    all[22] = &MISSED;
    all[23] = &CAPACITY;
    all[24] = &CAPACITY_KNOWN;
    all[25] = &ALLOWANCE;
    all[26] = &BUSIEST_MEMBER;
    all
};

/// Adds all series of `track`, whose counters are `counters` now.
pub(super) fn push(track: &Track, counters: &LinkCounters, out: &mut Reading) {
    let points = &mut out.points;
    let device = &track.name;
    let load = track.load();
    for (descs, flow, counters, load) in [
        (&RECEIVE, &track.receive, &counters.receive, load.and_then(|l| l.receive)),
        (&TRANSMIT, &track.transmit, &counters.transmit, load.and_then(|l| l.transmit)),
    ] {
        push_counters(descs, device, counters, points);
        push_load(descs, device, (flow, load), points);
    }
    push_some(points, &MISSED, &[device], counters.receive_missed.map(|n| n as f64));
    // Until the facts have been read nothing is known, not even that the capacity isn't.
    let Some(facts) = &track.facts else { return };
    push_some(points, &CAPACITY, &[device], facts.capacity.map(|c| c.transmit.0));
    let known = f64::from(u8::from(facts.capacity.is_some()));
    points.push(Point::number(&CAPACITY_KNOWN, &[device], known));
    for (allowance, packets) in &facts.allowances {
        let labels = [device, &Label::from(allowance.as_str())];
        points.push(Point::number(&ALLOWANCE, &labels, *packets as f64));
    }
    let class: Label = track.class.label().into();
    let (bond, duplex): (Label, Label) = (facts.bond.as_str().into(), facts.duplex.as_str().into());
    points.push(Point::number(&INFO, &[device, &class, &bond, &duplex], 1.0));
}

/// How full the fullest member of `bond` is.
pub(super) fn busiest_member(bond: &Track, share: Ratio) -> Point {
    Point::number(&BUSIEST_MEMBER, &[&bond.name], share.0)
}

fn push_counters(
    descs: &'static FlowDescs,
    device: &Label,
    counters: &FlowCounters,
    points: &mut Vec<Point>,
) {
    for (desc, value) in [
        (&descs.bytes, counters.bytes),
        (&descs.packets, counters.packets),
        (&descs.errors, counters.errors),
        (&descs.drops, counters.drops),
    ] {
        push_some(points, desc, &[device], value.map(|n| n as f64));
    }
}

fn push_load(
    descs: &'static FlowDescs,
    device: &Label,
    (ceiling, load): (&Option<Ceiling>, Option<FlowLoad>),
    points: &mut Vec<Point>,
) {
    push_some(points, &descs.rate, &[device], load.map(|l| l.bytes_per_second));
    let Some(ceiling) = ceiling else { return };
    if let Some(Ratio(utilization)) = load.and(ceiling.utilization) {
        points.push(Point::number(&descs.utilization, &[device], utilization));
        points.push(Point::number(&descs.headroom, &[device], 1.0 - utilization));
        let on = ceiling.latch.on().map(|on| f64::from(u8::from(on)));
        push_some(points, &descs.at_ceiling, &[device], on);
        let share = ceiling.latch.share().map(|r| r.0);
        push_some(points, &descs.saturation, &[device], share);
    }
    points.push(Point::number(&descs.at_ceiling_seconds, &[device], ceiling.seconds));
    let windows = Arc::clone(&ceiling.windows);
    points.push(Point::histogram(&descs.window_utilization, &[device], windows));
}
