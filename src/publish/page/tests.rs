use std::{sync::Arc, time::Duration};

use super::*;
use crate::base::units::{Bytes, Rate, Ratio, Seconds};
use crate::model::ceph::Osd;
use crate::model::job::Profile;
use crate::model::link::{LinkCpu, LinkFlow, LinkMeasured, LinkProfile};
use crate::model::outcome::Skip;
use crate::model::peer::{LinkDone, LinkResult, LinkView, MeshView};
use crate::model::samples::{measured, profile};
use crate::model::snapshot::ResourceClass;
use crate::model::verdict::Rival;
use crate::model::way::LinkCeiling;

fn at(seconds: u64) -> Moment {
    Moment::default().plus(Duration::from_secs(1_700_000_000 + seconds))
}

fn leg() -> Measured {
    let direction = |operations: u64, latency: Vec<(f64, Seconds)>| Direction {
        operations,
        bytes: Bytes(operations * 4096),
        latency,
        ..Direction::default()
    };
    let both = vec![(0.5, Seconds(0.021)), (0.99, Seconds(0.088))];
    Measured {
        reads: direction(2040, both),
        writes: direction(880, vec![(0.5, Seconds(0.009))]),
        steady: Some(true),
        ..measured(Profile { name: "rand_rw".into(), reads: Ratio(0.7), jobs: 2, ..profile() })
    }
}

fn probe() -> ProbeView {
    let done = Done {
        legs: vec![leg()],
        flags: Flags { direct: Some(true), contended: Some(true), ..Flags::default() },
        ..Done::default()
    };
    let entry =
        |ago: u64, ok, text: &str| HistoryEntry { at: at(100_000 - ago), ok, text: text.into() };
    ProbeView {
        name: "fast".into(),
        kind: "disk",
        target: "srv".into(),
        summary: "rand_rw 4 KiB, 70/30, 2 jobs x depth 4".into(),
        every: Seconds(3600.0),
        next_due: Some(at(100_240)),
        runs: 12,
        failures: [(FaultKind::Full, 1)].into(),
        skips: [(Skip::Busy, 3)].into(),
        last_success: Some(at(99_988)),
        last: Some(Arc::new(done)),
        history: vec![
            entry(12, true, "292/s, p50 21 ms"),
            entry(3612, true, "290/s, p50 21 ms"),
            entry(7212, true, "291/s, p50 21 ms"),
            entry(10_812, true, "fourth, a success"),
            entry(14_412, false, "full: 4 MiB of 64 MiB written"),
        ],
        ..ProbeView::default()
    }
}

fn flow(operations: f64, latency: f64) -> Flow {
    Flow {
        operations_per_second: Some(operations),
        bytes_per_second: operations * 4096.0,
        latency: Some(Seconds(latency)),
    }
}

fn sample() -> Snapshot {
    let resource = |device: &str, class, facts: &str, share| Resource {
        device: device.into(),
        class,
        facts: facts.into(),
        load: vec![("read", flow(204.0, 9.1e-3)), ("write", flow(88.0, 21e-3))],
        share,
        of: if class == ResourceClass::Link { Of::LineRate } else { Of::Time },
    };
    Snapshot {
        at: at(100_000),
        host: Arc::new(HostFacts {
            name: "storage1".into(),
            system: "Debian 12".into(),
            kernel: "6.1.0".into(),
            cpus: 8,
            ..HostFacts::default()
        }),
        resources: vec![
            resource("sdb", ResourceClass::Disk, "hdd, mq-deadline", Some(Ratio(0.71))),
            resource("eth0", ResourceClass::Link, "speed unknown", None),
            resource("eth1", ResourceClass::Link, "1 Gbit/s", Some(Ratio(0.12))),
        ],
        probes: [probe(), ProbeView { name: "new".into(), ..ProbeView::default() }]
            .map(Arc::new)
            .to_vec(),
        notes: vec!["eth0: speed unknown, link alert off: set links.eth0.rate".into()],
        ..Snapshot::default()
    }
}

#[test]
fn numbers_have_units_and_ages() {
    let page = render(&sample(), false);
    for text in [
        "204/s</td><td>816 KiB/s</td><td>21 ms</td><td>88 ms</td>",
        "88/s</td><td>352 KiB/s</td><td>9.0 ms</td><td>too few</td>",
        "<th>12 s ago</th>",
        "next in 4 min",
        "12 runs, 1 failed, 3 skipped",
        "others used the device",
        "unknown: prefilled, steady, cached, cpu limited, throttled, short",
        "width:71%",
        "As of 2023-11-16 02:00:00 UTC",
    ] {
        assert!(page.contains(text), "{text} in\n{page}");
    }
}

