//! What rtnetlink says of one route and one interface.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;

use super::super::netlink::{Netlink, Question, attribute, push_attribute, u16_at, u32_at};
use super::super::qdisc::{TokenBucket, token_bucket};

/// Where packets to an address leave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Hop {
    pub(super) ifindex: u32,
    /// Of the route; else the interface's holds.
    pub(super) mtu: Option<u32>,
    /// The address is this host's own.
    pub(super) local: bool,
    /// The route itself puts packets into others.
    pub(super) encapsulates: bool,
}

/// One interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Device {
    pub(super) ifindex: u32,
    pub(super) name: OsString,
    pub(super) mtu: u32,
    pub(super) loopback: bool,
    /// rtnetlink's word for what made it: `vxlan`, `bond`; empty for hardware.
    pub(super) kind: String,
    /// What it stands on, or the other end of a veth, if that is in this network namespace.
    pub(super) lower: Option<u32>,
    pub(super) master: Option<u32>,
    pub(super) tunnel: Option<Tunnel>,
}

/// An interface that puts packets into others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tunnel {
    /// As a report calls it.
    pub(super) label: &'static str,
    /// Bytes that it adds, but for the outer IP header.
    pub(super) adds: u32,
    /// Its outer packets are IPv6.
    pub(super) outer_v6: bool,
    /// The other end, where there is one only.
    pub(super) remote: Option<IpAddr>,
    /// The interface that it is bound to.
    pub(super) lower: Option<u32>,
}

/// The kernel, or what a test says that it says.
pub(super) trait Ask {
    fn hop(&self, to: IpAddr, over: Option<u32>) -> io::Result<Hop>;
    fn device(&self, ifindex: u32) -> io::Result<Device>;
    fn token_bucket(&self, ifindex: u32) -> io::Result<Option<TokenBucket>>;
}

// include/uapi/linux/rtnetlink.h, if_link.h, if_tunnel.h, if.h
const RTM_GETLINK: u16 = 18;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_METRICS: u16 = 8;
const RTA_ENCAP: u16 = 22;
const RTAX_MTU: u16 = 2;
const RTN_LOCAL: u8 = 2;
const RTMSG_BYTES: usize = 12;
const IFINFOMSG_BYTES: usize = 16;
const IFF_LOOPBACK: u32 = 8;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

impl Ask for Netlink {
    fn hop(&self, to: IpAddr, over: Option<u32>) -> io::Result<Hop> {
        let (family, address) = match to {
            IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
            IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
        };
        let mut body = vec![0; RTMSG_BYTES];
        (body[0], body[1]) = (family, (address.len() * 8) as u8);
        push_attribute(&mut body, RTA_DST, &address);
        if let Some(over) = over {
            push_attribute(&mut body, RTA_OIF, &over.to_ne_bytes());
        }
        one(self, &Question { kind: RTM_GETROUTE, all: false, body: &body }, hop)
    }

    fn device(&self, ifindex: u32) -> io::Result<Device> {
        let mut body = [0; IFINFOMSG_BYTES];
        body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        one(self, &Question { kind: RTM_GETLINK, all: false, body: &body }, device)
    }

    fn token_bucket(&self, ifindex: u32) -> io::Result<Option<TokenBucket>> {
        token_bucket(self, ifindex)
    }
}

fn one<T>(
    socket: &Netlink,
    question: &Question<'_>,
    read: fn(&[u8]) -> Option<T>,
) -> io::Result<T> {
    let mut found = None;
    socket.ask(question, &mut |body| found = found.take().or_else(|| read(body)))?;
    found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer that says nothing"))
}

fn hop(body: &[u8]) -> Option<Hop> {
    let attributes = body.get(RTMSG_BYTES..)?;
    let number = |list, kind| attribute(list, kind).and_then(|content| u32_at(content, 0));
    let metrics = attribute(attributes, RTA_METRICS).unwrap_or_default();
    Some(Hop {
        ifindex: number(attributes, RTA_OIF)?,
        mtu: number(metrics, RTAX_MTU).filter(|mtu| *mtu > 0),
        local: *body.get(7)? == RTN_LOCAL,
        encapsulates: attribute(attributes, RTA_ENCAP).is_some(),
    })
}

