//! Who tests with whom and when: a round-robin tournament on wall-clock slots that every host works
//! out for itself, without a coordinator (the circle method in closed form).
//!
//! Each machine is in at most one test per slot, and each pair of machines meets once in a cycle.
//! Clocks that differ by less than half the guard do no harm; whatever else goes wrong, lists that
//! differ above all, ends at the peer's one slot: it is busy.

use std::time::Duration;

use super::roster::{Roster, mix};
use crate::base::units::Seconds;

/// Left free at the end of a slot.
pub const GUARD: Duration = Duration::from_secs(4);
/// Tests begin so much later at most than their slot, each at its own moment.
const JITTER: Duration = Duration::from_secs(2);

/// Where slots are counted from, after 1970: not on the hour, when everybody's jobs begin.
pub(super) const EPOCH: Duration = Duration::from_secs(2243);

/// The times of a schedule, the same on every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From one slot to the next.
    pub period: Duration,
    /// What a slot has to hold: a test, with its jitter before and the guard behind it.
    pub length: Duration,
}

impl Timing {
    /// For tests that take `run`; each pair of so many machines meets once in `every`, or as often
    /// as there is time for.
    pub fn new(run: Seconds, every: Seconds, machines: usize) -> Self {
        let length = run.duration() + JITTER + GUARD;
        let length = Duration::from_secs(length.as_secs() + u64::from(length.subsec_nanos() > 0));
        let share = every.duration() / u32::try_from(rounds(machines as u64).max(1)).unwrap_or(1);
        let share = Duration::from_millis(u64::try_from(share.as_millis()).unwrap_or(u64::MAX));
        Self { period: share.max(length), length }
    }
}

/// A test in a slot, as one of its two ends sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    pub slot: u64,
    /// The other member.
    pub peer: usize,
    /// This host makes the test; else it is tested.
    pub is_client: bool,
    /// Wall-clock time of the start of the slot, of the test, and of the next slot.
    pub slot_begins: Duration,
    pub begins: Duration,
    pub slot_ends: Duration,
}

/// The schedule of one member.
#[derive(Clone, Debug, PartialEq)]
pub struct Tournament {
    pub roster: Roster,
    pub me: usize,
    pub timing: Timing,
}

impl Tournament {
    /// Equal on hosts that keep one schedule.
    pub fn digest(&self) -> u64 {
        self.roster.digest(self.timing.period.into(), self.timing.length.into())
    }

    /// The slot that is now.
    pub fn slot(&self, wall: Duration) -> u64 {
        let slot = wall.saturating_sub(EPOCH).as_nanos() / self.timing.period.as_nanos().max(1);
        u64::try_from(slot).unwrap_or(u64::MAX)
    }

    /// This member's test in a slot; `None`: it rests.
    pub fn meeting(&self, slot: u64) -> Option<Meeting> {
        let (client, server) = self.encounter(slot)?;
        if !self.roster.pairs(client, server) {
            return None;
        }
        let is_client = client == self.me;
        let begins = u32::try_from(slot).unwrap_or(u32::MAX);
        let slot_begins = self.timing.period.saturating_mul(begins).saturating_add(EPOCH);
        Some(Meeting {
            slot,
            peer: if is_client { server } else { client },
            is_client,
            slot_begins,
            begins: slot_begins + JITTER.mul_f64(share(slot, client, 0)),
            slot_ends: slot_begins + self.timing.period,
        })
    }

    /// Client and server of the test that the circle gives this member, whether they pair or not.
    fn encounter(&self, slot: u64) -> Option<(usize, usize)> {
        let machines = self.roster.machines();
        let mine = self.roster.machine_of(self.me) as u64;
        let n = machines.len() as u64;
        let theirs = opponent(n, mine, slot)?;
        let [lower, higher] =
            [mine.min(theirs), mine.max(theirs)].map(|at| machines.get(at as usize));
        let (lower, higher) = (lower?, higher?);
        // In each cycle another two of their members, and then with the roles changed.
        let cycle = slot / rounds(n);
        let (a, b) = (lower.len() as u64, higher.len() as u64);
        let one = *lower.get((cycle % a) as usize)?;
        let other = *higher.get((cycle / a % b) as usize)?;
        let swapped = cycle / (a * b) % 2 == 1;
        let (client, server) = if swapped { (other, one) } else { (one, other) };
        let ends = match self.roster.members().get(client)?.passive {
            true => (server, client),
            false => (client, server),
        };
        (ends.0 == self.me || ends.1 == self.me).then_some(ends)
    }

    /// The next test that begins at `wall` or later; with `peer`, and made by this host, where one
    /// is named.
    pub fn next(&self, wall: Duration, peer: Option<usize>) -> Option<Meeting> {
        let machines = self.roster.machines();
        let most = machines.iter().map(Vec::len).max().unwrap_or(1) as u64;
        let cycles = (most * most * 2 + 1).min(CYCLES_MAX);
        let first = self.slot(wall);
        let slots = first..=first.saturating_add(rounds(machines.len() as u64) * cycles);
        let asked =
            |slot: &u64| peer.is_none_or(|peer| self.encounter(*slot) == Some((self.me, peer)));
        let mut meetings = slots.filter(asked).filter_map(|slot| self.meeting(slot));
        meetings.find(|meeting| meeting.begins >= wall)
    }

