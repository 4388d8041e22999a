//! YAML text to typed sections; every complaint has file, line, column and the nearest known key.

use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed};
use serde_yaml::Deserializer;

use super::complaint::{Complaint, Spot, hint};
use super::navigate::{Here, KeyHere, Node, Step, To, Used, Walk};
use super::read::sentence;
use crate::base::units::Bytes;

/// Largest configuration file.
pub const FILE_BYTES_MAX: usize = 256 << 10;
/// Deepest brackets: the scanner's work grows with depth times length, ours is six levels deep.
const BRACKETS_MAX: usize = 64;

/// One configuration file that is sound YAML: one document, no key twice, no tags, no merge keys.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    text: String,
    root: Node,
}

impl Document {
    /// Reads `text`; `file` is its name in complaints. An empty text is a document without keys.
    pub fn parse(file: &str, text: &str) -> Result<Document, Complaint> {
        Self::sound(file, text, FILE_BYTES_MAX)?.with_keys()
    }

    fn sound(file: &str, text: &str, bytes_max: usize) -> Result<Document, Complaint> {
        if text.len() > bytes_max {
            return Err(too_large(file, bytes_max));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let mut document = Document { file: file.to_owned(), text, root: Node::Nothing };
        document.check_characters()?;
        let used = Used::up_to(bytes_max);
        let walked = Walk { used: &used }.deserialize(Deserializer::from_str(&document.text));
        document.root = walked.map_err(|error| {
            let place = place_of(&error);
            let text = used.refused.take().unwrap_or_else(|| {
                let at_tab = place.is_some_and(|place| document.tab_stands_at(place));
                let hint = if at_tab { " (a tab: indent with spaces)" } else { "" };
                format!("not valid YAML: {}{hint}", sentence(&error))
            });
            let second = if place.is_none() { document.second_document() } else { None };
            second.unwrap_or_else(|| document.complaint(place, text))
        })?;
        Ok(document)
    }

    /// As [`Document::parse`], from a file's bytes, which may be anything.
    pub fn from_bytes(file: &str, bytes: &[u8]) -> Result<Document, Complaint> {
        Self::within(file, bytes, FILE_BYTES_MAX)
    }

    /// As [`Document::from_bytes`], of a file that may be so large.
    pub fn within(file: &str, bytes: &[u8], bytes_max: usize) -> Result<Document, Complaint> {
        Self::decoded(file, bytes, bytes_max)?.with_keys()
    }

    /// A list instead of keys; JSON is YAML.
    pub fn list_from_bytes(file: &str, bytes: &[u8]) -> Result<Document, Complaint> {
        Self::decoded(file, bytes, FILE_BYTES_MAX)
    }

    fn with_keys(self) -> Result<Document, Complaint> {
        match self.root {
            Node::Scalar | Node::List(_) => {
                Err(self.root().refuse("expected keys, such as `listen: :9847`"))
            }
            Node::Map(_) | Node::Nothing => Ok(self),
        }
    }

    fn decoded(file: &str, bytes: &[u8], bytes_max: usize) -> Result<Document, Complaint> {
        if bytes.len() > bytes_max {
            return Err(too_large(file, bytes_max));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::sound(file, text, bytes_max),
            Err(error) => {
                let sound = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let line = sound.matches('\n').count() + 1;
                Err(whole(file, format!("line {line} is not UTF-8: save the file as UTF-8")))
            }
        }
    }

    pub fn root(&self) -> Section<'_> {
        Section { document: self, node: &self.root, path: Vec::new(), title: None }
    }

