//! Ways over trees of /sys and a kernel that says what a test wrote.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use proptest::prelude::*;

use super::super::fixture::Host;
use super::super::qdisc::TokenBucket;
use super::kernel::{Ask, Device, Hop, Tunnel};
use super::*;

/// Interfaces by number, routes by address, and a tree of /sys that fits.
struct Net {
    host: Host,
    hops: BTreeMap<IpAddr, Hop>,
    devices: BTreeMap<u32, Device>,
    buckets: BTreeMap<u32, TokenBucket>,
}

const PEER: &str = "10.99.0.2:5201";

impl Net {
    fn new() -> Self {
        let (hops, devices, buckets) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { host: Host::new(), hops, devices, buckets }
    }

    fn add(&mut self, ifindex: u32, name: &str, kind: &str) -> &mut Device {
        let own = format!("sys/class/net/{name}");
        self.host.dir(&own);
        self.host.file(&format!("{own}/ifindex"), format!("{ifindex}\n"));
        let device = Device {
            ifindex,
            name: name.into(),
            mtu: 1500,
            kind: kind.into(),
            ..Device::default()
        };
        self.devices.entry(ifindex).or_insert(device)
    }

    /// Hardware of so many Mbit/s.
    fn nic(&mut self, ifindex: u32, name: &str, megabits: &str) {
        self.add(ifindex, name, "");
        self.host.dir(&format!("sys/class/net/{name}/device"));
        self.host.file(&format!("sys/class/net/{name}/speed"), format!("{megabits}\n"));
    }

    fn route(&mut self, to: &str, ifindex: u32) {
        let hop = Hop { ifindex, ..Hop::default() };
        self.hops.insert(to.parse().unwrap(), hop);
    }

    /// eth0, and a VXLAN to the peer over it.
    fn vxlan(megabits: &str) -> Self {
        let mut net = Self::new();
        net.nic(2, "eth0", megabits);
        let tunnel = Tunnel {
            label: "VXLAN",
            adds: 30,
            outer_v6: false,
            remote: Some("192.0.2.2".parse().unwrap()),
            lower: None,
        };
        let vx0 = net.add(3, "vx0", "vxlan");
        (vx0.mtu, vx0.tunnel) = (1450, Some(tunnel));
        net.route("10.99.0.2", 3);
        net.route("192.0.2.2", 2);
        net
    }

    fn way(&self, peer: &str, overrides: &Overrides<'_>) -> PeerWay {
        way(self, peer.parse().unwrap(), &self.host.roots(), overrides)
    }

    fn plain(&self) -> PeerWay {
        self.way(PEER, &nothing())
    }
}

impl Ask for Net {
    fn hop(&self, to: IpAddr, _: Option<u32>) -> io::Result<Hop> {
        self.hops.get(&to).copied().ok_or_else(|| io::Error::from_raw_os_error(libc_unreachable()))
    }

    fn device(&self, ifindex: u32) -> io::Result<Device> {
        self.devices.get(&ifindex).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    fn token_bucket(&self, ifindex: u32) -> io::Result<Option<TokenBucket>> {
        Ok(self.buckets.get(&ifindex).copied())
    }
}

fn libc_unreachable() -> i32 {
    rustix::io::Errno::NETUNREACH.raw_os_error()
}

static NO_PATH: DeclaredPath =
    DeclaredPath { link: None, encapsulation: None, mtu: None, members: None };
static NO_LINKS: Declared = Declared::new();

fn nothing() -> Overrides<'static> {
    Overrides { path: &NO_PATH, links: &NO_LINKS, peer: EndLine::default() }
}

fn mbit(line: &Option<Line>) -> String {
    let rate = line.as_ref().and_then(|line| line.ceiling(4, None));
    rate.map_or("-".into(), |rate| format!("{:.2}", rate.0 * 8.0 / 1e6))
}

#[test]
fn a_plain_way_carries_what_its_line_does() {
    let mut net = Net::new();
    net.nic(2, "eth0", "1000");
    net.route("10.99.0.2", 2);
    net.route("2001:db8::2", 2);
    let way = net.plain();
    assert_eq!((mbit(&way.transmit), mbit(&way.receive)), ("941.48".into(), "941.48".into()));
    assert_eq!(way.transmit.unwrap().source, "eth0, 1 Gbit/s, MTU 1500");
    assert_eq!((way.devices, way.unknown), (vec!["eth0".to_owned()], String::new()));
    assert_eq!(mbit(&net.way("[2001:db8::2]:5201", &nothing()).transmit), "928.48");
    assert_eq!(mbit(&net.way("[::ffff:10.99.0.2]:5201", &nothing()).transmit), "941.48");
    net.host.file("proc/sys/net/ipv4/tcp_timestamps", "0\n");
    assert_eq!(mbit(&net.plain().transmit), "949.28");
    net.hops.get_mut(&"10.99.0.2".parse().unwrap()).unwrap().mtu = Some(1400);
    assert_eq!(mbit(&net.plain().transmit), "945.76", "a route that knows of smaller packets");
}

