//! Which operation comes when, and where; all of it follows from a seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use fastrand::Rng;

use super::space::Sizes;
use super::streams::{Address, BLOCKS_MAX, Length, MIXED, SPOTS, STREAMS, Stream, mixed};
use super::walk::{Course, HotSpot, Track, Walk};
use crate::model::oltp::{BSU_OPERATIONS, Variant};
use crate::workload::pattern::derived;

/// Unit of time: arrivals are rounded to it.
const TICK: Duration = Duration::from_micros(100);
/// Draws below are taken for this one, so that no gap is without end.
const DRAW_MIN: f64 = 1e-8;
/// A unit under so many blocks is walked as if it were a multiple of its size.
const BLOCKS_MIN: u64 = 20_480;
/// BSUs of one context, by default.
const BSUS_PER_CONTEXT: u32 = 100;

/// One operation of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Since the start.
    pub at: Duration,
    /// Of eight.
    pub stream: usize,
    pub asu: usize,
    pub block: u64,
    pub blocks: u64,
    pub write: bool,
}

/// How operations arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    pub variant: Variant,
    pub bsus: u32,
    /// Operations a second of one BSU.
    pub bsu_rate: f64,
    pub contexts: u32,
}

impl Arrivals {
    /// So many BSUs of 50 operations a second.
    pub fn bsus(variant: Variant, bsus: u32, contexts: Option<u32>) -> Self {
        let bsus = bsus.max(1);
        let contexts = contexts.unwrap_or(bsus.div_ceil(BSUS_PER_CONTEXT)).clamp(1, bsus);
        Self { variant, bsus, bsu_rate: BSU_OPERATIONS, contexts }
    }

    /// As few BSUs as make `rate` with at most 50 operations a second each.
    pub fn at_rate(variant: Variant, rate: f64, contexts: Option<u32>) -> Self {
        // `as` saturates, and takes what is no number for nothing.
        let arrivals = Self::bsus(variant, (rate / BSU_OPERATIONS).ceil() as u32, contexts);
        Self { bsu_rate: rate / f64::from(arrivals.bsus), ..arrivals }
    }

    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.bsu_rate * f64::from(self.bsus)
    }
}

/// Requests without end, in the order of their time.
#[derive(Debug)]
pub struct Generator {
    contexts: Vec<Context>,
}

impl Generator {
    pub fn new(arrivals: &Arrivals, sizes: &Sizes, seed: u64) -> Self {
        let (all, contexts) = (arrivals.bsus, arrivals.contexts.max(1));
        let context = |index: u32| {
            let bsus = all / contexts + u32::from(index < all % contexts);
            Context::new(&Arrivals { bsus, ..*arrivals }, *sizes, derived(seed, index.into()))
        };
        Self { contexts: (0..contexts).map(context).collect() }
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let first = self.contexts.iter_mut().min_by_key(|context| context.next_tick());
        first?.next()
    }
}

/// Some BSUs that share their hot spots.
#[derive(Debug)]
struct Context {
    rng: Rng,
    variant: Variant,
    sizes: Sizes,
    /// What the units are taken to be larger, where they are small.
    scale: u64,
    /// Mean ticks between two operations of each stream of a BSU.
    gaps: [f64; 8],
    spots: [HotSpot; SPOTS],
    flows: Vec<Flow>,
    /// The next tick of each flow.
    due: BinaryHeap<Reverse<(u64, usize)>>,
}

/// One stream of one BSU.
#[derive(Debug)]
struct Flow {
    stream: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Anywhere,
    Hot(Walk),
    Sequential(Course),
}

impl Context {
    fn new(arrivals: &Arrivals, sizes: Sizes, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let scale = BLOCKS_MIN.div_ceil(sizes.0[0].max(1));
        let spots = [0, 0, 1].map(|asu: usize| HotSpot::new(sizes.0[asu] * scale / 20));
        let ticks = 1.0 / TICK.as_secs_f64();
        let gap = |s: &Stream| ticks / (arrivals.bsu_rate * f64::from(s.share) / 1000.0);
        let mut context = Self {
            gaps: STREAMS.each_ref().map(gap),
            variant: arrivals.variant,
            sizes,
            scale,
            flows: Vec::with_capacity(arrivals.bsus as usize * STREAMS.len()),
            due: BinaryHeap::new(),
            rng: rng.fork(),
            spots,
        };
        for _ in 0..arrivals.bsus {
            for (stream, known) in STREAMS.iter().enumerate() {
                let state = match known.address {
                    Address::Uniform | Address::UniformEven => State::Anywhere,
                    Address::Hot { spot, .. } => {
                        State::Hot(Walk::new(&context.spots[spot], &mut rng))
                    }
                    Address::Sequential { .. } => State::Sequential(Course::default()),
                };
                context.flows.push(Flow { stream, state });
                context.schedule(context.flows.len() - 1, 0);
            }
        }
        // The published generator throws its first operation away.
        context.next();
        context
    }

    fn next_tick(&self) -> u64 {
        self.due.peek().map_or(u64::MAX, |Reverse((tick, _))| *tick)
    }

    /// Puts the next operation of a flow an exponential time after `tick`.
    fn schedule(&mut self, flow: usize, tick: u64) {
        let mean = self.flows.get(flow).and_then(|flow| self.gaps.get(flow.stream));
        let gap = -self.rng.f64().max(DRAW_MIN).ln() * mean.copied().unwrap_or(f64::MAX);
        // `as` saturates.
        self.due.push(Reverse((tick.saturating_add(gap.round() as u64), flow)));
    }

    fn next(&mut self) -> Option<Request> {
        let Reverse((tick, index)) = self.due.pop()?;
        self.schedule(index, tick);
        let flow = self.flows.get_mut(index)?;
        let stream = STREAMS.get(flow.stream)?;
        let rng = &mut self.rng;
        let write = rng.f64() >= stream.reads(self.variant);
        let blocks = match stream.length {
            Length::One => 1,
            Length::Mixed => mixed(rng.usize(..MIXED)),
        };
        let size = *self.sizes.0.get(stream.asu)?;
        let wide = size * self.scale;
        let at = match (&mut flow.state, stream.address) {
            (State::Hot(walk), Address::Hot { from, spot }) => {
                let spot = self.spots.get_mut(spot)?;
                wide * from / 100 + walk.step(spot, write, rng)
            }
            (State::Sequential(course), Address::Sequential { from, within, span }) => {
                let [from, within, span] = [from, within, span].map(|part| wide * part / 100);
                course.step(&Track { from, within, span, size: wide }, blocks, rng)
            }
            (_, Address::UniformEven) => rng.u64(..wide.max(1)) & !1,
            _ => rng.u64(..wide.max(1)),
        };
        let block = (at / self.scale).min(size.saturating_sub(blocks));
        let at = TICK.saturating_mul(u32::try_from(tick).unwrap_or(u32::MAX));
        Some(Request { at, stream: flow.stream, asu: stream.asu, block, blocks, write })
    }
}

const _: () = assert!(BLOCKS_MAX < BLOCKS_MIN, "the longest operation fits any unit");

#[cfg(test)]
mod tests;
