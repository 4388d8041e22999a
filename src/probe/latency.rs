//! Kind `latency`: what a single read, and a single committed write, feel. Cheap enough for every
//! half minute, and never held back by a busy disk: it matters most then.

use serde::Deserialize;

use super::depths::Depths;
use super::run::{self, Rules};
use super::{Kind, Shape, Wrong, metrics, shape};
use crate::base::units::{Bytes, KIB, Ratio, Seconds};
use crate::config::complaint::Complaint;
use crate::config::document::Section;
use crate::config::read;
use crate::model::job::{Access, Profile};

pub static KIND: Kind = Kind {
    name: "latency",
    help: "single direct reads, and single O_DSYNC writes, at depth 1",
    example: "latency:\n  reads: 16\n  writes: 4\n  block_size: 4KiB\n",
    descs: metrics::STORAGE,
    points: |_, _, _| {},
    read: |section| shape(section, Options::shape),
    run: |run, watch| {
        run::storage(run, &Rules { flags_of_length: false, depths: Depths::AsNamed }, watch)
    },
};

/// A section is there whenever its options can be wrong.
pub(super) fn complain(section: Option<&Section<'_>>, key: &str, text: String) -> Complaint {
    match section {
        Some(section) => section.refuse_value(key, text),
        None => Complaint { file: "defaults".into(), text, spot: None },
    }
}

const OPERATIONS_MAX: u64 = 1000;
/// Twenty operations end long before; a dying disk's don't.
const LEG_SECONDS_MAX: f64 = 10.0;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    reads: u64,
    writes: u64,
    #[serde(deserialize_with = "read::quantity")]
    block_size: Bytes,
    /// False runs through the page cache where the file system knows no direct I/O.
    direct: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { reads: 16, writes: 4, block_size: Bytes(4 * KIB), direct: true }
    }
}

impl Options {
    fn shape(&self) -> Result<Shape, Wrong> {
        if self.reads + self.writes == 0 {
            return Err(("reads", "a probe without reads and writes does nothing".into()));
        }
        for (key, n) in [("reads", self.reads), ("writes", self.writes)] {
            if n > OPERATIONS_MAX {
                return Err((key, format!("{n} is too many for each time (at most 1000)")));
            }
        }
        super::disk::check_block_size(self.block_size)?;
        let reads = self.leg("latency_read", Ratio(1.0), self.reads);
        let writes = self.leg("latency_commit", Ratio(0.0), self.writes);
        Ok(Shape {
            legs: [reads, writes].into_iter().flatten().collect(),
            engine: None,
            every: Seconds(30.0),
            depths: Depths::AsNamed,
            exempt_from_gate: true,
            calm: Seconds(0.0),
            quiet: Seconds(0.0),
            profile: "latency".into(),
            summary: format!(
                "latency {}, {} reads + {} commits at depth 1",
                self.block_size, self.reads, self.writes
            ),
        })
    }

    fn leg(&self, name: &str, reads: Ratio, operations: u64) -> Option<Profile> {
        (operations > 0).then(|| Profile {
            name: name.into(),
            access: Access::Random,
            reads,
            block: self.block_size,
            depth: 1,
            jobs: 1,
            runtime: Seconds(LEG_SECONDS_MAX),
            ramp: Seconds(0.0),
            bytes_max: Bytes(operations.saturating_mul(self.block_size.0)),
            operations_max: Some(operations),
            span: None,
            sync: reads.0 < 1.0,
            flush: false,
            direct: self.direct,
            oltp: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Document;

    fn read(text: &str) -> Result<Shape, String> {
        let document = Document::parse("test", text).unwrap();
        (KIND.read)(document.root().get("latency").as_ref()).map_err(|complaint| complaint.text)
    }

    #[test]
    fn commits_are_synced_and_reads_come_first() {
        let shape = read("latency: {}").unwrap();
        assert!(shape.exempt_from_gate && shape.every == Seconds(30.0));
        let [reads, commits] = &shape.legs[..] else { panic!("{shape:?}") };
        assert_eq!((reads.operations_max, reads.sync, reads.in_flight_max()), (Some(16), false, 1));
        assert_eq!((commits.operations_max, commits.sync), (Some(4), true));
        assert_eq!(commits.written_bytes_max(), Bytes(4 * 4096));
    }

    #[test]
    fn a_count_of_zero_leaves_its_leg_out() {
        assert_eq!(read("latency: {writes: 0}").unwrap().legs.len(), 1);
        assert!(read("latency: {writes: 0, reads: 0}").is_err());
        assert!(read("latency: {reads: 100000}").is_err());
        assert!(read("latency: {block_size: 5000}").is_err());
    }
}
