//! `ceph osd tree`: which OSDs there are, on which host, up or down, and their weights.

use std::collections::BTreeMap;

use serde_json::Value;

use super::json::{id_at, list, number_at, text_at};
use crate::model::ceph::Osd;

/// By id. An OSD may stand in several places of the tree, and among the strays.
pub(super) fn parse(tree: &Value) -> BTreeMap<u32, Osd> {
    let mut hosts = BTreeMap::new();
    for node in list(tree, "nodes").iter().filter(|node| text_at(node, "type") == "host") {
        let children = list(node, "children").iter().filter_map(Value::as_u64);
        for id in children.filter_map(|id| u32::try_from(id).ok()) {
            hosts.entry(id).or_insert_with(|| text_at(node, "name"));
        }
    }
    let mut osds = BTreeMap::new();
    let nodes = list(tree, "nodes").iter().chain(list(tree, "stray"));
    for node in nodes.filter(|node| text_at(node, "type") == "osd") {
        let Some(id) = id_at(node, "id") else { continue };
        osds.entry(id).or_insert_with(|| Osd {
            id,
            up: text_at(node, "status") == "up",
            weight: number_at(node, "crush_weight"),
            reweight: number_at(node, "reweight"),
            device_class: text_at(node, "device_class"),
            host: hosts.get(&id).cloned().unwrap_or_default(),
            ..Osd::default()
        });
    }
    osds
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn osds_have_hosts_classes_and_weights() {
        let tree = include_str!("../../tests/fixtures/ceph/osd-tree.json");
        let osds = parse(&serde_json::from_str(tree).unwrap());
        assert_eq!(osds.len(), 2);
        let one = &osds[&1];
        assert!(one.up && one.device_class == "hdd" && one.host == "h1", "{one:?}");
        assert_eq!((one.weight, one.reweight), (Some(1.0), Some(1.0)));
    }

    #[test]
    fn one_that_is_down_or_astray_is_known_and_one_twice_counts_once() {
        let osds = parse(&json!({"nodes": [
            {"id": -1, "type": "root", "name": "default", "children": [-2]},
            {"id": -2, "type": "host", "name": "a", "children": [0]},
            {"id": 0, "type": "osd", "name": "osd.0", "status": "down", "reweight": 0},
            {"id": 0, "type": "osd", "name": "osd.0", "status": "up"}],
            "stray": [{"id": 3, "type": "osd", "status": "up"}]}));
        assert_eq!(osds.keys().collect::<Vec<_>>(), [&0, &3]);
        assert!(!osds[&0].up && osds[&0].device_class.is_empty());
        assert_eq!((osds[&0].reweight, osds[&3].host.as_str()), (Some(0.0), ""));
    }
}
