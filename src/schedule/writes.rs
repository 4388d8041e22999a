//! Where probes may write at all.

use std::collections::BTreeMap;

use crate::config::settings::{DiskSettings, TargetSettings};
use crate::model::job::{Backing, Device};
use crate::model::outcome::Inspection;

/// Whether probes may write on a target: never on shingled disks; else as configured, and where
/// nobody said, not where every overwrite is kept by snapshots or crosses a network. `declared` says
/// of disks what the kernel doesn't.
pub fn may_write(
    target: &TargetSettings,
    inspection: &Inspection,
    declared: &BTreeMap<String, DiskSettings>,
) -> bool {
    let is_smr = |d: &Device| declared.get(&d.name).is_some_and(|disk| disk.smr);
    let kept = inspection.copy_on_write || inspection.backing == Backing::Network;
    let shingled = inspection.zoned || inspection.devices.iter().any(is_smr);
    !shingled && target.writes.unwrap_or(!(target.is_default && kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, GIB};
    use crate::model::samples::inspection;

    #[test]
    fn nothing_is_written_where_each_overwrite_costs_somebody() {
        let target = |writes, is_default| TargetSettings {
            name: "t".into(),
            path: "/srv".into(),
            writes,
            ballast: None,
            budget: Bytes(GIB),
            wake: false,
            backing: Default::default(),
            shared: None,
            shared_hosts: Vec::new(),
            is_default,
            ceph: None,
        };
        let copies = Inspection { copy_on_write: true, ..inspection() };
        let remote = Inspection { backing: Backing::Network, ..inspection() };
        let plain = BTreeMap::new();
        let may = |writes, default, place: &Inspection| {
            may_write(&target(writes, default), place, &plain)
        };
        for place in [&copies, &remote] {
            assert!(!may(None, true, place), "nobody asked for this target");
            assert!(may(None, false, place), "somebody named this directory");
            assert!(may(Some(true), true, place));
        }
        assert!(may(None, true, &inspection()));
        assert!(!may(Some(false), false, &inspection()));
        let zoned = Inspection { zoned: true, ..inspection() };
        assert!(!may(Some(true), false, &zoned), "whoever asks");
        let smr = DiskSettings { smr: true, ..DiskSettings::default() };
        let declared = BTreeMap::from([("sda".to_owned(), smr)]);
        assert!(!may_write(&target(Some(true), false), &inspection(), &declared));
    }
}
