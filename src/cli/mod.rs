//! Floor 9: arguments and commands.

mod check;
mod clean;
mod cluster;
mod hand;
mod import;
mod peer;
mod probe;
mod progress;
mod report;
mod throughput;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

use crate::config::complaint::Complaint;
use crate::daemon::{self, Options};
use crate::host::roots::Roots;

/// Exit codes of start-up faults; clap itself ends with 2 on wrong usage.
const EXIT_OK: u8 = 0;
const EXIT_FAULT: u8 = 1;
const EXIT_USAGE: u8 = 2;
const EXIT_CONFIG: u8 = 3;

const EXAMPLES: &str = "\
Examples:
  loadline                                     run on the defaults; then open http://127.0.0.1:9847/
  loadline --config /etc/loadline.yml          run on a configuration
  loadline check --config loadline.yml         validate it and print the plan
  loadline probe disk --target /srv --profile rand_rw
  loadline probe oltp --target /srv --search   the most OLTP operations/s under 30 ms on average
  loadline report --target /srv                measure, and name the limit of each result
  loadline report --from measurements.yml      name the limits of results that are there
  loadline probe throughput storage2 -P 4      fill the way to a peer that runs iperf3 -s
  loadline clean                               give back every ballast file

Exit codes: 0 fine, 1 a fault, 2 wrong usage, 3 wrong configuration.";

/// Continuous performance monitor: what disks and links carry, what they can, and what limits them.
#[derive(Debug, Parser)]
#[command(name = "loadline", version = version(), after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon (the default)
    Serve(ServeArguments),
    /// Validate the configuration and print the plan: every probe, its next run, its bytes a day
    Check(CommonArguments),
    /// Give back every ballast file of the configured targets
    Clean(CommonArguments),
    /// Measure everything now, or take saved results: name the limit of each, prove it, say what to
    /// change
    Report(report::ReportArguments),
    /// Print the metric reference as Markdown
    #[command(hide = true)]
    Reference,
    /// Run one probe now and print what it measured
    #[command(subcommand)]
    Probe(ProbeCommand),
}

#[derive(Debug, Subcommand)]
enum ProbeCommand {
    /// Exercise a directory (through an unnamed file) or a raw device (read only)
    Disk(probe::DiskArguments),
    /// Offer pblio's OLTP workload to files, or find the highest rate under a latency limit
    Oltp(probe::oltp::OltpArguments),
    /// Fill the way to a peer that runs `iperf3 -s` or loadline, over TCP
    Throughput(throughput::ThroughputArguments),
    /// Have the OSDs of a Ceph cluster write one after another, or their pattern written on a directory
    OsdBench(probe::OsdArguments),
    /// Answer throughput tests of other hosts, from loadline or iperf3, until interrupted
    Serve(peer::PeerArguments),
}

#[derive(Debug, Args)]
struct ServeArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Address to listen on, `:9847` or `127.0.0.1:9847`; repeatable [default: :9847]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
}

/// What every command that reads the host or the configuration takes.
#[derive(Debug, Args)]
struct CommonArguments {
    /// Configuration file (YAML); without one the embedded defaults hold
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where /proc of the host is
    #[arg(long = "path.procfs", value_name = "DIR", default_value = "/proc")]
    procfs: PathBuf,
    /// Where /sys of the host is
    #[arg(long = "path.sysfs", value_name = "DIR", default_value = "/sys")]
    sysfs: PathBuf,
    /// Where / of the host is
    #[arg(long = "path.rootfs", value_name = "DIR", default_value = "/")]
    rootfs: PathBuf,
}

impl CommonArguments {
    fn options(self, listen: Vec<String>) -> Result<Options, Failure> {
        let state = daemon::state::directory(|name| std::env::var(name).ok())
            .map_err(|text| Failure { code: EXIT_FAULT, text })?;
        Ok(Options { roots: self.roots(), config: self.config, listen, state })
    }

    fn roots(&self) -> Roots {
        let [procfs, sysfs, rootfs] = [&self.procfs, &self.sysfs, &self.rootfs].map(Clone::clone);
        Roots { procfs, sysfs, rootfs }
    }
}

/// How a command ends badly: exit code and the sentence for standard error.
#[derive(Debug)]
struct Failure {
    code: u8,
    text: String,
}

impl From<Complaint> for Failure {
    fn from(complaint: Complaint) -> Self {
        Self { code: EXIT_CONFIG, text: complaint.to_string() }
    }
}

impl From<daemon::StartFault> for Failure {
    fn from(fault: daemon::StartFault) -> Self {
        match fault {
            daemon::StartFault::Config(complaint) => (*complaint).into(),
            daemon::StartFault::Other(fault) => {
                Self { code: EXIT_FAULT, text: format!("{fault}\n{}", fault.kind.advice()) }
            }
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { code: EXIT_FAULT, text: format!("{error:#}") }
    }
}

fn version() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("LOADLINE_REVISION"), ")")
}

/// Runs what the arguments ask for; returns the exit code.
pub fn main() -> u8 {
    let arguments = match Arguments::try_parse_from(probe::oltp::go_flags(std::env::args_os())) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version go to standard output and are no fault.
            let code = if error.use_stderr() { EXIT_USAGE } else { EXIT_OK };
            return if error.print().is_ok() { code } else { EXIT_FAULT };
        }
    };
    log_to_stderr();
    let mut out = std::io::stdout();
    let result = match arguments.command {
        None => serve(arguments.serve, &mut out),
        Some(Command::Serve(serve_arguments)) => serve(serve_arguments, &mut out),
        Some(Command::Check(common)) => check::run(common, &mut out),
        Some(Command::Clean(common)) => clean::run(common, &mut out),
        Some(Command::Report(arguments)) => report::run(arguments, &mut out),
        Some(Command::Reference) => reference(&mut out),
        Some(Command::Probe(ProbeCommand::Disk(disk))) => probe::run(disk, &mut out),
        Some(Command::Probe(ProbeCommand::Oltp(oltp))) => probe::oltp::run(oltp, &mut out),
        Some(Command::Probe(ProbeCommand::Throughput(link))) => throughput::run(link, &mut out),
        Some(Command::Probe(ProbeCommand::OsdBench(osds))) => probe::bench_osds(osds, &mut out),
        Some(Command::Probe(ProbeCommand::Serve(peer))) => peer::run(peer, &mut out),
    };
    match result {
        Ok(()) => EXIT_OK,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "{}", failure.text);
            failure.code
        }
    }
}

fn serve(arguments: ServeArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let options = arguments.common.options(arguments.listen)?;
    Ok(daemon::serve(options, out)?)
}

fn reference(out: &mut dyn Write) -> Result<(), Failure> {
    let text = crate::publish::reference::reference(&daemon::descs());
    Ok(out.write_all(text.as_bytes()).context("standard output")?)
}

/// Logs go to standard error, coloured only on a terminal; `RUST_LOG` sets the level.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .try_init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn listen_is_repeatable_and_serve_is_the_default() {
        let parsed =
            Arguments::try_parse_from(["loadline", "--listen", ":1", "--listen", "[::1]:2"])
                .unwrap();
        assert!(parsed.command.is_none());
        assert_eq!(parsed.serve.listen, [":1", "[::1]:2"]);
    }
}
