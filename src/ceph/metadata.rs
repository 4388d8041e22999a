//! `ceph osd metadata`: what lies under an OSD. Every value is text.

use std::collections::BTreeMap;

use serde_json::Value;

use super::json::{id_at, list, number_at, text_at};
use crate::base::units::Seconds;
use crate::model::ceph::Osd;
use crate::model::path::Media;

/// Adds to `osds` what their metadata say; one that is down may have none.
pub(super) fn add(metadata: &Value, osds: &mut BTreeMap<u32, Osd>) {
    let entries = metadata.as_array().map_or(std::slice::from_ref(metadata), Vec::as_slice);
    for entry in entries {
        let Some(osd) = id_at(entry, "id").and_then(|id| osds.get_mut(&id)) else { continue };
        if osd.host.is_empty() {
            osd.host = text_at(entry, "hostname");
        }
        if osd.device_class.is_empty() {
            osd.device_class = text_at(entry, "default_device_class");
        }
        osd.version = text_at(entry, "ceph_version_short");
        osd.devices = devices(entry);
        osd.media = media(entry, "bluestore_bdev").or_else(|| turns(entry, "rotational"));
        osd.separate_wal = separate(entry);
        osd.wal_media = media(entry, "bluefs_wal")
            .or_else(|| media(entry, "bluefs_db"))
            .or_else(|| turns(entry, "journal_rotational"))
            .filter(|_| osd.separate_wal == Some(true));
    }
}

/// Of its data alone, where the store says: `devices` holds those of log and database too.
fn devices(entry: &Value) -> Vec<String> {
    const DEVICES_MAX: usize = 4;
    let own = text_at(entry, "bluestore_bdev_devices");
    let all = if own.is_empty() { text_at(entry, "devices") } else { own };
    let names = all.split(',').filter(|name| !name.is_empty());
    names.take(DEVICES_MAX).map(str::to_owned).collect()
}

fn media(entry: &Value, device: &str) -> Option<Media> {
    match text_at(entry, &format!("{device}_type")).as_str() {
        "hdd" => return Some(Media::Hdd),
        "nvme" => return Some(Media::Nvme),
        _ => {}
    }
    let names = text_at(entry, &format!("{device}_devices"));
    match turns(entry, &format!("{device}_rotational"))? {
        Media::Ssd if names.starts_with("nvme") => Some(Media::Nvme),
        media => Some(media),
    }
}

fn turns(entry: &Value, key: &str) -> Option<Media> {
    match text_at(entry, key).as_str() {
        "1" => Some(Media::Hdd),
        "0" => Some(Media::Ssd),
        _ => None,
    }
}

/// BlueStore keeps its log with its database where it has no device of its own; of a FileStore's
/// journal only its medium tells.
fn separate(entry: &Value) -> Option<bool> {
    let own = |key: &str| match text_at(entry, key).as_str() {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    };
    match (own("bluefs_dedicated_wal"), own("bluefs_dedicated_db")) {
        (None, None) => {
            let [data, journal] = ["rotational", "journal_rotational"].map(|key| turns(entry, key));
            (data? == Media::Hdd && journal? == Media::Ssd).then_some(true)
        }
        (wal, db) => Some(wal == Some(true) || db == Some(true)),
    }
}

