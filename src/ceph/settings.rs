//! Options of the OSDs that decide what clients get beside recovery and scrubs, as they are in
//! effect; and what mClock plans with. None of it costs I/O.

use std::collections::BTreeMap;

use serde_json::Value;

use super::command::{Client, Cut};
use super::json::{list, number_at, osd_id, text_at};
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Frequency;
use crate::model::ceph::{Osd, Setting, SettingValue};
use crate::model::path::Media;

/// In the order of the report.
pub const OPTIONS: [&str; 24] = [
    "osd_op_queue",
    "osd_mclock_profile",
    "osd_mclock_max_capacity_iops_hdd",
    "osd_mclock_max_capacity_iops_ssd",
    "osd_mclock_override_recovery_settings",
    "osd_max_backfills",
    "osd_recovery_max_active",
    "osd_recovery_max_active_hdd",
    "osd_recovery_max_active_ssd",
    "osd_recovery_sleep",
    "osd_recovery_sleep_hdd",
    "osd_recovery_sleep_ssd",
    "osd_max_scrubs",
    "osd_scrub_begin_hour",
    "osd_scrub_end_hour",
    "osd_scrub_begin_week_day",
    "osd_scrub_end_week_day",
    "osd_scrub_during_recovery",
    "osd_scrub_sleep",
    "osd_memory_target",
    "bluestore_cache_autotune",
    "bluestore_cache_size",
    "bluestore_cache_size_hdd",
    "bluestore_cache_size_ssd",
];

/// Most OSDs that are asked: where they differ much, all of it is one line on the wire.
const OSDS_ASKED_MAX: usize = 16;

/// The options of `osds` that are up; `unknown` takes those that couldn't be, or weren't, asked.
///
/// # Errors
/// Only where it was stopped.
pub fn ask(
    client: &Client<'_>,
    osds: &[Osd],
    unknown: &mut Vec<Fault>,
) -> Result<Vec<Setting>, Cut> {
    let mut of_each = Vec::new();
    let up: Vec<&Osd> = osds.iter().filter(|osd| osd.up).collect();
    if up.len() > OSDS_ASKED_MAX {
        let text = format!("options of {} more OSDs: not asked", up.len() - OSDS_ASKED_MAX);
        unknown.push(Fault::new(FaultKind::Unsupported, text));
    }
    for osd in up.into_iter().take(OSDS_ASKED_MAX) {
        match client.ask(&["config", "show-with-defaults", &format!("osd.{}", osd.id)]) {
            Ok(shown) => of_each.push((osd.id, parse(&shown))),
            Err(Cut::Stopped) => return Err(Cut::Stopped),
            Err(Cut::Failed(fault)) => unknown.push(fault),
        }
    }
    Ok(together(&of_each))
}

/// Value and source by name; of an option that this version doesn't have nothing.
type Shown = BTreeMap<String, (String, String)>;

fn parse(shown: &Value) -> Shown {
    let entries = shown.as_array().map_or(&[][..], Vec::as_slice).iter();
    let named = entries.map(|entry| (text_at(entry, "name"), entry));
    let wanted = named.filter(|(name, _)| OPTIONS.contains(&name.as_str()));
    wanted.map(|(name, e)| (name, (text_at(e, "value"), text_at(e, "source")))).collect()
}

fn together(of_each: &[(u32, Shown)]) -> Vec<Setting> {
    let setting = |name: &str| {
        let mut values: Vec<SettingValue> = Vec::new();
        for (osd, shown) in of_each {
            let Some((value, source)) = shown.get(name) else { continue };
            match values.iter_mut().find(|known| known.value == *value && known.source == *source) {
                Some(known) => known.osds.push(*osd),
                None => values.push(SettingValue {
                    value: value.clone(),
                    source: source.clone(),
                    osds: vec![*osd],
                }),
            }
        }
        Setting { name: name.into(), values }
    };
    OPTIONS.iter().map(|name| setting(name)).filter(|s| !s.values.is_empty()).collect()
}

/// Adds what mClock plans with where that stands in the cluster's configuration (`ceph config dump`):
/// an OSD puts there what it measured itself at its first start.
pub(super) fn add_capacity(dump: &Value, osds: &mut BTreeMap<u32, Osd>) {
    const PREFIX: &str = "osd_mclock_max_capacity_iops_";
    for entry in dump.as_array().map_or(&[][..], Vec::as_slice) {
        let (name, section) = (text_at(entry, "name"), text_at(entry, "section"));
        let Some(osd) = osd_id(&section).and_then(|id| osds.get_mut(&id)) else { continue };
        let own = if osd.media == Some(Media::Hdd) { "hdd" } else { "ssd" };
        if name.strip_prefix(PREFIX) == Some(own) {
            osd.capacity = number_at(entry, "value").filter(|n| *n > 0.0).map(Frequency);
        }
    }
}

