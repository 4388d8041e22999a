//! Floor 2: how this host is read. Tolerant readers over roots that tests can move.

pub mod cpu;
pub mod disks;
pub mod links;
pub mod roots;
pub mod sandbox;
pub mod sys;
pub mod topology;
