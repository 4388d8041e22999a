//! Which ceilings are believed: declared before knee before detected before computed; and none that a
//! measurement went clearly beyond.

use super::facts::Facts;
use crate::base::physics::{goodput, payload, write_factor};
use crate::base::units::{Bytes, Rate};
use crate::model::path::{DeclaredPath, Encapsulation};
use crate::model::verdict::{Ceiling, Trust, Unit};
use crate::model::way::Line;

/// A measurement above this times a ceiling shows that the ceiling is none.
pub const BEYOND: f64 = 1.05;
const LINK: &str = "link";
const MTU_DEFAULT: u32 = 1500;
const MTU_JUMBO: u32 = 9000;

/// A ceiling that is believed, or why the one that was named is not.
#[derive(Clone, Debug, PartialEq)]
pub enum Believed {
    Yes(Ceiling),
    /// What is said of it.
    Dropped(String),
    Unknown,
}

impl Believed {
    pub fn ceiling(self) -> Option<Ceiling> {
        match self {
            Believed::Yes(ceiling) => Some(ceiling),
            _ => None,
        }
    }
}

/// `ceiling` unless `measured` is above 1.05 x it.
pub fn check(ceiling: Ceiling, measured: f64) -> Believed {
    if measured <= BEYOND * ceiling.value {
        return Believed::Yes(ceiling);
    }
    let Ceiling { unit, resource, trust, source, .. } = &ceiling;
    let show = |value| if resource == LINK { Rate(value).bits() } else { unit.show(value) };
    Believed::Dropped(format!(
        "the {} ceiling of the {resource}, {source}, is dropped: it is {}, and {} was measured",
        trust.label(),
        show(ceiling.value),
        show(measured)
    ))
}

/// Bytes in the direction that uses the link most, and whether that direction writes.
pub fn link_load(facts: &Facts) -> Option<(f64, bool)> {
    if facts.is_link() {
        return Some((facts.bytes()?, false));
    }
    let (read, write) = (facts.read_bytes(), facts.write_bytes());
    let write_copies = write * copies_on_the_link(facts);
    facts.bytes()?;
    Some(if write_copies > read { (write, true) } else { (read, false) })
}

/// How often a written byte leaves over the link that clients come in by.
fn copies_on_the_link(facts: &Facts) -> f64 {
    let shared = facts.backing.shared_link == Some(true) && facts.network_backed();
    if shared { (facts.replicas() - 1.0).max(1.0) } else { 1.0 }
}

fn wire(facts: &Facts) -> &DeclaredPath {
    if facts.is_link() { &facts.path } else { &facts.backing.wire }
}

/// What the link on a run's path carries at most; only of link runs and network-backed storage.
pub fn link(facts: &Facts) -> Believed {
    match named_link(facts) {
        Some((ceiling, measured)) => check(ceiling, measured),
        None => Believed::Unknown,
    }
}

/// What a run moved / what its link is said to carry, believed or not.
pub fn named_link_share(facts: &Facts) -> Option<f64> {
    let (ceiling, measured) = named_link(facts)?;
    Some(measured / ceiling.value)
}

/// The link as it is said to be, and the bytes that would have had to cross it.
fn named_link(facts: &Facts) -> Option<(Ceiling, f64)> {
    let (measured, writes) = link_load(facts)?;
    if !facts.is_link() && !facts.network_backed() {
        return None;
    }
    let divisor = if writes { copies_on_the_link(facts) } else { 1.0 };
    let carried = match seen_line(facts) {
        Some(line) => by_sight(facts, line),
        None => by_declaration(facts, measured * divisor),
    };
    let (value, source, trust) = carried?;
    let copies =
        if divisor > 1.0 { format!(", each write {divisor} x on it") } else { String::new() };
    let direction = if writes { "write" } else { "read" };
    let value = (value / divisor, Unit::BytesPerSecond);
    Some((Ceiling::lasting(value, (LINK, direction), (trust, source + &copies)), measured))
}

/// The line of a link run as its route was followed, unless something else is declared by now.
fn seen_line(facts: &Facts) -> Option<&Line> {
    let line = facts.link.line.as_ref().filter(|_| facts.is_link())?;
    facts.path.link.is_none_or(|link| line.declared && line.flow == link).then_some(line)
}

/// Payload, what says so, and how far it is believed.
type Carried = (f64, String, Trust);

fn by_sight(facts: &Facts, line: &Line) -> Option<Carried> {
    let streams = if facts.depth == Some(1.0) { 1 } else { u32::MAX };
    let value = line.ceiling(streams, facts.link.segment_payload_bytes)?;
    let trust = if line.declared { Trust::Declared } else { Trust::Detected };
    Some((value.0, line.source.clone(), trust))
}

