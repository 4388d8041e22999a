//! `loadline probe serve`: the other end of a throughput test, by hand.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::Failure;
use crate::base::network::Network;
use crate::daemon;
use crate::daemon::peers::Peers;
use crate::model::link::LinkReason;

/// How often it looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  loadline probe serve                          any peer, at :5201
  loadline probe serve --allow 10.0.0.0/24      these only
  loadline probe serve --listen 10.0.0.2:5202 --once";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PeerArguments {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = ":5201")]
    listen: String,
    /// Peers that are admitted, like 10.0.0.2 or 10.0.0.0/24; repeatable [default: all]
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<Network>,
    /// End after one test, whatever comes of it
    #[arg(long)]
    once: bool,
}

pub(super) fn run(arguments: PeerArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let stop = super::hand::stop_on_interrupt()?;
    let state = daemon::state::directory(|name| std::env::var(name).ok())
        .unwrap_or_else(|_| std::env::temp_dir());
    let all = ["0.0.0.0/0", "::/0"].iter().filter_map(|all| all.parse().ok()).collect();
    let allow = if arguments.allow.is_empty() { all } else { arguments.allow };
    let peers = Peers::new(allow, daemon::turn_places(&state));
    let server = peers.serve((&arguments.listen, "--listen")).map_err(daemon::StartFault::Other)?;
    writeln!(out, "answering iperf3 clients at {}", arguments.listen).context("standard output")?;
    out.flush().context("standard output")?;
    let refusals = [Some(LinkReason::Busy), Some(LinkReason::Denied)];
    let tests = || -> u64 {
        let counts = server.counts();
        counts.iter().filter(|(end, _)| !refusals.contains(end)).map(|(_, n)| n).sum()
    };
    let over = || arguments.once && tests() > 0;
    while !stop.is_set() && !over() {
        std::thread::park_timeout(LOOK);
    }
    Ok(())
}
