//! `backing:` and `path:`: what an operator declares of things that the kernel can't see.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::allowed::{COPIES, DISKS, MEMBERS, MTU, RPM};
use super::complaint::Complaint;
use super::document::Section;
use super::read::optional;
use crate::base::units::{Frequency, Rate};
use crate::model::path::{DeclaredBacking, DeclaredPath, Encapsulation, Media, Raid, Wal};

/// Reads a `backing` section.
pub fn backing(section: &Section<'_>) -> Result<DeclaredBacking, Complaint> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Keys {
        #[serde(deserialize_with = "optional")]
        link: Option<Rate>,
        encapsulation: Option<Encapsulation>,
        mtu: Option<u32>,
        members: Option<u32>,
        media: Option<Media>,
        rpm: Option<u32>,
        devices: Option<u32>,
        replicas: Option<u32>,
        #[serde(deserialize_with = "raid")]
        raid: Option<Raid>,
        wal: Option<Wal>,
        #[serde(deserialize_with = "optional")]
        bandwidth: Option<Rate>,
        shared_link: Option<bool>,
        #[serde(deserialize_with = "optional")]
        operations_limit: Option<Frequency>,
        #[serde(deserialize_with = "optional")]
        bytes_limit: Option<Rate>,
    }

    let keys: Keys = section.read()?;
    let Keys { link, encapsulation, mtu, members, .. } = keys;
    let checks = [("rpm", keys.rpm, RPM), ("devices", keys.devices, DISKS)];
    for (key, value, allowed) in checks.into_iter().chain([("replicas", keys.replicas, COPIES)]) {
        value.map_or(Ok(0), |value| allowed.check(section, key, value))?;
    }
    contradictions(
        section,
        &keys.media,
        keys.rpm,
        keys.shared_link == Some(true) && link.is_none(),
    )?;
    let wire = DeclaredPath { link, encapsulation, mtu, members };
    check_wire(section, &wire)?;
    Ok(DeclaredBacking {
        wire,
        media: keys.media,
        rpm: keys.rpm,
        devices: keys.devices,
        replicas: keys.replicas,
        raid: keys.raid,
        wal: keys.wal,
        bandwidth: keys.bandwidth,
        shared_link: keys.shared_link,
        operations_limit: keys.operations_limit,
        bytes_limit: keys.bytes_limit,
    })
}

/// The `backing` of `section`; `otherwise` where it has none.
pub fn or(
    section: &Section<'_>,
    otherwise: &DeclaredBacking,
) -> Result<DeclaredBacking, Complaint> {
    section.get("backing").map_or_else(|| Ok(otherwise.clone()), |section| backing(&section))
}

/// Reads a `path` section.
pub fn path(section: &Section<'_>) -> Result<DeclaredPath, Complaint> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Keys {
        #[serde(deserialize_with = "optional")]
        link: Option<Rate>,
        encapsulation: Option<Encapsulation>,
        mtu: Option<u32>,
        members: Option<u32>,
    }

    let Keys { link, encapsulation, mtu, members } = section.read()?;
    let wire = DeclaredPath { link, encapsulation, mtu, members };
    check_wire(section, &wire)?;
    Ok(wire)
}

fn check_wire(section: &Section<'_>, wire: &DeclaredPath) -> Result<(), Complaint> {
    wire.mtu.map_or(Ok(0), |mtu| MTU.check(section, "mtu", mtu))?;
    wire.members.map_or(Ok(0), |members| MEMBERS.check(section, "members", members))?;
    Ok(())
}

/// What can't be true together.
fn contradictions(
    section: &Section<'_>,
    media: &Option<Media>,
    rpm: Option<u32>,
    shared_nothing: bool,
) -> Result<(), Complaint> {
    if rpm.is_some() && media.is_some_and(|media| media != Media::Hdd) {
        return Err(section.refuse_value("rpm", "only `media: hdd` turns"));
    }
    if shared_nothing {
        return Err(section.refuse_value("shared_link", "there is no `link` to share"));
    }
    Ok(())
}

/// `none`, or a number as people say it.
fn raid<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Raid>, D::Error> {
    d.deserialize_any(Level)
}

struct Level;

impl Visitor<'_> for Level {
    type Value = Option<Raid>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none, 1, 5, 6 or 10")
    }

    fn visit_unit<E: Error>(self) -> Result<Option<Raid>, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, level: u64) -> Result<Option<Raid>, E> {
        self.visit_str(&level.to_string())
    }

    fn visit_str<E: Error>(self, level: &str) -> Result<Option<Raid>, E> {
        Ok(Some(match level {
            "none" => Raid::None,
            "1" => Raid::Raid1,
            "5" => Raid::Raid5,
            "6" => Raid::Raid6,
            "10" => Raid::Raid10,
            other => return Err(E::custom(format!("`{other}` is none of none, 1, 5, 6, 10"))),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Document;

    fn read(text: &str) -> Result<DeclaredBacking, String> {
        let document = Document::parse("f", &format!("backing: {text}\n")).unwrap();
        let said = |c: Complaint| c.to_string().lines().next().unwrap_or("").to_owned();
        backing(&document.root().get("backing").unwrap()).map_err(said)
    }

    #[test]
    fn what_is_declared_is_read() {
        let all = "{link: 1Gbit, encapsulation: vxlan, mtu: 9000, media: hdd, rpm: 7200, \
                   devices: 3, replicas: 2, raid: 10, wal: same, bandwidth: 100MB/s, \
                   shared_link: true, operations_limit: 500/s, bytes_limit: 60MB/s, members: 2}";
        let read = read(all).unwrap();
        assert_eq!((read.wire.link, read.wire.mtu), (Some(Rate(125e6)), Some(9000)));
        assert_eq!((read.raid, read.wal), (Some(Raid::Raid10), Some(Wal::Same)));
        assert_eq!(read.operations_limit, Some(Frequency(500.0)));
    }

    #[test]
    fn what_cannot_be_is_refused_at_its_place() {
        for (text, said) in [
            (
                "{link: 1000}",
                "f:1:17: `link` of `backing`: `1000` has no unit: write 1000Mbit or 1000Gbit",
            ),
            (
                "{media: tape}",
                "f:1:18: `media` of `backing`: `tape` is not known (known: hdd, ssd, nvme)",
            ),
            ("{raid: 7}", "f:1:17: `raid` of `backing`: `7` is none of none, 1, 5, 6, 10"),
            ("{rpm: 7}", "f:1:16: `rpm` of `backing`: must be 3000 to 20000"),
            ("{media: ssd, rpm: 7200}", "f:1:28: `rpm` of `backing`: only `media: hdd` turns"),
            ("{devices: 0}", "f:1:20: `devices` of `backing`: must be 1 to 4096"),
            ("{replicas: 99}", "f:1:21: `replicas` of `backing`: must be 1 to 16"),
            ("{mtu: 100}", "f:1:16: `mtu` of `backing`: must be 576 to 65535"),
            (
                "{shared_link: true}",
                "f:1:24: `shared_link` of `backing`: there is no `link` to share",
            ),
            ("{speed: 1Gbit}", "f:1:11: unknown key `speed` in `backing`"),
        ] {
            let complaint = read(text).unwrap_err();
            assert!(complaint.starts_with(said), "{text}: {complaint}");
        }
    }
}
