//! The lane of peers: keeps their lists, and makes this host's part of the tests with them, each in
//! its slot, each in a worker process.

pub mod fills;
pub mod judging;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::judging::{Around, headline};
use super::board::Board;
use super::mesh::Mesh;
use super::plan::{Plan, PlannedLink};
use super::supervise::{Halt, Pulse};
use crate::base::clock::{Clock, Moment};
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::Bytes;
use crate::config::peer_files::PeerFiles;
use crate::host::roots::Roots;
use crate::host::sys;
use crate::model::job::{Job, Task, WIRE_VERSION};
use crate::model::link::{LinkFault, LinkIdentity, LinkReason};
use crate::model::metric::Label;
use crate::model::outcome::{LineUse, Reply, Skip};
use crate::model::peer::{LinkFailure, LinkResult, LinkRun, LinkView, MeshView, Peer};
use crate::probe::cpu::Cpus;
use crate::schedule::guard::{self, Request};
use crate::schedule::tournament::{Meeting, Tournament};
use crate::schedule::turn::Turn;
use crate::worker::stuck::Stuck;
use crate::worker::{Ended, Runner, Stop};

/// What the lane is given.
pub struct Meetings {
    pub roots: Roots,
    pub board: Arc<Board>,
    pub clock: Arc<dyn Clock>,
    pub halt: Halt,
    /// Cancels the worker that is running.
    pub stop: Stop,
    pub runner: Arc<dyn Runner>,
    pub turn_places: Vec<PathBuf>,
    pub host_name: String,
    pub boot_id: String,
}

/// What the lane keeps between turns.
struct Lane {
    plan: Arc<Plan>,
    files: PeerFiles,
    mesh: Arc<Mesh>,
    looked: Moment,
    /// The last slot that was attended, or begun in when the lane began.
    attended: Option<u64>,
    /// A second try, and when.
    again: Option<(Meeting, Duration)>,
    stuck: Option<Stuck>,
}

type Lines = BTreeMap<Label, LineUse>;

/// What came of a try.
#[derive(Debug)]
enum Tried {
    Ended(Result<Arc<LinkResult>, (LinkFailure, String)>),
    Skipped(Skip, String),
    /// The daemon stops.
    Halted,
}

/// Files are looked at so often; the clock may be set meanwhile.
const LOOK: Duration = Duration::from_secs(2);
const TURN: Duration = Duration::from_secs(1);
/// As [`TURN`], where there is nobody to meet: nothing but another list is waited for.
const TURN_ALONE: Duration = Duration::from_secs(5);
/// Beyond its planned time a run may take this long, where its slot is so long.
const RUN_GRACE: Duration = Duration::from_secs(40);

impl Meetings {
    /// The lane's body: returns when halted.
    pub fn run(&self, pulse: &Pulse) {
        let Some(plan) = self.board.lock().plan.clone() else { return };
        let mut lane = self.open(plan);
        while !self.halt.is_set() {
            let now = self.clock.now();
            let longest = lane.plan.link.as_ref().map_or(TURN, |link| link.shape.time().duration());
            pulse.beat(now, longest + RUN_GRACE * 3);
            self.look(&mut lane, now);
            let wait = match self.due(&mut lane, now) {
                Ok((meeting, first)) => {
                    self.attend(&mut lane, meeting, first);
                    continue;
                }
                Err(wait) => wait,
            };
            let turn = if lane.mesh.tournament.is_some() { TURN } else { TURN_ALONE };
            self.halt.sleep(wait.min(turn));
        }
    }

    /// Reads the lists. A slot that has begun is left to the others: nobody knows what was tested in it.
    fn open(&self, plan: Arc<Plan>) -> Lane {
        let now = self.clock.now();
        let files = PeerFiles::open(plan.settings.peers.as_ref(), now);
        let mesh = Arc::new(Mesh::new(&plan, &files, &self.host_name));
        let (attended, again, stuck) = (None, None, None);
        let mut lane = Lane { plan, files, mesh, looked: now, attended, again, stuck };
        self.adopt(&mut lane, now);
        lane
    }

