//! The lane of peers with a runner that ends tests as it is told.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::*;
use crate::base::clock::ManualClock;
use crate::base::units::{Ratio, Seconds};
use crate::config::document::Document;
use crate::config::settings::Settings;
use crate::daemon::board::Shared;
use crate::model::job::What;
use crate::model::link::{LinkFlow, LinkMeasured, LinkProfile};
use crate::model::peer::LinkDone;
use crate::model::verdict::Limit;

const CONFIG: &str = "\
    probes: [{name: mesh, kind: throughput, every: 2m, throughput: {runtime: 1s}}]\n\
    peers: {list: [{name: b, address: 192.0.2.7, passive: true}], any_clock: true}\n";

/// Ends runs as it was told; the time of each is kept.
struct Told(Mutex<VecDeque<LinkReason>>, ManualClock, Mutex<Vec<Duration>>);

impl Runner for Told {
    fn run(&self, job: &Job, _: Duration, _: &Stop, _: &mut dyn FnMut(&What)) -> Ended {
        assert!(matches!(&job.task, Task::Link(run) if run.peer == "b"), "{job:?}");
        self.2.lock().unwrap().push(self.1.now().wall);
        self.1.advance(Duration::from_secs(1));
        let end = match self.0.lock().unwrap().pop_front() {
            Some(reason) => Err(LinkFault::new(reason, "b: no")),
            None => Ok(LinkDone { single: None, legs: vec![sent(900e6 / 8.0)] }),
        };
        Ended::Replied(Reply::Linked(Box::new(end)))
    }
}

fn sent(bytes_per_second: f64) -> LinkMeasured {
    let flow = LinkFlow {
        received: Bytes(bytes_per_second as u64),
        receiver_time: Seconds(1.0),
        ..LinkFlow::default()
    };
    LinkMeasured {
        peer: "192.0.2.7:5201".into(),
        profile: LinkProfile::plain(4, Seconds(1.0)),
        forward: Some(flow),
        reverse: None,
        own_cpu: Default::default(),
        peer_cpu: Default::default(),
        identity: None,
    }
}

/// The view after `slots` slots in which runs ended so, and when they began.
fn after(slots: u32, ends: &[LinkReason], hold_turn: bool) -> (LinkView, Vec<Duration>) {
    on_a_host((CONFIG, 0.0), slots, ends, hold_turn)
}

/// As [`after`]; of a host with this configuration and a line that is used so much.
fn on_a_host(
    (config, used): (&str, f64),
    slots: u32,
    ends: &[LinkReason],
    hold_turn: bool,
) -> (LinkView, Vec<Duration>) {
    let document = Document::parse("f", config).unwrap();
    let settings = Settings::read(&document, &crate::daemon::plan::kind_names()).unwrap();
    let plan = Plan::build(settings, &document, "/state".as_ref()).unwrap();
    let clock = ManualClock::starting_at(1_800_000_000);
    let told = Mutex::new(ends.iter().copied().collect());
    let runner = Arc::new(Told(told, clock.clone(), Mutex::default()));
    let turn = tempfile::tempdir().unwrap();
    let meetings = Meetings {
        roots: Roots::default(),
        board: Arc::default(),
        clock: Arc::new(clock.clone()),
        halt: Halt::default(),
        stop: Stop::default(),
        runner: Arc::clone(&runner) as Arc<dyn Runner>,
        turn_places: vec![turn.path().to_path_buf()],
        host_name: "a".into(),
        boot_id: "boot".into(),
    };
    let used = LineUse { share: Some(Ratio(used)), ..LineUse::default() };
    meetings.board.lock().conditions.lines = [("eth0".into(), used)].into();
    let mut lane = meetings.open(Arc::new(plan));
    let _held = hold_turn.then(|| Turn::try_take(&meetings.turn_places).unwrap());
    let until = clock.now().wall + Duration::from_secs(120) * slots;
    while clock.now().wall < until {
        let now = clock.now();
        meetings.board.lock().conditions.at = now;
        match meetings.due(&mut lane, now) {
            Ok((meeting, first)) => meetings.attend(&mut lane, meeting, first),
            Err(wait) => clock.advance(wait.min(TURN)),
        }
    }
    let view = LinkView::clone(&meetings.board.lock().links[0]);
    let runs = runner.2.lock().unwrap().clone();
    (view, runs)
}

