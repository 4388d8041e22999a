//! Benches of OSDs that somebody kept: lines of an old cluster log, or JSON.

use crate::ceph::log::{self, Logged};
use crate::judge::facts::{Facts, Run};
use crate::judge::from_osd;
use crate::model::path::{DeclaredBacking, DeclaredPath};

/// The runs that `bytes` hold; empty where they are no such log. `backing` is that of every OSD, as
/// far as the log doesn't say itself where the log of an OSD lies.
pub(in crate::cli) fn parse(
    bytes: &[u8],
    backing: &DeclaredBacking,
    path: &DeclaredPath,
) -> Vec<Run> {
    let text = String::from_utf8_lossy(bytes);
    let named = |(index, logged): (usize, Logged)| Run {
        name: match logged.osd {
            Some(osd) => format!("osd.{osd}"),
            None => format!("bench {}", index + 1),
        },
        kind: "osd_bench".into(),
        profile: None,
        facts: Facts {
            path: path.clone(),
            ..from_osd::store(&logged.bench, &logged.told, backing)
        },
    };
    log::read(&text).into_iter().enumerate().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, MIB};
    use crate::model::path::Wal;

    #[test]
    fn a_log_makes_a_run_of_each_bench() {
        let log = "2013-04-22 11:41:21 osd.4 [INF] bench: wrote 1024 MB in blocks of 4096 KB in \
                   2.629238 sec at 389 MB/sec\n\
                   2013-04-22 11:41:43 osd.0 [INF] bench: wrote 1024 MB in blocks of 4096 KB in \
                   29.455098 sec at 35599 KB/sec\n";
        let backing = DeclaredBacking { wal: Some(Wal::Same), ..DeclaredBacking::default() };
        let runs = parse(log.as_bytes(), &backing, &DeclaredPath::default());
        let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["osd.4", "osd.0"]);
        assert_eq!(runs[0].facts.block_bytes, Some(Bytes(4 * MIB)));
        assert_eq!(runs[0].facts.backing.wal, Some(Wal::Same));
        assert_eq!(parse(b"runs: []", &backing, &DeclaredPath::default()), []);
    }

    #[test]
    fn what_the_log_knows_of_an_osd_stands_where_nothing_is_declared() {
        let log =
            br#"{"name": "osd.1", "bytes_written": 1048576, "blocksize": 4096, "bytes_per_sec":
            1e6, "separate_wal": true, "media": "hdd"}"#;
        let run = &parse(log, &DeclaredBacking::default(), &DeclaredPath::default())[0];
        assert_eq!(run.facts.backing.wal, Some(Wal::Separate));
        assert_eq!(run.facts.rotational(), Some(true));
    }
}
