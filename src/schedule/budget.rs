//! How many bytes a day probes may write: a token bucket per target, and the plan's arithmetic.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;
use crate::base::units::{Bytes, Ratio, Seconds};

const DAY: Duration = Duration::from_secs(86_400);
/// One layout a day, and two to spare: a layout that was cut off is begun again at once, and a
/// host that crashes in each can't write without end.
const LAYOUTS_MAX: f64 = 3.0;
/// Share of a budget that a plan may use up, so that retries and layouts of the state fit.
const PLAN_SHARE_MAX: f64 = 0.8;
/// Bytes that a middling flash disk is warranted for.
const FLASH_LIFE_BYTES: f64 = 600e12;

/// What one target may still have written, in bytes as its devices count them.
///
/// Holds one day at most, so that no 24 hours see more than two days' worth. It is saved with the
/// state; the worst case of a run is taken and saved before the run, what wasn't used is given back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    a_day: Bytes,
    /// Below 0 when a run's devices wrote more than its worst case (copies, journals).
    left: f64,
    layouts: f64,
    at: Moment,
}

impl Budget {
    pub fn new(a_day: Bytes, now: Moment) -> Self {
        Self { a_day, left: a_day.0 as f64, layouts: LAYOUTS_MAX, at: now }
    }

    /// The same budget under a configuration that allows `a_day`; what is spent stays spent.
    #[must_use]
    pub fn resized(mut self, a_day: Bytes) -> Self {
        self.left += a_day.0 as f64 - self.a_day.0 as f64;
        self.a_day = a_day;
        self
    }

    /// Bytes that may be written now.
    pub fn remaining(&self, now: Moment) -> Bytes {
        Bytes(self.refilled(now).left.max(0.0) as u64)
    }

    /// Takes a run's worst case.
    ///
    /// # Errors
    /// What is missing; then nothing is taken.
    pub fn debit(&mut self, worst: Bytes, now: Moment) -> Result<(), String> {
        *self = self.refilled(now);
        if worst.0 as f64 > self.left.max(0.0) {
            let left = Bytes(self.left.max(0.0) as u64);
            return Err(format!("needs {worst}; {left} of {} a day are left", self.a_day));
        }
        self.left -= worst.0 as f64;
        Ok(())
    }

    /// Settles a run that was debited `worst`: gives back what it didn't write, takes what it wrote
    /// beyond.
    pub fn refund(&mut self, worst: Bytes, actual: Bytes) {
        let cap = self.a_day.0 as f64;
        self.left = (self.left + worst.0 as f64 - actual.0 as f64).clamp(-cap, cap);
    }

    /// Takes one layout of the ballast file.
    ///
    /// # Errors
    /// When the allowance is spent; then nothing is taken.
    pub fn debit_layout(&mut self, now: Moment) -> Result<(), String> {
        *self = self.refilled(now);
        if self.layouts < 1.0 {
            return Err("the ballast file was laid out too often: once a day is allowed".into());
        }
        self.layouts -= 1.0;
        Ok(())
    }

    fn refilled(&self, now: Moment) -> Budget {
        let days = elapsed(self.at, now).as_secs_f64() / DAY.as_secs_f64();
        let cap = self.a_day.0 as f64;
        let filled = |level: f64, by: f64, cap: f64| match level + by * days {
            // A state file can hold anything.
            level if level.is_finite() => level.clamp(-cap, cap),
            _ => 0.0,
        };
        Budget {
            a_day: self.a_day,
            left: filled(self.left, cap, cap),
            layouts: filled(self.layouts, 1.0, LAYOUTS_MAX),
            at: now,
        }
    }
}

/// Time that surely passed, at most a day: a wall clock that was set can't refill a budget, as the
/// boot clock bounds it, and after a reboot, when that began anew, the day does.
fn elapsed(from: Moment, to: Moment) -> Duration {
    let wall = to.wall.saturating_sub(from.wall);
    let boot = to.boot.checked_sub(from.boot).unwrap_or(DAY);
    wall.min(boot).min(DAY)
}

