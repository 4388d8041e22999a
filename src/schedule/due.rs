//! When each probe is due. Only monotonic time counts: a clock step moves nothing.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::units::Seconds;
use crate::config::settings::FirstRun;

/// Busy devices are tried again this often before the interval is given up.
const RETRIES_MAX: u32 = 5;
const RETRY_WAIT_MAX: Duration = Duration::from_secs(60);
/// A person who started it waits for the first pass: it looks for a quiet moment more eagerly.
const FIRST_PASS_RETRIES_MAX: u32 = 30;
const FIRST_PASS_RETRY_WAIT: Duration = Duration::from_secs(3);
/// With [`FirstRun::Spread`] nothing runs earlier: a host that boots is busy with itself.
const QUIET_AFTER_BOOT: Duration = Duration::from_secs(600);
/// The longest that a first run waits where that is to come soon.
const SOON: Duration = Duration::from_secs(3600);
/// Most that a run is moved off its place in the interval, as a share of the interval.
const JITTER: f64 = 0.05;

/// The part of a first pass that a probe belongs to; latency is seen before load is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    Latency,
    Reads,
    Writes,
}

/// What the timetable knows of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    pub every: Seconds,
    pub order: Order,
    /// The first run is within an hour, however long the interval.
    pub soon: bool,
}

/// Next runs of all probes. A probe has one next run: what was missed is never made up for.
#[derive(Clone, Debug)]
pub struct Timetable {
    slots: Vec<Slot>,
    /// Of the host, so that hosts with one configuration don't run in step.
    seed: u64,
}

#[derive(Clone, Debug)]
struct Slot {
    entry: Entry,
    every: Duration,
    due: Duration,
    retries: u32,
    /// Still part of the pass that a start by hand makes at once.
    first_pass: bool,
}

impl Timetable {
    /// `seed` is a hash of what tells this host from others.
    pub fn new(entries: Vec<Entry>, first: FirstRun, seed: u64, now: Moment) -> Self {
        let quiet = QUIET_AFTER_BOOT.saturating_sub(now.boot);
        let slots = entries
            .into_iter()
            .map(|entry| {
                let every = entry.every.duration().max(Duration::from_secs(1));
                let first_pass = first == FirstRun::Now;
                let within = if entry.soon { every.min(SOON) } else { every };
                let due = if first_pass {
                    now.mono
                } else {
                    now.mono + quiet + within.mul_f64(share(seed, &entry.name, 0))
                };
                Slot { entry, every, due, retries: 0, first_pass }
            })
            .collect();
        Self { slots, seed }
    }

    /// Takes the next runs of probes that an older timetable had with the same interval: a new
    /// configuration is no reason to run everything again. New probes run within their interval.
    #[must_use]
    pub fn following(mut self, old: &Timetable, now: Moment) -> Self {
        for slot in &mut self.slots {
            let same = |other: &&Slot| other.entry == slot.entry;
            match old.slots.iter().find(same) {
                Some(other) => *slot = other.clone(),
                None => {
                    slot.first_pass = false;
                    slot.due = now.mono + slot.every.mul_f64(share(self.seed, &slot.entry.name, 0));
                }
            }
        }
        self
    }

    /// The probe to run next, by its index in the entries, and when it is (or was) due.
    ///
    /// Of those that are due: the first pass in its order, then the one that waits longest in
    /// proportion to its interval, so that a short interval never starves a long one.
    pub fn next(&self, now: Moment) -> Option<(usize, Moment)> {
        let slots = || self.slots.iter().enumerate();
        let due = || slots().filter(|(_, slot)| slot.due <= now.mono);
        let first = due().filter(|(_, s)| s.first_pass).min_by_key(|(_, s)| s.entry.order);
        let longest = || {
            due().max_by(|(i, a), (j, b)| {
                a.overdue(now).total_cmp(&b.overdue(now)).then_with(|| j.cmp(i))
            })
        };
        let (index, slot) =
            first.or_else(longest).or_else(|| slots().min_by_key(|(_, slot)| slot.due))?;
        Some((index, slot.due_moment(now)))
    }

    /// When the probe is due next.
    pub fn due(&self, index: usize, now: Moment) -> Option<Moment> {
        self.slots.get(index).map(|slot| slot.due_moment(now))
    }

    /// The probe ran, or its chance passed: its next run is in the next interval.
    ///
    /// Intervals stand on a grid that hangs at boot, moved by a hash of host and probe; a run that
    /// ended late skips the grid point that is less than half an interval away.
    pub fn ran(&mut self, index: usize, now: Moment) {
        let seed = self.seed;
        let Some(slot) = self.slots.get_mut(index) else { return };
        let every = slot.every.as_secs_f64();
        let phase = share(seed, &slot.entry.name, 0);
        let earliest = now.mono.as_secs_f64() / every + 0.5;
        let number = (earliest - phase).ceil();
        let jitter = JITTER * share(seed, &slot.entry.name, number.max(0.0) as u64 + 1);
        slot.due = Seconds((number + phase + jitter) * every).duration();
        slot.retries = 0;
        slot.first_pass = false;
    }

