//! Every sampler over files that are spoilt from tick to tick, under clocks that jump: what it says is
//! a number, and what it adds up itself goes back only to begin anew.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::rig::Rig;
use super::{SAMPLERS, Tick};
use crate::base::clock::Clock;
use crate::host::fixture::spoilt;
use crate::model::metric::Value;
use crate::sample::Reading;

macro_rules! node {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../tests/fixtures/node/", $name)).as_slice())
    };
}

const FILES: [(&str, &[u8]); 10] = [
    node!("proc/diskstats"),
    node!("proc/stat"),
    node!("proc/1/net/dev"),
    node!("proc/1/net/snmp"),
    node!("proc/1/net/netstat"),
    node!("proc/1/net/snmp6"),
    node!("proc/1/net/softnet_stat"),
    node!("proc/pressure/io"),
    node!("proc/pressure/cpu"),
    node!("proc/uptime"),
];

/// Added up here: of these a smaller value than before is a beginning.
const OWN_SUMS: [&str; 6] = [
    "loadline_disk_busy_above_seconds_total",
    "loadline_probe_active_seconds_total",
    "loadline_nic_receive_at_ceiling_seconds_total",
    "loadline_nic_transmit_at_ceiling_seconds_total",
    "loadline_softnet_dropped_packets_total",
    "loadline_softnet_squeezed_total",
];

#[derive(Clone, Debug)]
enum Change {
    File(usize, Vec<u8>),
    Whole(usize),
    Gone(usize),
    Later(u64),
    Suspend(u64),
    WallStep(u64),
}

fn change() -> impl Strategy<Value = Change> {
    let file = 0..FILES.len();
    prop_oneof![
        6 => file.clone().prop_flat_map(|at| spoilt(FILES[at].1).prop_map(move |t| Change::File(at, t))),
        2 => file.clone().prop_map(Change::Whole),
        1 => file.prop_map(Change::Gone),
        6 => (0..12_000_u64).prop_map(Change::Later),
        1 => (0..100_000_u64).prop_map(Change::Suspend),
        1 => any::<u32>().prop_map(|s| Change::WallStep(s.into())),
    ]
}

fn apply(rig: &Rig, change: &Change) {
    match change {
        Change::File(at, text) => drop(rig.host.file(FILES[*at].0, text)),
        Change::Whole(at) => drop(rig.host.file(FILES[*at].0, FILES[*at].1)),
        Change::Gone(at) => {
            let _ = std::fs::remove_file(rig.host.at(FILES[*at].0));
        }
        Change::Later(ms) => rig.clock.advance(Duration::from_millis(*ms)),
        Change::Suspend(seconds) => rig.clock.suspend(Duration::from_secs(*seconds)),
        Change::WallStep(to) => rig.clock.step_wall(Duration::from_secs(*to)),
    }
}

/// All source text below a directory.
fn sources(dir: &std::path::Path) -> String {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: std::path::PathBuf| match path.is_dir() {
        true => sources(&path),
        false => String::from_utf8(crate::host::roots::read_file(&path).unwrap()).unwrap(),
    };
    entries.map(text).collect()
}

#[test]
fn every_case_of_the_fixtures_is_held_by_a_test() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = sources(&root.join("src"));
    let cases = std::fs::read_dir(root.join("tests/fixtures/cases")).unwrap();
    for case in cases.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        let named = sources.contains(&format!("fn case_{}_", &case[..3]));
        assert!(named || sources.contains(&format!("{case}\"")), "{case}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_history_of_spoilt_files_and_clocks_makes_a_sampler_lie(
        changes in prop::collection::vec(change(), 1..40),
    ) {
        let rig = Rig::new(|rig| {
            for (name, text) in FILES {
                rig.host.file(name, text);
            }
            rig.host.dir("sys/class/net/eth0/device");
            rig.host.file("sys/class/net/eth0/speed", "1000\n");
        });
        let (roots, settings) = (rig.host.roots(), &rig.settings);
        let mut samplers: Vec<_> = SAMPLERS.iter().map(|kind| (kind.open)(&roots, settings)).collect();
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for change in &changes {
            apply(&rig, change);
            rig.clock.advance(Duration::from_millis(500));
            for sampler in &mut samplers {
                let mut out = Reading::default();
                let tick = Tick { at: rig.clock.now(), own: &rig.own };
                if sampler.read(tick, &mut out).is_err() {
                    continue;
                }
                for point in out.points {
                    let Value::Number(now) = point.value else { continue };
                    let name = point.desc.name;
                    prop_assert!(now.is_finite() && now >= 0.0, "{name}: {now}");
                    let ratio = name.ends_with("_ratio");
                    prop_assert!(!ratio || now <= 1.0, "{name}: {now}");
                    if OWN_SUMS.contains(&name) {
                        let before = sums.insert(format!("{name} {:?}", point.labels), now);
                        let softnet = name.starts_with("loadline_softnet");
                        let begun = now <= 6.0 && !softnet;
                        prop_assert!(before.is_none_or(|before| now >= before || begun), "{name}");
                    }
                }
            }
        }
    }
}
