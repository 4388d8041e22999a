//! The first lines: what is sampled, what will be probed where and at what cost, what is off and how
//! to change that, and the addresses to open.

use std::io::Write;
use std::sync::Arc;

use super::plan::Plan;
use super::probing::INSPECT_DEADLINE;
use super::targets::{ballast_size, target_of};
use super::{Options, itself, state};
use crate::base::clock::Clock;
use crate::base::fault::Fault;
use crate::base::units::Bytes;
use crate::config::settings::FirstRun;
use crate::model::job::{Backing, Job, Task, WIRE_VERSION};
use crate::model::outcome::{Inspection, OwnRuns, Reply};
use crate::model::snapshot::{HostFacts, ResourceClass};
use crate::sample::{Reading, SAMPLERS, Tick};
use crate::schedule::writes::may_write;
use crate::worker::{Ended, Runner, Stop};

/// What the first lines are made from.
pub(super) struct Start<'a> {
    pub options: &'a Options,
    pub plan: &'a Arc<Plan>,
    pub host: &'a HostFacts,
    pub addresses: &'a [String],
    pub runner: &'a dyn Runner,
    pub clock: &'a dyn Clock,
}

/// Devices named on one line; more are counted.
const NAMES_MAX: usize = 6;

/// Prints the first lines; returns what is off, for the page. A closed terminal is no fault.
pub(super) fn print(start: &Start<'_>, out: &mut dyn Write) -> Vec<String> {
    let looks = look(start);
    let mut notes = Vec::new();
    let mut lines = vec![head(start), String::new()];
    let reading = first_reading(start);
    lines.extend(column("samples", samples(start, &reading)));
    lines.extend(column("probes", probes(start, &looks, &mut notes)));
    let mut off = reading.notes;
    off.extend(notes.iter().cloned());
    if start.plan.link.is_none() {
        let text = "network probes: no `peers` to test; by hand: loadline probe throughput HOST";
        off.push(text.into());
    }
    lines.extend(column("peers", peers(start.plan)));
    lines.extend(column("off", off));
    lines.extend(column("open", addresses(start.addresses)));
    lines.push(String::new());
    let _ = writeln!(out, "{}", lines.join("\n"));
    let _ = out.flush();
    notes
}

fn head(start: &Start<'_>) -> String {
    let config = match &start.options.config {
        Some(path) => path.display().to_string(),
        None => "none (defaults)".into(),
    };
    format!(
        "loadline {} ({})  config: {config}  state: {}\n{}, kernel {}, {} CPUs",
        env!("CARGO_PKG_VERSION"),
        itself::REVISION,
        start.options.state.display(),
        start.host.system,
        start.host.kernel,
        start.host.cpus
    )
}

/// `title     first` and the rest under it; nothing where there is nothing to say.
fn column(title: &str, entries: Vec<String>) -> Vec<String> {
    let title_then_blank = std::iter::once(title).chain(std::iter::repeat(""));
    title_then_blank.zip(entries).map(|(title, entry)| format!("{title:<10}{entry}")).collect()
}

fn first_reading(start: &Start<'_>) -> Reading {
    let mut reading = Reading::default();
    let own = OwnRuns::default();
    for kind in SAMPLERS {
        let mut sampler = (kind.open)(&start.options.roots, &start.plan.settings.sample);
        let tick = Tick { at: start.clock.now(), own: &own };
        if let Err(fault) = sampler.read(tick, &mut reading) {
            reading.notes.push(format!("{}: {fault}: {}", kind.name, fault.kind.advice()));
        }
    }
    reading
}

fn samples(start: &Start<'_>, reading: &Reading) -> Vec<String> {
    let of = |class| {
        let all: Vec<String> = reading
            .resources
            .iter()
            .filter(|resource| resource.class == class)
            .map(|resource| format!("{} {}", resource.device, resource.facts).trim_end().to_owned())
            .collect();
        let more = all.len().saturating_sub(NAMES_MAX);
        let mut line = all.into_iter().take(NAMES_MAX).collect::<Vec<_>>().join("; ");
        if more > 0 {
            line = format!("{line}; {more} more");
        }
        line
    };
    let every = start.plan.settings.sample.every;
    [("disks", of(ResourceClass::Disk)), ("links", of(ResourceClass::Link))]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what}: {names}"))
        .chain(std::iter::once(format!("TCP, CPU and pressure; everything every {every}")))
        .collect()
}

/// One look at each target, by a worker each: a hung one costs its deadline and no more.
fn look(start: &Start<'_>) -> Vec<Result<Inspection, Fault>> {
    let load = Task::Load { directory: start.options.state.clone(), name: state::FILE_NAME.into() };
    if let Err(fault) = ask(start, load) {
        tracing::warn!("{fault}: {}", fault.kind.advice());
    }
    start
        .plan
        .targets
        .iter()
        .map(|settings| {
            let task = Task::Inspect {
                target: target_of(settings),
                procfs: start.options.roots.procfs.clone(),
                sysfs: start.options.roots.sysfs.clone(),
                rootfs: start.options.roots.rootfs.clone(),
            };
            match ask(start, task)? {
                Reply::Inspected(inspection) => Ok(*inspection),
                _ => Err(super::account::foreign_reply()),
            }
        })
        .collect()
}

