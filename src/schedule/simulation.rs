//! Ten thousand hosts on clocks that stall, step and sleep, with disks that get busy and a person
//! who runs probes by hand: what the schedule promises holds on all of them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;

use super::budget::Budget;
use super::calm::Calm;
use super::due::{Entry, Order, Timetable};
use super::guard::{Request, permit};
use super::turn::{Turn, TurnGuard};
use crate::base::clock::{Clock, ManualClock, Moment};
use crate::base::units::{Bytes, MIB, Ratio, Seconds};
use crate::config::settings::{FirstRun, GuardSettings};
use crate::model::job::Device;
use crate::model::outcome::{Conditions, DiskCondition, Skip};

const HOSTS: u64 = 10_000;
const STEPS: usize = 60;
const RUN_SECONDS_MAX: u64 = 60;
/// The probe that runs only after a while with the gate open, but for its first run.
const KNEE: usize = 1;
const CALM: Seconds = Seconds(600.0);
const STALL_SECONDS_MAX: u64 = 3 * 3600;

/// One host; time passes only by its own hand.
struct Host {
    random: Rng,
    clock: ManualClock,
    table: Timetable,
    entries: Vec<Entry>,
    budget: Budget,
    a_day: u64,
    busy: bool,
    /// Since when the disk has had no other work, in truth.
    quiet_since: Option<Duration>,
    calm: Calm,
    knees: usize,
    places: Vec<PathBuf>,
    by_hand: Option<(TurnGuard, Duration)>,
    /// When bytes were written, on the clock that nobody can set.
    written: VecDeque<(Duration, u64)>,
    last_end: Vec<Option<Duration>>,
}

impl Host {
    fn new(seed: u64, places: Vec<PathBuf>) -> Self {
        let mut random = Rng::with_seed(seed);
        let clock = ManualClock::starting_at(1_700_000_000 + random.u64(0..1 << 20));
        let count = random.usize(1..=5);
        let orders = [Order::Latency, Order::Reads, Order::Writes];
        let entries: Vec<Entry> = (0..count)
            .map(|i| Entry {
                name: format!("p{i}"),
                every: Seconds(random.u64(600..6 * 3600) as f64),
                order: orders[i % 3],
                soon: i == KNEE,
            })
            .collect();
        let first = if random.bool() { FirstRun::Now } else { FirstRun::Spread };
        let a_day = random.u64(64..2048) * MIB;
        Self {
            table: Timetable::new(entries.clone(), first, seed, clock.now()),
            budget: Budget::new(Bytes(a_day), clock.now()),
            last_end: vec![None; count],
            written: VecDeque::new(),
            by_hand: None,
            busy: false,
            quiet_since: Some(clock.now().mono),
            calm: Calm::default(),
            knees: 0,
            random,
            clock,
            entries,
            a_day,
            places,
        }
    }

    fn step(&mut self) {
        self.disturb();
        self.look();
        let now = self.clock.now();
        let Some((index, due)) = self.table.next(now) else { return };
        if due.mono > now.mono {
            self.wait((due.mono - now.mono).min(Duration::from_secs(1800)));
            return;
        }
        let again = index == KNEE && self.last_end[KNEE].is_some();
        if let Some(wait) = self.calm.wait(0, CALM, now).filter(|_| again) {
            self.table.defer(index, wait, now);
            return;
        }
        self.check_lateness(index, due, now);
        match self.attempt(index, now) {
            Err(Skip::Busy | Skip::Locked) => self.table.postpone(index, now),
            Err(_) => self.table.ran(index, now),
            Ok(()) => {
                self.last_end[index] = Some(self.clock.now().mono);
                self.table.ran(index, self.clock.now());
            }
        }
    }

    /// Something happens to the host, or nothing.
    fn disturb(&mut self) {
        let now = self.clock.now();
        match self.random.u8(0..12) {
            // While probes wait, one stall after another would make any order look like starving.
            0 if self.table.next(now).is_some_and(|(_, due)| due.mono > now.mono) => {
                let seconds = self.random.u64(0..STALL_SECONDS_MAX);
                self.pass(Duration::from_secs(seconds));
            }
            1 => {
                let to = self.random.u64(1_000_000_000..2_000_000_000);
                self.clock.step_wall(Duration::from_secs(to));
            }
            2 => self.clock.suspend(Duration::from_secs(self.random.u64(0..40_000))),
            3 => {
                self.busy = !self.busy;
                self.quiet_since = (!self.busy).then_some(now.mono);
            }
            4 if self.by_hand.is_none() => {
                if let Ok(Turn::Mine(guard)) = Turn::try_take(&self.places) {
                    let seconds = self.random.u64(1..RUN_SECONDS_MAX);
                    self.by_hand = Some((guard, now.mono + Duration::from_secs(seconds)));
                }
            }
            _ => {}
        }
    }

