//! Which interfaces have series, and what is said of the rest.

use super::super::KIND;
use super::*;
use crate::base::fault::FaultKind;

#[test]
fn case_042_a_host_of_stacks_is_counted_once() {
    let mut rig = Rig::new(|rig| {
        for name in ["eth0", "eth1"] {
            nic(rig, name, "1000");
            rig.host.symlink(&format!("sys/class/net/{name}/master"), "../bond0");
        }
        rig.host.file("sys/class/net/bond0/bonding/slaves", "eth0 eth1\n");
        rig.host.file("sys/class/net/bond0/bonding/mode", "802.3ad 4\n");
        rig.host.symlink("sys/class/net/bond0.100/lower_bond0", "../bond0");
        rig.host.dir("sys/class/net/br0/bridge");
        rig.host.dir("sys/class/net/veth1a2b3c4");
        rig.host.dir("sys/class/net/lo");
        dev(rig, [line("eth0", 0, 0), line("eth1", 0, 0)].concat());
    });
    open(&mut rig);
    rig.tick();
    dev(&rig, case!("042-bond-vlan-bridge-double-count.input"));
    rig.tick();
    let names: Vec<_> = rig.numbers(RECEIVE_BYTES).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["eth0", "eth1", "bond0", "bond0.100"]);
    let total = rig.out.resources.last().unwrap();
    assert_eq!(&*total.device, "all links");
    assert_eq!(total.load[0].1.to_string(), "2.9 KiB/s", "3000 bytes, not 13300");
    let info = |device: &str| {
        let points = &rig.out.points;
        let point =
            points.iter().find(|p| p.desc.name == "loadline_nic_info" && &*p.labels[0] == device);
        point.unwrap().labels.iter().map(|l| l.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(info("eth0"), ["eth0", "physical", "bond0", "full"]);
    assert_eq!(info("bond0.100"), ["bond0.100", "vlan", "", ""]);
    let capacity = "loadline_nic_capacity_bytes_per_second";
    assert_eq!(rig.value_of(capacity, "bond0"), Some(250e6));
    assert_eq!(rig.value_of(capacity, "bond0.100"), Some(250e6));
}

#[test]
fn case_050_a_flood_of_pods_has_no_series() {
    let mut rig = Rig::new(|rig| {
        nic(rig, "eth0", "1000");
        dev(rig, case!("050-veth-flood-cardinality.input"));
    });
    open(&mut rig);
    rig.tick();
    assert_eq!(rig.numbers(RECEIVE_BYTES).len(), 1);
    assert_eq!(rig.out.dropped_devices, 0, "only the cap drops");
}

#[test]
fn patterns_come_after_the_class_and_include_wins() {
    let mut rig = Rig::new(|rig| {
        nic(rig, "eth0", "1000");
        nic(rig, "eth1", "1000");
        rig.host.dir("sys/class/net/wg0");
        let lines = ["eth0", "eth1", "wg0", "lo"].map(|name| line(name, 1, 1));
        dev(rig, lines.concat());
    });
    rig.settings.link_filter.exclude = vec!["eth*".into()];
    rig.settings.link_filter.include = vec!["eth1".into(), "wg?".into()];
    open(&mut rig);
    rig.tick();
    let names: Vec<_> = rig.numbers(RECEIVE_BYTES).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["eth1", "wg0"]);
}

#[test]
fn what_the_cap_leaves_out_is_counted_and_what_has_series_keeps_them() {
    let mut rig = Rig::new(|rig| {
        for name in ["eth0", "eth1", "eth2"] {
            nic(rig, name, "1000");
        }
        dev(rig, ["eth1", "eth2"].map(|name| line(name, 1, 1)).concat());
    });
    rig.settings.devices_max = 2;
    open(&mut rig);
    rig.tick();
    assert_eq!(rig.out.dropped_devices, 0);
    dev(&rig, ["eth0", "eth1", "eth2"].map(|name| line(name, 1, 1)).concat());
    rig.tick();
    assert_eq!(rig.out.dropped_devices, 1);
    let names: Vec<_> = rig.numbers(RECEIVE_BYTES).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["eth1", "eth2"]);
}

#[test]
fn representors_are_left_out_once_they_are_told() {
    let mut rig = with("1000");
    nic(&rig, "eth0_3", "1000");
    rig.host.file("sys/class/net/eth0_3/phys_port_name", "pf0vf3\n");
    dev(&rig, [line("eth0", 1, 1), line("eth0_3", 1, 1)].concat());
    rig.tick();
    rig.tick();
    let names: Vec<_> = rig.numbers(RECEIVE_BYTES).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["eth0"]);
}

#[test]
fn a_hidden_network_is_a_fault() {
    let mut rig = Rig::new(|_| ());
    open(&mut rig);
    assert_eq!(rig.try_tick().unwrap_err().kind, FaultKind::Missing);
    assert!(rig.out.points.is_empty());
}

#[test]
fn case_048_a_foreign_procfs_without_its_first_process_says_whose_network_is_shown() {
    let mut rig = Rig::new(|rig| {
        rig.host.file("proc/net/dev", line("eth0", 5, 5));
    });
    open(&mut rig);
    rig.tick();
    assert_eq!(rig.value(RECEIVE_BYTES), Some(5.0), "no sysfs either: names decide");
    assert!(rig.out.notes[0].contains("network of this container"), "{:?}", rig.out.notes);
}

#[test]
fn every_point_is_of_a_described_family() {
    let mut rig = with("1000");
    dev(&rig, line("eth0", 2000, 1000));
    rig.tick();
    assert!(!rig.out.points.is_empty());
    for point in &rig.out.points {
        assert!(KIND.descs.iter().any(|d| std::ptr::eq(*d, point.desc)), "{}", point.desc.name);
    }
    let names: std::collections::BTreeSet<_> = KIND.descs.iter().map(|d| d.name).collect();
    assert_eq!(names.len(), KIND.descs.len());
}

#[test]
fn a_network_of_cables_to_elsewhere_says_how_to_watch_one() {
    let mut rig = Rig::new(|rig| {
        rig.host.dir("sys/class/net/eth0");
        dev(rig, line("eth0", 5, 5));
    });
    open(&mut rig);
    rig.tick();
    assert!(rig.out.points.is_empty());
    assert!(rig.out.notes[0].contains("links.NAME.rate"), "{:?}", rig.out.notes);
}

#[test]
fn this_host_is_read() {
    let roots = crate::host::roots::Roots::default();
    let mut rig = Rig::new(|_| ());
    rig.drive(Box::new(LinkSampler::new(&roots, &rig.settings, Duration::from_secs(60))));
    rig.tick();
    rig.tick();
    let watched = rig.numbers(RECEIVE_BYTES).len();
    let known = rig.numbers("loadline_nic_capacity_known").len();
    assert_eq!(watched, known, "the facts of each have been read");
    assert!(watched == 0 || rig.numbers(RECEIVE_RATE).len() == watched);
}
