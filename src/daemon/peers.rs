//! Peers that test with this host: who is admitted, and the turn that they share with its own probes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::fault::Fault;
use crate::base::network::Network;
use crate::config::settings::Settings;
use crate::iperf::server::{Admit, Limits, Server};
use crate::model::link::LinkIdentity;
use crate::model::snapshot::HostFacts;
use crate::schedule::turn::Turn;
use crate::web;

/// Admits listed peers, one at a time and only while no probe runs on this host.
#[derive(Clone, Debug)]
pub struct Peers {
    pub allow: Vec<Network>,
    pub turn_places: Vec<PathBuf>,
}

impl Admit for Peers {
    fn knows(&self, peer: IpAddr) -> bool {
        self.allow.iter().any(|network| network.contains(peer))
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
}

impl Peers {
    /// Serves them at `address` until the server is dropped; `option` is where another can be
    /// chosen.
    ///
    /// # Errors
    /// Where the port is taken or the address isn't this host's, or where there is no thread left.
    pub fn serve(
        self,
        (address, option): (&str, &str),
        identity: Option<LinkIdentity>,
    ) -> Result<Server, Fault> {
        let listener = web::listen::bind(address, option)?;
        Server::start(listener, Arc::new(self), Limits::default(), identity)
    }
}

/// Serves the configured peers, if any, until dropped.
///
/// # Errors
/// As [`Peers::serve`].
pub(super) fn start(
    settings: &Settings,
    host: &HostFacts,
    turn_places: Vec<PathBuf>,
) -> Result<Option<Server>, Fault> {
    let Some(peers) = &settings.peers else { return Ok(None) };
    let identity = LinkIdentity { boot_id: host.boot_id.clone(), list_digest: String::new() };
    let server = Peers { allow: peers.allow.clone(), turn_places };
    let server = server.serve((&peers.listen, "`peers.listen`"), Some(identity))?;
    tracing::info!(listen = peers.listen, "peers may test the way to this host");
    Ok(Some(server))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_probe_of_this_host_and_a_peers_test_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let peers = Peers { allow: Vec::new(), turn_places: vec![dir.path().to_path_buf()] };
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
        let peers = Peers { allow, turn_places: Vec::new() };
        let knows = |address: &str| peers.knows(address.parse().unwrap());
        assert!(knows("10.0.0.7") && !knows("10.0.1.7") && !knows("::1"));
    }

    #[test]
    fn a_taken_port_says_whose_it_is_and_where_to_choose_another() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let peers = Peers { allow: Vec::new(), turn_places: Vec::new() };
        let fault = peers.serve((&address, "`peers.listen`"), None).err().unwrap();
        assert!(fault.text.contains(&format!("pid {}", std::process::id())), "{fault}");
        assert!(fault.text.ends_with("; choose another with `peers.listen`"), "{fault}");
    }

    #[test]
    fn nobody_listens_until_it_is_asked_for() {
        let host = HostFacts::default();
        assert!(start(&Settings::default(), &host, Vec::new()).unwrap().is_none());
    }
}
