use super::*;
use crate::host::fixture::Host;

const ATA: &str = "pci0/ata1/host0/target0:0:0/0:0:0:0/block";

/// Two disks: sda with a partition of number 8:2, sdb whole as 8:16.
fn host(mountinfo: impl AsRef<[u8]>) -> Host {
    let host = Host::new();
    host.file("proc/self/mountinfo", mountinfo)
        .device(&format!("{ATA}/sda"), &[("dev", b"8:0"), ("queue/rotational", b"1")])
        .device(&format!("{ATA}/sda/sda2"), &[("dev", b"8:2"), ("partition", b"2")])
        .device("pci0/ata2/block/sdb", &[("dev", b"8:16"), ("queue/rotational", b"0")]);
    host
}

fn under(host: &Host, path: &str) -> Resolved {
    resolve(&host.roots(), Path::new(path), None).unwrap()
}

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.name.as_str()).collect()
}

fn stack(host: &Host, name: &str, attributes: &[(&str, &[u8])]) {
    host.device(&format!("virtual/block/{name}"), attributes);
}

#[test]
fn a_partition_leads_to_its_disk() {
    let host = host("20 1 8:2 / / rw - ext4 /dev/root ro\n");
    let found = under(&host, "/srv");
    assert_eq!(names(&found.devices), ["sda"]);
    assert_eq!((found.backing, found.read_only), (Backing::Local, true));
    assert_eq!(found.devices[0].rotational, Some(true));
    assert!(found.devices[0].stat.ends_with("block/sda/stat"));
}

#[test]
fn lvm_over_md_over_parts_leads_to_all_disks_once() {
    let host = host("20 1 253:0 / / rw - xfs /dev/mapper/vg-root rw\n");
    stack(&host, "dm-0", &[("dev", b"253:0"), ("dm/uuid", b"LVM-x"), ("slaves/md0/", b"")]);
    stack(&host, "md0", &[("md/level", b"raid1"), ("slaves/sda2/", b""), ("slaves/sdb/", b"")]);
    let found = under(&host, "/var");
    assert_eq!(names(&found.devices), ["sda", "sdb"]);
    assert_eq!(names(&found.top), ["dm-0"]);
    assert!(!found.copy_on_write);
}

#[test]
fn a_thin_volume_keeps_what_is_overwritten() {
    let host = host("20 1 253:9 / / rw - xfs /dev/mapper/vg-thin rw\n");
    stack(&host, "dm-9", &[("dev", b"253:9"), ("dm/uuid", b"LVM-y"), ("slaves/dm-8/", b"")]);
    stack(&host, "dm-8", &[("dm/uuid", b"LVM-z-tpool"), ("slaves/sdb/", b"")]);
    assert!(under(&host, "/").copy_on_write);
}

#[test]
fn a_multipath_map_is_one_leaf_and_tells_of_its_network() {
    let host = host("20 1 253:0 / / rw - xfs /dev/mapper/mpatha rw\n");
    stack(
        &host,
        "dm-0",
        &[("dev", b"253:0"), ("dm/uuid", b"mpath-36"), ("slaves/sdc/", b""), ("slaves/sdd/", b"")],
    );
    host.device("platform/host3/session1/target3:0:0/block/sdc", &[("holders/dm-0/", b"")]);
    host.device("platform/host4/session2/target4:0:0/block/sdd", &[("holders/dm-0/", b"")]);
    let found = under(&host, "/srv");
    assert_eq!((names(&found.devices), found.backing), (vec!["dm-0"], Backing::Network));
    assert_eq!(host.facts("sdc").class, Class::Path);
}

#[test]
fn an_nvme_head_that_counts_nothing_gives_way_to_its_paths() {
    let host = host("20 1 259:1 / / rw - xfs /dev/nvme0n1 rw\n");
    let (idle, used) = (b"0 0 0 0 0 0 0 0 0 0 0".as_slice(), b"9 0 72 1 0 0 0 0 0 1 1");
    let head = "virtual/nvme-subsystem/nvme-subsys0/nvme0n1";
    host.device(head, &[("dev", b"259:1"), ("stat", idle)]);
    host.device("pci0/nvme/nvme0/nvme0c0n1", &[("stat", used)]);
    host.device("pci1/nvme/nvme1/nvme0c1n1", &[("stat", idle)]);
    assert_eq!(names(&under(&host, "/").devices), ["nvme0c0n1"]);
    host.file(&format!("sys/devices/{head}/stat"), used);
    assert_eq!(names(&under(&host, "/").devices), ["nvme0n1"]);
}