    /// The probe can't run for so long yet: it is looked at again then, as if it had been due then.
    pub fn defer(&mut self, index: usize, wait: Duration, now: Moment) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.due = now.mono + wait;
        }
    }

    /// The probe found its device busy: it is tried again soon, then an interval later.
    pub fn postpone(&mut self, index: usize, now: Moment) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let (retries_max, wait_max) = if slot.first_pass {
            (FIRST_PASS_RETRIES_MAX, FIRST_PASS_RETRY_WAIT)
        } else {
            (RETRIES_MAX, RETRY_WAIT_MAX)
        };
        if slot.retries >= retries_max {
            return self.ran(index, now);
        }
        slot.retries += 1;
        slot.due = now.mono + (slot.every / 10).min(wait_max);
    }
}

impl Slot {
    /// Intervals that it waits since it was due.
    fn overdue(&self, now: Moment) -> f64 {
        now.mono.saturating_sub(self.due).as_secs_f64() / self.every.as_secs_f64()
    }

    fn due_moment(&self, now: Moment) -> Moment {
        match self.due.checked_sub(now.mono) {
            Some(ahead) => now.plus(ahead),
            None => {
                let behind = now.mono.saturating_sub(self.due);
                let earlier = |clock: Duration| clock.saturating_sub(behind);
                Moment { mono: self.due, boot: earlier(now.boot), wall: earlier(now.wall) }
            }
        }
    }
}

