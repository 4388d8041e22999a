//! `ceph osd df`: room on each OSD. A bench that fills its OSD takes it down.

use std::collections::BTreeMap;

use serde_json::Value;

use super::json::{count_at, id_at, list};
use crate::base::units::Bytes;
use crate::model::ceph::Osd;

pub(super) fn add(df: &Value, osds: &mut BTreeMap<u32, Osd>) {
    for node in list(df, "nodes").iter().chain(list(df, "stray")) {
        if let Some(osd) = id_at(node, "id").and_then(|id| osds.get_mut(&id)) {
            osd.available = count_at(node, "kb_avail").map(|kb| Bytes(kb.saturating_mul(1024)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_told_in_bytes() {
        let df = include_str!("../../tests/fixtures/ceph/osd-df.json");
        let mut osds = BTreeMap::from([(1, Osd::default())]);
        add(&serde_json::from_str(df).unwrap(), &mut osds);
        assert!(osds[&1].available.is_some_and(|room| room.0 > 2 << 30), "{osds:?}");
    }
}
