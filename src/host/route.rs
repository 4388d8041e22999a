//! The way to a peer: from the route that the kernel takes down to the physical line, through
//! overlays, bridges and bonds, and what that line carries of payload.
//!
//! Asked of rtnetlink, so of the network that this process's sockets are in; rates come from sysfs or
//! from the operator, a shaper's from its qdisc. What isn't known stays so: no rate, no ceiling.

mod kernel;
#[cfg(test)]
mod tests;
mod walk;

use std::net::SocketAddr;

use self::kernel::Ask;
use self::walk::{Bound, Found, Walk};
use super::link_facts::Declared;
use super::netlink::Netlink;
use super::roots::{Roots, attribute};
use crate::base::physics::Framing;
use crate::base::units::Rate;
use crate::model::path::{DeclaredPath, Encapsulation};
use crate::model::way::{EndLine, Line, PeerWay};

/// What the operator says of a way; it wins over what is found.
#[derive(Clone, Copy, Debug)]
pub struct Overrides<'a> {
    /// Of the way as a whole: its `link` is the rate of both directions.
    pub path: &'a DeclaredPath,
    /// Rates of this host's interfaces, by name.
    pub links: &'a Declared,
    /// What the peer says of its end: the lower of both ends holds.
    pub peer: EndLine,
}

/// The way from this host to `peer`, as it is now.
pub fn way_to(peer: SocketAddr, roots: &Roots, overrides: &Overrides<'_>) -> PeerWay {
    match Netlink::open() {
        Ok(kernel) => way(&kernel, peer, roots, overrides),
        Err(error) => {
            let unknown = format!("the kernel can't be asked for the route: {error}");
            put_together(Found { unknown, ..Found::default() }, overrides)
        }
    }
}

/// The way to the peer of a result, `10.0.0.2:5201`, as it is now.
pub fn way_of(peer: &str, roots: &Roots, overrides: &Overrides<'_>) -> PeerWay {
    match peer.parse() {
        Ok(peer) => way_to(peer, roots, overrides),
        Err(_) => PeerWay { unknown: format!("{peer} is no address"), ..PeerWay::default() },
    }
}

fn way(kernel: &dyn Ask, peer: SocketAddr, roots: &Roots, overrides: &Overrides<'_>) -> PeerWay {
    let scope = match peer {
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|scope| *scope > 0),
        SocketAddr::V4(_) => None,
    };
    let timestamps = attribute(&roots.proc("sys/net/ipv4/tcp_timestamps"));
    let walk = Walk {
        kernel,
        net: &roots.sys("class/net"),
        declared: overrides.links,
        timestamps: timestamps.as_deref() != Some("0"),
    };
    put_together(walk.to(peer.ip(), scope), overrides)
}

fn put_together(found: Found, overrides: &Overrides<'_>) -> PeerWay {
    let line = |bounds: &[Bound], theirs| {
        let declared = declared(&found, overrides.path);
        declared.or_else(|| detected(&found, (bounds, theirs), overrides.path))
    };
    let transmit = line(&found.transmit, overrides.peer.receives);
    let receive = line(&found.receive, overrides.peer.sends);
    let unknown = if transmit.is_some() && receive.is_some() {
        String::new()
    } else if found.unknown.is_empty() {
        "the line rate isn't known".into()
    } else {
        found.unknown
    };
    PeerWay { devices: found.devices, transmit, receive, unknown }
}

/// Packets as the operator describes them, and what wraps them; `None` where nothing is said.
fn said(path: &DeclaredPath) -> Option<(Framing, String)> {
    if path.encapsulation.is_none() && path.mtu.is_none() {
        return None;
    }
    let encapsulation = path.encapsulation.unwrap_or(Encapsulation::None);
    let framing = encapsulation.framing(path.mtu.unwrap_or(Framing::default().mtu));
    Some((framing, words(&[encapsulation.label()])))
}

/// The rate that the operator says, with packets as they are seen where nothing is said of them.
fn declared(found: &Found, path: &DeclaredPath) -> Option<Line> {
    let flow = path.link?;
    let members = path.members.map_or(1.0, f64::from);
    let seen = || Some((found.framing?, words(&found.overlays)));
    let (framing, overlays) = said(path).or_else(seen).unwrap_or_default();
    let times = path.members.filter(|n| *n > 1).map_or(String::new(), |n| format!("{n} x "));
    let mtu = framing.mtu;
    let source = format!("declared {times}{}{overlays}, MTU {mtu}", flow.bits());
    Some(Line { rate: Rate(flow.0 * members), flow, framing, declared: true, source })
}

/// The least of what was found on this host and of what the peer has.
fn detected(
    found: &Found,
    (bounds, theirs): (&[Bound], Option<Rate>),
    path: &DeclaredPath,
) -> Option<Line> {
    let theirs = theirs.zip(found.framing).map(|(rate, framing)| Bound {
        rate,
        flow: rate,
        framing,
        declared: false,
        name: "the peer's".into(),
    });
    let all: Vec<Bound> = bounds.iter().cloned().chain(theirs).collect();
    let Bound { rate, flow, framing: seen, declared, name } = Found::least(&all)?.clone();
    let (framing, overlays) = match said(path) {
        Some((framing, overlays)) => (Framing { frame: seen.frame, ..framing }, overlays),
        None => (seen, words(&found.overlays)),
    };
    let source = format!("{name}, {}{overlays}, MTU {}", rate.bits(), framing.mtu);
    Some(Line { rate, flow, framing, declared, source })
}

fn words(overlays: &[&str]) -> String {
    overlays.iter().filter(|word| !word.is_empty()).map(|word| format!(", {word}")).collect()
}
