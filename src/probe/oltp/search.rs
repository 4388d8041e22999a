//! The search for the highest rate whose mean latency stays under a limit: grow until one doesn't
//! hold, bisect between it and the last that did, then draw the curve. Pure over what offers a rate.

use crate::base::units::{Bytes, Seconds};
use crate::model::oltp::{BSU_OPERATIONS, MEAN_BYTES, Search, SearchEnd, Step};

/// What offers a rate for a while.
pub(super) trait Offer {
    /// `None` where it was stopped, or failed.
    fn offer(&mut self, rate: f64, ramp: Seconds, window: Seconds) -> Option<Step>;
    fn time_left(&self) -> Seconds;
    fn bytes_left(&self) -> Bytes;
}

/// The first rate: one BSU.
const RATE_FIRST: f64 = BSU_OPERATIONS;
/// Below, and above, nothing is offered.
const RATE_MIN: f64 = 2.0;
const RATE_MAX: f64 = 1e6;
/// Each rate is twice the last, or more where its mean is under an eighth of the limit.
const GROWTH: f64 = 2.0;
const GROWTH_FAR: f64 = 4.0;
const FAR: f64 = 0.125;
/// The highest rate that held and the lowest that didn't are this near in the end;
const NEAR: f64 = 1.03;
/// or this, where time or bytes ran out.
const NEAR_ENOUGH: f64 = 1.05;
/// Shares of the time that a step of each kind takes, and its bounds in seconds.
const SHORT: (f64, f64, f64) = (1.0 / 60.0, 1.0, 5.0);
const LONG: (f64, f64, f64) = (1.0 / 16.0, 2.0, 20.0);
const CURVE: (f64, f64, f64) = (1.0 / 32.0, 1.0, 10.0);
/// Before each, so much of it doesn't count: a queue has to grow as long as it will be.
const RAMP: f64 = 0.25;
/// Fewer operations make no mean; more make none better.
const OPERATIONS_MIN: f64 = 50.0;
const OPERATIONS_ENOUGH: f64 = 100_000.0;
/// A step takes at most this share of the bytes that are left, and lasts this long at least.
const BYTES_SHARE: f64 = 0.3;
const WINDOW_MIN: Seconds = Seconds(0.5);
/// Of the highest rate; it comes last.
const LOADS: [f64; 5] = [0.1, 0.5, 0.8, 0.9, 0.95];

/// A finished search, and which of its steps is its result.
pub(super) struct Found {
    pub(super) search: Search,
    pub(super) chosen: Option<usize>,
}

/// Searches within `total`, of which a part is kept for the curve.
pub(super) fn search(offers: &mut dyn Offer, limit: Seconds, total: Seconds) -> Found {
    let mut hunt = Hunt {
        offers,
        limit,
        short: length(SHORT, total),
        long: length(LONG, total),
        curve: length(CURVE, total),
        steps: Vec::new(),
        held: Vec::new(),
        failed: None,
    };
    let ended = hunt.grow().and_then(|()| hunt.narrow());
    let mut end = ended.err().unwrap_or(SearchEnd::Found);
    let best = hunt.held.last().copied();
    if matches!(end, SearchEnd::Time | SearchEnd::Bytes) && hunt.is_within(NEAR_ENOUGH) {
        end = SearchEnd::Found;
    }
    let chosen = best.map(|best| best.index).or(hunt.steps.len().checked_sub(1));
    let curve = match best {
        Some(best) if end != SearchEnd::Stopped => hunt.draw(best),
        _ => Vec::new(),
    };
    let steps = hunt.steps;
    let best = best.map(|best| best.rate);
    Found { search: Search { limit, end, best, steps, curve }, chosen }
}

fn length((share, least, most): (f64, f64, f64), total: Seconds) -> Seconds {
    Seconds((total.0 * share).clamp(least, most))
}

/// A rate that held.
#[derive(Clone, Copy)]
struct Held {
    rate: f64,
    index: usize,
    /// For the long window: a short one may hold by luck.
    long: bool,
}

struct Hunt<'a> {
    offers: &'a mut dyn Offer,
    limit: Seconds,
    short: Seconds,
    long: Seconds,
    curve: Seconds,
    steps: Vec<Step>,
    /// By rate, ascending.
    held: Vec<Held>,
    /// The lowest that didn't.
    failed: Option<f64>,
}

