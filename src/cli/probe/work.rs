//! From arguments to what runs.

use super::arguments::DiskArguments;
use crate::base::units::Bytes;
use crate::cli::hand::{FILE_DEFAULT, WRITES_WITHOUT_ASKING};
use crate::cli::{EXIT_USAGE, Failure};
use crate::model::job::{EngineKind, Profile};
use crate::probe::depths::two_legs;
use crate::probe::{disk, fio};

/// What a run by hand does.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) legs: Vec<Profile>,
    pub(super) engine: Option<EngineKind>,
    pub(super) seed: Option<u64>,
    /// Of the unnamed file.
    pub(super) size: Bytes,
    /// What of a job file changes nothing or is different here.
    pub(super) notes: Vec<String>,
}

impl Work {
    /// # Errors
    /// With the flag, or the line of the job file, that is wrong.
    pub(super) fn of(arguments: &DiskArguments) -> Result<Self, Failure> {
        let mut work = match &arguments.fio_job {
            Some(path) => {
                let job = fio::load(path, &arguments.section)?;
                let size = match (job.span(), arguments.size) {
                    (Some(_), Some(_)) => {
                        return Err(usage("--size: `size` stands in the job file".into()));
                    }
                    (span, size) => span.or(size),
                };
                Self {
                    size: size.unwrap_or(FILE_DEFAULT),
                    legs: job.legs,
                    engine: Some(job.engine),
                    seed: arguments.seed.or(job.seed),
                    notes: job.notes,
                }
            }
            None => Self {
                legs: legs(arguments)?,
                engine: arguments.engine.map(|engine| engine.kind()),
                seed: arguments.seed,
                size: arguments.size.unwrap_or(FILE_DEFAULT),
                notes: Vec::new(),
            },
        };
        for leg in &mut work.legs {
            leg.direct = !arguments.buffered;
            leg.bytes_max = leg.bytes_max.min(arguments.bytes.unwrap_or(leg.bytes_max));
            disk::check(leg)
                .map_err(|(key, text)| usage(format!("--{}: {text}", key.replace('_', "-"))))?;
        }
        if !arguments.yes {
            work.refuse_much()?;
        }
        Ok(work)
    }

    fn refuse_much(&self) -> Result<(), Failure> {
        let each = self.legs.iter().map(|leg| leg.written_bytes_max().0);
        let writes = Bytes(each.fold(0, u64::saturating_add));
        if writes <= WRITES_WITHOUT_ASKING {
            return Ok(());
        }
        let much = match writes {
            Bytes(u64::MAX) => "without a bound on bytes".to_owned(),
            writes => writes.to_string(),
        };
        Err(usage(format!("this may write {much}: add --yes, or set --bytes")))
    }
}

fn usage(text: String) -> Failure {
    Failure { code: EXIT_USAGE, text }
}

/// The profile, and the same at twice its depth.
fn legs(arguments: &DiskArguments) -> Result<Vec<Profile>, Failure> {
    let profile = profile(arguments)?;
    Ok(if arguments.one_leg { vec![profile] } else { two_legs(&profile, None) })
}

