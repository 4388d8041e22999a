//! One section as a profile.

use super::ini::{Section, Setting};
use super::known::{HONOURED, Treatment, treatment};
use super::options::Options;
use super::{Wrong, value};
use crate::base::units::{Bytes, Ratio, Seconds};
use crate::config::complaint::nearest;
use crate::model::job::{Access, EngineKind, Profile};
use crate::probe::disk;

/// fio's own where a file names none.
const BLOCK_BYTES: u64 = 4096;
const MIX_READS: u32 = 50;
/// `FIO_RANDSEED` would be another generator's: any fixed number repeats a run.
const REPEATED_SEED: u64 = 0x6669_6f00;

/// A section, read.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) profile: Profile,
    pub(super) engine: EngineKind,
    pub(super) seed: Option<u64>,
    pub(super) stonewall: bool,
}

/// Reads a section; what changes nothing, or is different here, goes to `notes` with its line.
pub(super) fn read(section: &Section, notes: &mut Vec<(usize, String)>) -> Result<Job, Wrong> {
    for setting in &section.options {
        sort_out(setting, notes)?;
    }
    let options = Options::of(section)?;
    let (access, reads) = options.direction()?;
    let access = match access {
        Access::Random if !options.flag(&["norandommap"], false)? => Access::RandomMap,
        access => access,
    };
    let engine = options.engine(notes)?;
    options.check_direct()?;
    let block = options.block()?;
    disk::check_block_size(Bytes(block))
        .map_err(|(_, text)| options.wrong(&["bs", "blocksize"], text))?;
    let jobs = options.count(&["numjobs"], 1)?;
    let mut profile = Profile {
        name: section.name.clone(),
        access,
        reads,
        block: Bytes(block),
        depth: engine.depth,
        jobs,
        runtime: Seconds(0.0),
        ramp: Seconds(0.0),
        bytes_max: Bytes(u64::MAX),
        operations_max: options.operations(jobs)?,
        span: None,
        sync: options.sync()?,
        flush: options.flag(&["end_fsync"], false)? && reads.0 < 1.0,
        direct: true,
        oltp: None,
    };
    options.bound(&mut profile)?;
    disk::check(&profile).map_err(|(key, text)| options.wrong(keys_of(key), text))?;
    options.note_differences(&profile, notes);
    Ok(Job {
        profile,
        engine: engine.kind,
        seed: options.seed()?,
        stonewall: options.flag(&["stonewall", "wait_for_previous"], false)?,
    })
}

/// Refuses an option that can't be honoured; notes one that changes nothing.
fn sort_out(setting: &Setting, notes: &mut Vec<(usize, String)>) -> Result<(), Wrong> {
    let key = setting.key.as_str();
    match treatment(key) {
        Some(Treatment::Honoured) => Ok(()),
        Some(Treatment::NoEffect(why)) => {
            notes.push((setting.line, format!("`{}` has no effect: {why}", setting.shown())));
            Ok(())
        }
        Some(Treatment::Only(allowed, why)) => {
            // An option without a value is switched on.
            if allowed.contains(&setting.value.as_deref().unwrap_or("1")) {
                return Ok(());
            }
            Err(setting.wrong(format_args!("not in this engine: {why}")))
        }
        None => {
            let text = match nearest(key, HONOURED) {
                Some(word) => format!("not in this engine (did you mean `{word}`?)"),
                None => format!("not in this engine, which knows {}", HONOURED.join(", ")),
            };
            Err(setting.wrong(text))
        }
    }
}

/// Names in a job file of what `disk::check` complains of.
fn keys_of(key: &str) -> &'static [&'static str] {
    match key {
        "block_size" => &["bs", "blocksize"],
        "depth" => &["iodepth", "numjobs"],
        "jobs" => &["numjobs"],
        "runtime" => &["runtime", "timeout", "ramp_time"],
        _ => &["size", "io_size", "io_limit"],
    }
}

struct Engine {
    kind: EngineKind,
    depth: u32,
}

