//! Requests that are due, and what of them is with the kernel.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::io::Errno;

use super::generator::Request;
use super::space::{Part, Unit};
use super::tally::Landed;
use crate::model::oltp::BLOCK_BYTES;
use crate::workload::engine::{Completion, Operation};
use crate::workload::tally::Sent;

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    asu: usize,
    sent: Sent,
    issued: Option<Duration>,
    /// Parts that haven't come back; given-up ones never will.
    left: usize,
    given_up: bool,
    moved: usize,
    error: Option<Errno>,
}

/// What is due waits here for a free slot, for as long as it takes.
#[derive(Debug, Default)]
pub(super) struct Ready {
    flights: Vec<Option<Flight>>,
    unused: Vec<usize>,
    waiting: VecDeque<(usize, Part)>,
    /// Which flight each slot carries a part of.
    slots: Vec<Option<usize>>,
    /// When the operation of each slot went to the engine.
    begun: Vec<Option<Duration>>,
    served: Duration,
    free: Vec<usize>,
    open: usize,
}

/// What a completion ended.
#[derive(Debug)]
pub(super) enum End {
    /// There are parts of its request left, or it was none of ours.
    None,
    Request(Landed),
    /// A part of it was given up; it was meant to begin then.
    GivenUp(Duration),
}

impl Ready {
    pub(super) fn new(slots: usize) -> Self {
        let free = (0..slots).rev().collect();
        Self { slots: vec![None; slots], begun: vec![None; slots], free, ..Self::default() }
    }

    /// Takes a request that was meant to begin at `meant`.
    pub(super) fn admit(&mut self, request: &Request, meant: Duration, unit: &Unit) {
        let bytes = request.blocks * BLOCK_BYTES;
        let index = self.unused.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        let before = self.waiting.len();
        self.waiting.extend(unit.parts(request.block, request.blocks).map(|part| (index, part)));
        self.flights[index] = Some(Flight {
            asu: request.asu,
            sent: Sent { write: request.write, bytes, at: meant },
            issued: None,
            left: self.waiting.len() - before,
            given_up: false,
            moved: 0,
            error: None,
        });
        self.open += 1;
    }

