//! Kind `osd_like`: what `ceph tell osd.N bench` writes, written on a directory by our own engine:
//! blocks of 4 MiB one after another, many at once, and one flush at the end that counts. On a mount
//! of the cluster it measures the way of a client instead.

use serde::Deserialize;

use super::depths::Depths;
use super::run::{self, Rules};
use super::{Kind, Shape, Wrong, disk, metrics, shape};
use crate::base::units::{Bytes, GIB, MIB, Ratio, Seconds};
use crate::config::read;
use crate::model::job::{Access, Profile};

pub static KIND: Kind = Kind {
    name: "osd_like",
    help: "the write pattern of `osd_bench` on a directory: 4 MiB blocks in sequence, then a flush",
    example: "osd_like:\n  bytes: 256MiB\n  block_size: 4MiB\n",
    descs: metrics::STORAGE,
    points: |_, _, _| {},
    read: |section| shape(section, Options::shape),
    run: |run, watch| {
        run::storage(run, &Rules { flags_of_length: true, depths: Depths::AsNamed }, watch)
    },
};

/// BlueStore bounds by bytes what a bench has under way: 64 MiB (bluestore_throttle_bytes).
const IN_FLIGHT: u64 = 64 * MIB;
const DEPTH_MAX: u64 = 64;
/// Bytes bound it; this is for a target that hardly moves.
const RUNTIME: Seconds = Seconds(60.0);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    #[serde(deserialize_with = "read::quantity")]
    bytes: Bytes,
    #[serde(deserialize_with = "read::quantity")]
    block_size: Bytes,
}

impl Default for Options {
    fn default() -> Self {
        Self { bytes: Bytes(256 * MIB), block_size: Bytes(4 * MIB) }
    }
}

impl Options {
    fn shape(&self) -> Result<Shape, Wrong> {
        let leg = leg(self.bytes, self.block_size);
        disk::check(&leg)?;
        Ok(Shape {
            summary: format!("osd_like {} in blocks of {}", self.bytes, self.block_size),
            legs: vec![leg],
            engine: None,
            depths: Depths::AsNamed,
            every: Seconds(86_400.0),
            exempt_from_gate: false,
            calm: Seconds(0.0),
            quiet: Seconds(1.0),
            profile: KIND.name.into(),
        })
    }
}

/// As Ceph has it by default: 1 GiB.
pub const BYTES_BY_HAND: Bytes = Bytes(GIB);

pub fn leg(bytes: Bytes, block: Bytes) -> Profile {
    Profile {
        name: KIND.name.into(),
        access: Access::Sequential,
        reads: Ratio(0.0),
        block,
        depth: (IN_FLIGHT / block.0.max(1)).clamp(1, DEPTH_MAX) as u32,
        jobs: 1,
        runtime: RUNTIME,
        ramp: Seconds(0.0),
        bytes_max: bytes,
        operations_max: None,
        span: None,
        sync: false,
        flush: true,
        direct: true,
        oltp: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Document;

    #[test]
    fn it_is_bounded_in_bytes_and_flushed() {
        let shape = (KIND.read)(None).unwrap();
        let leg = &shape.legs[0];
        assert_eq!((leg.depth, leg.block, leg.flush), (16, Bytes(4 * MIB), true));
        assert_eq!(leg.written_bytes_max(), Bytes(256 * MIB));
        let document = Document::parse("t", "osd_like: {block_size: 32MiB}").unwrap();
        let refused = (KIND.read)(document.root().get("osd_like").as_ref());
        assert!(refused.unwrap_err().text.contains("`block_size`"));
    }
}
