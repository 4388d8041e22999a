//! Quantities as people type them, and serde's words put into theirs.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::complaint::hint;
use crate::base::units::{Bytes, Frequency, Rate, Ratio, Seconds};

/// A quantity that can be typed as text with its unit, or as a plain number in its base unit.
pub trait Quantity: Sized {
    /// `a size (4k, 512MiB)`.
    const WHAT: &'static str;

    fn from_text(text: &str) -> Result<Self, String>;

    /// `number` is finite and not negative.
    fn from_number(number: f64) -> Result<Self, String>;
}

impl Quantity for Bytes {
    const WHAT: &'static str = "a size (4k, 512MiB, 2GiB)";

    fn from_text(text: &str) -> Result<Self, String> {
        match text.parse::<Bytes>()? {
            // What doesn't fit into 64 bits ends up here.
            Bytes(u64::MAX) => Err(format!("`{text}` is more than any disk holds")),
            bytes => Ok(bytes),
        }
    }

    fn from_number(number: f64) -> Result<Self, String> {
        if number.fract() != 0.0 || number > (1_u64 << 53) as f64 {
            return Err(format!("`{number}` is not {}", Self::WHAT));
        }
        Ok(Bytes(number as u64))
    }
}

impl Quantity for Seconds {
    const WHAT: &'static str = "a duration (30s, 5m, 6h, 1d)";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn from_number(number: f64) -> Result<Self, String> {
        Ok(Seconds(number))
    }
}

impl Quantity for Rate {
    const WHAT: &'static str = "a rate (1Gbit, 25Gbit, 100MB/s)";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn from_number(number: f64) -> Result<Self, String> {
        Err(format!("`{number}` has no unit: write {number}Mbit or {number}Gbit"))
    }
}

impl Quantity for Frequency {
    const WHAT: &'static str = "operations a second (5000/s)";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn from_number(number: f64) -> Result<Self, String> {
        Ok(Frequency(number))
    }
}

impl Quantity for Ratio {
    const WHAT: &'static str = "a share (5%, 0.05)";

    fn from_text(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|n| n.trim_end().parse::<f64>().ok());
        match percent {
            Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Ratio(percent / 100.0)),
            _ => Err(format!("`{text}` is not {}", Self::WHAT)),
        }
    }

    fn from_number(number: f64) -> Result<Self, String> {
        match number <= 1.0 {
            true => Ok(Ratio(number)),
            false => Err(format!("`{number}` is more than the whole: write {number}% or a share")),
        }
    }
}

/// For `#[serde(deserialize_with = "quantity")]`.
pub fn quantity<'de, D: Deserializer<'de>, T: Quantity>(d: D) -> Result<T, D::Error> {
    d.deserialize_any(Typed(PhantomData))
}

/// For `#[serde(default, deserialize_with = "optional")]`: absent or empty is `None`.
pub fn optional<'de, D: Deserializer<'de>, T: Quantity>(d: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<As<T>>::deserialize(d)?.map(|As(value)| value))
}

struct As<T>(T);

impl<'de, T: Quantity> Deserialize<'de> for As<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        quantity(d).map(As)
    }
}

struct Typed<T>(PhantomData<T>);

impl<T: Quantity> Visitor<'_> for Typed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        // YAML 1.2 reads `010` as text; YAML 1.1 and C read it as eight.
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        if digits && text.len() > 1 && text.starts_with('0') {
            return Err(E::custom(format!("`{text}` has a leading zero: leave it out")));
        }
        T::from_text(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        if !number.is_finite() {
            return Err(E::custom(format!("`{number}` is not {}", T::WHAT)));
        }
        if number < 0.0 {
            return Err(E::custom(format!("`{number}` is negative")));
        }
        T::from_number(number).map_err(E::custom)
    }
}

/// For `#[serde(deserialize_with = "one_or_many")]`: a text, or a list of texts.
pub fn one_or_many<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    d.deserialize_any(OneOrMany)
}

struct OneOrMany;

impl<'de> Visitor<'de> for OneOrMany {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<String>, E> {
        Ok(vec![text.to_owned()])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(texts)
    }

    fn visit_unit<E: Error>(self) -> Result<Vec<String>, E> {
        Ok(Vec::new())
    }
}