    /// As a lane waits: it looks at the gate now and then.
    fn wait(&mut self, time: Duration) {
        let end = self.clock.now().mono + time;
        // Nothing happens to the disk while time passes here.
        let open = self.look();
        while self.clock.now().mono < end {
            self.pass(Duration::from_secs(60).min(end - self.clock.now().mono));
            self.calm.see(0, open, self.clock.now());
        }
    }

    fn look(&mut self) -> bool {
        let open = self.ask(false, 0, self.clock.now()).is_ok();
        self.calm.see(0, open, self.clock.now());
        open
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        let now = self.clock.now().mono;
        self.by_hand.take_if(|(_, end)| *end <= now);
    }

    fn check_lateness(&self, index: usize, due: Moment, now: Moment) {
        // All the others may run first, and twice while this one waits.
        let others = RUN_SECONDS_MAX * 2 * self.entries.len() as u64;
        let limit = Duration::from_secs(others + STALL_SECONDS_MAX);
        assert!(now.mono - due.mono <= limit, "probe {index} starves: {:?}", now.mono - due.mono);
    }

    fn attempt(&mut self, index: usize, now: Moment) -> Result<(), Skip> {
        let worst = match self.entries[index].order {
            Order::Writes => self.random.u64(1..400) * MIB,
            Order::Latency => 16 << 10,
            Order::Reads => 0,
        };
        let exempt = self.entries[index].order == Order::Latency;
        self.ask(exempt, worst, now)?;
        let turn = Turn::try_take(&self.places).unwrap();
        let Turn::Mine(_turn) = turn else { return Err(Skip::Locked) };
        assert!(self.by_hand.is_none(), "two probes at once");
        self.budget.debit(Bytes(worst), now).map_err(|_| Skip::Budget)?;
        if let Some(end) = self.last_end[index] {
            let apart = (now.mono - end).as_secs_f64();
            assert!(apart >= 0.49 * self.entries[index].every.0, "a burst of {index}: {apart} s");
        }
        if index == KNEE {
            self.check_calm(now);
        }
        let actual = self.random.u64(0..=worst);
        self.write(actual);
        self.clock.advance(Duration::from_secs(self.random.u64(1..=RUN_SECONDS_MAX)));
        self.budget.refund(Bytes(worst), Bytes(actual));
        Ok(())
    }

    fn check_calm(&mut self, now: Moment) {
        self.knees += 1;
        let quiet = self.quiet_since.map(|since| now.mono - since);
        let first = self.last_end[KNEE].is_none();
        let calm = quiet.is_some_and(|quiet| quiet >= CALM.duration());
        assert!(first || calm, "a ladder after {quiet:?} of calm");
    }

    fn ask(&self, exempt: bool, worst: u64, now: Moment) -> Result<(), Skip> {
        let devices =
            [Device { name: "sda".into(), stat: PathBuf::new(), rotational: Some(false) }];
        let queue = if self.busy { 3.0 } else { 0.1 };
        let disk =
            DiskCondition { queue: Some(queue), busy: Some(Ratio(0.5)), ..Default::default() };
        let conditions =
            Conditions { at: now, disks: [("sda".into(), disk)].into(), ..Conditions::default() };
        let request = Request {
            exempt,
            devices: &devices,
            writes: Bytes(worst),
            may_write: true,
            region: Bytes(64 * MIB),
            inspection: None,
            wake: false,
        };
        permit(&request, &conditions, &GuardSettings::default(), now).map_err(|(skip, _)| skip)
    }

    /// No 24 hours see more than a day's budget and the day that the bucket holds.
    fn write(&mut self, bytes: u64) {
        let now = self.clock.now().boot;
        self.written.push_back((now, bytes));
        let a_day_ago = now.saturating_sub(Duration::from_secs(86_400));
        while self.written.front().is_some_and(|(at, _)| *at < a_day_ago) {
            self.written.pop_front();
        }
        let sum: u64 = self.written.iter().map(|(_, bytes)| bytes).sum();
        assert!(sum <= 2 * self.a_day, "{sum} written in a day of {}", self.a_day);
    }
}

#[test]
fn ten_thousand_hosts_never_run_two_at_once_overspend_starve_burst_or_climb_too_soon() {
    // A million locks are taken: in memory where the host has such a place.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let places = vec![dir.path().to_path_buf()];
    let mut knees = 0;
    for seed in 0..HOSTS {
        let run = std::panic::AssertUnwindSafe(|| {
            let mut host = Host::new(seed, places.clone());
            (0..STEPS).for_each(|_| host.step());
            host.knees
        });
        knees += std::panic::catch_unwind(run).unwrap_or_else(|_| panic!("host of seed {seed}"));
    }
    assert!(knees > HOSTS as usize, "{knees} ladders: they starve");
}
