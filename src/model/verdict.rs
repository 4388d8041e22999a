//! Which limit bound a run, with what is known of ceilings.

use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;
use crate::base::units::{Frequency, Rate};

/// The full set of limits, in the order in which they are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Others used the resource meanwhile.
    Contended,
    /// Something above the medium answered.
    Cache,
    Link,
    Cpu,
    /// A buffer over the round trip.
    Window,
    /// A limit that somebody set.
    Throttle,
    /// Journals, logs and flushes on the way of a write.
    WritePath,
    /// More depth would go faster.
    Latency,
    /// Time is spent above the device.
    None,
    /// Heads that move.
    Seek,
    /// What lies behind the network.
    Backend,
    Bandwidth,
    Operations,
    /// The evidence doesn't decide.
    Unknown,
}

impl Limit {
    pub const ALL: [Limit; 14] = [
        Limit::Contended,
        Limit::Cache,
        Limit::Link,
        Limit::Cpu,
        Limit::Window,
        Limit::Throttle,
        Limit::WritePath,
        Limit::Latency,
        Limit::None,
        Limit::Seek,
        Limit::Backend,
        Limit::Bandwidth,
        Limit::Operations,
        Limit::Unknown,
    ];

    /// Label value.
    pub fn label(self) -> &'static str {
        match self {
            Limit::Contended => "contended",
            Limit::Cache => "cache",
            Limit::Link => "link",
            Limit::Cpu => "cpu",
            Limit::Window => "window",
            Limit::Throttle => "throttle",
            Limit::WritePath => "write_path",
            Limit::Latency => "latency",
            Limit::None => "none",
            Limit::Seek => "seek",
            Limit::Backend => "backend",
            Limit::Bandwidth => "bandwidth",
            Limit::Operations => "operations",
            Limit::Unknown => "unknown",
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Limit::WritePath => "write path",
            other => other.label(),
        }
    }
}

/// Who says what a ceiling is; a later one is believed over an earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Defaults and arithmetic.
    Computed,
    /// The kernel, the NIC, the peer, a cgroup.
    Detected,
    /// The flat end of a ladder of depths.
    Knee,
    Declared,
}

impl Trust {
    pub fn label(self) -> &'static str {
        match self {
            Trust::Computed => "computed",
            Trust::Detected => "detected",
            Trust::Knee => "knee",
            Trust::Declared => "declared",
        }
    }
}

/// How long a ceiling holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    #[default]
    Sustained,
    /// From a run too short to outlast credits or a fast cache.
    Burst,
}

impl Persistence {
    pub fn label(self) -> &'static str {
        match self {
            Persistence::Sustained => "sustained",
            Persistence::Burst => "burst",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    OperationsPerSecond,
    BytesPerSecond,
}

impl Unit {
    /// `value` in this unit, for people.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::OperationsPerSecond => Frequency(value).to_string(),
            Unit::BytesPerSecond => Rate(value).to_string(),
        }
    }
}

/// A resource's limit in one direction or one profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    pub value: f64,
    pub unit: Unit,
    /// `link`, `sda`, `target srv`.
    pub resource: String,
    /// `read`, `receive`, `rand_rw`.
    pub direction: String,
    pub trust: Trust,
    /// Where the number comes from, in words: `1 Gbit/s, VXLAN, MTU 1500`.
    pub source: String,
    /// When it was found; `None` for what is declared.
    pub at: Option<Moment>,
    pub kind: Persistence,
}

impl Ceiling {
    /// One that nobody had to find: it has no time, and it lasts.
    pub fn lasting(
        (value, unit): (f64, Unit),
        (resource, direction): (&str, &str),
        (trust, source): (Trust, String),
    ) -> Self {
        let (resource, direction) = (resource.into(), direction.into());
        let kind = Persistence::Sustained;
        Self { value, unit, resource, direction, trust, source, at: None, kind }
    }
}

/// A limit that was looked at, and how near to its threshold it came: 1 is there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rival {
    pub limit: Limit,
    pub ratio: f64,
}

/// Which limit bound a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub limit: Limit,
    /// Share of the ceiling that was reached, else the number that the limit's threshold is of.
    pub ratio: Option<f64>,
    /// 0 to 1; 0 for `unknown`.
    pub confidence: f64,
    pub ceiling: Option<Ceiling>,
    /// The ceiling as people read it, where it is more than one number: `46-490/s a spindle, x3`.
    pub ceiling_text: Option<String>,
    /// The nearest first.
    pub rivals: Vec<Rival>,
    /// What the sentence rests on, in words: one fact each.
    pub because: Vec<String>,
    /// One sentence for a person.
    pub text: String,
    /// What to do about it, where anything is to be done.
    pub advice: Option<&'static str>,
}

/// What a change would do to one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    pub run: String,
    pub from: f64,
    pub to: f64,
    pub factor: f64,
    /// What binds the run then.
    #[serde(skip)]
    pub next: String,
    /// Of `from` and `to`.
    #[serde(skip)]
    pub unit: Option<Unit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    Free,
    Low,
    Medium,
    High,
    VeryHigh,
}

impl Effort {
    pub fn label(self) -> &'static str {
        match self {
            Effort::Free => "free",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::VeryHigh => "very high",
        }
    }
}

/// One thing that could be bought or changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    pub change: String,
    pub expected: Vec<Expected>,
    /// What binds the run that gains most, after the change.
    pub binds_next: String,
    pub effort: Effort,
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_one_word_everywhere() {
        for limit in Limit::ALL {
            assert_eq!(serde_json::to_string(&limit).unwrap(), format!("\"{}\"", limit.label()));
        }
        assert!(Limit::ALL.windows(2).all(|pair| pair[0] < pair[1]), "in their order");
    }

    #[test]
    fn what_is_declared_is_believed_most() {
        use Trust::{Computed, Declared, Detected, Knee};
        assert!(Declared > Knee && Knee > Detected && Detected > Computed);
    }
}
