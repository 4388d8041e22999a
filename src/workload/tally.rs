//! Counts and times of one leg. What fell into the ramp, failed or came back short is never timed.

use std::time::Duration;

use super::engine::Completion;
use super::intervals::Intervals;
use super::spread::Recorder;
use crate::base::stats::Histogram;
use crate::base::units::{Bytes, Ratio, Seconds};
use crate::model::job::Progress;
use crate::model::outcome::{DURATION_BOUNDS, Direction};

/// Bounds of what a latency can be, in nanoseconds: 1 us to 10 minutes.
const LATENCY_NANOS: (u64, u64) = (1_000, 600_000_000_000);
/// Three digits would cost eight times the memory for what no disk repeats.
const DIGITS: u8 = 2;
const QUANTILES: [f64; 4] = [0.5, 0.95, 0.99, 0.999];
/// 70 s of them are a full run, and its line on the wire stays short.
type Tenths = Intervals<100, 700>;
/// A slope over fewer intervals says nothing.
const STEADY_INTERVALS_MIN: usize = 10;
/// fio's rule, taken over the whole leg: the fitted line rises or falls by less than this share.
const STEADY_SLOPE_MAX: f64 = 0.1;

/// Bytes that went to the target, ramp, errors and all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub read: Bytes,
    pub written: Bytes,
    pub operations: u64,
}

impl std::ops::AddAssign for Moved {
    fn add_assign(&mut self, more: Self) {
        self.read.0 += more.read.0;
        self.written.0 += more.written.0;
        self.operations += more.operations;
    }
}

/// What was asked of an operation, and the instant from which it is timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) write: bool,
    pub(super) bytes: u64,
    pub(super) at: Duration,
}

#[derive(Debug)]
pub(super) struct Tally {
    /// End of the ramp: operations submitted before are left out.
    from: Duration,
    reads: Side,
    writes: Side,
    intervals: Tenths,
    pub(super) moved: [Count; 2],
    pub(super) errors: u64,
    pub(super) short_operations: u64,
    /// Of the last operation that counts.
    last: Duration,
}

/// Operations and bytes since the leg's start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) operations: u64,
    pub(super) bytes: u64,
}

/// One direction: of all, or of a part that is told apart.
#[derive(Debug)]
pub(super) struct Side {
    operations: u64,
    bytes: u64,
    total: Duration,
    /// `None` only if its bounds were wrong.
    exact: Option<hdrhistogram::Histogram<u64>>,
    durations: Histogram,
    recorder: Recorder,
}

impl Side {
    pub(super) fn new() -> Self {
        let (low, high) = LATENCY_NANOS;
        Self {
            operations: 0,
            bytes: 0,
            total: Duration::ZERO,
            exact: hdrhistogram::Histogram::new_with_bounds(low, high, DIGITS).ok(),
            durations: Histogram::new(DURATION_BOUNDS),
            recorder: Recorder::default(),
        }
    }

    /// An operation of `bytes` that took `latency` and completed `since` the ramp's end.
    pub(super) fn record(&mut self, bytes: u64, latency: Duration, since: Duration) {
        self.recorder.take(latency, since);
        self.operations += 1;
        self.bytes += bytes;
        self.total += latency;
        self.durations.observe(latency.as_secs_f64(), 1);
        if let Some(exact) = &mut self.exact {
            exact.saturating_record(nanos(latency));
        }
    }

    fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.total += other.total;
        self.durations.merge(&other.durations);
        self.recorder.add(other.recorder);
        if let (Some(exact), Some(more)) = (&mut self.exact, other.exact) {
            // It can't fail: both have the same bounds.
            let _ = exact.add(more);
        }
    }

    fn quantile(&self, q: f64) -> Option<Seconds> {
        let exact = self.exact.as_ref().filter(|_| enough(self.operations, q))?;
        Some(Seconds(exact.value_at_quantile(q) as f64 / 1e9))
    }

    /// In a leg that took `elapsed`.
    pub(super) fn direction(&self, elapsed: Duration) -> Direction {
        let mean = |n: u64| Seconds(self.total.as_secs_f64() / n as f64);
        Direction {
            operations: self.operations,
            bytes: Bytes(self.bytes),
            latency_mean: (self.operations > 0).then(|| mean(self.operations)),
            latency: QUANTILES.iter().filter_map(|q| Some((*q, self.quantile(*q)?))).collect(),
            durations: self.durations.clone(),
            spread: self.exact.as_ref().and_then(|exact| self.recorder.spread(exact, elapsed)),
        }
    }
}

impl Tally {
    /// Operations submitted before `from` are the ramp.
    pub(super) fn new(from: Duration) -> Self {
        Self {
            from,
            reads: Side::new(),
            writes: Side::new(),
            intervals: Tenths::default(),
            moved: [Count::default(); 2],
            errors: 0,
            short_operations: 0,
            last: from,
        }
    }

