//! `loadline probe osd-bench`: the OSDs of a cluster one after another, or their write pattern on a
//! directory.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use comfy_table::presets;

use super::osd_table;
use crate::base::units::{Bytes, MIB, Seconds};
use crate::cli::cluster::ClusterArguments;
use crate::cli::hand::{self, Hand, RESERVE, WRITES_WITHOUT_ASKING};
use crate::cli::progress::Progress;
use crate::cli::{EXIT_FAULT, EXIT_USAGE, Failure};
use crate::daemon::targets::target_of;
use crate::host::roots::Roots;
use crate::model::ceph::OSDS_MAX;
use crate::model::job::{Profile, Region, Run, Target};
use crate::model::outcome::{Done, Outcome};
use crate::probe::{disk, osd_bench, osd_like};

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Format {
    /// For people on a terminal; tab-separated columns into a pipe
    Table,
    /// With the keys of `ceph tell osd.N bench`; `report --from` reads it
    Json,
}

const EXAMPLES: &str = "\
Examples:
  loadline probe osd-bench                                 every OSD that is up, 256 MiB each
  loadline probe osd-bench --osd 3,7 --bytes 1GiB
  loadline probe osd-bench --ceph-user client.loadline --ceph-keyring /etc/ceph/loadline.keyring
  loadline probe osd-bench --bytes 12288000 --block-size 4k    what mClock measures at start
  loadline probe osd-bench --format json > osds.json && loadline report --from osds.json
  loadline probe osd-bench --target /srv                   the same pattern on a directory

It runs only while the cluster is HEALTH_OK and neither recovers nor scrubs, one OSD at a time; each
takes away what it wrote. The key needs mon 'allow r', mgr 'allow r' and osd 'allow *'.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct OsdArguments {
    /// OSDs by their numbers, like 3,7 [default: all]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    osd: Vec<u32>,
    /// Bytes that each OSD writes [default: 256MiB; on a directory 1GiB]
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Bytes a write
    #[arg(long, value_name = "SIZE", default_value = "4MiB")]
    block_size: Bytes,
    /// How long the bench of one OSD may take
    #[arg(long, value_name = "TIME", default_value = "60s")]
    runtime: Seconds,
    /// Write more than 16 GiB in all without asking
    #[arg(long)]
    yes: bool,
    /// Write the same pattern on this directory, by loadline's own engine
    #[arg(long, value_name = "DIR", conflicts_with = "osd")]
    target: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(in crate::cli) fn run(arguments: OsdArguments, out: &mut dyn Write) -> Result<(), Failure> {
    match &arguments.target {
        Some(path) => on_directory(path.clone(), &arguments, out),
        None => on_cluster(&arguments, out),
    }
}

fn usage((key, text): (&'static str, String)) -> Failure {
    Failure { code: EXIT_USAGE, text: format!("--{}: {text}", key.replace('_', "-")) }
}

fn on_cluster(arguments: &OsdArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let bytes = arguments.bytes.unwrap_or(Bytes(256 * MIB));
    let leg = osd_bench::leg(bytes, arguments.block_size, arguments.runtime);
    osd_bench::check(&leg).map_err(usage)?;
    let legs = vec![leg; count(arguments, bytes)?];
    let hand = Hand::until_interrupted(Roots::default())?;
    let progress = Progress::new(std::io::stderr().is_terminal(), &legs);
    let turn = hand::wait_for_turn(&hand::state_directory(), &hand.stop)?;
    let run = run_of(osd_bench::KIND.name, arguments.cluster.target(&arguments.osd), legs);
    let outcome = hand.run(run, &mut |what| progress.take(what));
    drop(turn);
    progress.end();
    print(outcome, arguments.format, out)
}

/// How many OSDs have a bench at most.
fn count(arguments: &OsdArguments, bytes: Bytes) -> Result<usize, Failure> {
    let wanted = if arguments.osd.is_empty() { OSDS_MAX } else { arguments.osd.len() };
    let bearable = if arguments.yes { u64::MAX } else { WRITES_WITHOUT_ASKING.0 / bytes.0.max(1) };
    match usize::try_from(bearable).unwrap_or(usize::MAX).min(wanted) {
        0 => Err(usage(("bytes", format!("more than {WRITES_WITHOUT_ASKING}: add --yes")))),
        count if count < wanted && !arguments.osd.is_empty() => {
            let all = Bytes(bytes.0.saturating_mul(wanted as u64));
            Err(usage(("bytes", format!("{all} in all, over {WRITES_WITHOUT_ASKING}: add --yes"))))
        }
        count => Ok(count.min(OSDS_MAX)),
    }
}

fn run_of(kind: &str, target: Target, legs: Vec<Profile>) -> Run {
    Run {
        kind: kind.into(),
        region: Region::Objects,
        target,
        legs,
        engine: None,
        seed: hand::seed(),
        devices: Vec::new(),
        top: Vec::new(),
        reserve: RESERVE,
        procfs: Roots::default().procfs,
        quiet: Seconds(0.0),
    }
}

fn print(outcome: Outcome, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let (done, failure) = hand::parts(outcome);
    if let Some(done) = done {
        writeln!(out, "{}", shown(&done, format)?).context("standard output")?;
    }
    failure.map_or(Ok(()), |text| Err(Failure { code: EXIT_FAULT, text }))
}

fn shown(done: &Done, format: Format) -> Result<String, anyhow::Error> {
    match format {
        Format::Json => {
            let value = osd_table::json(&done.osds);
            serde_json::to_string_pretty(&value).context("the result as JSON")
        }
        Format::Table if std::io::stdout().is_terminal() => {
            Ok(osd_table::for_people(&done.osds, presets::NOTHING))
        }
        Format::Table => {
            for line in osd_table::remarks(&done.osds) {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            Ok(osd_table::tab_separated(&done.osds))
        }
    }
}

fn on_directory(
    path: PathBuf,
    arguments: &OsdArguments,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let bytes = arguments.bytes.unwrap_or(osd_like::BYTES_BY_HAND);
    if bytes > WRITES_WITHOUT_ASKING && !arguments.yes {
        return Err(usage(("bytes", format!("more than {WRITES_WITHOUT_ASKING}: add --yes"))));
    }
    let leg = osd_like::leg(bytes, arguments.block_size);
    disk::check(&leg).map_err(usage)?;
    let target = target_of(&hand::target_by_hand(&path, Default::default())?);
    let hand = Hand::until_interrupted(Roots::default())?;
    let inspection = hand.inspect(&target).map_err(super::failure)?;
    hand::is_disk(&target.name, &inspection).map_err(|text| Failure { code: EXIT_FAULT, text })?;
    let progress = Progress::new(std::io::stderr().is_terminal(), std::slice::from_ref(&leg));
    let turn = hand::wait_for_turn(&hand::state_directory(), &hand.stop)?;
    let run = Run {
        region: Region::Unnamed(bytes),
        devices: inspection.devices,
        top: inspection.top,
        quiet: Seconds(1.0),
        ..run_of(osd_like::KIND.name, target, vec![leg])
    };
    let outcome = hand.run(run, &mut |what| progress.take(what));
    drop(turn);
    progress.end();
    let format = match arguments.format {
        Format::Table => super::Format::Table,
        Format::Json => super::Format::Json,
    };
    super::print(outcome, format, out)
}
