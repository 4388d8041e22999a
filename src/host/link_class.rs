//! What an interface is, and what it stands on, as /sys/class/net shows it without a lock.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::roots::{attribute, resolved};

/// What an interface is. Names decide nothing where sysfs can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkClass {
    /// It has a device of its own: PCI, USB, virtio.
    Physical,
    Bond,
    Team,
    Vlan,
    Bridge,
    Loopback,
    /// veth, tun, dummy, tunnels, and all that isn't told apart.
    Virtual,
    /// There is no /sys/class/net to ask, and the name isn't one of a known virtual kind.
    Unknown,
}

impl LinkClass {
    pub fn label(self) -> &'static str {
        match self {
            LinkClass::Physical => "physical",
            LinkClass::Bond => "bond",
            LinkClass::Team => "team",
            LinkClass::Vlan => "vlan",
            LinkClass::Bridge => "bridge",
            LinkClass::Loopback => "loopback",
            LinkClass::Virtual => "virtual",
            LinkClass::Unknown => "unknown",
        }
    }
}

/// VLAN on bond on physical is three; more is a loop or a jest.
pub const STACK_MAX: u32 = 4;
/// Names that container and virtual machine managers give to one end of a cable.
const VIRTUAL_PREFIXES: [&str; 16] = [
    "veth",
    "cali",
    "lxc",
    "cni",
    "docker",
    "br-",
    "tap",
    "tun",
    "vnet",
    "fwbr",
    "fwpr",
    "fwln",
    "flannel",
    "genev_sys",
    "cilium_",
    "virbr",
];

/// Class of `name` under `net`, a /sys/class/net. Takes no lock of the kernel's network layer:
/// only links and directories are looked at.
pub fn class(net: &Path, name: &OsStr) -> LinkClass {
    let own = net.join(name);
    if name == "lo" {
        return LinkClass::Loopback;
    }
    if !own.exists() {
        return if net.exists() { LinkClass::Virtual } else { class_by_name(name) };
    }
    // Some virtual drivers give themselves a `device`; their place says what they are.
    let virtual_place = resolved(&own).is_some_and(|p| in_virtual_place(&p));
    if own.join("device").exists() && !virtual_place {
        return LinkClass::Physical;
    }
    if own.join("bonding").exists() {
        return LinkClass::Bond;
    }
    if own.join("bridge").exists() {
        return LinkClass::Bridge;
    }
    match device_type(&own).as_deref() {
        Some("vlan") => LinkClass::Vlan,
        Some(_) => LinkClass::Virtual,
        None => class_by_lowers(net, name),
    }
}

fn in_virtual_place(path: &Path) -> bool {
    path.to_string_lossy().contains("/devices/virtual/net/")
}

fn class_by_name(name: &OsStr) -> LinkClass {
    let bytes = name.as_bytes();
    if VIRTUAL_PREFIXES.iter().any(|p| bytes.starts_with(p.as_bytes())) {
        LinkClass::Virtual
    } else {
        LinkClass::Unknown
    }
}

/// A team is the master of what it stands on; a VLAN isn't. Neither always says so in uevent.
fn class_by_lowers(net: &Path, name: &OsStr) -> LinkClass {
    let lowers = lowers(&net.join(name));
    let mastered = lowers.iter().filter(|l| master(&net.join(l)).as_deref() == Some(name)).count();
    match lowers.len() {
        0 => LinkClass::Virtual,
        n if n == mastered && name != "ovs-system" => LinkClass::Team,
        1 if mastered == 0 => LinkClass::Vlan,
        _ => LinkClass::Virtual,
    }
}

/// True when `name` is a line to the outside, or stands on one: what is watched by default.
pub fn is_line(net: &Path, name: &OsStr) -> bool {
    let mut name = name.to_owned();
    for _ in 0..STACK_MAX {
        match class(net, &name) {
            LinkClass::Physical => return !is_twin(net, &name),
            LinkClass::Bond | LinkClass::Team | LinkClass::Unknown => return true,
            LinkClass::Vlan => match lowers(&net.join(&name)).into_iter().next() {
                Some(lower) => name = lower,
                None => return false,
            },
            LinkClass::Bridge | LinkClass::Loopback | LinkClass::Virtual => return false,
        }
    }
    false
}

/// A virtual function under its synthetic device (Azure's netvsc): the master counts its traffic.
fn is_twin(net: &Path, name: &OsStr) -> bool {
    master(&net.join(name)).is_some_and(|m| class(net, &m) == LinkClass::Physical)
}

fn device_type(own: &Path) -> Option<String> {
    let text = attribute(&own.join("uevent"))?;
    text.lines().find_map(|l| l.strip_prefix("DEVTYPE=")).map(str::to_owned)
}

/// Interfaces directly below, in the order of their names.
pub fn lowers(own: &Path) -> Vec<OsString> {
    let Ok(entries) = std::fs::read_dir(own) else { return Vec::new() };
    let mut names: Vec<_> = entries
        .flatten()
        .filter_map(|e| {
            let name = e.file_name();
            let lower = name.as_bytes().strip_prefix(b"lower_")?;
            Some(OsStr::from_bytes(lower).to_owned())
        })
        .collect();
    names.sort();
    names
}

pub(super) fn master(own: &Path) -> Option<OsString> {
    Some(own.join("master").read_link().ok()?.file_name()?.to_owned())
}

/// What enslaves an interface. Only a bond has slaves with a bonding state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasterKind {
    Bond,
    Bridge,
    Vrf,
    OpenVswitch,
    Other,
}

