//! What to buy: for each change, what it makes of each run, and what binds that run then.

use super::ceilings;
use super::facts::{Facts, HDD_USUAL, Run};
use crate::base::physics::write_factor;
use crate::base::units::Rate;
use crate::model::path::{Media, Wal};
use crate::model::verdict::{Advice, Effort, Expected, Limit, Unit, Verdict};

/// Line rates that are sold, in bits a second.
const LINE_RATES: &[f64] = &[1e9, 10e9, 25e9, 40e9, 100e9, 200e9, 400e9];
/// One flash device of any kind, small random writes, after its cache is full.
const FLASH_OPERATIONS: f64 = 20_000.0;
/// A flash answer over a network, and without one, in seconds.
const FLASH_LATENCY_REMOTE: f64 = 0.001;
const FLASH_LATENCY: f64 = 0.0001;
/// How much more of something is thought of.
const TWICE: f64 = 2.0;
const MORE_STREAMS: f64 = 4.0;
/// Less than this gain is none.
const GAIN_MIN: f64 = 1.05;

/// Where a run would end, and what stops it there.
type Next = (f64, &'static str);

struct Change {
    limits: &'static [Limit],
    effort: Effort,
    name: fn(&[&Facts]) -> String,
    /// What binds a run of one of `limits` after the change; `None`: it changes nothing there, or
    /// nobody knows what.
    after: fn(&Facts) -> Option<Next>,
}

static CHANGES: &[Change] = &[
    Change {
        limits: &[Limit::Latency, Limit::Window],
        effort: Effort::Free,
        name: |_| "deeper queue, more streams".into(),
        after: deeper,
    },
    Change {
        limits: &[Limit::Throttle],
        effort: Effort::Low,
        name: |_| "raise the limiter".into(),
        after: unlimited,
    },
    Change { limits: &[Limit::Link], effort: Effort::Low, name: link_name, after: faster_link },
    Change {
        limits: &[Limit::WritePath],
        effort: Effort::Medium,
        name: |_| "log/WAL on flash".into(),
        after: log_on_flash,
    },
    Change {
        limits: &[Limit::Cpu],
        effort: Effort::Medium,
        name: |_| "more CPU, or offloads".into(),
        after: |facts| Some((link(facts)?, "link")),
    },
    Change {
        limits: &[Limit::Seek, Limit::Bandwidth, Limit::Operations],
        effort: Effort::High,
        name: devices_name,
        after: more_devices,
    },
    Change {
        limits: &[Limit::Seek],
        effort: Effort::VeryHigh,
        name: |_| "flash tier".into(),
        after: flash,
    },
];

/// The changes that touch some run's limit, the cheapest first, then by gain.
pub fn advise(runs: &[(Run, Verdict)]) -> Vec<Advice> {
    let mut all: Vec<Advice> = CHANGES.iter().filter_map(|change| advice(change, runs)).collect();
    let gain = |advice: &Advice| advice.expected.iter().map(|e| e.factor).fold(1.0, f64::max);
    all.sort_by(|a, b| a.effort.cmp(&b.effort).then(gain(b).total_cmp(&gain(a))));
    all
}

fn advice(change: &Change, runs: &[(Run, Verdict)]) -> Option<Advice> {
    let judged = || runs.iter().filter(|(_, verdict)| is_known(verdict.limit));
    let touches = |verdict: &Verdict| change.limits.contains(&verdict.limit);
    let expected: Vec<Expected> =
        judged().filter_map(|(run, verdict)| expect(change, run, touches(verdict))).collect();
    // What stops it next is told of the run that gains most, but for the change's own new ceiling.
    let rank = |e: &Expected| (u8::from(e.next != LINK_AGAIN), e.factor);
    let best = expected
        .iter()
        .filter(|e| e.factor >= GAIN_MIN)
        .max_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal))?;
    let touched: Vec<&Facts> =
        judged().filter(|(_, verdict)| touches(verdict)).map(|(run, _)| &run.facts).collect();
    let change_name = (change.name)(&touched);
    let text = effect(&expected);
    Some(Advice {
        text: format!("{change_name}: {text}"),
        change: change_name,
        binds_next: best.next.clone(),
        effort: change.effort,
        expected,
    })
}

/// Limits of which something can be expected.
fn is_known(limit: Limit) -> bool {
    !matches!(limit, Limit::Unknown | Limit::Cache | Limit::Contended)
}

