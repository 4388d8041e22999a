//! Kind `throughput`: TCP to each peer in iperf3's protocol, one stream alone and then several, in
//! each direction. The one kind that goes to peers: when, the tournament says, and not an interval.

pub(super) mod families;
pub mod metrics;

use std::net::{SocketAddr, ToSocketAddrs};

use serde::Deserialize;

use super::LinkShape;
use super::latency::complain;
use crate::base::units::{Bytes, Rate, Seconds};
use crate::config::complaint::Complaint;
use crate::config::document::Section;
use crate::config::read;
use crate::config::settings::LINK_KIND;
use crate::host::own_address::is_own;
use crate::iperf::client::{self, Order, Patience};
use crate::iperf::parameters;
use crate::model::link::{
    LinkDirection, LinkFault, LinkInterval, LinkMeasured, LinkProfile, LinkReason,
};
use crate::model::peer::{LinkDone, LinkEnd, LinkRun};
use crate::workload::Watch;

pub const NAME: &str = LINK_KIND;
pub const HELP: &str = "TCP to each peer by iperf3's protocol: one stream, then several";
/// Every option with its default, as YAML.
pub const EXAMPLE: &str =
    "throughput:\n  streams: 4\n  runtime: 5s\n  direction: each\n  omit: 1s\n  single: 2s\n";

/// No server of ours allows more.
const LEG_MAX: Seconds = Seconds(60.0);
/// CS1, for what may wait (RFC 3662).
const LOW_PRIORITY: u8 = 32;
/// Connections, parameters and results of one leg.
const AROUND: Seconds = Seconds(1.0);

/// Which ends send, and when.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Direction {
    Forward,
    Reverse,
    /// Forward, then reverse.
    Each,
    /// At once.
    Both,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    streams: u32,
    #[serde(deserialize_with = "read::quantity")]
    runtime: Seconds,
    direction: Direction,
    #[serde(deserialize_with = "read::quantity")]
    omit: Seconds,
    /// Of one stream alone, before the others; 0 leaves it out.
    #[serde(deserialize_with = "read::quantity")]
    single: Seconds,
    /// Ends a leg after so many bytes of one direction.
    #[serde(deserialize_with = "read::optional")]
    bytes: Option<Bytes>,
    #[serde(deserialize_with = "read::optional")]
    block_size: Option<Bytes>,
    #[serde(deserialize_with = "read::optional")]
    window: Option<Bytes>,
    congestion: Option<String>,
    /// Most that each stream sends.
    #[serde(deserialize_with = "read::optional")]
    pacing: Option<Rate>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            streams: 4,
            runtime: Seconds(5.0),
            direction: Direction::Each,
            omit: Seconds(1.0),
            single: Seconds(2.0),
            bytes: None,
            block_size: None,
            window: None,
            congestion: None,
            pacing: None,
        }
    }
}

/// Options to shape; `None` takes every default.
///
/// # Errors
/// With the place of what no peer would take.
pub fn read(section: Option<&Section<'_>>) -> Result<LinkShape, Complaint> {
    let options = section.map_or_else(|| Ok(Options::default()), |section| section.read())?;
    let shape = options.shape();
    for profile in shape.single.iter().chain(&shape.legs) {
        parameters::check(profile).map_err(|(key, text)| complain(section, key, text))?;
        if profile.runtime.0 + profile.omit.0 > LEG_MAX.0 {
            let text = format!("a leg takes at most {LEG_MAX}: peers allow no more");
            return Err(complain(section, "runtime", text));
        }
    }
    Ok(shape)
}