    /// Requests that have begun or should have, and aren't done.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Time that operations which came back had spent with the engine. Disks count their queue in the
    /// same way, each operation when it is done (block/blk-mq.c, `blk_account_io_done`).
    pub(super) fn served(&self) -> Duration {
        self.served
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The next operation that can begin, with a slot of its own.
    pub(super) fn next(&mut self) -> Option<Operation> {
        let slot = self.free.pop()?;
        let Some((index, part)) = self.waiting.pop_front() else {
            self.free.push(slot);
            return None;
        };
        self.slots[slot] = Some(index);
        let write = self.flights[index].is_some_and(|flight| flight.sent.write);
        let Part { file, offset, bytes } = part;
        Some(Operation { slot, offset, write, bytes: Some(bytes), file })
    }

    /// An operation went to the engine at `now`.
    pub(super) fn issued(&mut self, slot: usize, now: Duration) {
        if let Some(begun) = self.begun.get_mut(slot) {
            *begun = Some(now);
        }
        let flight = self.slots.get(slot).copied().flatten().and_then(|i| self.flights.get_mut(i));
        if let Some(flight) = flight.and_then(Option::as_mut) {
            flight.issued.get_or_insert(now);
        }
    }

    pub(super) fn land(&mut self, done: &Completion) -> End {
        let Some(index) = self.slots.get_mut(done.slot).and_then(Option::take) else {
            return End::None;
        };
        self.free.push(done.slot);
        let begun = self.begun.get_mut(done.slot).and_then(Option::take);
        self.served += begun.map_or(Duration::ZERO, |begun| done.at.saturating_sub(begun));
        let Some(flight) = self.flights.get_mut(index).and_then(Option::as_mut) else {
            return End::None;
        };
        flight.left -= 1;
        match done.result {
            Ok(bytes) => flight.moved += bytes,
            Err(errno) => flight.error = flight.error.or(Some(errno)),
        }
        if flight.left > 0 {
            return End::None;
        }
        let Flight { asu, sent, issued, given_up, moved, error, .. } = *flight;
        self.close(index);
        if given_up && error.is_none() {
            return End::GivenUp(sent.at);
        }
        let result = error.map_or(Ok(moved), Err);
        let end = Completion { result, ..*done };
        End::Request(Landed { asu, sent, issued: issued.unwrap_or(sent.at), end })
    }

    fn close(&mut self, index: usize) {
        self.flights[index] = None;
        self.unused.push(index);
        self.open -= 1;
    }

    /// Gives up what waits for a slot; answers when the requests were meant to begin of which nothing
    /// is on its way.
    pub(super) fn give_up(&mut self) -> Vec<Duration> {
        let mut never = Vec::new();
        for (index, _) in std::mem::take(&mut self.waiting) {
            let Some(flight) = self.flights.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            flight.left -= 1;
            flight.given_up = true;
            if flight.left == 0 {
                never.push(flight.sent.at);
                self.close(index);
            }
        }
        never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Unit = Unit { file: 0, from: 0, each: 100 };

    fn request(block: u64, blocks: u64) -> Request {
        Request { at: Duration::ZERO, stream: 7, asu: 2, block, blocks, write: true }
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn done(slot: usize, result: Result<usize, Errno>, at: u64) -> Completion {
        Completion { slot, result, at: ms(at) }
    }

    #[test]
    fn a_request_over_two_files_ends_with_its_last_part() {
        let mut ready = Ready::new(4);
        ready.admit(&request(98, 4), ms(10), &UNIT);
        let parts = [ready.next().unwrap(), ready.next().unwrap()];
        assert_eq!(
            parts.map(|p| (p.file, p.offset, p.bytes)),
            [(0, 98 * 4096, Some(8192)), (1, 0, Some(8192))]
        );
        assert!(ready.next().is_none() && ready.in_flight() == 2);
        ready.issued(parts[0].slot, ms(12));
        ready.issued(parts[1].slot, ms(13));
        assert_eq!(ready.served(), ms(0), "nothing is done");
        assert!(matches!(ready.land(&done(parts[1].slot, Ok(8192), 20)), End::None));
        assert_eq!(ready.served(), ms(20 - 13));
        let End::Request(landed) = ready.land(&done(parts[0].slot, Ok(8192), 30)) else {
            panic!("it is whole");
        };
        assert_eq!(ready.served(), ms(20 - 13 + 30 - 12), "each part by itself");
        assert_eq!((landed.end.result, landed.end.at), (Ok(16384), ms(30)));
        assert_eq!((landed.sent.at, landed.issued, landed.asu), (ms(10), ms(12), 2));
        assert_eq!((ready.open(), ready.in_flight()), (0, 0));
    }

    #[test]
    fn an_error_of_one_part_is_that_of_the_request() {
        let mut ready = Ready::new(2);
        ready.admit(&request(99, 2), ms(0), &UNIT);
        let parts = [ready.next().unwrap(), ready.next().unwrap()];
        ready.land(&done(parts[0].slot, Err(Errno::IO), 1));
        let End::Request(landed) = ready.land(&done(parts[1].slot, Ok(4096), 2)) else { panic!() };
        assert_eq!(landed.end.result, Err(Errno::IO));
    }

    #[test]
    fn what_waits_for_a_slot_is_given_up_once() {
        let mut ready = Ready::new(1);
        for n in 0..3 {
            ready.admit(&request(99, 2), ms(n), &UNIT);
        }
        let first = ready.next().unwrap();
        assert!(ready.next().is_none(), "there is one slot");
        assert_eq!(ready.give_up(), [ms(1), ms(2)]);
        assert_eq!(ready.open(), 1, "half of the first is on its way");
        let end = ready.land(&done(first.slot, Ok(4096), 9));
        assert!(matches!(end, End::GivenUp(at) if at == ms(0)), "{end:?}");
        assert_eq!((ready.open(), ready.in_flight()), (0, 0));
    }
}