fn expect(change: &Change, run: &Run, touched: bool) -> Option<Expected> {
    let (from, unit) = result(&run.facts)?;
    let next = (change.after)(&run.facts).filter(|_| touched);
    // A run it ought to help, of which nobody knows how far.
    if touched && next.is_none() {
        return None;
    }
    let (to, next) = next.map_or((from, String::new()), |(to, next)| (to.max(from), next.into()));
    Some(Expected { run: run.name.clone(), from, to, factor: to / from, next, unit: Some(unit) })
}

/// `sequential read 4.0 x (then disks, 429 MiB/s); 1.0 x: random write`.
fn effect(expected: &[Expected]) -> String {
    let (helped, same): (Vec<&Expected>, Vec<&Expected>) =
        expected.iter().partition(|e| e.factor >= GAIN_MIN);
    let mut parts: Vec<String> = helped.into_iter().map(gain).collect();
    if !same.is_empty() {
        let names: Vec<&str> = same.iter().map(|e| e.run.as_str()).collect();
        parts.push(format!("1.0 x: {}", names.join(", ")));
    }
    parts.join("; ")
}

fn gain(expected: &Expected) -> String {
    let Expected { run, factor, next, to, unit, .. } = expected;
    let to = unit.map_or(String::new(), |unit| format!(", {}", unit.show(*to)));
    format!("{run} {factor:.1} x (then {next}{to})")
}

/// A run's result in the unit in which it is told.
pub fn result(facts: &Facts) -> Option<(f64, Unit)> {
    let small = facts.is_large() == Some(false) && !facts.is_sequential();
    match facts.operations() {
        Some(operations) if small => Some((operations, Unit::OperationsPerSecond)),
        operations => facts
            .bytes()
            .map(|bytes| (bytes, Unit::BytesPerSecond))
            .or(operations.map(|n| (n, Unit::OperationsPerSecond))),
    }
}

/// Bytes a second in the unit of the run's result.
fn in_unit(facts: &Facts, bytes: f64) -> Option<f64> {
    match result(facts)?.1 {
        Unit::BytesPerSecond => Some(bytes),
        Unit::OperationsPerSecond => facts.mean_block().map(|block| bytes / block),
    }
}

fn link(facts: &Facts) -> Option<f64> {
    in_unit(facts, ceilings::link(facts).ceiling()?.value)
}

/// What the disks move: as declared, else what is usual.
fn disks(facts: &Facts) -> Option<f64> {
    let usual = match facts.backing.media? {
        Media::Hdd => HDD_USUAL.0,
        Media::Ssd => 500e6,
        Media::Nvme => 3e9,
    };
    let one = facts.backing.bandwidth.map_or(usual, |rate| rate.0);
    let copies = write_factor(facts.write_ratio()?, facts.replicas());
    in_unit(facts, one * facts.devices()? / copies)
}

/// The least of what is known.
fn least(ceilings: impl IntoIterator<Item = Option<Next>>) -> Option<Next> {
    ceilings.into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0))
}

fn named(value: Option<f64>, name: &'static str) -> Option<Next> {
    value.map(|value| (value, name))
}

const LINK_AGAIN: &str = "the faster link";

fn faster_link(facts: &Facts) -> Option<Next> {
    let now = link(facts)?;
    let line = ceilings_line(facts)?;
    let faster = now * next_rate(line)? / line;
    least([Some((faster, LINK_AGAIN)), named(disks(facts).filter(|_| !facts.is_link()), "disks")])
}

fn ceilings_line(facts: &Facts) -> Option<f64> {
    let wire = if facts.is_link() { &facts.path } else { &facts.backing.wire };
    Some(wire.link.or(facts.link.line_bytes_per_second)?.0 * 8.0)
}

fn next_rate(line: f64) -> Option<f64> {
    LINE_RATES.iter().copied().find(|rate| *rate > line * GAIN_MIN)
}

/// `10 Gbit/s link`, of the slowest.
fn link_name(touched: &[&Facts]) -> String {
    let slowest = touched.iter().filter_map(|facts| ceilings_line(facts)).reduce(f64::min);
    match slowest.and_then(next_rate) {
        Some(rate) => format!("{} link", Rate(rate / 8.0).bits()),
        None => "faster link".into(),
    }
}

