use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::config::document::Document;
use crate::model::ceph::{Cluster, Osd};
use crate::model::job::{Region, Target};
use crate::workload::testing::{Ears, run_in};

fn text(path: &Path) -> String {
    String::from_utf8(crate::host::roots::read_file(path).unwrap()).unwrap()
}

fn read(text: &str) -> Result<Shape, String> {
    let document = Document::parse("test", text).unwrap();
    (KIND.read)(document.root().get("osd_bench").as_ref()).map_err(|complaint| complaint.text)
}

/// What the scripted cluster does.
const STATUS: &str = "cat \"$F/status.json\"";
const BENCH: &str = "echo '{\"bytes_written\": 8388608, \"blocksize\": 4194304, \"elapsed_sec\": \
                     0.1, \"bytes_per_sec\": 83886080}'";

/// A run on a cluster made of what a real one answered; `$N` is how often the status was asked.
fn run_on(dir: &Path, status: &str, bench: &str) -> Run {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/ceph");
    let script = format!(
        "#!/bin/sh\nF={fixtures}; D={}\n\
         while [ \"$1\" != json ]; do shift; done; shift\n\
         case \"$*\" in\n\
         status) echo >> $D/asked; N=$(wc -l < $D/asked); {status};;\n\
         tell*) echo \"$*\" >> $D/told; {bench};;\n\
         log*) echo '[]';;\n\
         'osd tree') cat \"${{TREE:-$F/osd-tree.json}}\";;\n\
         *) cat \"$F/$(echo $* | tr ' ' -).json\";;\nesac\n",
        dir.display()
    );
    let path = dir.join("ceph");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = Cluster { command: path, ..Cluster::default() };
    let place = Place::Cluster(Box::new(cluster));
    Run {
        target: Target { name: "pool".into(), place },
        region: Region::Objects,
        ..run_in(dir, Bytes(0), vec![leg(Bytes(8 * MIB), Bytes(4 * MIB), RUNTIME); 4])
    }
}

fn outcome(status: &str, bench: &str) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    run(&run_on(dir.path(), status, bench), &Ears::default())
}

fn benched(done: &Done) -> usize {
    done.osds.iter().filter(|result| result.bench.is_some()).count()
}

#[test]
fn the_osds_have_their_turns_one_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let ears = Ears::default();
    let Outcome::Done(done) = run(&run_on(dir.path(), STATUS, BENCH), &ears) else { panic!() };
    assert_eq!((benched(&done), done.cost.written_bytes), (2, Bytes(16 * MIB)));
    let told = text(&dir.path().join("told"));
    assert_eq!(told, "tell osd.0 bench 8388608 4194304\ntell osd.1 bench 8388608 4194304\n");
    assert_eq!(ears.heard.lock().unwrap().len(), 2);
    let asked = text(&dir.path().join("asked"));
    assert_eq!(asked.lines().count(), 2, "the health is asked before each");
}

#[test]
fn a_cluster_that_is_not_well_is_left_alone_with_its_reason() {
    let warn = "echo '{\"health\": {\"status\": \"HEALTH_WARN\", \"checks\": {\"OSD_DOWN\": \
                {\"summary\": {\"message\": \"1 osds down\"}}}}}'";
    let Outcome::Skipped { skip, text, partial } = outcome(warn, BENCH) else { panic!() };
    assert_eq!((skip, partial), (Skip::Unhealthy, None));
    assert_eq!(text, "the cluster is HEALTH_WARN: OSD_DOWN (1 osds down)");
    let scrubs = "echo '{\"health\": {\"status\": \"HEALTH_OK\"}, \"pgmap\": {\"pgs_by_state\": \
                  [{\"state_name\": \"active+clean+scrubbing\", \"count\": 3}]}}'";
    let Outcome::Skipped { skip, text, .. } = outcome(scrubs, BENCH) else { panic!() };
    assert_eq!((skip, &*text), (Skip::Busy, "the cluster is at work: 3 active+clean+scrubbing"));
}

