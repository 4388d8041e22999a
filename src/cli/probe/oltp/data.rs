//! pblio's data file: a line of JSON each period, with counts since the run began.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use crate::base::clock::{Clock, SystemClock};
use crate::model::oltp::{AsuDone, BLOCK_BYTES, Count, Counts};
use crate::model::outcome::Direction;

pub(super) struct DataFile(File);

impl DataFile {
    pub(super) fn create(path: &Path) -> Result<Self, anyhow::Error> {
        let place = || format!("--data {}", path.display());
        Ok(Self(File::create(path).with_context(place)?))
    }

    pub(super) fn add(&mut self, counts: &Counts) -> io::Result<()> {
        let line = line(SystemClock.now().unix_seconds() as u64, counts);
        writeln!(self.0, "{line}")
    }
}

fn line(time: u64, counts: &Counts) -> Value {
    let asus: Vec<Value> = counts.0.iter().map(three).collect();
    let mut all = [Count::default(); 2];
    for [reads, writes] in counts.0 {
        all = [sum([all[0], reads]), sum([all[1], writes])];
    }
    let mut spc = three(&all);
    spc["asu"] = asus.into();
    json!({"time": time, "spc": spc})
}

fn three(both: &[Count; 2]) -> Value {
    let [reads, writes] = both;
    json!({"total": meter(sum(*both)), "read": meter(*reads), "write": meter(*writes)})
}

fn meter(count: Count) -> Value {
    let Count { operations, blocks, nanos } = count;
    let latency = json!({"duration": nanos, "count": operations});
    json!({"latency": latency, "ios": operations, "blocks": blocks})
}

pub(super) fn sum<const N: usize>(counts: [Count; N]) -> Count {
    counts.into_iter().fold(Count::default(), |all, more| Count {
        operations: all.operations + more.operations,
        blocks: all.blocks + more.blocks,
        nanos: all.nanos.saturating_add(more.nanos),
    })
}

/// Of a whole run: pblio leaves out what comes after its last period.
pub(super) fn counts_of(asus: &[AsuDone]) -> Counts {
    let count = |direction: &Direction| Count {
        operations: direction.operations,
        blocks: direction.bytes.0 / BLOCK_BYTES,
        // `as` saturates.
        nanos: (direction.latency_mean.unwrap_or_default().0 * direction.operations as f64 * 1e9)
            as u64,
    };
    let mut counts = Counts::default();
    for (to, from) in counts.0.iter_mut().zip(asus) {
        *to = [count(&from.reads), count(&from.writes)];
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_pblios_keys_and_sums() {
        let count = |n: u64| Count { operations: n, blocks: 2 * n, nanos: 1000 * n };
        let counts =
            Counts([[count(1), count(2)], [count(3), count(4)], [Count::default(), count(5)]]);
        let line = line(7, &counts);
        assert_eq!(line["time"], 7);
        let total = &line["spc"]["total"];
        assert_eq!(total["ios"], 15);
        assert_eq!(total["blocks"], 30);
        assert_eq!(total["latency"], json!({"duration": 15_000, "count": 15}));
        assert_eq!(line["spc"]["read"]["ios"], 4);
        assert_eq!(line["spc"]["asu"][2]["write"]["blocks"], 10);
        assert_eq!(line["spc"]["asu"].as_array().unwrap().len(), 3);
    }
}
