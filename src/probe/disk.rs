//! Kind `disk`: a profile on a directory or a raw device, in the small size that a monitor runs
//! every few hours, or in full.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::depths::Depths;
use super::latency::complain;
use super::run::{self, Rules};
use super::{Kind, Shape, Wrong, fio, metrics, options};
use crate::base::units::{Bytes, GIB, KIB, MIB, Ratio, Seconds};
use crate::config::complaint::Complaint;
use crate::config::document::Section;
use crate::config::read;
use crate::model::job::{Access, Profile};

pub static KIND: Kind = Kind {
    name: "disk",
    help: "throughput and latency: seq_read, seq_write, rand_read, rand_rw, rand_write, your own, \
           or an fio job file (`fio_job: /etc/loadline/job.fio`)",
    example: "disk:\n  profile: rand_read\n  access: random\n  reads: 100%\n  block_size: 4KiB\n  \
              depth: 4\n  jobs: 2\n  runtime: 3s\n  ramp: 0s\n  bytes: 16GiB\n  sync: false\n  \
              flush: false\n  direct: true\n",
    descs: metrics::STORAGE,
    points: |_, _, _| {},
    read: |section| {
        let options: Options = options(section)?;
        if let Some(path) = &options.fio_job {
            return options.shape_of_job(path, section);
        }
        options.shape().map_err(|(key, text)| complain(section, key, text))
    },
    run: |run, watch| {
        run::storage(run, &Rules { flags_of_length: true, depths: Depths::Twice }, watch)
    },
};

/// The five profiles by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    SeqRead,
    SeqWrite,
    #[default]
    RandRead,
    RandRw,
    RandWrite,
}

impl Preset {
    pub const ALL: [Preset; 5] =
        [Preset::SeqRead, Preset::SeqWrite, Preset::RandRead, Preset::RandRw, Preset::RandWrite];

    pub fn name(self) -> &'static str {
        match self {
            Preset::SeqRead => "seq_read",
            Preset::SeqWrite => "seq_write",
            Preset::RandRead => "rand_read",
            Preset::RandRw => "rand_rw",
            Preset::RandWrite => "rand_write",
        }
    }

    /// Monitor size: reads 3 s or 16 GiB; writes 3 s or what a day's budget bears several times.
    fn profile(self) -> Profile {
        let (access, reads, bytes_max) = match self {
            Preset::SeqRead => (Access::Sequential, 1.0, 16 * GIB),
            Preset::SeqWrite => (Access::Sequential, 0.0, 256 * MIB),
            Preset::RandRead => (Access::Random, 1.0, 16 * GIB),
            Preset::RandRw => (Access::Random, 0.7, 32 * MIB),
            Preset::RandWrite => (Access::Random, 0.0, 64 * MIB),
        };
        let (block, depth, jobs) = match access {
            Access::Sequential => (MIB, 32, 1),
            Access::Random | Access::RandomMap => (4 * KIB, 4, 2),
        };
        Profile {
            name: self.name().into(),
            access,
            reads: Ratio(reads),
            block: Bytes(block),
            depth,
            jobs,
            runtime: Seconds(3.0),
            ramp: Seconds(0.0),
            bytes_max: Bytes(bytes_max),
            operations_max: None,
            span: None,
            sync: false,
            flush: reads < 1.0,
            direct: true,
            oltp: None,
        }
    }
}

/// A profile as the daemon runs it where nothing is configured.
pub fn shape(preset: Preset) -> Shape {
    shape_of(preset.profile())
}

/// The same profile as fio would run it, for one-shot commands: a minute, at most 16 GiB.
#[must_use]
pub fn full(profile: &Profile) -> Profile {
    Profile { runtime: Seconds(60.0), bytes_max: Bytes(16 * GIB), ..profile.clone() }
}

