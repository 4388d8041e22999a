//! Turns of hosts that share one backend: wall-clock slots, without a coordinator, counted as those of
//! the tournament are. Each host knows all names, and so whose slot it is; clocks that differ by less
//! than the slack do no harm. Slots of their own: those of tests with peers may be hours apart.

use std::time::Duration;

use super::tournament::EPOCH;
use crate::base::clock::Moment;
use crate::base::units::Seconds;

/// One host's slot.
pub const SLOT: Duration = Duration::from_secs(60);
/// Left free at both ends of a slot: clocks differ, and a run may end late.
pub(super) const SLACK: Duration = Duration::from_secs(3);

/// The slots of one backend as one host sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Whose turn this host's is, of how many.
    own: u64,
    of: u64,
}

impl Slots {
    /// `hosts` share a backend, `me` among them; in any order, the same on each.
    ///
    /// # Errors
    /// Where `me` isn't one of them: then nobody knows when its turn is.
    pub fn new<'a>(hosts: impl IntoIterator<Item = &'a str>, me: &str) -> Result<Self, String> {
        let mut sorted: Vec<&str> = hosts.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        match sorted.binary_search(&me) {
            Ok(own) => Ok(Self { own: own as u64, of: sorted.len() as u64 }),
            Err(_) => Err(format!("`{me}`, this host, is not among {}", sorted.join(", "))),
        }
    }

    /// The longest run that a slot has room for.
    pub fn run_max() -> Seconds {
        Seconds::from(SLOT - SLACK * 2)
    }

    /// Time until a run that takes `run` may begin: nothing while it fits what is left of the own
    /// slot. One that fits no slot never may: it gets the start of the next.
    pub fn wait(&self, run: Seconds, now: Moment) -> Option<Duration> {
        let cycle = SLOT.as_nanos() * u128::from(self.of);
        let begin = SLOT.as_nanos() * u128::from(self.own) + SLACK.as_nanos();
        let end = SLOT.as_nanos() * u128::from(self.own + 1) - SLACK.as_nanos();
        let at = now.wall.saturating_sub(EPOCH).as_nanos() % cycle;
        if at >= begin && at + run.duration().as_nanos() <= end {
            return None;
        }
        let ahead = if at < begin { begin - at } else { begin + cycle - at };
        Some(Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::clock::{Clock, ManualClock};

    fn hosts(n: usize) -> Vec<String> {
        (0..n).map(|i| format!("host{i}")).collect()
    }

    fn slots(n: usize, me: &str) -> Slots {
        Slots::new(hosts(n).iter().map(String::as_str), me).unwrap()
    }

    /// So long after the slots began.
    fn at(time: Duration) -> Moment {
        Moment { wall: EPOCH + time, ..ManualClock::starting_at(0).now() }
    }

    #[test]
    fn a_host_that_is_not_named_is_told() {
        let text = Slots::new(["b", "a", "b"], "other").unwrap_err();
        assert_eq!(text, "`other`, this host, is not among a, b");
    }

    #[test]
    fn an_own_slot_comes_round_and_a_run_has_to_fit_what_is_left_of_it() {
        let slots = slots(3, "host1");
        let wait = |seconds, run| slots.wait(Seconds(run), at(Duration::from_secs(seconds)));
        let secs = |n| Some(Duration::from_secs(n));
        assert_eq!(wait(0, 5.0), secs(63));
        assert_eq!(wait(63, 5.0), None);
        assert_eq!(wait(112, 5.0), None);
        assert_eq!(wait(113, 5.0), secs(130), "4 s are left");
        assert_eq!(wait(180, 5.0), secs(63));
        assert_eq!(wait(63, Slots::run_max().0), None);
        assert!(wait(63, 60.0).is_some(), "no slot is long enough");
    }

    proptest! {
        #[test]
        fn two_hosts_never_run_at_once_though_their_clocks_differ(
            n in 2..9_usize, a in 0..9_usize, b in 0..9_usize, begin in 0..100_000_000_u64,
            run in 0.1..54.0, other in 0.1..54.0, skew_ms in 0..6000_u64,
        ) {
            let (a, b) = (a % n, b % n);
            prop_assume!(a != b);
            let names = hosts(n);
            let mine = slots(n, &names[a]);
            let theirs = Slots::new(names.iter().rev().map(String::as_str), &names[b]).unwrap();
            // When each of them runs next, on its own clock; the other's is ahead by the skew.
            let now = Duration::from_millis(begin);
            let skew = Duration::from_millis(skew_ms);
            let start = now + mine.wait(Seconds(run), at(now)).unwrap_or_default();
            let theirs_now = now + skew;
            let wait = theirs.wait(Seconds(other), at(theirs_now)).unwrap_or_default();
            let their_start = now + wait;
            let apart = start + Seconds(run).duration() <= their_start
                || their_start + Seconds(other).duration() <= start;
            prop_assert!(apart, "{start:?} and {their_start:?}");
        }

        #[test]
        fn after_the_wait_it_may_run(
            n in 1..9_usize, now in any::<u32>(), run in 0.1..54.0,
        ) {
            let slots = slots(n, "host0");
            let now = Duration::from_secs(now.into());
            let then = now + slots.wait(Seconds(run), at(now)).unwrap_or_default();
            prop_assert_eq!(slots.wait(Seconds(run), at(then)), None);
        }
    }
}
