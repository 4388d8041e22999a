//! Floor 2: how this host is read. Tolerant readers over roots that tests can move.

pub mod allowance;
pub mod aside;
pub mod block;
pub mod cgroup;
pub mod cgroup_io;
pub mod clusters;
pub mod cpu;
pub mod disks;
#[cfg(test)]
pub(crate) mod fixture;
pub mod link_class;
pub mod link_facts;
pub mod links;
pub mod mountinfo;
mod netlink;
pub mod own_address;
pub mod power;
pub mod pressure;
pub mod qdisc;
pub mod roots;
pub mod route;
pub mod sandbox;
pub mod softnet;
#[cfg(test)]
mod spoilt;
pub mod sys;
pub mod tcp;
pub mod topology;
pub mod transport;