    /// Takes a changed plan, and changed files.
    fn look(&self, lane: &mut Lane, now: Moment) {
        let plan = self.board.lock().plan.clone();
        if let Some(plan) = plan.filter(|plan| !Arc::ptr_eq(plan, &lane.plan)) {
            let stuck = lane.stuck.take();
            *lane = Lane { stuck, ..self.open(plan) };
        }
        if now.since(lane.looked).duration() < LOOK {
            return;
        }
        lane.looked = now;
        if lane.files.poll(now) {
            lane.mesh = Arc::new(Mesh::new(&lane.plan, &lane.files, &self.host_name));
            self.adopt(lane, now);
        }
        self.show(lane);
    }

    /// Puts a new mesh in force; what is known of peers that stay is kept.
    fn adopt(&self, lane: &mut Lane, now: Moment) {
        let tournament = lane.mesh.tournament.as_ref();
        let begun = tournament.and_then(|t| t.meeting(t.slot(now.wall)));
        lane.attended = begun.filter(|meeting| meeting.begins < now.wall).map(|m| m.slot);
        lane.again = None;
        let link = lane.plan.link.as_ref().zip(tournament);
        let mut shared = self.board.lock();
        let old = std::mem::take(&mut shared.links);
        shared.links = link.map_or_else(Vec::new, |(link, tournament)| {
            let view = |(peer, one): (usize, &Peer)| {
                let every = tournament.interval(peer)?;
                let known = old.iter().find(|v| v.probe == link.name && *v.peer == *one.name);
                let mut view = known.map(|view| LinkView::clone(view)).unwrap_or_default();
                view.probe = Arc::clone(&link.name);
                view.peer = one.name.as_str().into();
                view.summary = link.shape.summary.clone();
                view.every = every;
                view.running = false;
                view.next_due = next_due(tournament, peer, now);
                Some(Arc::new(view))
            };
            lane.mesh.peers.iter().enumerate().filter_map(view).collect()
        });
        shared.mesh = Some(Arc::clone(&lane.mesh));
        drop(shared);
        self.show(lane);
    }

    fn show(&self, lane: &Lane) {
        let view = lane.mesh.view(&lane.plan, &lane.files);
        let mut shared = self.board.lock();
        let served = shared.mesh_view.served.take();
        shared.mesh_view = MeshView { served, ..view };
    }

    /// The test to make now, and whether it is the first try; else the time until one may be due.
    fn due(&self, lane: &mut Lane, now: Moment) -> Result<(Meeting, bool), Duration> {
        let Some(tournament) = &lane.mesh.tournament else { return Err(TURN_ALONE) };
        if let Some((meeting, at)) = lane.again {
            if now.wall >= meeting.slot_ends || now.wall < meeting.slot_begins {
                lane.again = None; // the clock was set
            } else if now.wall >= at {
                lane.again = None;
                return Ok((meeting, false));
            } else {
                return Err(at - now.wall);
            }
        }
        let slot = tournament.slot(now.wall);
        let meeting = tournament.meeting(slot).filter(|meeting| meeting.is_client);
        let Some(meeting) = meeting.filter(|_| lane.attended != Some(slot)) else {
            return Err(TURN);
        };
        match meeting.begins.checked_sub(now.wall).filter(|wait| !wait.is_zero()) {
            Some(wait) => Err(wait),
            None => {
                lane.attended = Some(slot);
                Ok((meeting, true))
            }
        }
    }

