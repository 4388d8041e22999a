//! Every parser of a kernel file against arbitrary bytes, and against real files that were spoilt: it
//! answers, with no more than the input holds, and makes no number of a half.

use std::ffi::OsStr;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use super::block::{Facts, identity};
use super::disks::{self, Diskstats};
use super::fixture::{Host, spoilt};
use super::link_class::{class, is_line, master_of};
use super::link_facts::{Declared, facts};
use super::mountinfo::Mounts;
use super::tcp::Table;
use super::topology::{resolve, under_device};
use super::{cgroup, cpu, links, power, pressure, softnet};

macro_rules! real {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/fixtures/", $name)).as_slice()
    };
}

const DISKSTATS: &[u8] = real!("cases/022-multipath-240-paths.input-diskstats");
const NET_DEV: &[u8] = real!("cases/050-veth-flood-cardinality.input");
const SNMP: &[u8] = real!("cases/056-snmp-icmpmsg-absent.input");
const SNMP6: &[u8] = real!("cases/064-snmp6-and-counter-drop.input");
const STAT: &[u8] = real!("cases/085-stat-offline-cpus-gap.input");
const MOUNTINFO: &[u8] = real!("cases/081-mountinfo-rhcos-container.input");
const PRESSURE: &[u8] = real!("cases/068-psi-unknown-line-and-order.input");
const SOFTNET: &[u8] = real!("node/proc/net/softnet_stat");
const CPU_STAT: &[u8] = b"usage_usec 9\nnr_throttled 3\nthrottled_usec 1500000\n";
const ALL: [&[u8]; 9] =
    [DISKSTATS, NET_DEV, SNMP, SNMP6, STAT, MOUNTINFO, PRESSURE, SOFTNET, CPU_STAT];

/// Any of the files, spoilt, or bytes that never were one.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::sample::select(ALL.to_vec()).prop_flat_map(spoilt),
        1 => prop::collection::vec(any::<u8>(), 0..2000),
    ]
}

