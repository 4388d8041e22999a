//! Kind `oltp`: the OLTP workload of pblio in an open loop, at a count of BSUs, or at whatever rate is
//! the highest whose mean latency stays under a limit.

mod families;
mod run;
mod search;

use serde::Deserialize;

use super::depths::Depths;
use super::{Kind, Shape, Wrong, shape};
use crate::base::units::{Bytes, GIB, MIB, Ratio, Seconds};
use crate::config::read;
use crate::model::job::{Access, Profile};
use crate::model::oltp::{BLOCK_BYTES, Load, Oltp, Variant};


pub static KIND: Kind = Kind {
    name: "oltp",
    help: "the OLTP workload of pblio: the highest rate whose mean latency stays under `limit`, or \
           `bsu: 60` for a fixed load",
    example: "oltp:\n  limit: 30ms\n  variant: pblio\n  runtime: 2m\n  ramp: 0s\n  bytes: 1GiB\n  \
              direct: true\n",
    descs: families::DESCS,
    points: families::points,
    read: |section| shape(section, Options::shape),
    run: run::run,
};

/// A million operations a second.
pub const BSU_MAX: u32 = 20_000;
/// A search has to grow, to bisect, and to draw its curve.
const SEARCH_SECONDS_MIN: f64 = 20.0;
const RUN_SECONDS_MAX: f64 = super::disk::RUNTIME_SECONDS_MAX;
const LIMIT_SECONDS: std::ops::RangeInclusive<f64> = 0.0001..=10.0;
const BYTES_MIN: u64 = 16 * MIB;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// A fixed load in place of a search.
    bsu: Option<u32>,
    #[serde(deserialize_with = "read::quantity")]
    limit: Seconds,
    variant: Variant,
    contexts: Option<u32>,
    #[serde(deserialize_with = "read::quantity")]
    runtime: Seconds,
    /// Before a fixed load counts; a search ramps each of its steps by itself.
    #[serde(deserialize_with = "read::quantity")]
    ramp: Seconds,
    #[serde(deserialize_with = "read::quantity")]
    bytes: Bytes,
    direct: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bsu: None,
            limit: Seconds(0.03),
            variant: Variant::Pblio,
            contexts: None,
            runtime: Seconds(120.0),
            ramp: Seconds(0.0),
            bytes: Bytes(GIB),
            direct: true,
        }
    }
}

impl Options {
    fn shape(&self) -> Result<Shape, Wrong> {
        let load = match self.bsu {
            Some(bsu) => Load::Bsu(bsu),
            None => Load::Search { limit: self.limit },
        };
        let leg = Profile {
            runtime: self.runtime,
            ramp: self.ramp,
            bytes_max: self.bytes,
            direct: self.direct,
            ..profile(Oltp { contexts: self.contexts, ..Oltp::of_region(self.variant, load) })
        };
        check(&leg)?;
        Ok(Shape {
            profile: leg.name.clone(),
            summary: summary(&leg.name, load),
            legs: vec![leg],
            engine: None,
            depths: Depths::AsNamed,
            every: Seconds(86_400.0),
            exempt_from_gate: false,
            calm: Seconds(0.0),
            quiet: Seconds(1.0),
        })
    }
}

fn summary(name: &str, load: Load) -> String {
    match load {
        Load::Bsu(bsu) => format!("{name}, {bsu} BSU"),
        Load::Search { limit } => format!("{name}, the highest rate under {limit}"),
    }
}

/// A leg of it: what bounds it is for the caller to set.
pub fn profile(oltp: Oltp) -> Profile {
    let (name, reads) = match oltp.variant {
        Variant::Pblio => ("oltp", 0.5523),
        Variant::Classic => ("oltp_classic", 0.3944),
    };
    Profile {
        name: name.into(),
        access: Access::Random,
        reads: Ratio(reads),
        block: Bytes(BLOCK_BYTES),
        depth: 1,
        jobs: 1,
        runtime: Seconds(0.0),
        ramp: Seconds(0.0),
        bytes_max: Bytes(u64::MAX),
        operations_max: None,
        span: None,
        sync: false,
        flush: true,
        direct: true,
        oltp: Some(oltp),
    }
}