/// A probe's part in the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned<'a> {
    pub target: &'a str,
    pub every: Seconds,
    /// Most that one run writes.
    pub written_max: Bytes,
}

/// Worst-case bytes a day, by target.
pub fn bytes_a_day<'a>(plan: &[Planned<'a>]) -> BTreeMap<&'a str, Bytes> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for probe in plan {
        let runs = DAY.as_secs_f64() / probe.every.0.max(1.0);
        *sums.entry(probe.target).or_default() += probe.written_max.0 as f64 * runs;
    }
    sums.into_iter().map(|(target, bytes)| (target, Bytes(bytes.round() as u64))).collect()
}

/// Refuses a plan that would use more than 80 % of a target's budget, or has a run that never fits.
pub fn check_plan(plan: &[Planned<'_>], target: &str, budget: Bytes) -> Result<(), String> {
    let planned = bytes_a_day(plan).get(target).copied().unwrap_or_default();
    if planned.0 as f64 > PLAN_SHARE_MAX * budget.0 as f64 {
        return Err(format!(
            "target `{target}`: its probes may write {planned} a day, over 80 % of its budget of \
             {budget}: run them less often, or raise `budget`"
        ));
    }
    let largest = plan.iter().filter(|p| p.target == target).map(|p| p.written_max).max();
    match largest.filter(|largest| largest > &budget) {
        Some(largest) => Err(format!(
            "target `{target}`: one run may write {largest}, more than its budget of {budget} a \
             day: it would never run"
        )),
        None => Ok(()),
    }
}

/// Share of a flash disk's warranted 600 TB that a year of this plan writes.
pub fn flash_life_a_year(bytes_a_day: Bytes) -> Ratio {
    Ratio(bytes_a_day.0 as f64 * 365.0 / FLASH_LIFE_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::clock::{Clock, ManualClock};
    use crate::base::units::{GIB, MIB};

    const HOUR: Duration = Duration::from_secs(3600);

    fn full() -> (ManualClock, Budget) {
        let clock = ManualClock::starting_at(1_000_000);
        let budget = Budget::new(Bytes(24 * GIB), clock.now());
        (clock, budget)
    }

    #[test]
    fn it_refills_over_the_day_and_holds_no_more_than_one() {
        let (clock, mut budget) = full();
        budget.debit(Bytes(24 * GIB), clock.now()).unwrap();
        assert_eq!(budget.remaining(clock.now()), Bytes(0));
        clock.advance(HOUR);
        assert_eq!(budget.remaining(clock.now()), Bytes(GIB));
        clock.advance(HOUR * 1000);
        assert_eq!(budget.remaining(clock.now()), Bytes(24 * GIB));
    }

    #[test]
    fn what_a_run_did_not_write_is_given_back_and_what_it_wrote_beyond_is_taken() {
        let (clock, mut budget) = full();
        budget.debit(Bytes(10 * GIB), clock.now()).unwrap();
        budget.refund(Bytes(10 * GIB), Bytes(GIB));
        assert_eq!(budget.remaining(clock.now()), Bytes(23 * GIB));
        budget.debit(Bytes(20 * GIB), clock.now()).unwrap();
        budget.refund(Bytes(20 * GIB), Bytes(25 * GIB));
        assert_eq!(budget.remaining(clock.now()), Bytes(0));
        clock.advance(HOUR * 2);
        assert_eq!(budget.remaining(clock.now()), Bytes(0), "the debt is paid first");
        let said = budget.debit(Bytes(1), clock.now()).unwrap_err();
        assert_eq!(said, "needs 1 B; 0 B of 24 GiB a day are left");
    }

    #[test]
    fn a_clock_that_was_set_refills_nothing() {
        let (clock, mut budget) = full();
        budget.debit(Bytes(24 * GIB), clock.now()).unwrap();
        clock.step_wall(Duration::from_secs(1_000_000) + DAY * 3650);
        assert_eq!(budget.remaining(clock.now()), Bytes(0));
        clock.step_wall(Duration::from_secs(1000));
        assert_eq!(budget.remaining(clock.now()), Bytes(0));
    }

    #[test]
    fn a_restart_after_a_reboot_counts_wall_time_and_a_day_at_most() {
        let (clock, mut budget) = full();
        budget.debit(Bytes(24 * GIB), clock.now()).unwrap();
        let saved = serde_json::to_string(&budget).unwrap();
        let budget: Budget = serde_json::from_str(&saved).unwrap();
        let young = Duration::from_secs(60);
        let booted = |later| Moment { mono: young, boot: young, wall: clock.now().wall + later };
        assert_eq!(budget.remaining(booted(HOUR)), Bytes(GIB));
        assert_eq!(budget.remaining(booted(DAY * 400)), Bytes(24 * GIB));
    }

    #[test]
    fn layouts_cut_off_can_be_begun_again_but_not_without_end() {
        let (clock, mut budget) = full();
        for _ in 0..3 {
            budget.debit_layout(clock.now()).unwrap();
        }
        assert!(budget.debit_layout(clock.now()).is_err());
        clock.advance(DAY);
        budget.debit_layout(clock.now()).unwrap();
        assert!(budget.debit_layout(clock.now()).is_err());
    }

    #[test]
    fn a_smaller_budget_forgives_nothing() {
        let (clock, mut budget) = full();
        budget.debit(Bytes(10 * GIB), clock.now()).unwrap();
        assert_eq!(budget.resized(Bytes(8 * GIB)).remaining(clock.now()), Bytes(0));
    }

    #[test]
    fn the_default_plan_fits_and_a_greedy_one_is_refused() {
        let hours = |h: f64| Seconds(h * 3600.0);
        let probe = |every, written| Planned { target: "root", every, written_max: Bytes(written) };
        let mut plan = vec![
            probe(Seconds(30.0), 4 * 4096),
            probe(hours(1.0), 0),
            probe(hours(6.0), 256 * MIB),
            probe(hours(6.0), 64 * MIB),
            probe(hours(6.0), 32 * MIB),
        ];
        assert_eq!(bytes_a_day(&plan)["root"], Bytes(2880 * 16384 + 4 * 352 * MIB));
        assert_eq!(check_plan(&plan, "root", Bytes(2 * GIB)), Ok(()));
        assert!(flash_life_a_year(bytes_a_day(&plan)["root"]).0 < 0.001);
        plan.push(probe(hours(1.0), 64 * MIB));
        assert_eq!(
            check_plan(&plan, "root", Bytes(2 * GIB)).unwrap_err(),
            "target `root`: its probes may write 2.9 GiB a day, over 80 % of its budget of 2 GiB: \
             run them less often, or raise `budget`"
        );
        let rare = [probe(Seconds(30.0 * 86_400.0), 4 * GIB)];
        assert!(check_plan(&rare, "root", Bytes(2 * GIB)).unwrap_err().contains("never run"));
    }

    proptest! {
        #[test]
        fn no_state_and_no_clock_makes_more_than_a_day(
            left in any::<f64>(), layouts in any::<f64>(), a_day in 0..1_u64 << 50,
            at in any::<(u32, u32)>(), now in any::<(u32, u32)>(),
        ) {
            let moment = |(boot, wall): (u32, u32)| Moment {
                mono: Duration::from_secs(boot.into()),
                boot: Duration::from_secs(boot.into()),
                wall: Duration::from_secs(wall.into()),
            };
            let mut budget = Budget { a_day: Bytes(a_day), left, layouts, at: moment(at) };
            prop_assert!(budget.remaining(moment(now)).0 <= a_day);
            budget.refund(Bytes(a_day), Bytes(0));
            prop_assert!(budget.remaining(moment(now)).0 <= a_day);
        }
    }
}