/// What a driver or a joker may put into an attribute.
fn attribute() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[0-9]{1,22}\n?".prop_map(String::into_bytes),
        "-?[a-z0-9 :.\\[\\]/]{0,30}\n?".prop_map(String::into_bytes),
        Just(b"/var/self.img\n".to_vec()),
        Just(b"eth0 eth1 bond0 gone\n".to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_parser_gives_more_than_its_input_holds(text in anything()) {
        let lines = text.split(|b| *b == b'\n').count();
        let mut rows = Diskstats::new(&text);
        prop_assert!(rows.by_ref().count() <= lines);
        prop_assert!(rows.rejected() <= 2 * lines as u64);
        prop_assert!(links::parse(&text).lines.len() <= lines);
        for line in links::parse(&text).lines {
            prop_assert!(links::text_of(line.name).len() <= 4 * line.name.len());
        }
        for table in [Table::parse(&text), Table::parse_names(&text)] {
            prop_assert!(table.rejected as usize <= text.len());
        }
        prop_assert!(cpu::parse(&text).map_or(0, |stat| stat.each.len()) <= lines);
        prop_assert!(softnet::parse(&text).0.len() <= lines);
        prop_assert!(Mounts::parse(&text).mounts.len() <= lines);
        prop_assert!(cgroup::throttled(&text).is_none_or(|s| s.0.is_finite() && s.0 >= 0.0));
        let _ = (disks::stat(&text), pressure::parse(&text));
    }

    #[test]
    fn a_file_that_is_cut_off_says_nothing_that_the_whole_one_does_not(at in any::<Index>()) {
        let cut = |text: &'static [u8]| &text[..at.index(text.len() + 1)];
        let whole: Vec<_> = Diskstats::new(DISKSTATS).collect();
        prop_assert!(Diskstats::new(cut(DISKSTATS)).all(|row| whole.contains(&row)));
        let whole = links::parse(NET_DEV);
        prop_assert!(links::parse(cut(NET_DEV)).lines.iter().all(|l| whole.lines.contains(l)));
        let whole = Table::parse(SNMP);
        for (section, column) in [("Tcp", "RetransSegs"), ("Tcp", "OutSegs"), ("Udp", "InErrors")] {
            let (part, all) = (Table::parse(cut(SNMP)), whole.get(section, column));
            prop_assert!(part.get(section, column).is_none_or(|value| Some(value) == all));
        }
        let part = Table::parse_names(cut(SNMP6)).get("Ip6", "InReceives");
        prop_assert!(part.is_none_or(|value| value == 1012));
        let whole = cpu::parse(STAT).unwrap();
        let part = cpu::parse(cut(STAT)).unwrap_or_default();
        prop_assert!(part.each.iter().all(|one| whole.each.contains(one)));
        let whole = softnet::parse(SOFTNET).0;
        prop_assert!(softnet::parse(cut(SOFTNET)).0.iter().all(|one| whole.contains(one)));
        let (part, whole) = (pressure::parse(cut(PRESSURE)), pressure::parse(PRESSURE));
        prop_assert!(part.waiting_us.is_none() || part.waiting_us == whole.waiting_us);
        let whole = Mounts::parse(MOUNTINFO).mounts;
        prop_assert!(Mounts::parse(cut(MOUNTINFO)).mounts.iter().all(|one| whole.contains(one)));
        let part = cgroup::throttled(cut(CPU_STAT));
        prop_assert!(part.is_none_or(|seconds| seconds.0 == 1.5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_stack_of_any_attributes_has_an_end(
        content in prop::collection::vec(attribute(), 14),
        mountinfo in spoilt(b"20 1 7:0 / / rw - ext4 /dev/loop0 rw\n\
            21 20 0:9 / /var rw - overlay o rw,upperdir=/var/up\n"),
    ) {
        let host = Host::new();
        let names = [
            "size", "queue/rotational", "queue/scheduler", "queue/nr_requests", "queue/iostats",
            "queue/logical_block_size", "device/model", "device/vpd_pgb1", "dm/uuid", "dm/name",
            "loop/backing_file", "stat", "wwid", "device/transport",
        ];
        let mut attributes: Vec<(&str, &[u8])> =
            names.iter().zip(&content).map(|(name, text)| (*name, text.as_slice())).collect();
        host.file("proc/self/mountinfo", &mountinfo);
        for name in ["nvme0n1", "sda"] {
            host.device(&format!("pci0/{name}"), &attributes);
        }
        attributes.extend([("dev", b"7:0".as_slice()), ("slaves/sda/", b""), ("slaves/loop0/", b"")]);
        host.device("virtual/block/loop0", &attributes);
        let (roots, mounts) = (host.roots(), Mounts::parse(&mountinfo));
        for name in ["nvme0n1", "sda", "loop0", "gone"] {
            let facts = Facts::read(&roots, name);
            let rpm = facts.and_then(|facts| facts.rpm);
            prop_assert!(rpm.is_none_or(|rpm| (0x401..u16::MAX).contains(&rpm)));
            prop_assert!(under_device(&roots, name).devices.len() <= 3);
        }
        let _ = identity(Path::new("/nonexistent"));
        let found = resolve(&roots, Path::new("/var/lib"), None);
        prop_assert!(found.is_ok() || !mounts.mounts.iter().any(|m| m.point == Path::new("/")));
    }

    #[test]
    fn links_of_any_attributes_have_a_rate_that_can_be_or_none(
        content in prop::collection::vec(attribute(), 10),
    ) {
        let host = Host::new();
        let names = [
            "speed", "duplex", "operstate", "carrier", "flags", "uevent", "phys_port_name",
            "bonding/mode", "bonding/slaves", "bonding/active_slave",
        ];
        for (name, text) in names.iter().zip(&content) {
            host.file(&format!("class/net/eth0/{name}"), text);
            host.file(&format!("class/net/bond0/{name}"), text);
        }
        host.symlink("class/net/bond0/lower_eth0", "../eth0");
        host.symlink("class/net/eth0/lower_bond0", "../bond0");
        host.symlink("class/net/eth0/master", "../bond0");
        host.dir("class/net/eth1/device");
        host.file("class/net/eth1/speed", &content[0]);
        let net = host.at("class/net");
        for name in ["eth0", "eth1", "bond0", "gone"].map(OsStr::new) {
            let rate = facts(&net, name, &Declared::new()).capacity;
            // Each of at most 10 Tbit/s, and a bond may name one four times.
            prop_assert!(rate.is_none_or(|c| c.receive.0 > 0.0 && c.transmit.0 <= 4.0 * 1.25e12));
            let _ = (class(&net, name), is_line(&net, name), master_of(&net, name));
        }
    }

    #[test]
    fn a_host_of_any_attributes_has_a_battery_or_not(content in prop::collection::vec(attribute(), 4)) {
        let host = Host::new();
        for (name, text) in ["type", "online", "scope"].iter().zip(&content) {
            host.file(&format!("sys/class/power_supply/AC/{name}"), text);
        }
        host.file("proc/self/cgroup", &content[3]);
        host.file("sys/fs/cgroup/cpu.stat", &content[0]);
        prop_assert!(!power::on_battery(&host.roots()), "there is no battery");
        let _ = cgroup::CpuGroups::of_own(&host.roots()).throttled();
    }
}