fn shape_of(profile: Profile) -> Shape {
    let hours = if profile.writes_anything() { 6.0 } else { 1.0 };
    Shape {
        every: Seconds(hours * 3600.0),
        depths: Depths::Twice,
        exempt_from_gate: false,
        calm: Seconds(0.0),
        quiet: Seconds(1.0),
        profile: profile.name.clone(),
        summary: format!(
            "{} {}, {} job{} x depth {}",
            profile.name,
            profile.block,
            profile.jobs,
            if profile.jobs == 1 { "" } else { "s" },
            profile.depth
        ),
        legs: vec![profile],
        engine: None,
    }
}

/// Of one operation: a sector of any disk to what no driver takes at once.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=16 * MIB;
/// Of everything in flight: it is memory of the worker.
const IN_FLIGHT_BYTES_MAX: u64 = 256 * MIB;
const IN_FLIGHT_MAX: u32 = 1024;
pub(super) const RUNTIME_SECONDS_MAX: f64 = 3600.0;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    profile: Option<Preset>,
    /// An fio job file with one section, by its absolute path.
    fio_job: Option<PathBuf>,
    access: Option<Access>,
    #[serde(deserialize_with = "read::optional")]
    reads: Option<Ratio>,
    #[serde(deserialize_with = "read::optional")]
    block_size: Option<Bytes>,
    depth: Option<u32>,
    jobs: Option<u32>,
    #[serde(deserialize_with = "read::optional")]
    runtime: Option<Seconds>,
    #[serde(deserialize_with = "read::optional")]
    ramp: Option<Seconds>,
    #[serde(deserialize_with = "read::optional")]
    bytes: Option<Bytes>,
    sync: Option<bool>,
    flush: Option<bool>,
    direct: Option<bool>,
}

impl Options {
    fn shape(&self) -> Result<Shape, Wrong> {
        let base = self.profile.unwrap_or_default().profile();
        let reads = self.reads.unwrap_or(base.reads);
        let mut profile = Profile {
            access: self.access.unwrap_or(base.access),
            reads,
            block: self.block_size.unwrap_or(base.block),
            depth: self.depth.unwrap_or(base.depth),
            jobs: self.jobs.unwrap_or(base.jobs),
            runtime: self.runtime.unwrap_or(base.runtime),
            ramp: self.ramp.unwrap_or(base.ramp),
            bytes_max: self.bytes.unwrap_or(bytes_by_default(&base, reads)),
            sync: self.sync.unwrap_or(base.sync),
            flush: self.flush.unwrap_or(reads.0 < 1.0),
            direct: self.direct.unwrap_or(base.direct),
            ..base.clone()
        };
        check(&profile)?;
        let of = |p: &Profile| (p.access, p.reads, p.block, p.sync);
        if of(&profile) != of(&base) {
            // What is compared by its name has to be the same workload everywhere.
            profile.name = "custom".into();
        }
        Ok(shape_of(profile))
    }
}

impl Options {
    /// What an fio job file asks for, within the rules of any other probe: a bound on what is
    /// written, and the target's own place.
    fn shape_of_job(&self, path: &Path, at: Option<&Section<'_>>) -> Result<Shape, Complaint> {
        let wrong = |key: &str, text: &str| complain(at, key, text.to_owned());
        if let Some(key) = self.written_beside() {
            return Err(wrong(key, "stands in the fio job file: only `bytes` may go beside it"));
        }
        if !path.is_absolute() {
            return Err(wrong("fio_job", "write the whole path, from `/` on"));
        }
        let mut job = fio::load(path, &[])?;
        let (Some(mut leg), true) = (job.legs.pop(), job.legs.is_empty()) else {
            return Err(wrong("fio_job", "a probe is one workload: one section in a file"));
        };
        if job.seed.is_some() {
            let text = "the daemon draws other offsets each time: leave out `randseed` and \
                        `randrepeat=1`";
            return Err(wrong("fio_job", text));
        }
        if let Some(bytes) = self.bytes {
            leg.bytes_max = leg.bytes_max.min(bytes);
        }
        if leg.written_bytes_max() == Bytes(u64::MAX) {
            let text = "it writes for a time, without a bound: add `bytes: 64MiB`, or so";
            return Err(wrong("fio_job", text));
        }
        check(&leg).map_err(|(key, text)| complain(at, key, text))?;
        for note in &job.notes {
            tracing::info!("{note}");
        }
        Ok(Shape { engine: Some(job.engine), ..shape_of(leg) })
    }

