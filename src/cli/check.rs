//! `loadline check`: validates the configuration and prints the plan.

mod mesh;

use std::io::Write;

use anyhow::Context;
use comfy_table::{Table, presets};

use super::{CommonArguments, Failure};
use crate::base::units::Bytes;
use crate::config::settings::FirstRun;
use crate::daemon;
use crate::daemon::plan::{Plan, PlannedProbe};
use crate::schedule::budget::flash_life_a_year;
use crate::schedule::due::SOON;

pub(super) fn run(arguments: CommonArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let options = arguments.options(Vec::new())?;
    let (plan, _) = daemon::load(&options)?;
    let host = daemon::host::facts(&options.roots);
    let name = options.config.as_ref().map_or("the defaults".into(), |p| p.display().to_string());
    let text = format!(
        "{name}: fine\n\n{}\n",
        describe(&plan, mesh::lines(&plan, &host.name, &options.roots))
    );
    out.write_all(text.as_bytes()).context("standard output")?;
    Ok(())
}

fn describe(plan: &Plan, mesh: Vec<String>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["probe", "target", "what", "every", "next run", "writes a day"]);
    for probe in &plan.probes {
        table.add_row([
            probe.name.to_string(),
            plan.targets[probe.target].name.clone(),
            probe.shape.summary.clone(),
            humantime::format_duration(probe.every.duration()).to_string(),
            next_run(plan, probe),
            written(probe),
        ]);
    }
    let mut lines = vec![table.trim_fmt(), String::new()];
    for (index, target) in plan.targets.iter().enumerate() {
        let planned = plan.written_bytes_a_day(index);
        lines.push(format!(
            "{}  {}: at most {planned} a day of {} allowed ({:.2} % of a 600 TBW flash life a year)",
            target.name,
            target.path.display(),
            target.budget,
            flash_life_a_year(planned).0 * 100.0
        ));
    }
    lines.extend(mesh);
    if !plan.settings.guard.probes {
        lines.push("no probe will run: `guard.probes` is false".into());
    }
    if plan.settings.guard.dry_run {
        lines.push("no probe will run: `guard.dry_run` is true".into());
    }
    lines.join("\n")
}

fn next_run(plan: &Plan, probe: &PlannedProbe) -> String {
    match plan.settings.first_run {
        FirstRun::Now => "at start".into(),
        FirstRun::Spread => {
            let every = probe.every.duration();
            let within = if probe.shape.calm.0 > 0.0 { every.min(SOON) } else { every };
            format!("within {} of start", humantime::format_duration(within))
        }
    }
}

fn written(probe: &PlannedProbe) -> String {
    let runs = 86_400.0 / probe.every.0;
    match (probe.written_bytes_max().0 as f64 * runs).round() as u64 {
        0 => "nothing".into(),
        bytes => Bytes(bytes).to_string(),
    }
}
