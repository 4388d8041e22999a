//! What a task in a worker sees of the outside: a request to stop, and a place to put events.
//! It never waits for the pipe: a slow reader must not delay I/O.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::Stop;
use crate::model::job::What;
use crate::model::outcome::Reply;
use crate::workload::{Live, Watch};

/// Events kept for a reader that is slow; a run has a handful besides progress.
const EVENTS_MAX: usize = 64;

/// Between the task's thread and the control thread.
pub struct Desk {
    stop: Stop,
    tray: Mutex<Tray>,
    live: Live,
    /// Wakes the control thread.
    pub(super) bell: OwnedFd,
}

#[derive(Default)]
struct Tray {
    events: VecDeque<What>,
    reply: Option<Reply>,
}

impl Desk {
    pub(super) fn new(stop: Stop) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { stop, tray: Mutex::default(), live: Live::default(), bell })
    }

    pub(super) fn finish(&self, reply: Reply) {
        self.tray().reply = Some(reply);
        self.ring();
    }

    /// The next event; the reply comes after all of them, once.
    pub(super) fn take(&self) -> Option<What> {
        let mut tray = self.tray();
        let event = tray.events.pop_front();
        event.or_else(|| tray.reply.take().map(|r| What::Outcome { reply: Box::new(r) }))
    }

    /// How far the task is, unless the reader is behind or the task is done.
    pub(super) fn progress(&self) -> Option<What> {
        let tray = self.tray();
        let idle = tray.events.is_empty() && tray.reply.is_none();
        drop(tray);
        idle.then(|| self.live.progress())?.map(What::Progress)
    }

    fn tray(&self) -> MutexGuard<'_, Tray> {
        self.tray.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // Fails only when the count is full, and then the bell rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Watch for Desk {
    fn stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// Where the reader is far behind it is dropped: events inform, the outcome counts.
    fn event(&self, what: What) {
        let mut tray = self.tray();
        if tray.events.len() < EVENTS_MAX {
            tray.events.push_back(what);
            drop(tray);
            self.ring();
        }
    }

    fn live(&self) -> &Live {
        &self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::model::job::Progress;

    fn layout(done: u64) -> What {
        What::Layout { done: Bytes(done), total: Bytes(9) }
    }

    #[test]
    fn a_flood_of_events_costs_events_but_never_the_outcome() {
        let desk = Desk::new(Stop::default()).unwrap();
        for i in 0..10 * EVENTS_MAX as u64 {
            desk.event(layout(i));
        }
        desk.finish(Reply::Saved);
        let all: Vec<What> = std::iter::from_fn(|| desk.take()).collect();
        assert_eq!(all.len(), EVENTS_MAX + 1);
        assert_eq!(all[0], layout(0));
        assert_eq!(all[EVENTS_MAX], What::Outcome { reply: Box::new(Reply::Saved) });
    }

    #[test]
    fn progress_never_queues_behind_a_slow_reader() {
        let desk = Desk::new(Stop::default()).unwrap();
        assert_eq!(desk.progress(), None, "nothing to show yet");
        desk.live().publish(Some(Progress::default()));
        assert_eq!(desk.progress(), Some(What::Progress(Progress::default())));
        desk.event(layout(1));
        assert_eq!(desk.progress(), None);
    }
}
