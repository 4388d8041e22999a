//! /proc/diskstats and /sys/block/X/stat, line by line, tolerant of what kernels print.
//!
//! procfs-core fails the whole file for one odd line, hence a parser of our own.

use std::borrow::Cow;
use std::collections::HashSet;

use super::roots::whole_lines;
use crate::model::load::{Discards, DiskCounters, Flushes};

/// Numbers that every kernel since 2.6 prints; more columns came later and are optional.
const NUMBERS_MIN: usize = 11;
const NUMBERS_MAX: usize = 17;
/// The kernel's DISK_NAME_LEN is 32 and partition names add a few digits.
const NAME_BYTES_MAX: usize = 64;
/// Per-CPU counts of requests in flight can sum to less than nothing, which kernels print unsigned.
const IN_FLIGHT_MAX: u64 = 1 << 31;

/// One device of /proc/diskstats.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<'a> {
    /// As the kernel names it (`sda`, `cciss/c0d0`); bytes that aren't text are replaced.
    pub name: Cow<'a, str>,
    pub counters: DiskCounters,
}

/// The rows of one reading of /proc/diskstats; a device that is repeated in it counts once
/// (a list that changes between two chunks of a read repeats or loses one: block/genhd.c).
#[derive(Debug)]
pub struct Diskstats<'a> {
    lines: std::slice::Split<'a, u8, fn(&u8) -> bool>,
    seen: HashSet<&'a [u8]>,
    rejected: u64,
}

impl<'a> Diskstats<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        let is_end: fn(&u8) -> bool = |b| *b == b'\n';
        let (text, rejected) = whole_lines(text);
        Self { lines: text.split(is_end), seen: HashSet::new(), rejected }
    }

    /// Lines skipped and fields replaced in the rows so far.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    fn row(&mut self, line: &'a [u8]) -> Option<Row<'a>> {
        let mut tokens = tokens(line);
        number(tokens.next()?)?;
        number(tokens.next()?)?;
        let name = tokens.next()?;
        if name.len() > NAME_BYTES_MAX || name == b"." || name == b".." {
            return None;
        }
        let (counters, odd) = counters(tokens)?;
        if !self.seen.insert(name) {
            return None;
        }
        self.rejected += u64::from(odd);
        Some(Row { name: String::from_utf8_lossy(name), counters })
    }
}

impl<'a> Iterator for Diskstats<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        loop {
            let line = self.lines.next()?;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match self.row(line) {
                Some(row) => return Some(row),
                None => self.rejected += 1,
            }
        }
    }
}

/// A device's own `stat` file: the numbers of its diskstats line without number and name.
pub fn stat(text: &[u8]) -> Option<DiskCounters> {
    counters(tokens(text)).map(|(counters, _)| counters)
}

/// Counters by position from the left, and whether a field had to be replaced.
/// A group of columns that isn't whole is absent: which one is missing can't be told.
fn counters<'a>(tokens: impl Iterator<Item = &'a [u8]>) -> Option<(DiskCounters, bool)> {
    let mut n = [0; NUMBERS_MAX];
    let mut found = 0;
    let mut odd = false;
    for (at, token) in tokens.take(NUMBERS_MAX).enumerate() {
        let is_in_flight = at == 8;
        n[at] = match number(token) {
            Some(value) if is_in_flight && value >= IN_FLIGHT_MAX => {
                odd = true;
                0
            }
            None if is_in_flight && token.strip_prefix(b"-").and_then(number).is_some() => {
                odd = true;
                0
            }
            Some(value) => value,
            None => break,
        };
        found = at + 1;
    }
    let discards = || Discards { completed: n[11], merged: n[12], sectors: n[13], ms: n[14] };
    let flushes = || Flushes { completed: n[15], ms: n[16] };
    let counters = DiskCounters {
        reads: n[0],
        reads_merged: n[1],
        sectors_read: n[2],
        read_ms: n[3],
        writes: n[4],
        writes_merged: n[5],
        sectors_written: n[6],
        write_ms: n[7],
        in_flight: n[8],
        busy_ms: n[9],
        queue_ms: n[10],
        discards: (found >= 15).then(discards),
        flushes: (found >= 17).then(flushes),
    };
    (found >= NUMBERS_MIN).then_some((counters, odd))
}

fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|token| !token.is_empty())
}

