//! Peers that test with this host: who is admitted, and the turn that they share with its own probes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use super::board::Board;
use super::meetings::judging::end;
use super::{Options, turn_places};
use crate::base::clock::Clock;
use crate::base::fault::Fault;
use crate::base::network::Network;
use crate::host::roots::Roots;
use crate::iperf::server::{Admit, Limits, Server};
use crate::model::link::{LinkIdentity, LinkReason};
use crate::model::snapshot::HostFacts;
use crate::model::way::EndLine;
use crate::schedule::guard;
use crate::schedule::turn::{Turn, TurnGuard};
use crate::web;

/// Admits listed peers, one at a time, and only while no probe runs on this host and its lines have
/// room.
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
    clock: Arc<dyn Clock>,
    roots: Roots,
    boot_id: String,
}

/// A peer's test with this host, which its windows show from then on.
struct Served {
    _turn: TurnGuard,
    known: Option<Known>,
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(Known { board, clock, .. }) = &self.known {
            board.lock().tested = Some(clock.now());
        }
    }
}

impl Known {
    /// Whether this end's lines leave room for a test. The next one of a run comes at once: what its
    /// lines show then is the test before, and nobody can tell what others do.
    fn lines_idle(&self) -> guard::Leave {
        let shared = self.board.lock();
        shared.lines_of_others(self.clock.now()).map_or(Ok(()), guard::lines_idle)
    }
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
        let lines = self.known.as_ref().map_or(Ok(()), Known::lines_idle);
        if let Err((_, text)) = lines {
            tracing::info!("a peer's test is refused as busy: {text}");
            return None;
        }
        match Turn::try_take(&self.turn_places) {
            Ok(Turn::Mine(turn)) => {
                let known = self.known.clone();
                Some(Box::new(Served { _turn: turn, known }))
            }
            Ok(Turn::Theirs(_)) => None,
            Err(fault) => {
                tracing::error!("no peer can test with this host: {fault}");
                None
            }
        }
    }

    fn identity(&self, peer: SocketAddr) -> Option<LinkIdentity> {
        let Known { board, roots, boot_id, .. } = self.known.as_ref()?;
        let (plan, list_digest) = {
            let shared = board.lock();
            let digest = shared.mesh.as_ref().map_or(String::new(), |mesh| mesh.digest.clone());
            (shared.plan.clone(), digest)
        };
        let line = plan.map_or_else(EndLine::default, |plan| end(peer, roots, &plan.settings));
        Some(LinkIdentity { boot_id: boot_id.clone(), list_digest, line })
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
    clock: &Arc<dyn Clock>,
    options: &Options,
) -> Result<Option<Server>, Fault> {
    let plan = board.lock().plan.clone();
    let settings = plan.as_ref().and_then(|plan| plan.settings.peers.as_ref());
    let Some(listen) = settings.and_then(|peers| peers.listen.as_ref()) else { return Ok(None) };
    let (board, clock) = (Arc::clone(board), Arc::clone(clock));
    let (roots, boot_id) = (options.roots.clone(), host.boot_id.clone());
    let known = Some(Known { board, clock, roots, boot_id });
    let peers = Peers { allow: Vec::new(), turn_places: turn_places(&options.state), known };
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
    use std::time::Duration;

    use super::*;
    use crate::base::clock::ManualClock;
    use crate::base::units::{Ratio, Seconds};
    use crate::iperf::client::{self, Order, Patience, Watch};
    use crate::model::link::{LinkFault, LinkInterval, LinkMeasured, LinkProfile};
    use crate::model::outcome::LineUse;

    /// A daemon's peers, and the clock and the board that they go by.
    fn watched(dir: &tempfile::TempDir) -> (Peers, ManualClock, Arc<Board>) {
        let (board, clock) = (Arc::new(Board::default()), ManualClock::starting_at(1_000_000));
        let known = Known {
            board: Arc::clone(&board),
            clock: Arc::new(clock.clone()),
            roots: Roots::default(),
            boot_id: String::new(),
        };
        let allow = vec!["127.0.0.1".parse().unwrap()];
        let peers =
            Peers { allow, turn_places: vec![dir.path().to_path_buf()], known: Some(known) };
        (peers, clock, board)
    }

    fn use_line(board: &Board, share: f64) {
        let used = LineUse { share: Some(Ratio(share)), ..LineUse::default() };
        board.lock().conditions.lines = [("eth0".into(), used)].into();
    }

    #[test]
    fn an_end_whose_lines_are_in_use_has_no_turn_for_peers() {
        let dir = tempfile::tempdir().unwrap();
        let (peers, _, board) = watched(&dir);
        use_line(&board, 0.3);
        assert!(peers.turn().is_none());
        use_line(&board, 0.1);
        assert!(peers.turn().is_some());
    }

    #[test]
    fn what_the_test_before_left_in_the_windows_keeps_no_peer_out() {
        let dir = tempfile::tempdir().unwrap();
        let (peers, clock, board) = watched(&dir);
        let first = peers.turn();
        use_line(&board, 0.95);
        drop(first);
        assert!(peers.turn().is_some(), "the second test of a run");
        clock.advance(Duration::from_secs(1));
        assert!(peers.turn().is_none(), "no test was on in the windows since");
    }

    struct Deaf;

    impl Watch for Deaf {
        fn stopped(&self) -> bool {
            false
        }

        fn began(&mut self, _: SocketAddr) {}

        fn interval(&mut self, _: &LinkInterval) {}
    }

    #[test]
    fn a_client_is_told_busy_and_measures_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (peers, clock, board) = watched(&dir);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::start(listener, Arc::new(peers), Limits::default()).unwrap();
        let test = || -> Result<LinkMeasured, LinkFault> {
            let profile = LinkProfile::plain(1, Seconds(0.1));
            let (addresses, patience) = (&[address][..], Patience::default());
            let order = Order { addresses, profile: &profile, identity: None, patience };
            client::run(&order, &mut Deaf)
        };
        use_line(&board, 0.3);
        assert_eq!(test().unwrap_err().reason, LinkReason::Busy);
        assert_eq!((served(&server)["busy"], server.ended()), (1, 0));
        use_line(&board, 0.0);
        assert!(test().is_ok());
        use_line(&board, 1.0);
        assert!(test().is_ok(), "the next test of the same run");
        clock.advance(Duration::from_secs(3600));
        assert_eq!(test().unwrap_err().reason, LinkReason::Busy);
    }

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
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::starting_at(0));
        let options = Options {
            config: None,
            listen: Vec::new(),
            roots: Roots::default(),
            state: "/state".into(),
        };
        assert!(start(&board, &host, &clock, &options).unwrap().is_none());
    }
}
