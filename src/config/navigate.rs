//! Walks through YAML by serde's seeds. `serde_yaml::Value` has lost all places; the event stream,
//! run again to one spot, still has them: an error raised there carries its line and column.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// One step down from a mapping or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Item(usize),
}

/// What stands where: the document without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Nothing,
    Scalar,
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Goes down `path` and hands over to `seed` there; `None` where there is no such place.
pub(super) struct To<'p, S> {
    pub(super) path: &'p [Step],
    pub(super) seed: S,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for To<'_, S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        match self.path {
            [] => self.seed.deserialize(d).map(Some),
            _ => d.deserialize_any(self),
        }
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for To<'_, S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some((Step::Key(wanted), path)) = self.path.split_first() else { return Ok(None) };
        let mut seed = Some(self.seed);
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            match seed.take_if(|_| key == *wanted) {
                Some(seed) => found = map.next_value_seed(To { path, seed })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Some((Step::Item(wanted), path)) = self.path.split_first() else { return Ok(None) };
        for _ in 0..*wanted {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = list.next_element_seed(To { path, seed: self.seed })?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found.flatten())
    }
}

/// Refuses whatever stands there, so that the error tells its place.
pub(super) struct Here;

impl<'de> DeserializeSeed<'de> for Here {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl Visitor<'_> for Here {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }
}

/// Refuses the key of this name in the mapping there.
pub(super) struct KeyHere<'a>(pub(super) &'a str);

impl<'de> DeserializeSeed<'de> for KeyHere<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeyHere<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let refuse = |key: &str| if key == self.0 { Err("here".into()) } else { Ok(()) };
        while map.next_key_seed(Key(refuse))?.is_some() {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Hands a key's text over; what comes back as an error is raised at the key.
struct Key<F>(F);

impl<'de, T, F: FnOnce(&str) -> Result<T, String>> DeserializeSeed<'de> for Key<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<T, D::Error> {
        d.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Key<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<T, E> {
        (self.0)(key).map_err(E::custom)
    }
}

/// Bytes of a file a node, aliases expanded. A real file has three times as many.
const NODE_BYTES_MIN: usize = 13;
/// Characters of all scalars, aliases expanded, a byte of the file.
const TEXT_BYTES_MAX: usize = 4;

/// Walks the whole document once and refuses what no reader here should meet: keys that come twice,
/// merge keys, tags, and aliases that multiply.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) used: &'a Used,
}

/// What is left for the rest of a document.
pub(super) struct Used {
    nodes: Cell<usize>,
    bytes: Cell<usize>,
    /// The sentence to the error that was raised; the error itself has only its place.
    pub(super) refused: RefCell<Option<String>>,
}

impl Used {
    /// For a file of at most so many bytes.
    pub(super) fn up_to(bytes_max: usize) -> Self {
        let nodes = Cell::new(bytes_max / NODE_BYTES_MIN);
        let bytes = Cell::new(bytes_max.saturating_mul(TEXT_BYTES_MAX));
        Self { nodes, bytes, refused: RefCell::default() }
    }
}

impl Walk<'_> {
    fn refuse<E: Error>(self, text: impl Into<String>) -> E {
        self.used.refused.replace(Some(text.into()));
        E::custom("refused")
    }

    fn count<E: Error>(self, text_bytes: usize) -> Result<(), E> {
        let Used { nodes, bytes, .. } = self.used;
        let left = nodes.get().checked_sub(1).zip(bytes.get().checked_sub(text_bytes));
        let Some((nodes_left, bytes_left)) = left else {
            return Err(self.refuse("too large once its aliases are written out"));
        };
        nodes.set(nodes_left);
        bytes.set(bytes_left);
        Ok(())
    }

    fn scalar<E: Error>(self, text_bytes: usize) -> Result<Node, E> {
        self.count(text_bytes).map(|()| Node::Scalar)
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Node, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("plain YAML without tags")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Node, E> {
        self.scalar(0)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Node, E> {
        self.scalar(0)
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<Node, E> {
        self.scalar(0)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Node, E> {
        self.scalar(0)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<Node, E> {
        self.scalar(0)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Node, E> {
        self.scalar(0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        self.scalar(text.len())
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        self.count(0).map(|()| Node::Nothing)
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, _: A) -> Result<Node, A::Error> {
        Err(self.refuse("tags (`!name`) have no meaning here: leave it out"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        self.count(0)?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        self.count(0)?;
        let mut entries: Vec<(String, Node)> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        loop {
            let key = map.next_key_seed(Key(|key: &str| {
                let refused = match key {
                    "<<" => "merge keys (`<<`) are not read: write the keys out".into(),
                    key if !seen.insert(key.to_owned()) => format!("key `{key}` is there twice"),
                    key => return Ok(key.to_owned()),
                };
                self.used.refused.replace(Some(refused.clone()));
                Err(refused)
            }))?;
            let Some(key) = key else { return Ok(Node::Map(entries)) };
            self.used.bytes.set(self.used.bytes.get() + key.len());
            entries.push((key, map.next_value_seed(self)?));
        }
    }
}