    /// The first option beside `fio_job` that would say the same thing twice.
    fn written_beside(&self) -> Option<&'static str> {
        let written = [
            ("profile", self.profile.is_some()),
            ("access", self.access.is_some()),
            ("reads", self.reads.is_some()),
            ("block_size", self.block_size.is_some()),
            ("depth", self.depth.is_some()),
            ("jobs", self.jobs.is_some()),
            ("runtime", self.runtime.is_some()),
            ("ramp", self.ramp.is_some()),
            ("sync", self.sync.is_some()),
            ("flush", self.flush.is_some()),
            ("direct", self.direct.is_some()),
        ];
        written.into_iter().find(|(_, is)| *is).map(|(key, _)| key)
    }
}

/// A read profile that was told to write gets the bound of writes.
fn bytes_by_default(base: &Profile, reads: Ratio) -> Bytes {
    if reads.0 < 1.0 && !base.writes_anything() {
        return Bytes(64 * MIB);
    }
    base.bytes_max
}

pub(super) fn check_block_size(block: Bytes) -> Result<(), Wrong> {
    if !BLOCK_BYTES.contains(&block.0) || !block.0.is_multiple_of(512) {
        return Err(("block_size", format!("{block} is no multiple of 512 B up to 16 MiB")));
    }
    Ok(())
}

