//! Peers that test with this host: who is admitted, and the turn that they share with its own probes.

use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::fault::{Fault, FaultKind};
use crate::base::network::Network;
use crate::config::settings::Settings;
use crate::iperf::server::{Admit, Limits, Server};
use crate::model::link::LinkIdentity;
use crate::model::snapshot::HostFacts;
use crate::schedule::turn::Turn;

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
    /// Serves them at `address` until the server is dropped.
    ///
    /// # Errors
    /// Where the port is taken or the address isn't this host's, or where there is no thread left.
    pub fn serve(self, address: &str, identity: Option<LinkIdentity>) -> Result<Server, Fault> {
        Server::start(listen(address)?, Arc::new(self), Limits::default(), identity)
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
    let server = server.serve(&peers.listen, Some(identity))?;
    tracing::info!(listen = peers.listen, "peers may test the way to this host");
    Ok(Some(server))
}

/// Listens on `:5201` (all addresses of both families) or one address. Unlike the page's, these
/// connections keep the kernel's own tuning of their buffers.
fn listen(address: &str) -> Result<TcpListener, Fault> {
    let places = match address.strip_prefix(':') {
        Some(port) => vec![format!("[::]:{port}"), format!("0.0.0.0:{port}")],
        None => vec![address.to_owned()],
    };
    let mut fault = Fault::new(FaultKind::Malformed, format!("{address}: no address"));
    for place in places {
        match TcpListener::bind(&place) {
            Ok(listener) => return Ok(listener),
            Err(error) => fault = Fault::os(address, &error),
        }
    }
    Err(fault)
}

#[cfg(test)]
mod tests {
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
    fn nobody_listens_until_it_is_asked_for() {
        let host = HostFacts::default();
        assert!(start(&Settings::default(), &host, Vec::new()).unwrap().is_none());
    }
}
