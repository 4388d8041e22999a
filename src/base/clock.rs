//! The only clock. Everything that needs time is given a [`Clock`], so that tests own time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units::Seconds;

/// One instant on the three clocks that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Moment {
    /// CLOCK_MONOTONIC: stands still in suspend; intervals and schedules use it.
    pub mono: Duration,
    /// CLOCK_BOOTTIME: goes on in suspend; `boot - mono` growing means the host slept.
    pub boot: Duration,
    /// CLOCK_REALTIME since the epoch: for people and `*_timestamp_seconds` only.
    pub wall: Duration,
}

impl Moment {
    /// Monotonic seconds from `earlier` to this moment; 0 when `earlier` is later.
    pub fn since(&self, earlier: Moment) -> Seconds {
        Seconds(self.mono.saturating_sub(earlier.mono).as_secs_f64())
    }

    /// True when the host was suspended between the two moments (more than 100 ms).
    pub fn slept_since(&self, earlier: Moment) -> bool {
        let gap = |m: &Moment| m.boot.saturating_sub(m.mono);
        gap(self) > gap(&earlier) + Duration::from_millis(100)
    }

    /// Unix time in seconds, for `*_timestamp_seconds`.
    pub fn unix_seconds(&self) -> f64 {
        self.wall.as_secs_f64()
    }

    /// This moment, `by` later on all three clocks.
    pub fn plus(&self, by: Duration) -> Moment {
        Moment { mono: self.mono + by, boot: self.boot + by, wall: self.wall + by }
    }
}

/// Source of [`Moment`]s.
pub trait Clock: Send + Sync {
    fn now(&self) -> Moment;
}

/// CLOCK_MONOTONIC alone, for timing single operations: no test owns the time of real I/O.
pub fn monotonic() -> Duration {
    read(rustix::time::ClockId::Monotonic)
}

fn read(id: rustix::time::ClockId) -> Duration {
    let t = rustix::time::clock_gettime(id);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), t.tv_nsec as u32)
}

/// The host's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        use rustix::time::ClockId;
        Moment {
            mono: read(ClockId::Monotonic),
            boot: read(ClockId::Boottime),
            wall: read(ClockId::Realtime),
        }
    }
}

/// A clock that moves only when told to.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<Moment>>);

impl ManualClock {
    /// Starts `wall` seconds after the epoch, an hour after boot.
    pub fn starting_at(wall: u64) -> Self {
        let hour = Duration::from_secs(3600);
        Self(Arc::new(Mutex::new(Moment {
            mono: hour,
            boot: hour,
            wall: Duration::from_secs(wall),
        })))
    }

    pub fn advance(&self, by: Duration) {
        self.change(|m| *m = m.plus(by));
    }

    /// Moves the wall clock alone, as `date -s` or NTP would.
    pub fn step_wall(&self, to: Duration) {
        self.change(|m| m.wall = to);
    }

    /// The host sleeps: boot and wall time go on, monotonic time doesn't.
    pub fn suspend(&self, by: Duration) {
        self.change(|m| {
            m.boot += by;
            m.wall += by;
        });
    }

    fn change(&self, f: impl FnOnce(&mut Moment)) {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_step_changes_no_interval() {
        let clock = ManualClock::starting_at(1_000_000);
        let before = clock.now();
        clock.advance(Duration::from_secs(2));
        clock.step_wall(Duration::from_secs(5));
        assert_eq!(clock.now().since(before), Seconds(2.0));
        assert!(!clock.now().slept_since(before));
    }

    #[test]
    fn suspend_is_seen_and_is_no_elapsed_time() {
        let clock = ManualClock::starting_at(1_000_000);
        let before = clock.now();
        clock.suspend(Duration::from_secs(600));
        assert!(clock.now().slept_since(before));
        assert_eq!(clock.now().since(before), Seconds(0.0));
    }
}