/// `crossing`: bytes that went over the link.
fn by_declaration(facts: &Facts, crossing: f64) -> Option<Carried> {
    let wire = wire(facts);
    let (line, trust) = match (wire.link, facts.link.line_bytes_per_second) {
        (Some(declared), _) => (declared, Trust::Declared),
        (None, detected) => (detected?, Trust::Detected),
    };
    // One flow goes over one member of a bond; of several, nobody says which go where.
    let one_flow = facts.is_link() && facts.depth == Some(1.0);
    let members = wire.members.filter(|_| !one_flow).map_or(1.0, f64::from);
    let overlay = wire.encapsulation.unwrap_or(Encapsulation::None);
    let carries = |mtu| goodput(Rate(line.0 * members), overlay.framing(mtu)).map(|most| most.0);
    let seen = facts.link.segment_payload_bytes.filter(|_| facts.is_link());
    let seen = seen.map(|segment| overlay.framing(0).with_payload(segment).mtu);
    let exceeds = |mtu| carries(mtu).is_some_and(|most| crossing > most * 1.005);
    let mtu = seen.unwrap_or_else(|| mtu_of(wire, exceeds));
    let bond = if members > 1.0 { format!("{members} x ") } else { String::new() };
    let source = describe(wire, &format!("{bond}{}", line.bits()), mtu);
    Some((carries(mtu)?, source, trust))
}

/// As declared; else 1500, or 9000 where the measurement shows that packets are larger.
fn mtu_of(wire: &DeclaredPath, exceeds: impl Fn(u32) -> bool) -> u32 {
    wire.mtu.unwrap_or(if exceeds(MTU_DEFAULT) { MTU_JUMBO } else { MTU_DEFAULT })
}

/// `2 x 1 Gbit/s VXLAN, MTU 1500`.
fn describe(wire: &DeclaredPath, lines: &str, mtu: u32) -> String {
    let overlay = wire.encapsulation.map_or("", Encapsulation::label);
    let space = if overlay.is_empty() { "" } else { " " };
    format!("{lines}{space}{overlay}, MTU {mtu}")
}

/// Payload of one segment on a link run's path: as read from TCP, else by the path's framing.
pub fn segment(facts: &Facts) -> Option<Bytes> {
    let wire = wire(facts);
    let framing = wire.encapsulation.unwrap_or(Encapsulation::None);
    let seen = || payload(seen_line(facts)?.framing);
    let said = || payload(framing.framing(wire.mtu.unwrap_or(MTU_DEFAULT)));
    facts.link.segment_payload_bytes.or_else(seen).or_else(said)
}

/// What the declared disks move: bandwidth x devices, / replicas for what is written.
pub fn disks(facts: &Facts) -> Believed {
    let (Some(one), Some(devices)) = (facts.backing.bandwidth, facts.devices()) else {
        return Believed::Unknown;
    };
    let Some(measured) = facts.bytes() else { return Believed::Unknown };
    let writes = facts.write_bytes() / measured;
    let value = one.0 * devices / write_factor(writes, facts.replicas());
    let copies = if writes > 0.0 && facts.replicas() > 1.0 {
        format!(", {} copies", facts.replicas())
    } else {
        String::new()
    };
    let source = (Trust::Declared, format!("{devices} x {one}{copies}"));
    let value = (value, Unit::BytesPerSecond);
    check(Ceiling::lasting(value, ("disks", direction(facts)), source), measured)
}

/// The limit that somebody set, in the unit in which it is closest.
pub fn set_limit(facts: &Facts) -> Believed {
    let of = |value: Option<f64>, unit: Unit, measured: Option<f64>| {
        let (value, measured) = (value?, measured?);
        let source = (Trust::Declared, "a limit that somebody set".to_owned());
        let ceiling = Ceiling::lasting((value, unit), ("rate", direction(facts)), source);
        Some((measured / value, check(ceiling, measured)))
    };
    let operations = facts.backing.operations_limit.map(|limit| limit.0);
    let bytes = facts.backing.bytes_limit.map(|limit| limit.0);
    [
        of(operations, Unit::OperationsPerSecond, facts.operations()),
        of(bytes, Unit::BytesPerSecond, facts.bytes()),
    ]
    .into_iter()
    .flatten()
    .max_by(|a, b| a.0.total_cmp(&b.0))
    .map_or(Believed::Unknown, |(_, believed)| believed)
}

/// The most trusted of what earlier runs found for this unit; of equals, the newest.
pub fn learned(facts: &Facts, unit: Unit) -> Option<&Ceiling> {
    let when = |ceiling: &Ceiling| ceiling.at.map_or(0.0, |at| at.unix_seconds());
    facts
        .known
        .ceilings
        .iter()
        .filter(|ceiling| ceiling.unit == unit && ceiling.direction == direction(facts))
        .max_by(|a, b| a.trust.cmp(&b.trust).then(when(a).total_cmp(&when(b))))
}

/// How much of `ceiling` a run reached.
pub fn share(facts: &Facts, ceiling: &Ceiling) -> Option<f64> {
    let reached = match ceiling.unit {
        _ if ceiling.resource == LINK => link_load(facts).map(|(bytes, _)| bytes),
        Unit::BytesPerSecond => facts.bytes(),
        Unit::OperationsPerSecond => facts.operations(),
    };
    Some(reached? / ceiling.value).filter(|share| share.is_finite())
}

pub fn direction(facts: &Facts) -> &'static str {
    match facts.write_ratio() {
        _ if facts.is_link() => "receive",
        Some(writes) if writes >= 1.0 => "write",
        Some(writes) if writes > 0.0 => "mixed",
        _ => "read",
    }
}

/// What is said of ceilings that were named and are not believed.
pub fn dropped(facts: &Facts) -> Vec<String> {
    [link(facts), disks(facts), set_limit(facts)]
        .into_iter()
        .filter_map(|believed| match believed {
            Believed::Dropped(text) => Some(text),
            _ => None,
        })
        .collect()
}
