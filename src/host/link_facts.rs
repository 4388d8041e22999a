//! How fast the line of an interface is, and the other facts that may be slow to ask.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::link_class::{
    LinkClass, MasterKind, STACK_MAX, class, is_line, lowers, master, master_of,
};
use super::roots::{asked, attribute};
use crate::base::fault::Fault;
use crate::base::units::Rate;

/// Rate of the line, per direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    pub receive: Rate,
    pub transmit: Rate,
    /// By the operator, for this interface or one that it stands on.
    pub declared: bool,
}

/// What changes seldom and may be slow to ask: `speed`, `duplex` and their kin take the RTNL lock
/// and may ask the driver (net/core/net-sysfs.c); an unplugged USB adapter answers after seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkFacts {
    pub capacity: Option<Capacity>,
    pub mtu: Option<u32>,
    /// One direction at a time: both share the line.
    pub half_duplex: bool,
    /// `full`, `half`, or empty where it can't be known.
    pub duplex: String,
    /// The bond it is a slave of; empty where there is none.
    pub bond: String,
    pub up: bool,
    /// Stands for a port of an embedded switch: its traffic is another's.
    pub representor: bool,
    /// Why the line's speed could not even be asked for: nothing here is to be believed then.
    pub refusal: Option<Fault>,
    /// What the provider held back, by allowance; see [`super::allowance`].
    pub allowances: Vec<(String, u64)>,
}

/// Rates that the operator declared, by name.
pub type Declared = BTreeMap<String, Rate>;

/// All facts of `name` under `net`; may take seconds.
pub fn facts(net: &Path, name: &OsStr, declared: &Declared) -> LinkFacts {
    let own = net.join(name);
    let duplex = attribute(&own.join("duplex")).filter(|d| d == "full" || d == "half");
    let bond = master_of(net, name).filter(|(_, kind)| *kind == MasterKind::Bond);
    LinkFacts {
        capacity: capacity(net, name, declared, STACK_MAX),
        mtu: attribute(&own.join("mtu")).and_then(|mtu| mtu.parse().ok()),
        half_duplex: duplex.as_deref() == Some("half"),
        duplex: duplex.unwrap_or_default(),
        bond: bond.map(|(name, _)| name.to_string_lossy().into_owned()).unwrap_or_default(),
        up: is_up(&own),
        representor: attribute(&own.join("phys_port_name"))
            .is_some_and(|p| is_port_of_function(&p)),
        refusal: asked(&own.join("operstate")).and_then(|_| asked(&own.join("speed"))).err(),
        allowances: Vec::new(),
    }
}