    /// Characters that YAML forbids, and the depth of brackets.
    fn check_characters(&self) -> Result<(), Complaint> {
        let (mut line, mut column, mut depth) = (1, 1, 0_usize);
        for c in self.text.chars() {
            match c {
                '[' | '{' => depth += 1,
                ']' | '}' => depth = depth.saturating_sub(1),
                // Brackets in prose and patterns needn't match; those of YAML end with a document.
                '\t' | '\n' | '\r' | '\u{85}' => {}
                c if c.is_control() || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}') => {
                    let text = format!("character U+{:04X} is not allowed in YAML", c as u32);
                    return Err(self.complaint(Some((line, column)), text));
                }
                _ => {}
            }
            if depth > BRACKETS_MAX {
                return Err(self.complaint(Some((line, column)), "brackets are nested too deep"));
            }
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        Ok(())
    }

    fn tab_stands_at(&self, (line, column): (usize, usize)) -> bool {
        let line = self.text.lines().nth(line.saturating_sub(1)).unwrap_or("");
        line.chars().nth(column.saturating_sub(1)) == Some('\t')
    }

    /// The complaint about a second document, at its place.
    fn second_document(&self) -> Option<Complaint> {
        let second = Deserializer::from_str(&self.text).nth(1)?;
        let place = Here.deserialize(second).err().as_ref().and_then(place_of);
        Some(self.complaint(place, "a second document starts here: everything goes into one"))
    }

    fn complaint(&self, place: Option<(usize, usize)>, text: impl Into<String>) -> Complaint {
        let spot = place.map(|(line, column)| Spot::new(&self.text, line, column));
        Complaint { file: self.file.clone(), text: text.into(), spot }
    }

    /// Runs the event stream to `path` and gives the error that `seed` raises there.
    fn raise<S>(&self, path: &[Step], seed: S) -> Option<serde_yaml::Error>
    where
        S: for<'de> DeserializeSeed<'de>,
    {
        To { path, seed }.deserialize(Deserializer::from_str(&self.text)).err()
    }
}

/// A complaint about a file as such.
fn whole(file: &str, text: String) -> Complaint {
    Complaint { file: file.to_owned(), text, spot: None }
}

fn too_large(file: &str, bytes_max: usize) -> Complaint {
    whole(file, format!("larger than {}", Bytes(bytes_max as u64)))
}

fn place_of(error: &serde_yaml::Error) -> Option<(usize, usize)> {
    error.location().map(|at| (at.line(), at.column()))
}

/// A place in a document: the root, the value of a key, or an item of a list.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    document: &'a Document,
    node: &'a Node,
    path: Vec<Step>,
    /// How complaints call it: ``probe `fast` ``.
    title: Option<String>,
}