    /// True where the operation counts: whole, and after the ramp.
    pub(super) fn take(&mut self, done: &Completion, sent: &Sent) -> bool {
        let bytes = match done.result {
            Ok(bytes) => bytes as u64,
            Err(_) => {
                self.errors += 1;
                return false;
            }
        };
        let moved = &mut self.moved[usize::from(sent.write)];
        moved.operations += 1;
        moved.bytes += bytes;
        if bytes != sent.bytes {
            self.short_operations += 1;
            return false;
        }
        if sent.at < self.from {
            return false;
        }
        self.last = self.last.max(done.at);
        let side = if sent.write { &mut self.writes } else { &mut self.reads };
        let since = done.at.saturating_sub(self.from);
        side.record(bytes, done.at.saturating_sub(sent.at), since);
        self.intervals.take(since);
        true
    }

    /// What another counted from the same ramp's end.
    pub(super) fn add(&mut self, other: Self) {
        self.reads.add(other.reads);
        self.writes.add(other.writes);
        self.intervals.add(other.intervals);
        for (count, more) in self.moved.iter_mut().zip(other.moved) {
            count.operations += more.operations;
            count.bytes += more.bytes;
        }
        self.errors += other.errors;
        self.short_operations += other.short_operations;
        self.last = self.last.max(other.last);
    }

    pub(super) fn operations(&self) -> u64 {
        self.reads.operations + self.writes.operations
    }

    /// Mean of reads and writes together.
    pub(super) fn mean(&self) -> Option<Seconds> {
        let total = self.reads.total + self.writes.total;
        let operations = self.operations();
        (operations > 0).then(|| Seconds(total.as_secs_f64() / operations as f64))
    }

    /// Of reads and writes together, where there are enough of them.
    pub(super) fn quantile(&self, q: f64) -> Option<Seconds> {
        let mut both = self.reads.exact.clone()?;
        both.add(self.writes.exact.as_ref()?).ok()?;
        enough(self.operations(), q).then(|| Seconds(both.value_at_quantile(q) as f64 / 1e9))
    }

    /// From the end of the ramp to the last completion.
    pub(super) fn elapsed(&self) -> Duration {
        self.last.saturating_sub(self.from)
    }

    pub(super) fn moved(&self) -> Moved {
        let [read, written] = self.moved;
        Moved {
            read: Bytes(read.bytes),
            written: Bytes(written.bytes),
            operations: read.operations + written.operations,
        }
    }

    pub(super) fn directions(&self) -> (Direction, Direction) {
        let elapsed = self.elapsed();
        (self.reads.direction(elapsed), self.writes.direction(elapsed))
    }

    /// Operations a second, in whole intervals only.
    pub(super) fn rates(&self) -> Vec<f32> {
        self.intervals.rates(self.elapsed())
    }

    pub(super) fn progress(&self, leg: usize, elapsed: Duration) -> Progress {
        let [read, written] = self.moved;
        let busier = if self.reads.operations >= self.writes.operations {
            &self.reads
        } else {
            &self.writes
        };
        let at = |q: f64| {
            let exact = busier.exact.as_ref().filter(|_| busier.operations > 0)?;
            Some(Seconds(exact.value_at_quantile(q) as f64 / 1e9))
        };
        Progress {
            leg,
            elapsed: elapsed.into(),
            read_operations: read.operations,
            write_operations: written.operations,
            read_bytes: Bytes(read.bytes),
            written_bytes: Bytes(written.bytes),
            latency_p50: at(0.5),
            latency_p99: at(0.99),
            device_busy: None,
            device_queue: None,
            own_queue: None,
        }
    }
}

