//! Floor 5: worker processes. Every call that can hang on a target is made in one, never in the
//! daemon: a worker that hangs is given up, and the daemon goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::fault::Fault;
use crate::model::job::{Job, What};
use crate::model::outcome::Reply;

pub mod child;
mod desk;
mod inspect;
pub mod parent;
pub mod rehearse;
mod save;
pub mod stuck;
mod talk;
pub mod tasks;
mod wire;

pub use desk::Desk;
use stuck::Stuck;
pub use talk::Patience;

/// Asks for an end. Clones share it; once set it stays set.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    own: Arc<AtomicBool>,
    above: Option<Arc<AtomicBool>>,
}

impl Stop {
    /// One that can be set alone, and is set whenever this one is.
    #[must_use]
    pub fn below(&self) -> Self {
        Self { own: Arc::default(), above: Some(Arc::clone(&self.own)) }
    }

    pub fn set(&self) {
        self.own.store(true, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        let set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Acquire);
        set(&self.own) || self.above.as_ref().is_some_and(set)
    }
}

/// How a worker ended, as its parent sees it.
#[derive(Debug)]
pub enum Ended {
    /// It said what came of the job, and is gone.
    Replied(Reply),
    /// It broke the contract or ran out of time, and is gone.
    Failed(Fault),
    /// It can't be killed: a call into the target does not return.
    Hung(Stuck),
}

/// Something that carries out jobs, one at a time per call.
pub trait Runner: Send + Sync {
    /// Carries out `job`; events other than the outcome go to `on_event` as they come.
    ///
    /// Returns within `deadline` plus the time it takes to stop and kill a worker, whatever the
    /// worker and its target do. After `stop` is set, within that time from then on.
    #[allow(clippy::too_many_arguments, reason = "four, and self")]
    fn run(
        &self,
        job: &Job,
        deadline: Duration,
        stop: &Stop,
        on_event: &mut dyn FnMut(&What),
    ) -> Ended;
}
