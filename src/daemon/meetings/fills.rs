//! What a test would do beyond this host: a line that it fills may be a cluster's lifeline.

use std::net::{IpAddr, SocketAddr};

use super::judging::line_rates;
use crate::config::settings::Settings;
use crate::host::clusters::{self, ClusterTraffic};
use crate::host::roots::Roots;
use crate::host::route::{Overrides, way_to};
use crate::model::peer::Peer;
use crate::model::way::EndLine;

/// Why no test with a peer is made before the operator says that it may be (`peers.i_know`); `None`
/// where nothing speaks against one.
pub fn unasked(peer: &Peer, roots: &Roots, settings: &Settings) -> Option<String> {
    if settings.peers.as_ref().is_some_and(|peers| peers.i_know) {
        return None;
    }
    let clusters = clusters::seen(roots);
    let links = line_rates(settings);
    let overrides = Overrides { path: &settings.path, links: &links, peer: EndLine::default() };
    let line = |to: IpAddr| way_to(SocketAddr::new(to, 0), roots, &overrides).devices.pop();
    hurt(peer.endpoint.address(), &clusters, &line)
}

/// `peer`: its address, where it is known without asking a name service, which may hang.
fn hurt(
    peer: Option<IpAddr>,
    clusters: &[ClusterTraffic],
    line: &dyn Fn(IpAddr) -> Option<String>,
) -> Option<String> {
    let filled = peer.map(line);
    let same = |cluster: &ClusterTraffic| {
        let theirs = line(cluster.to)?;
        let text = match &filled {
            Some(filled) if filled.as_ref() != Some(&theirs) => return None,
            Some(_) => format!("{} goes over {theirs}, which a test fills", cluster.what),
            None => format!("{} goes over {theirs}, and a test may fill it", cluster.what),
        };
        Some(format!("{text}: say `peers.i_know: true` where that does no harm"))
    };
    clusters.iter().find_map(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::network::Endpoint;
    use crate::config::settings::PeerSettings;

    fn line(to: IpAddr) -> Option<String> {
        let IpAddr::V4(to) = to else { return None };
        match to.octets()[0] {
            10 => Some("eth0".into()),
            192 => Some("eth1".into()),
            _ => None,
        }
    }

    #[test]
    fn a_line_that_a_cluster_lives_by_is_not_filled_unasked() {
        let corosync = ClusterTraffic { what: "corosync", to: "10.0.0.2".parse().unwrap() };
        let says = |peer: Option<&str>, clusters: &[ClusterTraffic]| {
            hurt(peer.map(|peer| peer.parse().unwrap()), clusters, &line)
        };
        let seen = [corosync];
        assert_eq!(
            says(Some("10.0.0.3"), &seen).unwrap(),
            "corosync goes over eth0, which a test fills: say `peers.i_know: true` where that does \
             no harm"
        );
        assert_eq!(says(Some("192.0.2.3"), &seen), None, "another line");
        assert_eq!(says(Some("172.16.0.1"), &seen), None, "no line is known");
        assert!(says(None, &seen).unwrap().contains("may fill it"), "a name");
        assert_eq!(says(Some("10.0.0.3"), &[]), None);
        let far = ClusterTraffic { what: "corosync", to: "172.16.0.1".parse().unwrap() };
        assert_eq!(says(None, &[far]), None);
    }

    #[test]
    fn an_operator_who_knows_is_not_asked() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("etc/corosync")).unwrap();
        let file = dir.path().join("etc/corosync/corosync.conf");
        std::fs::write(file, "ring0_addr: 192.0.2.1\n").unwrap();
        let roots = Roots { rootfs: dir.path().into(), ..Roots::default() };
        let endpoint = Endpoint { host: "b".into(), port: 5201 };
        let peer = Peer { name: "b".into(), endpoint, machine: None, passive: false };
        let peers = |i_know| Some(PeerSettings { i_know, ..PeerSettings::default() });
        let asks = |i_know| {
            unasked(&peer, &roots, &Settings { peers: peers(i_know), ..Settings::default() })
        };
        let Some(text) = asks(false) else {
            println!("skipped: no route leads out of this host");
            return;
        };
        assert!(text.starts_with("corosync goes over "), "{text}");
        assert_eq!(asks(true), None);
    }
}
