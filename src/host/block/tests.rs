//! Devices as their drivers show them in sysfs.

use super::*;
use crate::host::fixture::Host;

#[test]
fn case_030_odd_attributes_of_a_virtio_disk() {
    let host = Host::new();
    host.device(
        "pci0000:00/0000:00:02.0/virtio1/block/vda",
        &[
            ("queue/scheduler", b"none [mq-deadline] kyber bfq \n"),
            ("queue/rotational", b"1\n"),
            ("queue/logical_block_size", b"512\n"),
            ("size", b"536870912\n"),
        ],
    );
    let facts = host.facts("vda");
    assert_eq!((facts.class, facts.transport), (Class::Disk, "virtio"));
    assert_eq!(facts.scheduler.as_deref(), Some("mq-deadline"));
    assert_eq!((facts.rotational_claim, facts.rotational()), (Some(true), None));
    assert_eq!((facts.nr_requests, facts.backing), (None, Backing::Local));
    assert_eq!(facts.size, Some(Bytes(256 << 30)));
}

#[test]
fn a_disk_that_tells_its_rotation_rate_is_believed() {
    let host = Host::new();
    let ata = "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block";
    host.device(
        &format!("{ata}/sda"),
        &[("device/vpd_pgb1", &[0, 0xb1, 0, 0x3c, 0x1c, 0x20, 0, 0]), ("queue/rotational", b"0")],
    );
    host.device(
        &format!("{ata}/sdb"),
        &[("device/vpd_pgb1", &[0, 0xb1, 0, 0x3c, 0, 1, 0, 0]), ("queue/rotational", b"1")],
    );
    let (sda, sdb) = (host.facts("sda"), host.facts("sdb"));
    assert_eq!((sda.transport, sda.rpm, sda.rotational()), ("ata", Some(7200), Some(true)));
    assert_eq!((sdb.rpm, sdb.rotational()), (None, Some(false)));
}

#[test]
fn case_028_a_disk_keeps_its_identity_under_another_name() {
    let case = include_str!("../../../tests/fixtures/cases/028-nvme-renumbered-at-reboot.input");
    let boots = case.split("# after").map(|boot| {
        let host = Host::new();
        for line in boot.lines().filter(|line| line.contains('=')) {
            let mut words = line.split(' ');
            let place = format!("pci0/nvme/nvme1/{}", words.next().unwrap());
            let facts: Vec<_> = words.filter_map(|word| word.split_once('=')).collect();
            let facts: Vec<_> = facts.iter().map(|(name, v)| (*name, v.as_bytes())).collect();
            host.device(&place, &facts);
        }
        ["nvme1n1", "nvme2n1"].map(|name| (host.facts(name).identity, host.facts(name).size))
    });
    let boots: Vec<_> = boots.collect();
    assert_eq!(boots[0][0], boots[1][1]);
    assert_eq!(boots[0][1], boots[1][0]);
    let uuid = "uuid.11111111-1111-1111-1111-111111111111";
    assert_eq!(boots[0][0].0.as_deref(), Some(uuid));
}

#[test]
fn an_identity_is_looked_for_where_each_driver_puts_it() {
    let host = Host::new();
    for (name, attribute, content) in [
        ("sdx", "device/wwid", "naa.5000c500a1b2c3d4\n"),
        ("vdx", "serial", "vol-0a1b\n"),
        ("dm-9", "dm/uuid", "LVM-abc\n"),
        ("nvme9n1", "device/serial", "S4EVNX0N       \n"),
    ] {
        host.device(&format!("pci0/{name}"), &[(attribute, content.as_bytes())]);
        assert_eq!(host.facts(name).identity.as_deref(), Some(content.trim()), "{name}");
    }
    host.device("virtual/block/loop7", &[("serial", b"\n")]);
    assert_eq!(host.facts("loop7").identity, None);
}