/// A share in [0, 1) that is always the same for the same three.
fn share(seed: u64, name: &str, number: u64) -> f64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(name.as_bytes());
    hasher.update(&number.to_le_bytes());
    // Alike inputs have alike checksums; the generator spreads them.
    fastrand::Rng::with_seed(u64::from(hasher.finalize()) ^ seed).f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{Clock, ManualClock};

    fn entry(name: &str, every: f64, order: Order) -> Entry {
        Entry { name: name.into(), every: Seconds(every), order, soon: false }
    }

    fn three() -> Vec<Entry> {
        vec![
            entry("write", 6.0 * 3600.0, Order::Writes),
            entry("read", 3600.0, Order::Reads),
            entry("commit", 30.0, Order::Latency),
        ]
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_first_pass_by_hand_is_latency_then_reads_then_writes_at_once() {
        let clock = ManualClock::starting_at(1_000_000);
        let mut table = Timetable::new(three(), FirstRun::Now, 7, clock.now());
        let mut order = Vec::new();
        for _ in 0..3 {
            let (index, due) = table.next(clock.now()).unwrap();
            assert!(due.mono <= clock.now().mono);
            order.push(index);
            clock.advance(secs(15));
            table.ran(index, clock.now());
        }
        assert_eq!(order, [2, 1, 0]);
    }

    #[test]
    fn a_spread_start_waits_for_the_boot_to_end_and_stays_within_the_interval() {
        let now = Moment { mono: secs(20), boot: secs(20), wall: secs(1_000_000) };
        let table = Timetable::new(three(), FirstRun::Spread, 7, now);
        for (index, entry) in three().iter().enumerate() {
            let due = table.due(index, now).unwrap();
            assert!(due.boot >= secs(600), "{due:?}");
            assert!(due.mono <= secs(600) + entry.every.duration());
        }
    }

    #[test]
    fn a_daily_probe_that_is_wanted_soon_runs_within_an_hour_first() {
        let now = Moment { mono: secs(20), boot: secs(20), wall: secs(1_000_000) };
        let entry = |soon| Entry { soon, ..entry("knee", 86_400.0, Order::Reads) };
        let later_than_an_hour = |soon, seed| {
            let table = Timetable::new(vec![entry(soon)], FirstRun::Spread, seed, now);
            table.due(0, now).unwrap().mono > secs(600 + 3600)
        };
        assert!((0..100).all(|seed| !later_than_an_hour(true, seed)));
        assert!((0..100).any(|seed| later_than_an_hour(false, seed)));
    }

    #[test]
    fn a_deferred_probe_is_due_when_it_was_put_off_to() {
        let clock = ManualClock::starting_at(1_000_000);
        let mut table = Timetable::new(three(), FirstRun::Now, 7, clock.now());
        table.defer(2, secs(40), clock.now());
        assert_eq!(table.due(2, clock.now()).unwrap().mono, clock.now().mono + secs(40));
        assert_eq!(table.next(clock.now()).unwrap().0, 1, "others go first");
    }

    #[test]
    fn hosts_of_one_configuration_do_not_run_in_step() {
        let now = Moment { mono: secs(9999), boot: secs(9999), wall: secs(1_000_000) };
        let mut seconds = std::collections::BTreeMap::new();
        for host in 0..100 {
            let entries = vec![entry("read", 300.0, Order::Reads)];
            let mut table = Timetable::new(entries, FirstRun::Now, host, now);
            table.ran(0, now);
            *seconds.entry(table.due(0, now).unwrap().mono.as_secs()).or_insert(0) += 1;
        }
        assert!(seconds.values().all(|hosts| *hosts <= 5), "{seconds:?}");
    }

    #[test]
    fn what_a_stall_missed_collapses_into_one_run() {
        let clock = ManualClock::starting_at(1_000_000);
        let mut table = Timetable::new(three(), FirstRun::Now, 7, clock.now());
        (0..3).for_each(|index| table.ran(index, clock.now()));
        clock.advance(secs(86_400));
        let mut runs = [0; 3];
        while let Some((index, due)) =
            table.next(clock.now()).filter(|(_, d)| d.mono <= clock.now().mono)
        {
            assert!(due.wall <= clock.now().wall);
            runs[index] += 1;
            table.ran(index, clock.now());
        }
        assert_eq!(runs, [1; 3]);
    }

    #[test]
    fn a_step_of_the_wall_clock_and_a_suspend_make_nothing_due() {
        let clock = ManualClock::starting_at(1_000_000);
        let mut table = Timetable::new(three(), FirstRun::Now, 7, clock.now());
        (0..3).for_each(|index| table.ran(index, clock.now()));
        let before = table.next(clock.now()).unwrap().1.mono;
        clock.step_wall(secs(50_000_000));
        clock.suspend(secs(86_400));
        assert_eq!(table.next(clock.now()).unwrap().1.mono, before);
        assert!(before > clock.now().mono);
    }

    #[test]
    fn a_busy_device_is_tried_again_a_few_times_and_then_an_interval_later() {
        let clock = ManualClock::starting_at(1_000_000);
        let mut table = Timetable::new(
            vec![entry("read", 3600.0, Order::Reads)],
            FirstRun::Now,
            7,
            clock.now(),
        );
        let eager = waits(&mut table, &clock, FIRST_PASS_RETRIES_MAX);
        assert_eq!(eager[..30], [3; 30], "a person waits");
        assert!(eager[30] >= 1800, "{eager:?}");
        let patient = waits(&mut table, &clock, RETRIES_MAX);
        assert_eq!(patient[..5], [60; 5]);
        assert!(patient[5] >= 1800, "{patient:?}");
    }

    /// Seconds of each wait while the device of probe 0 stays busy.
    fn waits(table: &mut Timetable, clock: &ManualClock, retries: u32) -> Vec<u64> {
        (0..=retries)
            .map(|_| {
                table.postpone(0, clock.now());
                let wait = table.due(0, clock.now()).unwrap().mono - clock.now().mono;
                clock.advance(wait);
                wait.as_secs()
            })
            .collect()
    }

    #[test]
    fn a_new_configuration_keeps_the_next_runs_that_it_did_not_change() {
        let clock = ManualClock::starting_at(1_000_000);
        let mut old = Timetable::new(three(), FirstRun::Now, 7, clock.now());
        (0..3).for_each(|index| old.ran(index, clock.now()));
        let mut entries = three();
        entries[0].every = Seconds(1800.0);
        entries.push(entry("new", 600.0, Order::Reads));
        let now = clock.now();
        let table = Timetable::new(entries, FirstRun::Now, 7, now).following(&old, now);
        assert_eq!(table.due(1, now), old.due(1, now));
        assert_eq!(table.due(2, now), old.due(2, now));
        assert!(table.due(0, now).unwrap().mono > now.mono, "a changed probe starts no burst");
        assert!(table.due(3, now).unwrap().mono <= now.mono + secs(600));
    }

    #[test]
    fn runs_keep_half_an_interval_apart_and_never_fall_behind_one_and_a_half() {
        let clock = ManualClock::starting_at(1_000_000);
        let mut table =
            Timetable::new(vec![entry("read", 100.0, Order::Reads)], FirstRun::Now, 3, clock.now());
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1000 {
            table.ran(0, clock.now());
            let wait = (table.due(0, clock.now()).unwrap().mono - clock.now().mono).as_secs_f64();
            assert!((50.0..=155.1).contains(&wait), "{wait}");
            clock.advance(Duration::from_secs_f64(wait + 30.0 * random.f64()));
        }
    }

    #[test]
    fn on_a_host_that_cannot_do_it_all_the_rare_probe_still_gets_its_turn() {
        let clock = ManualClock::starting_at(1_000_000);
        let entries = vec![
            entry("a", 10.0, Order::Reads),
            entry("b", 10.0, Order::Reads),
            entry("rare", 600.0, Order::Reads),
        ];
        let mut table = Timetable::new(entries, FirstRun::Spread, 5, clock.now());
        let mut rare = 0;
        while clock.now().mono < secs(3600 + 6000) {
            let (index, due) = table.next(clock.now()).unwrap();
            clock.advance(due.mono.saturating_sub(clock.now().mono));
            clock.advance(secs(8)); // the two take 16 of every 10 seconds
            table.ran(index, clock.now());
            rare += u32::from(index == 2);
        }
        assert!(rare >= 4, "{rare} runs in ten intervals");
    }
}
