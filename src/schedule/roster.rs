//! Who is in the mesh, in an order that all hosts agree on, and which pairs are tested at all.

use crate::base::units::Seconds;

/// Version of everything that goes into a digest: of the order, the pairing and the times.
const VERSION: u64 = 1;

/// One host of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    /// Members of one machine share its links, and its place in the schedule.
    pub machine: Option<String>,
    /// Is tested, and never tests.
    pub passive: bool,
}

/// All members. They meet as machines: of each the members take turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Roster {
    /// By name, each once.
    members: Vec<Member>,
    hashes: Vec<u64>,
    /// Indexes of members, by machine.
    machines: Vec<Vec<usize>>,
    /// Machine of each member.
    machine_of: Vec<usize>,
    /// So many peers each member picks where there are more.
    partners: usize,
}

impl Roster {
    /// Of the members of one name the first stays.
    pub fn new(mut members: Vec<Member>, partners: usize) -> Self {
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members.dedup_by(|second, first| second.name == first.name);
        let key = |member: &Member| match &member.machine {
            Some(machine) => (0, machine.clone()),
            None => (1, member.name.clone()),
        };
        let mut keys: Vec<_> = members.iter().map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        let place = |member| keys.binary_search(&key(member)).unwrap_or_default();
        let machine_of: Vec<usize> = members.iter().map(place).collect();
        let mut machines = vec![Vec::new(); keys.len()];
        for (member, machine) in machine_of.iter().enumerate() {
            machines[*machine].push(member);
        }
        let hashes = members.iter().map(|member| hash(member.name.as_bytes())).collect();
        Self { members, hashes, machines, machine_of, partners }
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.members.binary_search_by(|member| member.name.as_str().cmp(name)).ok()
    }

    pub fn machine_count(&self) -> usize {
        self.machines.len()
    }

    /// Members of each machine.
    pub(super) fn machines(&self) -> &[Vec<usize>] {
        &self.machines
    }

    pub(super) fn machine_of(&self, member: usize) -> usize {
        self.machine_of.get(member).copied().unwrap_or_default()
    }

    /// Whether two members test each other: never on one machine, and in a large mesh where at
    /// least one of them picks the other.
    pub fn pairs(&self, a: usize, b: usize) -> bool {
        let (Some(one), Some(other)) = (self.members.get(a), self.members.get(b)) else {
            return false;
        };
        let apart = self.machine_of(a) != self.machine_of(b) && !(one.passive && other.passive);
        apart && (self.picks(a, b) || self.picks(b, a))
    }

    /// Rendezvous hashing: a member picks the peers of the largest hashes of the pair, so that a
    /// member that comes or goes changes few pairs.
    fn picks(&self, a: usize, b: usize) -> bool {
        let others = self.members.len().saturating_sub(self.machines[self.machine_of(a)].len());
        if others <= self.partners {
            return true;
        }
        let weight =
            |c: usize| mix(self.hashes[a].min(self.hashes[c]), self.hashes[a].max(self.hashes[c]));
        let own = (weight(b), b);
        let before = (0..self.members.len())
            .filter(|c| self.machine_of(*c) != self.machine_of(a) && (weight(*c), *c) > own)
            .count();
        before < self.partners
    }

    /// Equal on two hosts where they have the same list and count time alike.
    pub fn digest(&self, period: Seconds, length: Seconds) -> u64 {
        let ms = |seconds: Seconds| seconds.duration().as_millis() as u64;
        let numbers = [VERSION, self.partners as u64, ms(period), ms(length)];
        self.members.iter().zip(&self.hashes).fold(
            numbers.into_iter().fold(0, mix),
            |digest, (member, name)| {
                let machine = member.machine.as_ref().map_or(0, |machine| hash(machine.as_bytes()));
                mix(mix(mix(digest, *name), machine), u64::from(member.passive))
            },
        )
    }
}

/// FNV-1a: the same on every host and in every version.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Two numbers into one, of which every bit hangs on every bit of both (splitmix64).
pub(super) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(32).wrapping_add(b).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn member(name: impl Into<String>) -> Member {
        Member { name: name.into(), machine: None, passive: false }
    }

    fn of(n: usize, partners: usize) -> Roster {
        Roster::new((0..n).map(|i| member(format!("host{i:03}"))).collect(), partners)
    }

    #[test]
    fn a_list_in_any_order_is_one_list() {
        let names = ["c", "a", "b", "a"];
        let one = Roster::new(names.map(member).into(), 16);
        let other = Roster::new(["a", "b", "c"].map(member).into(), 16);
        let digest = |roster: &Roster| roster.digest(Seconds(60.0), Seconds(20.0));
        assert_eq!(digest(&one), digest(&other));
        assert_eq!((one.members().len(), one.position("b"), one.position("x")), (3, Some(1), None));
        let mut longer = ["a", "b", "c"].map(member);
        longer[1].passive = true;
        assert_ne!(digest(&one), digest(&Roster::new(longer.into(), 16)));
        assert_ne!(digest(&one), one.digest(Seconds(61.0), Seconds(20.0)));
    }

    #[test]
    fn guests_of_one_machine_are_no_pair() {
        let on = |name, machine: &str| Member { machine: Some(machine.into()), ..member(name) };
        let roster = Roster::new(vec![on("a", "hv1"), on("b", "hv1"), on("c", "hv2")], 16);
        assert!(!roster.pairs(0, 1) && roster.pairs(0, 2) && roster.pairs(1, 2));
        assert!(!roster.pairs(0, 0) && !roster.pairs(0, 9));
    }

    #[test]
    fn in_a_large_mesh_each_has_its_number_of_peers_and_few_more() {
        let roster = of(100, 8);
        for a in 0..100 {
            let pairs = (0..100).filter(|b| roster.pairs(a, *b)).count();
            assert!((8..=30).contains(&pairs), "{a} has {pairs}");
        }
        assert_eq!((0..100).filter(|b| of(100, 99).pairs(3, *b)).count(), 99);
    }

    proptest! {
        #[test]
        fn pairs_are_mutual(n in 1..40_usize, partners in 1..10_usize, a in 0..40_usize, b in 0..40_usize) {
            let roster = of(n, partners);
            prop_assert_eq!(roster.pairs(a, b), roster.pairs(b, a));
        }

        #[test]
        fn one_who_leaves_changes_no_pair_of_those_that_had_room(gone in 0..30_usize) {
            let (all, partners) = (of(30, 6), 6);
            let rest: Vec<_> =
                all.members().iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, m)| m.clone()).collect();
            let rest = Roster::new(rest, partners);
            let place = |i: usize| rest.position(&all.members()[i].name);
            for a in 0..30 {
                for b in 0..30 {
                    if let (Some(x), Some(y)) = (place(a), place(b)) {
                        prop_assert!(!all.pairs(a, b) || rest.pairs(x, y), "pairs only join");
                    }
                }
            }
        }
    }
}
