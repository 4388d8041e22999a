//! /proc/stat: what the CPUs spent their time on (Documentation/filesystems/proc.rst).

use super::roots::whole_lines;
use crate::base::fault::{Fault, FaultKind};

/// Ticks a second of every time that /proc prints: USER_HZ, fixed in the ABI of all but Alpha.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// Times of one CPU, or of all, in ticks. Guest time is left out: the kernel counts it in `user`
/// and `nice` already. Old kernels print fewer fields: what they lack is 0 there and always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes(pub [u64; CpuTimes::FIELDS]);

impl CpuTimes {
    pub const FIELDS: usize = 8;
    pub const IDLE: usize = 3;
    pub const IOWAIT: usize = 4;
    pub const STEAL: usize = 7;
    /// user, nice, system, idle: printed by every kernel.
    const FIELDS_MIN: usize = 4;

    fn parse<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut times = [0; Self::FIELDS];
        let mut found = 0;
        for (field, word) in times.iter_mut().zip(words) {
            *field = std::str::from_utf8(word).ok()?.parse().ok()?;
            found += 1;
        }
        (found >= Self::FIELDS_MIN).then_some(Self(times))
    }
}

/// /proc/stat as far as it concerns CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    pub all: CpuTimes,
    /// By the kernel's number; offline CPUs are missing, so numbers have gaps.
    pub each: Vec<(u32, CpuTimes)>,
    pub rejected: u64,
}

/// Reads the CPU lines; the rest (one number an interrupt) isn't looked at.
///
/// # Errors
/// Malformed where the line of all CPUs is missing or broken.
pub fn parse(text: &[u8]) -> Result<CpuStat, Fault> {
    let (text, rejected) = whole_lines(text);
    let mut stat = CpuStat { rejected, ..CpuStat::default() };
    let mut all = None;
    for line in text.split(|b| *b == b'\n') {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
        let Some(id) = words.next().and_then(|w| w.strip_prefix(b"cpu")) else { continue };
        let number = std::str::from_utf8(id).ok().and_then(|id| id.parse::<u32>().ok());
        match (CpuTimes::parse(words), number) {
            (Some(times), None) if id.is_empty() => all = all.or(Some(times)),
            (Some(times), Some(number)) => stat.each.push((number, times)),
            _ => stat.rejected += 1,
        }
    }
    match all {
        Some(all) => Ok(CpuStat { all, ..stat }),
        None => Err(Fault::new(FaultKind::Malformed, "stat: no line of all CPUs")),
    }
}

/// A tick may be counted late, and rates are of whole ticks: half as much again is still possible.
const POSSIBLE: f64 = 1.5;
/// Samples for which an impossible value is held before it is believed.
const HOLDS_MAX: u32 = 3;

/// One field between samples. A value that goes back adds nothing until it is passed again
/// (iowait does so by design); one that jumps beyond what time allows is held at its old base
/// (steal, after a migration).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Field {
    base: u64,
    held: u32,
}

impl Field {
    /// Growth since the base, of at most `possible` ticks; `None` where it can't be known.
    fn take(&mut self, reading: u64, possible: f64) -> Option<u64> {
        let by = reading.checked_sub(self.base);
        let impossible = by.is_some_and(|by| by as f64 > possible);
        let far_back = by.is_none() && (self.base - reading) as f64 > possible;
        if (impossible || far_back) && self.held < HOLDS_MAX {
            self.held += 1;
            return None;
        }
        if impossible || far_back {
            *self = Self { base: reading, held: 0 };
            return None;
        }
        self.held = 0;
        self.base = self.base.max(reading);
        Some(by.unwrap_or(0))
    }
}

/// Growth of the times of `cpus` CPUs over one window; a field that can't be known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuMeter {
    fields: Option<[Field; CpuTimes::FIELDS]>,
}

/// Ticks by field over a window.
pub type CpuGrowth = [Option<u64>; CpuTimes::FIELDS];

impl CpuMeter {
    /// Forgets what came before: the host slept, or a sample is missing.
    pub fn restart(&mut self, times: CpuTimes) {
        self.fields = Some(times.0.map(|base| Field { base, held: 0 }));
    }

    /// Takes the next sample, `seconds` after the last; `None` for the first.
    pub fn take(&mut self, times: CpuTimes, seconds: f64, cpus: usize) -> Option<CpuGrowth> {
        let Some(fields) = &mut self.fields else {
            self.restart(times);
            return None;
        };
        let mut growth = CpuGrowth::default();
        for ((field, reading), growth) in fields.iter_mut().zip(times.0).zip(&mut growth) {
            // A held field catches up: its base is older than the last sample.
            let windows = f64::from(field.held + 1);
            let possible = POSSIBLE * seconds * windows * TICKS_PER_SECOND * cpus.max(1) as f64;
            *growth = field.take(reading, possible);
        }
        Some(growth)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    macro_rules! case {
        ($name:literal) => {
            include_bytes!(concat!("../../tests/fixtures/cases/", $name)).as_slice()
        };
    }

    #[test]
    fn case_085_cpu_numbers_have_gaps() {
        let stat = parse(case!("085-stat-offline-cpus-gap.input")).unwrap();
        let numbers: Vec<u32> = stat.each.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, [0, 1, 8, 9, 16, 17]);
        let cpu8 = stat.each[2].1.0[0] as f64 / TICKS_PER_SECOND;
        assert!((cpu8 - 1998.65).abs() < 1e-9);
        assert_eq!(stat.all.0[CpuTimes::IDLE], 6_891_866_013);
        assert_eq!(stat.rejected, 0);
    }

