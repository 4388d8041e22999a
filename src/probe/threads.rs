//! The busiest thread of this worker while a leg goes on. Threads of jobs and engines end with their
//! leg, so they are looked at while they live: by a thread that sleeps between looks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::clock::monotonic;
use crate::base::units::Ratio;
use crate::host::{block, roots};
use crate::model::outcome::ThreadUse;

const EVERY: Duration = Duration::from_millis(250);
/// A share of less time is chance.
const SPAN_MIN: Duration = Duration::from_millis(400);
/// More threads than an engine has; looking at them must cost nothing.
const THREADS_MAX: usize = 256;
const TASKS: &str = "/proc/self/task";

/// Looks until it is ended.
#[derive(Debug)]
pub(super) struct Threads {
    end: Sender<()>,
    looking: JoinHandle<Option<ThreadUse>>,
}

impl Threads {
    /// `None` where no thread can be had.
    pub(super) fn watch() -> Option<Self> {
        let (end, ended) = channel();
        let look = move || {
            let mut seen = Seen::default();
            loop {
                seen.look(Path::new(TASKS), monotonic());
                match ended.recv_timeout(EVERY) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            seen.look(Path::new(TASKS), monotonic());
            seen.busiest()
        };
        let looking = std::thread::Builder::new().name("threads".into()).spawn(look).ok()?;
        Some(Self { end, looking })
    }

    /// The thread with the largest share of a CPU; `None` where none was seen for long enough.
    pub(super) fn busiest(self) -> Option<ThreadUse> {
        drop(self.end);
        self.looking.join().ok()?
    }
}

#[derive(Debug, Default)]
struct Seen(BTreeMap<String, Span>);

/// From the first look at a thread to the last.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: (Duration, u64),
    until: (Duration, u64),
}

impl Seen {
    fn look(&mut self, tasks: &Path, now: Duration) {
        for id in block::entries(tasks).into_iter().take(THREADS_MAX) {
            let Some(nanos) = on_cpu_nanos(&tasks.join(&id)) else { continue };
            let at = (now, nanos);
            self.0.entry(id).or_insert(Span { from: at, until: at }).until = at;
        }
    }

    fn busiest(&self) -> Option<ThreadUse> {
        let share = |span: &Span| {
            let time = span.until.0.saturating_sub(span.from.0);
            let used = Duration::from_nanos(span.until.1.saturating_sub(span.from.1));
            Ratio::of(used.as_secs_f64(), time.as_secs_f64()).filter(|_| time >= SPAN_MIN)
        };
        let shares = self.0.iter().filter_map(|(id, span)| Some((id, share(span)?)));
        let (id, share) = shares.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        let name = roots::attribute(&Path::new(TASKS).join(id).join("comm"));
        // One that ended was a job's or an engine's: the worker's own live as long as it does.
        Some(ThreadUse { name: name.unwrap_or_else(|| "io".into()), share })
    }
}

/// First number of schedstat: time on a CPU (Documentation/scheduler/sched-stats.rst).
fn on_cpu_nanos(task: &Path) -> Option<u64> {
    roots::attribute(&task.join("schedstat"))?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_by_its_share_of_the_time_in_which_it_was_seen() {
        let dir = tempfile::tempdir().unwrap();
        let thread = |id: &str, text: &str| {
            std::fs::create_dir_all(dir.path().join(id)).unwrap();
            std::fs::write(dir.path().join(id).join("schedstat"), text).unwrap();
        };
        let mut seen = Seen::default();
        thread("7000001", "1000000000 5 6\n");
        thread("7000002", "500 5 6\n");
        seen.look(dir.path(), Duration::from_secs(10));
        assert_eq!(seen.busiest(), None, "no time has passed");
        thread("7000001", "1100000000 5 9\n");
        thread("7000002", "950000500 5 9\n");
        thread("7000003", "1 1 1\n");
        seen.look(dir.path(), Duration::from_secs(11));
        std::fs::remove_dir_all(dir.path().join("7000002")).unwrap();
        seen.look(dir.path(), Duration::from_secs(12));
        let busiest = seen.busiest().unwrap();
        assert_eq!((busiest.name.as_str(), busiest.share), ("io", Ratio(0.95)));
    }

    #[test]
    fn this_process_has_threads_with_a_share() {
        let threads = Threads::watch().unwrap();
        let begun = monotonic();
        let mut sum = 0_u64;
        while monotonic() - begun < SPAN_MIN * 3 / 2 {
            sum = std::hint::black_box(sum + 1);
        }
        let Some(busiest) = threads.busiest() else {
            println!("skipped: no schedstat on this kernel");
            return;
        };
        assert!(busiest.share.0 > 0.0, "{busiest:?} {sum}");
    }
}
