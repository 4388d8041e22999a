//! Ceilings that runs found, kept for as long as the thing they are of is the same.

use serde::{Deserialize, Serialize};

use super::ceilings::BEYOND;
use crate::base::clock::Moment;
use crate::base::units::{Bytes, Seconds};
use crate::model::path::DeclaredBacking;
use crate::model::verdict::{Ceiling, Persistence, Trust, Unit};

/// All of them, written as JSON in a JSON text: with the rest of the state they fit a line on the wire
/// to the worker that saves them.
const BYTES_MAX: usize = 40 << 10;
const BEYOND_MAX: usize = 16;
const TEXT_BYTES_MAX: usize = 96;

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
    /// Tells the resource from another under its name; see [`crate::host::block::told_by`].
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
}

impl Entry {
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
    /// Measurements that went beyond what is declared.
    beyond: Vec<(Of, f64)>,
}

impl Book {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.beyond.is_empty()
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes what a run found. It stands for what its probe found before, and drops what it went
    /// beyond.
    pub fn learn(&mut self, mut found: Entry) {
        if !found.is_sound() {
            return;
        }
        for text in [&mut found.identity, &mut found.by, &mut found.source] {
            shorten(text);
        }
        self.measured(&found.of, (found.value, found.kind), &[]);
        self.entries.retain(|entry| (&entry.of, &entry.by) != (&found.of, &found.by));
        self.entries.push(found);
        while self.written_bytes() > BYTES_MAX && self.entries.len() > 1 {
            self.entries.remove(0);
        }
    }

    /// Drops what a measurement shows to be no ceiling; a burst says nothing of what lasts.
    pub fn measured(&mut self, of: &Of, (value, kind): (f64, Persistence), declared: &[Entry]) {
        let beyond = |entry: &Entry| entry.of == *of && value > BEYOND * entry.value;
        let said = |entry: &Entry| entry.kind == kind || kind == Persistence::Sustained;
        self.entries.retain(|entry| !(beyond(entry) && said(entry)));
        if value.is_finite() && declared.iter().any(beyond) {
            self.beyond.retain(|(other, _)| other != of);
            self.beyond.push((of.clone(), value));
            if self.beyond.len() > BEYOND_MAX {
                self.beyond.remove(0);
            }
        }
    }

    fn written_bytes(&self) -> usize {
        let text = serde_json::to_string(self).unwrap_or_default();
        text.len() + text.bytes().filter(|byte| *byte == b'"').count()
    }

    /// Keeps what is of the resource that bears the name now; `identity` says what that is, `None`
    /// where it isn't there. Returns how many were of another.
    pub fn keep_same(&mut self, identity: impl Fn(&Resource) -> Option<String>) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| {
            let now = identity(&entry.of.resource);
            now.is_none_or(|mut now| {
                shorten(&mut now);
                now == entry.identity
            })
        });
        before - self.entries.len()
    }

    /// The one that counts, of these and of what is `declared`.
    pub fn effective<'a>(&'a self, of: &Of, declared: &'a [Entry]) -> Option<&'a Entry> {
        let found = self.entries.iter().filter(|entry| entry.of == *of);
        let beyond = self.beyond.iter().filter(|(other, _)| other == of).map(|(_, value)| *value);
        let most = found.clone().map(|entry| entry.value).chain(beyond).fold(0.0, f64::max);
        let believed = declared.iter().filter(|e| e.of == *of && most <= BEYOND * e.value);
        // The best stable rate is the ceiling: another profile's lower one is its own matter.
        let better = |a: &&Entry, b: &&Entry| {
            let weights = a.weight().cmp(&b.weight());
            weights.then(a.value.total_cmp(&b.value))
        };
        believed.chain(found).max_by(better)
    }
}

