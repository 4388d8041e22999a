//! The links of a report: each peer is sent to, received from, and sent to over one stream alone.

use std::net::SocketAddr;
use std::time::Duration;

use super::Gathered;
use super::plan::Size;
use super::whole::Whole;
use crate::base::clock::{Clock, SystemClock};
use crate::base::units::{Rate, Seconds};
use crate::cli::throughput::{resolve, sums};
use crate::config::settings::Settings;
use crate::daemon::meetings::judging::line_rates;
use crate::host::link_facts::Declared;
use crate::host::links::{bytes_moved, is_own_network};
use crate::host::roots::Roots;
use crate::host::route::{Overrides, way_of, way_to};
use crate::iperf::client::{self, Order, Patience, Watch};
use crate::judge::facts::Run;
use crate::judge::from_link::{LinkRun, link};
use crate::model::link::{
    LinkDirection, LinkFault, LinkInterval, LinkMeasured, LinkProfile, LinkReason,
};
use crate::model::path::DeclaredPath;
use crate::model::way::{EndLine, Line, PeerWay};
use crate::probe::cpu::{Cpus, Shares};
use crate::worker::Stop;

/// As many as fill what one alone often doesn't.
const STREAMS: u32 = 4;
/// Until windows are open.
const OMIT: Seconds = Seconds(1.0);
/// What counts of a run, and of the same with twice the streams.
const QUICK: (f64, f64) = (3.0, 2.0);
const FULL: (f64, f64) = (30.0, 10.0);
/// Looked at before a run: what others move on the line.
const QUIET: Seconds = Seconds(1.0);
/// How often it looks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);
/// To say what is wanted, and to exchange results.
const AROUND: Seconds = Seconds(0.5);

/// What all peers have in common.
pub(super) struct Ground {
    roots: Roots,
    pub(super) path: DeclaredPath,
    links: Declared,
}

impl Ground {
    pub(super) fn new(roots: Roots, settings: &Settings, path: DeclaredPath) -> Self {
        Self { roots, path, links: line_rates(settings) }
    }

    fn overrides(&self) -> Overrides<'_> {
        Overrides { path: &self.path, links: &self.links, peer: EndLine::default() }
    }
}

/// A peer with an address.
pub(super) struct Peer<'a> {
    pub(super) name: String,
    addresses: Vec<SocketAddr>,
    ground: &'a Ground,
    way: PeerWay,
    pub(super) runs: Vec<Planned>,
}

/// The peers that have an address, each once.
pub(super) fn find<'a>(
    names: &[String],
    size: Size,
    ground: &'a Ground,
    gathered: &mut Gathered,
) -> Vec<Peer<'a>> {
    let mut peers: Vec<Peer<'_>> = Vec::new();
    for name in names {
        if peers.iter().any(|peer| peer.name == *name) {
            continue;
        }
        match Peer::find(name, size, ground) {
            Ok(peer) => peers.push(peer),
            Err(text) => gathered.fail(text),
        }
    }
    peers
}

/// One run in one direction, at so many streams and at twice that.
pub(super) struct Planned {
    name: String,
    reverse: bool,
    legs: [LinkProfile; 2],
}

impl<'a> Peer<'a> {
    /// # Errors
    /// Where the name has no address.
    fn find(name: &str, size: Size, ground: &'a Ground) -> Result<Self, String> {
        let addresses = resolve(name).map_err(|failure| failure.text)?;
        let way = |first: &SocketAddr| way_to(*first, &ground.roots, &ground.overrides());
        let way = addresses.first().map_or_else(PeerWay::default, way);
        let runs = [(STREAMS, false), (STREAMS, true), (1, false)];
        let runs = runs.map(|(streams, reverse)| Planned::new(name, (streams, reverse), size));
        Ok(Self { name: name.to_owned(), addresses, ground, way, runs: runs.into() })
    }

