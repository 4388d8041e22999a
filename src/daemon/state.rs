//! What must outlive the daemon: budgets spent and stuck workers. One small, versioned,
//! checksummed file, written by a worker (its disk may hang) and read by one at start.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;
use crate::base::units::Bytes;
use crate::config::settings::TargetSettings;
use crate::schedule::budget::Budget;
use crate::worker::stuck::StuckRecord;

pub const FILE_NAME: &str = "state";
const MAGIC: &str = "loadline-state";
const VERSION: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Write budget by target name.
    pub budgets: BTreeMap<String, Budget>,
    pub stuck: Vec<StuckEntry>,
}

/// A worker that could not be killed, and what it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StuckEntry {
    pub target: String,
    pub devices: Vec<String>,
    pub worker: StuckRecord,
}

/// Why a state file was not believed: the `reason` of `loadline_state_discarded_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Not one of ours.
    Foreign,
    /// Written by another version.
    Version,
    /// Its length or checksum is wrong.
    Torn,
}

impl Discard {
    pub const ALL: [Discard; 3] = [Discard::Foreign, Discard::Version, Discard::Torn];

    pub fn label(self) -> &'static str {
        match self {
            Discard::Foreign => "foreign",
            Discard::Version => "version",
            Discard::Torn => "torn",
        }
    }
}

impl State {
    /// The budget of a target; a full one where none was kept.
    pub fn budget(&mut self, target: &TargetSettings, now: Moment) -> &mut Budget {
        let budget = self
            .budgets
            .entry(target.name.clone())
            .or_insert_with(|| Budget::new(target.budget, now));
        *budget = budget.clone().resized(target.budget);
        budget
    }

    /// What a target's probes may still write today, as device bytes.
    pub fn remaining(&self, target: &TargetSettings, now: Moment) -> Option<Bytes> {
        let kept = self.budgets.get(&target.name).map(|budget| budget.remaining(now));
        Some(kept.unwrap_or(target.budget))
    }

    /// First line: magic, version, checksum and length of what follows.
    pub fn encode(&self) -> String {
        let body = serde_json::to_string(self).unwrap_or_default();
        format!("{MAGIC} {VERSION} {:08x} {}\n{body}", crc32fast::hash(body.as_bytes()), body.len())
    }

    /// # Errors
    /// Why the text is not a state of this version, whole and unchanged.
    pub fn decode(text: &str) -> Result<Self, Discard> {
        let (head, body) = text.split_once('\n').ok_or(Discard::Foreign)?;
        let words: Vec<&str> = head.split(' ').collect();
        let [magic, version, checksum, length] = words[..] else { return Err(Discard::Foreign) };
        if magic != MAGIC {
            return Err(Discard::Foreign);
        }
        if version.parse() != Ok(VERSION) {
            return Err(Discard::Version);
        }
        let whole = length.parse() == Ok(body.len())
            && u32::from_str_radix(checksum, 16) == Ok(crc32fast::hash(body.as_bytes()));
        if !whole {
            return Err(Discard::Torn);
        }
        serde_json::from_str(body).map_err(|_| Discard::Torn)
    }
}

/// `$STATE_DIRECTORY` (systemd), else `$XDG_STATE_HOME/loadline`, else `~/.local/state/loadline`.
///
/// # Errors
/// A sentence, when none of them is set or what is set isn't absolute.
pub fn directory(env: impl Fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    let set = |name: &str| env(name).filter(|v| !v.is_empty());
    let found = if let Some(list) = set("STATE_DIRECTORY") {
        // systemd gives all of a unit's state directories, colon-separated.
        PathBuf::from(list.split(':').next().unwrap_or_default())
    } else if let Some(base) = set("XDG_STATE_HOME") {
        PathBuf::from(base).join("loadline")
    } else if let Some(home) = set("HOME") {
        PathBuf::from(home).join(".local/state/loadline")
    } else {
        return Err("no place for state: set STATE_DIRECTORY, XDG_STATE_HOME or HOME".into());
    };
    if found.is_absolute() {
        Ok(found)
    } else {
        Err(format!("the state directory `{}` is not absolute", found.display()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> State {
        let mut state = State::default();
        let budget = Budget::new(Bytes(1 << 30), Moment::default());
        state.budgets.insert("root".into(), budget);
        state
    }

    #[test]
    fn a_state_comes_back_as_it_was() {
        assert_eq!(State::decode(&some().encode()), Ok(some()));
    }

    #[test]
    fn any_cut_of_a_state_is_discarded() {
        let text = some().encode();
        for end in 0..text.len() {
            assert!(State::decode(&text[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn each_way_to_be_wrong_has_its_reason() {
        assert_eq!(State::decode("{}"), Err(Discard::Foreign));
        assert_eq!(State::decode("loadline-state 9 00000000 0\n"), Err(Discard::Version));
        let flipped = some().encode().replace("root", "boot");
        assert_eq!(State::decode(&flipped), Err(Discard::Torn));
    }

    #[test]
    fn the_state_directory_follows_the_environment() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
        };
        let of = |pairs| directory(env(pairs)).map(|p| p.display().to_string());
        assert_eq!(
            of(&[("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"), ("HOME", "/h")]),
            Ok("/var/lib/a".into())
        );
        assert_eq!(of(&[("XDG_STATE_HOME", "/x"), ("HOME", "/h")]), Ok("/x/loadline".into()));
        assert_eq!(
            of(&[("STATE_DIRECTORY", ""), ("HOME", "/h")]),
            Ok("/h/.local/state/loadline".into())
        );
        assert!(of(&[("XDG_STATE_HOME", "relative")]).unwrap_err().contains("not absolute"));
        assert!(of(&[]).unwrap_err().contains("STATE_DIRECTORY"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = State::decode(&text);
        }
    }
}
