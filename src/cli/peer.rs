//! `loadline probe serve`: the other end of a throughput test, by hand.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::Failure;
use crate::base::network::Network;
use crate::daemon;
use crate::daemon::peers::Peers;

/// How often it looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  loadline probe serve                          any peer, at :5201
  loadline probe serve --allow 10.0.0.0/24      these only
  loadline probe serve --listen 10.0.0.2:5202 --once

One test at a time, of 60s at most: a longer one is refused, as is a second while one runs.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PeerArguments {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = ":5201")]
    listen: String,
    /// Peers that are admitted, like 10.0.0.2 or 10.0.0.0/24; repeatable [default: all]
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<Network>,
    /// End after one test, whatever comes of it; connections that begin none don't count
    #[arg(long)]
    once: bool,
}

pub(super) fn run(arguments: PeerArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let stop = super::hand::stop_on_interrupt()?;
    let state = super::hand::state_directory();
    let all = ["0.0.0.0/0", "::/0"].iter().filter_map(|all| all.parse().ok()).collect();
    let allow = if arguments.allow.is_empty() { all } else { arguments.allow };
    let peers = Peers::new(allow, daemon::turn_places(&state));
    let server = peers.serve((&arguments.listen, "--listen")).map_err(daemon::StartFault::Other)?;
    writeln!(out, "answering iperf3 clients at {}", arguments.listen).context("standard output")?;
    out.flush().context("standard output")?;
    let over = || arguments.once && server.ended() > 0;
    while !stop.is_set() && !over() {
        std::thread::park_timeout(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iperf::server::Limits;

    #[test]
    fn the_help_names_the_longest_test() {
        let Limits { runtime_max, .. } = Limits::default();
        assert!(EXAMPLES.contains(&format!("of {}s at most", runtime_max.0)), "{runtime_max}");
    }
}