/// Whether a worker can run a profile as it stands.
///
/// # Errors
/// The option that can't be, and why.
pub fn check(profile: &Profile) -> Result<(), Wrong> {
    check_block_size(profile.block)?;
    let wrong = |key, text: String| Err((key, text));
    if profile.depth == 0 {
        return wrong("depth", "at least 1 operation must be in flight".into());
    }
    if profile.jobs == 0 {
        return wrong("jobs", "at least 1 job must run".into());
    }
    let in_flight = profile.in_flight_max();
    let bytes = Bytes(u64::from(in_flight).saturating_mul(profile.block.0));
    if in_flight > IN_FLIGHT_MAX || bytes.0 > IN_FLIGHT_BYTES_MAX {
        let text = format!("{in_flight} in flight, {bytes}: at most {IN_FLIGHT_MAX} and 256 MiB");
        return wrong("depth", text);
    }
    let seconds = profile.runtime.0;
    if !(seconds > 0.0 && seconds + profile.ramp.0 <= RUNTIME_SECONDS_MAX) {
        return wrong("runtime", format!("{} is not within an hour", profile.runtime));
    }
    if profile.bytes_max.0 < profile.block.0 {
        return wrong("bytes", format!("{} is less than a block", profile.bytes_max));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Document;
    use crate::model::job::EngineKind;

    fn read(text: &str) -> Result<Shape, String> {
        let document = Document::parse("test", text).unwrap();
        (KIND.read)(document.root().get("disk").as_ref()).map_err(|complaint| complaint.text)
    }

    #[test]
    fn the_five_profiles_are_as_designed() {
        let of = |preset| {
            let shape = shape(preset);
            (shape.summary, shape.every.0 / 3600.0, shape.legs[0].written_bytes_max())
        };
        assert_eq!(
            Preset::ALL.map(of),
            [
                ("seq_read 1 MiB, 1 job x depth 32".into(), 1.0, Bytes(0)),
                ("seq_write 1 MiB, 1 job x depth 32".into(), 6.0, Bytes(256 * MIB)),
                ("rand_read 4 KiB, 2 jobs x depth 4".into(), 1.0, Bytes(0)),
                ("rand_rw 4 KiB, 2 jobs x depth 4".into(), 6.0, Bytes(32 * MIB)),
                ("rand_write 4 KiB, 2 jobs x depth 4".into(), 6.0, Bytes(64 * MIB)),
            ]
        );
        for preset in Preset::ALL {
            assert_eq!(read(&format!("disk: {{profile: {}}}", preset.name())), Ok(shape(preset)));
        }
    }

    #[test]
    fn another_workload_under_an_old_name_is_called_custom() {
        let deeper = read("disk: {profile: rand_read, depth: 8, jobs: 1}").unwrap();
        assert_eq!(deeper.summary, "rand_read 4 KiB, 1 job x depth 8");
        let larger = read("disk: {profile: rand_read, block_size: 16k}").unwrap();
        assert_eq!(larger.profile, "custom");
        let writes = read("disk: {reads: 50%}").unwrap().legs.remove(0);
        assert!(writes.flush && writes.bytes_max == Bytes(64 * MIB), "{writes:?}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_key() {
        for (options, key) in [
            ("block_size: 1000", "block_size"),
            ("block_size: 32MiB", "block_size"),
            ("depth: 0", "depth"),
            ("depth: 2000", "depth"),
            ("jobs: 0", "jobs"),
            ("runtime: 0s", "runtime"),
            ("runtime: 2h", "runtime"),
            ("bytes: 100", "bytes"),
            ("profile: rand_reed", "rand_reed"),
            ("bs: 4k", "bs"),
            ("reads: 2", "reads"),
        ] {
            let text = read(&format!("disk: {{{options}}}")).unwrap_err();
            assert!(text.contains(&format!("`{key}`")), "{options}: {text}");
        }
    }

    /// Writes a job file and reads a probe that names it.
    fn with_job(job: &str, more: &str) -> Result<Shape, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.fio");
        std::fs::write(&path, job).unwrap();
        read(&format!("disk: {{fio_job: {}{more}}}", path.display()))
    }

    #[test]
    fn a_job_file_makes_a_probe_within_the_rules_of_any_other() {
        let job = "[commit]\nrw=randwrite\nsize=16m\ndirect=1\nioengine=libaio\niodepth=4\n";
        let shape = with_job(job, "").unwrap();
        assert_eq!(shape.engine, Some(EngineKind::Aio));
        assert_eq!((shape.profile.as_str(), shape.every), ("commit", Seconds(6.0 * 3600.0)));
        assert_eq!(shape.legs[0].written_bytes_max(), Bytes(16 * MIB));
        let bounded = with_job(job, ", bytes: 1MiB").unwrap();
        assert_eq!(bounded.legs[0].written_bytes_max(), Bytes(MIB));

        let timed = format!("{job}time_based\nruntime=3\n");
        assert!(with_job(&timed, "").unwrap_err().contains("`bytes: 64MiB`"));
        assert!(with_job(&timed, ", bytes: 8MiB").is_ok());
        assert!(with_job(job, ", depth: 4").unwrap_err().starts_with("`depth`"));
        let two = format!("{job}[two]\nstonewall\nsize=1m\ndirect=1\nioengine=libaio\n");
        assert!(with_job(&two, "").unwrap_err().contains("one section"));
        assert!(with_job(&format!("{job}randseed=1\n"), "").unwrap_err().contains("randseed"));
        assert!(read("disk: {fio_job: job.fio}").unwrap_err().contains("whole path"));
        assert!(with_job("[a]\nfilename=/x\n", "").unwrap_err().contains("--target"));
    }

    #[test]
    fn a_full_run_lasts_a_minute() {
        let full = full(&shape(Preset::SeqWrite).legs[0]);
        assert_eq!((full.runtime, full.bytes_max), (Seconds(60.0), Bytes(16 * GIB)));
    }
}