fn number(token: &[u8]) -> Option<u64> {
    if token.is_empty() {
        return None;
    }
    token.iter().try_fold(0_u64, |n, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    macro_rules! case {
        ($name:literal) => {
            include_bytes!(concat!("../../tests/fixtures/cases/", $name)).as_slice()
        };
    }

    fn read(text: &[u8]) -> (BTreeMap<String, DiskCounters>, u64) {
        let mut rows = Diskstats::new(text);
        let disks = rows.by_ref().map(|row| (row.name.into_owned(), row.counters)).collect();
        (disks, rows.rejected())
    }

    #[test]
    fn case_002_discards_came_before_flushes() {
        let (disks, rejected) = read(case!("002-diskstats-18tok-discard.input"));
        assert_eq!((disks.len(), rejected), (6, 0));
        let sda = disks["sda"];
        assert_eq!((sda.reads, sda.reads_merged, sda.sectors_read), (50300, 93278, 1_377_416));
        assert_eq!((sda.read_ms, sda.writes, sda.writes_merged), (885_804, 110_483, 174_077));
        assert_eq!((sda.sectors_written, sda.write_ms), (2_027_818, 2_201_276));
        assert_eq!((sda.in_flight, sda.busy_ms, sda.queue_ms), (0, 1_726_664, 2_959_017));
        assert_eq!((sda.discards, sda.flushes), (Some(Discards::default()), None));
        let sde3 = disks["sde3"];
        assert_eq!((sde3.reads, sde3.busy_ms, sde3.queue_ms), (9928, 700_314, 2_172_774));
        let own_file = stat(case!("002-diskstats-18tok-discard.input-sysfs-stat"));
        assert_eq!(own_file, Some(sda), "both files say the same");
    }

    #[test]
    fn case_005_a_group_of_columns_that_is_not_whole_is_absent() {
        let (disks, rejected) = read(case!("005-diskstats-17tok-lxcfs.input"));
        assert_eq!((disks["sda"].reads, disks["sda"].sectors_read), (18, 1808));
        assert!(disks.values().all(|d| d.discards.is_none() && d.flushes.is_none()));
        assert_eq!((disks.len(), rejected), (2, 0));
    }

    #[test]
    fn case_006_short_partition_lines_are_never_read_by_wrong_columns() {
        let (disks, rejected) = read(case!("006-diskstats-7tok-old-partition.input"));
        assert_eq!((disks["hda"].writes, disks["hda"].write_ms), (424_847, 19_310_380));
        assert_eq!((disks.len(), rejected), (1, 1));
    }

    #[test]
    fn case_008_an_empty_file_is_no_device_and_no_fault() {
        assert_eq!(read(case!("008-diskstats-empty-or-missing.input-newline")).1, 0);
        assert_eq!(read(b"").0.len(), 0);
    }

    #[test]
    fn case_009_a_line_of_nul_bytes_costs_that_line_only() {
        let (disks, rejected) = read(case!("009-diskstats-nul-bytes.input"));
        assert_eq!(disks.keys().collect::<Vec<_>>(), ["sda", "sdb"]);
        assert_eq!(rejected, 1);
    }

    #[test]
    fn case_010_devices_are_told_apart_by_name_since_paths_are_all_0_0() {
        let (disks, _) = read(case!("010-nvme-multipath-zero-majmin.input"));
        assert_eq!(disks.len(), 4);
        let path = disks["nvme0c0n1"];
        assert_eq!((path.reads, path.sectors_read, path.writes), (162, 5122, 18918));
        assert_eq!(path.flushes, Some(Flushes { completed: 7740, ms: 51411 }));
        let path = disks["nvme1c1n1"];
        assert_eq!((path.sectors_written, path.flushes), (6_989_322_264, None));
        assert_eq!(path.discards.unwrap().completed, 312_571);
        assert_eq!((disks["nvme0n1"].reads, disks["nvme1n1"].writes), (0, 0));
    }

    #[test]
    fn case_018_an_underflow_in_flight_is_zero_and_counted() {
        let (disks, rejected) = read(case!("018-in-flight-gauge-odd-values.input"));
        let in_flight = |name: &str| disks[name].in_flight;
        assert_eq!(["sda", "sdb", "sdc", "sdd"].map(in_flight), [0, 7, 0, 0]);
        assert_eq!((disks["sdd"].queue_ms, rejected), (2, 2));
    }

    #[test]
    fn case_022_a_san_host_of_608_lines_comes_whole() {
        let (disks, rejected) = read(case!("022-multipath-240-paths.input-diskstats"));
        assert_eq!((disks.len(), rejected), (608, 0));
        assert_eq!(disks["dm-0"].reads, 4006);
        assert_eq!(disks.keys().filter(|name| name.starts_with("dm-")).count(), 124);
    }

    #[test]
    fn the_first_of_two_lines_of_one_device_wins() {
        let text = b"8 0 sda 1 0 0 0 0 0 0 0 0 0 0\n8 0 sda 2 0 0 0 0 0 0 0 0 0 0\n";
        let (disks, rejected) = read(text);
        assert_eq!((disks["sda"].reads, rejected), (1, 1));
    }

    #[test]
    fn columns_of_kernels_to_come_are_ignored_and_odd_names_survive() {
        let (disks, rejected) = read(
            b"1 2 a\xffb 1 0 0 0 0 0 0 0 0 0 0 1 2 3 4 5 6 7 8 new\n1 2 .. 1 0 0 0 0 0 0 0 0 0 0",
        );
        assert_eq!(disks["a\u{fffd}b"].flushes, Some(Flushes { completed: 5, ms: 6 }));
        assert_eq!(rejected, 1);
    }

    #[test]
    fn this_hosts_own_file_reads_without_a_rejected_line() {
        let Ok(text) = crate::host::roots::read_file("/proc/diskstats".as_ref()) else { return };
        let (disks, rejected) = read(&text);
        let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count();
        assert_eq!((disks.len(), rejected), (lines, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_rows_or_rejected(text in prop::collection::vec(any::<u8>(), 0..2000)) {
            let lines = text.split(|b| *b == b'\n').count();
            let (disks, rejected) = read(&text);
            prop_assert!(disks.len() + rejected as usize <= 2 * lines);
        }

        #[test]
        fn a_spoilt_file_keeps_its_other_lines(
            at in any::<prop::sample::Index>(), byte in any::<u8>()
        ) {
            let mut text = case!("002-diskstats-18tok-discard.input").to_vec();
            let at = at.index(text.len());
            text[at] = byte;
            let (disks, _) = read(&text);
            prop_assert!((4..=7).contains(&disks.len()), "{}", disks.len());
        }
    }
}