#[test]
fn one_that_falls_ill_meanwhile_ends_the_run_and_keeps_what_was_measured() {
    let later = "if [ $N -gt 1 ]; then echo '{\"health\": {\"status\": \"HEALTH_ERR\"}}'; else cat \
                 \"$F/status.json\"; fi";
    let Outcome::Skipped { skip, text, partial } = outcome(later, BENCH) else { panic!() };
    assert_eq!((skip, &*text), (Skip::Unhealthy, "the cluster is HEALTH_ERR"));
    assert_eq!(benched(&partial.unwrap()), 1);
}

#[test]
fn an_osd_that_goes_down_during_its_bench_is_named() {
    let dies = "echo 'Error ENXIO: osd down' >&2; exit 6";
    let Outcome::Failed { fault, partial } = outcome(STATUS, dies) else { panic!() };
    assert_eq!((fault.kind, partial), (FaultKind::Io, None));
    assert!(fault.text.starts_with("osd.0 went down during its bench: "), "{fault}");
}

#[test]
fn what_the_cluster_refuses_names_the_option() {
    let refuses = "echo \"Error EINVAL: block 'size' values are capped at 64 MiB. If you wish to use \
                   a higher value, please adjust 'osd_bench_max_block_size'\" >&2; exit 22";
    let Outcome::Failed { fault, .. } = outcome(STATUS, refuses) else { panic!() };
    assert_eq!(fault.kind, FaultKind::Unsupported);
    assert!(fault.text.contains("osd.0") && fault.text.contains("osd_bench_max_block_size"));
    let denies = "echo 'Error EACCES: problem getting command descriptions from osd.0' >&2; exit 13";
    let Outcome::Failed { fault, .. } = outcome(STATUS, denies) else { panic!() };
    assert_eq!(fault.kind, FaultKind::Denied);
}

#[test]
fn an_osd_without_room_is_left_alone() {
    let run = run_on(tempfile::tempdir().unwrap().path(), STATUS, BENCH);
    let osd = |id, up, available: Option<u64>| {
        let available = available.map(|mib| Bytes(mib * MIB));
        OsdResult { osd: Osd { id, up, available, ..Osd::default() }, bench: None }
    };
    let chosen = |all: &[OsdResult]| choose(all, Bytes(8 * MIB), &run);
    let all = [osd(0, true, Some(32)), osd(1, true, Some(31)), osd(2, false, Some(99))];
    assert_eq!(chosen(&all), Ok(vec![0]));
    let Err(Halt::Skipped(skip, text)) = chosen(&all[1..]) else { panic!() };
    assert_eq!((skip, &*text), (Skip::Full, "an OSD has at most 31 MiB free, of 32 MiB needed"));
    let Err(unknown) = chosen(&[osd(0, true, None)]) else { panic!() };
    let denied = Fault::new(FaultKind::Denied, "ceph osd df: EACCES");
    let Halt::Failed(fault) = because(unknown, &[denied]) else { panic!() };
    assert_eq!(fault.kind, FaultKind::Denied);
    assert_eq!(fault.text, "room on the OSDs is unknown: ceph osd df: EACCES");
    let Err(Halt::Failed(fault)) = chosen(&all[2..]) else { panic!() };
    assert_eq!(fault.text, "pool: no OSD of 1 is up");
    let many: Vec<_> = (0..10).map(|id| osd(id, true, Some(99))).collect();
    assert_eq!(chosen(&many), Ok(vec![1, 2, 3, 4]), "from the seed on, as many as there are legs");
}

#[test]
fn each_osd_counts_against_the_budget_and_a_day_s_default_keeps_it() {
    let shape = read("osd_bench: {}").unwrap();
    assert_eq!((shape.legs.len(), shape.every), (32, Seconds(86_400.0)));
    let most: u64 = shape.legs.iter().map(|leg| leg.written_bytes_max().0).sum();
    let budget = crate::config::settings::BUDGET_OF_CLUSTER;
    assert!(most * 5 <= budget.0 * 4, "{}", Bytes(most));
    for (options, key) in [
        ("osds: 0", "osds"),
        ("osds: 65", "osds"),
        ("block_size: 128MiB", "block_size"),
        ("bytes: 1MiB", "bytes"),
        ("runtime: 1h", "runtime"),
    ] {
        let text = read(&format!("osd_bench: {{{options}}}")).unwrap_err();
        assert!(text.contains(&format!("`{key}`")), "{text}");
    }
}
