//! The way to a peer, for commands that fill it by hand.

use std::net::SocketAddr;

use crate::host::link_facts::Declared;
use crate::host::roots::Roots;
use crate::host::route::{Overrides, way_to};
use crate::model::path::DeclaredPath;
use crate::model::way::PeerWay;

/// The way to the peer of a result, `10.0.0.2:5201`.
pub(super) fn to(peer: &str, roots: &Roots, (path, links): (&DeclaredPath, &Declared)) -> PeerWay {
    let Ok(peer) = peer.parse::<SocketAddr>() else {
        let unknown = format!("{peer} is no address");
        return PeerWay { unknown, ..PeerWay::default() };
    };
    way_to(peer, roots, &Overrides { path, links, peer: None })
}