impl Hunt<'_> {
    /// From one BSU up, or down, until one rate held and a higher one didn't.
    fn grow(&mut self) -> Result<(), SearchEnd> {
        let mut rate = RATE_FIRST;
        loop {
            let mut long = false;
            let (mut index, mut held) = self.offer(rate, long)?;
            if !held {
                // A stall of the host is no end of the target.
                long = true;
                (index, held) = self.offer(rate, long)?;
            }
            if held {
                self.held.push(Held { rate, index, long });
                if self.failed.is_some() {
                    return Ok(());
                }
                let is_far = self.steps[index].latency_mean.0 < FAR * self.limit.0;
                rate *= if is_far { GROWTH_FAR } else { GROWTH };
                if rate > RATE_MAX {
                    return Err(SearchEnd::NoLimit);
                }
            } else {
                self.failed = Some(rate);
                if !self.held.is_empty() {
                    return Ok(());
                }
                rate /= GROWTH;
                if rate < RATE_MIN {
                    return Err(SearchEnd::NoRate);
                }
            }
        }
    }

    /// Bisects until the two are near, and the lower has held for a long window.
    fn narrow(&mut self) -> Result<(), SearchEnd> {
        loop {
            let Some(failed) = self.failed else { return Ok(()) };
            let low = self.held.last().copied();
            let rate = match low {
                None if failed / GROWTH < RATE_MIN => return Err(SearchEnd::NoRate),
                None => failed / GROWTH,
                Some(low) if failed / low.rate > NEAR => (failed * low.rate).sqrt(),
                Some(low) if !low.long => low.rate,
                Some(_) => return Ok(()),
            };
            let (index, held) = self.offer(rate, true)?;
            if low.is_some_and(|low| low.rate >= rate) {
                self.held.pop();
            }
            if held {
                self.held.push(Held { rate, index, long: true });
            } else {
                self.failed = Some(rate);
            }
        }
    }

    fn is_within(&self, factor: f64) -> bool {
        let ends = self.held.last().zip(self.failed);
        ends.is_some_and(|(low, failed)| failed / low.rate <= factor)
    }

    /// Index of the step, and whether the rate held.
    fn offer(&mut self, rate: f64, long: bool) -> Result<(usize, bool), SearchEnd> {
        let wanted = if long { self.long } else { self.short };
        let curve = LOADS.len() as f64 * self.curve.0 * (1.0 + RAMP);
        let step = self.step(rate, wanted, Seconds(curve))?;
        self.steps.push(step);
        Ok((self.steps.len() - 1, step.sustained(self.limit)))
    }

    /// Offers a rate for a while, and leaves `reserve` of the time.
    fn step(&mut self, rate: f64, wanted: Seconds, reserve: Seconds) -> Result<Step, SearchEnd> {
        let wanted = wanted.0.min((OPERATIONS_ENOUGH / rate).max(2.0)).max(OPERATIONS_MIN / rate);
        let bytes = self.offers.bytes_left().0 as f64 * BYTES_SHARE;
        let window = Seconds(wanted.min(bytes / (rate * MEAN_BYTES * (1.0 + RAMP))));
        if window < WINDOW_MIN {
            return Err(SearchEnd::Bytes);
        }
        let ramp = Seconds(window.0 * RAMP);
        if self.offers.time_left().0 < ramp.0 + window.0 + reserve.0 {
            return Err(SearchEnd::Time);
        }
        self.offers.offer(rate, ramp, window).ok_or(SearchEnd::Stopped)
    }

    /// The hockey stick: what there is still time and bytes for, and the best rate itself.
    fn draw(&mut self, best: Held) -> Vec<(f64, Step)> {
        let mut curve = Vec::new();
        for load in LOADS {
            match self.step(best.rate * load, self.curve, Seconds(0.0)) {
                Ok(step) => curve.push((load, step)),
                Err(SearchEnd::Stopped) => return curve,
                Err(_) => {}
            }
        }
        curve.extend(self.steps.get(best.index).map(|step| (1.0, *step)));
        curve
    }
}

#[cfg(test)]
mod tests;