#[test]
fn a_failure_outlives_successes_and_has_advice() {
    let page = render(&sample(), false);
    assert!(page.contains("full: 4 MiB of 64 MiB written"));
    assert!(!page.contains("fourth, a success"));
    assert!(page.contains(FaultKind::Full.advice()));
}

#[test]
fn a_result_too_old_to_publish_says_so() {
    let mut old = sample();
    Arc::make_mut(&mut old.probes[0]).every = Seconds(3.0);
    assert!(render(&old, false).contains("12 s ago: too old to publish"));
}

#[test]
fn whatever_a_host_calls_its_things_is_text_and_no_markup() {
    let evil = "<script>alert(1)</script>\" onload='x'&amp;\u{0}\u{202e}";
    let mut snapshot = sample();
    Arc::make_mut(&mut snapshot.host).name = evil.into();
    snapshot.resources[0].device = evil.into();
    snapshot.resources[0].facts = evil.into();
    let probe = Arc::make_mut(&mut snapshot.probes[0]);
    (probe.name, probe.target, probe.summary) = (evil.into(), evil.into(), evil.into());
    probe.history[0].text = evil.into();
    snapshot.notes.push(evil.into());
    let fault = evil.into();
    snapshot.links = vec![Arc::new(LinkView { peer: evil.into(), fault, ..link() })];
    snapshot.mesh = MeshView { members: 2, digest: evil.into(), ..MeshView::default() };
    let page = render(&snapshot, false);
    assert!(!page.contains("<script") && !page.contains("onload='"), "{page}");
}

#[test]
fn nothing_known_is_still_a_page() {
    let page = render(&Snapshot::default(), true);
    assert!(page.contains("Waiting for the first reading.") && page.ends_with("</html>"));
}

fn verdict_of(confidence: f64) -> Verdict {
    Verdict {
        limit: Limit::WritePath,
        ratio: Some(2.0),
        confidence,
        ceiling: None,
        ceiling_text: None,
        rivals: vec![Rival { limit: Limit::Seek, ratio: 0.4 }],
        because: vec!["the disk wrote 2.0 x".into(), "<b>".into()],
        text: "each write is written twice".into(),
        advice: Some("a log on flash"),
    }
}

#[test]
fn a_verdict_stands_under_its_result_as_a_sentence() {
    let mut snapshot = sample();
    let verdict = verdict_of(0.75);
    let with_verdict = ProbeView { verdict: Some(Arc::new(verdict)), ..probe() };
    snapshot.probes = vec![Arc::new(with_verdict)];
    let html = render(&snapshot, false);
    assert!(html.contains("<b>write path</b>: each write is written twice"), "{html}");
    assert!(html.contains("(the disk wrote 2.0 x; &#60;b&#62;)"), "{html}");
    assert!(html.contains("a log on flash") && html.contains("confidence 0.75; next seek"));
}

fn osd_verdict(limit: Limit, confidence: f64, fact: &str) -> Verdict {
    let text = format!("it is {}", limit.words());
    Verdict { limit, because: vec![fact.into()], text, ..verdict_of(confidence) }
}

#[test]
fn the_slowest_osds_are_shown_and_one_sentence_for_each_limit() {
    let result = |id: u32| {
        let rate = Rate(f64::from((id + 1) << 22));
        let bench = Bench { bytes: Bytes(1 << 28), block: Bytes(1 << 22), elapsed: None, rate };
        OsdResult { osd: Osd { id, ..Osd::default() }, bench: Some(bench) }
    };
    let done = Done { osds: (0..12).rev().map(result).collect(), ..Done::default() };
    let held = (0..11).map(|id| (id, osd_verdict(Limit::WritePath, 0.4, "its own number")));
    let cached = (11, osd_verdict(Limit::Cache, 0.75, "4 x of it"));
    let osds = Arc::new(held.chain([cached]).collect());
    let view = ProbeView { last: Some(Arc::new(done)), osd_verdicts: osds, ..probe() };
    let html = render(&Snapshot { probes: vec![Arc::new(view)], ..sample() }, false);
    assert!(
        html.contains("<td>osd.0 write</td><td>1.0/s</td><td>4 MiB/s</td><td>-</td>"),
        "{html}"
    );
    assert!(html.contains("osd.7 write") && !html.contains("osd.8 write"));
    let cache = "osd.11: <b>cache</b>: it is cache";
    assert!(html.contains(cache) && html.contains("(4 x of it)"), "{html}");
    assert!(html.contains("osd.7 and 3 more: <b>write path</b>: it is"), "{html}");
    assert!(!html.contains("its own number"));
}

