//! Ceilings in force: of each resource and direction the one that counts, ready to be used at each
//! tick and published.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::book::{Book, Entry, Of, Resource, Way};
use super::families;
use crate::model::metric::{Label, Point};
use crate::model::verdict::Unit;

#[derive(Clone, Debug, Default)]
pub struct Effective {
    /// By kernel name.
    pub disks: BTreeMap<Label, DiskCeilings>,
    /// All that is published of them.
    pub points: Arc<Vec<Point>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskCeilings {
    /// The disk that they are of; see [`Entry::identity`].
    pub identity: String,
    pub read: Side,
    pub write: Side,
}

/// Of one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    pub operations: Option<Entry>,
    pub bytes: Option<Entry>,
}

impl Effective {
    /// Of the resources that `is_here` knows to be the ones that were measured.
    pub fn of(book: &Book, declared: &[Entry], is_here: impl Fn(&Resource) -> bool) -> Self {
        let known = book.entries().iter().chain(declared).map(|entry| &entry.of.resource);
        let mut resources: Vec<&Resource> = known.filter(|resource| is_here(resource)).collect();
        resources.sort();
        resources.dedup();
        let (mut disks, mut points) = (BTreeMap::new(), Vec::new());
        for resource in resources {
            let in_force = |way, unit| {
                let of = Of { resource: resource.clone(), way, unit };
                book.effective(&of, declared).cloned()
            };
            let side = |way| Side {
                operations: in_force(way, Unit::OperationsPerSecond),
                bytes: in_force(way, Unit::BytesPerSecond),
            };
            let [read, write] = Way::ALL.map(side);
            let all = [&read.operations, &read.bytes, &write.operations, &write.bytes];
            all.into_iter().flatten().for_each(|entry| families::ceiling(entry, &mut points));
            let first = all.into_iter().flatten().next();
            let identity = first.map_or_else(String::new, |entry| entry.identity.clone());
            if let Resource::Disk(name) = resource {
                disks.insert(name.as_str().into(), DiskCeilings { identity, read, write });
            }
        }
        Self { disks, points: Arc::new(points) }
    }
}