fn ask(start: &Start<'_>, task: Task) -> Result<Reply, Fault> {
    let job = Job { v: WIRE_VERSION, polite: false, task };
    match start.runner.run(&job, INSPECT_DEADLINE, &Stop::default(), &mut |_| {}) {
        Ended::Replied(Reply::Failed(fault)) | Ended::Failed(fault) => Err(fault),
        Ended::Replied(reply) => Ok(reply),
        Ended::Hung(_) => Err(super::targets::hung("the target")),
    }
}

fn probes(
    start: &Start<'_>,
    looks: &[Result<Inspection, Fault>],
    notes: &mut Vec<String>,
) -> Vec<String> {
    let plan = start.plan;
    if !plan.settings.guard.probes {
        notes.push("all probes: `guard.probes` is false".into());
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (index, settings) in plan.targets.iter().enumerate() {
        let path = settings.path.display();
        match &looks[index] {
            Err(fault) => notes.push(format!(
                "probes on `{}`: {fault}: {}",
                settings.name,
                fault.kind.advice()
            )),
            Ok(inspection) => {
                let names: Vec<&str> = inspection.devices.iter().map(|d| d.name.as_str()).collect();
                let on = if names.is_empty() { &inspection.source } else { &names.join(", ") };
                let kept = match ballast_size(settings, inspection) {
                    Ok(size) => format!("{size} kept"),
                    Err((_, why)) => why,
                };
                lines.push(format!(
                    "{}  {path} on {on} {}, {} free, {kept}",
                    settings.name, inspection.filesystem, inspection.available
                ));
                lines.push(format!("  {}", rhythm(plan, index)));
                lines.push(format!("  {}", writes(plan, index, inspection)));
                if matches!(inspection.backing, Backing::Memory) {
                    notes.push(format!(
                        "`{}` is memory, not a disk: its results say so",
                        settings.name
                    ));
                }
            }
        }
    }
    let when = match plan.settings.first_run {
        FirstRun::Now => "first pass now, each probe when its disk is idle",
        FirstRun::Spread => "first pass spread out, at least 10 minutes after boot",
    };
    lines.push(when.into());
    lines
}

/// Who is tested, and who may test.
fn peers(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(link) = &plan.link {
        let every = humantime::format_duration(link.every.duration());
        lines.push(format!("{}: {}, each pair every {every}", link.name, link.shape.summary));
    }
    let settings = plan.settings.peers.as_ref();
    let listen = settings.and_then(|peers| peers.listen.as_ref());
    lines.extend(listen.map(|listen| format!("answered at {listen}")));
    lines
}

/// `latency every 30 s; seq_read, rand_read every 1h; ...`
fn rhythm(plan: &Plan, target: usize) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for probe in plan.probes.iter().filter(|probe| probe.target == target) {
        let every = humantime::format_duration(probe.every.duration()).to_string();
        match groups.iter_mut().find(|(known, _)| *known == every) {
            Some((_, names)) => names.push(&probe.name),
            None => groups.push((every, vec![&probe.name])),
        }
    }
    let parts: Vec<String> =
        groups.iter().map(|(every, names)| format!("{} every {every}", names.join(", "))).collect();
    parts.join("; ")
}

fn writes(plan: &Plan, target: usize, inspection: &Inspection) -> String {
    let settings = &plan.targets[target];
    if !may_write(settings, inspection, &plan.settings.sample.disks) {
        return format!(
            "writes nothing ({}: set `writes: true` to change that)",
            inspection.filesystem
        );
    }
    let planned = plan.written_bytes_a_day(target);
    let flash = inspection.devices.iter().any(|device| device.rotational == Some(false));
    let life = if flash {
        format!(
            " ({:.2} % of a 600 TBW life a year)",
            crate::schedule::budget::flash_life_a_year(planned).0 * 100.0
        )
    } else {
        String::new()
    };
    format!("writes at most {planned} a day of {} allowed{life}", Bytes(settings.budget.0))
}

fn addresses(listen: &[String]) -> Vec<String> {
    listen
        .iter()
        .map(|address| {
            let host = match address.rsplit_once(':') {
                Some(("" | "0.0.0.0" | "[::]", port)) => format!("127.0.0.1:{port}"),
                _ => address.clone(),
            };
            format!("http://{host}/        http://{host}/metrics")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_can_be_clicked() {
        let lines = addresses(&[":9847".into(), "10.0.0.1:80".into()]);
        assert_eq!(lines[0], "http://127.0.0.1:9847/        http://127.0.0.1:9847/metrics");
        assert!(lines[1].starts_with("http://10.0.0.1:80/"));
    }

    #[test]
    fn a_column_has_its_title_once() {
        let lines = column("off", vec!["a".into(), "b".into()]);
        assert_eq!(lines, ["off       a", "          b"]);
        assert!(column("off", Vec::new()).is_empty());
    }
}
