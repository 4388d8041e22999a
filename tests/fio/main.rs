//! fio's job files and fio's report: the same job, run by fio and by loadline, read by one consumer.
//!
//! What needs fio, or a disk with direct I/O, is skipped with its reason where there is none.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout,
    unreachable_pub,
    reason = "tests"
)]

mod consumer;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use consumer::{Direction, consume, lacking};
use loadline::probe::fio;
use serde_json::Value;

fn disk_dir() -> tempfile::TempDir {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(base).unwrap();
    tempfile::tempdir_in(base).unwrap()
}

fn write_job(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("job.fio");
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs a job file by loadline, on a directory of its own.
fn loadline(dir: &Path, text: &str, more: &[&str]) -> Output {
    let job = write_job(dir, text);
    let target = dir.join("target");
    std::fs::create_dir_all(&target).unwrap();
    Command::new(env!("CARGO_BIN_EXE_loadline"))
        .args(["probe", "disk", "--format", "fio-json", "--target"])
        .arg(&target)
        .arg("--fio-job")
        .arg(&job)
        .args(more)
        .env("STATE_DIRECTORY", dir.join("state"))
        .env("RUST_LOG", "off")
        .output()
        .unwrap()
}

/// The report of a run that went well; `None`, with the reason printed, where this disk can't.
fn ours(dir: &Path, text: &str) -> Option<String> {
    let ran = loadline(dir, text, &[]);
    let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8_lossy(&ran.stderr));
    if err.contains("no direct I/O") || err.contains("is memory") {
        println!("skipped: {err}");
        return None;
    }
    assert!(ran.status.success(), "{err}");
    Some(out)
}

/// fio's own report of the same file; `None` where fio isn't installed.
fn theirs(dir: &Path, text: &str) -> Option<String> {
    let job = write_job(dir, text);
    let work = dir.join("fio");
    std::fs::create_dir_all(&work).unwrap();
    // Its files go where it is started; they are gone with the directory.
    let ran = Command::new("fio").arg("--output-format=json").arg(&job).current_dir(&work).output();
    let Ok(ran) = ran else {
        println!("skipped: fio is not installed");
        return None;
    };
    let out = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{out}{}", String::from_utf8_lossy(&ran.stderr));
    // Messages may come before the document (case 096).
    let start = out.find("{\n").unwrap();
    Some(out[start..].to_owned())
}

const MIX: &str = "[mix]\nrw=randrw\nrwmixread=70\nbs=4k\nsize=16m\nnumjobs=2\nioengine=io_uring\n\
                   iodepth=4\ndirect=1\nnorandommap\nrandrepeat=0\nend_fsync=1\ngroup_reporting\n\
                   time_based\nruntime=2\n";

