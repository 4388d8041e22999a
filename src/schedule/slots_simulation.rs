//! Hosts that share a backend, over ten thousand slots: clocks that differ, runs of any length that
//! become due at any time. No two are ever on the backend at once.

use std::time::Duration;

use super::slots::{SLACK, SLOT, Slots};
use super::tournament::EPOCH;
use crate::base::clock::Moment;
use crate::base::units::Seconds;

const HOSTS: usize = 12;
const SLOTS: u32 = 10_000;
/// Real time of the first slot.
const START: Duration = Duration::from_secs(1_800_000_000);

/// A run of one host, in real time.
type Run = (Duration, Duration, usize);

/// All runs of all hosts, each of which is due again within a cycle of the last.
fn play(rng: &mut fastrand::Rng, skew_max: Duration) -> Vec<Run> {
    let names: Vec<String> = (0..HOSTS).map(|host| format!("host{host:02}")).collect();
    let mut runs = Vec::new();
    for host in 0..HOSTS {
        let mut list: Vec<&str> = names.iter().map(String::as_str).collect();
        rng.shuffle(&mut list);
        let slots = Slots::new(list, &names[host]).unwrap();
        // Its clock is ahead by so much of what the slowest one shows.
        let skew = skew_max.mul_f64(rng.f64());
        let mut now = START;
        while now < START + SLOT * SLOTS {
            let run = Seconds(0.5 + rng.f64() * (Slots::run_max().0 - 0.5));
            let wall = Moment { wall: now + skew, ..Moment::default() };
            let begins = now + slots.wait(run, wall).unwrap_or_default();
            let ends = begins + run.duration();
            runs.push((begins, ends, host));
            now = ends + (SLOT * HOSTS as u32).mul_f64(rng.f64());
        }
    }
    runs.sort_unstable();
    runs
}

fn overlaps(runs: &[Run]) -> usize {
    runs.windows(2).filter(|pair| pair[1].0 < pair[0].1 && pair[1].2 != pair[0].2).count()
}

fn seeds() -> impl Iterator<Item = (u64, fastrand::Rng)> {
    (0..3).map(|n| {
        let seed = 0x5107_0000 + n;
        println!("seed {seed:#x}");
        (seed, fastrand::Rng::with_seed(seed))
    })
}

#[test]
fn no_two_hosts_are_on_a_shared_backend_at_once_though_clocks_differ() {
    assert!(EPOCH < START);
    for (seed, mut rng) in seeds() {
        for skew_max in [Duration::ZERO, SLACK, SLACK * 2] {
            let runs = play(&mut rng, skew_max);
            assert_eq!(overlaps(&runs), 0, "seed {seed:#x}, {skew_max:?}");
            for host in 0..HOSTS {
                let own = runs.iter().filter(|run| run.2 == host).count();
                assert!(
                    own > SLOTS as usize / HOSTS / 3,
                    "seed {seed:#x}: host {host} ran {own} x"
                );
            }
        }
    }
}

#[test]
fn clocks_that_differ_by_more_than_the_slack_would_let_them_meet() {
    for (seed, mut rng) in seeds() {
        let met = overlaps(&play(&mut rng, SLOT));
        assert!(met > 100, "seed {seed:#x}: {met}");
    }
}
