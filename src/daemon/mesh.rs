//! The mesh as this host sees it: the lists of peers, itself among them, and the schedule.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::plan::Plan;
use crate::base::network::Endpoint;
use crate::base::units::Seconds;
use crate::config::peer_files::PeerFiles;
use crate::config::peers::{PORT, same};
use crate::host::own_address::is_own;
use crate::model::peer::{MeshView, Peer, PeerSource};
use crate::schedule::roster::{Member, Roster};
use crate::schedule::slots::Slots;
use crate::schedule::tournament::{Timing, Tournament};

/// Members of all lists; more are left out.
const MEMBERS_MAX: usize = 1024;

/// Everything that follows from lists and configuration. Built whole, swapped whole.
#[derive(Debug)]
pub struct Mesh {
    /// By name, as the schedule counts them; this host among them.
    pub peers: Vec<Peer>,
    /// This host's name in the lists, where they have it.
    own: Option<String>,
    /// `None`: no probe goes to peers, or there is nobody to meet.
    pub tournament: Option<Tournament>,
    /// Sixteen digits of the list and the times.
    pub digest: String,
    /// Addresses of peers that are written as such: they may test with this host.
    addresses: Vec<IpAddr>,
    dropped: BTreeMap<&'static str, u64>,
}

impl Mesh {
    /// The lists of a plan and its files, as the host of this name sees them.
    pub fn new(plan: &Plan, files: &PeerFiles, host_name: &str) -> Self {
        let settings = plan.settings.peers.as_ref();
        let own_name = settings.and_then(|peers| peers.own_name.as_deref()).unwrap_or(host_name);
        let loopback = settings.is_some_and(|peers| peers.allow_same_kernel);
        let listed = settings.into_iter().flat_map(|peers| &peers.list);
        let listed = listed.chain(files.files().flat_map(|(_, file)| &file.peers));
        let mut lists =
            Lists { own_name, loopback, own: None, others: Vec::new(), dropped: no_drops() };
        for peer in listed {
            lists.take(peer);
        }
        let partners = settings.map_or(usize::MAX, |peers| peers.partners);
        Self::of(plan, lists, partners)
    }

    fn of(plan: &Plan, lists: Lists<'_>, partners: usize) -> Self {
        let Lists { own_name, own, others, mut dropped, .. } = lists;
        let listed = own.is_some();
        let own = own.unwrap_or_else(|| unlisted(own_name));
        let on_machine = |peer: &&Peer| peer.machine.is_some() && peer.machine == own.machine;
        dropped.insert("same_host", others.iter().filter(on_machine).count() as u64);
        let addresses = others.iter().filter_map(|peer| peer.endpoint.address()).collect();
        let name = own.name.clone();
        let mut peers = others;
        peers.push(own);
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        let member = |peer: &Peer| Member {
            name: peer.name.clone(),
            machine: peer.machine.clone(),
            passive: peer.passive,
        };
        let roster = Roster::new(peers.iter().map(member).collect(), partners);
        let me = roster.position(&name);
        let link = plan.link.as_ref().filter(|_| peers.len() > 1);
        let tournament = link.zip(me).map(|(link, me)| Tournament {
            timing: Timing::new(link.shape.time(), link.every, roster.machine_count()),
            me,
            roster,
        });
        let digest = tournament.as_ref().map_or(String::new(), |t| format!("{:016x}", t.digest()));
        let own = listed.then_some(name);
        Self { peers, own, tournament, digest, addresses, dropped }
    }

    /// A peer that is named by this very address.
    pub fn knows(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address.to_canonical())
    }

    /// Turns on a backend that all who probe share.
    ///
    /// # Errors
    /// Where this host is in no list, so that others don't know of it, or is one that doesn't probe.
    pub fn slots(&self) -> Result<Slots, String> {
        let own = self.own.as_ref().ok_or("this host is in no list of peers")?;
        let probing = self.peers.iter().filter(|peer| !peer.passive);
        Slots::new(probing.map(|peer| peer.name.as_str()), own)
    }

    /// How long other work has to wait that would take `run` and run into a test with a peer.
    pub fn keeps_waiting(&self, run: Seconds, wall: Duration) -> Option<Duration> {
        self.tournament.as_ref()?.keeps_waiting(run, wall)
    }

    /// What is published of it, but for the tests that were served.
    pub fn view(&self, plan: &Plan, files: &PeerFiles) -> MeshView {
        let own = plan.settings.peers.iter().filter(|peers| !peers.list.is_empty());
        let list = own.map(|peers| PeerSource {
            name: "list".into(),
            peers: peers.list.len(),
            read_at: None,
            failures: 0,
        });
        let files = files.files().map(|(path, file)| PeerSource {
            name: path.display().to_string().into(),
            peers: file.peers.len(),
            read_at: file.read_at,
            failures: file.failures,
        });
        let sources: Vec<_> = list.chain(files).collect();
        let dropped = if sources.is_empty() { BTreeMap::new() } else { self.dropped.clone() };
        let members = if self.tournament.is_some() { self.peers.len() } else { 0 };
        MeshView { digest: self.digest.as_str().into(), members, sources, dropped, served: None }
    }
}

fn no_drops() -> BTreeMap<&'static str, u64> {
    ["self", "duplicate", "same_host", "over_limit"].map(|reason| (reason, 0)).into()
}

/// This host, where no list names it: others name it so in theirs.
fn unlisted(name: &str) -> Peer {
    let endpoint = Endpoint { host: name.into(), port: PORT };
    Peer { name: name.into(), endpoint, machine: None, passive: false }
}

/// Entries of lists, sorted out.
struct Lists<'a> {
    own_name: &'a str,
    /// Peers may be on the loopback: for tests.
    loopback: bool,
    own: Option<Peer>,
    others: Vec<Peer>,
    dropped: BTreeMap<&'static str, u64>,
}