#[test]
fn a_path_of_an_nvme_head_that_counts_is_no_disk_of_its_own() {
    let host = Host::new();
    let (idle, used) = (b"0 0 0 0 0 0 0 0 0 0 0".as_slice(), b"9 0 72 1 0 0 0 0 0 1 1");
    host.device("virtual/nvme-subsystem/s0/nvme0n1", &[("stat", idle)]);
    host.device("pci0/nvme/nvme0/nvme0c0n1", &[("stat", used)]);
    assert_eq!(host.facts("nvme0c0n1").class, Class::Disk);
    host.file("sys/devices/virtual/nvme-subsystem/s0/nvme0n1/stat", used);
    assert_eq!(host.facts("nvme0c0n1").class, Class::Path);
    assert_eq!(host.facts("nvme0n1").class, Class::Disk);
}

#[test]
fn case_088_a_device_that_cannot_be_asked_is_refused_by_name() {
    let host = Host::new();
    host.device("pci0/sda", &[("size", b"8\n")]);
    assert_eq!(refusal(&host.roots(), "sda"), None);
    host.remove("sys/devices/pci0/sda/size");
    assert_eq!(refusal(&host.roots(), "sda"), None, "absent is an answer");
    host.symlink("sys/devices/pci0/sda/size", "size");
    assert!(refusal(&host.roots(), "sda").unwrap().text.contains("sda/size: "));
}

#[test]
fn case_024_a_partition_is_found_by_class_and_known_by_its_attribute() {
    let host = Host::new();
    host.device("virtual/block/zd0", &[]);
    host.device("virtual/block/zd0/zd0p10", &[("partition", b"10\n")]);
    assert_eq!(host.facts("zd0p10").class, Class::Partition);
    assert_eq!((host.facts("zd0").class, host.facts("zd0").transport), (Class::Disk, "zfs"));
    assert_eq!(Facts::read(&host.roots(), "gone"), None);
}

#[test]
fn case_029_without_sysfs_only_clear_names_are_parts() {
    let kept = ["sda", "sdaa", "dm-1", "md-x", "admsd", "xvda1", "nvme10n1", "mmcblk0"];
    let parts = ["sda1", "sdz9", "sdaa1", "sdiv15", "vdaa3", "nvme10n1p2", "mmcblk0p1"];
    let is_part = |name: &&str| Facts::guessed(name).class == Class::Partition;
    assert!(!kept.iter().any(is_part) && parts.iter().all(is_part));
    assert_eq!(Facts::guessed("loop120").class, Class::Loop);
    assert_eq!(Facts::guessed("ram0").class, Class::Ram);
}

#[test]
fn disks_are_told_apart_by_what_they_say_else_by_number_and_size() {
    let told = |identity: Option<&str>| told_by(identity, Some(7), Some(Bytes(512)));
    assert_eq!(told(Some("naa.5000")), Some("naa.5000".into()));
    assert_eq!(told(None), Some("disk 7 of 512 bytes".into()));
    assert_eq!(told_by(None, None, Some(Bytes(512))), None);
    let [a, b] = ["a", "b"].map(|end| told(Some(&format!("{}\"{end}", "x".repeat(80)))).unwrap());
    assert!(a != b && a.len() <= 64 && !a.contains('"'), "{a} {b}");
}

#[test]
fn sysfs_tells_slots_and_zones_of_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let disk = dir.path();
    assert_eq!(slots(disk), None);
    file("queue/nr_requests", "256\n");
    assert_eq!(slots(disk), Some(256), "an old kernel");
    file("mq/0/nr_tags", "64\n");
    file("mq/1/nr_tags", "64\n");
    assert_eq!(slots(disk), Some(128));
    file("device/queue_depth", "32\n");
    assert_eq!(slots(disk), Some(32), "NCQ");
    assert!(!is_zoned(disk));
    file("queue/zoned", "none\n");
    assert!(!is_zoned(disk));
    file("queue/zoned", "host-aware\n");
    assert!(is_zoned(disk));
}
