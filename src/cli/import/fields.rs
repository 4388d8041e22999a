//! The keys of a run in a measurements file.

use serde::Deserialize;

use crate::base::units::{Bytes, Frequency, Rate, Ratio, Seconds};
use crate::config::read::optional;
use crate::judge::facts::Facts;
use crate::model::job::Access;

/// One item of `runs`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunKeys {
    pub(super) name: Option<String>,
    pub(super) kind: String,
    pub(super) profile: Option<String>,
    // Of storage.
    #[serde(default, deserialize_with = "optional")]
    pub(super) read: Option<Rate>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) write: Option<Rate>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) read_operations: Option<Frequency>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) write_operations: Option<Frequency>,
    pub(super) access: Option<Access>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) block_size: Option<Bytes>,
    pub(super) depth: Option<u32>,
    pub(super) jobs: Option<u32>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) device_busy: Option<Ratio>,
    pub(super) device_queue: Option<f64>,
    pub(super) device_slots: Option<u32>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) device_idle: Option<Ratio>,
    pub(super) write_amplification: Option<f64>,
    pub(super) device_read_share: Option<f64>,
    pub(super) device_write_share: Option<f64>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) flushing: Option<Ratio>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) cgroup_limit_used: Option<Ratio>,
    #[serde(rename = "virtual")]
    pub(super) is_virtual: Option<bool>,
    pub(super) direct: Option<bool>,
    // Of links.
    #[serde(default, deserialize_with = "optional")]
    pub(super) received: Option<Rate>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) sent: Option<Rate>,
    pub(super) streams: Option<u32>,
    pub(super) retransmits: Option<u64>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) rtt: Option<Seconds>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) window: Option<Bytes>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) mss: Option<Bytes>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) window_limited: Option<Ratio>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) send_buffer_limited: Option<Ratio>,
    // Of both.
    #[serde(default, deserialize_with = "optional")]
    pub(super) duration: Option<Seconds>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) latency_p50: Option<Seconds>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) rate_cv: Option<Ratio>,
    /// Others' bytes / the run's.
    pub(super) foreign: Option<f64>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) cpu: Option<Ratio>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) cpu_all: Option<Ratio>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) steal: Option<Ratio>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) cpu_throttled: Option<Ratio>,
    pub(super) second_leg: Option<LegKeys>,
    /// Read apart, with their own places.
    #[serde(default, rename = "backing")]
    _backing: serde::de::IgnoredAny,
    #[serde(default, rename = "path")]
    _path: serde::de::IgnoredAny,
    // What `--format json` saved.
    pub(super) operations_per_second: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
    pub(super) verdict: Option<SavedVerdict>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LegKeys {
    pub(super) depth: Option<u32>,
    pub(super) jobs: Option<u32>,
    pub(super) streams: Option<u32>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) read: Option<Rate>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) write: Option<Rate>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) read_operations: Option<Frequency>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) write_operations: Option<Frequency>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) received: Option<Rate>,
    #[serde(default, deserialize_with = "optional")]
    pub(super) latency_p50: Option<Seconds>,
}

/// Of a saved verdict only the evidence counts: the rest is judged again.
#[derive(Debug, Deserialize)]
pub(super) struct SavedVerdict {
    pub(super) evidence: Option<Box<Facts>>,
}
