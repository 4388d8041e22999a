//! Quantities with their unit in the type, and how people write and read them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of bytes. Written `4096`, `4k`, `512MiB` (k, M, G, T are binary, as fio reads them; kB, MB are decimal).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            n if n >= GIB => (GIB, "GiB"),
            n if n >= MIB => (MIB, "MiB"),
            n if n >= KIB => (KIB, "KiB"),
            n => return write!(f, "{n} B"),
        };
        let value = self.0 as f64 / unit as f64;
        if value >= 100.0 || self.0.is_multiple_of(unit) {
            write!(f, "{value:.0} {name}")
        } else {
            write!(f, "{value:.1} {name}")
        }
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // fio's `4k` and `1M` mean binary units; bytesize reads them as decimal.
        let t = text.trim();
        let binary = match t.as_bytes() {
            [digits @ .., b'k' | b'K'] if all_digits(digits) => Some(KIB),
            [digits @ .., b'm' | b'M'] if all_digits(digits) => Some(MIB),
            [digits @ .., b'g' | b'G'] if all_digits(digits) => Some(GIB),
            _ => None,
        };
        if let Some(unit) = binary {
            let n: Option<u64> = t[..t.len() - 1].parse().ok();
            return n.and_then(|n| n.checked_mul(unit)).map(Bytes).ok_or_else(|| bad_size(text));
        }
        t.parse::<bytesize::ByteSize>().map(|b| Bytes(b.as_u64())).map_err(|_| bad_size(text))
    }
}

fn all_digits(digits: &[u8]) -> bool {
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn bad_size(text: &str) -> String {
    format!("`{text}` is not a size (write 4k, 512MiB, 2GiB)")
}

/// Seconds, as a real number.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

impl Seconds {
    /// As a `Duration`; negative and not-a-number are zero, endless is a century.
    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(if self.0.is_nan() { 0.0 } else { self.0.clamp(0.0, 3.2e9) })
    }
}

impl From<Duration> for Seconds {
    fn from(d: Duration) -> Self {
        Seconds(d.as_secs_f64())
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0;
        match s.abs() {
            a if a >= 100.0 || (a >= 1.0 && s.fract() == 0.0) => write!(f, "{s:.0} s"),
            a if a >= 1.0 => write!(f, "{s:.1} s"),
            a if a >= 0.01 => write!(f, "{:.0} ms", s * 1e3),
            a if a >= 0.001 => write!(f, "{:.1} ms", s * 1e3),
            _ => write!(f, "{:.0} µs", s * 1e6),
        }
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text.trim())
            .map(Seconds::from)
            .map_err(|_| format!("`{text}` is not a duration (write 30s, 5m, 6h, 1d)"))
    }
}

/// A share, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(pub f64);

impl Ratio {
    /// `part / whole`, within 0 and 1; `None` where the whole is nothing or either isn't a number.
    pub fn of(part: f64, whole: f64) -> Option<Self> {
        let share = part / whole;
        (whole > 0.0 && share.is_finite()).then(|| Ratio(share.clamp(0.0, 1.0)))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

/// Bytes a second. Read as `1Gbit`, `10Gbit/s`, `100MB/s`, `107MiB/s`; bits are decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub f64);

impl Rate {
    /// As links are told of: `1 Gbit/s`, `908.97 Mbit/s`.
    pub fn bits(self) -> String {
        let (value, unit) = match self.0 * 8.0 {
            b if b >= 1e9 => (b / 1e9, "Gbit/s"),
            b if b >= 1e6 => (b / 1e6, "Mbit/s"),
            b => (b / 1e3, "kbit/s"),
        };
        let text = format!("{value:.2}");
        format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.0.max(0.0).round() as u64))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a rate (write 1Gbit, 25Gbit, 100MB/s)");
        let t = text.trim();
        let t = t.strip_suffix("/s").unwrap_or(t).trim_end();
        let rate = match t.strip_suffix("bit") {
            Some(bits) => {
                let (digits, factor) = match bits.as_bytes().last() {
                    Some(b'k' | b'K') => (&bits[..bits.len() - 1], 1e3),
                    Some(b'M') => (&bits[..bits.len() - 1], 1e6),
                    Some(b'G') => (&bits[..bits.len() - 1], 1e9),
                    Some(b'T') => (&bits[..bits.len() - 1], 1e12),
                    _ => (bits, 1.0),
                };
                digits.trim().parse::<f64>().map_err(|_| bad())? * factor / 8.0
            }
            None if t.ends_with('B') => {
                t.parse::<bytesize::ByteSize>().map_err(|_| bad())?.as_u64() as f64
            }
            None => return Err(bad()),
        };
        if rate.is_finite() && rate > 0.0 { Ok(Rate(rate)) } else { Err(bad()) }
    }
}

