//! JSON as iperf3 versions write it: read leniently, in bounded memory, never by position.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Fields of one object that are kept; no version has half as many.
const FIELDS_MAX: usize = 96;
/// A text longer than this is none that we ask for.
const TEXT_BYTES_MAX: usize = 1024;

/// The scalar fields of an object. What is nested is left out: it costs neither memory nor stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields(Vec<(String, Scalar)>);

#[derive(Clone, Debug, PartialEq)]
enum Scalar {
    Flag(bool),
    Integer(i64),
    Real(f64),
    Text(String),
    /// Null, too long, or nested.
    Other,
}

impl Fields {
    fn push(&mut self, name: String, scalar: Scalar) {
        if self.0.len() < FIELDS_MAX && scalar != Scalar::Other {
            self.0.push((name, scalar));
        }
    }

    /// The first of that name, as cJSON takes it.
    fn get(&self, name: &str) -> Option<&Scalar> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, scalar)| scalar)
    }

    /// A number without its fraction. -1 for what is 2^63 and over: 3.12 and 3.13 print negative
    /// numbers as unsigned (esnet/iperf #1435).
    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Scalar::Integer(n) => Some(*n),
            Scalar::Real(x) if *x >= i64::MAX as f64 => Some(-1),
            Scalar::Real(x) => Some(*x as i64),
            _ => None,
        }
    }

    /// A count; `None` where it is absent or below zero.
    pub(super) fn count(&self, name: &str) -> Option<u64> {
        self.integer(name).and_then(|n| u64::try_from(n).ok())
    }

    pub(super) fn real(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Scalar::Integer(n) => Some(*n as f64),
            Scalar::Real(x) => Some(*x),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// `true` and nothing else: a number in a flag's place means nothing since 3.18.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Scalar::Flag(true))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Lenient;
        impl<'de> Visitor<'de> for Lenient {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON")
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Scalar, E> {
                Ok(Scalar::Flag(flag))
            }

            fn visit_i64<E>(self, n: i64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(n))
            }

            fn visit_u64<E>(self, n: u64) -> Result<Scalar, E> {
                Ok(Scalar::Integer(i64::try_from(n).unwrap_or(-1)))
            }

            fn visit_f64<E>(self, x: f64) -> Result<Scalar, E> {
                Ok(Scalar::Real(x))
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                let short = text.len() <= TEXT_BYTES_MAX;
                Ok(if short { Scalar::Text(text.into()) } else { Scalar::Other })
            }

            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        from.deserialize_any(Lenient)
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Message::<0>::deserialize(from)?.fields)
    }
}

/// An object, and the objects in its array `streams`, of which at most `STREAMS` may be.
#[derive(Debug)]
pub(super) struct Message<const STREAMS: usize> {
    pub(super) fields: Fields,
    pub(super) streams: Option<Vec<Fields>>,
}

impl<const STREAMS: usize> Message<STREAMS> {
    /// # Errors
    /// Where it isn't one JSON object, or has too many streams.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        // Titles are in any encoding; of what matters everything is ASCII.
        let text = String::from_utf8_lossy(bytes);
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }
}

impl<'de, const STREAMS: usize> Deserialize<'de> for Message<STREAMS> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object<const STREAMS: usize>;
        impl<'de, const STREAMS: usize> Visitor<'de> for Object<STREAMS> {
            type Value = Message<STREAMS>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut message = Message { fields: Fields::default(), streams: None };
                while let Some(name) = map.next_key::<String>()? {
                    if STREAMS > 0 && name == "streams" && message.streams.is_none() {
                        message.streams = Some(map.next_value::<Objects<STREAMS>>()?.0);
                    } else {
                        message.fields.push(name, map.next_value()?);
                    }
                }
                Ok(message)
            }
        }
        from.deserialize_map(Object)
    }
}

struct Objects<const MOST: usize>(Vec<Fields>);

impl<'de, const MOST: usize> Deserialize<'de> for Objects<MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Array<const MOST: usize>;
        impl<'de, const MOST: usize> Visitor<'de> for Array<MOST> {
            type Value = Objects<MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an array of at most {MOST} objects")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(fields) = seq.next_element()? {
                    if all.len() == MOST {
                        return Err(serde::de::Error::invalid_length(MOST + 1, &self));
                    }
                    all.push(fields);
                }
                Ok(Objects(all))
            }
        }
        from.deserialize_seq(Array)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(json: &str) -> Fields {
        Message::<0>::read(json.as_bytes()).unwrap().fields
    }

    #[test]
    fn minus_one_arrives_as_2_to_the_64_less_one() {
        let f = fields(r#"{"a":18446744073709551615,"b":-1,"c":1.8446744073709552e19,"d":33}"#);
        assert_eq!(["a", "b", "c", "d"].map(|k| f.integer(k)), [-1, -1, -1, 33].map(Some));
        assert_eq!(["a", "b", "c", "d"].map(|k| f.count(k)), [None, None, None, Some(33)]);
    }

    #[test]
    fn integers_may_be_written_as_doubles() {
        let f = fields(r#"{"a":1.5e6,"b":1.7,"c":-0.5}"#);
        assert_eq!(["a", "b", "c"].map(|k| f.integer(k)), [1_500_000, 1, 0].map(Some));
        assert_eq!(f.real("b"), Some(1.7));
    }

    #[test]
    fn wrong_types_and_null_are_absent() {
        let f =
            fields(r#"{"reverse":1,"time":"10","title":null,"bidirectional":false,"tcp":true}"#);
        assert!(!f.flag("reverse") && !f.flag("bidirectional") && f.flag("tcp"));
        assert_eq!((f.integer("time"), f.text("title")), (None, None));
    }

    #[test]
    fn what_is_nested_costs_nothing() {
        let deep = format!("{{\"x\":{}{},\"time\":3}}", "[".repeat(30_000), "]".repeat(30_000));
        let read = Message::<4>::read(deep.as_bytes());
        assert!(read.is_err() || read.is_ok_and(|m| m.fields.count("time") == Some(3)));
        let f = fields(r#"{"x":{"time":9,"y":[1,{}]},"time":3}"#);
        assert_eq!(f.count("time"), Some(3));
    }

    #[test]
    fn the_first_of_equal_keys_holds_and_text_need_not_be_utf8() {
        assert_eq!(fields(r#"{"time":3,"time":4}"#).count("time"), Some(3));
        let read = Message::<0>::read(b"{\"title\":\"caf\xe9\",\"time\":3}").unwrap();
        assert_eq!(read.fields.count("time"), Some(3));
    }

    #[test]
    fn streams_and_fields_are_bounded() {
        let many = format!("{{\"streams\":[{}]}}", ["{}"; 5].join(","));
        assert!(Message::<4>::read(many.as_bytes()).is_err());
        assert_eq!(Message::<5>::read(many.as_bytes()).unwrap().streams.unwrap().len(), 5);
        let wide: Vec<String> = (0..9999).map(|n| format!("\"k{n}\":{n}")).collect();
        assert_eq!(fields(&format!("{{{}}}", wide.join(","))).0.len(), FIELDS_MAX);
        let long = format!("{{\"title\":\"{}\"}}", "x".repeat(60_000));
        assert_eq!(fields(&long).text("title"), None);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bad in ["", "[]", "1", "{", "{}x", "{\"a\":}", "null", "{\"streams\":{}}"] {
            assert!(Message::<4>::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = Message::<4>::read(&bytes);
        }
    }
}
