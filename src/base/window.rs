//! Windows: when two samples make one, how long its gauges live, when a resource is at its ceiling.

use super::clock::Moment;
use super::units::{Ratio, Seconds};

/// What the time between two samples is good for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Span {
    /// A window of this length.
    Good(Seconds),
    /// Too soon after the last sample: wait for the next, against the same one.
    Short,
    /// The host slept or the tick was very late: start anew.
    Broken,
}

impl Span {
    /// Windows of a quarter of the nominal length to four times that are accepted.
    pub fn between(then: Moment, now: Moment, nominal: Seconds) -> Self {
        let length = now.since(then);
        if now.slept_since(then) || length.0 > 4.0 * nominal.0 {
            Span::Broken
        } else if length.0 < nominal.0 / 4.0 || length.0 <= 0.0 {
            Span::Short
        } else {
            Span::Good(length)
        }
    }
}

/// Windows without a good one after which a gauge is absent.
const MISSES_MAX: u32 = 3;

/// What the last good window said; absent after three windows without one, never frozen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held<T> {
    value: Option<T>,
    misses: u32,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self { value: None, misses: 0 }
    }
}

impl<T> Held<T> {
    pub fn set(&mut self, value: T) {
        *self = Self { value: Some(value), misses: 0 };
    }

    /// A window passed that says nothing.
    pub fn miss(&mut self) {
        self.misses += 1;
        if self.misses >= MISSES_MAX {
            *self = Self::default();
        }
    }

    pub fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }
}

/// Windows that saturation looks back on.
const REMEMBERED: u32 = 60;
/// Windows that decide on the state.
const DECIDING: u32 = 10;
const ON_AT: u32 = 8;
const OFF_AT: u32 = 3;

/// At its ceiling or not, with hysteresis: on at 8 of the last 10 windows, off at 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latch {
    /// One bit a window, the newest lowest.
    windows: u64,
    seen: u32,
    on: bool,
}

impl Latch {
    pub fn push(&mut self, at_ceiling: bool) {
        self.windows = self.windows << 1 | u64::from(at_ceiling);
        self.seen = (self.seen + 1).min(REMEMBERED);
        let high = self.high(DECIDING);
        self.on = if self.on { high > OFF_AT } else { high >= ON_AT };
    }

    /// `None` before the first window.
    pub fn on(&self) -> Option<bool> {
        (self.seen > 0).then_some(self.on)
    }

    /// Share of the last 60 windows at the ceiling; `None` while there are fewer than ten.
    pub fn share(&self) -> Option<Ratio> {
        if self.seen < DECIDING {
            return None;
        }
        Ratio::of(f64::from(self.high(self.seen)), f64::from(self.seen))
    }

    fn high(&self, last: u32) -> u32 {
        (self.windows & ((1 << last) - 1)).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::clock::{Clock, ManualClock};

    #[test]
    fn a_late_tick_a_double_tick_and_a_suspend_make_no_window() {
        let clock = ManualClock::starting_at(1_000_000);
        let then = clock.now();
        let span = |clock: &ManualClock| Span::between(then, clock.now(), Seconds(1.0));
        assert_eq!(span(&clock), Span::Short);
        clock.advance(Duration::from_millis(200));
        assert_eq!(span(&clock), Span::Short);
        clock.advance(Duration::from_millis(800));
        assert_eq!(span(&clock), Span::Good(Seconds(1.0)));
        clock.step_wall(Duration::from_secs(7));
        assert_eq!(span(&clock), Span::Good(Seconds(1.0)), "a clock step changes nothing");
        clock.suspend(Duration::from_secs(3600));
        assert_eq!(span(&clock), Span::Broken);
        let late = then.plus(Duration::from_millis(4100));
        assert_eq!(Span::between(then, late, Seconds(1.0)), Span::Broken);
    }

    #[test]
    fn a_gauge_leaves_at_the_third_window_without_a_good_one() {
        let mut held = Held::default();
        held.set(7);
        held.miss();
        held.miss();
        assert_eq!(held.get(), Some(&7));
        held.miss();
        assert_eq!(held.get(), None);
    }

    #[test]
    fn the_latch_turns_on_at_eight_of_ten_and_off_at_three() {
        let mut latch = Latch::default();
        assert_eq!((latch.on(), latch.share()), (None, None));
        for _ in 0..7 {
            latch.push(true);
        }
        assert_eq!(latch.on(), Some(false));
        latch.push(true);
        assert_eq!(latch.on(), Some(true));
        for _ in 0..8 {
            latch.push(false);
            // 8, 8, 7, 6, 5, 4, then 4 of the last ten ...
        }
        assert_eq!(latch.high(DECIDING), 2);
        assert_eq!(latch.on(), Some(false));
    }

    #[test]
    fn between_the_thresholds_the_latch_stays_as_it_was() {
        let mut latch = Latch::default();
        (0..10).for_each(|_| latch.push(true));
        // Alternating windows: five of ten, and still on.
        (0..20).for_each(|n| latch.push(n % 2 == 0));
        assert_eq!(latch.on(), Some(true));
        let mut cold = Latch::default();
        (0..20).for_each(|n| cold.push(n % 2 == 0));
        assert_eq!(cold.on(), Some(false));
        assert_eq!(cold.share(), Some(Ratio(0.5)));
    }

    #[test]
    fn saturation_forgets_what_is_older_than_sixty_windows() {
        let mut latch = Latch::default();
        (0..60).for_each(|_| latch.push(true));
        assert_eq!(latch.share(), Some(Ratio(1.0)));
        (0..60).for_each(|_| latch.push(false));
        assert_eq!(latch.share(), Some(Ratio(0.0)));
    }
}