    fn attend(&self, lane: &mut Lane, meeting: Meeting, first: bool) {
        let plan = Arc::clone(&lane.plan);
        let mesh = Arc::clone(&lane.mesh);
        let (Some(link), Some(tournament)) = (&plan.link, &mesh.tournament) else { return };
        let Some(peer) = mesh.peers.get(meeting.peer) else { return };
        let name = peer.name.as_str();
        let began = self.clock.now();
        self.change(link, name, |view| view.running = true);
        let tried = self.test(lane, (link, peer), &meeting);
        let now = self.clock.now();
        let busy = matches!(&tried, Tried::Ended(Err(("busy", _))));
        let again = tournament.again(&meeting, now.wall).filter(|_| first);
        let waits = busy || matches!(tried, Tried::Skipped(Skip::Locked | Skip::Busy, _));
        let again = again.filter(|_| waits);
        lane.again = again.map(|at| (meeting, at));
        self.change(link, name, |view| {
            view.running = false;
            view.busy += u64::from(busy);
            view.next_due = match again {
                Some(at) => Some(now.plus(at.saturating_sub(now.wall))),
                None => next_due(tournament, meeting.peer, now),
            };
            if again.is_none() {
                record(view, tried, (&mesh.digest, began, now));
            }
        });
    }

    fn change(&self, link: &PlannedLink, peer: &str, with: impl FnOnce(&mut LinkView)) {
        let mut shared = self.board.lock();
        let view = shared.links.iter_mut().find(|v| v.probe == link.name && *v.peer == *peer);
        if let Some(view) = view {
            with(Arc::make_mut(view));
        }
    }

    /// One try: guard, clock, turn, worker.
    fn test(
        &self,
        lane: &mut Lane,
        (link, peer): (&PlannedLink, &Peer),
        meeting: &Meeting,
    ) -> Tried {
        let lines = match self.permit(lane, peer) {
            Ok(lines) => lines,
            Err((skip, text)) => return Tried::Skipped(skip, text),
        };
        let turn = match Turn::try_take(&self.turn_places) {
            Ok(Turn::Mine(turn)) => turn,
            Ok(Turn::Theirs(holder)) => return Tried::Skipped(Skip::Locked, holder.to_string()),
            Err(fault) => return failed(fault),
        };
        let settings = lane.plan.settings.peers.as_ref();
        let run = LinkRun {
            peer: peer.name.clone(),
            endpoint: peer.endpoint.clone(),
            single: link.shape.single.clone(),
            legs: link.shape.legs.clone(),
            identity: LinkIdentity {
                boot_id: self.boot_id.clone(),
                list_digest: lane.mesh.digest.clone(),
                ..LinkIdentity::default()
            },
            allow_same_kernel: settings.is_some_and(|peers| peers.allow_same_kernel),
        };
        let left = meeting.slot_ends.saturating_sub(self.clock.now().wall);
        let deadline = left.min(link.shape.time().duration() + RUN_GRACE);
        let job = Job { v: WIRE_VERSION, polite: true, task: Task::Link(run) };
        let mut cpus = Cpus::find();
        let (before, began) = (cpus.before(&self.roots.procfs, false), self.clock.now());
        let ended = self.runner.run(&job, deadline, &self.stop, &mut |_| {});
        let (after, now) = (cpus.after(&self.roots.procfs, false), self.clock.now());
        let shares = cpus.shares(&before, &after, now.since(began));
        self.board.lock().tested = Some(now);
        drop(turn);
        match ended {
            Ended::Replied(Reply::Linked(end)) => match *end {
                Ok(done) => {
                    let settings = &lane.plan.settings;
                    let around = Around { settings, cpus: &shares, lines: lines.as_ref() };
                    let result = judging::judge(done, &self.roots, &around);
                    Tried::Ended(Ok(Arc::new(result)))
                }
                Err(LinkFault { reason: LinkReason::Stopped, .. }) if self.halt.is_set() => {
                    Tried::Halted
                }
                // Nobody but the deadline stops a run otherwise.
                Err(LinkFault { reason: LinkReason::Stopped, text }) => {
                    Tried::Ended(Err((LinkReason::Timeout.label(), text)))
                }
                Err(fault) => Tried::Ended(Err((fault.reason.label(), fault.text))),
            },
            Ended::Replied(Reply::Failed(fault)) | Ended::Failed(fault) => failed(fault),
            Ended::Replied(_) => failed(super::account::foreign_reply()),
            Ended::Hung(stuck) => {
                lane.stuck = Some(stuck);
                failed(super::targets::hung("the network"))
            }
        }
    }