/// Whether ten operations lie beyond a quantile.
fn enough(operations: u64, q: f64) -> bool {
    // The epsilon keeps 10 / (1 - 0.95) at 200: the quotient is no binary fraction.
    operations as f64 * (1.0 - q) >= 10.0 - 1e-6
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// True where a line fitted to the rates changes by less than a tenth of their mean over the leg.
pub(super) fn is_steady(rates: &[f32]) -> Option<bool> {
    if rates.len() < STEADY_INTERVALS_MIN {
        return None;
    }
    let n = rates.len() as f64;
    let mean = rates.iter().map(|r| f64::from(*r)).sum::<f64>() / n;
    let middle = (n - 1.0) / 2.0;
    let (mut along, mut square) = (0.0, 0.0);
    for (i, rate) in rates.iter().enumerate() {
        let x = i as f64 - middle;
        along += x * f64::from(*rate);
        square += x * x;
    }
    let change = (along / square * n).abs();
    Some(Ratio::of(change, mean).is_some_and(|share| share.0 < STEADY_SLOPE_MAX))
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn done(result: Result<usize, Errno>, at: u64) -> Completion {
        Completion { slot: 0, result, at: ms(at) }
    }

    fn sent(write: bool, bytes: u64, at: Duration) -> Sent {
        Sent { write, bytes, at }
    }

    #[test]
    fn errors_short_operations_and_the_ramp_are_never_timed() {
        let mut tally = Tally::new(ms(100));
        tally.take(&done(Err(Errno::IO), 300), &sent(true, 4096, ms(200)));
        tally.take(&done(Ok(512), 300), &sent(true, 4096, ms(200)));
        tally.take(&done(Ok(4096), 300), &sent(true, 4096, ms(50)));
        assert_eq!((tally.errors, tally.short_operations, tally.operations()), (1, 1, 0));
        assert_eq!(tally.elapsed(), Duration::ZERO);
        tally.take(&done(Ok(4096), 300), &sent(true, 4096, ms(200)));
        let (reads, writes) = tally.directions();
        assert_eq!((reads.operations, reads.latency_mean), (0, None));
        assert_eq!((writes.operations, writes.latency_mean), (1, Some(Seconds(0.1))));
        assert_eq!(tally.elapsed(), ms(200));
        assert_eq!(tally.moved().written, Bytes(512 + 2 * 4096), "the ramp costs bytes too");
    }

    #[test]
    fn a_quantile_needs_ten_operations_beyond_it() {
        let of = |n: u64| {
            let mut tally = Tally::new(ms(0));
            for i in 0..n {
                tally.take(&done(Ok(1), i + 5), &sent(false, 1, ms(i)));
            }
            tally.directions().0.latency.iter().map(|(q, _)| *q).collect::<Vec<_>>()
        };
        assert_eq!(of(19), [] as [f64; 0]);
        assert_eq!(of(20), [0.5]);
        assert_eq!(of(200), [0.5, 0.95]);
        assert_eq!(of(999), [0.5, 0.95]);
        assert_eq!(of(10_000), QUANTILES);
    }

    #[test]
    fn quantiles_are_within_a_hundredth_of_the_truth() {
        let mut tally = Tally::new(ms(0));
        for i in 0..1000 {
            tally.take(&done(Ok(1), i + 10 + i % 10), &sent(false, 1, ms(i)));
        }
        let p50 = tally.directions().0.latency[0].1.0;
        assert!((p50 - 0.014).abs() < 0.0002, "{p50}");
    }

    #[test]
    fn rates_are_of_whole_intervals_and_bounded() {
        let mut tally = Tally::new(ms(1000));
        for at in [1010, 1099, 1250, 1310] {
            tally.take(&done(Ok(1), at), &sent(false, 1, ms(1005)));
        }
        assert_eq!(tally.rates(), [20.0, 0.0, 10.0]);
    }

    #[test]
    fn a_long_leg_has_wider_intervals_and_none_left_out() {
        let mut tally = Tally::new(ms(0));
        // An hour at 10 a second, then twice that.
        for at in (0..3_600_000).step_by(100).chain((3_600_000..7_200_000).step_by(50)) {
            tally.take(&done(Ok(1), at), &sent(false, 1, ms(at)));
        }
        let rates = tally.rates();
        assert!((350..=700).contains(&rates.len()), "{}", rates.len());
        let (first, last) = (rates[0], rates[rates.len() - 1]);
        assert!((first - 10.0).abs() < 0.2 && (last - 20.0).abs() < 0.2, "{first} {last}");
        assert_eq!(is_steady(&rates), Some(false));
    }

    #[test]
    fn what_two_counted_is_what_one_would_have() {
        let (mut one, mut two) = (Tally::new(ms(100)), Tally::new(ms(100)));
        let mut both = Tally::new(ms(100));
        for i in 0..4_000_u64 {
            let result =
                if i % 97 == 0 { Err(Errno::IO) } else { Ok(4096 - (i % 89 == 0) as usize) };
            // Eighths of a second, whose sum is the same in any order.
            let at = i + 50 + 125 * (1 + i % 7);
            let (done, sent) = (done(result, at), sent(i % 3 == 0, 4096, ms(i + 50)));
            both.take(&done, &sent);
            if i % 2 == 0 {
                one.take(&done, &sent)
            } else {
                two.take(&done, &sent)
            };
        }
        one.add(two);
        assert_eq!(one.directions(), both.directions());
        assert_eq!((one.rates(), one.moved()), (both.rates(), both.moved()));
        let rest = |tally: &Tally| (tally.errors, tally.short_operations, tally.elapsed());
        assert_eq!(rest(&one), rest(&both));
    }

    #[test]
    fn a_fall_by_a_fifth_is_not_steady_and_noise_is() {
        let falling: Vec<f32> = (0..30).map(|i| 110.0 - i as f32 * 0.7).collect();
        assert_eq!(is_steady(&falling), Some(false));
        let noisy: Vec<f32> = (0..30).map(|i| if i % 2 == 0 { 80.0 } else { 120.0 }).collect();
        assert_eq!(is_steady(&noisy), Some(true));
        assert_eq!(is_steady(&[0.0; 30]), Some(false), "nothing moved");
        assert_eq!(is_steady(&falling[..5]), None);
    }
}
