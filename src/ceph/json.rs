//! JSON as `ceph` writes it: behind warnings, with numbers that were text in older versions.

use serde_json::Value;

use crate::base::fault::{Fault, FaultKind};

/// The first JSON value in `bytes`, whatever stands before it.
pub(super) fn parse(asked: &str, bytes: &[u8]) -> Result<Value, Fault> {
    let begins = |byte: &u8| matches!(byte, b'{' | b'[');
    let start = bytes.iter().position(begins).unwrap_or(bytes.len());
    let mut values = serde_json::Deserializer::from_slice(&bytes[start..]).into_iter();
    match values.next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => {
            Err(Fault::new(FaultKind::Malformed, format!("{asked}: not JSON: {error}")))
        }
        None => Err(Fault::new(FaultKind::Malformed, format!("{asked}: no JSON in the answer"))),
    }
}

/// A finite number, or text that is one.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    number.filter(|number: &f64| number.is_finite())
}

pub(super) fn number_at(value: &Value, key: &str) -> Option<f64> {
    number(value.get(key)?)
}

/// A count, 0 or more.
pub(super) fn count_at(value: &Value, key: &str) -> Option<u64> {
    number_at(value, key).filter(|n| (0.0..9e18).contains(n)).map(|n| n as u64)
}

/// The id of an OSD: buckets of the CRUSH tree have negative ones.
pub(super) fn id_at(value: &Value, key: &str) -> Option<u32> {
    count_at(value, key).and_then(|id| u32::try_from(id).ok())
}

/// Text of a bearable length; empty where there is none.
pub(super) fn text_at(value: &Value, key: &str) -> String {
    const CHARS_MAX: usize = 64;
    value.get(key).and_then(Value::as_str).unwrap_or_default().chars().take(CHARS_MAX).collect()
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The number N of `osd.N`.
pub(super) fn osd_id(name: &str) -> Option<u32> {
    name.strip_prefix("osd.")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_stands_before_the_answer_is_no_part_of_it() {
        let text = b"*** DEVELOPER MODE ***\n2026-11-30T16:50:51 -1 auth: x\n\n{\"a\": 1}\n";
        assert_eq!(parse("status", text).unwrap(), json!({"a": 1}));
        assert_eq!(parse("status", b"").unwrap_err().kind, FaultKind::Malformed);
        assert_eq!(parse("status", b"{\"a\": ").unwrap_err().kind, FaultKind::Malformed);
    }

    #[test]
    fn numbers_may_be_text_and_what_is_none_is_absent() {
        let value = json!({"a": "2115816.000000", "b": 7, "c": "nan", "d": -1, "e": true});
        assert_eq!(number_at(&value, "a"), Some(2_115_816.0));
        assert_eq!(count_at(&value, "b"), Some(7));
        for key in ["c", "e", "f"] {
            assert_eq!(number_at(&value, key), None, "{key}");
        }
        assert_eq!(id_at(&value, "d"), None);
    }
}
