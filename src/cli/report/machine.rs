//! The head of a report that measures: the machine, the way to each target's disks, its links; what
//! is declared of them, and what is unknown.

use crate::base::clock::{Clock, SystemClock};
use crate::config::settings::{Settings, TargetSettings};
use crate::daemon;
use crate::host::roots::Roots;
use crate::model::job::Device;
use crate::model::outcome::{Inspection, OwnRuns};
use crate::model::path::DeclaredPath;
use crate::model::snapshot::{HostFacts, Resource, ResourceClass};
use crate::publish::report::{backing_in_words, path_in_words};
use crate::sample::{Reading, SAMPLERS, Tick};

/// Lines of name and text.
pub(super) fn about(
    roots: &Roots,
    settings: &Settings,
    places: &[(&TargetSettings, &Inspection)],
    path: &DeclaredPath,
) -> Vec<(String, String)> {
    let resources = look(roots, settings);
    let host = daemon::host::facts(roots);
    let mut lines = vec![("machine".to_owned(), machine(&host))];
    for (target, inspection) in places {
        let declared = backing_in_words(&target.backing);
        lines.push((target.name.clone(), way(inspection, &resources)));
        lines.push(("  declared".into(), declared));
    }
    let links = resources.iter().filter(|resource| resource.class == ResourceClass::Link);
    let links: Vec<String> = links.map(in_words).collect();
    lines.push(("links".into(), links.join("; ")));
    lines.push(("peers".into(), path_in_words(path)));
    lines.retain(|(_, text)| !text.is_empty());
    lines
}

fn machine(host: &HostFacts) -> String {
    let HostFacts { name, system, kernel, cpus, .. } = host;
    format!("{name}: {system}, kernel {kernel}, {cpus} CPUs")
}

/// Everything that the samplers see of disks and links at one look.
fn look(roots: &Roots, settings: &Settings) -> Vec<Resource> {
    let mut reading = Reading::default();
    let own = OwnRuns::default();
    for kind in SAMPLERS {
        let tick = Tick { at: SystemClock.now(), own: &own };
        // A sampler without its source has nothing to say here.
        let _ = (kind.open)(roots, &settings.sample).read(tick, &mut reading);
    }
    reading.resources
}

/// `xfs on /dev/sdb1 -> sdb hdd, 80 GiB of 1.0 TiB free`.
fn way(inspection: &Inspection, resources: &[Resource]) -> String {
    let Inspection { filesystem, source, devices, available, size, .. } = inspection;
    let disks: Vec<String> = devices.iter().map(|device| disk(device, resources)).collect();
    let under = match disks.is_empty() {
        true => " (its disks can't be seen)".to_owned(),
        false => format!(" -> {}", disks.join(", ")),
    };
    let mut text = match filesystem.as_str() {
        "" => format!("raw{under}, {size}"),
        _ => format!("{filesystem} on {source}{under}, {available} of {size} free"),
    };
    if inspection.copy_on_write {
        text += ", every overwrite is kept";
    }
    text
}

/// `sdb hdd`; the kernel's word where the sampler has none.
fn disk(device: &Device, resources: &[Resource]) -> String {
    let of_class = |resource: &&Resource| resource.class == ResourceClass::Disk;
    let known = resources.iter().filter(of_class).find(|r| *r.device == *device.name);
    let facts = known.map(|resource| &*resource.facts).filter(|facts| !facts.is_empty());
    let facts = facts.unwrap_or(match device.rotational {
        Some(true) => "turns",
        Some(false) => "flash",
        None => "medium unknown",
    });
    format!("{} {facts}", device.name)
}

fn in_words(resource: &Resource) -> String {
    format!("{} {}", resource.device, resource.facts).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, GIB};
    use crate::model::samples;
    use crate::model::snapshot::Of;

    fn inspection(filesystem: &str, devices: Vec<Device>) -> Inspection {
        Inspection {
            filesystem: filesystem.into(),
            source: "/dev/sdb1".into(),
            available: Bytes(80 * GIB),
            devices,
            ..samples::inspection()
        }
    }

    fn device(name: &str, rotational: Option<bool>) -> Device {
        Device { name: name.into(), stat: "stat".into(), rotational }
    }

    #[test]
    fn the_way_to_a_targets_disks_has_what_is_known_of_each() {
        let resource = |device: &str, class| Resource {
            device: device.into(),
            class,
            facts: "hdd, 7200 rpm".into(),
            load: Vec::new(),
            share: None,
            of: Of::default(),
        };
        let resources =
            [resource("sdb", ResourceClass::Disk), resource("sdc", ResourceClass::Link)];
        let devices = || vec![device("sdb", Some(true)), device("sdc", Some(false))];
        assert_eq!(
            way(&inspection("xfs", devices()), &resources),
            "xfs on /dev/sdb1 -> sdb hdd, 7200 rpm, sdc flash, 80 GiB of 100 GiB free"
        );
        assert_eq!(
            way(&inspection("", vec![device("sdd", None)]), &resources),
            "raw -> sdd medium unknown, 100 GiB"
        );
        let unseen = Inspection { copy_on_write: true, ..inspection("zfs", Vec::new()) };
        assert_eq!(
            way(&unseen, &[]),
            "zfs on /dev/sdb1 (its disks can't be seen), 80 GiB of 100 GiB free, every overwrite is \
             kept"
        );
    }
}
