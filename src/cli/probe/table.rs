//! A run's result: columns with units for people, tab-separated base units for programs.

use comfy_table::{Table, presets};

use crate::base::legs::Saturation;
use crate::base::units::{Rate, Ratio, Seconds};
use crate::model::job::{Profile, Target};
use crate::model::outcome::{Direction, Done, Inspection, Measured, SecondLeg, per_second};

/// `/srv  xfs on sda1 -> sda`, then a line for each leg: `rand_rw: random 4 KiB, 70.0 % reads ...`.
pub(super) fn headlines(target: &Target, seen: &Inspection, legs: &[Profile]) -> Vec<String> {
    let mut lines = vec![place(target, seen)];
    lines.extend(legs.iter().map(|leg| {
        format!(
            "{}: {} {}, {} reads, {} x depth {}",
            leg.name,
            super::access(leg.access),
            leg.block,
            leg.reads,
            leg.jobs,
            leg.depth
        )
    }));
    lines
}

pub(super) fn place(target: &Target, seen: &Inspection) -> String {
    let devices: Vec<&str> = seen.devices.iter().map(|d| d.name.as_str()).collect();
    let under =
        if devices.is_empty() { String::new() } else { format!(" -> {}", devices.join(", ")) };
    format!("{}  {} on {}{under}", target.name, seen.filesystem, seen.source)
}

/// Has a row for each direction; its first column has this name.
pub(super) fn directions_of(first: &str) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let others = ["direction", "rate", "throughput", "mean", "p50", "p95", "p99", "p99.9"];
    table.set_header([first].into_iter().chain(others));
    table
}

pub(super) fn for_people(done: &Done) -> String {
    let mut table = directions_of("profile");
    for (leg, name, direction) in directions(done) {
        let rate = format!("{:.0}/s", per_second(direction.operations as f64, leg.elapsed));
        let cells = [leg.profile.name.clone(), name.into(), rate];
        table.add_row(row(cells, direction, leg.elapsed));
    }
    let mut lines = vec![table.trim_fmt(), String::new()];
    lines.extend(remarks(done));
    lines.join("\n")
}

/// What stands beside the numbers.
pub(super) fn remarks(done: &Done) -> Vec<String> {
    let mut lines: Vec<String> = done.legs.iter().map(about_leg).collect();
    lines.extend(done.second_leg.as_deref().map(about_second));
    lines.extend(done.evidence.devices.iter().map(|device| {
        format!("{}: busy {}, queue {:.1}", device.device, device.busy, device.queue)
    }));
    lines.extend(caveats(done));
    lines
}

/// A line of names, then one for each leg and direction; a value that isn't known is empty.
pub(super) fn tab_separated(done: &Done) -> String {
    let mut lines = vec![
        "profile\tdirection\toperations\tbytes\toperations_per_second\tbytes_per_second\t\
         mean_seconds\tp50_seconds\tp95_seconds\tp99_seconds\tp99.9_seconds\tengine\tdirect\tseed"
            .to_owned(),
    ];
    for (leg, name, direction) in directions(done) {
        let mut cells = vec![
            leg.profile.name.clone(),
            name.to_owned(),
            direction.operations.to_string(),
            direction.bytes.0.to_string(),
            format!("{:.3}", per_second(direction.operations as f64, leg.elapsed)),
            format!("{:.0}", per_second(direction.bytes.0 as f64, leg.elapsed)),
        ];
        cells.extend(latencies(direction).map(nine_digits));
        let direct = leg.direct.to_string();
        cells.extend([leg.engine.label().to_owned(), direct, leg.seed.to_string()]);
        lines.push(cells.join("\t"));
    }
    lines.join("\n")
}

/// Of each leg, the directions in which anything was moved.
fn directions(done: &Done) -> impl Iterator<Item = (&Measured, &'static str, &Direction)> {
    done.legs.iter().flat_map(|leg| {
        moving(&leg.reads, &leg.writes).map(move |(name, direction)| (leg, name, direction))
    })
}

/// Those of the two in which anything was done.
pub(super) fn moving<'a>(
    reads: &'a Direction,
    writes: &'a Direction,
) -> impl Iterator<Item = (&'static str, &'a Direction)> {
    let both = [("read", reads), ("write", writes)];
    both.into_iter().filter(|(_, direction)| direction.operations > 0)
}

/// Mean, then quantiles.
pub(super) fn latencies(direction: &Direction) -> impl Iterator<Item = Option<Seconds>> {
    let quantiles = [0.5, 0.95, 0.99, 0.999].into_iter().map(|q| {
        let found = direction.latency.iter().find(|(at, _)| (at - q).abs() < 1e-9);
        found.map(|(_, seconds)| *seconds)
    });
    [direction.latency_mean].into_iter().chain(quantiles)
}

