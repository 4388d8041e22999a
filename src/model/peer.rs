//! Peers: who they are, what a worker is asked to do with one, and what is known of the way there.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::link::{LinkFault, LinkFlow, LinkIdentity, LinkMeasured, LinkProfile};
use super::metric::Label;
use super::skip::Skip;
use super::verdict::Verdict;
use crate::base::clock::Moment;
use crate::base::network::Endpoint;
use crate::base::units::Seconds;

/// A host of the mesh, this one among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The same on every host of the mesh: the schedule is made of names.
    pub name: String,
    pub endpoint: Endpoint,
    /// The machine it runs on; between guests of one machine there is no link.
    pub machine: Option<String>,
    /// A plain `iperf3 -s`: tested, and never testing.
    pub passive: bool,
}

/// One execution of a link probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkRun {
    /// Name in labels and sentences.
    pub peer: String,
    pub endpoint: Endpoint,
    /// One stream alone, before the others; a kernel of the peer's own is found by it.
    pub single: Option<LinkProfile>,
    /// One after another.
    pub legs: Vec<LinkProfile>,
    pub identity: LinkIdentity,
    /// Measures though the peer runs on this host's kernel: for tests.
    pub allow_same_kernel: bool,
}

/// What came of a run.
pub type LinkEnd = Result<LinkDone, LinkFault>;

/// Everything a run measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkDone {
    pub single: Option<LinkMeasured>,
    pub legs: Vec<LinkMeasured>,
}

impl LinkDone {
    /// From this host to the peer.
    pub fn transmit(&self) -> Option<&LinkFlow> {
        self.legs.iter().find_map(|leg| leg.forward.as_ref())
    }

    /// From the peer to this host.
    pub fn receive(&self) -> Option<&LinkFlow> {
        self.legs.iter().find_map(|leg| leg.reverse.as_ref())
    }

    /// More arrived than a line carries whose rate the operator declared: the peer may be a guest of
    /// this host's machine. `None` where no rate is declared.
    pub fn same_host_suspected(&self) -> Option<bool> {
        let legs = self.single.iter().chain(&self.legs);
        let ceilings =
            legs.flat_map(|leg| leg.flows()).filter_map(|(_, flow)| flow.ceiling.as_ref());
        let declared = ceilings.filter(|ceiling| ceiling.declared);
        declared.map(|ceiling| ceiling.share.is_none()).reduce(|one, other| one || other)
    }

    /// What the peer says of itself; `None` of stock peers.
    pub fn identity(&self) -> Option<&LinkIdentity> {
        self.single.iter().chain(&self.legs).find_map(|leg| leg.identity.as_ref())
    }

    /// Segments sent again in each direction; `None` where the sender can't say.
    pub fn retransmits(&self) -> [Option<u64>; 2] {
        [self.transmit(), self.receive()].map(|flow| flow.and_then(|flow| flow.retransmits))
    }
}

/// A result set against its way, and what bound it in each direction: to the peer, and from it.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkResult {
    pub done: LinkDone,
    /// `None` where nothing was measured in that direction.
    pub verdicts: [Option<Verdict>; 2],
}

/// Why there is no result: in the link's own words, or those of a worker that failed.
pub type LinkFailure = &'static str;

/// All that is known of one link probe to one peer.
#[derive(Clone, Debug, Default)]
pub struct LinkView {
    pub probe: Label,
    pub peer: Label,
    /// In words: `4 streams, 5 s each way`.
    pub summary: String,
    /// From one test by this host to the next.
    pub every: Seconds,
    pub next_due: Option<Moment>,
    pub running: bool,
    pub runs: u64,
    pub failures: BTreeMap<LinkFailure, u64>,
    pub skips: BTreeMap<Skip, u64>,
    /// Times that the peer was in another test, retries counted.
    pub busy: u64,
    pub last_run: Option<Moment>,
    pub last_run_seconds: Option<Seconds>,
    pub last_success: Option<Moment>,
    pub last: Option<Arc<LinkResult>>,
    /// Why the last run has no result; empty after one that has.
    pub fault: String,
    /// Of all runs, sent and received; `None` until a sender said it.
    pub retransmits: [Option<u64>; 2],
    /// The peer goes by another list of peers than this host; `None` until it said so.
    pub list_differs: Option<bool>,
}