#[test]
fn an_overlay_costs_its_headers_in_each_packet() {
    let net = Net::vxlan("1000");
    let way = net.plain();
    assert_eq!((mbit(&way.transmit), mbit(&way.receive)), ("908.97".into(), "908.97".into()));
    assert_eq!(way.transmit.unwrap().source, "eth0, 1 Gbit/s, VXLAN, MTU 1500");
    assert_eq!(way.devices, ["vx0", "eth0"]);

    let mut over_v6 = Net::vxlan("1000");
    over_v6.devices.get_mut(&3).unwrap().mtu = 1430;
    over_v6.devices.get_mut(&3).unwrap().tunnel.as_mut().unwrap().outer_v6 = true;
    assert_eq!(mbit(&over_v6.plain().transmit), "895.97");

    let mut enlarged = Net::vxlan("1000");
    enlarged.devices.get_mut(&3).unwrap().mtu = 1500;
    let unknown = enlarged.plain();
    assert!(
        unknown.transmit.is_none() && unknown.unknown.contains("packets of 1550"),
        "{unknown:?}"
    );
    enlarged.devices.get_mut(&2).unwrap().mtu = 1550;
    assert_eq!(mbit(&enlarged.plain().transmit), "911.84");
}

#[test]
fn tags_count_on_the_wire_and_inside_an_overlay() {
    let mut net = Net::vxlan("1000");
    let vlan = |net: &mut Net, ifindex, lower| {
        net.add(ifindex, &format!("v{ifindex}"), "vlan").lower = Some(lower);
    };
    vlan(&mut net, 5, 2);
    net.route("192.0.2.2", 5);
    assert_eq!(mbit(&net.plain().transmit), "906.61");
    vlan(&mut net, 6, 3);
    net.devices.get_mut(&6).unwrap().mtu = 1446;
    net.route("10.99.0.2", 6);
    assert_eq!(net.plain().devices, ["v6", "vx0", "v5", "eth0"]);
    assert_eq!(mbit(&net.plain().transmit), "904.02", "1394 of 1542");
}

#[test]
fn a_bridge_leads_on_and_so_does_a_cable_to_one() {
    let mut net = Net::new();
    net.nic(2, "eth0", "10000");
    net.add(4, "br0", "bridge");
    net.host.dir("sys/class/net/br0/bridge");
    net.host.symlink("sys/class/net/br0/lower_eth0", "../eth0");
    net.route("10.99.0.2", 4);
    assert_eq!(net.plain().devices, ["br0", "eth0"]);
    net.add(8, "in0", "veth").lower = Some(9);
    net.add(9, "out0", "veth").master = Some(4);
    net.route("10.99.0.2", 8);
    let way = net.plain();
    assert_eq!(
        (way.devices, mbit(&way.transmit)),
        (vec!["in0".to_owned(), "br0".to_owned(), "eth0".to_owned()], "9414.82".to_owned())
    );
    net.devices.get_mut(&8).unwrap().lower = None;
    let cut = net.plain();
    assert!(cut.transmit.is_none() && cut.unknown.contains("another network namespace"), "{cut:?}");
}

#[test]
fn one_flow_over_a_bond_is_bound_by_a_member() {
    let mut net = Net::new();
    for (ifindex, nic) in [(2, "eth0"), (3, "eth1")] {
        net.nic(ifindex, nic, "1000");
        net.host.file(&format!("sys/class/net/{nic}/bonding_slave/mii_status"), "up\n");
    }
    net.add(4, "bond0", "bond");
    net.host.file("sys/class/net/bond0/bonding/slaves", "eth0 eth1\n");
    net.host.file("sys/class/net/bond0/bonding/mode", "balance-xor 2\n");
    net.route("10.99.0.2", 4);
    let line = net.plain().transmit.unwrap();
    assert_eq!((line.rate, line.flow), (Rate(250e6), Rate(125e6)));
    net.host.file("sys/class/net/bond0/bonding/mode", "balance-rr 0\n");
    assert_eq!(net.plain().transmit.unwrap().flow, Rate(250e6));
}

