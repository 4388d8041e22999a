//! Lanes: named OS threads that are watched, restarted after a panic, and halted together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::clock::{Clock, Moment};

/// Asks every lane to end; lanes sleep on it.
#[derive(Clone, Debug, Default)]
pub struct Halt(Arc<HaltInner>);

#[derive(Debug, Default)]
struct HaltInner {
    halted: Mutex<bool>,
    changed: Condvar,
}

impl Halt {
    pub fn set(&self) {
        *self.0.halted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        *self.0.halted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps at most `time`; true when it was halted.
    pub fn sleep(&self, time: Duration) -> bool {
        let halted = self.0.halted.lock().unwrap_or_else(PoisonError::into_inner);
        let (halted, _) = self
            .0
            .changed
            .wait_timeout_while(halted, time, |halted| !*halted)
            .unwrap_or_else(PoisonError::into_inner);
        *halted
    }
}

/// What the watchdog and the metrics know of a lane.
#[derive(Debug)]
pub struct Pulse {
    pub name: &'static str,
    restarts: AtomicU64,
    /// Monotonic milliseconds until which silence is fine.
    alive_until_ms: AtomicU64,
    ended: AtomicBool,
}

impl Pulse {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            restarts: AtomicU64::new(0),
            alive_until_ms: AtomicU64::new(u64::MAX),
            ended: AtomicBool::new(false),
        }
    }

    /// The lane made progress and will again within `silence`.
    pub fn beat(&self, now: Moment, silence: Duration) {
        let until = (now.mono + silence).as_millis();
        self.alive_until_ms.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn is_late(&self, now: Moment) -> bool {
        let until = self.alive_until_ms.load(Ordering::Relaxed);
        now.mono.as_millis() > u128::from(until)
    }

    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// A running lane.
pub struct Lane {
    pub pulse: Arc<Pulse>,
    thread: JoinHandle<()>,
}

const RESTART_AFTER_MIN: Duration = Duration::from_secs(1);
const RESTART_AFTER_MAX: Duration = Duration::from_secs(300);
/// A lane that ran this long before its panic starts again at the shortest pause.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// Starts `body` on a thread of its own; after a panic it is started again, later each time.
///
/// # Errors
/// When the system has no thread left.
pub fn lane(
    name: &'static str,
    halt: Halt,
    clock: Arc<dyn Clock>,
    body: impl Fn(&Pulse) + Send + 'static,
) -> std::io::Result<Lane> {
    let pulse = Arc::new(Pulse::new(name));
    let own = Arc::clone(&pulse);
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        let mut pause = RESTART_AFTER_MIN;
        loop {
            let started = clock.now();
            if catch_unwind(AssertUnwindSafe(|| body(&own))).is_ok() {
                break;
            }
            own.restarts.fetch_add(1, Ordering::Relaxed);
            if clock.now().since(started).duration() > SETTLED_AFTER {
                pause = RESTART_AFTER_MIN;
            }
            tracing::error!(lane = name, "panicked; starts again in {pause:?}");
            own.beat(clock.now(), pause + SETTLED_AFTER);
            if halt.sleep(pause) {
                break;
            }
            pause = (pause * 4).min(RESTART_AFTER_MAX);
        }
        own.ended.store(true, Ordering::Release);
    })?;
    Ok(Lane { pulse, thread })
}

impl Lane {
    /// Waits for the lane to end, at most `time`; false when it didn't. Halt it first.
    pub fn end_within(self, time: Duration, clock: &dyn Clock) -> bool {
        let start = clock.now();
        while !self.pulse.has_ended() {
            if clock.now().since(start).duration() > time {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        self.thread.join().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::base::clock::{ManualClock, SystemClock};

    #[test]
    fn a_lane_that_panics_is_started_again_and_counted() {
        let (tx, rx) = mpsc::channel();
        let halt = Halt::default();
        let body_halt = halt.clone();
        let lane = lane("test", halt.clone(), Arc::new(SystemClock), move |pulse| {
            tx.send(pulse.restarts()).unwrap();
            if pulse.restarts() == 0 {
                std::panic::resume_unwind(Box::new("first life"));
            }
            while !body_halt.sleep(Duration::from_secs(1)) {}
        })
        .unwrap();
        assert_eq!(rx.recv().unwrap(), 0);
        assert_eq!(rx.recv().unwrap(), 1, "it came back");
        halt.set();
        assert_eq!(lane.pulse.restarts(), 1);
        assert!(lane.end_within(Duration::from_secs(60), &SystemClock));
    }

    #[test]
    fn a_silent_lane_is_late_and_one_that_said_so_is_not() {
        let clock = ManualClock::starting_at(0);
        let pulse = Pulse::new("test");
        assert!(!pulse.is_late(clock.now()), "a lane that hasn't started isn't late");
        pulse.beat(clock.now(), Duration::from_secs(5));
        clock.advance(Duration::from_secs(4));
        assert!(!pulse.is_late(clock.now()));
        clock.advance(Duration::from_secs(2));
        assert!(pulse.is_late(clock.now()));
    }
}