fn device(body: &[u8]) -> Option<Device> {
    let attributes = body.get(IFINFOMSG_BYTES..)?;
    let number = |kind| attribute(attributes, kind).and_then(|content| u32_at(content, 0));
    let info = attribute(attributes, IFLA_LINKINFO).unwrap_or_default();
    let text = |content: &[u8]| content.strip_suffix(b"\0").unwrap_or(content).to_vec();
    let kind = attribute(info, IFLA_INFO_KIND).map(text).unwrap_or_default();
    let kind = String::from_utf8(kind).ok()?;
    let data = attribute(info, IFLA_INFO_DATA).unwrap_or_default();
    // With it, the number is another namespace's.
    let here = attribute(attributes, IFLA_LINK_NETNSID).is_none();
    Some(Device {
        ifindex: u32_at(body, 4)?,
        name: OsStr::from_bytes(&text(attribute(attributes, IFLA_IFNAME)?)).to_owned(),
        mtu: number(IFLA_MTU)?,
        loopback: u32_at(body, 8)? & IFF_LOOPBACK != 0,
        lower: number(IFLA_LINK).filter(|lower| here && *lower > 0),
        master: number(IFLA_MASTER),
        tunnel: tunnel(&kind, data),
        kind,
    })
}

/// Attributes of a kind of tunnel: where its ends are, and which device it is bound to.
struct Keys {
    label: &'static str,
    /// Bytes that it adds at least, but for the outer IP header.
    adds: u32,
    remote: &'static [u16],
    local: &'static [u16],
    lower: u16,
    /// Flags of which each adds four bytes.
    flags: Option<u16>,
    /// With one of these set, the ends are chosen for each packet, or there is more around it.
    foreign: &'static [u16],
}

const ETHERNET: u32 = 14;
const UDP_AND_VXLAN: u32 = 8 + 8;
const GRE: u32 = 4;
const FLAGS_OF_FOUR: [u16; 3] = [0x8000, 0x2000, 0x1000];

/// `None` for what is no tunnel over IP, or one whose packets can't be foretold.
fn keys(kind: &str) -> Option<Keys> {
    let vxlan = Keys {
        label: "VXLAN",
        adds: UDP_AND_VXLAN + ETHERNET,
        remote: &[2, 16],
        local: &[4, 17],
        lower: 3,
        flags: None,
        foreign: &[25],
    };
    let gre = Keys {
        label: "GRE",
        adds: GRE,
        remote: &[7],
        local: &[6],
        lower: 1,
        flags: Some(3),
        foreign: &[18],
    };
    let plain = Keys { label: "IPIP", adds: 0, remote: &[3], local: &[2], lower: 1, ..gre };
    let plain = Keys { flags: None, foreign: &[15, 19], ..plain };
    Some(match kind {
        "vxlan" => vxlan,
        // Without options; OVN's are set for each packet.
        "geneve" => {
            Keys { label: "Geneve", remote: &[2, 7], local: &[], lower: 0, foreign: &[6], ..vxlan }
        }
        "gre" => gre,
        "gretap" => Keys { adds: GRE + ETHERNET, ..gre },
        "ipip" => plain,
        "sit" => Keys { label: "SIT", ..plain },
        _ => return None,
    })
}

fn tunnel(kind: &str, data: &[u8]) -> Option<Tunnel> {
    let keys = keys(kind)?;
    let set = |kind: &u16| attribute(data, *kind).is_some_and(|c| c.iter().any(|byte| *byte != 0));
    if keys.foreign.iter().any(set) {
        return None;
    }
    let addresses = |kinds: &[u16]| -> Option<IpAddr> {
        kinds.iter().filter_map(|kind| address(attribute(data, *kind)?)).next()
    };
    let remote = addresses(keys.remote);
    // A multicast group is no end, but tells the family.
    let family = remote.or_else(|| addresses(keys.local));
    // Flags are in the order of the network.
    let flags = keys.flags.and_then(|kind| u16_at(attribute(data, kind)?, 0)).map(u16::from_be);
    let set = FLAGS_OF_FOUR.iter().filter(|flag| flags.unwrap_or(0) & **flag != 0).count() as u32;
    Some(Tunnel {
        label: keys.label,
        adds: keys.adds + 4 * set,
        outer_v6: family.is_some_and(|address| address.is_ipv6()),
        remote: remote.filter(|remote| !remote.is_multicast()),
        lower: attribute(data, keys.lower).and_then(|c| u32_at(c, 0)).filter(|lower| *lower > 0),
    })
}

