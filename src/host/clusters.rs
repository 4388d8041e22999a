//! Clusters that a full link would hurt, as far as their files on this host tell: corosync, whose
//! members are fenced when its token comes late, and the network over which the OSDs of a Ceph cluster
//! make copies and look whether the others are alive.

use std::net::IpAddr;

use super::roots::{Roots, read_file};
use crate::base::network::Network;

/// Somewhere that a cluster's own traffic goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTraffic {
    pub what: &'static str,
    pub to: IpAddr,
}

/// What is seen; a file that isn't there, or can't be read, tells nothing.
pub fn seen(roots: &Roots) -> Vec<ClusterTraffic> {
    let text = |path: &str| {
        let bytes = read_file(&roots.rootfs.join(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let traffic = |what: &'static str| move |to| ClusterTraffic { what, to };
    let rings = rings(&text("etc/corosync/corosync.conf"));
    let networks = networks(&text("etc/ceph/ceph.conf"));
    let rings = rings.into_iter().map(traffic("corosync"));
    rings.chain(networks.into_iter().map(traffic("a Ceph cluster's own network"))).collect()
}

/// Addresses of members (corosync.conf(5): `ring0_addr: 10.0.0.2` in `nodelist`); names are left out.
fn rings(text: &str) -> Vec<IpAddr> {
    let ring = |line: &str| {
        let (key, value) = line.trim().split_once(':')?;
        let number = key.trim_end().strip_prefix("ring")?.strip_suffix("_addr")?;
        number.parse::<u8>().ok()?;
        value.trim().parse().ok()
    };
    text.lines().filter_map(ring).collect()
}

/// Hosts in each block of `cluster_network = 10.1.0.0/24, ...`; words of keys may be set apart by
/// blanks or dashes as well.
fn networks(text: &str) -> Vec<IpAddr> {
    let list = |line: &str| {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let (key, value) = line.split_once('=')?;
        let words: Vec<&str> = key.split([' ', '\t', '_', '-']).filter(|w| !w.is_empty()).collect();
        (words == ["cluster", "network"]).then(|| value.to_owned())
    };
    let blocks: Vec<String> = text.lines().filter_map(list).collect();
    let blocks = blocks.iter().flat_map(|list| list.split([',', ' ', '\t']));
    blocks
        .filter_map(|block| block.parse::<Network>().ok())
        .flat_map(|block| block.first_hosts())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_networks_are_read_from_the_clusters_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let roots = Roots { rootfs: dir.path().into(), ..Roots::default() };
        assert_eq!(seen(&roots), []);
        file(
            "etc/corosync/corosync.conf",
            "nodelist {\n  node {\n    name: a\n    ring0_addr: 10.0.0.1\n    ring1_addr: fd00::1\n  }\n  \
             node {\n    ring0_addr: b\n    # ring0_addr: 10.0.0.9\n  }\n}\n",
        );
        file(
            "etc/ceph/ceph.conf",
            "[global]\npublic_network = 10.1.0.0/24\ncluster network = 10.2.0.77/24, fd01::/64 ; no\n\
             #cluster_network = 10.3.0.0/24\n",
        );
        let seen = seen(&roots).into_iter().map(|one| format!("{} {}", one.what, one.to));
        let ceph = "a Ceph cluster's own network";
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [
                "corosync 10.0.0.1".into(),
                "corosync fd00::1".into(),
                format!("{ceph} 10.2.0.1"),
                format!("{ceph} 10.2.0.2"),
                format!("{ceph} fd01::1"),
                format!("{ceph} fd01::2")
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            rings(&text);
            networks(&format!("cluster_network = {text}\ncluster network={text}"));
        }
    }
}