#[test]
fn a_peer_is_tested_once_a_slot() {
    let (view, runs) = after(5, &[], false);
    assert_eq!((view.runs, runs.len(), view.every.0), (5, 5, 120.0));
    assert!(runs.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(118)));
    assert!(view.last.is_some() && view.failures.is_empty() && !view.running);
}

#[test]
fn a_result_is_set_against_the_way_that_it_took_and_judged() {
    let config = format!("{CONFIG}path: {{link: 1Gbit, encapsulation: vxlan}}\n");
    let (view, _) = on_a_host((&config, 0.0), 1, &[], false);
    let LinkResult { done, verdicts } = view.last.as_deref().unwrap();
    let ceiling = done.transmit().unwrap().ceiling.as_ref().unwrap();
    assert_eq!((ceiling.rate.bits().as_str(), ceiling.declared), ("908.97 Mbit/s", true));
    assert_eq!(verdicts[0].as_ref().unwrap().limit, Limit::Link);
    assert!(verdicts[1].is_none() && done.same_host_suspected() == Some(false));
}

#[test]
fn what_this_hosts_own_tests_moved_keeps_no_test_away() {
    let mut shared = Shared::default();
    let every = Document::parse("f", "sample: {every: 2s}\n").unwrap();
    let settings = Settings::read(&every, &[]).unwrap();
    shared.plan = Some(Arc::new(Plan::build(settings, &every, "/state".as_ref()).unwrap()));
    let at = |seconds| Moment::default().plus(Duration::from_secs(seconds));
    assert!(shared.lines_of_others(at(100)).is_some());
    shared.tested = Some(at(100));
    assert!(shared.lines_of_others(at(105)).is_none(), "two windows may be the test's");
    assert!(shared.lines_of_others(at(106)).is_some());
}

#[test]
fn a_busy_peer_is_tried_once_more_in_its_slot_and_then_counted() {
    let (view, runs) = after(2, &[LinkReason::Busy; 2], false);
    assert_eq!((view.busy, view.failures["busy"], view.runs), (2, 1, 2));
    assert!(runs.len() == 3 && runs[1] - runs[0] < Duration::from_secs(30), "{runs:?}");
    let (view, _) = after(1, &[LinkReason::Busy], false);
    assert_eq!((view.busy, view.failures.len(), view.runs), (1, 0, 1), "the second try did");
}

#[test]
fn other_failures_have_their_reason_and_no_second_try() {
    let (view, runs) = after(3, &[LinkReason::Timeout, LinkReason::Denied], false);
    assert_eq!((view.failures["timeout"], view.failures["denied"], runs.len()), (1, 1, 3));
}

#[test]
fn while_another_has_the_turn_of_this_host_a_test_is_skipped() {
    let (view, runs) = after(2, &[], true);
    assert_eq!((view.skips[&Skip::Locked], view.runs, runs.len()), (2, 0, 0));
    assert!(view.last_success.is_none());
}

#[test]
fn an_end_whose_line_is_in_use_makes_no_test() {
    let (view, runs) = on_a_host((CONFIG, 0.3), 2, &[], false);
    assert_eq!((view.skips[&Skip::Busy], view.runs, runs.len()), (2, 0, 0));
    assert!(view.fault.contains("eth0 is used at 30.0 %"), "{}", view.fault);
}

#[test]
fn where_nobody_keeps_the_clock_no_test_is_made() {
    let config = CONFIG.replace(", any_clock: true", "");
    let (view, runs) = on_a_host((&config, 0.0), 2, &[], false);
    let skips = if sys::clock_is_synchronised() == Some(false) { 2 } else { 0 };
    assert_eq!(view.skips.get(&Skip::Clock).copied().unwrap_or(0), skips);
    assert_eq!(runs.len() as u64, 2 - skips);
}