/// `None` for the address that says that there is none.
fn address(content: &[u8]) -> Option<IpAddr> {
    let address = match content.len() {
        4 => IpAddr::V4(Ipv4Addr::from(*content.first_chunk::<4>()?)),
        16 => IpAddr::V6(Ipv6Addr::from(*content.first_chunk::<16>()?)),
        _ => return None,
    };
    (!address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut list = Vec::new();
        for (kind, content) in attributes {
            push_attribute(&mut list, *kind, content);
        }
        list
    }

    fn link(kind: &[u8], data: &[u8], more: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; IFINFOMSG_BYTES];
        body[4] = 7;
        let info = list(&[(IFLA_INFO_KIND, kind), (IFLA_INFO_DATA, data)]);
        let mtu = 1450_u32.to_ne_bytes();
        body.extend(list(&[(IFLA_IFNAME, b"vx0\0"), (IFLA_MTU, &mtu), (IFLA_LINKINFO, &info)]));
        body.extend(list(more));
        body
    }

    fn tunnel_of(kind: &[u8], data: &[(u16, &[u8])]) -> Option<Tunnel> {
        device(&link(kind, &list(data), &[])).unwrap().tunnel
    }

    #[test]
    fn a_tunnel_tells_its_other_end_and_what_it_adds() {
        let (remote, lower) = ([10, 99, 0, 2], 3_u32.to_ne_bytes());
        let vxlan = tunnel_of(b"vxlan\0", &[(2, &remote), (3, &lower)]).unwrap();
        assert_eq!((vxlan.label, vxlan.adds + 20, vxlan.outer_v6), ("VXLAN", 50, false));
        assert_eq!((vxlan.remote, vxlan.lower), (Some([10, 99, 0, 2].into()), Some(3)));
        let over_v6 = tunnel_of(b"vxlan\0", &[(16, &[0xfd; 16])]).unwrap();
        assert!(over_v6.outer_v6 && over_v6.remote.is_some());
        let geneve = tunnel_of(b"geneve\0", &[(2, &remote)]).unwrap();
        assert_eq!(geneve.adds + 20, 50);
        let key = 0x2000_u16.to_be_bytes();
        let tap = tunnel_of(b"gretap\0", &[(7, &remote), (3, &key)]).unwrap();
        assert_eq!((tap.adds + 20, tap.remote), (42, Some([10, 99, 0, 2].into())));
        assert_eq!(tunnel_of(b"ipip\0", &[(3, &remote)]).unwrap().adds, 0);
    }

    #[test]
    fn ends_that_are_chosen_for_each_packet_are_no_tunnel_that_is_known() {
        assert_eq!(tunnel_of(b"vxlan\0", &[(25, &[1])]), None);
        assert!(tunnel_of(b"vxlan\0", &[(25, &[0])]).is_some());
        assert_eq!(
            tunnel_of(b"geneve\0", &[(6, &[])]),
            Some(Tunnel { remote: None, ..tunnel_of(b"geneve\0", &[]).unwrap() })
        );
        assert_eq!(tunnel_of(b"wireguard\0", &[]), None);
        let group = tunnel_of(b"vxlan\0", &[(2, &[239, 1, 1, 1])]).unwrap();
        assert_eq!((group.remote, group.outer_v6), (None, false));
    }

    #[test]
    fn the_other_end_in_another_namespace_is_not_taken_for_one_here() {
        let lower = 9_u32.to_ne_bytes();
        let here = device(&link(b"veth\0", &[], &[(IFLA_LINK, &lower)])).unwrap();
        assert_eq!((here.lower, here.mtu, here.ifindex), (Some(9), 1450, 7));
        let elsewhere: [(u16, &[u8]); 2] = [(IFLA_LINK, &lower), (IFLA_LINK_NETNSID, &[0; 4])];
        assert_eq!(device(&link(b"veth\0", &[], &elsewhere)).unwrap().lower, None);
    }

    #[test]
    fn this_kernel_knows_the_way_to_itself() {
        let Ok(kernel) = Netlink::open() else { return };
        for own in ["127.0.0.1", "::1"] {
            let Ok(hop) = kernel.hop(own.parse().unwrap(), None) else { continue };
            assert!(hop.local, "{own}");
            let device = kernel.device(hop.ifindex).unwrap();
            assert!(device.loopback && device.name == "lo", "{device:?}");
        }
        assert!(kernel.device(i32::MAX as u32).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(body in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = (hop(&body), device(&body), tunnel("gretap", &body), tunnel("vxlan", &body));
        }

        #[test]
        fn a_spoilt_answer_is_survived(at: usize, byte: u8) {
            let mut body = link(b"vxlan\0", &list(&[(2, &[10, 0, 0, 1])]), &[]);
            let at = at % body.len();
            body[at] = byte;
            let _ = device(&body);
        }
    }
}
