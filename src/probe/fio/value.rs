//! Numbers as fio reads them.

use crate::base::units::Seconds;

/// A number with a unit of bytes; `kilo` is `kb_base`.
///
/// With `kb_base=1024`, fio's default, `4k` and `4kB` and `4Ki` are 4096 and `4KiB` is 4000; with
/// `kb_base=1000` all but `4KiB` are decimal (parse.c, `__get_mult_bytes`).
///
/// # Errors
/// What it isn't, in words.
pub fn size(text: &str, kilo: u64) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a size (write 4096, 4k, 512m, 2g)");
    if text.contains('%') {
        return Err("a share of the device is not known beforehand: write the size itself".into());
    }
    let (number, unit) = number(text).ok_or_else(bad)?;
    let other = if kilo == 1000 { 1024 } else { 1000 };
    let (prefix, base) = match unit.strip_suffix("ib") {
        Some(prefix) => (prefix, other),
        None => (unit.trim_end_matches('b').trim_end_matches('i'), kilo),
    };
    let power = match prefix {
        "" if matches!(unit.as_str(), "" | "b") => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(bad()),
    };
    let factor = u64::pow(base, power);
    number.checked_mul(factor).filter(|n| *n < 1 << 60).ok_or_else(bad)
}

/// A time; without a unit it is seconds. What fio silently takes for microseconds (`60sec`) is
/// refused.
pub(super) fn time(text: &str) -> Result<Seconds, String> {
    let bad = || format!("`{text}` is not a time (write 60, 500ms, 2m)");
    let (number, unit) = number(text).ok_or_else(bad)?;
    let one = match unit.as_str() {
        "us" | "usec" => 1e-6,
        "ms" | "msec" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(bad()),
    };
    Ok(Seconds(number as f64 * one))
}

/// A small whole number; fio lets `1k` stand for it too.
///
/// # Errors
/// As [`size`].
pub fn count(text: &str, kilo: u64) -> Result<u32, String> {
    let n = size(text, kilo).map_err(|_| format!("`{text}` is not a whole number"))?;
    u32::try_from(n).map_err(|_| format!("`{text}` is too many"))
}

/// Decimal or, behind `0x`, hexadecimal digits, and the unit in small letters.
fn number(text: &str) -> Option<(u64, String)> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, radix) = match lower.strip_prefix("0x") {
        Some(rest) => (rest, 16),
        None => (lower.as_str(), 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let value = u64::from_str_radix(digits.get(..end)?, radix).ok()?;
    Some((value, digits.get(end..)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_the_wrong_way_round_as_fio_has_them() {
        for (text, kilo, bytes) in [
            ("4096", 1024, 4096),
            ("4k", 1024, 4096),
            ("4K", 1024, 4096),
            ("4kB", 1024, 4096),
            ("4Ki", 1024, 4096),
            ("4KiB", 1024, 4000),
            ("4k", 1000, 4000),
            ("4Ki", 1000, 4000),
            ("4KiB", 1000, 4096),
            ("1MiB", 1024, 1_000_000),
            ("1m", 1024, 1 << 20),
            ("2g", 1024, 2 << 30),
            ("512b", 1024, 512),
            ("0x1000", 1024, 4096),
        ] {
            assert_eq!(size(text, kilo), Ok(bytes), "{text} at {kilo}");
        }
        for bad in ["", "k", "-4k", "4x", "4kk", "4 k", "1.5g", "(2*4k)", "99999999999g", "50%"] {
            assert!(size(bad, 1024).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bare_time_is_seconds() {
        assert_eq!(time("60"), Ok(Seconds(60.0)));
        assert_eq!(time("2m"), Ok(Seconds(120.0)));
        assert_eq!(time("500ms"), Ok(Seconds(0.5)));
        for bad in ["60sec", "2min", "", "-1", "1:30"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,20}", unit in "[0-9]{0,20}[kKmMgGtTpPiIbB%]{0,4}") {
            for text in [text, unit] {
                let _ = (size(&text, 1024), size(&text, 1000), time(&text), count(&text, 1024));
            }
        }
    }
}