#[test]
fn a_shaper_binds_what_is_sent_and_only_that() {
    let mut net = Net::vxlan("10000");
    let gigabit = TokenBucket { rate: Rate(984_395e3 / 8.0), overhead: 0 };
    net.buckets.insert(2, gigabit);
    let way = net.plain();
    assert_eq!((mbit(&way.transmit), mbit(&way.receive)), ("908.97".into(), "9089.73".into()));
    assert_eq!(way.transmit.unwrap().source, "tbf on eth0, 984.39 Mbit/s, VXLAN, MTU 1500");
    net.buckets.insert(2, TokenBucket { rate: Rate(125e6), overhead: 24 });
    assert_eq!(mbit(&net.plain().transmit), "908.97", "an overhead that makes a wire of it");
    net.buckets = BTreeMap::from([(3, gigabit)]);
    assert_eq!(mbit(&net.plain().transmit), "940.02", "1398 of the 1464 that it counts up there");
}

#[test]
fn what_is_not_known_has_no_rate_but_a_reason() {
    let reason = |net: &Net| {
        let way = net.plain();
        assert!(way.transmit.is_none() && way.receive.is_none(), "{way:?}");
        way.unknown
    };
    let mut net = Net::vxlan("-1");
    assert_eq!(reason(&net), "the line rate of eth0 isn't known");
    net.devices.get_mut(&2).unwrap().ifindex = 77;
    assert!(reason(&net).contains("another network namespace"));
    net.devices.get_mut(&3).unwrap().tunnel = None;
    assert_eq!(reason(&net), "what carries vx0, a vxlan, isn't known");
    net.hops.get_mut(&"10.99.0.2".parse().unwrap()).unwrap().local = true;
    assert_eq!(reason(&net), "the peer is this host itself");
    net.hops.clear();
    assert!(reason(&net).contains("unreachable"));
    let mut ring = Net::new();
    ring.add(5, "a", "vlan").lower = Some(5);
    ring.route("10.99.0.2", 5);
    assert!(reason(&ring).contains("no end"));
}

#[test]
fn what_the_operator_says_wins_and_of_both_ends_the_lower_holds() {
    let net = Net::vxlan("-1");
    let path = DeclaredPath { link: Some(Rate(125e6)), ..NO_PATH.clone() };
    let way = net.way(PEER, &Overrides { path: &path, ..nothing() });
    assert_eq!((mbit(&way.transmit), mbit(&way.receive)), ("908.97".into(), "908.97".into()));
    let line = way.transmit.unwrap();
    assert!(line.declared && line.source == "declared 1 Gbit/s, VXLAN, MTU 1500", "{line:?}");

    let said = DeclaredPath { encapsulation: Some(Encapsulation::Geneve), ..path.clone() };
    assert_eq!(mbit(&net.way(PEER, &Overrides { path: &said, ..nothing() }).receive), "903.77");
    let bond = DeclaredPath { members: Some(2), ..path };
    let line = net.way(PEER, &Overrides { path: &bond, ..nothing() }).receive.unwrap();
    assert_eq!((line.flow, line.rate), (Rate(125e6), Rate(250e6)));
    assert!(line.source.starts_with("declared 2 x 1 Gbit/s"), "{line:?}");

    let links = Declared::from([("eth0".to_owned(), Rate(1.25e9))]);
    let ten = Overrides { links: &links, ..nothing() };
    assert_eq!(mbit(&net.way(PEER, &ten).transmit), "9089.73");
    let wrapped = DeclaredPath { encapsulation: Some(Encapsulation::Gre), ..NO_PATH.clone() };
    assert_eq!(mbit(&net.way(PEER, &Overrides { path: &wrapped, ..ten }).transmit), "9141.74");
    let receives = |rate| EndLine { receives: Some(Rate(rate)), sends: None };
    let lower = net.way(PEER, &Overrides { peer: receives(125e6), ..ten });
    assert_eq!(lower.transmit.unwrap().source, "the peer's, 1 Gbit/s, VXLAN, MTU 1500");
    assert_eq!(mbit(&lower.receive), "9089.73", "what it sends by, it didn't say");
    let higher = Overrides { peer: receives(12.5e9), ..ten };
    assert_eq!(mbit(&net.way(PEER, &higher).transmit), "9089.73");
    let unseen = Overrides { path: &said, ..nothing() };
    let nowhere = net.way("192.0.2.99:5201", &unseen);
    assert_eq!(mbit(&nowhere.transmit), "903.77", "said of a way that can't be seen");
}

proptest! {
    #[test]
    fn any_wiring_ends(
        kinds in prop::collection::vec(0..6_usize, 6),
        lowers in prop::collection::vec(0..7_u32, 6),
    ) {
        let mut net = Net::new();
        for (at, (kind, lower)) in kinds.iter().zip(lowers).enumerate() {
            let kind = ["", "vlan", "veth", "bridge", "bond", "macvlan"][*kind];
            let device = net.add(at as u32, &format!("d{at}"), kind);
            (device.lower, device.master) = (Some(lower), Some(lower));
        }
        net.route("10.99.0.2", 0);
        let way = net.plain();
        prop_assert!(way.transmit.is_none() && !way.unknown.is_empty());
    }
}