fn log_on_flash(facts: &Facts) -> Option<Next> {
    let (from, _) = result(facts)?;
    // Without its log on the same device each byte is written once.
    let once = facts.device.write_amplification.filter(|_| facts.backing.wal != Some(Wal::Same));
    least([
        named(once.map(|amplification| from * amplification), "the data itself"),
        named(link(facts), "link"),
        named(disks(facts), "disks"),
    ])
}

fn devices_name(touched: &[&Facts]) -> String {
    let spindles = touched.iter().all(|facts| facts.rotational() == Some(true));
    if spindles { "twice the spindles" } else { "twice the devices" }.into()
}

fn more_devices(facts: &Facts) -> Option<Next> {
    let (from, _) = result(facts)?;
    least([Some((from * TWICE, "the devices")), named(link(facts), "link")])
}

fn flash(facts: &Facts) -> Option<Next> {
    if !facts.is_random() {
        return None;
    }
    let cost = write_factor(facts.write_ratio()?, facts.penalty());
    let devices = facts.devices()?;
    let latency = if facts.network_backed() { FLASH_LATENCY_REMOTE } else { FLASH_LATENCY };
    least([
        Some((FLASH_OPERATIONS * devices / cost, "the flash")),
        named(facts.depth.map(|depth| depth / latency), "the depth"),
        named(link(facts), "link"),
    ])
}

fn deeper(facts: &Facts) -> Option<Next> {
    let (from, _) = result(facts)?;
    let more = match facts.gain() {
        Some(gain) => (from * gain, "what more depth gives"),
        None if facts.is_link() => (from * MORE_STREAMS, "the window of more streams"),
        None => return None,
    };
    least([Some(more), named(link(facts), "link")])
}

/// What it gave before, or what its links and disks do.
fn unlimited(facts: &Facts) -> Option<Next> {
    let (_, unit) = result(facts)?;
    let before = ceilings::learned(facts, unit).map(|ceiling| ceiling.value);
    least([
        named(before, "what it once gave"),
        named(link(facts), "link"),
        named(disks(facts), "disks"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Frequency};
    use crate::judge::set::judge_all;
    use crate::model::job::Access;
    use crate::model::path::{DeclaredBacking, DeclaredPath};

    fn run(name: &str, access: Access, block: u64, rates: (f64, f64)) -> Run {
        let wire = DeclaredPath { link: Some(Rate(125e6)), ..DeclaredPath::default() };
        let backing = DeclaredBacking {
            wire,
            media: Some(Media::Hdd),
            devices: Some(3),
            ..DeclaredBacking::default()
        };
        let frequency = |bytes: f64| (bytes > 0.0).then(|| Frequency(bytes / block as f64));
        Run {
            name: name.into(),
            facts: Facts {
                access: Some(access),
                block_bytes: Some(Bytes(block)),
                depth: Some(8.0),
                read_operations_per_second: frequency(rates.0),
                write_operations_per_second: frequency(rates.1),
                read_bytes_per_second: Some(Rate(rates.0)),
                write_bytes_per_second: Some(Rate(rates.1)),
                backing,
                ..Facts::default()
            },
            ..Run::default()
        }
    }

    fn cloud() -> Vec<Advice> {
        judge_all(vec![
            run("reads", Access::Sequential, 1 << 20, (112e6, 0.0)),
            run("writes", Access::Sequential, 1 << 20, (0.0, 71e6)),
            run("random", Access::Random, 4096, (0.0, 2e6)),
        ])
        .advice
    }

    #[test]
    fn cheap_changes_come_first_and_name_what_binds_next() {
        let advice = cloud();
        let names: Vec<&str> = advice.iter().map(|a| a.change.as_str()).collect();
        assert_eq!(
            names,
            ["10 Gbit/s link", "log/WAL on flash", "twice the spindles", "flash tier"]
        );
        assert_eq!(advice[0].binds_next, "disks");
        assert_eq!(advice[1].binds_next, "link");
    }

    #[test]
    fn a_change_that_touches_no_limit_of_a_run_changes_nothing_there() {
        for advice in cloud() {
            for expected in &advice.expected {
                let helps = expected.factor > 1.0;
                let meant = match expected.run.as_str() {
                    "reads" => advice.change.contains("link"),
                    "writes" => advice.change.contains("log"),
                    _ => advice.effort >= Effort::High,
                };
                assert_eq!(helps, meant, "{}: {expected:?}", advice.change);
            }
        }
    }

    #[test]
    fn nothing_is_advised_where_nothing_is_known() {
        assert!(judge_all(vec![Run::default()]).advice.is_empty());
    }
}