/// A peer with a verdict in one direction, and no line rate known in the other.
fn link() -> LinkView {
    let flow = |ceiling| LinkFlow {
        received: Bytes(113_500_000),
        receiver_time: Seconds(1.0),
        retransmits: Some(1989),
        ceiling,
        ..LinkFlow::default()
    };
    let ceiling = LinkCeiling {
        line: Rate(125e6),
        rate: Rate(113_621_588.0),
        share: Some(Ratio(0.9989)),
        declared: false,
        source: "eth0, 1 Gbit/s, VXLAN, MTU 1500".into(),
    };
    let leg = LinkMeasured {
        peer: "10.0.0.2:5201".into(),
        profile: LinkProfile::plain(4, Seconds(1.0)),
        forward: Some(flow(Some(ceiling))),
        reverse: Some(flow(None)),
        own_cpu: LinkCpu::default(),
        peer_cpu: LinkCpu::default(),
        identity: None,
    };
    let done = LinkDone { single: None, legs: vec![leg] };
    let full = Verdict { limit: Limit::Link, text: "the link is full".into(), ..verdict_of(1.0) };
    LinkView {
        probe: "mesh".into(),
        peer: "storage2".into(),
        summary: "4 streams for 5 s each way".into(),
        every: Seconds(86_400.0),
        next_due: Some(at(103_600)),
        runs: 3,
        busy: 2,
        last_success: Some(at(99_000)),
        last: Some(Arc::new(LinkResult { done, verdicts: [Some(full), None] })),
        ..LinkView::default()
    }
}

fn mesh_page(links: impl IntoIterator<Item = LinkView>) -> String {
    let mesh = MeshView {
        digest: "00112233".into(),
        members: 4,
        served: Some([("ok", 5), ("busy", 1), ("denied", 0)].into()),
        ..MeshView::default()
    };
    let links = links.into_iter().map(Arc::new).collect();
    render(&Snapshot { links, mesh, ..sample() }, false)
}

#[test]
fn a_peer_has_its_rate_its_share_and_its_limit_by_direction() {
    let page = mesh_page([link()]);
    for text in [
        "4 hosts in the schedule, list 00112233; tests by peers: 1 busy, 5 ok",
        "<b>storage2</b> <span class=\"soft small\">mesh: 4 streams for 5 s each way</span>",
        "next in 60 min",
        "<td>to it</td><td>908 Mbit/s</td><td>99.9 %</td>\
         <td>908.97 Mbit/s (eth0, 1 Gbit/s, VXLAN, MTU 1500)</td><td>1989</td>",
        "<td>from it</td><td>908 Mbit/s</td><td>unknown</td><td>unknown</td>",
        "<p>to it: <b>link</b>: the link is full",
        "3 runs, 0 failed, 0 skipped, found busy 2 ×",
    ] {
        assert!(page.contains(text), "{text} in\n{page}");
    }
    assert!(!page.contains("from it: <b>"), "nothing was judged there");
}

#[test]
fn a_peer_without_a_result_says_where_it_stands() {
    let plain = || LinkView { last: None, last_success: None, runs: 0, ..link() };
    let waits = mesh_page([plain()]);
    assert!(waits.contains("next in 60 min") && waits.contains("no result yet"), "{waits}");
    let runs = mesh_page([LinkView { running: true, ..plain() }]);
    assert!(runs.contains("<p class=\"small ok\">running</p>"), "{runs}");
    let text = "skipped (busy): eth0 is used at 35.0 % of its rate";
    let skipped = mesh_page([LinkView { fault: text.into(), ..plain() }]);
    assert!(skipped.contains(&format!("<p class=\"warn\">{text}</p>")), "{skipped}");
    assert!(skipped.contains("last run without a result: mesh with storage2"), "{skipped}");
    let mut failed = link();
    failed.record(Err(("timeout", "storage2: silent".into())), at(100_000));
    let failed = mesh_page([failed]);
    assert!(failed.contains("failed (timeout): storage2: silent"), "{failed}");
    assert!(failed.contains("<td>908 Mbit/s</td>"), "beside the last result: {failed}");
    let elsewhere = mesh_page([LinkView { list_differs: Some(true), ..plain() }]);
    assert!(elsewhere.contains("goes by another list of peers"), "{elsewhere}");
}

#[test]
fn without_a_mesh_there_is_no_word_of_it() {
    assert!(!render(&sample(), false).contains("Tests with peers"));
}
