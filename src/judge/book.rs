//! Ceilings that runs found, kept for as long as the thing they are of is the same.

use serde::{Deserialize, Serialize};

use super::ceilings::BEYOND;
use crate::base::clock::Moment;
use crate::base::limits::FALLEN_SHARE;
use crate::base::units::{Bytes, Seconds};
use crate::model::path::DeclaredBacking;
use crate::model::verdict::{Ceiling, Persistence, Trust, Unit};

/// All of them, written as JSON in a JSON text: with the rest of the state they fit a line on the wire
/// to the worker that saves them.
const BYTES_MAX: usize = 40 << 10;
const DISPROVED_MAX: usize = 16;
const TEXT_BYTES_MAX: usize = 96;
/// Mean blocks of two runs, one to the other, that compare: what one reached with others says nothing.
const ALIKE: std::ops::RangeInclusive<f64> = 0.5..=2.0;
/// So many runs in a row under [`FALLEN_SHARE`] of what their probe found are what it finds now. Before
/// that a device has fallen, which is to be told and not learned.
const FALLEN_RUNS: u8 = 3;

/// What a ceiling is of, by the name in its label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    Disk(String),
    Target(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    Read,
    Write,
}

impl Way {
    pub const ALL: [Way; 2] = [Way::Read, Way::Write];

    pub fn label(self) -> &'static str {
        match self {
            Way::Read => "read",
            Way::Write => "write",
        }
    }
}

/// What a number is the ceiling of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Of {
    pub resource: Resource,
    pub way: Way,
    pub unit: Unit,
}

/// A ceiling as one probe found it last, or as it is declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    #[serde(flatten)]
    pub of: Of,
    /// Tells the resource from another under its name, as [`crate::host::block::told_by`] does, which
    /// also bounds it.
    pub identity: String,
    /// Key of the probe that found it; empty for what is declared.
    pub by: String,
    pub value: f64,
    pub trust: Trust,
    pub kind: Persistence,
    /// Found on a small part of a spindle's stroke: its seeks were short.
    pub short_stroke: bool,
    /// Mean size of the requests that reached it.
    pub block: Bytes,
    /// In flight where it was reached, and what a request took then.
    pub depth: f64,
    pub latency: Seconds,
    /// Where the number comes from, in words.
    pub source: String,
    /// Unix time; `None` for what is declared.
    pub at: Option<f64>,
    /// Runs of its probe in a row that fell short of it by far.
    #[serde(default)]
    pub fallen: u8,
}

/// What a run reached of a resource, whether or not it is a ceiling.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    pub of: Of,
    /// As in [`Entry::identity`].
    pub identity: String,
    pub value: f64,
    pub kind: Persistence,
    /// Mean size of its requests.
    pub block: Bytes,
}

impl Reached {
    /// A burst says nothing of what lasts, nor one block size of another.
    fn disproves(&self, entry: &Entry) -> bool {
        let compares = self.kind == Persistence::Sustained || self.kind == entry.kind;
        compares && entry.is_alike(self.block.0 as f64) && self.is_beyond(entry)
    }

    fn is_beyond(&self, entry: &Entry) -> bool {
        self.of == entry.of && self.value.is_finite() && self.value > BEYOND * entry.value
    }
}

/// What was declared, and a run went beyond.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Disproved {
    of: Of,
    identity: String,
    /// As it was declared: another declaration is believed anew.
    value: f64,
}

impl Entry {
    /// Whether a run with blocks of this mean size compares with it.
    pub fn is_alike(&self, block: f64) -> bool {
        ALIKE.contains(&(block / self.block.0 as f64))
    }

    fn reached(&self) -> Reached {
        let Entry { of, identity, value, kind, block, .. } = self.clone();
        Reached { of, identity, value, kind, block }
    }

    /// Whether it is what the same probe found on the same thing, with the same blocks.
    fn follows(&self, before: &Entry) -> bool {
        let key = |entry: &Entry| (entry.of.clone(), entry.by.clone(), entry.identity.clone());
        key(self) == key(before) && before.is_alike(self.block.0 as f64)
    }

    /// The more it is to be believed, the larger.
    fn weight(&self) -> (Trust, bool, bool) {
        (self.trust, !self.short_stroke, self.kind == Persistence::Sustained)
    }

    fn is_sound(&self) -> bool {
        let numbers = [self.value, self.depth, self.latency.0, self.at.unwrap_or(0.0)];
        self.value > 0.0 && numbers.into_iter().all(|n| n.is_finite() && n >= 0.0)
    }

    /// As a verdict reads it.
    pub fn ceiling(&self) -> Ceiling {
        let resource = match &self.of.resource {
            Resource::Disk(name) => name.clone(),
            Resource::Target(name) => format!("target {name}"),
        };
        let wall = self.at.and_then(|at| std::time::Duration::try_from_secs_f64(at).ok());
        Ceiling {
            value: self.value,
            unit: self.of.unit,
            resource,
            direction: self.of.way.label().into(),
            trust: self.trust,
            source: self.source.clone(),
            at: wall.map(|wall| Moment { wall, ..Moment::default() }),
            kind: self.kind,
        }
    }
}

/// What is known of ceilings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Book {
    /// What each probe found last, in the order in which it was found.
    entries: Vec<Entry>,
    disproved: Vec<Disproved>,
}

