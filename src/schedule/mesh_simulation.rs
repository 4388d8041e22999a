//! Meshes over ten thousand slots: clocks that differ, lists that differ, tests by hand. Whatever
//! hosts believe, none is ever in two tests; and where they agree, none finds another busy.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use super::roster::tests::member;
use super::roster::{Member, Roster};
use super::tournament::{GUARD, Meeting, Timing, Tournament};
use crate::base::units::Seconds;

const HOSTS: usize = 12;
const SLOTS: u64 = 10_000;
const RUN: Seconds = Seconds(20.0);
/// Real time of the first slot, in milliseconds.
const START: i64 = 1_800_000_000_000;

struct Host {
    own: Tournament,
    /// Its clock is ahead by so many milliseconds.
    skew: i64,
    /// In a test until then; the lock of the host.
    busy_until: i64,
    tests: Vec<(i64, i64)>,
}

struct Mesh {
    hosts: Vec<Host>,
    /// Hosts by name: lists count them differently.
    by_name: BTreeMap<String, usize>,
    /// The peer's one slot; without it lists and clocks alone would keep tests apart.
    admission: bool,
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    ran: u64,
    busy: u64,
    retried: u64,
    overlaps: u64,
}

impl Mesh {
    /// `lists`: what each host believes that there is. `every`: the interval of a pair.
    fn new(lists: &[Vec<Member>], every: Seconds, skew: impl FnMut(usize) -> i64) -> Self {
        let mut skew = skew;
        let host = |(host, list): (usize, &Vec<Member>)| {
            let roster = Roster::new(list.clone(), 16);
            let me = roster.position(&name(host)).unwrap();
            let timing = Timing::new(RUN, every, roster.machine_count());
            let own = Tournament { roster, me, timing };
            Host { own, skew: skew(host), busy_until: 0, tests: Vec::new() }
        };
        let hosts: Vec<Host> = lists.iter().enumerate().map(host).collect();
        let by_name = (0..hosts.len()).map(|host| (name(host), host)).collect();
        Self { hosts, by_name, admission: true, seen: Seen::default() }
    }

    /// Plays all slots in the order of real time, and looks at what every host was in.
    fn play(mut self) -> Seen {
        let mut due = BinaryHeap::new();
        for (host, Host { own, .. }) in self.hosts.iter().enumerate() {
            let first = own.slot(Duration::from_millis(START as u64));
            for meeting in (first..first + SLOTS).filter_map(|slot| own.meeting(slot)) {
                if meeting.is_client {
                    due.push(Reverse((self.real(host, meeting.begins), host, meeting.slot, true)));
                }
            }
        }
        while let Some(Reverse((now, host, slot, first))) = due.pop() {
            let Some(meeting) = self.hosts[host].own.meeting(slot) else { continue };
            if self.test(host, &meeting, now) {
                continue;
            }
            let wall = Duration::from_millis((now + self.hosts[host].skew) as u64);
            let again = self.hosts[host].own.again(&meeting, wall).filter(|_| first);
            match again {
                Some(at) => {
                    self.seen.retried += 1;
                    due.push(Reverse((self.real(host, at), host, slot, false)));
                }
                None => self.seen.busy += 1,
            }
        }
        self.seen.overlaps = self.hosts.iter().map(|host| overlaps(&host.tests)).sum();
        self.seen
    }

    fn real(&self, host: usize, wall: Duration) -> i64 {
        wall.as_millis() as i64 - self.hosts[host].skew
    }

    /// As client and server do: the own lock first, then the peer's; nobody waits.
    fn test(&mut self, client: usize, meeting: &Meeting, now: i64) -> bool {
        let peer = &self.hosts[client].own.roster.members()[meeting.peer].name;
        let Some(server) = self.by_name.get(peer).copied() else { return false };
        let free = |host: &Host| host.busy_until <= now;
        if self.admission && !(free(&self.hosts[client]) && free(&self.hosts[server])) {
            return false;
        }
        let ends = now + (RUN.0 * 1000.0) as i64;
        for end in [client, server] {
            self.hosts[end].busy_until = ends;
            self.hosts[end].tests.push((now, ends));
        }
        self.seen.ran += 1;
        true
    }
}