/// Texts come from devices and configurations: bounded, at a character's end, and nothing in them that
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
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::Rate;

    pub(crate) fn of(resource: Resource, way: Way, unit: Unit) -> Of {
        Of { resource, way, unit }
    }

    fn reads(name: &str) -> Of {
        of(Resource::Disk(name.into()), Way::Read, Unit::OperationsPerSecond)
    }

    pub(crate) fn entry(of: Of, by: &str, value: f64) -> Entry {
        Entry {
            of,
            identity: "naa.1".into(),
            by: by.into(),
            value,
            trust: Trust::Knee,
            kind: Persistence::Sustained,
            short_stroke: false,
            block: Bytes(4096),
            depth: 8.0,
            latency: Seconds(0.001),
            source: "a knee at depth 8".into(),
            at: Some(1_700_000_000.0),
        }
    }

    fn effective(book: &Book, of: &Of) -> Option<f64> {
        book.effective(of, &[]).map(|entry| entry.value)
    }

    #[test]
    fn a_probe_has_one_word_and_the_best_stable_rate_counts() {
        let mut book = Book::default();
        let of = reads("sda");
        book.learn(entry(of.clone(), "knee@t", 10_000.0));
        book.learn(entry(of.clone(), "rand_read@t", 9_800.0));
        assert_eq!(effective(&book, &of), Some(10_000.0));
        book.learn(entry(of.clone(), "knee@t", 9_000.0));
        assert_eq!(effective(&book, &of), Some(9_800.0));
        assert_eq!(effective(&book, &reads("sdb")), None);
    }

    #[test]
    fn what_was_exceeded_is_no_ceiling() {
        let mut book = Book::default();
        let of = reads("sda");
        book.learn(entry(of.clone(), "knee@t", 1000.0));
        book.measured(&of, (1049.0, Persistence::Sustained), &[]);
        assert_eq!(effective(&book, &of), Some(1000.0));
        book.measured(&of, (1051.0, Persistence::Burst), &[]);
        assert_eq!(effective(&book, &of), Some(1000.0), "a burst says nothing of what lasts");
        book.measured(&of, (1051.0, Persistence::Sustained), &[]);
        assert_eq!(effective(&book, &of), None);
    }

    #[test]
    fn a_short_stroke_counts_only_where_nothing_better_is_known() {
        let mut book = Book::default();
        let of = reads("sda");
        book.learn(Entry { short_stroke: true, ..entry(of.clone(), "a@t", 600.0) });
        assert_eq!(effective(&book, &of), Some(600.0));
        book.learn(entry(of.clone(), "b@raw", 120.0));
        // 600 is beyond 120, and it was found before: only later ones are held against it.
        assert_eq!(effective(&book, &of), Some(120.0));
    }

    #[test]
    fn a_device_swapped_under_its_name_loses_its_ceiling_and_one_that_is_away_keeps_it() {
        let mut book = Book::default();
        book.learn(entry(reads("sda"), "a@t", 600.0));
        book.learn(entry(reads("sdb"), "a@u", 600.0));
        let now = |resource: &Resource| match resource {
            Resource::Disk(name) if name == "sda" => Some("naa.2".to_owned()),
            _ => None,
        };
        assert_eq!(book.keep_same(now), 1);
        assert_eq!(effective(&book, &reads("sdb")), Some(600.0));
    }

    #[test]
    fn what_is_declared_is_believed_until_a_run_goes_beyond_it() {
        let backing = DeclaredBacking {
            bytes_limit: Some(Rate(100e6)),
            bandwidth: Some(Rate(30e6)),
            devices: Some(4),
            replicas: Some(3),
            ..DeclaredBacking::default()
        };
        let declared = declared("srv", &backing);
        let of = |way| of(Resource::Target("srv".into()), way, Unit::BytesPerSecond);
        let mut book = Book::default();
        let value = |book: &Book, way| book.effective(&of(way), &declared).map(|e| e.value);
        assert_eq!(value(&book, Way::Read), Some(100e6));
        assert_eq!(value(&book, Way::Write), Some(40e6), "each write is three");
        book.learn(entry(of(Way::Read), "seq_read@srv", 90e6));
        assert_eq!(value(&book, Way::Read), Some(100e6));
        book.measured(&of(Way::Read), (120e6, Persistence::Burst), &declared);
        assert_eq!(value(&book, Way::Read), Some(90e6), "it is none: 120 MB/s were measured");
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let resource = (any::<bool>(), 0..3_u8).prop_map(|(disk, n)| match disk {
            true => Resource::Disk(format!("sd{n}")),
            false => Resource::Target(format!("t{n}")),
        });
        let way = prop_oneof![Just(Way::Read), Just(Way::Write)];
        // serde_json reads the last digit of some numbers wrong, which is no matter of ours.
        let value = prop_oneof![
            8 => (0..1_u32 << 20).prop_map(f64::from),
            1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)],
        ];
        (resource, way, value, ".{0,200}", any::<[bool; 3]>()).prop_map(
            |(resource, way, value, text, [bytes, burst, short_stroke])| {
                let unit = if bytes { Unit::BytesPerSecond } else { Unit::OperationsPerSecond };
                let kind = if burst { Persistence::Burst } else { Persistence::Sustained };
                let by = text.chars().take(2).collect::<String>();
                let plain = entry(Of { resource, way, unit }, &by, value);
                Entry { kind, short_stroke, source: text.clone(), identity: text, ..plain }
            },
        )
    }

    proptest! {
        #[test]
        fn whatever_runs_find_a_book_is_bounded_sound_and_comes_back_as_it_was(
            found in prop::collection::vec(any_entry(), 0..200),
        ) {
            let mut book = Book::default();
            for entry in found {
                let of = entry.of.clone();
                book.learn(entry);
                if let Some(most) = effective(&book, &of) {
                    prop_assert!(most.is_finite() && most > 0.0);
                }
            }
            prop_assert!(book.written_bytes() <= BYTES_MAX);
            let text = serde_json::to_string(&book).unwrap();
            prop_assert_eq!(serde_json::from_str::<Book>(&text).unwrap(), book);
        }
    }
}