/// `:9847`, `127.0.0.1:9847`, `[::1]:9847`, `localhost:9847`.
pub(super) fn check_address(text: &str) -> Result<(), String> {
    let bad = || format!("`{text}` is not an address (write :9847, 127.0.0.1:9847, [::1]:9847)");
    if text.parse::<SocketAddr>().is_ok() {
        return Ok(());
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let sound_host = host.is_empty() || host == "localhost";
    if digits && sound_host && port.parse::<u16>().is_ok() { Ok(()) } else { Err(bad()) }
}

/// The error's sentence without its places: those stand in the complaint.
pub(super) fn sentence(error: &serde_yaml::Error) -> String {
    let mut text = error.to_string();
    while let Some(start) = text.find(" at line ") {
        let rest = &text[start + " at line ".len()..];
        let is_place = |c: char| c.is_ascii_digit() || " column".contains(c);
        let end = rest.find(|c| !is_place(c)).unwrap_or(rest.len());
        text.replace_range(start..start + " at line ".len() + end, "");
    }
    text
}

/// What a typed read complained of, in the words of the file: which key, and what it may be.
pub(super) fn explain(error: &serde_yaml::Error, key: Option<&str>, title: Option<&str>) -> String {
    let text = sentence(error);
    let (inner, text) = split_path(&text);
    let key = inner.or(key);
    let within = |word| title.map_or(String::new(), |title| format!(" {word} {title}"));
    if let Some((unknown, known)) = unknown(text, "unknown field `") {
        return format!("unknown key `{unknown}`{}{}", within("in"), hint(unknown, &known));
    }
    if let Some(missing) = text.strip_prefix("missing field `") {
        return format!("`{}` is missing{}", missing.trim_end_matches('`'), within("in"));
    }
    let text = match unknown(text, "unknown variant `") {
        Some((typed, known)) => format!("`{typed}` is not known{}", hint(typed, &known)),
        None => plain(text),
    };
    match key {
        // A section that is called by its own key needs no second name.
        Some(key) if title == Some(&format!("`{key}`")) => format!("`{key}`: {text}"),
        Some(key) => format!("`{key}`{}: {text}", within("of")),
        None => title.map_or(text.clone(), |title| format!("{title}: {text}")),
    }
}

/// Takes serde_yaml's `probes[0].disk.depth: ` off; gives the last key of it, and the rest.
fn split_path(text: &str) -> (Option<&str>, &str) {
    let known = ["unknown field `", "missing field `", "unknown variant `", "invalid type: "];
    if known.iter().any(|head| text.starts_with(head)) {
        return (None, text);
    }
    let in_path = |c: char| c.is_alphanumeric() || "_-.[]?".contains(c);
    let end = text.find(|c| !in_path(c)).unwrap_or(text.len());
    match text[end..].strip_prefix(": ") {
        Some(rest) if end > 0 => {
            let path =
                text[..end].trim_end_matches(|c: char| c.is_ascii_digit() || "[]".contains(c));
            (path.rsplit('.').next().filter(|key| !key.is_empty()), rest)
        }
        _ => (None, text),
    }
}

/// serde's ``unknown field `bs`, expected one of `a`, `b` ``: the word, and those that are known.
fn unknown<'a>(text: &'a str, head: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let rest = text.strip_prefix(head)?;
    let (typed, known) =
        rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no "))?;
    Some((typed, known.split('`').skip(1).step_by(2).collect()))
}

/// serde's `invalid type: integer 7, expected a boolean` in the words of a person.
fn plain(text: &str) -> String {
    let rest = text.strip_prefix("invalid type: ").or(text.strip_prefix("invalid value: "));
    let Some((found, expected)) = rest.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return text.to_owned();
    };
    let expected = match expected {
        "a boolean" => "true or false",
        "a string" => "text",
        "a sequence" => "a list",
        "a map" => "keys",
        "f32" | "f64" => "a number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        other if other.starts_with("struct ") => "keys (`key: value`)",
        other => other,
    };
    let found = match found {
        "map" => "keys".to_owned(),
        "sequence" => "a list".to_owned(),
        "unit value" => "nothing".to_owned(),
        // `string "no"`, `integer `7``, `boolean `true``, `floating point `1.5``.
        text if text.starts_with("string \"") => {
            format!("the text `{}`", text["string \"".len()..].trim_end_matches('"'))
        }
        other => match other.split_once('`') {
            Some((_, value)) => format!("`{}`", value.trim_end_matches('`')),
            None => other.to_owned(),
        },
    };
    format!("expected {expected}, found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Quantity>(yaml: &str) -> Result<T, String> {
        serde_yaml::from_str::<As<T>>(yaml).map(|As(value)| value).map_err(|e| sentence(&e))
    }

    #[test]
    fn a_plain_number_is_in_the_base_unit() {
        assert_eq!(read("4096"), Ok(Bytes(4096)));
        assert_eq!(read("1e6"), Ok(Bytes(1_000_000)));
        assert_eq!(read("0x1000"), Ok(Bytes(4096)));
        assert_eq!(read("90"), Ok(Seconds(90.0)));
        assert_eq!(read("0.05"), Ok(Ratio(0.05)));
        assert_eq!(read("5 %"), Ok(Ratio(0.05)));
        assert_eq!(read("1Gbit"), Ok(Rate(125e6)));
    }

    #[test]
    fn what_is_no_quantity_is_refused_and_never_panics() {
        let bad = [
            ".nan",
            ".inf",
            "-.inf",
            "-1",
            "-0.5",
            "1e999",
            "NaN",
            "'nan'",
            "'-5s'",
            "[1]",
            "{a: 1}",
            "true",
            "~",
            "''",
            "010",
            "0o",
            "99999999999999999999999999",
            "'999999999 years'",
            "é",
        ];
        for text in bad {
            assert!(read::<Bytes>(text).is_err(), "{text}");
            assert!(read::<Rate>(text).is_err(), "{text}");
            assert!(read::<Ratio>(text).is_err(), "{text}");
        }
        for text in bad.iter().filter(|text| !text.contains("99999")) {
            assert!(read::<Seconds>(text).is_err(), "{text}");
        }
        for text in ["99999999999999999999999999", "'999999999 years'"] {
            let _ = read::<Seconds>(text).map(Seconds::duration);
        }
    }

    #[test]
    fn serde_speaks_as_the_file_does() {
        assert_eq!(
            plain("invalid type: unit value, expected a boolean"),
            "expected true or false, found nothing"
        );
        assert_eq!(
            plain("invalid value: integer `300`, expected u8"),
            "expected a whole number, 0 or more, found `300`"
        );
        assert_eq!(split_path("probes[0].disk.depth: text: more"), (Some("depth"), "text: more"));
        assert_eq!(split_path("a sentence: text"), (None, "a sentence: text"));
        assert_eq!(
            unknown("unknown field `a`, expected `b` or `c`", "unknown field `"),
            Some(("a", vec!["b", "c"]))
        );
        assert_eq!(
            unknown("unknown field `a`, there are no fields", "unknown field `"),
            Some(("a", vec![]))
        );
    }
}