impl Options<'_> {
    fn direction(&self) -> Result<(Access, Ratio), Wrong> {
        let rw = self.text(&["rw", "readwrite"])?;
        let share = match self.text(&["rwmixread", "rwmixwrite"])? {
            None => MIX_READS,
            Some((setting, text)) => {
                let percent = value::count(text, self.kilo).ok().filter(|percent| *percent <= 100);
                let percent = percent.ok_or_else(|| setting.wrong("a share of 0 to 100"))?;
                if setting.key == "rwmixread" { percent } else { 100 - percent }
            }
        };
        let mixed = Ratio(f64::from(share) / 100.0);
        match rw {
            None | Some((_, "read")) => Ok((Access::Sequential, Ratio(1.0))),
            Some((_, "write")) => Ok((Access::Sequential, Ratio(0.0))),
            Some((_, "randread")) => Ok((Access::Random, Ratio(1.0))),
            Some((_, "randwrite")) => Ok((Access::Random, Ratio(0.0))),
            Some((_, "randrw")) => Ok((Access::Random, mixed)),
            Some((setting, "rw" | "readwrite")) => Err(setting.wrong(
                "two sequential streams in one job are not in this engine: `randrw`, or a section \
                 for each direction",
            )),
            Some((setting, _)) => Err(setting.wrong("read, write, randread, randwrite or randrw")),
        }
    }

    /// Engines of fio that do one operation at a time have depth 1, whatever `iodepth` says.
    fn engine(&self, notes: &mut Vec<(usize, String)>) -> Result<Engine, Wrong> {
        let depth = self.count(&["iodepth"], 1)?;
        let of = |kind| Ok(Engine { kind, depth });
        let name = match self.text(&["ioengine"])? {
            Some((_, "libaio")) => return of(EngineKind::Aio),
            Some((_, "io_uring")) => return of(EngineKind::IoUring),
            Some((_, name @ ("sync" | "psync" | "vsync" | "pvsync" | "pvsync2"))) => name,
            None => "psync, fio's default,",
            Some((setting, _)) => {
                let text = "io_uring, libaio, or psync and its like for one at a time";
                return Err(setting.wrong(text));
            }
        };
        if let Some(setting) = self.last(&["iodepth"]).filter(|_| depth != 1) {
            let text = format!("has no effect: {name} does one operation at a time, as in fio");
            notes.push((setting.line, format!("`{}` {text}", setting.shown())));
        }
        Ok(Engine { kind: EngineKind::Threads, depth: 1 })
    }

    fn check_direct(&self) -> Result<(), Wrong> {
        let direct = match self.last(&["direct", "buffered"]) {
            Some(setting) if setting.key == "buffered" => !self.flag(&["buffered"], true)?,
            _ => self.flag(&["direct"], false)?,
        };
        if direct {
            return Ok(());
        }
        let text = "through the page cache (fio's default, direct=0) a job measures memory: write \
                    `direct=1`";
        Err(self.wrong(&["direct", "buffered"], text.into()))
    }

    fn block(&self) -> Result<u64, Wrong> {
        let Some((setting, text)) = self.text(&["bs", "blocksize"])? else {
            return Ok(BLOCK_BYTES);
        };
        // `reads,writes,trims`
        let sizes: Result<Vec<u64>, String> =
            text.split(',').map(|part| value::size(part.trim(), self.kilo)).collect();
        match sizes.map_err(|text| setting.wrong(text))?.as_slice() {
            [first, rest @ ..] if rest.iter().all(|size| size == first) => Ok(*first),
            _ => Err(setting.wrong("one size for reads and writes: a section for each size")),
        }
    }

    fn sync(&self) -> Result<bool, Wrong> {
        match self.text(&["sync"])? {
            None | Some((_, "0" | "none")) => Ok(false),
            Some((_, "dsync")) => Ok(true),
            Some((setting, _)) => Err(setting.wrong(
                "O_SYNC is not in this engine: `sync=dsync` waits for the data as well, and for no \
                 more of the inode than it takes to find it again",
            )),
        }
    }

    fn operations(&self, jobs: u32) -> Result<Option<u64>, Wrong> {
        let operations = self.size(&["number_ios"])?.filter(|n| *n > 0);
        Ok(operations.map(|n| n.saturating_mul(u64::from(jobs))))
    }

    /// Time and amount. Each of fio's jobs has a file of its own; here they share one, in parts.
    fn bound(&self, profile: &mut Profile) -> Result<(), Wrong> {
        let jobs = u64::from(profile.jobs);
        let size = self.size(&["size"])?.filter(|n| *n > 0);
        let amount = self.size(&["io_size", "io_limit"])?.filter(|n| *n > 0).or(size);
        for (keys, n) in [(&["size"][..], size), (&["io_size", "io_limit"][..], amount)] {
            if n.is_some_and(|n| !n.is_multiple_of(profile.block.0.max(1))) {
                let keys = if self.last(keys).is_some() { keys } else { &["size"] };
                return Err(
                    self.wrong(keys, format!("no multiple of the block of {}", profile.block))
                );
            }
        }
        let time_based = self.flag(&["time_based"], false)?;
        let runtime = self.time(&["runtime", "timeout"])?.filter(|t| t.0 > 0.0);
        profile.ramp = self.time(&["ramp_time"])?.unwrap_or_default();
        profile.span = size.map(|n| Bytes(n.saturating_mul(jobs)));
        match (time_based, runtime, amount) {
            (true, Some(runtime), _) => profile.runtime = runtime,
            (true, None, _) => {
                let text = "`runtime` is missing: how long?";
                return Err(self.wrong(&["time_based"], text.into()));
            }
            (false, _, None) => {
                let text = "`size` is missing, or `time_based` with a `runtime`: how much?";
                return Err(self.wrong(&[], text.into()));
            }
            (false, _, Some(_)) if profile.ramp.0 > 0.0 => {
                let text = "without `time_based`, what the ramp moves would count: add it";
                return Err(self.wrong(&["ramp_time"], text.into()));
            }
            (false, runtime, Some(amount)) => {
                profile.bytes_max = Bytes(amount.saturating_mul(jobs));
                profile.runtime = runtime.unwrap_or(Seconds(disk::RUNTIME_SECONDS_MAX));
            }
        }
        Ok(())
    }

    fn seed(&self) -> Result<Option<u64>, Wrong> {
        let repeats = self.flag(&["randrepeat", "allrandrepeat"], false)?;
        Ok(self.size(&["randseed"])?.or(repeats.then_some(REPEATED_SEED)))
    }

    /// Where fio's defaults, not written in the file, are others than what happens here.
    fn note_differences(&self, profile: &Profile, notes: &mut Vec<(usize, String)>) {
        let mut note = |text: String| notes.push((self.section.line, text));
        if self.last(&["randrepeat", "allrandrepeat", "randseed"]).is_none() {
            note("offsets and data are others each time (in fio: randrepeat=0)".into());
        }
        if profile.reads.0 <= 0.0 && self.last(&["overwrite"]).is_none() {
            note("the file is written whole before, so writes allocate nothing (in fio: overwrite=1)".into());
        }
        if self.last(&["runtime", "timeout"]).is_none() {
            note("it ends after an hour at the latest".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FioJob, parse};
    use super::*;

    fn job(options: &str) -> FioJob {
        parse("x", &format!("[j]\n{options}\n"), &[]).unwrap()
    }

    fn leg(options: &str) -> Profile {
        job(options).legs.remove(0)
    }

    fn said(options: &str) -> String {
        parse("x", &format!("[j]\n{options}\n"), &[]).unwrap_err().to_string()
    }

    const FULL: &str = "rw=randrw\nrwmixread=70\nbs=8k\niodepth=16\nnumjobs=2\nsize=64m\n\
                        ioengine=io_uring\ndirect=1\nruntime=30\ntime_based\nramp_time=2s\n\
                        norandommap\nrandrepeat=0\nend_fsync=1\nsync=dsync";

    #[test]
    fn every_honoured_option_arrives() {
        let job = job(FULL);
        assert_eq!((job.engine, job.seed), (EngineKind::IoUring, None));
        assert_eq!(job.notes, [] as [String; 0]);
        let expected = Profile {
            name: "j".into(),
            access: Access::Random,
            reads: Ratio(0.7),
            block: Bytes(8192),
            depth: 16,
            jobs: 2,
            runtime: Seconds(30.0),
            ramp: Seconds(2.0),
            bytes_max: Bytes(u64::MAX),
            span: Some(Bytes(128 << 20)),
            sync: true,
            flush: true,
            ..crate::model::samples::profile()
        };
        assert_eq!(job.legs, [expected]);
    }

    #[test]
    fn an_amount_ends_a_job_that_is_not_time_based() {
        let of =
            |more: &str| leg(&format!("rw=write\nbs=1m\nsize=64m\nnumjobs=2\ndirect=1\n{more}"));
        assert_eq!(of("").bytes_max, Bytes(128 << 20));
        assert_eq!(of("io_size=16m").bytes_max, Bytes(32 << 20));
        assert_eq!(of("number_ios=5").operations_max, Some(10));
        assert_eq!(of("runtime=10").runtime, Seconds(10.0));
        assert_eq!(of("").runtime, Seconds(disk::RUNTIME_SECONDS_MAX));
    }

    #[test]
    fn engines_of_one_at_a_time_have_depth_one() {
        let base = "size=1m\ndirect=1\niodepth=32";
        let none = job(base);
        assert_eq!((none.engine, none.legs[0].depth), (EngineKind::Threads, 1));
        assert!(none.notes.iter().any(|n| n.starts_with("x:4: `iodepth=32` has no effect")));
        let aio = job(&format!("{base}\nioengine=libaio"));
        assert_eq!((aio.engine, aio.legs[0].depth), (EngineKind::Aio, 32));
    }

    #[test]
    fn the_last_of_two_wins_and_a_mix_can_be_said_both_ways() {
        let base = "size=1m\ndirect=1\nrw=randrw";
        assert_eq!(leg(&format!("{base}\nrwmixread=70\nrwmixwrite=10")).reads, Ratio(0.9));
        assert_eq!(leg(&format!("{base}\nrwmixwrite=10\nrwmixread=70")).reads, Ratio(0.7));
        assert_eq!(leg(base).reads, Ratio(0.5));
        assert_eq!(leg(&format!("{base}\nbs=4k\nbs=8k,8k")).block, Bytes(8192));
        assert_eq!(leg("size=1m\nbuffered=0").block, Bytes(4096));
    }

    #[test]
    fn each_block_comes_once_a_pass_unless_draws_are_independent() {
        let of = |more: &str| leg(&format!("size=1m\ndirect=1\nrw=randread\n{more}")).access;
        assert_eq!((of(""), of("norandommap=0")), (Access::RandomMap, Access::RandomMap));
        assert_eq!(of("norandommap"), Access::Random);
    }

    #[test]
    fn a_seed_repeats_a_run() {
        assert_eq!(job("size=1m\ndirect=1\nrandseed=42").seed, Some(42));
        assert_eq!(job("size=1m\ndirect=1\nrandrepeat=1").seed, Some(REPEATED_SEED));
        assert_eq!(job("size=1m\ndirect=1\nrandrepeat=0").seed, None);
    }

    #[test]
    fn what_can_not_be_honoured_is_refused_at_its_place_with_what_is_nearest() {
        for (more, line, words) in [
            ("filename=/dev/sda", 4, "--target"),
            ("directory=/mnt", 4, "--target"),
            ("fdatasync=1", 4, "sync=dsync"),
            ("sync=1", 4, "sync=dsync"),
            ("rw=rw", 4, "randrw"),
            ("rw=trim", 4, "randwrite"),
            ("bssplit=4k/50:8k/50", 4, "a section for each size"),
            ("bs=4k,8k", 4, "a section for each size"),
            ("bs=1000", 4, "512 B"),
            ("rate_iops=100", 4, "runtime"),
            ("ioengine=rbd", 4, "io_uring"),
            ("zonemode=zbd", 4, "not in this engine"),
            ("iodpeth=4", 4, "did you mean `iodepth`"),
            ("direct=0", 4, "direct=1"),
            ("direct", 4, "missing"),
            ("buffered=1", 4, "direct=1"),
            ("size=50%", 4, "share"),
            ("size=10000", 4, "multiple"),
            ("numjobs=0", 4, "job"),
            ("time_based", 4, "runtime"),
            ("ramp_time=5", 4, "time_based"),
            ("runtime=2h", 4, "hour"),
            ("rwmixread=170", 4, "0 to 100"),
            ("iodepth=x", 4, "whole number"),
            ("iodepth=9000\nioengine=libaio", 4, "in flight"),
            ("kb_base=1023", 4, "1024 or 1000"),
            ("zero_buffers", 4, "unique"),
            ("verify=crc32c", 4, "fio itself"),
            ("hipri", 4, "polling"),
        ] {
            let text = said(&format!("size=1m\ndirect=1\n{more}"));
            assert!(text.starts_with(&format!("x:{line}:")), "{more}: {text}");
            assert!(text.contains(words), "{more}: {text}");
        }
        assert!(said("direct=1").contains("`size` is missing"));
        assert!(said("size=1m").contains("direct=1"));
    }

    #[test]
    fn options_without_meaning_are_listed() {
        let job = job("size=1m\ndirect=1\ngroup_reporting\nthread\nrefill_buffers\nfsync=0");
        let without: Vec<_> = job.notes.iter().filter(|n| n.contains("has no effect")).collect();
        assert_eq!(without.len(), 3, "{:?}", job.notes);
        assert!(without[0].starts_with("x:4: `group_reporting` has no effect: "));
    }
}
