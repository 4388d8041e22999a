//! OSDs and their benches: columns with units for people, base units for programs.

use comfy_table::{Table, TableStyle};
use serde_json::{Value, json};

use crate::model::ceph::{Osd, OsdResult, deviations};

const HEADER: [&str; 11] = [
    "osd",
    "host",
    "class",
    "media",
    "log",
    "rate",
    "writes",
    "time",
    "of median",
    "commit",
    "mClock",
];
/// Slower than this against its class is worth a word.
const SLOW: f64 = -0.3;

pub(in crate::cli) fn for_people(osds: &[OsdResult], style: TableStyle) -> String {
    let mut table = Table::new();
    table.load_style(style);
    table.set_header(HEADER);
    for (result, deviation) in osds.iter().zip(deviations(osds)) {
        table.add_row(row(result, deviation));
    }
    let mut lines = vec![table.trim_fmt()];
    let remarks = remarks(osds);
    if !remarks.is_empty() {
        lines.push(String::new());
    }
    lines.extend(remarks);
    lines.join("\n")
}

fn row(result: &OsdResult, deviation: Option<f64>) -> Vec<String> {
    let OsdResult { osd, bench } = result;
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let full = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    vec![
        format!("osd.{}", osd.id),
        full(&osd.host),
        full(&osd.device_class),
        dash(osd.media.map(|media| media.label().to_owned())),
        log(osd),
        match bench {
            Some(bench) => bench.rate.to_string(),
            None if osd.up => "-".into(),
            None => "down".into(),
        },
        dash(bench.and_then(|bench| Some(format!("{:.0}/s", bench.operations_per_second()?.0)))),
        dash(bench.and_then(|bench| Some(bench.elapsed?.to_string()))),
        dash(deviation.map(|deviation| format!("{:+.0} %", deviation * 100.0))),
        dash(osd.commit_latency.map(|latency| latency.to_string())),
        dash(osd.capacity.map(|capacity| format!("{:.0}/s", capacity.0))),
    ]
}

/// Where the log of an OSD is.
fn log(osd: &Osd) -> String {
    match (osd.separate_wal, osd.wal_media) {
        (Some(true), Some(media)) => format!("own {}", media.label()),
        (Some(true), None) => "own device".into(),
        (Some(false), _) => "with the data".into(),
        (None, _) => "-".into(),
    }
}

/// What stands beside the numbers.
pub(in crate::cli) fn remarks(osds: &[OsdResult]) -> Vec<String> {
    let mut lines = Vec::new();
    for (OsdResult { osd, .. }, deviation) in osds.iter().zip(deviations(osds)) {
        if let Some(deviation) = deviation.filter(|deviation| *deviation < SLOW) {
            let share = (1.0 + deviation) * 100.0;
            let class = &osd.device_class;
            let log = match osd.separate_wal {
                Some(false) => ", and its log is with its data",
                _ => "",
            };
            lines.push(format!("osd.{}: {share:.0} % of the median of {class}{log}", osd.id));
        }
        if let Some(refused) = osd.capacity_refused {
            lines.push(format!(
                "osd.{}: measured {:.0}/s at its start and didn't believe it: measure it, and set \
                 osd_mclock_max_capacity_iops_hdd or _ssd",
                osd.id, refused.0
            ));
        }
    }
    let unbenched = osds.iter().filter(|result| result.osd.up && result.bench.is_none()).count();
    if unbenched > 0 && unbenched < osds.len() {
        lines.push(format!("{unbenched} more OSDs are up and had no bench"));
    }
    lines
}

