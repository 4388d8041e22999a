//! Floor 1: the values that pass between the parts. Plain data; nothing here reads or acts.

pub mod ceph;
pub mod evidence;
pub mod job;
pub mod link;
pub mod live;
pub mod load;
pub mod metric;
pub mod oltp;
pub mod outcome;
pub mod path;
#[cfg(test)]
pub(crate) mod samples;
pub mod skip;
pub mod snapshot;
pub mod spread;
pub mod verdict;
pub mod way;
