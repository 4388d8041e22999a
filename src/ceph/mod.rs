//! Floor 3: Ceph, asked through its `ceph` command. Parsers are pure; the one place that executes
//! is `command`. Everything here runs in a worker process: a cluster without monitors answers late.

pub mod bench;
pub mod command;
mod health;
mod json;
pub mod log;
mod metadata;
pub mod settings;
mod space;
pub mod survey;
mod tree;
mod words;
