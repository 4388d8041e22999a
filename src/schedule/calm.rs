//! For how long the idle gate of each target has been open: what goes to a device's end waits until
//! nobody else wanted it for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::units::Seconds;

/// A gate that nobody looked at for longer may have closed meanwhile.
const UNSEEN_MAX: Duration = Duration::from_secs(60);

/// Since when each gate is open, and when that was last seen.
#[derive(Clone, Debug, Default)]
pub struct Calm(BTreeMap<usize, (Duration, Duration)>);

impl Calm {
    /// Takes how the gate of `target` stands.
    pub fn see(&mut self, target: usize, open: bool, now: Moment) {
        if !open {
            self.0.remove(&target);
            return;
        }
        let (since, seen) = self.0.entry(target).or_insert((now.mono, now.mono));
        if now.mono.saturating_sub(*seen) > UNSEEN_MAX {
            *since = now.mono;
        }
        *seen = now.mono;
    }

    /// How long at least until the gate has been open for so long; `None`: it has.
    pub fn wait(&self, target: usize, needed: Seconds, now: Moment) -> Option<Duration> {
        let open = self.0.get(&target).map_or(Duration::ZERO, |(since, seen)| {
            let unseen = now.mono.saturating_sub(*seen) > UNSEEN_MAX;
            if unseen { Duration::ZERO } else { now.mono.saturating_sub(*since) }
        });
        needed.duration().checked_sub(open).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{Clock, ManualClock};

    const NEEDED: Seconds = Seconds(600.0);

    #[test]
    fn only_time_with_the_gate_open_counts() {
        let clock = ManualClock::starting_at(1_000_000);
        let mut calm = Calm::default();
        let secs = Duration::from_secs;
        assert_eq!(calm.wait(0, NEEDED, clock.now()), Some(secs(600)));
        let see = |calm: &mut Calm, open, seconds: u64| {
            for _ in 0..seconds {
                calm.see(0, open, clock.now());
                clock.advance(secs(1));
            }
        };
        see(&mut calm, true, 400);
        assert_eq!(calm.wait(0, NEEDED, clock.now()), Some(secs(200)));
        assert_eq!(calm.wait(1, NEEDED, clock.now()), Some(secs(600)), "of another target");
        see(&mut calm, false, 1);
        see(&mut calm, true, 599);
        assert_eq!(calm.wait(0, NEEDED, clock.now()), Some(secs(1)));
        see(&mut calm, true, 1);
        assert_eq!(calm.wait(0, NEEDED, clock.now()), None);
        clock.advance(secs(3600));
        assert_eq!(calm.wait(0, NEEDED, clock.now()), Some(secs(600)), "nobody looked");
        see(&mut calm, true, 1);
        assert_eq!(calm.wait(0, NEEDED, clock.now()), Some(secs(599)));
    }

    #[test]
    fn a_clock_that_is_set_makes_no_calm() {
        let clock = ManualClock::starting_at(1_000_000);
        let mut calm = Calm::default();
        calm.see(0, true, clock.now());
        clock.step_wall(Duration::from_secs(50_000_000));
        calm.see(0, true, clock.now());
        assert!(calm.wait(0, NEEDED, clock.now()).is_some());
    }
}
