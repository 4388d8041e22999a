//! Why a run did not take place.

use serde::{Deserialize, Serialize};

use crate::base::fault::FaultKind;

/// The `reason` of `loadline_probe_skips_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// Other work on the device or host.
    Busy,
    /// Too little space, or none.
    Full,
    /// The day's write budget is spent.
    Budget,
    /// A spun-down disk is left asleep.
    Asleep,
    /// The host runs on battery.
    Battery,
    /// Outside the allowed hours, or in a blackout.
    Hours,
    /// Probes are switched off, or this is a dry run.
    Off,
    /// An earlier worker is still stuck on these devices.
    Hung,
    /// Another loadline holds the turn or the target.
    Locked,
    /// It may not write there.
    ReadOnly,
    /// This host's clock is not synchronised, and tests with peers go by the clock.
    Clock,
    /// loadline was asked to stop.
    Stopped,
    /// A cluster that is not HEALTH_OK has other work to do.
    Unhealthy,
}

impl Skip {
    pub const ALL: [Skip; 13] = [
        Skip::Busy,
        Skip::Full,
        Skip::Budget,
        Skip::Asleep,
        Skip::Battery,
        Skip::Hours,
        Skip::Off,
        Skip::Hung,
        Skip::Locked,
        Skip::ReadOnly,
        Skip::Clock,
        Skip::Stopped,
        Skip::Unhealthy,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Skip::Busy => "busy",
            Skip::Full => "full",
            Skip::Budget => "budget",
            Skip::Asleep => "asleep",
            Skip::Battery => "battery",
            Skip::Hours => "hours",
            Skip::Off => "off",
            Skip::Hung => "hung",
            Skip::Locked => "locked",
            Skip::ReadOnly => "read_only",
            Skip::Clock => "clock",
            Skip::Stopped => "stopped",
            Skip::Unhealthy => "unhealthy",
        }
    }

    /// What a person can do about it; empty where nothing is wanted.
    pub fn advice(self) -> &'static str {
        match self {
            Skip::Full => FaultKind::Full.advice(),
            Skip::ReadOnly => FaultKind::Denied.advice(),
            Skip::Hung => FaultKind::Hung.advice(),
            Skip::Locked => FaultKind::Refused.advice(),
            Skip::Busy => "wait for a quiet moment: beside other work no number would be true",
            Skip::Budget => "wait until tomorrow, or raise the target's budget",
            Skip::Unhealthy => "see `ceph health detail`: probes wait until it is HEALTH_OK",
            Skip::Asleep => "set wake: true where the disk may be woken",
            Skip::Clock => "run an NTP daemon (chrony, systemd-timesyncd)",
            Skip::Battery | Skip::Hours | Skip::Off | Skip::Stopped => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_the_same_word_on_the_wire_and_in_the_label() {
        for skip in Skip::ALL {
            assert_eq!(serde_json::to_string(&skip).unwrap(), format!("\"{}\"", skip.label()));
        }
    }
}