impl<'a> Section<'a> {
    /// Names the place, and all below it, for complaints: ``probe `fast` ``.
    #[must_use]
    pub fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// The value of `key`; `None` where there is no such key here.
    pub fn get(&self, key: &str) -> Option<Section<'a>> {
        let Node::Map(entries) = self.node else { return None };
        let (_, node) = entries.iter().find(|(name, _)| name == key)?;
        let title = self.title.clone().or_else(|| Some(format!("`{key}`")));
        Some(self.below(Step::Key(key.to_owned()), node).titled_as(title))
    }

    /// The items of the list here; none where nothing is here.
    pub fn items(&self) -> Result<Vec<Section<'a>>, Complaint> {
        match self.node {
            Node::List(nodes) => Ok(nodes
                .iter()
                .enumerate()
                .map(|(i, node)| self.below(Step::Item(i), node).titled_as(self.title.clone()))
                .collect()),
            Node::Nothing => Ok(Vec::new()),
            Node::Scalar | Node::Map(_) => Err(self.refuse_here("expected a list (`- ...`)")),
        }
    }

    /// The keys here in their order; none where nothing is here.
    pub fn keys(&self) -> Result<Vec<&'a str>, Complaint> {
        match self.node {
            Node::Map(entries) => Ok(entries.iter().map(|(key, _)| key.as_str()).collect()),
            Node::Nothing => Ok(Vec::new()),
            Node::Scalar | Node::List(_) => Err(self.refuse_here("expected keys (`key: value`)")),
        }
    }

    /// Refuses every key but these.
    pub fn only(&self, known: &[&str]) -> Result<(), Complaint> {
        match self.keys()?.into_iter().find(|key| !known.contains(key)) {
            None => Ok(()),
            Some(key) => {
                Err(self.refuse_key(key, format!("unknown key `{key}`{}", self.of(key, known))))
            }
        }
    }

    /// Reads what is here as `T`. Derive `T` with `#[serde(deny_unknown_fields)]`: the keys that it
    /// knows are those that it has fields for. Quantities are read by `config::read`.
    ///
    /// # Errors
    /// With the place of the very value or key that is wrong.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Complaint> {
        let seed = To { path: &self.path, seed: PhantomData::<T> };
        match seed.deserialize(Deserializer::from_str(&self.document.text)) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(self.refuse_here("nothing is here")),
            Err(error) => {
                let text = super::read::explain(&error, self.key(), self.title.as_deref());
                Err(self.document.complaint(place_of(&error), text))
            }
        }
    }

    /// Line and column of what is here, counted from 1.
    pub fn place(&self) -> (usize, usize) {
        let error = self.document.raise(&self.path, Here);
        error.as_ref().and_then(place_of).unwrap_or((1, 1))
    }

    /// A complaint about what is here.
    pub fn refuse(&self, text: impl Into<String>) -> Complaint {
        self.document.complaint(Some(self.place()), text)
    }

    /// A complaint about the value of `key`, which it names; at what is here where there is none.
    pub fn refuse_value(&self, key: &str, text: impl std::fmt::Display) -> Complaint {
        let of = self.title.as_ref().map_or(String::new(), |title| format!(" of {title}"));
        self.get(key).as_ref().unwrap_or(self).refuse(format!("`{key}`{of}: {text}"))
    }

    /// A complaint at the key itself.
    fn refuse_key(&self, key: &str, text: String) -> Complaint {
        let error = self.document.raise(&self.path, KeyHere(key));
        self.document.complaint(error.as_ref().and_then(place_of), text)
    }

    fn refuse_here(&self, text: &str) -> Complaint {
        self.refuse(match &self.title {
            Some(title) => format!("{title}: {text}"),
            None => text.to_owned(),
        })
    }

    fn of(&self, key: &str, known: &[&str]) -> String {
        let place = self.title.as_ref().map_or(String::new(), |title| format!(" in {title}"));
        place + &hint(key, known)
    }

    fn key(&self) -> Option<&str> {
        match self.path.last()? {
            Step::Key(key) => Some(key),
            Step::Item(_) => None,
        }
    }

    fn below(&self, step: Step, node: &'a Node) -> Section<'a> {
        let mut path = self.path.clone();
        path.push(step);
        Section { document: self.document, node, path, title: None }
    }

    fn titled_as(self, title: Option<String>) -> Self {
        Self { title, ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::settings::Settings;

    fn said(text: &str) -> String {
        let complaint = Document::parse("f", text).unwrap_err().to_string();
        complaint.lines().next().unwrap().to_owned()
    }

    #[test]
    fn a_place_is_that_of_the_value() {
        let text = "guard:\n  reserve:   2GiB\nprobes:\n- name: a\n- {name: b, disk: {depth: 1}}\n";
        let document = Document::parse("f", text).unwrap();
        let place = |path: &[&str]| {
            let section = path.iter().fold(document.root(), |at, key| match key.parse::<usize>() {
                Ok(item) => at.items().unwrap().remove(item),
                Err(_) => at.get(key).unwrap(),
            });
            section.place()
        };
        assert_eq!(place(&[]), (1, 1));
        assert_eq!(place(&["guard", "reserve"]), (2, 14));
        assert_eq!(place(&["probes", "1"]), (5, 3));
        assert_eq!(place(&["probes", "1", "disk", "depth"]), (5, 27));
    }

    #[test]
    fn a_value_behind_an_alias_is_wrong_where_it_is_written() {
        let document = Document::parse("f", "a: &x many\nb: *x\n").unwrap();
        let complaint = document.root().get("b").unwrap().read::<u32>().unwrap_err();
        assert!(complaint.to_string().starts_with("f:1:4: `b`: expected a whole number"));
    }

    #[test]
    fn places_are_right_behind_a_byte_order_mark_crlf_and_wide_letters() {
        for text in ["\u{feff}ä: 1\nx: [1]\n", "ä: 1\r\nx: [1]\r\n", "ä: 1\rx: [1]\r"] {
            let document = Document::parse("f", text).unwrap();
            let x = document.root().get("x").unwrap();
            assert_eq!(x.read::<u32>().unwrap_err().spot, Some(Spot::new(text, 2, 4)), "{text:?}");
        }
    }

    #[test]
    fn hostile_text_is_refused_and_soon() {
        let deep = "[".repeat(200_000);
        assert_eq!(said(&deep), "f:1:65: brackets are nested too deep");
        assert!(said(&"- ".repeat(100_000)).contains("recursion limit"));
        assert!(said(&"? ".repeat(50_000)).contains("not valid YAML"));
        let laughs: String = (1..9).fold("a0: &a0 [x, x]\n".into(), |text: String, i| {
            let many = vec![format!("*a{}", i - 1); 9].join(", ");
            format!("{text}a{i}: &a{i} [{many}]\n")
        });
        assert!(said(&laughs).contains("too large once its aliases are written out"));
        let long = format!("a: [&a {}, {}]\n", "x".repeat(100_000), vec!["*a"; 1000].join(", "));
        assert!(said(&long).contains("too large once its aliases are written out"));
        assert_eq!(said("a: \u{7}"), "f:1:4: character U+0007 is not allowed in YAML");
        assert_eq!(said(&"a".repeat(FILE_BYTES_MAX + 1)), "f: larger than 256 KiB");
        assert_eq!(said("{[a]: b}").split(':').nth(3), Some(" not valid YAML"));
    }

    #[test]
    fn a_larger_file_may_hold_more_and_an_alias_multiplies_no_more_in_it() {
        let items = |n: usize| format!("a: &x [{}]\n", "1, ".repeat(n));
        let long = items(60_000);
        assert!(said(&long).ends_with("too large once its aliases are written out"));
        let most = 1 << 20;
        assert!(Document::within("f", long.as_bytes(), most).is_ok());
        let laughs = format!("{long}b: [{}]\n", "*x, ".repeat(1000));
        let complaint = Document::within("f", laughs.as_bytes(), most).unwrap_err().to_string();
        assert!(complaint.contains("too large once its aliases are written out"), "{complaint}");
        let complaint = Document::within("f", &vec![b'#'; most + 1], most).unwrap_err();
        assert_eq!(complaint.to_string(), "f: larger than 1 MiB");
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_line() {
        let complaint = Document::from_bytes("f", b"a: 1\nb: \xff\n").unwrap_err();
        assert_eq!(complaint.to_string(), "f: line 2 is not UTF-8: save the file as UTF-8");
        let complaint = Document::from_bytes("f", &[b'#'; FILE_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(complaint.to_string(), "f: larger than 256 KiB");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Document::from_bytes("f", &bytes).map(|d| Settings::read(&d, &["disk"]));
        }

        /// Text made of what a configuration is made of.
        #[test]
        fn no_text_panics(parts in prop::collection::vec(prop::sample::select(vec![
            "listen", "probes", "targets", "guard", "disks", "sda", "name", "kind", "every", ": ",
            "\n", "\n  ", "\n- ", "- ", "{", "}", "[", "]", ", ", "&a ",
            "*a", "!t ", "\"", "'", "~",
            "disk", "/srv", "1s", "-1", ".nan", "|\n", "? ", "<<", "\t", "#", "---\n", "é", "0x1",
        ]), 0..40)) {
            let text = parts.concat();
            if let Err(complaint) = Document::parse("f", &text)
                .and_then(|d| Settings::read(&d, &["disk"]).map(drop))
            {
                prop_assert!(!complaint.to_string().is_empty());
            }
        }
    }
}
