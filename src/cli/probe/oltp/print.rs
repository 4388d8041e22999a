//! An OLTP run as text: by storage unit and direction, the hockey stick of a search, pblio's lines.

use std::io::IsTerminal;

use anyhow::Context;
use comfy_table::{Table, presets};

use super::super::table::{self, latencies, nine_digits, or_dash, remarks};
use super::arguments::Format;
use super::data::sum;
use crate::base::units::{Ratio, Seconds};
use crate::model::job::{Profile, Target};
use crate::model::oltp::{BSU_OPERATIONS, Counts, Load, OltpDone, Search, SearchEnd, Step};
use crate::model::outcome::{Direction, Done, Inspection, per_second};

pub(super) fn headlines(target: &Target, seen: &Inspection, leg: &Profile) -> Vec<String> {
    let place = table::place(target, seen);
    let Some(oltp) = &leg.oltp else { return vec![place] };
    let what = match oltp.load {
        Load::Bsu(bsu) => {
            let rate = f64::from(bsu) * BSU_OPERATIONS;
            format!("{bsu} BSU: {rate} operations/s for {}", leg.runtime)
        }
        Load::Search { limit } => {
            format!("the highest rate under {limit}, in at most {}", leg.runtime)
        }
    };
    vec![place, format!("{}: {}, {} reads", leg.name, what, leg.reads)]
}

/// pblio's line of a period.
pub(super) fn so_far(elapsed: Seconds, counts: &Counts) -> String {
    let all = sum(counts.0.map(sum));
    let mean = per_second(all.nanos as f64 / 1e6, Seconds(all.operations as f64));
    let rate = per_second(all.operations as f64, elapsed);
    format!("ios:{} IOPS:{rate:.2} Latency:{mean:.4} ms", all.operations)
}

/// `offered 3200/s: 3187/s, mean 7.1 ms, p99 31 ms`
pub(super) fn step(step: &Step) -> String {
    let p99 = step.latency_p99.map_or(String::new(), |p99| format!(", p99 {p99}"));
    let more = if step.overloaded { "; far too much waited: ended early" } else { "" };
    let (offered, achieved) = (step.offered, step.achieved);
    format!("offered {offered:.1}/s: {achieved:.1}/s, mean {}{p99}{more}", step.latency_mean)
}

pub(super) fn shown(done: &Done, format: Format) -> Result<String, anyhow::Error> {
    let Some(oltp) = done.oltp.as_deref().filter(|_| format.is_text()) else {
        return serde_json::to_string_pretty(done).context("the result as JSON");
    };
    let for_people = std::io::stdout().is_terminal();
    let mut lines = if for_people {
        people(done, oltp)
    } else {
        for line in about(done, oltp) {
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
        }
        programs(oltp)
    };
    lines.push(last(&oltp.step));
    Ok(lines.join("\n"))
}

/// pblio's last line.
fn last(step: &Step) -> String {
    let (rate, mean) = (step.achieved, step.latency_mean.0 * 1e3);
    format!("Avg IOPS:{rate:.2}  Avg Latency:{mean:.4} ms")
}

/// Storage unit, direction, and what was done; only where anything was.
fn directions(oltp: &OltpDone) -> impl Iterator<Item = (String, &'static str, &Direction)> {
    oltp.asus.iter().enumerate().flat_map(|(index, asu)| {
        let named = move |(name, direction)| (format!("asu{}", index + 1), name, direction);
        table::moving(&asu.reads, &asu.writes).map(named)
    })
}

fn people(done: &Done, oltp: &OltpDone) -> Vec<String> {
    let time = done.legs.first().map_or(Seconds(0.0), |leg| leg.elapsed);
    let mut table = table::directions_of("asu");
    for (asu, name, direction) in directions(oltp) {
        let rate = format!("{:.1}/s", per_second(direction.operations as f64, time));
        table.add_row(table::row([asu, name.into(), rate], direction, time));
    }
    let mut lines = vec![table.trim_fmt(), String::new()];
    if let Some(search) = oltp.search.as_ref().filter(|search| !search.curve.is_empty()) {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["load", "offered", "achieved", "mean", "p99"]);
        for (load, step) in &search.curve {
            table.add_row([
                format!("{:.0} %", load * 100.0),
                format!("{:.1}/s", step.offered),
                format!("{:.1}/s", step.achieved),
                step.latency_mean.to_string(),
                or_dash(step.latency_p99),
            ]);
        }
        lines.extend([table.trim_fmt(), String::new()]);
    }
    lines.extend(about(done, oltp));
    lines
}

