//! What is declared of a machine's paths, and what is left unsaid, as the head of a report.

use crate::model::path::{DeclaredBacking, DeclaredPath, Encapsulation, Media, Raid, Wal};

/// Lines for the head of a report; what isn't declared is named.
pub fn declarations(backing: &DeclaredBacking, path: &DeclaredPath) -> Vec<(String, String)> {
    vec![("storage".into(), backing_in_words(backing)), ("peers".into(), path_in_words(path))]
}

pub fn path_in_words(path: &DeclaredPath) -> String {
    wire(path).unwrap_or_else(|| "path not declared".into())
}

/// `2 x 1 Gbit/s link, VXLAN, MTU 1500`.
fn wire(path: &DeclaredPath) -> Option<String> {
    let rate = path.link?.bits();
    let bond = path.members.map_or(String::new(), |n| format!("{n} x "));
    let overlay = path.encapsulation.map_or("", Encapsulation::label);
    let mut parts = vec![format!("{bond}{rate} link")];
    parts.extend((!overlay.is_empty()).then(|| overlay.to_owned()));
    parts.extend(path.mtu.map(|mtu| format!("MTU {mtu}")));
    Some(parts.join(", "))
}

/// What is said of it, then what isn't.
pub fn backing_in_words(backing: &DeclaredBacking) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut unsaid: Vec<&str> = Vec::new();
    match wire(&backing.wire) {
        Some(text) => said.push(text),
        None => unsaid.push("link"),
    }
    match backing.media {
        Some(media) => said.push(disks(backing, media)),
        None => unsaid.push("media"),
    }
    if backing.devices.is_none() {
        unsaid.push("devices");
    }
    match backing.raid {
        Some(Raid::None) => said.push("no RAID".into()),
        Some(raid) => said.push(format!("RAID {}", level(raid))),
        None => unsaid.push("raid"),
    }
    if backing.wire.link.is_some() {
        match backing.replicas {
            Some(1) => said.push("1 replica".into()),
            Some(n) => said.push(format!("{n} replicas")),
            None => unsaid.push("replicas"),
        }
        if backing.replicas.is_some_and(|n| n > 1) {
            match backing.shared_link {
                Some(true) => said.push("copies share the link".into()),
                Some(false) => said.push("copies have a link of their own".into()),
                None => unsaid.push("shared_link"),
            }
        }
    }
    match backing.wal {
        Some(Wal::Same) => said.push("log on the same device".into()),
        Some(Wal::Separate) => said.push("log on a device of its own".into()),
        None => unsaid.push("wal"),
    }
    match backing.bandwidth {
        Some(rate) => said.push(format!("{rate} a device")),
        None => unsaid.push("bandwidth"),
    }
    said.extend(backing.operations_limit.map(|limit| format!("limited to {limit}")));
    said.extend(backing.bytes_limit.map(|limit| format!("limited to {limit}")));
    let unsaid = unsaid.join(", ");
    match (said.is_empty(), unsaid.is_empty()) {
        (true, _) => "nothing declared".into(),
        (false, true) => said.join("; "),
        (false, false) => format!("{}; not declared: {unsaid}", said.join("; ")),
    }
}

fn level(raid: Raid) -> u8 {
    match raid {
        Raid::None => 0,
        Raid::Raid1 => 1,
        Raid::Raid5 => 5,
        Raid::Raid6 => 6,
        Raid::Raid10 => 10,
    }
}

fn disks(backing: &DeclaredBacking, media: Media) -> String {
    let many = backing.devices.filter(|n| *n > 1).map_or(String::new(), |n| format!("{n} x "));
    let turns = backing.rpm.map_or(String::new(), |rpm| format!(" {rpm} rpm"));
    format!("{many}{}{turns}", media.label())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Rate;

    #[test]
    fn the_head_says_what_is_declared_and_what_is_not() {
        assert_eq!(backing_in_words(&DeclaredBacking::default()), "nothing declared");
        let wire = DeclaredPath { link: Some(Rate(125e6)), ..DeclaredPath::default() };
        let backing = DeclaredBacking {
            wire,
            media: Some(Media::Hdd),
            rpm: Some(7200),
            devices: Some(3),
            replicas: Some(3),
            ..DeclaredBacking::default()
        };
        assert_eq!(
            backing_in_words(&backing),
            "1 Gbit/s link; 3 x hdd 7200 rpm; 3 replicas; \
             not declared: raid, shared_link, wal, bandwidth"
        );
    }

    #[test]
    fn a_path_is_told_with_its_overlay() {
        let path = DeclaredPath {
            link: Some(Rate(1.25e9)),
            encapsulation: Some(Encapsulation::Vxlan),
            mtu: Some(9000),
            members: Some(2),
        };
        assert_eq!(path_in_words(&path), "2 x 10 Gbit/s link, VXLAN, MTU 9000");
        assert_eq!(path_in_words(&DeclaredPath::default()), "path not declared");
    }
}
