//! `loadline probe throughput`: one test with a peer by hand, second by second.

mod foreign;
mod table;

use std::io::{IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use super::{EXIT_FAULT, EXIT_USAGE, Failure};
use crate::base::units::{Bytes, Rate, Seconds};
use crate::config::declared;
use crate::config::peers::PORT;
use crate::host::link_facts::Declared;
use crate::host::roots::Roots;
use crate::host::route::{Overrides, way_of};
use crate::iperf::client::{self, Order, Patience, Watch};
use crate::iperf::parameters;
use crate::model::link::{LinkDirection, LinkFault, LinkInterval, LinkProfile, LinkReason};
use crate::model::way::EndLine;
use crate::worker::Stop;

const RUNTIME: Seconds = Seconds(10.0);
/// A test bounded by bytes ends by itself; this is for one that never gets them, and no longer than
/// a loadline at the other end allows.
const RUNTIME_OF_BYTES: Seconds = Seconds(60.0);

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Format {
    Table,
    Json,
    /// The document that `iperf3 -J` writes
    Iperf3Json,
}

const EXAMPLES: &str = "\
Examples:
  loadline probe throughput storage2 -P 4
  loadline probe throughput 10.0.0.2:5201 --bidir -t 5s --omit 1s
  loadline probe throughput storage2 -R -n 10GiB --format json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ThroughputArguments {
    /// Peer, like storage2, 10.0.0.2:5201 or [2001:db8::2]:5201
    #[arg(value_name = "HOST[:PORT]")]
    peer: String,
    /// Connections per direction
    #[arg(short = 'P', long = "parallel", value_name = "N", default_value_t = 1)]
    streams: u32,
    /// The peer sends
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both send, each on connections of its own
    #[arg(long)]
    bidir: bool,
    /// How long, like 30s or 30; a loadline at the other end takes 60s at most [default: 10s]
    #[arg(short = 't', long = "time", value_name = "TIME", value_parser = seconds)]
    runtime: Option<Seconds>,
    /// Ends after so many bytes per direction, or after --time [default: 1m]
    #[arg(short = 'n', long, value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Time at the start that doesn't count, like 1s
    #[arg(short = 'O', long, value_name = "TIME", value_parser = seconds, default_value = "0")]
    omit: Seconds,
    /// Bytes a write, at most 1MiB [default: what measures best]
    #[arg(short = 'l', long = "length", value_name = "SIZE")]
    block: Option<Bytes>,
    /// Socket buffers [default: the kernel tunes them]
    #[arg(short = 'w', long, value_name = "SIZE")]
    window: Option<Bytes>,
    /// Congestion control on both ends, like cubic [default: the hosts' own]
    #[arg(short = 'C', long, value_name = "NAME")]
    congestion: Option<String>,
    /// Most that each connection sends, like 100Mbit
    #[arg(long, value_name = "RATE")]
    pacing: Option<Rate>,
    /// Type of service of the data; 32 is CS1, for what may wait
    #[arg(short = 'S', long = "tos", value_name = "N", default_value_t = 0)]
    type_of_service: u8,
    /// The way to the peer, like link=10Gbit,mtu=9000 [default: as its route is found]
    #[arg(long, value_name = "KEYS")]
    path: Option<String>,
    /// How to print the result
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// `30` as iperf3 reads it, or `30s` as everything here does.
fn seconds(text: &str) -> Result<Seconds, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(Seconds(seconds)),
        _ => text.parse(),
    }
}

impl ThroughputArguments {
    fn profile(&self) -> Result<LinkProfile, Failure> {
        let bounded = if self.bytes.is_some() { RUNTIME_OF_BYTES } else { RUNTIME };
        let profile = LinkProfile {
            streams: self.streams,
            direction: match (self.reverse, self.bidir) {
                (true, _) => LinkDirection::Reverse,
                (_, true) => LinkDirection::Both,
                _ => LinkDirection::Forward,
            },
            runtime: self.runtime.unwrap_or(bounded),
            omit: self.omit,
            bytes_max: self.bytes,
            block: self.block,
            window: self.window,
            congestion: self.congestion.clone(),
            pacing: self.pacing,
            type_of_service: self.type_of_service,
        };
        let usage = |(key, text)| Failure { code: EXIT_USAGE, text: format!("{key}: {text}") };
        parameters::check(&profile).map_err(usage)?;
        Ok(profile)
    }
}

