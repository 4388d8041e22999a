//! Floor 1: the values that pass between the parts. Plain data; nothing here reads or acts.

pub mod job;
pub mod link;
pub mod load;
pub mod metric;
pub mod outcome;
pub mod snapshot;