impl LinkView {
    /// A result is published for three intervals; after that it is absent, never frozen.
    pub fn fresh(&self, now: Moment) -> Option<&LinkResult> {
        let at = self.last_success?;
        let last = self.last.as_deref()?;
        (now.since(at).0 <= 3.0 * self.every.0).then_some(last)
    }

    /// Takes what a run found, which ended `now`.
    pub fn record(&mut self, end: Result<Arc<LinkResult>, (LinkFailure, String)>, now: Moment) {
        self.runs += 1;
        self.last_run = Some(now);
        match end {
            Ok(result) => {
                for (sum, of_run) in self.retransmits.iter_mut().zip(result.done.retransmits()) {
                    *sum = match (*sum, of_run) {
                        (None, None) => None,
                        (sum, of_run) => Some(sum.unwrap_or(0) + of_run.unwrap_or(0)),
                    };
                }
                self.last_success = Some(now);
                self.last = Some(result);
                self.fault.clear();
            }
            Err((reason, text)) => {
                *self.failures.entry(reason).or_default() += 1;
                self.fault = format!("failed ({reason}): {text}");
            }
        }
    }
}

/// Skips that a link probe can have.
pub const LINK_SKIPS: [Skip; 7] =
    [Skip::Busy, Skip::Battery, Skip::Hours, Skip::Off, Skip::Hung, Skip::Locked, Skip::Clock];

/// What is known of a list of peers that came from outside.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerSource {
    /// `list`, or the file.
    pub name: Label,
    pub peers: usize,
    /// When it was last read whole; `None`: never.
    pub read_at: Option<Moment>,
    pub failures: u64,
}

/// The mesh as this host sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeshView {
    /// Of the list and the times of the schedule; equal on all hosts that agree.
    pub digest: Label,
    pub members: usize,
    pub sources: Vec<PeerSource>,
    /// Peers that are no peers, by reason: `self`, `same_host`, `duplicate`, `over_limit`.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Ends of tests that peers made with this host, by result; `None`: nobody is listened to.
    pub served: Option<BTreeMap<&'static str, u64>>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::units::{Bytes, Rate, Ratio};
    use crate::model::link::LinkCpu;
    use crate::model::way::LinkCeiling;

    fn done(retransmits: Option<u64>) -> LinkResult {
        let flow = LinkFlow {
            received: Bytes(100),
            receiver_time: Seconds(1.0),
            retransmits,
            ..LinkFlow::default()
        };
        let profile = LinkProfile::plain(4, Seconds(1.0));
        let leg = LinkMeasured {
            peer: "p".into(),
            profile,
            forward: Some(flow),
            reverse: None,
            own_cpu: LinkCpu::default(),
            peer_cpu: LinkCpu::default(),
            identity: None,
        };
        let done = LinkDone { single: None, legs: vec![leg] };
        LinkResult { done, verdicts: [None, None] }
    }

    #[test]
    fn more_than_a_declared_line_carries_is_the_way_within_one_machine() {
        let suspected = |declared, share| {
            let LinkResult { mut done, .. } = done(None);
            done.legs[0].forward.as_mut().unwrap().ceiling = Some(LinkCeiling {
                line: Rate(125e6),
                rate: Rate(117e6),
                share,
                declared,
                source: String::new(),
            });
            done.same_host_suspected()
        };
        assert_eq!(suspected(true, None), Some(true));
        assert_eq!(suspected(true, Some(Ratio(0.99))), Some(false));
        assert_eq!(suspected(false, None), None, "what was seen may be wrong by itself");
    }

    #[test]
    fn a_failure_counts_and_leaves_no_number_behind() {
        let mut view = LinkView { every: Seconds(10.0), ..LinkView::default() };
        let at = |seconds| Moment::default().plus(Duration::from_secs(seconds));
        view.record(Err(("busy", "p: in another test".into())), at(1));
        assert!(view.fresh(at(1)).is_none() && view.retransmits == [None, None]);
        view.record(Ok(Arc::new(done(Some(3)))), at(10));
        view.record(Ok(Arc::new(done(None))), at(20));
        view.record(Ok(Arc::new(done(Some(4)))), at(30));
        assert_eq!((view.retransmits, view.runs), ([Some(7), None], 4));
        view.record(Err(("timeout", "p: silent".into())), at(40));
        assert_eq!(view.failures, BTreeMap::from([("busy", 1), ("timeout", 1)]));
        assert!(view.fresh(at(60)).is_some(), "the last result is true for three intervals");
        assert!(view.fresh(at(61)).is_none());
    }
}
