//! Peers that test with this host: who is admitted, and the turn that they share with its own probes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::board::Board;
use crate::base::fault::Fault;
use crate::base::network::Network;
use crate::iperf::server::{Admit, Limits, Server};
use crate::model::link::{LinkIdentity, LinkReason};
use crate::model::snapshot::HostFacts;
use crate::schedule::turn::Turn;
use crate::web;

/// Admits listed peers, one at a time and only while no probe runs on this host.
#[derive(Clone)]
pub struct Peers {
    pub allow: Vec<Network>,
    pub turn_places: Vec<PathBuf>,
    /// More of them, as long as the daemon has them in its plan; `None` by hand.
    pub(super) known: Option<Known>,
}

/// What the daemon knows of peers now.
#[derive(Clone)]
pub(super) struct Known {
    board: Arc<Board>,
    boot_id: String,
}

impl Admit for Peers {
    fn knows(&self, peer: IpAddr) -> bool {
        let within = |allow: &[Network]| allow.iter().any(|network| network.contains(peer));
        within(&self.allow)
            || self.known.as_ref().is_some_and(|known| {
                let shared = known.board.lock();
                let settings = shared.plan.as_ref().and_then(|plan| plan.settings.peers.as_ref());
                settings.is_some_and(|peers| within(&peers.allow))
                    || shared.mesh.as_ref().is_some_and(|mesh| mesh.knows(peer))
            })
    }

    fn turn(&self) -> Option<Box<dyn Send>> {
        match Turn::try_take(&self.turn_places) {
            Ok(Turn::Mine(turn)) => Some(Box::new(turn)),
            Ok(Turn::Theirs(_)) => None,
            Err(fault) => {
                tracing::error!("no peer can test with this host: {fault}");
                None
            }
        }
    }

    fn identity(&self) -> Option<LinkIdentity> {
        let Known { board, boot_id } = self.known.as_ref()?;
        let list_digest =
            board.lock().mesh.as_ref().map_or(String::new(), |mesh| mesh.digest.clone());
        Some(LinkIdentity { boot_id: boot_id.clone(), list_digest })
    }
}

impl Peers {
    /// Admits these, by hand.
    pub fn new(allow: Vec<Network>, turn_places: Vec<PathBuf>) -> Self {
        Self { allow, turn_places, known: None }
    }

    /// Serves them at `address` until the server is dropped; `option` is where another can be
    /// chosen.
    ///
    /// # Errors
    /// Where the port is taken or the address isn't this host's, or where there is no thread left.
    pub fn serve(self, (address, option): (&str, &str)) -> Result<Server, Fault> {
        let listener = web::listen::bind(address, option)?;
        Server::start(listener, Arc::new(self), Limits::default())
    }
}

/// Serves the peers of the plan in force, if any, until dropped.
///
/// # Errors
/// As [`Peers::serve`].
pub(super) fn start(
    board: &Arc<Board>,
    host: &HostFacts,
    turn_places: Vec<PathBuf>,
) -> Result<Option<Server>, Fault> {
    let plan = board.lock().plan.clone();
    let settings = plan.as_ref().and_then(|plan| plan.settings.peers.as_ref());
    let Some(listen) = settings.and_then(|peers| peers.listen.as_ref()) else { return Ok(None) };
    let known = Known { board: Arc::clone(board), boot_id: host.boot_id.clone() };
    let peers = Peers { allow: Vec::new(), turn_places, known: Some(known) };
    let server = peers.serve((listen, "`peers.listen`"))?;
    tracing::info!(listen, "peers may test the way to this host");
    Ok(Some(server))
}

/// How tests of this host ended so far, by label.
pub(super) fn served(server: &Server) -> BTreeMap<&'static str, u64> {
    let counts = server.counts();
    let of = |result: Option<LinkReason>| {
        let label = result.map_or("ok", LinkReason::label);
        (label, counts.get(&result).copied().unwrap_or(0))
    };
    let failures = LinkReason::FAILURES.map(Some);
    [None, Some(LinkReason::Stopped)].into_iter().chain(failures).map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_probe_of_this_host_and_a_peers_test_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let peers = Peers::new(Vec::new(), vec![dir.path().to_path_buf()]);
        let own = Turn::try_take(&peers.turn_places).unwrap();
        assert!(matches!(own, Turn::Mine(_)) && peers.turn().is_none());
        drop(own);
        let theirs = peers.turn();
        assert!(theirs.is_some());
        assert!(matches!(Turn::try_take(&peers.turn_places).unwrap(), Turn::Theirs(_)));
    }

    #[test]
    fn only_listed_peers_are_known() {
        let allow = vec!["10.0.0.0/24".parse().unwrap()];
        let peers = Peers::new(allow, Vec::new());
        let knows = |address: &str| peers.knows(address.parse().unwrap());
        assert!(knows("10.0.0.7") && !knows("10.0.1.7") && !knows("::1"));
    }

    #[test]
    fn a_taken_port_says_whose_it_is_and_where_to_choose_another() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let peers = Peers::new(Vec::new(), Vec::new());
        let fault = peers.serve((&address, "`peers.listen`")).err().unwrap();
        assert!(fault.text.contains(&format!("pid {}", std::process::id())), "{fault}");
        assert!(fault.text.ends_with("; choose another with `peers.listen`"), "{fault}");
    }

    #[test]
    fn nobody_listens_until_it_is_asked_for() {
        let (board, host) = (Arc::new(Board::default()), HostFacts::default());
        assert!(start(&board, &host, Vec::new()).unwrap().is_none());
    }
}