/// The master of `name` and its kind.
pub fn master_of(net: &Path, name: &OsStr) -> Option<(OsString, MasterKind)> {
    let master = master(&net.join(name))?;
    let own = net.join(&master);
    let kind = if own.join("bonding").exists() {
        MasterKind::Bond
    } else if own.join("bridge").exists() {
        MasterKind::Bridge
    } else if device_type(&own).as_deref() == Some("vrf") {
        MasterKind::Vrf
    } else if master == "ovs-system" {
        MasterKind::OpenVswitch
    } else {
        MasterKind::Other
    };
    Some((master, kind))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Host;
    use super::*;

    fn class_of(host: &Host, name: &str) -> LinkClass {
        class(&host.at("class/net"), name.as_ref())
    }

    fn line(host: &Host, name: &str) -> bool {
        is_line(&host.at("class/net"), name.as_ref())
    }

    /// The stack of case 042: two NICs, a bond, a VLAN on it, a bridge, a pod's cable.
    fn stack() -> Host {
        let host = Host::new();
        for nic in ["eth0", "eth1"] {
            host.dir(&format!("class/net/{nic}/device"));
            host.symlink(&format!("class/net/{nic}/master"), "../bond0");
        }
        host.file("class/net/bond0/bonding/slaves", "eth0 eth1\n");
        host.symlink("class/net/bond0/lower_eth0", "../eth0");
        host.symlink("class/net/bond0/lower_eth1", "../eth1");
        host.symlink("class/net/bond0.100/lower_bond0", "../bond0");
        host.symlink("class/net/bond0.100/master", "../br0");
        host.dir("class/net/br0/bridge");
        host.file("class/net/veth1a2b3c4/iflink", "41\n");
        host.dir("class/net/lo");
        host
    }

    #[test]
    fn case_042_classes_come_from_what_the_interface_is() {
        let host = stack();
        for (name, class, watched) in [
            ("eth0", LinkClass::Physical, true),
            ("eth1", LinkClass::Physical, true),
            ("bond0", LinkClass::Bond, true),
            ("bond0.100", LinkClass::Vlan, true),
            ("br0", LinkClass::Bridge, false),
            ("veth1a2b3c4", LinkClass::Virtual, false),
            ("lo", LinkClass::Loopback, false),
            ("eth0:1", LinkClass::Virtual, false),
        ] {
            assert_eq!((class_of(&host, name), line(&host, name)), (class, watched), "{name}");
        }
    }

    #[test]
    fn a_team_is_the_master_of_its_ports_and_a_vlan_is_not() {
        let host = Host::new();
        host.dir("class/net/eth0/device");
        host.symlink("class/net/eth0/master", "../team0");
        host.symlink("class/net/team0/lower_eth0", "../eth0");
        host.symlink("class/net/ovs-system/lower_eth0", "../eth0");
        host.file("class/net/vx0/uevent", "DEVTYPE=vxlan\nINTERFACE=vx0\n");
        host.symlink("class/net/vx0/lower_eth0", "../eth0");
        host.file("class/net/eth0.7/uevent", "DEVTYPE=vlan\n");
        host.symlink("class/net/eth0.7/lower_eth0", "../eth0");
        assert_eq!(class_of(&host, "team0"), LinkClass::Team);
        assert_eq!(class_of(&host, "eth0.7"), LinkClass::Vlan);
        assert_eq!(class_of(&host, "vx0"), LinkClass::Virtual);
        assert!(line(&host, "team0") && line(&host, "eth0.7") && !line(&host, "vx0"));
    }

    #[test]
    fn a_vlan_that_stands_on_itself_ends() {
        let host = Host::new();
        host.symlink("class/net/a/lower_b", "../b");
        host.symlink("class/net/b/lower_a", "../a");
        assert!(!line(&host, "a"));
    }

    #[test]
    fn a_virtual_function_below_its_synthetic_device_is_not_counted_twice() {
        let host = Host::new();
        host.dir("class/net/eth0/device");
        host.dir("class/net/enP1/device");
        host.symlink("class/net/enP1/master", "../eth0");
        assert!(line(&host, "eth0") && !line(&host, "enP1"));
    }

    #[test]
    fn a_device_in_the_virtual_place_is_no_line() {
        let host = Host::new();
        host.dir("devices/virtual/net/sim0/device");
        host.symlink("class/net/sim0", "../../devices/virtual/net/sim0");
        assert!(!line(&host, "sim0"));
    }

    #[test]
    fn without_sysfs_only_the_usual_virtual_names_are_left_out() {
        let host = Host::new();
        assert!(line(&host, "eth0") && line(&host, "bond0"));
        assert!(!line(&host, "calib6589fc6ab0") && !line(&host, "lo") && !line(&host, "veth0"));
    }

    #[test]
    fn case_053_only_a_bond_makes_bond_slaves() {
        let host = Host::new();
        for (nic, master) in
            [("eth0", "bond0"), ("eth1", "ovs-system"), ("eth2", "vrf-blue"), ("eth3", "br0")]
        {
            host.symlink(&format!("class/net/{nic}/master"), format!("../{master}"));
        }
        host.file("class/net/bond0/bonding/slaves", "eth0\n");
        host.dir("class/net/ovs-system");
        host.file("class/net/vrf-blue/uevent", "DEVTYPE=vrf\n");
        host.dir("class/net/br0/bridge");
        let of = |nic: &str| master_of(&host.at("class/net"), nic.as_ref()).unwrap();
        assert_eq!(of("eth0"), ("bond0".into(), MasterKind::Bond));
        assert_eq!(of("eth1"), ("ovs-system".into(), MasterKind::OpenVswitch));
        assert_eq!(of("eth2"), ("vrf-blue".into(), MasterKind::Vrf));
        assert_eq!(of("eth3"), ("br0".into(), MasterKind::Bridge));
    }
}