impl Lists<'_> {
    fn take(&mut self, peer: &Peer) {
        let known = self.others.iter().chain(&self.own).any(|other| same(other, peer));
        let reason = if known {
            "duplicate"
        } else if self.is_own(peer) {
            self.own.get_or_insert_with(|| peer.clone());
            "self"
        } else if self.others.len() + 1 >= MEMBERS_MAX {
            "over_limit"
        } else {
            return self.others.push(peer.clone());
        };
        *self.dropped.entry(reason).or_default() += 1;
    }

    fn is_own(&self, peer: &Peer) -> bool {
        let own = |address: IpAddr| is_own(address) && !(self.loopback && address.is_loopback());
        peer.name == self.own_name || peer.endpoint.address().is_some_and(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Moment;
    use crate::config::document::Document;
    use crate::config::settings::Settings;

    fn plan(text: &str) -> Plan {
        let document = Document::parse("f", text).unwrap();
        let settings = Settings::read(&document, &super::super::plan::kind_names()).unwrap();
        Plan::build(settings, &document, std::path::Path::new("/state")).unwrap()
    }

    fn mesh(peers: &str) -> Mesh {
        let plan = plan(&format!("peers: {peers}\n"));
        Mesh::new(&plan, &PeerFiles::default(), "me")
    }

    fn names(mesh: &Mesh) -> Vec<&str> {
        mesh.peers.iter().map(|peer| peer.name.as_str()).collect()
    }

    #[test]
    fn this_host_is_in_the_schedule_whether_it_is_listed_or_not() {
        let unlisted = mesh("{list: [a, z]}");
        assert_eq!(names(&unlisted), ["a", "me", "z"]);
        assert_eq!(unlisted.tournament.as_ref().unwrap().me, 1);
        let listed = mesh("{list: [a, me, z]}");
        assert_eq!((names(&listed), &listed.digest), (names(&unlisted), &unlisted.digest));
        assert_eq!(listed.dropped["self"], 1);
        let named = mesh("{self: z, list: [a, z]}");
        assert_eq!(named.tournament.as_ref().unwrap().me, 1);
        assert!(mesh("{list: [me]}").tournament.is_none(), "nobody to meet");
    }

    #[test]
    fn addresses_of_this_host_are_this_host() {
        let one = mesh("{list: ['127.0.0.1', '192.0.2.7']}");
        assert_eq!(one.tournament.as_ref().unwrap().me, 0);
        assert_eq!((names(&one), one.dropped["self"]), (vec!["127.0.0.1", "192.0.2.7"], 1));
        assert!(
            one.knows("192.0.2.7".parse().unwrap()) && !one.knows("192.0.2.8".parse().unwrap())
        );
        assert!(one.knows("::ffff:192.0.2.7".parse().unwrap()), "as a dual-stack listener sees it");
        let tests = mesh("{list: ['127.0.0.1'], allow_same_kernel: true}");
        assert_eq!(names(&tests), ["127.0.0.1", "me"]);
    }

    #[test]
    fn hosts_of_one_list_take_turns_on_what_they_share() {
        let slots = |own: &str| {
            let text = format!("{{self: {own}, list: [a, {{name: nas, passive: true}}, z]}}");
            mesh(&text).slots()
        };
        let by_hand = |own| Slots::new(["a", "z"], own);
        assert_eq!((slots("a"), slots("z")), (by_hand("a"), by_hand("z")));
        assert!(slots("a").is_ok() && slots("nas").is_err());
        assert!(slots("b").is_err(), "others don't know of it");
        assert!(mesh("{files: /no/such.yml}").slots().is_err(), "all slots would be its own");
    }

    #[test]
    fn guests_on_this_hosts_machine_are_no_peers() {
        let mesh = mesh("{list: [{name: me, host: hv}, {name: b, host: hv}, {name: c, host: x}]}");
        let tournament = mesh.tournament.as_ref().unwrap();
        assert_eq!(mesh.dropped["same_host"], 1);
        let intervals: Vec<_> = (0..3).map(|peer| tournament.interval(peer).is_some()).collect();
        assert_eq!((names(&mesh), intervals), (vec!["b", "c", "me"], vec![false, true, false]));
    }

    #[test]
    fn files_add_peers_and_a_peer_that_two_lists_name_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.json");
        std::fs::write(&file, r#"[{"targets": ["b", "c", "d:5201"]}]"#).unwrap();
        let text =
            format!("peers: {{list: [a, b, {{name: dd, address: d}}], files: {}}}", file.display());
        let plan = plan(&text);
        let files = PeerFiles::open(plan.settings.peers.as_ref(), Moment::default());
        let mesh = Mesh::new(&plan, &files, "me");
        assert_eq!((names(&mesh), mesh.dropped["duplicate"]), (vec!["a", "b", "c", "dd", "me"], 2));
        let view = mesh.view(&plan, &files);
        assert_eq!((view.members, view.sources.len(), view.sources[1].peers), (5, 2, 3));
    }

    #[test]
    fn the_times_are_part_of_what_hosts_agree_on() {
        let digest = |text: &str| Mesh::new(&plan(text), &PeerFiles::default(), "me").digest;
        let plain = digest("peers: {list: [a]}");
        assert_eq!(plain.len(), 16);
        let probe = "probes: [{name: x, kind: throughput, every: 6h}]\npeers: {list: [a]}";
        assert_ne!(digest(probe), plain);
        let none = plan("probes: []\npeers: {list: [a]}");
        let none = Mesh::new(&none, &PeerFiles::default(), "me");
        assert!(
            none.tournament.is_none() && none.keeps_waiting(Seconds(9.0), Duration::ZERO).is_none()
        );
    }
}