/// Adds what OSDs measured at their start and didn't believe, from the cluster's log.
pub(super) fn add_refused(log: &Value, osds: &mut BTreeMap<u32, Osd>) {
    let entries = log.as_array().map_or(list(log, "lines"), Vec::as_slice);
    for message in entries.iter().filter_map(|entry| entry.get("message")?.as_str()) {
        let Some((id, rate)) = refused(message) else { continue };
        if let Some(osd) = osds.get_mut(&id) {
            osd.capacity_refused = Some(rate);
        }
    }
}

/// `OSD bench result of 890.1 IOPS exceeded the threshold limit of 500.0 IOPS for osd.0. ...`, or
/// `is not within the threshold limit range of ...`.
fn refused(message: &str) -> Option<(u32, Frequency)> {
    let rest = message.split("OSD bench result of ").nth(1)?;
    let (rate, rest) = rest.split_once(" IOPS")?;
    let osd = rest.split(" for osd.").nth(1)?;
    let digits = osd.find(|c: char| !c.is_ascii_digit()).unwrap_or(osd.len());
    let rate: f64 = rate.trim().parse().ok().filter(|rate: &f64| rate.is_finite())?;
    Some((osd[..digits].parse().ok()?, Frequency(rate)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_stand_once_and_others_with_their_osds() {
        let text = include_str!("../../tests/fixtures/ceph/config-show.json");
        let plain = parse(&serde_json::from_str(text).unwrap());
        assert!(plain.len() >= 20, "{plain:?}");
        assert_eq!(plain["osd_mclock_profile"], ("high_client_ops".into(), "default".into()));
        let mut other = plain.clone();
        other.insert("osd_max_backfills".into(), ("4".into(), "mon".into()));
        let settings = together(&[(0, plain.clone()), (1, other), (2, plain)]);
        let find = |name: &str| settings.iter().find(|s| s.name == name).unwrap();
        assert_eq!(find("osd_mclock_profile").values[0].osds, [0, 1, 2]);
        let backfills = &find("osd_max_backfills").values;
        assert_eq!(backfills.len(), 2);
        assert_eq!((&*backfills[1].value, &*backfills[1].osds), ("4", &[1][..]));
        assert!(settings.iter().all(|s| s.name != "osd_mclock_override_recovery_settings"));
    }

    #[test]
    fn mclock_plans_with_what_was_measured_or_set() {
        let dump = include_str!("../../tests/fixtures/ceph/config-dump.json");
        let spinning = || Osd { media: Some(Media::Hdd), ..Osd::default() };
        let mut osds = BTreeMap::from([(0, spinning()), (1, spinning())]);
        add_capacity(&serde_json::from_str(dump).unwrap(), &mut osds);
        assert_eq!((osds[&0].capacity, osds[&1].capacity), (Some(Frequency(312.5)), None));
    }

    #[test]
    fn what_it_did_not_believe_is_told() {
        let log = json!([
            {"name": "osd.0", "message": "OSD bench result of 2200.5 IOPS exceeded the threshold \
             limit of 500.000000 IOPS for osd.0. IOPS capacity is unchanged at 315.000000 IOPS."},
            {"name": "osd.7", "message": "OSD bench result of 12.0 IOPS is not within the threshold \
             limit range of 50.000000 IOPS and 500.000000 IOPS for osd.7. IOPS capacity is"},
            {"name": "mon.a", "message": "overall HEALTH_OK"}]);
        let mut osds = BTreeMap::from([(0, Osd::default()), (7, Osd::default())]);
        add_refused(&log, &mut osds);
        assert_eq!(osds[&0].capacity_refused, Some(Frequency(2200.5)));
        assert_eq!(osds[&7].capacity_refused, Some(Frequency(12.0)));
    }

    proptest! {
        #[test]
        fn no_message_breaks_it(text in "\\PC{0,80}") {
            let _ = refused(&text);
            let _ = refused(&format!("OSD bench result of {text} IOPS for osd.{text}"));
        }
    }
}