#[test]
fn one_consumer_reads_fio_and_loadline() {
    let dir = disk_dir();
    let bounded = MIX.replace("time_based", "io_size=1g");
    let Some(ours) = ours(dir.path(), &bounded) else { return };
    let report = consume(&ours);
    assert!(report.fio_version.starts_with("loadline-"));
    let job = &report.jobs[0];
    assert_eq!((job.jobname.as_str(), job.options["rw"].as_str()), ("mix", "randrw"));
    assert_eq!((job.sync.lat_ns.n, job.options["end_fsync"].as_str()), (1, "1"));
    assert!(job.read.iops_samples >= 3, "half seconds of two seconds");
    let share = job.read.total_ios as f64 / (job.read.total_ios + job.write.total_ios) as f64;
    assert!((0.6..0.8).contains(&share), "{share}");
    for disk in &report.disk_util {
        assert!(disk.read_ios > 0 && disk.write_ios > 0, "{disk:?}");
    }

    let Some(theirs) = theirs(dir.path(), MIX) else { return };
    assert!(consume(&theirs).fio_version.starts_with("fio-"));
    let mut missing = Vec::new();
    let [theirs, ours] = [theirs, ours].map(|text| serde_json::from_str::<Value>(&text).unwrap());
    lacking("", &theirs, &ours, &mut missing);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn the_check_itself_sees_a_missing_key_and_another_type() {
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let mut out = Vec::new();
    let wanted = value(r#"{"a": [{"b": 1.0, "c": 1}]}"#);
    lacking("", &wanted, &value(r#"{"a": [{"b": 1}]}"#), &mut out);
    assert_eq!(out, [".a[0].b: 1 is no real number", ".a[0].c is missing"]);
}

/// Jobs that end by their amount, so that what they moved is the same to the byte.
#[test]
fn a_job_moves_in_loadline_what_it_moves_in_fio() {
    let head = "direct=1\nnorandommap\nrandrepeat=0\n";
    let jobs = [
        "[a]\nrw=read\nbs=64k\nsize=8m\n".to_owned(),
        "[a]\nrw=write\nbs=4k\nsize=1m\nnumjobs=2\ngroup_reporting\nend_fsync=1\n".to_owned(),
        "[a]\nrw=randread\nbs=8k\nsize=4m\nio_size=1m\nioengine=io_uring\niodepth=4\n".to_owned(),
        "[a]\nrw=randwrite\nsize=4m\nnumber_ios=100\nsync=dsync\n".to_owned(),
        "[a]\nkb_base=1000\nrw=read\nbs=4KiB\nsize=1MiB\n".to_owned(),
        "[a]\nrw=read ; in order\nbs=4Ki\nsize=0x100000 # 1 MiB\niodepth=8\n".to_owned(),
        format!(
            "[global]\nsize=1m\n{head}[a]\nrw=read\nbs=16k\n[b]\nstonewall\nrw=write\nbs=32k\n"
        ),
    ];
    let dir = disk_dir();
    for job in jobs {
        let job = if job.contains(head) { job } else { format!("{job}{head}") };
        let Some(ours) = ours(dir.path(), &job) else { return };
        let Some(theirs) = theirs(dir.path(), &job) else { return };
        let moved = |text: &str| -> Vec<(String, [u64; 4])> {
            let jobs = consume(text).jobs;
            let of = |d: &Direction| [d.total_ios, d.io_bytes];
            jobs.iter()
                .map(|job| {
                    let ([a, b], [c, d]) = (of(&job.read), of(&job.write));
                    (job.jobname.clone(), [a, b, c, d])
                })
                .collect()
        };
        assert_eq!(moved(&ours), moved(&theirs), "{job}");
    }
}

#[test]
fn case_104_a_failure_is_no_report_of_zero() {
    let dir = disk_dir();
    let job = "[a]\nsize=1m\ndirect=1\n";
    let gone = loadline(dir.path(), job, &["--target", "/no/such/place"]);
    assert_eq!(gone.status.code(), Some(2), "the target can be named once");
    let ran = Command::new(env!("CARGO_BIN_EXE_loadline"))
        .args(["probe", "disk", "--format", "fio-json", "--target"])
        .arg(dir.path().join("gone"))
        .env("STATE_DIRECTORY", dir.path().join("state"))
        .output()
        .unwrap();
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(1), &b""[..]));
    assert!(!ran.stderr.is_empty());
}

#[test]
fn a_job_that_can_not_be_honoured_is_refused_before_anything_runs() {
    let dir = disk_dir();
    let ran = loadline(dir.path(), "[a]\nrw=randwrite\nfilename=/dev/sda\n", &[]);
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(3), "{err}");
    assert!(err.contains("job.fio:3:1: `filename=/dev/sda`") && err.contains("--target"), "{err}");
    assert_eq!(std::fs::read_dir(dir.path().join("target")).unwrap().count(), 0);
}

/// What becomes of job files like those in the field, word for word.
#[test]
fn job_files_of_the_field_are_honoured_or_refused_as_written_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root.join("fixtures/fio")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut said = String::new();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        writeln!(said, "== {name}").unwrap();
        match fio::parse(name, &text, &[]) {
            Err(complaint) => writeln!(said, "{complaint}").unwrap(),
            Ok(job) => {
                for leg in &job.legs {
                    writeln!(
                        said,
                        "{}: {:?}, {} reads, {} x {} x {}, {} after {}, {} of {}, sync {}, flush {}",
                        leg.name,
                        leg.access,
                        leg.reads,
                        leg.jobs,
                        leg.depth,
                        leg.block,
                        leg.runtime,
                        leg.ramp,
                        if leg.bytes_max.0 == u64::MAX { "all".into() } else { leg.bytes_max.to_string() },
                        leg.span.map_or("all there is".into(), |span| span.to_string()),
                        leg.sync,
                        leg.flush,
                    )
                    .unwrap();
                }
                writeln!(said, "engine {}, seed {:?}", job.engine.label(), job.seed).unwrap();
                job.notes.iter().for_each(|note| writeln!(said, "{note}").unwrap());
            }
        }
    }
    insta::with_settings!({snapshot_path => "../golden", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("fio", said);
    });
}
