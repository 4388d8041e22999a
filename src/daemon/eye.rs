//! Watches a worker at work: what of its confinement held, and whether others want the device.

use super::board::Board;
use crate::model::job::{Profile, Progress, What};
use crate::schedule::foreign::foreign_load_appeared;

/// Watches the events of one worker.
pub(super) struct Eye<'a> {
    board: &'a Board,
    legs: Vec<Profile>,
    before: Progress,
    /// Why the run ends for others' sake.
    foreign: Option<String>,
}

impl<'a> Eye<'a> {
    pub(super) fn new(board: &'a Board, legs: Vec<Profile>) -> Self {
        Self { board, legs, before: Progress::default(), foreign: None }
    }

    /// Why the run was to end, if it was.
    pub(super) fn foreign(self) -> Option<String> {
        self.foreign
    }

    /// True once the run should end because others want the device.
    pub(super) fn sees_foreign_load(&mut self, what: &What) -> bool {
        match what {
            What::Confined { parts } => {
                self.board.lock().sandbox = parts.iter().cloned().collect();
            }
            What::Progress(now) => {
                let conditions = self.board.lock().conditions.clone();
                // A search has more steps than were planned.
                let leg = self.legs.get(now.leg).or(self.legs.last());
                let found =
                    leg.and_then(|leg| foreign_load_appeared(leg, &self.before, now, &conditions));
                self.before = now.clone();
                self.foreign = self.foreign.take().or(found);
            }
            _ => {}
        }
        self.foreign.is_some()
    }
}