    /// From one test that this host makes with a peer to the next; `None` where it makes none.
    pub fn interval(&self, peer: usize) -> Option<Seconds> {
        let members = self.roster.members();
        let (me, other) = (members.get(self.me)?, members.get(peer)?);
        if me.passive || !self.roster.pairs(self.me, peer) {
            return None;
        }
        let machines = self.roster.machines();
        let size = |member| machines.get(self.roster.machine_of(member)).map_or(1, Vec::len);
        let cycles = size(self.me) * size(peer) * if other.passive { 1 } else { 2 };
        let cycle = self.timing.period.as_secs_f64() * rounds(machines.len() as u64) as f64;
        Some(Seconds(cycle * cycles as f64))
    }

    /// When to try once more in the same slot after a try that ended at `wall`, if there is room:
    /// after about the time of a test, since one is on.
    pub fn again(&self, meeting: &Meeting, wall: Duration) -> Option<Duration> {
        let wait = self.timing.length.mul_f64(0.5 + 0.5 * share(meeting.slot, self.me, 1));
        let room = meeting.slot_ends.checked_sub(self.timing.length.saturating_sub(JITTER))?;
        (wall + wait <= room).then_some(wall + wait)
    }

    /// How long other work has to wait that would take `run` and run into a test; nothing where it
    /// doesn't, or where the time between tests never holds it.
    pub fn keeps_waiting(&self, run: Seconds, wall: Duration) -> Option<Duration> {
        let run = run.duration();
        if self.timing.length + run > self.timing.period {
            return None;
        }
        let now = self.slot(wall);
        [now, now.saturating_add(1)].into_iter().filter_map(|slot| self.meeting(slot)).find_map(
            |meeting| {
                let ends = meeting.slot_begins + self.timing.length;
                let meets = wall < ends && wall + run > meeting.slot_begins.saturating_sub(EARLY);
                meets.then(|| ends - wall)
            },
        )
    }
}

/// A peer whose clock is ahead comes early.
const EARLY: Duration = Duration::from_secs(2);
/// Cycles that are looked ahead; machines of many guests have more.
const CYCLES_MAX: u64 = 64;

/// Rounds of a cycle: every pair of `n` meets once.
pub fn rounds(n: u64) -> u64 {
    if n.is_multiple_of(2) { n.saturating_sub(1) } else { n }.max(1)
}

/// The opponent of `i` of `n` in a round; `None`: nobody.
fn opponent(n: u64, i: u64, slot: u64) -> Option<u64> {
    if n < 2 || i >= n {
        return None;
    }
    let m = rounds(n);
    let round = slot % m;
    if n.is_multiple_of(2) && i == n - 1 {
        // The one that would play itself: 2 x = round (mod m), and m is odd.
        return Some(round * m.div_ceil(2) % m);
    }
    let j = (round + m - i % m) % m;
    match (j == i, n.is_multiple_of(2)) {
        (false, _) => Some(j),
        (true, true) => Some(n - 1),
        (true, false) => None,
    }
}

