//! Slow questions on a thread of their own, so that a driver's seconds cost no sample.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Answers questions in turn, one of a kind at a time. The thread ends with this value, at the
/// latest when the answer it waits for has come.
pub struct Aside<K, V> {
    questions: Sender<K>,
    answers: Receiver<(K, V)>,
    pending: BTreeSet<K>,
    asked_now: bool,
    patience: Duration,
}

impl<K, V> Aside<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Send + 'static,
{
    /// `patience`: how long [`Aside::answers`] waits for what was asked since it was last called,
    /// so that quick answers come in the same tick. Without a thread nothing is ever answered.
    pub fn new(name: &str, patience: Duration, answer: impl Fn(&K) -> V + Send + 'static) -> Self {
        let (questions, asked) = channel::<K>();
        let (answered, answers) = channel();
        // Not a lane: it holds no state that a restart would have to bring back.
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Ok(key) = asked.recv() {
                let value = answer(&key);
                if answered.send((key, value)).is_err() {
                    break;
                }
            }
        });
        if let Err(error) = spawned {
            tracing::warn!("no thread for {name}: {error}");
        }
        Self { questions, answers, pending: BTreeSet::new(), asked_now: false, patience }
    }

    /// Asks for `key`, unless its answer is awaited already.
    pub fn ask(&mut self, key: K) {
        if self.pending.insert(key.clone()) && self.questions.send(key).is_ok() {
            self.asked_now = true;
        }
    }

    /// What has been answered; waits only for questions asked since the last call.
    pub fn answers(&mut self) -> Vec<(K, V)> {
        let mut found = Vec::new();
        let mut patience = if self.asked_now { self.patience } else { Duration::ZERO };
        self.asked_now = false;
        while !self.pending.is_empty() {
            match self.answers.recv_timeout(patience) {
                Ok((key, value)) => {
                    self.pending.remove(&key);
                    found.push((key, value));
                }
                // One slow answer uses up the patience of all.
                Err(_) if patience.is_zero() => break,
                Err(_) => patience = Duration::ZERO,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn a_quick_answer_comes_in_the_same_tick() {
        let mut aside = Aside::new("double", Duration::from_secs(60), |n: &u32| n * 2);
        aside.ask(2);
        aside.ask(3);
        assert_eq!(aside.answers(), [(2, 4), (3, 6)]);
        assert_eq!(aside.answers(), []);
    }

    #[test]
    fn a_slow_answer_is_not_waited_for_and_not_asked_twice() {
        let gate = Arc::new(Barrier::new(2));
        let theirs = Arc::clone(&gate);
        let mut aside = Aside::new("slow", Duration::ZERO, move |n: &u32| {
            theirs.wait();
            *n
        });
        aside.ask(7);
        assert_eq!(aside.answers(), []);
        aside.ask(7);
        gate.wait();
        let mut found = Vec::new();
        while found.is_empty() {
            found = aside.answers();
            std::thread::yield_now();
        }
        assert_eq!(found, [(7, 7)]);
        assert_eq!(aside.answers(), [], "it was asked once");
    }
}
