//! A run's result for people: columns that also cut well with `awk`.

use comfy_table::{Table, presets};

use crate::base::legs::Saturation;
use crate::base::units::{Rate, Ratio, Seconds};
use crate::model::job::{Profile, Target};
use crate::model::outcome::{Direction, Done, Inspection, Measured, SecondLeg, per_second};

/// `/srv  xfs on sda1 -> sda   random 4 KiB, 70.0 % reads, 2 jobs x depth 4`
pub(super) fn headline(target: &Target, inspection: &Inspection, profile: &Profile) -> String {
    let devices: Vec<&str> = inspection.devices.iter().map(|d| d.name.as_str()).collect();
    let under =
        if devices.is_empty() { String::new() } else { format!(" -> {}", devices.join(", ")) };
    format!(
        "{}  {} on {}{under}   {} {}, {} reads, {} x depth {}",
        target.name,
        inspection.filesystem,
        inspection.source,
        super::access(profile.access),
        profile.block,
        profile.reads,
        profile.jobs,
        profile.depth
    )
}

pub(super) fn results(done: &Done) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "profile",
        "direction",
        "rate",
        "throughput",
        "mean",
        "p50",
        "p95",
        "p99",
        "p99.9",
    ]);
    for leg in &done.legs {
        for (name, direction) in [("read", &leg.reads), ("write", &leg.writes)] {
            if direction.operations > 0 {
                table.add_row(row(leg, name, direction));
            }
        }
    }
    let mut lines = vec![table.trim_fmt(), String::new()];
    lines.extend(done.legs.iter().map(about_leg));
    lines.extend(done.second_leg.as_deref().map(about_second));
    lines.extend(done.evidence.devices.iter().map(|device| {
        format!("{}: busy {}, queue {:.1}", device.device, device.busy, device.queue)
    }));
    lines.extend(caveats(done));
    lines.join("\n")
}

fn row(leg: &Measured, name: &str, direction: &Direction) -> Vec<String> {
    let time = leg.elapsed;
    let mut cells = vec![
        leg.profile.name.clone(),
        name.into(),
        format!("{:.0}/s", per_second(direction.operations as f64, time)),
        Rate(per_second(direction.bytes.0 as f64, time)).to_string(),
        or_dash(direction.latency_mean),
    ];
    for q in [0.5, 0.95, 0.99, 0.999] {
        let found = direction.latency.iter().find(|(at, _)| (at - q).abs() < 1e-9);
        cells.push(or_dash(found.map(|(_, seconds)| *seconds)));
    }
    cells
}

fn or_dash(seconds: Option<Seconds>) -> String {
    seconds.map_or("-".into(), |s| s.to_string())
}

fn about_leg(leg: &Measured) -> String {
    let flush = leg.flush.map_or(String::new(), |s| format!(", the final flush took {s}"));
    format!(
        "{}: {} operations in {}{flush}; {}, {}, seed {:x}",
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