/// Whether a worker can run a leg as it stands.
///
/// # Errors
/// The option that can't be, and why.
pub fn check(leg: &Profile) -> Result<(), Wrong> {
    let wrong = |key, text: String| Err((key, text));
    let Some(oltp) = &leg.oltp else { return Ok(()) };
    let seconds = leg.runtime.0;
    match oltp.load {
        Load::Bsu(bsu) if !(1..=BSU_MAX).contains(&bsu) => {
            return wrong("bsu", format!("{bsu} is not 1 to {BSU_MAX}"));
        }
        Load::Search { limit } if !LIMIT_SECONDS.contains(&limit.0) => {
            return wrong("limit", format!("{limit} is not 100 us to 10 s"));
        }
        Load::Search { .. } if seconds < SEARCH_SECONDS_MIN => {
            let text = format!("a search takes {SEARCH_SECONDS_MIN} s at least");
            return wrong("runtime", text);
        }
        _ => {}
    }
    if !(seconds > 0.0 && seconds + leg.ramp.0 <= RUN_SECONDS_MAX) {
        return wrong("runtime", format!("{} is not within an hour", leg.runtime));
    }
    if oltp.contexts == Some(0) {
        return wrong("contexts", "at least 1 generator must run".into());
    }
    if leg.bytes_max.0 < BYTES_MIN {
        return wrong("bytes", format!("{} is less than {}", leg.bytes_max, Bytes(BYTES_MIN)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Rate;
    use crate::config::document::Document;

    fn read(text: &str) -> Result<Shape, String> {
        let document = Document::parse("test", text).unwrap();
        (KIND.read)(document.root().get("oltp").as_ref()).map_err(|complaint| complaint.text)
    }

    fn load(shape: &Shape) -> Load {
        shape.legs[0].oltp.as_ref().unwrap().load
    }

    #[test]
    fn a_search_under_30_ms_is_the_default_and_a_count_of_bsus_a_fixed_load() {
        let search = read("oltp: {}").unwrap();
        assert_eq!(load(&search), Load::Search { limit: Seconds(0.03) });
        assert_eq!((search.every, search.profile.as_str()), (Seconds(86_400.0), "oltp"));
        let fixed = read("oltp: {bsu: 60, variant: classic, runtime: 30s}").unwrap();
        assert_eq!((load(&fixed), fixed.summary.as_str()), (Load::Bsu(60), "oltp_classic, 60 BSU"));
        assert_eq!(fixed.legs[0].written_bytes_max(), Bytes(GIB), "debited before a run");
        assert_eq!(fixed.read_only(), None);
    }

    #[test]
    fn the_last_rate_of_a_target_changes_nothing_of_an_open_loop() {
        let shape = read("oltp: {bsu: 60}").unwrap();
        assert_eq!(shape.legs_at(Rate(1.0)), shape.legs);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_key() {
        for (options, key) in [
            ("bsu: 0", "bsu"),
            ("bsu: 30000", "bsu"),
            ("limit: 0s", "limit"),
            ("limit: 1h", "limit"),
            ("runtime: 10s", "runtime"),
            ("runtime: 2h", "runtime"),
            ("bsu: 1, runtime: 0s", "runtime"),
            ("contexts: 0", "contexts"),
            ("bytes: 1MiB", "bytes"),
            ("variant: spc", "variant"),
            ("asu1: /srv", "asu1"),
        ] {
            let text = read(&format!("oltp: {{{options}}}")).unwrap_err();
            assert!(text.contains(&format!("`{key}`")) || text.contains("spc"), "{options}: {text}");
        }
    }
}