/// `pf0vf3`, `c1pf0sf8`: a representor of a virtual or sub-function (devlink's naming).
fn is_port_of_function(port: &str) -> bool {
    let functions = port
        .split_once("pf")
        .map(|(_, rest)| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    functions.is_some_and(|rest| rest.starts_with("vf") || rest.starts_with("sf"))
}

/// Drivers that never set `operstate` leave it `unknown` while traffic flows: carrier decides.
fn is_up(own: &Path) -> bool {
    const IFF_UP_AND_RUNNING: u32 = 0x1 | 0x40;
    match attribute(&own.join("operstate")).as_deref() {
        Some("up") => true,
        Some("unknown") | None => match attribute(&own.join("carrier")) {
            Some(carrier) => carrier == "1",
            None => attribute(&own.join("flags"))
                .and_then(|f| u32::from_str_radix(f.trim_start_matches("0x"), 16).ok())
                .is_some_and(|f| f & IFF_UP_AND_RUNNING == IFF_UP_AND_RUNNING),
        },
        Some(_) => false,
    }
}

fn capacity(net: &Path, name: &OsStr, declared: &Declared, depth: u32) -> Option<Capacity> {
    if let Some(rate) = name.to_str().and_then(|n| declared.get(n)) {
        return Some(Capacity { receive: *rate, transmit: *rate, declared: true });
    }
    let depth = depth.checked_sub(1)?;
    let own = net.join(name);
    match class(net, name) {
        LinkClass::Physical => {
            let rate = rate_of(&attribute(&own.join("speed"))?)?;
            Some(Capacity { receive: rate, transmit: rate, declared: false })
        }
        LinkClass::Vlan => capacity(net, lowers(&own).first()?, declared, depth),
        LinkClass::Bond => bond_capacity(net, &own, |slave| capacity(net, slave, declared, depth)),
        // A tunnel or a macvlan is bound by what it stands on, a bridge by its one way out.
        LinkClass::Virtual | LinkClass::Bridge => {
            capacity(net, &way_out(net, name)?, declared, depth)
        }
        // The runner of a team isn't in sysfs; the constants of veth and tun are no lines.
        _ => None,
    }
}

/// The one line below `name`; `None` where there is none, or a choice of several.
pub(super) fn way_out(net: &Path, name: &OsStr) -> Option<OsString> {
    let bridge = class(net, name) == LinkClass::Bridge;
    let below = |lower: &OsString| {
        is_line(net, lower) && (bridge || master(&net.join(lower)).as_deref() != Some(name))
    };
    let mut lines = lowers(&net.join(name)).into_iter().filter(below);
    let first = lines.next()?;
    lines.next().is_none().then_some(first)
}

/// What one flow over a bond gets at most: its fastest member, but for a bond that deals out packets
/// one by one (balance-rr). `None` for what is no bond, or where no member's rate is known.
pub(super) fn fastest_member(net: &Path, name: &OsStr, declared: &Declared) -> Option<Rate> {
    let bonding = net.join(name).join("bonding");
    if attribute(&bonding.join("mode"))?.starts_with("balance-rr") {
        return None;
    }
    let members = attribute(&bonding.join("slaves"))?;
    let rates = members
        .split_whitespace()
        .filter_map(|member| capacity(net, OsStr::new(member), declared, STACK_MAX))
        .map(|capacity| capacity.transmit);
    rates.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// `speed` in Mbit/s. -1, 65535 and their unsigned likes mean unknown (include/uapi/linux/ethtool.h);
/// no line is faster than 10 Tbit/s.
fn rate_of(text: &str) -> Option<Rate> {
    let megabits: i64 = text.parse().ok()?;
    (megabits > 0 && megabits != 65_535 && megabits <= 10_000_000)
        .then_some(Rate(megabits as f64 * 125_000.0))
}

/// Capacity of a bond by its mode (Documentation/networking/bonding.rst). The kernel's own sum
/// ignores that some modes receive on one slave only.
fn bond_capacity(
    net: &Path,
    own: &Path,
    slave_capacity: impl Fn(&OsStr) -> Option<Capacity>,
) -> Option<Capacity> {
    let bonding = own.join("bonding");
    let mode: u32 = attribute(&bonding.join("mode"))?.split_whitespace().last()?.parse().ok()?;
    let aggregator = attribute(&bonding.join("ad_aggregator"));
    let carries = |slave: &OsStr| {
        let state = net.join(slave).join("bonding_slave");
        let up = match attribute(&state.join("mii_status")) {
            Some(status) => status == "up",
            None => is_up(&net.join(slave)),
        };
        const LACP: u32 = 4;
        let other = mode == LACP
            && aggregator.is_some()
            && attribute(&state.join("ad_aggregator_id")).is_some_and(|id| Some(id) != aggregator);
        up && !other
    };
    let slaves = attribute(&bonding.join("slaves"))?;
    let lines: Option<Vec<Capacity>> = slaves
        .split_whitespace()
        .map(OsStr::new)
        .filter(|slave| carries(slave))
        .map(&slave_capacity)
        .collect();
    let lines = lines.filter(|lines| !lines.is_empty())?;
    let active = || slave_capacity(OsStr::new(&attribute(&bonding.join("active_slave"))?));
    let total = |of: fn(&Capacity) -> Rate| Rate(lines.iter().map(|l| of(l).0).sum());
    let all = Capacity {
        receive: total(|l| l.receive),
        transmit: total(|l| l.transmit),
        declared: lines.iter().any(|l| l.declared),
    };
    match mode {
        // balance-rr, balance-xor, 802.3ad, balance-alb.
        0 | 2 | 4 | 6 => Some(all),
        // active-backup.
        1 => active(),
        // broadcast: every frame on every slave.
        3 => lines.into_iter().min_by(|a, b| a.transmit.0.total_cmp(&b.transmit.0)),
        // balance-tlb: sends on all, receives on the active one.
        5 => Some(Capacity { receive: active()?.receive, ..all }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Host;
    use super::*;

    fn facts_of(host: &Host, name: &str) -> LinkFacts {
        facts(&host.at("class/net"), name.as_ref(), &Declared::new())
    }

    fn rates(host: &Host, name: &str) -> Option<(f64, f64)> {
        facts_of(host, name).capacity.map(|c| (c.receive.0, c.transmit.0))
    }

    #[test]
    fn case_044_speeds_that_mean_unknown_are_absent() {
        let text = include_str!("../../tests/fixtures/cases/044-speed-unknown-values.input");
        let known: Vec<_> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .filter_map(|(name, content)| Some((name, rate_of(content)?.0)))
            .collect();
        assert_eq!(known, [("eth0", 125e6), ("eth1", 5e9), ("vf0", 2.5e9)]);
    }

    #[test]
    fn case_054_an_interface_that_never_sets_its_state_is_up_when_it_has_a_carrier() {
        let text = include_str!("../../tests/fixtures/cases/054-operstate-unknown-is-up.input");
        let host = Host::new();
        let mut up = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap();
            for (key, value) in words.filter_map(|w| w.split_once('=')) {
                if value != "EINVAL" {
                    host.file(&format!("class/net/{name}/{key}"), format!("{value}\n"));
                }
            }
            if facts_of(&host, name).up {
                up.push(name);
            }
        }
        assert_eq!(up, ["lo", "eth0", "wg0", "tun0", "usb0"]);
    }

    #[test]
    fn constants_of_virtual_drivers_are_no_capacities() {
        let host = Host::new();
        for name in ["veth0", "tun0", "br0", "dummy0"] {
            host.file(&format!("class/net/{name}/speed"), "10000\n");
        }
        host.dir("class/net/br0/bridge");
        for name in ["veth0", "tun0", "br0", "dummy0"] {
            assert_eq!(rates(&host, name), None, "{name}");
        }
    }

    #[test]
    fn tunnels_and_bridges_are_bound_by_the_one_line_below_them() {
        let host = bond("802.3ad 4");
        host.file("class/net/vx0/uevent", "DEVTYPE=vxlan\n");
        host.symlink("class/net/vx0/lower_bond0", "../bond0");
        assert_eq!(rates(&host, "vx0"), Some((1.375e9, 1.375e9)));
        host.dir("class/net/br0/bridge");
        host.symlink("class/net/br0/lower_vx0", "../vx0");
        host.dir("class/net/vx0");
        assert_eq!(rates(&host, "br0"), None, "a port that leads nowhere outside by itself");
        host.symlink("class/net/br0/lower_bond0", "../bond0");
        host.symlink("class/net/bond0/master", "../br0");
        assert_eq!(rates(&host, "br0"), Some((1.375e9, 1.375e9)));
        host.dir("class/net/eth9/device");
        host.symlink("class/net/br0/lower_eth9", "../eth9");
        assert_eq!(rates(&host, "br0"), None, "two ways out");
        host.dir("class/net/ovs-system");
        host.symlink("class/net/ovs-system/lower_eth0", "../eth0");
        host.symlink("class/net/eth8/master", "../vrf0");
        host.dir("class/net/eth8/device");
        host.file("class/net/eth8/speed", "1000\n");
        host.file("class/net/vrf0/uevent", "DEVTYPE=vrf\n");
        host.symlink("class/net/vrf0/lower_eth8", "../eth8");
        assert_eq!(rates(&host, "vrf0"), None, "a master is not bound by a member");
    }

    #[test]
    fn case_088_a_speed_that_cannot_be_asked_for_is_a_refusal_and_not_unknown() {
        let host = Host::new();
        host.dir("class/net/eth0/device");
        assert_eq!(facts_of(&host, "eth0").refusal, None, "absent is an answer");
        host.symlink("class/net/eth0/speed", "speed");
        let refusal = facts_of(&host, "eth0").refusal.unwrap();
        assert!(refusal.text.contains("eth0/speed: "), "{refusal}");
    }

    #[test]
    fn what_the_operator_declares_wins_over_the_driver() {
        let host = Host::new();
        host.dir("class/net/eth0/device");
        host.file("class/net/eth0/speed", "10000\n");
        host.symlink("class/net/eth0.7/lower_eth0", "../eth0");
        let declared = Declared::from([("eth0".to_owned(), Rate(125e6))]);
        let of = |name: &str| facts(&host.at("class/net"), name.as_ref(), &declared).capacity;
        let expected = Capacity { receive: Rate(125e6), transmit: Rate(125e6), declared: true };
        assert_eq!(of("eth0"), Some(expected));
        assert_eq!(of("eth0.7"), Some(expected), "a VLAN has the line of what it stands on");
    }

    /// Two slaves of 10 and 1 Gbit/s; the second is active.
    fn bond(mode: &str) -> Host {
        let host = Host::new();
        for (nic, speed, aggregator) in [("eth0", "10000\n", "1\n"), ("eth1", "1000\n", "2\n")] {
            let own = format!("class/net/{nic}");
            host.dir(&format!("{own}/device"));
            host.symlink(&format!("{own}/master"), "../bond0");
            host.file(&format!("{own}/speed"), speed);
            host.file(&format!("{own}/bonding_slave/mii_status"), "up\n");
            host.file(&format!("{own}/bonding_slave/ad_aggregator_id"), aggregator);
        }
        host.file("class/net/bond0/bonding/slaves", "eth0 eth1\n");
        host.file("class/net/bond0/bonding/mode", format!("{mode}\n"));
        host.file("class/net/bond0/bonding/active_slave", "eth1\n");
        host
    }

    #[test]
    fn a_bond_has_the_capacity_of_its_mode() {
        for (mode, receive, transmit) in [
            ("balance-rr 0", 1.375e9, 1.375e9),
            ("active-backup 1", 125e6, 125e6),
            ("balance-xor 2", 1.375e9, 1.375e9),
            ("broadcast 3", 125e6, 125e6),
            ("802.3ad 4", 1.375e9, 1.375e9),
            ("balance-tlb 5", 125e6, 1.375e9),
            ("balance-alb 6", 1.375e9, 1.375e9),
        ] {
            assert_eq!(rates(&bond(mode), "bond0"), Some((receive, transmit)), "{mode}");
        }
        assert_eq!(rates(&bond("quantum 9"), "bond0"), None);
        assert_eq!(facts_of(&bond("802.3ad 4"), "eth0").bond, "bond0");
    }

    #[test]
    fn slaves_that_are_down_or_in_another_aggregator_carry_nothing() {
        let host = bond("802.3ad 4");
        host.file("class/net/bond0/bonding/ad_aggregator", "1\n");
        assert_eq!(rates(&host, "bond0"), Some((1.25e9, 1.25e9)));
        let host = bond("balance-rr 0");
        host.file("class/net/eth0/bonding_slave/mii_status", "down\n");
        assert_eq!(rates(&host, "bond0"), Some((125e6, 125e6)));
        host.file("class/net/eth1/speed", "-1\n");
        assert_eq!(rates(&host, "bond0"), None, "one unknown slave makes the bond unknown");
    }

    #[test]
    fn representors_of_an_embedded_switch_are_told() {
        for (port, is) in [("pf0vf3", true), ("c1pf0sf8", true), ("pf0", false), ("p0", false)] {
            assert_eq!(is_port_of_function(port), is, "{port}");
        }
    }
}