    #[test]
    fn case_084_a_steal_that_jumps_and_comes_back_is_held() {
        let read = |text: &[u8]| {
            let text = [b"cpu 1 1 1 1\n", text].concat();
            parse(&text).unwrap().each[0].1
        };
        let mut meter = CpuMeter::default();
        let t0 = read(case!("084-stat-steal-jumps-back.input-t0"));
        assert_eq!(meter.take(t0, 5.0, 1), None);
        let t1 = meter.take(read(case!("084-stat-steal-jumps-back.input-t1")), 5.0, 1).unwrap();
        assert_eq!((t1[CpuTimes::STEAL], t1[CpuTimes::IDLE]), (None, Some(500)));
        let t2 = meter.take(read(case!("084-stat-steal-jumps-back.input-t2")), 5.0, 1).unwrap();
        assert_eq!((t2[CpuTimes::STEAL], t2[CpuTimes::IDLE]), (Some(10), Some(500)));
    }

    #[test]
    fn a_jump_that_stays_is_believed_in_the_end() {
        let mut meter = CpuMeter::default();
        let with = |idle| CpuTimes([0, 0, 0, idle, 0, 0, 0, 0]);
        let grown = [0, 900_000, 900_100, 900_200, 900_300, 900_400]
            .map(|idle| meter.take(with(idle), 1.0, 1).and_then(|g| g[CpuTimes::IDLE]));
        assert_eq!(grown, [None, None, None, None, None, Some(100)]);
    }

    #[test]
    fn iowait_that_goes_back_adds_nothing_and_is_not_counted_twice() {
        let mut meter = CpuMeter::default();
        let with = |iowait| CpuTimes([0, 0, 0, 0, iowait, 0, 0, 0]);
        let grown = [100, 95, 100, 103]
            .map(|iowait| meter.take(with(iowait), 1.0, 1).and_then(|g| g[CpuTimes::IOWAIT]));
        assert_eq!(grown, [None, Some(0), Some(0), Some(3)]);
    }

    #[test]
    fn old_kernels_print_fewer_fields_and_broken_lines_cost_only_themselves() {
        let stat =
            parse(b"cpu 1 2 3 4\ncpu0 1 2 3 x\ncpux 1 2 3 4\ncpu1 1 2\ncpu2 4 3 2 1\n").unwrap();
        assert_eq!(stat.all, CpuTimes([1, 2, 3, 4, 0, 0, 0, 0]));
        assert_eq!((stat.each.len(), stat.rejected), (1, 3));
        assert_eq!(parse(b"intr 1 2 3\n").unwrap_err().kind, FaultKind::Malformed);
    }

    #[test]
    fn a_second_opinion_agrees_on_this_host() {
        use procfs_core::{KernelStats, SystemInfoInterface};
        struct Info;
        impl SystemInfoInterface for Info {
            fn boot_time_secs(&self) -> procfs_core::ProcResult<u64> {
                Ok(0)
            }
            fn ticks_per_second(&self) -> u64 {
                100
            }
            fn page_size(&self) -> u64 {
                4096
            }
            fn is_little_endian(&self) -> bool {
                true
            }
        }
        use procfs_core::FromBufReadSI;
        let text = super::super::roots::read_file("/proc/stat".as_ref()).unwrap();
        let theirs = KernelStats::from_buf_read(text.as_slice(), &Info).unwrap();
        let ours = parse(&text).unwrap();
        assert_eq!(ours.all.0[CpuTimes::IDLE], theirs.total.idle);
        assert_eq!(Some(ours.all.0[CpuTimes::STEAL]), theirs.total.steal);
        assert_eq!(ours.each.len(), theirs.cpu_time.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(text in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = parse(&text);
        }

        #[test]
        fn a_mutated_file_keeps_the_other_cpus(at: usize, byte: u8) {
            let mut text = case!("085-stat-offline-cpus-gap.input").to_vec();
            let at = at % text.len();
            text[at] = byte;
            if let Ok(stat) = parse(&text) {
                prop_assert!(stat.each.len() >= 4);
            }
        }

        #[test]
        fn no_growth_is_more_than_time_allows(readings in prop::collection::vec(any::<u64>(), 1..40)) {
            let mut meter = CpuMeter::default();
            for reading in readings {
                if let Some(growth) = meter.take(CpuTimes([reading; 8]), 1.0, 2) {
                    prop_assert!(growth.iter().flatten().all(|by| *by <= 1200));
                }
            }
        }
    }
}
