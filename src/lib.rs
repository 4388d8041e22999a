#![doc = include_str!("../ARCHITECTURE.md")]

pub mod base;
pub mod ceph;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod host;
pub mod iperf;
pub mod judge;
pub mod model;
pub mod probe;
pub mod publish;
pub mod sample;
pub mod schedule;
pub mod web;
pub mod worker;
pub mod workload;
