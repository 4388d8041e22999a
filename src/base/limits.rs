//! Shares from which something speaks against a run, or is what bound it: its probe flags it and its
//! verdict names it at the same mark.

/// Of a cgroup's limit on I/O, from which nothing is left of it.
pub const IO_LIMIT_SHARE: f64 = 0.95;
/// Bytes of others / bytes of the run, above which the result is theirs too.
pub const FOREIGN_SHARE: f64 = 0.1;
/// Of the run's bytes; where less than this reached the leaf disks, a cache answered.
pub const DEVICE_SHARE: f64 = 0.5;