impl Options {
    fn shape(&self) -> LinkShape {
        let leg = |direction| LinkProfile {
            direction,
            omit: self.omit,
            bytes_max: self.bytes,
            block: self.block_size,
            window: self.window,
            congestion: self.congestion.clone(),
            pacing: self.pacing,
            type_of_service: LOW_PRIORITY,
            ..LinkProfile::plain(self.streams, self.runtime)
        };
        let (forward, reverse) = (LinkDirection::Forward, LinkDirection::Reverse);
        let (directions, words) = match self.direction {
            Direction::Forward => (vec![forward], "to the peer"),
            Direction::Reverse => (vec![reverse], "from the peer"),
            Direction::Each => (vec![forward, reverse], "each way"),
            Direction::Both => (vec![LinkDirection::Both], "both ways at once"),
        };
        let legs: Vec<_> = directions.into_iter().map(leg).collect();
        let first = legs.first().map_or(forward, |leg| leg.direction);
        let single = (self.single.0 > 0.0 && self.streams > 1).then(|| LinkProfile {
            streams: 1,
            runtime: self.single,
            omit: Seconds(0.0),
            ..leg(if first == LinkDirection::Both { forward } else { first })
        });
        let alone = if single.is_some() {
            format!(", {} of one alone", self.single)
        } else {
            String::new()
        };
        let plural = if self.streams == 1 { "" } else { "s" };
        let summary =
            format!("{} stream{plural} for {} {words}{alone}", self.streams, self.runtime);
        LinkShape { single, legs, every: Seconds(86_400.0), summary }
    }
}

impl LinkShape {
    /// How long a run takes as planned, with what is needed around its legs.
    pub fn time(&self) -> Seconds {
        let legs = self.single.iter().chain(&self.legs);
        Seconds(legs.map(|leg| leg.runtime.0 + leg.omit.0 + AROUND.0).sum())
    }

    /// Connections per direction of its legs.
    pub fn streams(&self) -> u32 {
        self.legs.first().map_or(0, |leg| leg.streams)
    }
}

/// Runs inside a worker process: a name that doesn't resolve may block for long.
///
/// # Errors
/// The reason, and a sentence that names the peer.
pub fn run(run: &LinkRun, watch: &dyn Watch) -> LinkEnd {
    measure(run, &resolve(run)?, watch)
}

/// A peer that turns out to run on this host's kernel is refused after its first leg.
fn measure(run: &LinkRun, addresses: &[SocketAddr], watch: &dyn Watch) -> LinkEnd {
    let leg = |profile: &LinkProfile| -> Result<LinkMeasured, LinkFault> {
        let order = Order {
            addresses,
            profile,
            identity: Some(run.identity.clone()),
            patience: Patience::default(),
        };
        let measured = client::run(&order, &mut Ears(watch))?;
        let own = &run.identity.boot_id;
        let same = measured.identity.as_ref().is_some_and(|peer| peer.boot_id == *own);
        if same && !own.is_empty() && !run.allow_same_kernel {
            let text = format!("{}: it runs on this host's kernel: no link lies between", run.peer);
            return Err(LinkFault::new(LinkReason::Denied, text));
        }
        Ok(measured)
    };
    let single = run.single.as_ref().map(leg).transpose()?;
    let legs = run.legs.iter().map(leg).collect::<Result<_, _>>()?;
    Ok(LinkDone { single, legs })
}

fn resolve(run: &LinkRun) -> Result<Vec<SocketAddr>, LinkFault> {
    let refused = |text: String| {
        LinkFault::new(LinkReason::Refused, format!("{}: {}: {text}", run.peer, run.endpoint))
    };
    let found = (run.endpoint.host.as_str(), run.endpoint.port).to_socket_addrs();
    let found: Vec<_> = found.map_err(|error| refused(error.to_string()))?.collect();
    if found.is_empty() {
        return Err(refused("the name has no address".into()));
    }
    match found.iter().find(|address| is_own(address.ip())) {
        Some(own) if !run.allow_same_kernel => {
            let text = format!("{}: {} is this host: no link lies between", run.peer, own.ip());
            Err(LinkFault::new(LinkReason::Denied, text))
        }
        _ => Ok(found),
    }
}

/// A worker's desk as the client sees it.
struct Ears<'a>(&'a dyn Watch);

