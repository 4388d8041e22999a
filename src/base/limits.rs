//! Shares from which something speaks against a run, or is what bound it: its probe flags it and its
//! verdict names it at the same mark.

/// Of a cgroup's limit on I/O, from which nothing is left of it.
pub const IO_LIMIT_SHARE: f64 = 0.95;
/// Bytes of others / bytes of the run, above which the result is theirs too.
pub const FOREIGN_SHARE: f64 = 0.1;
/// Of the run's bytes; where less than this reached the leaf disks, a cache answered.
pub const DEVICE_SHARE: f64 = 0.5;
/// Of what a device once gave, under which it has fallen: a healthy one varies less.
pub const FALLEN_SHARE: f64 = 0.7;
/// A spindle serves one request at a time: with a queue, from here on it is at its end.
pub const SPINDLE_BUSY: f64 = 0.95;
pub const SPINDLE_QUEUE: f64 = 2.0;
/// Of what a link carries: from here on it is the limit, and from the second mark beyond doubt.
pub const LINK_SHARE: f64 = 0.9;
pub const LINK_FULL_SHARE: f64 = 0.95;
/// Of a CPU or thread that the run needs.
pub const CPU_SHARE: f64 = 0.95;
/// A shorter run on what has credits, or a cache that takes writes, doesn't outlast them.
pub const SUSTAINED_SECONDS: f64 = 60.0;
/// Of the CPU time of a run, taken by the hypervisor, or by the cgroup's quota.
pub const STEAL_SHARE: f64 = 0.1;
pub const QUOTA_SHARE: f64 = 0.05;