impl Book {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.disproved.is_empty()
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes what a run found. It stands for what its probe found before, unless it fell far below
    /// that for the first time or the second; and it drops what it went beyond.
    pub fn learn(&mut self, mut found: Entry) {
        if !found.is_sound() {
            return;
        }
        for text in [&mut found.by, &mut found.source] {
            shorten(text);
        }
        self.measured(&found.reached(), &[]);
        if let Some(before) = self.entries.iter_mut().find(|before| found.follows(before))
            && found.value < FALLEN_SHARE * before.value
            && before.fallen < FALLEN_RUNS - 1
        {
            before.fallen += 1;
            return;
        }
        self.entries.retain(|entry| (&entry.of, &entry.by) != (&found.of, &found.by));
        self.entries.push(found);
        while self.written_bytes() > BYTES_MAX && self.entries.len() > 1 {
            self.entries.remove(0);
        }
    }

    /// Drops what a measurement shows to be no ceiling.
    pub fn measured(&mut self, reached: &Reached, declared: &[Entry]) {
        self.entries.retain(|entry| !reached.disproves(entry));
        for entry in declared.iter().filter(|entry| reached.is_beyond(entry)) {
            let Reached { of, identity, .. } = reached.clone();
            self.disproved.retain(|other| other.of != of);
            self.disproved.push(Disproved { of, identity, value: entry.value });
        }
        let over = self.disproved.len().saturating_sub(DISPROVED_MAX);
        self.disproved.drain(..over);
    }

    /// Keeps what probes with these keys found.
    pub fn keep_found_by(&mut self, keys: &[String]) {
        let by = |key: &String| {
            let mut by = key.clone();
            shorten(&mut by);
            by
        };
        let keys: Vec<String> = keys.iter().map(by).collect();
        self.entries.retain(|entry| keys.contains(&entry.by));
    }

    fn written_bytes(&self) -> usize {
        let text = serde_json::to_string(self).unwrap_or_default();
        text.len() + text.bytes().filter(|byte| *byte == b'"').count()
    }

    /// Keeps what is of the resource that bears the name now; `identity` says what that is, `None`
    /// where it isn't there. Returns how many were of another.
    pub fn keep_same(&mut self, identity: impl Fn(&Resource) -> Option<String>) -> usize {
        let before = self.entries.len();
        let same = |of: &Of, was: &str| identity(&of.resource).is_none_or(|now| now == was);
        self.entries.retain(|entry| same(&entry.of, &entry.identity));
        self.disproved.retain(|disproved| same(&disproved.of, &disproved.identity));
        before - self.entries.len()
    }

    /// The one that counts, of these and of what is `declared`.
    pub fn effective<'a>(&'a self, of: &Of, declared: &'a [Entry]) -> Option<&'a Entry> {
        let found = self.entries.iter().filter(|entry| entry.of == *of);
        let most = found.clone().map(|entry| entry.value).fold(0.0, f64::max);
        let disproved = |entry: &Entry| {
            most > BEYOND * entry.value
                || self.disproved.iter().any(|d| d.of == *of && d.value == entry.value)
        };
        let believed = declared.iter().filter(|entry| entry.of == *of && !disproved(entry));
        // The best stable rate is the ceiling: another profile's lower one is its own matter.
        let better = |a: &&Entry, b: &&Entry| {
            let weights = a.weight().cmp(&b.weight());
            weights.then(a.value.total_cmp(&b.value))
        };
        believed.chain(found).max_by(better)
    }
}

/// Texts come from configurations: bounded, at a character's end, and nothing in them that
/// is written longer than it is.
fn shorten(text: &mut String) {
    if text.contains(is_odd) {
        *text = text.replace(is_odd, "_");
    }
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
}

fn is_odd(c: char) -> bool {
    c.is_control() || c == '"' || c == '\\'
}

/// What an operator declares of a target's ceilings: a limit that is set, and what its disks move.
pub fn declared(target: &str, backing: &DeclaredBacking) -> Vec<Entry> {
    let entry = |way, unit, (value, source): (f64, &str)| Entry {
        of: Of { resource: Resource::Target(target.to_owned()), way, unit },
        identity: String::new(),
        by: String::new(),
        value,
        trust: Trust::Declared,
        kind: Persistence::Sustained,
        short_stroke: false,
        block: Bytes(0),
        depth: 0.0,
        latency: Seconds(0.0),
        source: source.to_owned(),
        at: None,
        fallen: 0,
    };
    let disks = backing.bandwidth.zip(backing.devices).map(|(one, n)| one.0 * f64::from(n));
    let copies = backing.replicas.map_or(1.0, f64::from).max(1.0);
    let of_way = |way| {
        let share = if way == Way::Write { copies } else { 1.0 };
        let set = backing.bytes_limit.map(|limit| (limit.0, "a limit that is set"));
        let moved = disks.map(|all| (all / share, "what the disks move"));
        let bytes = set.into_iter().chain(moved).min_by(|a, b| a.0.total_cmp(&b.0));
        let operations = backing.operations_limit.map(|limit| (limit.0, "a limit that is set"));
        [
            operations.map(|found| entry(way, Unit::OperationsPerSecond, found)),
            bytes.map(|found| entry(way, Unit::BytesPerSecond, found)),
        ]
    };
    Way::ALL.into_iter().flat_map(of_way).flatten().filter(Entry::is_sound).collect()
}

#[cfg(test)]
pub(super) mod tests;