    /// A line for the head of a report: `vx0 -> eth0: 908.97 Mbit/s to it (eth0, ...)`.
    pub(super) fn about(&self) -> (String, String) {
        let line = |line: &Option<Line>, way: &str| {
            let line = line.as_ref()?;
            let ceiling = line.ceiling(STREAMS, None)?;
            Some(format!("at most {} {way} ({})", ceiling.bits(), line.source))
        };
        let (to, from) = (line(&self.way.transmit, "to it"), line(&self.way.receive, "from it"));
        let unknown = Some(self.way.unknown.clone()).filter(|text| !text.is_empty());
        let parts: Vec<String> = [to, from, unknown].into_iter().flatten().collect();
        let devices = self.way.devices.join(" -> ");
        let devices = if devices.is_empty() { devices } else { devices + ": " };
        (self.name.clone(), devices + &parts.join("; "))
    }

    pub(super) fn time(&self) -> Seconds {
        Seconds(self.runs.iter().map(|run| run.time().0).sum())
    }

    /// All runs, or why there are no more of them: a peer that fails once isn't asked again.
    pub(super) fn measure(&self, stop: &Stop, whole: &mut Whole, gathered: &mut Gathered) {
        let mut failed = false;
        for planned in &self.runs {
            if stop.is_set() {
                gathered.skipped.push(format!("{}: interrupted before it began", planned.name));
                continue;
            }
            if failed {
                gathered.skipped.push(format!("{}: the peer failed before", planned.name));
                continue;
            }
            whole.begin(&planned.name, (planned.time(), &[]));
            match self.run(planned, stop, whole) {
                Ok((run, second)) => {
                    whole.done(&planned.name, Some(&run), true);
                    gathered.runs.push(run);
                    if let Some(fault) = second {
                        gathered.link_missed(&format!("{} with more", planned.name), &fault);
                    }
                }
                Err(fault) => {
                    whole.done(&planned.name, None, false);
                    gathered.link_missed(&planned.name, &fault);
                    failed = true;
                }
            }
        }
    }

    /// The run as it is judged, and why there is nothing to compare it with, if there is not.
    fn run(
        &self,
        planned: &Planned,
        stop: &Stop,
        whole: &mut Whole,
    ) -> Result<(Run, Option<LinkFault>), LinkFault> {
        let ground = self.ground;
        let foreign = self.foreign(planned.reverse, stop);
        let [first, second] = &planned.legs;
        let (measured, cpus) = self.leg(first, stop, whole)?;
        let (second, fault) = match self.leg(second, stop, whole) {
            Ok((second, _)) => (Some(second), None),
            Err(fault) => (None, Some(fault)),
        };
        // A name may have several addresses: this is the one that answered.
        let way = way_of(&measured.peer, &ground.roots, &ground.overrides());
        let run = LinkRun {
            measured: &measured,
            reverse: planned.reverse,
            second: second.as_ref(),
            way: &way,
            path: &ground.path,
            cpus: Some(&cpus),
            foreign,
        };
        let nothing = || LinkFault::new(LinkReason::Protocol, "no byte arrived");
        let facts = link(&run).ok_or_else(nothing)?;
        let (name, kind) = (planned.name.clone(), "throughput".into());
        Ok((Run { name, kind, profile: None, facts }, fault))
    }

    fn leg(
        &self,
        profile: &LinkProfile,
        stop: &Stop,
        whole: &mut Whole,
    ) -> Result<(LinkMeasured, Shares), LinkFault> {
        let (addresses, patience) = (&*self.addresses, Patience::default());
        let order = Order { addresses, profile, identity: None, patience };
        let procfs = &self.ground.roots.procfs;
        let mut cpus = Cpus::find();
        let before = cpus.before(procfs, false);
        let measured = client::run(&order, &mut View { stop, whole })?;
        let after = cpus.after(procfs, false);
        let elapsed = Seconds(profile.omit.0 + profile.runtime.0);
        Ok((measured, cpus.shares(&before, &after, elapsed)))
    }

    /// What others move over the lowest interface of the way; `None` where it can't be seen.
    fn foreign(&self, reverse: bool, stop: &Stop) -> Option<Rate> {
        let device = self.way.devices.last().filter(|_| is_own_network(&self.ground.roots))?;
        let moved = || {
            let (received, sent) = bytes_moved(&self.ground.roots, device)?;
            Some(if reverse { received } else { sent })
        };
        let (before, begun) = (moved()?, SystemClock.now());
        let waited = || SystemClock.now().since(begun);
        while waited().0 < QUIET.0 && !stop.is_set() {
            std::thread::park_timeout(LOOK);
        }
        Some(Rate(moved()?.checked_sub(before)? as f64 / waited().0.max(QUIET.0)))
    }
}