/// A share in [0, 1) that both ends know.
fn share(slot: u64, member: usize, salt: u64) -> f64 {
    (mix(mix(slot, member as u64), salt) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::roster::Member;
    use super::super::roster::tests::member;
    use super::*;

    fn mesh(members: Vec<Member>, every: f64) -> Vec<Tournament> {
        let roster = Roster::new(members, 16);
        let timing = Timing::new(Seconds(20.0), Seconds(every), roster.machines().len());
        let one = |me| Tournament { roster: roster.clone(), me, timing };
        (0..roster.members().len()).map(one).collect()
    }

    fn plain(n: usize) -> Vec<Member> {
        (0..n).map(|i| member(format!("h{i:02}"))).collect()
    }

    #[test]
    fn every_pair_meets_once_a_cycle_and_nobody_twice_at_once() {
        for n in 1..=64_u64 {
            let mut met = BTreeMap::new();
            for slot in 0..rounds(n) {
                for i in 0..n {
                    let Some(j) = opponent(n, i, slot) else { continue };
                    assert!(j != i && j < n, "{n}: {i} meets {j}");
                    assert_eq!(opponent(n, j, slot), Some(i), "{n}: both know it");
                    *met.entry((i.min(j), i.max(j))).or_insert(0) += 1;
                }
            }
            assert_eq!(met.len() as u64, n * (n - 1) / 2);
            assert!(met.values().all(|times| *times == 2), "once, as seen by either end");
        }
    }

    /// Every test of each slot, as (client, server).
    fn played(mesh: &[Tournament], slots: u64) -> BTreeMap<(usize, usize), u64> {
        let mut played = BTreeMap::new();
        for slot in 0..slots {
            let mut busy = vec![false; mesh.len()];
            for own in mesh {
                let Some(meeting) = own.meeting(slot) else { continue };
                let theirs = mesh[meeting.peer].meeting(slot).unwrap();
                assert_eq!((theirs.peer, theirs.is_client), (own.me, !meeting.is_client));
                assert_eq!(theirs.begins, meeting.begins, "both know the jitter");
                assert!(!std::mem::replace(&mut busy[own.me], true));
                if meeting.is_client {
                    *played.entry((own.me, meeting.peer)).or_insert(0) += 1;
                }
            }
        }
        played
    }

    #[test]
    fn within_two_cycles_each_end_of_a_pair_makes_its_test() {
        for n in [2, 5, 8] {
            let played = played(&mesh(plain(n), 3600.0), 2 * rounds(n as u64));
            assert_eq!(played.len(), n * (n - 1));
            assert!(played.values().all(|times| *times == 1));
        }
    }

    #[test]
    fn a_passive_member_is_tested_by_everybody_and_tests_nobody() {
        let mut members = plain(5);
        members[0].passive = true;
        members[3].passive = true;
        let played = played(&mesh(members, 3600.0), 10);
        assert!(played.keys().all(|(client, _)| ![0, 3].contains(client)));
        assert!(!played.contains_key(&(0, 3)) && played[&(1, 0)] == 2, "{played:?}");
    }

    #[test]
    fn guests_share_the_slots_of_their_machine_and_all_pairs_come_round() {
        let mut members = plain(5);
        for guest in [0, 1, 2] {
            members[guest].machine = Some("hv".into());
        }
        let mesh = mesh(members, 3600.0);
        let rounds = rounds(3);
        for slot in 0..rounds * 6 {
            let guests = (0..3).filter(|me| mesh[*me].meeting(slot).is_some()).count();
            assert!(guests <= 1, "one of the machine's guests at a time");
        }
        let played = played(&mesh, rounds * 6);
        for guest in 0..3 {
            assert!(played.contains_key(&(guest, 3)) && played.contains_key(&(4, guest)));
        }
        assert!(!played.contains_key(&(0, 1)));
        assert_eq!(mesh[0].interval(3), Some(Seconds(3600.0 * 6.0)));
        assert_eq!((mesh[0].interval(1), mesh[3].interval(4)), (None, Some(Seconds(7200.0))));
    }

    #[test]
    fn a_slot_holds_a_test_with_its_guard_however_many_hosts_there_are() {
        let timing = |run, every, n| Timing::new(Seconds(run), Seconds(every), n);
        let daily = timing(14.2, 86_400.0, 4);
        assert_eq!((daily.length.as_secs(), daily.period.as_secs()), (21, 28_800));
        let crowded = timing(14.2, 60.0, 40);
        assert_eq!(crowded.period, crowded.length);
    }

    #[test]
    fn a_second_try_comes_once_and_ends_before_the_slot() {
        let own = &mesh(plain(2), 120.0)[0];
        let meeting = own.next(Duration::from_secs(1_000_000), None).unwrap();
        let again = own.again(&meeting, meeting.begins).unwrap();
        assert!(again > meeting.begins && again + Duration::from_secs(24) <= meeting.slot_ends);
        assert_eq!(own.again(&meeting, meeting.slot_ends - Duration::from_secs(30)), None);
        let crowded = &mesh(plain(2), 10.0)[0];
        let meeting = crowded.next(Duration::from_secs(1_000_000), None).unwrap();
        assert_eq!(crowded.again(&meeting, meeting.begins), None, "no room");
    }

    #[test]
    fn other_work_waits_for_a_test_that_it_would_run_into() {
        let own = &mesh(plain(2), 600.0)[0];
        let slot = own.slot(Duration::from_secs(1_000_000)) + 1;
        let begins = own.meeting(slot).unwrap().slot_begins;
        let waits = |before: u64, run| {
            own.keeps_waiting(Seconds(run), begins - Duration::from_secs(before))
        };
        assert_eq!(waits(120, 60.0), None);
        assert_eq!(waits(60, 60.0), Some(Duration::from_secs(60) + own.timing.length));
        assert_eq!(waits(0, 60.0), Some(own.timing.length));
        assert_eq!(waits(60, 590.0), None, "it would never run");
    }

    #[test]
    fn the_next_test_is_found_in_the_list_of_slots() {
        let own = &mesh(plain(4), 3600.0)[1];
        let wall = Duration::from_secs(1_800_000_000);
        let next = own.next(wall, None).unwrap();
        assert_eq!(own.meeting(next.slot), Some(next));
        assert!(next.begins >= wall && next.begins < wall + own.timing.period * 2);
        for peer in [0, 2, 3] {
            let made = own.next(wall, Some(peer)).unwrap();
            assert!(made.is_client && made.peer == peer);
        }
        assert_eq!(mesh(plain(1), 60.0)[0].next(wall, None), None, "alone");
    }
}