/// A line of names, then one for each storage unit and direction; of a search, so with its curve.
fn programs(oltp: &OltpDone) -> Vec<String> {
    let mut lines = vec![
        "asu\tdirection\toperations\tbytes\tmean_seconds\tp50_seconds\tp95_seconds\tp99_seconds\t\
         p99.9_seconds"
            .to_owned(),
    ];
    for (asu, name, direction) in directions(oltp) {
        let mut cells = vec![asu, name.into(), direction.operations.to_string()];
        cells.push(direction.bytes.0.to_string());
        cells.extend(latencies(direction).map(nine_digits));
        lines.push(cells.join("\t"));
    }
    if let Some(search) = oltp.search.as_ref().filter(|search| !search.curve.is_empty()) {
        let names = "load\toffered_per_second\tachieved_per_second\tmean_seconds\tp99_seconds";
        lines.push(names.into());
        for (load, step) in &search.curve {
            let Step { offered, achieved, latency_mean, latency_p99, .. } = step;
            let [mean, p99] = [Some(*latency_mean), *latency_p99].map(nine_digits);
            lines.push(format!("{load}\t{offered:.3}\t{achieved:.3}\t{mean}\t{p99}"));
        }
    }
    lines
}

/// What stands beside the numbers.
fn about(done: &Done, oltp: &OltpDone) -> Vec<String> {
    let mut lines = vec![step(&oltp.step)];
    if let Some(service) = oltp.service_mean {
        lines.push(format!("of that, {service} on average at the target: the rest was waiting"));
    }
    if oltp.step.unserved > 0 {
        let text = "operations never began: more was offered than the target does";
        lines.push(format!("note: {} {text}", oltp.step.unserved));
    }
    lines.extend(oltp.search.as_ref().map(found));
    lines.extend(remarks(done));
    lines
}

fn found(search: &Search) -> String {
    let limit = search.limit;
    let at_least = |why: &str| match search.best {
        Some(best) => format!("at least {best:.1} operations/s under {limit}; {why}"),
        None => format!("no rate is known that stays under {limit}; {why}"),
    };
    match (search.end, search.best) {
        (SearchEnd::Found, Some(best)) => {
            let beyond = search.steps.iter().map(|step| step.offered).filter(|rate| *rate > best);
            let next = beyond.fold(f64::INFINITY, f64::min);
            let over = Ratio((next / best - 1.0).max(0.0));
            format!("{best:.1} operations/s under {limit}; {over} more is too much")
        }
        (SearchEnd::Time, _) => at_least("its time was up: raise --runlen"),
        (SearchEnd::Bytes, _) => at_least("its bytes were used up: raise --bytes"),
        (SearchEnd::NoLimit, _) => at_least("more can't be offered"),
        (SearchEnd::Stopped, _) => at_least("it was stopped"),
        (SearchEnd::NoRate | SearchEnd::Found, _) => {
            format!("not even 2 operations/s stay under {limit}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::oltp::Count;

    fn at(offered: f64, mean: f64) -> Step {
        let latency_mean = Seconds(mean);
        let window = Seconds(1.0);
        Step {
            offered,
            achieved: offered,
            latency_mean,
            operations: 100,
            window,
            ..Step::default()
        }
    }

    #[test]
    fn lines_are_in_pblios_format() {
        let step =
            Step { achieved: 4831.874, latency_mean: Seconds(0.033_905_7), ..Step::default() };
        assert_eq!(last(&step), "Avg IOPS:4831.87  Avg Latency:33.9057 ms");
        let count = Count { operations: 3000, blocks: 1, nanos: 3_000_000_000 };
        let mut counts = Counts::default();
        counts.0[1][0] = count;
        assert_eq!(so_far(Seconds(60.0), &counts), "ios:3000 IOPS:50.00 Latency:1.0000 ms");
        assert_eq!(so_far(Seconds(0.0), &Counts::default()), "ios:0 IOPS:0.00 Latency:0.0000 ms");
    }

    #[test]
    fn a_search_says_what_it_found_or_why_not() {
        let search = |end, best| Search {
            limit: Seconds(0.03),
            end,
            best,
            steps: vec![at(100.0, 0.02), at(102.0, 0.04)],
            curve: vec![(1.0, at(100.0, 0.02))],
        };
        let found_text = found(&search(SearchEnd::Found, Some(100.0)));
        assert_eq!(found_text, "100.0 operations/s under 30 ms; 2.0 % more is too much");
        assert!(found(&search(SearchEnd::Bytes, Some(100.0))).contains("at least 100.0"));
        assert!(found(&search(SearchEnd::Time, None)).contains("--runlen"));
        let oltp =
            OltpDone { search: Some(search(SearchEnd::Found, Some(100.0))), ..OltpDone::default() };
        let rows = programs(&oltp);
        assert_eq!(rows.last().unwrap(), "1\t100.000\t100.000\t0.020000000\t");
    }
}