/// A line of names, then one for each OSD; a value that isn't known is empty.
pub(super) fn tab_separated(osds: &[OsdResult]) -> String {
    let mut lines = vec![
        "osd\thost\tdevice_class\tmedia\tseparate_wal\tbytes\tblock_size\tseconds\t\
         bytes_per_second\tdeviation_ratio\tcommit_latency_seconds\tcapacity_operations_per_second"
            .to_owned(),
    ];
    for (OsdResult { osd, bench }, deviation) in osds.iter().zip(deviations(osds)) {
        let text = |value: Option<String>| value.unwrap_or_default();
        let cells = [
            format!("osd.{}", osd.id),
            osd.host.clone(),
            osd.device_class.clone(),
            text(osd.media.map(|media| media.label().into())),
            text(osd.separate_wal.map(|separate| separate.to_string())),
            text(bench.map(|bench| bench.bytes.0.to_string())),
            text(bench.map(|bench| bench.block.0.to_string())),
            text(bench.and_then(|bench| Some(format!("{:.6}", bench.elapsed?.0)))),
            text(bench.map(|bench| format!("{:.0}", bench.rate.0))),
            text(deviation.map(|deviation| format!("{deviation:.4}"))),
            text(osd.commit_latency.map(|latency| format!("{:.6}", latency.0))),
            text(osd.capacity.map(|capacity| format!("{:.1}", capacity.0))),
        ];
        lines.push(cells.join("\t"));
    }
    lines.join("\n")
}

/// One object for each OSD, with Ceph's own keys for its bench.
pub(in crate::cli) fn json(osds: &[OsdResult]) -> Value {
    let one = |(OsdResult { osd, bench }, deviation): (&OsdResult, Option<f64>)| {
        let mut value = json!({
            "name": format!("osd.{}", osd.id),
            "up": osd.up,
            "weight": osd.weight,
            "reweight": osd.reweight,
            "host": osd.host,
            "device_class": osd.device_class,
            "devices": osd.devices,
            "media": osd.media,
            "separate_wal": osd.separate_wal,
            "wal_media": osd.wal_media,
            "available_bytes": osd.available,
            "commit_latency_seconds": osd.commit_latency,
            "capacity_operations_per_second": osd.capacity,
            "capacity_refused_operations_per_second": osd.capacity_refused,
            "version": osd.version,
            "deviation_ratio": deviation,
        });
        if let (Some(bench), Some(map)) = (bench, value.as_object_mut()) {
            map.insert("bytes_written".into(), json!(bench.bytes));
            map.insert("blocksize".into(), json!(bench.block));
            map.insert("elapsed_sec".into(), json!(bench.elapsed));
            map.insert("bytes_per_sec".into(), json!(bench.rate));
            map.insert("iops".into(), json!(bench.operations_per_second()));
        }
        value
    };
    json!({ "osds": osds.iter().zip(deviations(osds)).map(one).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, MIB, Rate, Seconds};
    use crate::ceph::log;
    use crate::model::ceph::Bench;

    fn results() -> Vec<OsdResult> {
        let result = |id, mib: Option<u64>| OsdResult {
            osd: Osd {
                id,
                up: mib.is_some(),
                host: "storage1".into(),
                device_class: "hdd".into(),
                separate_wal: Some(false),
                ..Osd::default()
            },
            bench: mib.map(|mib| Bench {
                bytes: Bytes(256 * MIB),
                block: Bytes(4 * MIB),
                elapsed: Some(Seconds(256.0 / mib as f64)),
                rate: Rate((mib * MIB) as f64),
            }),
        };
        vec![result(0, Some(100)), result(1, Some(102)), result(2, Some(35)), result(3, None)]
    }

    #[test]
    fn a_slow_osd_is_named_with_what_may_be_its_reason() {
        let text = for_people(&results(), comfy_table::presets::NOTHING);
        assert!(text.contains("osd.2: 35 % of the median of hdd, and its log is with its data"));
        assert!(text.contains("-65 %") && text.contains("down"), "{text}");
        let lines = tab_separated(&results());
        let cells: Vec<usize> = lines.lines().map(|line| line.split('\t').count()).collect();
        assert_eq!(cells, [12; 5]);
    }

    #[test]
    fn what_is_written_as_json_is_read_as_a_log_of_benches() {
        let read = log::read(&serde_json::to_string_pretty(&json(&results())).unwrap());
        let ids: Vec<_> = read.iter().map(|logged| logged.osd).collect();
        assert_eq!(ids, [Some(0), Some(1), Some(2)]);
        assert_eq!(read[2].bench, results()[2].bench.unwrap());
    }
}
