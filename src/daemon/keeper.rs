//! The state file: read and written by workers, since its disk may hang too.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::account::foreign_reply;
use super::board::Board;
use super::state::{Discard, FILE_NAME, State};
use super::targets::hung;
use crate::base::fault::Fault;
use crate::model::job::{Job, Task, WIRE_VERSION};
use crate::model::outcome::Reply;
use crate::worker::{Ended, Runner, Stop};

const DEADLINE: Duration = Duration::from_secs(5);
/// Where a file goes that was not believed.
const ASIDE: &str = "state.discarded";

pub struct Keeper {
    pub runner: Arc<dyn Runner>,
    pub directory: PathBuf,
    /// Id of this machine; empty where it has none.
    pub machine: String,
}

impl Keeper {
    /// The state as it was kept; an empty one where there is none, or none that can be believed.
    /// Ceilings of another machine are left out.
    pub fn load(&self, board: &Board) -> State {
        let mut state = self.load_any(board);
        if state.belongs_to(&self.machine) {
            tracing::warn!("the state is of another machine: its ceilings are left out");
            board.lock().count_discards(Discard::Machine, 1);
        }
        state
    }

    fn load_any(&self, board: &Board) -> State {
        let task = Task::Load { directory: self.directory.clone(), name: FILE_NAME.into() };
        let text = match self.ask(task) {
            Ok(Reply::Loaded { content }) => content,
            Ok(_) => None,
            Err(fault) => {
                tracing::warn!("state not read, starting without: {fault}");
                None
            }
        };
        let Some(text) = text else { return State::default() };
        State::decode(&text).unwrap_or_else(|discard| {
            tracing::warn!("state file set aside as {ASIDE}: {}", discard.label());
            board.lock().count_discards(discard, 1);
            if let Err(fault) = self.write(ASIDE, text) {
                tracing::warn!("not set aside: {fault}");
            }
            State::default()
        })
    }

    /// # Errors
    /// What the worker met, or Hung; the file is then as it was.
    pub fn save(&self, state: &State) -> Result<(), Fault> {
        self.write(FILE_NAME, state.encode())
    }

    fn write(&self, name: &str, content: String) -> Result<(), Fault> {
        let task = Task::Save { directory: self.directory.clone(), name: name.into(), content };
        match self.ask(task)? {
            Reply::Saved => Ok(()),
            _ => Err(foreign_reply()),
        }
    }

    /// Not to be stopped: also while halting, what was spent must be known to the next start.
    fn ask(&self, task: Task) -> Result<Reply, Fault> {
        let job = Job { v: WIRE_VERSION, polite: false, task };
        match self.runner.run(&job, DEADLINE, &Stop::default(), &mut |_| {}) {
            Ended::Replied(Reply::Failed(fault)) | Ended::Failed(fault) => Err(fault),
            Ended::Replied(reply) => Ok(reply),
            Ended::Hung(_) => Err(hung(&self.directory.display().to_string())),
        }
    }
}
