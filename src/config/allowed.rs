//! The ranges of values, each said as people write it.

use super::complaint::Complaint;
use super::document::Section;
use crate::base::units::{Bytes, GIB, MIB, Ratio, Seconds};

pub(super) const TICK: Allowed<Seconds> =
    Allowed { from: Seconds(1.0), to: Seconds(60.0), said: "1s to 1m" };
pub(super) const DEVICES: Allowed<usize> = Allowed { from: 1, to: 4096, said: "1 to 4096" };
pub(super) const INTERVAL: Allowed<Seconds> =
    Allowed { from: Seconds(10.0), to: Seconds(30.0 * 86_400.0), said: "10s to 30d" };
/// Below the least a device's own cache answers.
pub(super) const BALLAST: Allowed<Bytes> =
    Allowed { from: Bytes(64 * MIB), to: Bytes(1024 * GIB), said: "64MiB to 1TiB" };
pub(super) const BUDGET: Allowed<Bytes> =
    Allowed { from: Bytes(MIB), to: Bytes(1 << 50), said: "1MiB to 1PiB" };
/// Of a question to a cluster.
pub(super) const ANSWER: Allowed<Seconds> =
    Allowed { from: Seconds(1.0), to: Seconds(120.0), said: "1s to 2m" };
pub(super) const RESERVE: Allowed<Bytes> =
    Allowed { from: Bytes(0), to: Bytes(1 << 50), said: "0 to 1PiB" };
pub(super) const SHARE: Allowed<Ratio> =
    Allowed { from: Ratio(0.0), to: Ratio(0.9), said: "0% to 90%" };
pub(super) const RPM: Allowed<u32> = Allowed { from: 3000, to: 20_000, said: "3000 to 20000" };
pub(super) const DISKS: Allowed<u32> = Allowed { from: 1, to: 4096, said: "1 to 4096" };
pub(super) const COPIES: Allowed<u32> = Allowed { from: 1, to: 16, said: "1 to 16" };
pub(super) const MEMBERS: Allowed<u32> = Allowed { from: 1, to: 32, said: "1 to 32" };
/// What IPv4 asks of every link, to what its length field can say.
pub(super) const MTU: Allowed<u32> = Allowed { from: 576, to: 65_535, said: "576 to 65535" };

const NAME_CHARS_MAX: usize = 64;
pub(super) const PARTNERS: Allowed<usize> = Allowed { from: 1, to: 1024, said: "1 to 1024" };

/// What a value may be, also as people write it.
pub(super) struct Allowed<T> {
    from: T,
    to: T,
    said: &'static str,
}

impl<T: PartialOrd> Allowed<T> {
    /// Not-a-number is never allowed.
    pub(super) fn check(&self, section: &Section<'_>, key: &str, value: T) -> Result<T, Complaint> {
        if value >= self.from && value <= self.to {
            return Ok(value);
        }
        Err(section.refuse_value(key, format!("must be {}", self.said)))
    }
}

/// Refuses a list of more than `max` items.
pub(super) fn at_most(
    section: &Section<'_>,
    key: &str,
    count: usize,
    max: usize,
) -> Result<(), Complaint> {
    if count <= max {
        return Ok(());
    }
    Err(section.refuse(format!("`{key}`: {count} are more than {max}")))
}

/// The item's name, checked, and the item titled by it.
pub(super) fn named<'a>(item: Section<'a>, what: &str) -> Result<(Section<'a>, String), Complaint> {
    let item = item.titled(format!("this {what}"));
    item.keys()?;
    let Some(section) = item.get("name") else {
        return Err(item.refuse(format!("this {what} has no `name`")));
    };
    let name: String = section.read()?;
    let in_label = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(in_label) {
        let text = format!("`{name}` is not a name (1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 _ . -)");
        return Err(item.refuse_value("name", text));
    }
    Ok((item.titled(format!("{what} `{name}`")), name))
}
