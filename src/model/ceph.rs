//! A Ceph cluster as a probe sees it: how to ask it, its OSDs, and what a bench of each gave.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::path::Media;
use crate::base::fault::Fault;
use crate::base::units::{Bytes, Frequency, Rate, Seconds};

/// Most OSDs of one run or survey: all that is known of them goes over the wire in one line.
pub const OSDS_MAX: usize = 64;

/// How to ask a cluster, and which of its OSDs count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The `ceph` command: a path, or a name that is looked up in `search_path`.
    pub command: PathBuf,
    /// PATH of whoever started loadline: workers have no environment.
    pub search_path: Option<String>,
    pub conf: PathBuf,
    /// `client.loadline`; `None`: what the configuration of Ceph says, `client.admin`.
    pub user: Option<String>,
    /// `None`: where the configuration of Ceph says.
    pub keyring: Option<PathBuf>,
    /// For each question. A bench has its own time on top.
    pub timeout: Seconds,
    /// Ids; empty: all.
    pub osds: Vec<u32>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            command: "ceph".into(),
            search_path: None,
            conf: "/etc/ceph/ceph.conf".into(),
            user: None,
            keyring: None,
            timeout: Seconds(10.0),
            osds: Vec::new(),
        }
    }
}

/// What a cluster says of itself before it is asked for work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `HEALTH_OK`, `HEALTH_WARN`, `HEALTH_ERR`.
    pub status: String,
    /// Names and summaries of the checks that fail.
    pub checks: Vec<String>,
    /// What it is busy with: states of placement groups that recover or scrub.
    pub busy: Vec<String>,
}

impl Health {
    pub fn is_ok(&self) -> bool {
        self.status == "HEALTH_OK"
    }
}

/// One OSD, without any I/O of ours. What the cluster doesn't say is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Osd {
    pub id: u32,
    pub up: bool,
    /// CRUSH weight, and what of it is in use: 0 is out.
    pub weight: Option<f64>,
    pub reweight: Option<f64>,
    /// `hdd`, `ssd`, `nvme`, or a name of the operator's; empty: none.
    pub device_class: String,
    pub host: String,
    /// Kernel names of the disks under its data.
    pub devices: Vec<String>,
    /// Of its data. A RAID controller may hide it.
    pub media: Option<Media>,
    /// Its log is on a device of its own, and what that is.
    pub separate_wal: Option<bool>,
    pub wal_media: Option<Media>,
    /// Of its last writes, as it tells it.
    pub commit_latency: Option<Seconds>,
    pub available: Option<Bytes>,
    /// What mClock plans with, where that was measured or set: operations a second of 4 KiB.
    pub capacity: Option<Frequency>,
    /// What it measured itself at start and didn't believe.
    pub capacity_refused: Option<Frequency>,
    pub version: String,
}

/// What one `ceph tell osd.N bench` gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bench {
    pub bytes: Bytes,
    pub block: Bytes,
    /// Old versions don't say.
    pub elapsed: Option<Seconds>,
    pub rate: Rate,
}

impl Bench {
    pub fn operations_per_second(&self) -> Option<Frequency> {
        (self.block.0 > 0).then(|| Frequency(self.rate.0 / self.block.0 as f64))
    }
}

/// An OSD and its bench; `None` where it had none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OsdResult {
    pub osd: Osd,
    pub bench: Option<Bench>,
}

/// Of each result, how far its rate is from the median of its device class: -0.6 is 40 % of it.
/// `None` where there is nothing to compare with.
pub fn deviations(results: &[OsdResult]) -> Vec<Option<f64>> {
    let rate = |result: &OsdResult| result.bench.map(|bench| bench.rate.0);
    let deviation = |result: &OsdResult| {
        let same = |other: &&OsdResult| other.osd.device_class == result.osd.device_class;
        let rates: Vec<f64> = results.iter().filter(same).filter_map(rate).collect();
        let median = median(rates)?;
        (median > 0.0).then(|| rate(result).map(|rate| rate / median - 1.0))?
    };
    results.iter().map(deviation).collect()
}

/// Of two or more.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle).filter(|_| values.len() > 1)?;
    Some(if values.len().is_multiple_of(2) { (values[middle - 1] + upper) / 2.0 } else { upper })
}

/// A cluster without any I/O of ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    pub health: Health,
    /// By id; at most [`OSDS_MAX`].
    pub osds: Vec<Osd>,
    /// All that there are, of the asked for.
    pub osds_count: usize,
    /// What couldn't be asked, and why.
    pub unknown: Vec<Fault>,
}

/// One option of the OSDs, as it is in effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    pub name: String,
    /// More than one where OSDs differ.
    pub values: Vec<SettingValue>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingValue {
    pub value: String,
    /// Where it comes from: `default`, `file`, `mon`, `override`.
    pub source: String,
    /// Ids of the OSDs that have it.
    pub osds: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn result(id: u32, class: &str, rate: Option<f64>) -> OsdResult {
        let (bytes, block) = (Bytes(1 << 30), Bytes(4 << 20));
        let bench = rate.map(|rate| Bench { bytes, block, elapsed: None, rate: Rate(rate) });
        OsdResult { osd: Osd { id, device_class: class.into(), ..Osd::default() }, bench }
    }

    #[test]
    fn an_osd_is_compared_with_its_own_class_only() {
        let results = [
            result(0, "hdd", Some(100.0)),
            result(1, "hdd", Some(40.0)),
            result(2, "hdd", Some(110.0)),
            result(3, "ssd", Some(900.0)),
            result(4, "hdd", None),
        ];
        let found = deviations(&results);
        assert_eq!(found[1], Some(40.0 / 100.0 - 1.0));
        assert_eq!(found[0], Some(0.0));
        assert_eq!(found[3], None, "the only one of its class");
        assert_eq!(found[4], None, "no bench");
    }

    proptest! {
        #[test]
        fn the_median_splits_the_rates_in_halves(rates in prop::collection::vec(1.0..1e9, 2..40)) {
            let results: Vec<_> = rates.iter().map(|rate| result(0, "hdd", Some(*rate))).collect();
            let found: Vec<f64> = deviations(&results).into_iter().map(Option::unwrap).collect();
            let above = found.iter().filter(|d| **d > 1e-12).count();
            let below = found.iter().filter(|d| **d < -1e-12).count();
            prop_assert!(above * 2 <= rates.len() && below * 2 <= rates.len());
        }
    }
}