/// Adds how long writes of each OSD took lately. `ceph osd perf` has had its list at the top, then
/// under `osdstats`, and other names may come.
pub(super) fn add_latency(perf: &Value, osds: &mut BTreeMap<u32, Osd>) {
    let inner = perf.get("osdstats").unwrap_or(perf);
    for entry in list(inner, "osd_perf_infos") {
        let Some(osd) = id_at(entry, "id").and_then(|id| osds.get_mut(&id)) else { continue };
        let Some(stats) = entry.get("perf_stats") else { continue };
        let ns = number_at(stats, "commit_latency_ns").filter(|ns| *ns > 0.0).map(|ns| ns / 1e9);
        let ms = ["commit_latency_ms", "bluestore_w_latency_ms", "op_w_latency_ms"];
        let ms = ms.iter().find_map(|key| number_at(stats, key)).map(|ms| ms / 1e3);
        osd.commit_latency = ns.or(ms).filter(|seconds| *seconds > 0.0).map(Seconds);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn osd(entry: Value) -> Osd {
        let mut osds = BTreeMap::from([(0, Osd::default())]);
        add(&json!([entry]), &mut osds);
        osds.remove(&0).unwrap()
    }

    #[test]
    fn bluestore_on_one_disk_has_no_separate_log() {
        let text = include_str!("../../tests/fixtures/ceph/osd-metadata.json");
        let all: Value = serde_json::from_str(text).unwrap();
        let osd = osd(all[0].clone());
        assert_eq!((osd.media, osd.separate_wal), (Some(Media::Hdd), Some(false)));
        assert_eq!((&*osd.devices, &*osd.version), (&["vda".to_owned()][..], "16.2.15"));
        assert_eq!(osd.wal_media, None);
    }

    #[test]
    fn a_log_or_a_database_of_its_own_takes_the_log_along() {
        let with = |wal: &str, db: &str| {
            osd(json!({"id": 0, "devices": "nvme0n1,sda", "bluestore_bdev_devices": "sda",
                "bluestore_bdev_rotational": "1", "bluefs_dedicated_wal": wal,
                "bluefs_dedicated_db": db, "bluefs_db_rotational": "0",
                "bluefs_db_devices": "nvme0n1"}))
        };
        assert_eq!(with("0", "0").separate_wal, Some(false));
        let on_flash = with("0", "1");
        assert_eq!((on_flash.separate_wal, on_flash.wal_media), (Some(true), Some(Media::Nvme)));
        assert_eq!(on_flash.devices, ["sda"]);
        assert_eq!(with("1", "0").separate_wal, Some(true));
    }

    #[test]
    fn a_filestore_tells_by_its_journals_medium_or_not_at_all() {
        let with = |journal: &str| {
            osd(json!({"id": 0, "osd_objectstore": "filestore", "rotational": "1",
                "journal_rotational": journal}))
        };
        assert_eq!((with("0").separate_wal, with("0").wal_media), (Some(true), Some(Media::Ssd)));
        assert_eq!(with("1").separate_wal, None, "on another spindle, or the same");
        assert_eq!(osd(json!({"id": 0})).separate_wal, None);
    }

    #[test]
    fn latencies_are_read_of_both_shapes_and_of_the_names_to_come() {
        let stats = json!({"commit_latency_ms": 7, "apply_latency_ms": 3});
        let list = json!([{"id": 0, "perf_stats": stats}, {"id": 9, "perf_stats": stats}]);
        let of = |perf: &Value| {
            let mut osds = BTreeMap::from([(0, Osd::default())]);
            add_latency(perf, &mut osds);
            osds[&0].commit_latency
        };
        assert_eq!(of(&json!({"osd_perf_infos": list})), Some(Seconds(0.007)));
        assert_eq!(of(&json!({"osdstats": {"osd_perf_infos": list}})), Some(Seconds(0.007)));
        let fine = json!({"osd_perf_infos": [{"id": 0, "perf_stats":
            {"commit_latency_ms": 7, "commit_latency_ns": 7_400_000}}]});
        assert_eq!(of(&fine), Some(Seconds(0.0074)));
        let new = json!({"osd_perf_infos": [{"id": 0, "perf_stats": {"op_w_latency_ms": 2.5}}]});
        assert_eq!(of(&new), Some(Seconds(0.0025)));
        let idle = include_str!("../../tests/fixtures/ceph/osd-perf.json");
        assert_eq!(of(&serde_json::from_str(idle).unwrap()), None, "0 is nothing written");
    }
}