    /// Leave to test, with what others move on this host's lines; `None`: nobody can tell yet.
    fn permit(&self, lane: &mut Lane, peer: &Peer) -> Result<Option<Lines>, (Skip, String)> {
        if lane.stuck.as_mut().is_some_and(|stuck| !stuck.reap()) {
            return Err((Skip::Hung, "an earlier worker is stuck".into()));
        }
        lane.stuck = None;
        let any_clock = lane.plan.settings.peers.as_ref().is_some_and(|peers| peers.any_clock);
        if !any_clock && sys::clock_is_synchronised() == Some(false) {
            let text = "the clock is not synchronised, and tests go by it (`peers.any_clock`)";
            return Err((Skip::Clock, text.into()));
        }
        if let Some(text) = fills::unasked(peer, &self.roots, &lane.plan.settings) {
            return Err((Skip::Off, text));
        }
        let request = Request {
            exempt: false,
            devices: &[],
            writes: Bytes(0),
            may_write: false,
            region: Bytes(0),
            inspection: None,
            wake: true,
        };
        let now = self.clock.now();
        let (conditions, lines) = {
            let shared = self.board.lock();
            (shared.conditions.clone(), shared.lines_of_others(now).cloned())
        };
        guard::permit(&request, &conditions, &lane.plan.settings.guard, now)?;
        lines.as_ref().map_or(Ok(()), guard::lines_idle)?;
        Ok(lines)
    }
}

fn failed(fault: Fault) -> Tried {
    let reason = match fault.kind {
        FaultKind::TimedOut => LinkReason::Timeout.label(),
        kind => kind.label(),
    };
    Tried::Ended(Err((reason, fault.text)))
}

fn next_due(tournament: &Tournament, peer: usize, now: Moment) -> Option<Moment> {
    let next = tournament.next(now.wall, Some(peer))?;
    Some(now.plus(next.begins.saturating_sub(now.wall)))
}

/// Takes what came of the last try in a slot.
fn record(view: &mut LinkView, tried: Tried, (digest, began, now): (&str, Moment, Moment)) {
    let (probe, peer) = (Arc::clone(&view.probe), Arc::clone(&view.peer));
    match tried {
        Tried::Halted => {}
        Tried::Skipped(skip, text) => {
            tracing::info!(%probe, %peer, "skipped ({}): {text}", skip.label());
            *view.skips.entry(skip).or_default() += 1;
            view.fault = format!("skipped ({}): {text}", skip.label());
        }
        Tried::Ended(end) => {
            match &end {
                Ok(result) => {
                    tracing::info!(%probe, %peer, "{}", headline(result));
                    if result.done.same_host_suspected() == Some(true) {
                        let text = "more arrived than the declared line carries: do both ends run \
                                    on one machine? (`host:` in the list of peers)";
                        tracing::warn!(%probe, %peer, "{text}");
                    }
                    let theirs =
                        result.done.identity().map(|identity| identity.list_digest.as_str());
                    // One that tests nobody has no list.
                    let theirs = theirs.filter(|list| !list.is_empty());
                    view.list_differs = theirs.map(|list| list != digest);
                    if view.list_differs == Some(true) {
                        tracing::warn!(%probe, %peer, "it goes by another list of peers or times");
                    }
                }
                Err((reason, text)) => tracing::warn!(%probe, %peer, "failed ({reason}): {text}"),
            }
            view.last_run_seconds = Some(now.since(began));
            view.record(end, now);
        }
    }
}

#[cfg(test)]
mod tests;