impl Planned {
    fn new(peer: &str, (streams, reverse): (u32, bool), size: Size) -> Self {
        let (first, second) = if size.quick { QUICK } else { FULL };
        let first = size.runtime.map_or(first, |runtime| runtime.0);
        let direction = if reverse { LinkDirection::Reverse } else { LinkDirection::Forward };
        let leg = |streams, runtime| LinkProfile {
            direction,
            omit: OMIT,
            ..LinkProfile::plain(streams, Seconds(runtime))
        };
        let way = if reverse { "from" } else { "to" };
        let plural = if streams == 1 { "" } else { "s" };
        Self {
            name: format!("{way} {peer}, {streams} stream{plural}"),
            reverse,
            legs: [leg(streams, first), leg(2 * streams, second.min(first))],
        }
    }

    fn time(&self) -> Seconds {
        let leg = |leg: &LinkProfile| leg.omit.0 + leg.runtime.0 + AROUND.0;
        Seconds(QUIET.0 + self.legs.iter().map(leg).sum::<f64>())
    }
}

struct View<'a> {
    stop: &'a Stop,
    whole: &'a mut Whole,
}

impl Watch for View<'_> {
    fn stopped(&self) -> bool {
        self.stop.is_set()
    }

    fn began(&mut self, peer: SocketAddr) {
        self.whole.hear(format!("connected to {peer}"));
    }

    fn interval(&mut self, interval: &LinkInterval) {
        self.whole.hear(sums(interval));
    }
}

impl Gathered {
    /// As for targets: what was interrupted is no fault, a peer that isn't there is one.
    fn link_missed(&mut self, name: &str, fault: &LinkFault) {
        if fault.reason == LinkReason::Stopped {
            self.skipped.push(format!("{name}: interrupted"));
            return;
        }
        let text = format!("{name}: {}: {fault}", fault.reason.label());
        self.failed.push(text.clone());
        self.skipped.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { quick: true, runtime: None };

    fn ground() -> Ground {
        let path = DeclaredPath { link: Some(Rate(125e6)), ..DeclaredPath::default() };
        Ground::new(Roots::default(), &Settings::default(), path)
    }

    #[test]
    fn a_peer_is_sent_to_received_from_and_sent_to_over_one_stream() {
        let ground = ground();
        let peer = Peer::find("127.0.0.1:1", SIZE, &ground).unwrap();
        let names: Vec<&str> = peer.runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "to 127.0.0.1:1, 4 streams",
                "from 127.0.0.1:1, 4 streams",
                "to 127.0.0.1:1, 1 stream"
            ]
        );
        for run in &peer.runs {
            let [first, second] = &run.legs;
            assert_eq!(second.streams, 2 * first.streams);
            assert!(first.runtime.0 >= 1.0 && second.runtime.0 >= 1.0);
        }
        assert!(peer.time().0 < 30.0, "{}", peer.time());
        let (_, text) = peer.about();
        assert!(text.contains("at most 941.48 Mbit/s to it (declared 1 Gbit/s"), "{text}");
    }

    #[test]
    fn a_peer_without_an_address_is_said_so() {
        let ground = ground();
        let text = Peer::find("no.such.host.invalid", SIZE, &ground).err().unwrap();
        assert!(text.starts_with("no.such.host.invalid: "), "{text}");
    }

    #[test]
    fn what_was_interrupted_is_no_fault_and_a_dead_peer_is_one() {
        let mut gathered = Gathered::default();
        gathered.link_missed("a", &LinkFault::new(LinkReason::Stopped, "asked to stop"));
        assert!(gathered.failed.is_empty());
        gathered.link_missed("b", &LinkFault::new(LinkReason::Refused, "h: nobody listens"));
        assert_eq!(gathered.failed, ["b: refused: h: nobody listens"]);
        assert_eq!(gathered.skipped, ["a: interrupted", "b: refused: h: nobody listens"]);
    }
}
