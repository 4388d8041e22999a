//! Kernel threads on the way to the disks: encryption, arrays, softirqs. One of them at its end holds
//! a run back just as the run's own thread would.

use std::collections::BTreeMap;
use std::path::Path;

use crate::base::units::{Ratio, Seconds};
use crate::host::cpu::TICKS_PER_SECOND;
use crate::host::{block, roots};
use crate::model::outcome::ThreadUse;

/// `kthreadd`: the parent of every kernel thread.
const PARENT: &str = "2";
/// In a shorter time a tick of a hundredth is too coarse.
const SPAN_MIN: Seconds = Seconds(0.5);

/// CPU time of all kernel threads, in ticks, by their number: a worker of a queue is called after what
/// it does at the moment, and may come by a name that matters later.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Threads(BTreeMap<String, (String, u64)>);

impl Threads {
    /// None where /proc shows none of the host's: in a PID namespace, or under `hidepid`.
    pub(super) fn read(procfs: &Path) -> Self {
        let numbers = block::entries(procfs).into_iter();
        let numbers = numbers.filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
        let read = |number: String| {
            let stat = roots::attribute(&procfs.join(&number).join("stat"))?;
            Some((number, of_kernel(&stat)?))
        };
        Self(numbers.filter_map(read).collect())
    }

    pub(super) fn busiest_since(&self, before: &Self, elapsed: Seconds) -> Option<ThreadUse> {
        if elapsed < SPAN_MIN {
            return None;
        }
        let mattering = self.0.iter().filter(|(_, (name, _))| is_on_the_way(name));
        let shares = mattering.filter_map(|(number, (name, ticks))| {
            // One that is new began at nothing.
            let earlier = before.0.get(number).map_or(0, |(_, ticks)| *ticks);
            let used = ticks.saturating_sub(earlier) as f64 / TICKS_PER_SECOND;
            Some(ThreadUse { name: name.clone(), share: Ratio::of(used, elapsed.0)? })
        });
        shares.max_by(|a, b| a.share.0.total_cmp(&b.share.0))
    }
}

/// Name and CPU ticks of a kernel thread, from its line of /proc/PID/stat (proc(5)); `None` of a
/// process.
fn of_kernel(stat: &str) -> Option<(String, u64)> {
    let (name, rest) = (stat.split_once('(')?.1.rsplit_once(')')?.0, stat.rsplit_once(')')?.1);
    let mut fields = rest.split_ascii_whitespace();
    if fields.nth(1)? != PARENT {
        return None;
    }
    // utime and stime are fields 14 and 15; 5 is next.
    let user: u64 = fields.nth(9)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((name.to_owned(), user.saturating_add(system)))
}

/// Whether blocks of a disk may pass through it. A worker of a queue shows its queue: `kworker/u4:1-kcryptd/253:0` (kernel/workqueue.c,
/// wq_worker_comm).
fn is_on_the_way(name: &str) -> bool {
    let work = match name.strip_prefix("kworker/") {
        Some(worker) => worker.split_once(['-', '+']).map_or("", |(_, queue)| queue),
        None => name,
    };
    let numbered = |prefix: &str| {
        work.strip_prefix(prefix).is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
    };
    let named = ["kcryptd", "dmcrypt_", "ksoftirqd/", "kblockd", "nvme_tcp_wq", "nvme-tcp"];
    numbered("loop")
        || numbered("drbd")
        || numbered("rbd")
        || numbered("md") && work.contains("_raid")
        || named.iter().any(|prefix| work.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(name: &str, parent: u32, user: u64, system: u64) -> String {
        format!("77 ({name}) S {parent} 0 0 0 -1 69238880 0 0 0 0 {user} {system} 0 0 20 0 1 0 5\n")
    }

    #[test]
    fn threads_of_encryption_arrays_and_softirqs_matter() {
        for name in [
            "kworker/u4:1-kcryptd/253:0",
            "kworker/u4:3+kcryptd",
            "dmcrypt_write/253:0",
            "md0_raid6",
            "md127_raid10",
            "ksoftirqd/1",
            "loop7",
            "kworker/0:1H-kblockd",
        ] {
            assert_eq!(of_kernel(&line(name, 2, 3, 4)), Some((name.to_owned(), 7)), "{name}");
            assert!(is_on_the_way(name), "{name}");
        }
        for name in ["kworker/u4:1-events", "md", "kswapd0", "jbd2/vda1-8", "looper"] {
            assert!(!is_on_the_way(name), "{name}");
        }
        assert_eq!(of_kernel(&line("md0_raid6", 1, 3, 4)), None, "somebody's process by that name");
        assert_eq!(of_kernel(&line("a) S 2 (md0_raid6", 9, 3, 4)), None);
    }

    #[test]
    fn the_busiest_is_told_by_its_share_of_one_cpu() {
        let threads = |ticks: &[(&str, u64)]| {
            let one = |(number, ticks): &(&str, u64)| {
                ((*number).to_owned(), (format!("md{number}_raid5"), *ticks))
            };
            Threads(ticks.iter().map(one).collect())
        };
        let before = threads(&[("1", 1000), ("2", 50)]);
        let after = threads(&[("1", 1020), ("2", 240), ("3", 30)]);
        let busiest = after.busiest_since(&before, Seconds(2.0)).unwrap();
        assert_eq!((busiest.name.as_str(), busiest.share), ("md2_raid5", Ratio(0.95)));
        assert_eq!(after.busiest_since(&before, Seconds(0.1)), None);
        assert_eq!(threads(&[]).busiest_since(&before, Seconds(2.0)), None);
    }

    #[test]
    fn what_a_worker_did_before_it_came_to_a_queue_is_no_part_of_it() {
        let named = |name: &str, ticks| Threads([("9".into(), (name.into(), ticks))].into());
        let before = named("kworker/u8:3-events_unbound", 70_000);
        let busiest = named("kworker/u8:3-loop2", 70_004).busiest_since(&before, Seconds(2.0));
        assert_eq!(busiest.unwrap().share, Ratio(0.02));
    }

    proptest! {
        #[test]
        fn no_line_breaks_the_parser(text in ".{0,200}") {
            let _ = of_kernel(&text);
        }
    }
}
