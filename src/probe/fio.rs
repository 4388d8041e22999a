//! fio job files: the options that the engine has are honoured exactly, options without meaning for
//! a result are listed as such, and any other is refused at its place with what comes nearest.
//!
//! Syntax and meaning are those of fio's HOWTO and of what fio 3.33 does with the same file.

mod ini;
mod job;
pub mod json;
mod known;
mod options;
mod used;
mod value;

pub use value::{count, size};

use std::path::Path;

use crate::base::units::Bytes;
use crate::config::complaint::{Complaint, Spot};
use crate::config::watch;
use crate::model::job::{EngineKind, Profile};

/// More sections than anybody runs in one go.
const SECTIONS_MAX: usize = 16;

/// What a job file asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// Of each section, in the order in which they run; named like their sections.
    pub legs: Vec<Profile>,
    /// The same for all sections: fio's `ioengine` in this engine's words.
    pub engine: EngineKind,
    /// Asked for by `randseed` or `randrepeat=1`.
    pub seed: Option<u64>,
    /// Options that are accepted and change nothing, and what is different here: `FILE:LINE: ...`.
    pub notes: Vec<String>,
}

impl FioJob {
    /// The part of a file or device that all sections fit in; `None` where one takes all there is.
    pub fn span(&self) -> Option<Bytes> {
        self.legs.iter().map(|leg| leg.span).collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

/// Reads a job file; with `sections`, only those of its sections.
///
/// # Errors
/// With the place of the option that can't be honoured.
pub fn load(path: &Path, sections: &[String]) -> Result<FioJob, Complaint> {
    let file = path.display().to_string();
    let whole = |text: String| Complaint { file: file.clone(), text, spot: None };
    let bytes = watch::content(path).map_err(|fault| whole(fault.text))?;
    let text = String::from_utf8(bytes).map_err(|_| whole("not UTF-8 text".into()))?;
    parse(&file, &text, sections)
}

/// As [`load`], from a file's text.
pub fn parse(file: &str, text: &str, sections: &[String]) -> Result<FioJob, Complaint> {
    read(file, text, sections).map_err(|wrong| Complaint {
        file: file.to_owned(),
        text: wrong.text,
        spot: wrong.line.map(|line| Spot::new(text, line, wrong.column.max(1))),
    })
}

/// What can't be honoured, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wrong {
    /// `None`: the file as a whole.
    line: Option<usize>,
    column: usize,
    text: String,
}

impl Wrong {
    fn whole(text: impl Into<String>) -> Self {
        Self { line: None, column: 1, text: text.into() }
    }
}

fn read(file: &str, text: &str, wanted: &[String]) -> Result<FioJob, Wrong> {
    let mut sections = ini::parse(text)?;
    if let Some(missing) = wanted.iter().find(|name| !sections.iter().any(|s| s.name == **name)) {
        let names: Vec<&str> = sections.iter().map(|s| s.name.as_str()).collect();
        let text = format!("no section `{missing}` (there are: {})", names.join(", "));
        return Err(Wrong::whole(text));
    }
    sections.retain(|s| wanted.is_empty() || wanted.contains(&s.name));
    if sections.len() > SECTIONS_MAX {
        return Err(Wrong::whole(format!("more than {SECTIONS_MAX} sections")));
    }
    let mut notes: Vec<(usize, String)> = Vec::new();
    let mut jobs = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        let leg = job::read(section, &mut notes)?;
        if index > 0 && !leg.stonewall {
            let text = format!(
                "[{}] would run beside [{}]: here one follows the other. Add `stonewall` to it, or \
                 pick sections by name",
                section.name,
                sections[index - 1].name
            );
            return Err(Wrong { line: Some(section.line), column: 1, text });
        }
        jobs.push((section.line, leg));
    }
    let Some((_, first)) = jobs.first() else {
        return Err(Wrong::whole("no section with a job, such as `[job]`"));
    };
    let (engine, seed) = (first.engine, first.seed);
    if let Some((line, _)) = jobs.iter().find(|(_, j)| j.engine != engine || j.seed != seed) {
        let text = "another `ioengine` or seed than in the section before: run them apart";
        return Err(Wrong { line: Some(*line), column: 1, text: text.into() });
    }
    notes.sort();
    notes.dedup();
    Ok(FioJob {
        engine,
        seed,
        notes: notes.iter().map(|(line, text)| format!("{file}:{line}: {text}")).collect(),
        legs: jobs.into_iter().map(|(_, job)| job.profile).collect(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::{GIB, MIB};

    fn said(text: &str) -> String {
        parse("x.fio", text, &[]).unwrap_err().to_string().lines().next().unwrap().to_owned()
    }

    const READ: &str = "rw=read\ndirect=1\nsize=64m\n";

    #[test]
    fn sections_follow_each_other_only_where_they_say_so() {
        let both = |more: &str| format!("[global]\n{READ}[a]\n[b]\n{more}");
        assert!(said(&both("")).starts_with("x.fio:6:1: [b] would run beside [a]"));
        let job = parse("x.fio", &both("stonewall\nsize=1g\n"), &[]).unwrap();
        let names: Vec<_> = job.legs.iter().map(|leg| leg.name.as_str()).collect();
        assert_eq!((names, job.span()), (vec!["a", "b"], Some(Bytes(GIB))));
        let one = parse("x.fio", &both(""), &["b".into()]).unwrap();
        assert_eq!(one.legs.len(), 1);
        let none = parse("x.fio", &both(""), &["c".into()]).unwrap_err();
        assert_eq!(none.text, "no section `c` (there are: a, b)");
        let two = both("stonewall\nioengine=libaio\n");
        assert!(said(&two).contains("another `ioengine`"), "{}", said(&two));
    }

    #[test]
    fn a_global_section_holds_for_what_comes_after_it() {
        let text =
            format!("[global]\n{READ}bs=8k\n[a]\n[global]\nbs=16k\nstonewall\n[b]\nbs=32k\n");
        let job = parse("x.fio", &text, &[]).unwrap();
        let blocks: Vec<u64> = job.legs.iter().map(|leg| leg.block.0 >> 10).collect();
        assert_eq!(blocks, [8, 32]);
        assert_eq!(job.legs[0].span, Some(Bytes(64 * MIB)));
    }

    #[test]
    fn a_file_that_is_no_job_file_is_refused_whole() {
        assert_eq!(said(""), "x.fio: no section with a job, such as `[job]`");
        assert_eq!(said("[global]\nbs=4k\n"), "x.fio: no section with a job, such as `[job]`");
        let missing = load(Path::new("/no/such.fio"), &[]).unwrap_err();
        assert!(missing.to_string().contains("/no/such.fio"), "{missing}");
        assert!(load(Path::new("/dev/zero"), &[]).is_err());
    }

    proptest! {
        /// Lines that job files are made of, in any order.
        #[test]
        fn no_text_panics(lines in prop::collection::vec(prop::sample::select(vec![
            "[global]", "[a]", "[b]", "[", "]", "=", "rw=read", "rw=randrw", "rw=write", "size=1m",
            "size=-1", "size=99999999999999g", "bs=0", "bs=4k,8k", "bs=512", "numjobs=0",
            "iodepth=0x10", "numjobs=4294967295", "direct=1", "runtime=1d", "time_based",
            "ramp_time=3", "stonewall", "kb_base=1000", "rwmixread=101", "include x", "é=ü",
            "name=${X}", "; c", "randseed=7", "io_size=1g", "number_ios=1", "\u{0}",
        ]), 0..20)) {
            let _ = parse("x", &lines.join("\n"), &[]).map_err(|complaint| complaint.to_string());
        }

        #[test]
        fn no_characters_panic(text in "(.|\n){0,120}") {
            let _ = parse("x", &text, &[]).map_err(|complaint| complaint.to_string());
        }

        /// Whatever is accepted is something a worker can run, and within what the file says.
        #[test]
        fn what_is_accepted_can_run(
            bs in 0_u32..12, blocks in 1_u64..5000, jobs in 1_u32..9, depth in 1_u32..70,
            mix in 0_u32..101, seconds in 1_u32..4000,
        ) {
            let block = 512_u64 << bs;
            let size = block * blocks;
            let text = format!(
                "[j]\nrw=randrw\nrwmixread={mix}\nbs={block}\nsize={size}\nnumjobs={jobs}\n\
                 iodepth={depth}\nruntime={seconds}\ndirect=1\nioengine=io_uring\n"
            );
            if let Ok(job) = parse("x", &text, &[]) {
                let leg = &job.legs[0];
                prop_assert_eq!(super::super::disk::check(leg), Ok(()));
                prop_assert_eq!(leg.span, Some(Bytes(size * u64::from(jobs))));
                prop_assert_eq!(leg.bytes_max, Bytes(size * u64::from(jobs)));
                prop_assert_eq!((leg.depth, leg.jobs, leg.block.0), (depth, jobs, block));
                prop_assert!((leg.reads.0 - f64::from(mix) / 100.0).abs() < 1e-9);
            }
        }
    }
}
