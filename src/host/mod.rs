//! Floor 2: how this host is read. Tolerant readers over roots that tests can move.

pub mod block;
pub mod cpu;
pub mod disks;
#[cfg(test)]
pub(crate) mod fixture;
pub mod links;
pub mod mountinfo;
pub mod roots;
pub mod sandbox;
pub mod sys;
pub mod topology;
pub mod transport;
