//! What samplers hand on besides points: live loads, to be set against ceilings.

use super::load::DiskLoad;
use super::metric::Label;
use crate::base::units::{Rate, Ratio};

/// A disk under load now.
#[derive(Clone, Debug)]
pub struct DiskLive {
    pub device: Label,
    /// Tells it from another under its name; empty where nothing does.
    pub identity: Label,
    /// One spindle: it serves a request at a time.
    pub spindle: bool,
    /// Requests that it takes at once.
    pub slots: Option<u32>,
    /// The last window of others' work; absent after three ticks without one.
    pub window: Option<DiskWindow>,
}

#[derive(Clone, Copy, Debug)]
pub struct DiskWindow {
    pub load: DiskLoad,
    /// Absent while the kernel's busy time can't be true.
    pub busy: Option<Ratio>,
    /// The driver counts time: without it `load` has no queue and no latency.
    pub timed: bool,
    /// Made in this tick; an older one is shown again.
    pub new: bool,
}

/// A link whose line rate is known.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownLine {
    pub device: Label,
    pub receive: Rate,
    pub transmit: Rate,
    /// By the operator.
    pub declared: bool,
    pub mtu: u32,
    /// Its frames have an 802.1Q tag on the wire.
    pub tagged: bool,
}