pub(super) fn run(arguments: ThroughputArguments, out: &mut dyn Write) -> Result<(), Failure> {
    let profile = arguments.profile()?;
    let path = super::report::section("path", arguments.path.as_deref(), declared::path)?;
    // Nothing stops a name service but the end of the process: until then Ctrl-C is left as it is.
    let addresses = resolve(&arguments.peer);
    let stop = super::hand::stop_on_interrupt()?;
    let live = arguments.format == Format::Table;
    let mut view = View {
        out,
        profile: &profile,
        stop,
        live,
        bar: bar(!live && std::io::stderr().is_terminal()),
        intervals: Vec::new(),
        began_at: crate::base::clock::Clock::now(&crate::base::clock::SystemClock).unix_seconds(),
    };
    let mut result = match addresses {
        Ok(addresses) => {
            let _turn = super::hand::wait_for_turn(&super::hand::state_directory(), &view.stop)?;
            let patience = Patience::default();
            let order =
                Order { addresses: &addresses, profile: &profile, identity: None, patience };
            client::run(&order, &mut view)
        }
        Err(fault) => Err(fault),
    };
    view.bar.finish_and_clear();
    let mut unknown = String::new();
    if let Ok(measured) = &mut result {
        let (path, links) = (path.unwrap_or_default(), Declared::new());
        let overrides = Overrides { path: &path, links: &links, peer: EndLine::default() };
        let way = way_of(&measured.peer, &Roots::default(), &overrides);
        measured.set_against(&way);
        unknown = way.unknown;
    }
    view.end((arguments.format, &unknown), result)
}

/// What both directions moved in an interval, in one line.
pub(super) fn sums(interval: &LinkInterval) -> String {
    table::line(interval)
}

pub(super) fn resolve(peer: &str) -> Result<Vec<SocketAddr>, LinkFault> {
    let bare = peer.trim_start_matches('[').trim_end_matches(']');
    let found = if bare.parse::<std::net::Ipv6Addr>().is_ok() {
        (bare, PORT).to_socket_addrs()
    } else if peer.contains(':') {
        peer.to_socket_addrs()
    } else {
        (peer, PORT).to_socket_addrs()
    };
    let failed = |text| LinkFault::new(LinkReason::Refused, format!("{peer}: {text}"));
    let found: Vec<_> = found.map_err(|error| failed(error.to_string()))?.collect();
    if found.is_empty() { Err(failed("the name has no address".into())) } else { Ok(found) }
}

fn bar(shown: bool) -> ProgressBar {
    let bar = if shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("  {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// Prints as the test goes on, and keeps what the documents need.
struct View<'a> {
    out: &'a mut dyn Write,
    profile: &'a LinkProfile,
    stop: Stop,
    /// Lines as they come; else one that renews itself on standard error.
    live: bool,
    bar: ProgressBar,
    intervals: Vec<LinkInterval>,
    began_at: f64,
}

impl Watch for View<'_> {
    fn stopped(&self) -> bool {
        self.stop.is_set()
    }

    fn began(&mut self, peer: SocketAddr) {
        if self.live {
            let _ = writeln!(self.out, "{}", table::headline(peer, self.profile));
        }
    }

    fn interval(&mut self, interval: &LinkInterval) {
        if self.live {
            let _ = writeln!(self.out, "{}", table::interval(interval));
        } else {
            self.bar.set_message(table::line(interval));
            self.intervals.push(interval.clone());
        }
    }
}

impl View<'_> {
    fn end(
        self,
        (format, unknown): (Format, &str),
        result: Result<crate::model::link::LinkMeasured, LinkFault>,
    ) -> Result<(), Failure> {
        let text = match (&result, format) {
            (Ok(measured), Format::Table) => table::results(measured, unknown),
            (Ok(measured), Format::Json) => {
                serde_json::to_string_pretty(measured).context("the result as JSON")?
            }
            (Ok(measured), Format::Iperf3Json) => {
                foreign::document(measured, &self.intervals, self.began_at)
            }
            (Err(fault), Format::Iperf3Json) => foreign::error(fault),
            (Err(_), _) => String::new(),
        };
        if !text.is_empty() {
            writeln!(self.out, "{text}").context("standard output")?;
        }
        let failed = |fault: LinkFault| Failure {
            code: EXIT_FAULT,
            text: format!("{}: {}", fault.reason.label(), fault.text),
        };
        result.map(|_| ()).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_with_a_unit_or_as_iperf3_reads_it() {
        assert_eq!(seconds("5"), Ok(Seconds(5.0)));
        assert_eq!(seconds("1.5"), Ok(Seconds(1.5)));
        assert_eq!(seconds("2m"), Ok(Seconds(120.0)));
        assert!(seconds("-1").is_err() && seconds("nan").is_err() && seconds("soon").is_err());
    }

    #[test]
    fn a_peer_is_an_address_or_a_name_with_a_port_or_without() {
        let one = |text: &str| resolve(text).unwrap()[0].to_string();
        assert_eq!(one("127.0.0.1"), "127.0.0.1:5201");
        assert_eq!(one("127.0.0.1:99"), "127.0.0.1:99");
        assert_eq!(one("::1"), "[::1]:5201");
        assert_eq!(one("[::1]"), "[::1]:5201");
        assert_eq!(one("[::1]:99"), "[::1]:99");
        assert!(resolve("no such host.invalid").is_err());
    }
}
