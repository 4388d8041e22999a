//! What must outlive the daemon: budgets spent, stuck workers and ceilings found. One small, versioned,
//! checksummed file, written by a worker (its disk may hang) and read by one at start.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;
use crate::base::units::Bytes;
use crate::config::settings::TargetSettings;
use crate::judge::book::Book;
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
    /// Id of the machine that the ceilings are of; empty where it has none.
    pub machine: String,
    pub ceilings: Book,
}

/// A worker that could not be killed, and what it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StuckEntry {
    pub target: String,
    pub devices: Vec<String>,
    pub worker: StuckRecord,
}

/// Why a state file, or a ceiling in it, was not believed: the `reason` of `loadline_state_discarded_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Not one of ours.
    Foreign,
    /// Written by another version.
    Version,
    /// Its length or checksum is wrong.
    Torn,
    /// Another machine's: its ceilings are not this one's.
    Machine,
    /// A ceiling of another device or mount under the same name.
    Device,
}

impl Discard {
    pub const ALL: [Discard; 5] =
        [Discard::Foreign, Discard::Version, Discard::Torn, Discard::Machine, Discard::Device];

    pub fn label(self) -> &'static str {
        match self {
            Discard::Foreign => "foreign",
            Discard::Version => "version",
            Discard::Torn => "torn",
            Discard::Machine => "machine",
            Discard::Device => "device",
        }
    }
}

impl State {
    /// Makes it the state of `machine`; true where ceilings of another went with that.
    pub fn belongs_to(&mut self, machine: &str) -> bool {
        let known = !self.machine.is_empty() && !machine.is_empty();
        let foreign = known && self.machine != machine && !self.ceilings.is_empty();
        if foreign {
            self.ceilings = Book::default();
        }
        machine.clone_into(&mut self.machine);
        foreign
    }

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
    use crate::base::units::Seconds;
    use crate::judge::book::{Entry, Of, Resource, Way};
    use crate::model::job::{Job, LINE_BYTES_MAX, Task, WIRE_VERSION};
    use crate::model::verdict::{Persistence, Trust, Unit};

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

    /// Ceilings of so many disks, each text as long as it gets.
    fn full() -> Book {
        let mut book = Book::default();
        for n in 0..200 {
            let of = Of {
                resource: Resource::Disk(format!("nvme{n}c10n10")),
                way: Way::Write,
                unit: Unit::OperationsPerSecond,
            };
            book.learn(Entry {
                of,
                identity: "i".repeat(64),
                by: "b".repeat(300),
                value: 1e6 / 3.0,
                trust: Trust::Knee,
                kind: Persistence::Sustained,
                short_stroke: false,
                block: Bytes(u64::MAX),
                depth: 1e6 / 3.0,
                latency: Seconds(1.0 / 3.0),
                source: "s".repeat(300),
                at: Some(1_700_000_000.0 + 1.0 / 3.0),
                fallen: 0,
            });
        }
        book
    }

    #[test]
    fn ceilings_of_another_machine_are_not_this_ones() {
        let mut state = State { ceilings: full(), ..some() };
        assert!(!state.belongs_to("a"), "nobody said whose they are");
        assert!(!state.belongs_to("a") && !state.ceilings.is_empty());
        let mut moved = State::decode(&state.encode()).unwrap();
        assert!(moved.belongs_to("b") && moved.ceilings.is_empty());
        assert_eq!((moved.machine.as_str(), moved.budgets.len()), ("b", 1));
        assert!(!state.belongs_to("") && !state.ceilings.is_empty(), "no id, no word");
    }

    #[test]
    fn the_largest_state_fits_a_line_to_the_worker_that_saves_it() {
        let mut state = State { ceilings: full(), machine: "m".repeat(32), ..State::default() };
        for n in 0..64 {
            let budget = Budget::new(Bytes(u64::MAX / 3), Moment::default());
            state.budgets.insert(format!("{n:064}"), budget);
        }
        let task = Task::Save {
            directory: "/var/lib/loadline".into(),
            name: FILE_NAME.into(),
            content: state.encode(),
        };
        let job = Job { v: WIRE_VERSION, polite: false, task };
        let length = serde_json::to_string(&job).unwrap().len();
        assert!(length < LINE_BYTES_MAX, "{length}");
        assert_eq!(State::decode(&state.encode()), Ok(state));
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