/// A row of [`directions_of`] from its first cells on, up to the rate.
pub(super) fn row(first: [String; 3], direction: &Direction, time: Seconds) -> Vec<String> {
    let mut cells = Vec::from(first);
    cells.push(Rate(per_second(direction.bytes.0 as f64, time)).to_string());
    cells.extend(latencies(direction).map(or_dash));
    cells
}

/// For programs; empty where it isn't known.
pub(super) fn nine_digits(seconds: Option<Seconds>) -> String {
    seconds.map_or(String::new(), |s| format!("{:.9}", s.0))
}

pub(super) fn or_dash(seconds: Option<Seconds>) -> String {
    seconds.map_or("-".into(), |s| s.to_string())
}

fn about_leg(leg: &Measured) -> String {
    let flush = leg.flush.map_or(String::new(), |s| format!(", the final flush took {s}"));
    format!(
        "{}: {} operations in {}{flush}; {}, {}, seed {}",
        leg.profile.name,
        leg.operations(),
        leg.elapsed,
        leg.engine.label(),
        if leg.direct { "direct" } else { "not direct" },
        leg.seed
    )
}

/// `depth 16: 5100/s, mean 3.1 ms: at its end, more in flight only waits longer`
fn about_second(second: &SecondLeg) -> String {
    let leg = &second.measured;
    let says = match second.says {
        Saturation::Saturated => "at its end: more in flight only waits longer",
        Saturation::Unsaturated => "not at its end: more in flight goes faster",
        Saturation::Unsteady => "slower than before: the device was not steady",
        Saturation::Between => "whether it is at its end can't be told",
    };
    let (rate, mean) = (leg.operations_per_second(), leg.latency_mean());
    format!("depth {}: {rate:.0}/s, mean {mean}; {says}", leg.profile.depth)
}

/// What a reader must know before believing the numbers; each says what to do.
fn caveats(done: &Done) -> Vec<String> {
    let flags = &done.flags;
    let share = |s: Option<f64>| s.map_or(String::new(), |s| format!(" ({})", Ratio(s)));
    [
        (
            flags.direct == Some(false),
            "the page cache was in the path: use a file system with O_DIRECT".into(),
        ),
        (
            flags.direct.is_none() && done.legs.iter().any(|leg| leg.direct),
            "whether caches were in the path can't be known there (GlusterFS heeds direct I/O only \
             with performance.strict-o-direct); what was written counts with its flush"
                .into(),
        ),
        (
            flags.cached == Some(true),
            format!(
                "most bytes never reached the device{}: this is a cache, not a disk",
                share(done.evidence.device_read_share)
            ),
        ),
        (
            flags.contended == Some(true),
            format!(
                "others used the device meanwhile{}: run it again when it is quiet",
                share(done.evidence.foreign_share)
            ),
        ),
        (flags.cpu_limited == Some(true), "the CPU was the limit, not the disk".into()),
        (flags.throttled == Some(true), "a cgroup held this process back".into()),
        (flags.steady == Some(false), "the rate was still changing: run it longer".into()),
        (flags.short == Some(true), "it ran for under a second: raise --runtime or --bytes".into()),
    ]
    .into_iter()
    .filter(|(holds, _)| *holds)
    .map(|(_, text): (bool, String)| format!("note: {text}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::model::outcome::Flags;
    use crate::model::samples::measured;
    use crate::probe::disk::{Preset, shape};

    fn done() -> Done {
        let reads = Direction {
            operations: 300,
            bytes: Bytes(300 * 4096),
            latency_mean: Some(Seconds(0.0015)),
            latency: vec![(0.5, Seconds(0.001))],
            ..Direction::default()
        };
        let leg = Measured { reads, seed: 7, ..measured(shape(Preset::RandRead).legs.remove(0)) };
        let flags = Flags { short: Some(true), ..Flags::default() };
        Done { legs: vec![leg], flags, ..Done::default() }
    }

    #[test]
    fn a_program_gets_a_name_for_each_column_and_no_units() {
        let text = tab_separated(&done());
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!((rows.len(), rows[0].len(), rows[1].len()), (2, 14, 14), "{text}");
        let of = |name: &str| rows[1][rows[0].iter().position(|n| *n == name).unwrap()];
        assert_eq!((of("profile"), of("direction")), ("rand_read", "read"));
        assert_eq!((of("operations_per_second"), of("bytes_per_second")), ("100.000", "409600"));
        assert_eq!((of("p50_seconds"), of("p99_seconds")), ("0.001000000", ""));
        assert_eq!((of("engine"), of("direct"), of("seed")), ("io_uring", "true", "7"));
    }

    #[test]
    fn a_person_gets_units_and_what_to_do() {
        let text = for_people(&done());
        assert!(text.contains("100/s") && text.contains("400 KiB/s"), "{text}");
        assert!(text.contains("note: it ran for under a second: raise --runtime"), "{text}");
    }
}
