//! /proc/pressure: shares of time in which tasks waited (Documentation/accounting/psi.rst).

use super::roots::whole_lines;

/// Totals of one file. Averages aren't read: they are renewed every two seconds only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// `some`: microseconds in which at least one task waited.
    pub waiting_us: Option<u64>,
    /// `full`: microseconds in which all tasks that had work waited.
    pub stalled_us: Option<u64>,
}

/// Reads `some` and `full` in any order; kinds and keys of later kernels are ignored.
/// `cpu` had no `full` before 5.13, `irq` has no `some`.
pub fn parse(text: &[u8]) -> Pressure {
    let mut pressure = Pressure::default();
    for line in whole_lines(text).0.split(|b| *b == b'\n') {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
        let field = match words.next() {
            Some(b"some") => &mut pressure.waiting_us,
            Some(b"full") => &mut pressure.stalled_us,
            _ => continue,
        };
        let total = words.find_map(|w| w.strip_prefix(b"total="));
        let total = total.and_then(|t| std::str::from_utf8(t).ok()?.parse().ok());
        *field = field.or(total);
    }
    pressure
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn case_068_order_and_unknown_kinds_and_keys_do_not_matter() {
        let text =
            include_bytes!("../../tests/fixtures/cases/068-psi-unknown-line-and-order.input");
        let expected = Pressure { waiting_us: Some(12_000_345), stalled_us: Some(3_000_001) };
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn a_variant_that_is_not_printed_is_absent() {
        let some = parse(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
        assert_eq!(some, Pressure { waiting_us: Some(5), stalled_us: None });
        let full = parse(b"full avg10=0.00 avg60=0.00 avg300=0.00 total=6\n");
        assert_eq!(full, Pressure { waiting_us: None, stalled_us: Some(6) });
        assert_eq!(parse(b"some avg10=1 total=x\nfull\n"), Pressure::default());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(text in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = parse(&text);
        }
    }
}