impl client::Watch for Ears<'_> {
    fn stopped(&self) -> bool {
        self.0.stopped()
    }

    fn began(&mut self, _: SocketAddr) {}

    fn interval(&mut self, _: &LinkInterval) {}
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpListener};
    use std::sync::Arc;

    use super::*;
    use crate::base::network::Endpoint;
    use crate::config::document::Document;
    use crate::iperf::server::{Admit, Limits, Server};
    use crate::model::link::LinkIdentity;
    use crate::workload::testing::Ears as Deaf;

    fn shaped(text: &str) -> Result<LinkShape, String> {
        let document = Document::parse("test", text).unwrap();
        read(document.root().get(NAME).as_ref()).map_err(|complaint| complaint.text)
    }

    #[test]
    fn an_example_says_what_the_default_is() {
        assert_eq!(shaped(EXAMPLE).unwrap(), read(None).unwrap());
    }

    #[test]
    fn a_run_is_one_stream_alone_then_all_in_each_direction() {
        let shape = read(None).unwrap();
        let single = shape.single.as_ref().unwrap();
        assert_eq!((single.streams, single.runtime), (1, Seconds(2.0)));
        let directions: Vec<_> = shape.legs.iter().map(|leg| leg.direction).collect();
        assert_eq!(directions, [LinkDirection::Forward, LinkDirection::Reverse]);
        assert!(shape.legs.iter().all(|leg| leg.streams == 4 && leg.type_of_service == 32));
        assert_eq!(shape.time(), Seconds(2.0 + 6.0 + 6.0 + 3.0));
        assert_eq!(shape.summary, "4 streams for 5 s each way, 2 s of one alone");
        let plain = shaped("throughput: {streams: 1, direction: reverse}").unwrap();
        assert!(plain.single.is_none() && plain.legs.len() == 1, "one stream needs no other leg");
        let both = shaped("throughput: {direction: both, single: 0s}").unwrap();
        assert!(both.single.is_none() && both.legs[0].direction == LinkDirection::Both);
    }

    #[test]
    fn what_no_peer_takes_is_refused_by_its_key() {
        for (text, said) in [
            ("{streams: 0}", "`streams`"),
            ("{streams: 200}", "`streams`"),
            ("{runtime: 59s, omit: 2s}", "`runtime`"),
            ("{block_size: 2MiB}", "block"),
            ("{direction: up}", "`direction`"),
            ("{streems: 1}", "unknown key `streems`"),
        ] {
            let complaint = shaped(&format!("throughput: {text}")).unwrap_err();
            assert!(complaint.contains(said), "{text}: {complaint}");
        }
    }

    fn run_to(place: &str, allow_same_kernel: bool) -> LinkRun {
        LinkRun {
            peer: "there".into(),
            endpoint: Endpoint::parse(place, 5201).unwrap(),
            single: None,
            legs: vec![LinkProfile::plain(1, Seconds(0.1))],
            identity: LinkIdentity::default(),
            allow_same_kernel,
        }
    }

    #[test]
    fn a_name_that_leads_back_here_is_denied_and_one_that_leads_nowhere_is_refused() {
        let fault = |place, same| run(&run_to(place, same), &Deaf::default()).unwrap_err();
        let own = fault("127.0.0.1:1", false);
        assert_eq!(own.reason, LinkReason::Denied);
        assert_eq!(own.text, "there: 127.0.0.1 is this host: no link lies between");
        assert_eq!(fault("127.0.0.1:1", true).reason, LinkReason::Refused, "nobody listens");
        assert_eq!(fault("no-such-host.invalid", false).reason, LinkReason::Refused);
    }

    /// Says that it runs on the kernel of this name.
    struct House(&'static str);

    impl Admit for House {
        fn knows(&self, _: IpAddr) -> bool {
            true
        }

        fn turn(&self) -> Option<Box<dyn Send>> {
            Some(Box::new(()))
        }

        fn identity(&self, _: SocketAddr) -> Option<LinkIdentity> {
            Some(LinkIdentity { boot_id: self.0.into(), ..LinkIdentity::default() })
        }
    }

    #[test]
    fn a_peer_with_this_hosts_boot_id_is_refused_as_a_measurement() {
        let test = |theirs, own: &str, allow_same_kernel| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = Server::start(listener, Arc::new(House(theirs)), Limits::default());
            let _server = server.unwrap();
            let identity = LinkIdentity { boot_id: own.into(), ..LinkIdentity::default() };
            let run = LinkRun { identity, ..run_to("there", allow_same_kernel) };
            measure(&run, &[address], &Deaf::default())
        };
        let fault = test("b", "b", false).unwrap_err();
        assert_eq!(fault.reason, LinkReason::Denied);
        assert_eq!(fault.text, "there: it runs on this host's kernel: no link lies between");
        assert!(test("a", "b", false).is_ok(), "another kernel");
        assert!(test("b", "b", true).is_ok(), "`peers.allow_same_kernel`");
        assert!(test("", "", false).is_ok(), "hosts without a boot id are not one for that");
    }
}
