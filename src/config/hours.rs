//! Daily hours as people write them: `22:00-06:00` in the zone `+02:00`.

use std::fmt;

use super::settings::Hours;

const DAY_MINUTES: u32 = 24 * 60;

impl Hours {
    /// Reads `22:00-06:00`; `24:00` is a day's end.
    pub fn parse(text: &str, utc_offset: i32) -> Result<Hours, String> {
        let bad = || format!("`{text}` is not a span of hours (write 22:00-06:00)");
        let (from, to) = text.split_once('-').ok_or_else(bad)?;
        let from = minutes(from.trim()).filter(|m| *m < DAY_MINUTES).ok_or_else(bad)?;
        let to = minutes(to.trim()).ok_or_else(bad)?;
        if from == to {
            return Err(format!("`{text}` is no time at all (00:00-24:00 is the whole day)"));
        }
        Ok(Hours { from, to, utc_offset })
    }

    /// True when the wall clock, in seconds since the epoch, is within these hours.
    pub fn contain(&self, wall_seconds: u64) -> bool {
        let local = (wall_seconds / 60) as i64 + i64::from(self.utc_offset);
        let minute = local.rem_euclid(i64::from(DAY_MINUTES)) as u32;
        if self.from <= self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hours { from, to, utc_offset } = *self;
        write!(f, "{:02}:{:02}-{:02}:{:02} ", from / 60, from % 60, to / 60, to % 60)?;
        match utc_offset {
            0 => f.write_str("UTC"),
            _ => {
                let (sign, east) = (if utc_offset < 0 { '-' } else { '+' }, utc_offset.abs());
                write!(f, "{sign}{:02}:{:02}", east / 60, east % 60)
            }
        }
    }
}

/// Minutes east of UTC from `UTC`, `+02:00`, `-03:30`. Names of places are not read: their rules
/// change, and a static binary has no table of them.
pub fn utc_offset(text: &str) -> Result<i32, String> {
    let bad = || format!("`{text}` is not an offset from UTC (write UTC, +02:00, -03:30)");
    if matches!(text, "UTC" | "utc" | "Z") {
        return Ok(0);
    }
    let (sign, rest) = match text.as_bytes().first() {
        Some(b'+') => (1, &text[1..]),
        Some(b'-') => (-1, &text[1..]),
        _ => return Err(bad()),
    };
    // Places in use reach from -12:00 to +14:00.
    match minutes(rest) {
        Some(east) if east <= 14 * 60 => Ok(sign * east as i32),
        _ => Err(bad()),
    }
}

/// Minutes of `HH:MM`, at most those of 24:00.
fn minutes(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str| -> Option<u32> {
        let sound = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
        sound.then(|| digits.parse().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let total = hours * 60 + minutes;
    (minutes < 60 && total <= DAY_MINUTES).then_some(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hours_over_midnight_hold_on_both_sides_of_it() {
        let night = Hours::parse("22:00-06:00", 0).unwrap();
        let at = |h: u64, m: u64| night.contain(20_000 * 86_400 + h * 3600 + m * 60);
        assert!(at(22, 0) && at(23, 59) && at(0, 0) && at(5, 59));
        assert!(!at(6, 0) && !at(12, 0) && !at(21, 59));
    }

    #[test]
    fn an_offset_moves_the_hours() {
        let east = Hours::parse("00:00-01:00", 120).unwrap();
        assert!(east.contain(22 * 3600) && !east.contain(0));
        let whole = Hours::parse("00:00-24:00", -210).unwrap();
        assert!((0..24).all(|h| whole.contain(h * 3600)));
    }

    #[test]
    fn what_is_not_hours_is_refused() {
        for bad in ["", "22-06", "22:00", "24:00-06:00", "22:60-06:00", "1:00-2:00", "22:00-22:00"]
        {
            assert!(Hours::parse(bad, 0).is_err(), "{bad}");
        }
        for bad in ["", "+2", "CET", "02:00", "+15:00", "+02:60", "++2:00", "+é0:00"] {
            assert!(utc_offset(bad).is_err(), "{bad}");
        }
        assert_eq!(utc_offset("-03:30"), Ok(-210));
        assert_eq!(utc_offset("UTC"), Ok(0));
    }

    proptest! {
        #[test]
        fn hours_are_written_as_they_are_read(from in 0..1440u32, to in 0..=1440u32, east in -840..=840i32) {
            prop_assume!(from != to);
            let hours = Hours { from, to, utc_offset: east };
            let text = hours.to_string();
            let (span, zone) = text.split_once(' ').unwrap();
            prop_assert_eq!(Hours::parse(span, utc_offset(zone).unwrap()), Ok(hours));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = (Hours::parse(&text, 0), utc_offset(&text));
        }
    }
}
