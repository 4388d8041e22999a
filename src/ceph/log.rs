//! Benches that somebody kept: the lines of an old cluster log, and JSON in whatever was around it.

use serde::Deserialize;
use serde_json::Value;

use super::bench;
use super::json::{osd_id, text_at};
use crate::model::ceph::{Bench, Osd};
use crate::model::path::Media;

/// A bench, and what was said of its OSD.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    pub osd: Option<u32>,
    pub bench: Bench,
    /// What loadline itself wrote down of it beside the bench; not its id.
    pub told: Osd,
}

/// Every bench in `text`, in its order: `... osd.4 [INF] bench: wrote 1024 MB ...` a line, the answers
/// of `ceph tell osd.* bench` as they stand, or JSON that holds either. Empty where it is no such log.
pub fn read(text: &str) -> Vec<Logged> {
    let found = in_json(text);
    if found.is_empty() { text.lines().filter_map(line).collect() } else { found }
}

fn line(line: &str) -> Option<Logged> {
    let before = line.get(..line.find("bench: wrote")?)?;
    Some(Logged { osd: named(before), bench: bench::sentence(line)?, told: Osd::default() })
}

/// The last `osd.N` of a text.
fn named(text: &str) -> Option<u32> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    words.rev().find_map(|word| osd_id(word.trim_end_matches('.')))
}

/// Values one after another, with text between them.
fn in_json(text: &str) -> Vec<Logged> {
    let mut found = Vec::new();
    let (mut at, mut end) = (0, 0);
    while let Some(next) = text[at..].find(['{', '[']) {
        let start = at + next;
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                // What stood between the last value and this one may name the OSD.
                collect(&value, named(&text[end..start]), &mut found);
                end = start + values.byte_offset();
                at = end;
            }
            Some(Err(error)) if error.is_eof() => break,
            _ => at = start + 1,
        }
    }
    found
}

fn collect(value: &Value, osd: Option<u32>, found: &mut Vec<Logged>) {
    let osd = osd_id(&text_at(value, "name"))
        .or_else(|| osd_id(&text_at(value, "osd")))
        .or_else(|| u32::try_from(value.get("osd")?.as_u64()?).ok())
        .or(osd);
    let message = value.get("message").and_then(Value::as_str);
    if let Some(bench) = bench::parse(value).or_else(|| bench::sentence(message?)) {
        let told = Osd {
            separate_wal: value.get("separate_wal").and_then(Value::as_bool),
            media: value.get("media").and_then(|media| Media::deserialize(media).ok()),
            device_class: text_at(value, "device_class"),
            ..Osd::default()
        };
        return found.push(Logged { osd, bench, told });
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, osd, found)),
        Value::Object(map) => {
            map.iter().for_each(|(key, item)| collect(item, osd_id(key).or(osd), found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::MIB;

    fn rates(text: &str) -> Vec<(Option<u32>, f64)> {
        let mib = |logged: &Logged| (logged.bench.rate.0 / MIB as f64 * 10.0).round() / 10.0;
        read(text).iter().map(|logged| (logged.osd, mib(logged))).collect()
    }

    const LINES: &str = "\
2013-04-22 11:41:21.843396 osd.4 [INF] bench: wrote 1024 MB in blocks of 4096 KB in 2.629238 sec at 389 MB/sec
2013-04-22 11:41:30.000000 mon.0 [INF] pgmap v1: 8 pgs: 8 active+clean
2013-04-22 11:41:43.758835 osd.0 [INF] bench: wrote 1024 MB in blocks of 4096 KB in 29.455098 sec at 35599 KB/sec
";

    #[test]
    fn lines_of_a_cluster_log_are_read_among_others() {
        assert_eq!(rates(LINES), [(Some(4), 389.5), (Some(0), 34.8)]);
    }

    #[test]
    fn json_is_read_in_every_form_it_is_kept_in() {
        let bench = |rate: u64| {
            format!(
                "{{\n  \"bytes_written\": 1073741824, \"blocksize\": 4194304,\n  \
                 \"bytes_per_sec\": {}}}",
                rate * MIB
            )
        };
        let expected = [(Some(0), 100.0), (Some(1), 50.0)];
        let told = format!("osd.0: {}\nosd.1: {}\n", bench(100), bench(50));
        assert_eq!(rates(&told), expected);
        let map = format!("{{\"osd.0\": {}, \"osd.1\": {}}}", bench(100), bench(50));
        assert_eq!(rates(&map), expected);
        let list = format!(
            "[{{\"osd\": 0, \"bench\": {}}}, {{\"name\": \"osd.1\", \"bench\": {}}}]",
            bench(100),
            bench(50)
        );
        assert_eq!(rates(&list), expected);
        assert_eq!(rates(&bench(7)), [(None, 7.0)]);
        let log = r#"[{"name":"osd.3","channel":"cluster","priority":"[INF]","message":
            "bench: wrote 1 GiB in blocks of 4 MiB in 10.24 sec at 100 MiB/sec 25 IOPS"}]"#;
        assert_eq!(rates(log), [(Some(3), 100.0)]);
    }

    #[test]
    fn what_is_no_such_log_holds_nothing() {
        for text in ["", "runs: []", "{}", "[1, 2", "bench: wrote nothing", "osd.1: {\"a\": 1}"] {
            assert_eq!(read(text), [], "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "[\\[{\\]}\":,a-z0-9. \n]{0,200}") {
            let _ = read(&text);
            prop_assert_eq!(read(&format!("{LINES}{}", text.replace(['{', '['], ""))).len(), 2);
        }
    }
}