/// The profile with what was asked for in its place.
fn profile(arguments: &DiskArguments) -> Result<Profile, Failure> {
    let shape = disk::shape(arguments.profile.preset());
    let base =
        shape.legs.first().map(disk::full).ok_or_else(|| usage("an empty profile".into()))?;
    let reads = arguments.reads.unwrap_or(base.reads);
    let profile = Profile {
        access: arguments.access.map_or(base.access, |access| access.access()),
        reads,
        block: arguments.block_size.unwrap_or(base.block),
        depth: arguments.depth.unwrap_or(base.depth),
        jobs: arguments.jobs.unwrap_or(base.jobs),
        runtime: arguments.runtime.unwrap_or(base.runtime),
        ramp: arguments.ramp.unwrap_or(base.ramp),
        bytes_max: arguments.bytes.unwrap_or(base.bytes_max),
        sync: arguments.sync,
        flush: arguments.flush.unwrap_or(true) && reads.0 < 1.0,
        ..base.clone()
    };
    let of = |p: &Profile| (p.access, p.reads, p.block, p.sync);
    let custom = of(&profile) != of(&base);
    Ok(Profile { name: if custom { "custom".into() } else { base.name }, ..profile })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::base::units::{Ratio, Seconds};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        disk: DiskArguments,
    }

    fn parse(words: &[&str]) -> Result<Work, String> {
        let line = Line::try_parse_from([&["probe"], words].concat()).map_err(|e| e.to_string())?;
        Work::of(&line.disk).map_err(|failure| failure.text)
    }

    #[test]
    fn every_parameter_has_its_flag() {
        let work = parse(&[
            "--access",
            "sequential",
            "--reads",
            "25%",
            "--block-size",
            "16k",
            "--depth",
            "3",
            "--jobs",
            "5",
            "--runtime",
            "7s",
            "--ramp",
            "1s",
            "--bytes",
            "1GiB",
            "--size",
            "64m",
            "--sync",
            "--flush",
            "false",
            "--one-leg",
            "--buffered",
            "--engine",
            "aio",
            "--seed",
            "9",
        ])
        .unwrap();
        let leg = &work.legs[0];
        assert_eq!(
            (leg.name.as_str(), leg.reads, leg.block),
            ("custom", Ratio(0.25), Bytes(16384))
        );
        assert_eq!(
            (leg.depth, leg.jobs, leg.runtime, leg.ramp),
            (3, 5, Seconds(7.0), Seconds(1.0))
        );
        assert_eq!((leg.sync, leg.flush, leg.direct), (true, false, false));
        assert_eq!((leg.bytes_max, work.size), (Bytes(1 << 30), Bytes(64 << 20)));
        assert_eq!((work.engine, work.seed), (Some(EngineKind::Aio), Some(9)));
        assert_eq!(parse(&[]).unwrap().legs[0].name, "rand_read");
    }

    #[test]
    fn a_wrong_value_is_told_with_its_flag() {
        for (words, flag) in [
            (["--reads", "70"], "--reads"),
            (["--reads", "-1"], "--reads"),
            (["--block-size", "4q"], "--block-size"),
            (["--block-size", "1000"], "--block-size"),
            (["--depth", "0"], "--depth"),
            (["--depth", "-1"], "--depth"),
            (["--jobs", "0"], "--jobs"),
            (["--runtime", "10"], "--runtime"),
            (["--runtime", "2h"], "--runtime"),
            (["--ramp", "soon"], "--ramp"),
            (["--bytes", "1"], "--bytes"),
            (["--size", "big"], "--size"),
            (["--flush", "maybe"], "--flush"),
            (["--engine", "sync"], "--engine"),
            (["--seed", "x"], "--seed"),
            (["--format", "xml"], "--format"),
            (["--access", "zigzag"], "--access"),
            (["--section", "a"], "--fio-job"),
        ] {
            let text = parse(&words).unwrap_err();
            assert!(text.contains(flag), "{words:?}: {text}");
        }
    }

    fn job(text: &str, more: &[&str]) -> Result<Work, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.fio");
        std::fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        parse(&[&["--fio-job", &path], more].concat())
    }

    #[test]
    fn a_job_file_takes_the_place_of_a_profile() {
        let text = "[a]\ndirect=1\nsize=8m\nnumjobs=2\nrandseed=5\n[b]\nstonewall\ndirect=1\n\
                    randseed=5\nsize=1m\n";
        let work = job(text, &[]).unwrap();
        assert_eq!((work.legs.len(), work.size, work.seed), (2, Bytes(16 << 20), Some(5)));
        assert_eq!(job(text, &["--seed", "6"]).unwrap().seed, Some(6));
        assert_eq!(job(text, &["--section", "b"]).unwrap().legs[0].name, "b");
        assert!(job(text, &["--depth", "4"]).unwrap_err().contains("--fio-job"));
        assert!(job(text, &["--size", "4m"]).unwrap_err().contains("--size"));
        assert!(job("[a]\nfilename=/dev/sda\n", &[]).unwrap_err().contains("job.fio:2:1: "));
    }

    #[test]
    fn nothing_is_written_without_a_bound_unasked() {
        let text = "[a]\nrw=write\ndirect=1\ntime_based\nruntime=10\nsize=8m\n";
        assert!(job(text, &[]).unwrap_err().contains("without a bound on bytes: add --yes"));
        assert!(job(text, &["--yes"]).is_ok());
        let bounded = job(text, &["--bytes", "1GiB"]).unwrap();
        assert_eq!(bounded.legs[0].written_bytes_max(), Bytes(1 << 30));
        let much = parse(&["--profile", "seq_write", "--bytes", "17GiB"]).unwrap_err();
        assert!(much.contains("17 GiB") && much.contains("--yes"), "{much}");
    }
}