/// Tests that began before the one before had ended.
fn overlaps(tests: &[(i64, i64)]) -> u64 {
    let mut sorted = tests.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).filter(|pair| pair[1].0 < pair[0].1).count() as u64
}

fn name(host: usize) -> String {
    format!("host{host:02}")
}

fn all() -> Vec<Member> {
    (0..HOSTS).map(|host| member(name(host))).collect()
}

/// Lists of which some lack one member, never the own.
fn differing(rng: &mut fastrand::Rng, share: f64) -> Vec<Vec<Member>> {
    let mut list = |host: usize| {
        let mut list = all();
        if rng.f64() < share {
            let missing = (host + 1 + rng.usize(..HOSTS - 1)) % HOSTS;
            list.remove(missing);
        }
        list
    };
    (0..HOSTS).map(&mut list).collect()
}

fn seeds() -> impl Iterator<Item = (u64, fastrand::Rng)> {
    (0..3).map(|n| {
        let seed = 0x10ad_11e0 + n;
        println!("seed {seed:#x}");
        (seed, fastrand::Rng::with_seed(seed))
    })
}

fn within(rng: &mut fastrand::Rng, most: Duration) -> i64 {
    let most = most.as_millis() as i64;
    rng.i64(-most..=most)
}

#[test]
fn hosts_that_agree_never_find_another_busy_though_clocks_differ_by_the_guard() {
    for (seed, mut rng) in seeds() {
        for admission in [true, false] {
            let lists = vec![all(); HOSTS];
            let mesh = Mesh::new(&lists, Seconds(1.0), |_| within(&mut rng, GUARD / 2));
            let seen = Mesh { admission, ..mesh }.play();
            let right = Seen { ran: SLOTS * (HOSTS as u64 / 2), ..Seen::default() };
            assert_eq!(seen, right, "seed {seed:#x}, admission {admission}");
        }
    }
}

#[test]
fn whatever_clocks_and_lists_say_no_host_is_ever_in_two_tests() {
    for (seed, mut rng) in seeds() {
        for (share, skew) in [(0.0, 10), (0.5, 0), (1.0, 3), (1.0, 600)] {
            for every in [1.0, 11.0 * 120.0] {
                let lists = differing(&mut rng, share);
                let skew = Duration::from_secs(skew);
                let mesh = Mesh::new(&lists, Seconds(every), |_| within(&mut rng, skew));
                let seen = mesh.play();
                assert_eq!(seen.overlaps, 0, "seed {seed:#x}, {share}, {skew:?}: {seen:?}");
                let share = seen.ran as f64 / (seen.ran + seen.busy) as f64;
                assert!(share > 0.4, "seed {seed:#x}, {share}, {skew:?}: {seen:?}");
            }
        }
    }
}

#[test]
fn without_the_one_slot_of_each_host_such_tests_would_meet() {
    for (seed, mut rng) in seeds() {
        let lists = differing(&mut rng, 0.5);
        let mesh = Mesh::new(&lists, Seconds(1.0), |_| 0);
        let seen = Mesh { admission: false, ..mesh }.play();
        assert!(seen.overlaps > SLOTS / 10, "seed {seed:#x}: {seen:?}");
    }
}

#[test]
fn where_there_is_time_a_second_try_saves_tests_that_met_a_busy_peer() {
    for (seed, mut rng) in seeds() {
        let lists = differing(&mut rng, 0.5);
        let seen = Mesh::new(&lists, Seconds(11.0 * 120.0), |_| 0).play();
        assert!(seen.retried > 1000, "seed {seed:#x}: {seen:?}");
        assert!(seen.busy * 4 < seen.retried * 3, "seed {seed:#x}: {seen:?}");
    }
}