#[test]
fn a_loop_leads_to_the_disk_of_its_file_and_a_circle_ends() {
    let host = host(
        "20 1 8:16 / / rw - ext4 /dev/sdb rw\n21 20 7:0 / /img rw - ext4 /dev/loop0 rw\n\
         22 20 7:1 / /self rw - ext4 /dev/loop1 rw\n",
    );
    stack(&host, "loop0", &[("dev", b"7:0"), ("loop/backing_file", b"/var/disk.img\n")]);
    stack(&host, "loop1", &[("dev", b"7:1"), ("loop/backing_file", b"/self/disk.img\n")]);
    assert_eq!(names(&under(&host, "/img/x").devices), ["sdb"]);
    let circle = under(&host, "/self");
    assert_eq!((circle.devices.len(), circle.backing), (0, Backing::Unknown));
}

#[test]
fn btrfs_has_all_its_devices_and_no_other_ones() {
    let host = host("20 1 0:30 /@ / rw - btrfs /dev/mapper/luks rw\n");
    stack(&host, "dm-3", &[("dm/name", b"luks\n"), ("slaves/sda2/", b"")]);
    host.file("sys/fs/btrfs/features/x", "").file("sys/fs/btrfs/other/devices/sdz", "");
    host.file("sys/fs/btrfs/uuid/devices/dm-3", "").file("sys/fs/btrfs/uuid/devices/sdb", "");
    let found = resolve(&host.roots(), Path::new("/home"), Some(77)).unwrap();
    assert_eq!(names(&found.devices), ["sda", "sdb"]);
    assert_eq!(names(&found.top), ["dm-3", "sdb"]);
    assert!(found.copy_on_write && found.backing == Backing::Local);
}

#[test]
fn an_overlay_lies_where_its_upper_directory_does() {
    let host = host(
        "20 1 8:16 / / rw - ext4 /dev/sdb rw\n\
         30 20 0:50 / /merged rw - overlay overlay rw,upperdir=/var/up,workdir=/w\n",
    );
    assert_eq!(names(&under(&host, "/merged/x").devices), ["sdb"]);
    let inside = self::host("1 0 0:50 / / rw - overlay overlay rw,upperdir=/var/up\n");
    assert_eq!(under(&inside, "/").backing, Backing::Unknown, "the host's path, not ours");
}

#[test]
fn network_and_memory_file_systems_have_no_disk() {
    for (filesystem, backing) in [
        ("nfs4", Backing::Network),
        ("fuse.glusterfs", Backing::Network),
        ("ceph", Backing::Network),
        ("tmpfs", Backing::Memory),
        ("zfs", Backing::Unknown),
        ("fuse.unheard-of", Backing::Unknown),
    ] {
        let host = host(format!("20 1 0:40 / / rw - {filesystem} tank/x rw\n"));
        let found = under(&host, "/srv");
        assert_eq!((found.backing, found.devices), (backing, vec![]), "{filesystem}");
        assert_eq!(found.copy_on_write, filesystem == "zfs");
    }
}

#[test]
fn case_081_mount_points_are_shown_without_the_prefix_of_the_root() {
    let case = include_bytes!("../../../tests/fixtures/cases/081-mountinfo-rhcos-container.input");
    let host = host(case);
    let roots = Roots { rootfs: "/host".into(), ..host.roots() };
    let seen = |path: &str| resolve(&roots, Path::new(path), None).unwrap().mount_point;
    assert_eq!(seen("/host/var/lib/x"), "/var");
    assert_eq!(seen("/host/srv"), "/");
}

#[test]
fn a_number_that_only_a_worker_knows_beats_the_path() {
    let host = host("20 1 8:16 / / rw - ext4 /dev/sdb rw\n21 20 8:2 / /a rw - xfs x rw\n");
    let number = rustix::fs::makedev(8, 2);
    let found = resolve(&host.roots(), Path::new("/link"), Some(number)).unwrap();
    assert_eq!((&*found.mount_point, names(&found.devices)), ("/a", vec!["sda"]));
    assert_eq!(names(&under_node(&host.roots(), number).devices), ["sda"]);
}
