//! What `ceph tell osd.N bench` answers: JSON of all ages, and the sentence that was there before it.

use serde_json::Value;

use super::command::{Client, Cut};
use super::json::{count_at, number_at};
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Bytes, Rate, Seconds};
use crate::model::ceph::Bench;

impl Client<'_> {
    /// Has one OSD write `bytes` in blocks of `block`, and take them away again.
    ///
    /// # Errors
    /// As [`Client::ask`], and where the answer holds no rate. Where time runs out the OSD still
    /// writes on: nobody can stop a bench.
    pub fn bench(
        &self,
        osd: u32,
        (bytes, block): (Bytes, Bytes),
        time: Seconds,
    ) -> Result<Bench, Cut> {
        let [osd, bytes, block] = [format!("osd.{osd}"), bytes.0.to_string(), block.0.to_string()];
        let answer = self.ask_within(&["tell", &osd, "bench", &bytes, &block], time)?;
        let none = || Fault::new(FaultKind::Malformed, format!("{osd}: a bench without a rate"));
        Ok(parse(&answer).ok_or_else(none)?)
    }
}

/// `bytes_per_sec` was text before 2018, when `elapsed_sec` came; Crimson wraps it all.
pub fn parse(answer: &Value) -> Option<Bench> {
    let answer = answer.get("osd_bench_results").unwrap_or(answer);
    let bytes = Bytes(count_at(answer, "bytes_written")?);
    let block = Bytes(count_at(answer, "blocksize")?);
    let elapsed = number_at(answer, "elapsed_sec").filter(|s| *s > 0.0).map(Seconds);
    let given = number_at(answer, "bytes_per_sec").filter(|rate| *rate > 0.0);
    let rate = Rate(given.or(elapsed.map(|time| bytes.0 as f64 / time.0))?);
    (rate.0 > 0.0 && rate.0.is_finite()).then_some(Bench { bytes, block, elapsed, rate })
}

/// `bench: wrote 1024 MB in blocks of 4096 KB in 2.629238 sec at 389 MB/sec`, or with `1 GiB` and
/// `389 MiB/sec 97 IOPS`. MB and KB are binary; the rate is made of bytes and time, which are exact.
pub fn sentence(text: &str) -> Option<Bench> {
    let text = &text[text.find("bench: wrote ")? + "bench: wrote ".len()..];
    let mut words = text.split_whitespace();
    let bytes = amount(words.next()?, words.next()?)?;
    expect(&mut words, &["in", "blocks", "of"])?;
    let block = amount(words.next()?, words.next()?.trim_end_matches(','))?;
    expect(&mut words, &["in"])?;
    let elapsed: f64 = words.next()?.parse().ok()?;
    expect(&mut words, &["sec", "at"])?;
    let rate = bytes.0 as f64 / elapsed;
    (elapsed > 0.0 && rate > 0.0 && rate.is_finite()).then_some(Bench {
        bytes,
        block,
        elapsed: Some(Seconds(elapsed)),
        rate: Rate(rate),
    })
}

fn expect<'a>(words: &mut impl Iterator<Item = &'a str>, expected: &[&str]) -> Option<()> {
    expected.iter().all(|word| words.next() == Some(word)).then_some(())
}

fn amount(number: &str, unit: &str) -> Option<Bytes> {
    let shift = match unit {
        "B" | "bytes" => 0,
        "KB" | "kB" | "KiB" => 10,
        "MB" | "MiB" => 20,
        "GB" | "GiB" => 30,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    let bytes = number * (1_u64 << shift) as f64;
    (1.0..1e18).contains(&bytes).then_some(Bytes(bytes as u64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::base::units::{GIB, MIB};

    #[test]
    fn every_age_of_the_answer_is_read() {
        let old = json!({"bytes_written": 1_073_741_824, "blocksize": 4_194_304,
            "bytes_per_sec": "2115816.000000"});
        let bench = parse(&old).unwrap();
        assert_eq!((bench.rate, bench.elapsed), (Rate(2_115_816.0), None));
        let new = json!({"bytes_written": 67_108_864, "blocksize": 4_194_304,
            "elapsed_sec": 0.515_407_121, "bytes_per_sec": 130_205_542.891_596_96,
            "iops": 31.043_420_527_362_1});
        let bench = parse(&new).unwrap();
        assert_eq!((bench.bytes, bench.block), (Bytes(64 * MIB), Bytes(4 * MIB)));
        assert!((bench.operations_per_second().unwrap().0 - 31.043).abs() < 0.001);
        assert_eq!(parse(&json!({"osd_bench_results": new})), Some(bench));
        assert_eq!(parse(&json!({"bytes_written": 1, "blocksize": 1})), None);
        assert_eq!(parse(&json!({"bytes_written": 1, "blocksize": 1, "bytes_per_sec": 0})), None);
    }

    #[test]
    fn the_sentences_of_2013_and_of_today_say_the_same() {
        let old = sentence(
            "osd.4 [INF] bench: wrote 1024 MB in blocks of 4096 KB in 2.629238 sec at 389 MB/sec",
        );
        let new = sentence(
            "bench: wrote 1 GiB in blocks of 4 MiB in 2.629238 sec at 389 MiB/sec 97 IOPS",
        );
        assert_eq!(old, new);
        let bench = old.unwrap();
        assert_eq!((bench.bytes, bench.block), (Bytes(GIB), Bytes(4 * MIB)));
        assert_eq!((bench.rate.0 / MIB as f64 * 10.0).round(), 3895.0);
        assert_eq!(sentence("bench: wrote 1 GiB in blocks of 4 MiB in 0 sec at x"), None);
    }

    proptest! {
        #[test]
        fn a_sentence_is_read_back(mib in 1_u64..100_000, kib in 1_u64..65_536, ms in 1_u64..1_000_000) {
            let seconds = ms as f64 / 1e3;
            let text =
                format!("bench: wrote {mib} MB in blocks of {kib} KB in {seconds:.6} sec at 1 MB/sec");
            let bench = sentence(&text).unwrap();
            prop_assert_eq!((bench.bytes, bench.block), (Bytes(mib * MIB), Bytes(kib << 10)));
            prop_assert!((bench.rate.0 * seconds / (mib * MIB) as f64 - 1.0).abs() < 1e-9);
        }

        #[test]
        fn no_text_breaks_it(text in "\\PC{0,120}", cut in 0_usize..90) {
            prop_assert_eq!(sentence(&text).is_some_and(|b| !b.rate.0.is_finite()), false);
            let whole =
                "bench: wrote 1024 MB in blocks of 4096 KB in 2.629238 sec at 389 MB/sec";
            let _ = sentence(whole.get(..cut).unwrap_or(whole));
        }
    }
}
