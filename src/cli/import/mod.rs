//! Results that somebody else has: a measurements file, fio's and iperf3's JSON, benches of OSDs.

mod fields;
pub(super) mod file;
pub(super) mod fio;
pub(super) mod iperf3;
pub(super) mod osd;

use std::io::Read;
use std::path::Path;

use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Bytes;

/// fio writes every interval and percentile of every job: larger is no result of one run.
const BYTES_MAX: usize = 16 << 20;

/// The bytes of `path`, `-` for standard input; refused beyond [`BYTES_MAX`].
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let fault = |e: &std::io::Error| Fault::os(path.display(), e);
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(|e| fault(&e))?)
    };
    let mut bytes = Vec::new();
    source.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(|e| fault(&e))?;
    if bytes.len() > BYTES_MAX {
        return Err(malformed(path, format!("larger than {}", Bytes(BYTES_MAX as u64))));
    }
    Ok(bytes)
}

fn malformed(path: &Path, text: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Malformed, format!("{}: {text}", path.display()))
}

/// The document behind whatever the program printed before it: fio and iperf3 warn on standard
/// output, in words that may hold braces. A document begins a line.
fn document(bytes: &[u8]) -> &[u8] {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let mut at = 0;
    let line = lines.find_map(|line| {
        let begins = line.trim_ascii_start().starts_with(b"{").then_some(at);
        at += line.len();
        begins
    });
    let start = line.or_else(|| bytes.iter().position(|byte| *byte == b'{')).unwrap_or(0);
    bytes.get(start..).unwrap_or_default()
}

/// The document as JSON, and what was printed behind it.
fn json<'a>(path: &Path, bytes: &'a [u8]) -> Result<(serde_json::Value, &'a [u8]), Fault> {
    let document = document(bytes);
    let mut values = serde_json::Deserializer::from_slice(document).into_iter();
    match values.next() {
        Some(Ok(value)) => Ok((value, document.get(values.byte_offset()..).unwrap_or_default())),
        Some(Err(error)) => Err(malformed(path, format!("not JSON: {error}"))),
        None => Err(malformed(path, "empty")),
    }
}

/// The number at a dotted path of keys; absent where it isn't a finite number.
fn number(value: &serde_json::Value, path: &str) -> Option<f64> {
    path.split('.').try_fold(value, |at, key| at.get(key))?.as_f64().filter(|n| n.is_finite())
}

fn text<'a>(value: &'a serde_json::Value, path: &str) -> Option<&'a str> {
    path.split('.').try_fold(value, |at, key| at.get(key))?.as_str()
}

/// A number that says something: above nothing.
fn some(number: Option<f64>) -> Option<f64> {
    number.filter(|n| *n > 0.0)
}