/// Operations a second. Read as `5000/s` or `5000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Frequency(pub f64);

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.abs() {
            n if n >= 1e6 => write!(f, "{:.2} million/s", self.0 / 1e6),
            n if n >= 10.0 => write!(f, "{:.0}/s", self.0),
            _ => write!(f, "{:.1}/s", self.0),
        }
    }
}

impl FromStr for Frequency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let t = text.trim();
        let number = t.strip_suffix("/s").unwrap_or(t).trim_end().parse::<f64>();
        match number {
            Ok(n) if n.is_finite() && n >= 0.0 => Ok(Frequency(n)),
            _ => Err(format!("`{text}` is not operations a second (write 5000/s)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_fio_reads_them() {
        assert_eq!("4k".parse(), Ok(Bytes(4096)));
        assert_eq!("1M".parse(), Ok(Bytes(MIB)));
        assert_eq!("512MiB".parse(), Ok(Bytes(512 * MIB)));
        assert_eq!("4096".parse(), Ok(Bytes(4096)));
        assert!("many".parse::<Bytes>().is_err());
        assert!("99999999999g".parse::<Bytes>().is_err());
    }

    #[test]
    fn rates_are_bits_or_bytes_and_never_neither() {
        assert_eq!("1Gbit".parse(), Ok(Rate(125e6)));
        assert_eq!("10 Gbit/s".parse(), Ok(Rate(1.25e9)));
        assert_eq!("100MB/s".parse(), Ok(Rate(100e6)));
        for bad in ["1000", "0bit", "-1Gbit", "nanbit", "infGbit", ""] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn operations_have_no_unit_but_their_second() {
        assert_eq!("5000/s".parse(), Ok(Frequency(5000.0)));
        assert_eq!("100.57".parse(), Ok(Frequency(100.57)));
        for bad in ["-1/s", "nan", "inf/s", "5000/m", ""] {
            assert!(bad.parse::<Frequency>().is_err(), "{bad}");
        }
        assert_eq!(Frequency(1_020_000.0).to_string(), "1.02 million/s");
        assert_eq!(Frequency(291.9).to_string(), "292/s");
    }

    #[test]
    fn people_read_three_digits() {
        assert_eq!(Bytes(512 * MIB).to_string(), "512 MiB");
        assert_eq!(Bytes(1_500_000_000).to_string(), "1.4 GiB");
        assert_eq!(Rate(125e6).bits(), "1 Gbit/s");
        assert_eq!(Rate(113.6215e6).bits(), "908.97 Mbit/s");
        assert_eq!(Seconds(0.0213).to_string(), "21 ms");
        assert_eq!(Seconds(0.00148).to_string(), "1.5 ms");
        assert_eq!(Seconds(0.00008).to_string(), "80 µs");
        assert_eq!(Seconds(30.0).to_string(), "30 s");
    }

    #[test]
    fn a_ratio_of_nothing_is_absent() {
        assert_eq!(Ratio::of(1.0, 0.0), None);
        assert_eq!(Ratio::of(f64::NAN, 1.0), None);
        assert_eq!(Ratio::of(3.0, 2.0), Some(Ratio(1.0)));
    }
}
