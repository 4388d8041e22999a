use super::*;
use crate::base::units::Ratio;
use crate::config::settings::LinkSettings;
use crate::model::outcome::{OwnRun, OwnRuns};
use crate::sample::rig::Rig;

macro_rules! case {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/fixtures/cases/", $name)).as_slice()
    };
}

const RECEIVE_BYTES: &str = "loadline_nic_receive_bytes_total";
const RECEIVE_RATE: &str = "loadline_nic_receive_bytes_per_second";
const RECEIVE_SHARE: &str = "loadline_nic_receive_utilization_ratio";
const TRANSMIT_SHARE: &str = "loadline_nic_transmit_utilization_ratio";

/// A line of /proc/net/dev without errors and drops.
fn line(name: &str, receive_bytes: u64, transmit_bytes: u64) -> String {
    format!("{name}: {receive_bytes} 0 0 0 0 0 0 0 {transmit_bytes} 0 0 0 0 0 0 0\n")
}

fn dev(rig: &Rig, text: impl AsRef<[u8]>) {
    rig.tree.file("proc/1/net/dev", text);
}

/// A physical interface of `speed` Mbit/s.
fn nic(rig: &Rig, name: &str, speed: &str) {
    let own = format!("sys/class/net/{name}");
    rig.tree.dir(&format!("{own}/device"));
    rig.tree.file(&format!("{own}/speed"), format!("{speed}\n"));
    rig.tree.file(&format!("{own}/duplex"), "full\n");
    rig.tree.file(&format!("{own}/operstate"), "up\n");
    rig.tree.file(&format!("{own}/ifindex"), "2\n");
    rig.tree.file(&format!("{own}/carrier_changes"), "1\n");
}

/// Waits for every answer, so that a busy test machine changes nothing.
fn open(rig: &mut Rig) {
    let patience = Duration::from_secs(60);
    rig.drive(Box::new(LinkSampler::new(&rig.tree.roots(), &rig.settings, patience)));
}

fn with(speed: &str) -> Rig {
    let mut rig = Rig::new(|rig| {
        nic(rig, "eth0", speed);
        dev(rig, line("eth0", 1000, 1000));
    });
    open(&mut rig);
    rig.tick();
    rig
}

#[test]
fn each_direction_is_measured_against_the_line_by_itself() {
    // Case 045: 40 Gbit/s, 4.9e9 bytes each way in a second.
    let mut rig = with("40000");
    dev(&rig, line("eth0", 4_900_001_000, 4_900_001_000));
    rig.tick();
    assert_eq!(rig.value("loadline_nic_capacity_bytes_per_second"), Some(5e9));
    for family in [RECEIVE_SHARE, TRANSMIT_SHARE] {
        assert!((rig.value(family).unwrap() - 0.98).abs() < 1e-9, "{family}");
    }
    let headroom = rig.value("loadline_nic_receive_headroom_ratio").unwrap();
    assert!((headroom - 0.02).abs() < 1e-9);
    assert_eq!(rig.out.resources[0].facts, "40 Gbit/s");
    assert_eq!(rig.out.resources[0].load.len(), 2);
}

#[test]
fn half_duplex_directions_share_the_line() {
    let mut rig = with("100");
    rig.tree.file("sys/class/net/eth0/duplex", "half\n");
    rig.tree.file("sys/class/net/eth0/carrier_changes", "3\n");
    dev(&rig, line("eth0", 5_001_000, 5_001_000));
    rig.tick();
    assert!((rig.value(RECEIVE_SHARE).unwrap() - 0.8).abs() < 1e-9);
}

#[test]
fn an_unknown_speed_is_a_note_and_never_a_utilization() {
    for speed in ["-1", "65535", "4294967295", "0", ""] {
        let mut rig = with(speed);
        dev(&rig, line("eth0", 9_001_000, 1000));
        rig.tick();
        assert_eq!(rig.value("loadline_nic_capacity_known"), Some(0.0), "{speed}");
        assert_eq!(rig.value("loadline_nic_capacity_bytes_per_second"), None);
        assert_eq!(rig.value(RECEIVE_RATE), Some(9e6));
        for family in [RECEIVE_SHARE, "loadline_nic_receive_at_ceiling"] {
            assert_eq!(rig.value(family), None, "{family}");
        }
        let note = "eth0: speed unknown, link alert off: set `links.eth0.rate`";
        assert_eq!(rig.out.notes, [note]);
        assert_eq!(rig.out.resources[0].facts, "speed unknown");
    }
}

#[test]
fn a_declared_rate_is_the_capacity_and_watches_the_link() {
    let mut rig = Rig::new(|rig| {
        rig.tree.file("sys/class/net/tun0/speed", "10\n");
        dev(rig, line("tun0", 0, 0));
    });
    let rate = Some(Rate(1e6));
    rig.settings.links.insert("tun0".into(), LinkSettings { rate });
    open(&mut rig);
    rig.tick();
    dev(&rig, line("tun0", 500_000, 0));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_SHARE), Some(0.5));
    assert_eq!(rig.out.resources[0].facts, "8 Mbit/s (declared), virtual");
    assert!(rig.out.notes.is_empty());
}

#[test]
fn a_driver_that_shows_zero_for_a_tick_makes_no_spike() {
    let mut rig = Rig::new(|rig| {
        nic(rig, "eth0", "10000");
        dev(rig, case!("041-netdev-transient-zero.input-t0"));
    });
    open(&mut rig);
    rig.tick();
    dev(&rig, case!("041-netdev-transient-zero.input-t1"));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_BYTES), None, "an invented 0 can't be taken back");
    assert_eq!(rig.out.rejected, 1);
    dev(&rig, case!("041-netdev-transient-zero.input-t2"));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_RATE), Some(500_000.0), "10^6 bytes over two seconds");
}

#[test]
fn zeros_that_stay_are_a_reset() {
    let mut rig = with("1000");
    dev(&rig, line("eth0", 0, 0));
    for _ in 0..3 {
        rig.tick();
        assert_eq!(rig.value(RECEIVE_BYTES), None);
    }
    rig.tick();
    assert_eq!(rig.value(RECEIVE_BYTES), Some(0.0));
    dev(&rig, line("eth0", 700, 0));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_RATE), Some(700.0));
}

#[test]
fn a_link_made_anew_under_its_name_starts_anew() {
    let mut rig = Rig::new(|rig| {
        nic(rig, "eth0", "10000");
        nic(rig, "wwan0", "100");
        dev(rig, case!("040-netdev-counter-goes-back.input-t0"));
    });
    open(&mut rig);
    rig.tick();
    rig.tree.file("sys/class/net/eth0/ifindex", "17\n");
    rig.tree.remove("sys/class/net/wwan0");
    dev(&rig, case!("040-netdev-counter-goes-back.input-t1"));
    rig.tick();
    assert_eq!(rig.numbers(RECEIVE_BYTES), [("eth0".to_owned(), 1500.0)]);
    assert_eq!(rig.numbers(RECEIVE_RATE), []);
}

#[test]
fn another_interface_with_higher_counters_makes_no_window() {
    let mut rig = with("10000");
    rig.tree.file("sys/class/net/eth0/ifindex", "9\n");
    dev(&rig, line("eth0", 900_000_000, 900_000_000));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_RATE), None);
}

#[test]
fn a_counter_below_zero_costs_its_direction_only() {
    let mut rig = with("1000");
    let broken = "eth0: 18446743984687580690 0 0 0 0 0 0 0 3400 0 0 0 0 0 0 0\n";
    dev(&rig, broken);
    rig.tick();
    assert_eq!((rig.value(RECEIVE_BYTES), rig.value(RECEIVE_RATE)), (None, None));
    assert_eq!(rig.value("loadline_nic_transmit_bytes_per_second"), Some(2400.0));
    assert_eq!(rig.out.rejected, 1);
}

#[test]
fn a_glitch_far_above_the_line_is_no_window_and_no_counter() {
    let mut rig = with("1000");
    dev(&rig, line("eth0", 60_000_000_000, 1000));
    rig.tick();
    assert_eq!((rig.value(RECEIVE_BYTES), rig.value(RECEIVE_RATE)), (None, None));
    assert_eq!(rig.out.rejected, 1);
    dev(&rig, line("eth0", 3000, 1000));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_RATE), Some(1000.0), "2000 bytes over two seconds");
}

#[test]
fn a_device_that_is_always_above_its_rate_is_believed_in_the_end() {
    // An emulated NIC of "1 Gbit/s" that moves 8.
    let mut rig = with("1000");
    let mut rates = Vec::new();
    for second in 1..=6 {
        dev(&rig, line("eth0", 1000 + second * 1_000_000_000, 1000));
        rig.tick();
        rates.push(rig.value(RECEIVE_RATE));
    }
    assert_eq!(rates, [None, None, None, Some(1e9), Some(1e9), Some(1e9)]);
    assert_eq!(rig.value(RECEIVE_SHARE), Some(1.0));
}

#[test]
fn counters_that_are_renewed_every_two_seconds_stay() {
    let mut rig = with("1000");
    for second in 1..=6_u64 {
        dev(&rig, line("eth0", 1000 + second / 2 * 250_000_000, 1000));
        rig.tick();
        assert_eq!(rig.out.rejected, 0, "second {second}");
    }
}

#[test]
fn a_full_line_is_at_its_ceiling_after_eight_windows() {
    let mut rig = with("1000");
    let mut bytes = 1000;
    for window in 1..=10 {
        bytes += 120_000_000;
        dev(&rig, line("eth0", bytes, 1000));
        rig.tick();
        let on = rig.value("loadline_nic_receive_at_ceiling");
        assert_eq!(on, Some(f64::from(u8::from(window >= 8))), "window {window}");
    }
    assert_eq!(rig.value("loadline_nic_receive_at_ceiling_seconds_total"), Some(10.0));
    assert_eq!(rig.value("loadline_nic_transmit_at_ceiling_seconds_total"), Some(0.0));
    assert_eq!(rig.value("loadline_nic_receive_saturation_ratio"), Some(1.0));
    assert_eq!(rig.value("loadline_nic_transmit_at_ceiling"), Some(0.0));
    let windows = rig.histogram("loadline_nic_window_receive_utilization_ratio").unwrap();
    assert_eq!(windows.count(), 10);
    assert!(windows.cumulative().all(|(bound, _)| bound.fract() != 0.0));
    assert_eq!(rig.out.resources[0].share, Some(Ratio(0.96)));
    for _ in 0..7 {
        rig.tick();
    }
    assert_eq!(rig.value("loadline_nic_receive_at_ceiling"), Some(0.0), "3 of the last ten");
    assert_eq!(rig.value("loadline_nic_receive_at_ceiling_seconds_total"), Some(10.0));
}

#[test]
fn a_late_tick_makes_no_window_and_three_take_the_gauges_away() {
    let mut rig = with("1000");
    dev(&rig, line("eth0", 2000, 1000));
    rig.tick();
    for present in [true, true, false] {
        rig.clock.advance(Duration::from_secs(9));
        rig.tick();
        assert_eq!(rig.value(RECEIVE_RATE).is_some(), present);
        assert_eq!(rig.value(RECEIVE_SHARE).is_some(), present);
        assert_eq!(rig.value(RECEIVE_BYTES), Some(2000.0), "counters go out untouched");
    }
    rig.tick();
    assert_eq!(rig.value(RECEIVE_RATE), Some(0.0));
}

#[test]
fn an_own_run_is_no_load_of_others() {
    let mut rig = with("1000");
    let from = crate::base::clock::Clock::now(&rig.clock);
    rig.own = OwnRuns(vec![OwnRun { devices: vec!["eth0".into()], from, until: None }]);
    dev(&rig, line("eth0", 120_001_000, 1000));
    rig.tick();
    assert_eq!((rig.value(RECEIVE_RATE), rig.value(RECEIVE_SHARE)), (None, None));
    assert_eq!(rig.value(RECEIVE_BYTES), Some(120_001_000.0));
}

#[test]
fn what_the_device_missed_is_told_apart_from_what_the_host_dropped() {
    let mut rig = Rig::new(|rig| {
        nic(rig, "eth0", "1000");
        rig.tree.file("sys/class/net/eth0/statistics/rx_dropped", "7\n");
        rig.tree.file("sys/class/net/eth0/statistics/rx_missed_errors", "30\n");
        nic(rig, "eth1", "1000");
        let [eth0, eth1] = ["eth0", "eth1"]
            .map(|name| format!("{name}: 1 1 5 37 0 0 0 0 2 2 6 8 0 0 0 0\n"));
        dev(rig, eth0 + &eth1);
    });
    open(&mut rig);
    rig.tick();
    let drops = "loadline_nic_receive_drops_total";
    let missed = "loadline_nic_receive_missed_total";
    assert_eq!(rig.value_of(drops, "eth0"), Some(7.0));
    assert_eq!(rig.value_of(missed, "eth0"), Some(30.0));
    assert_eq!(rig.value_of(drops, "eth1"), Some(37.0), "the driver doesn't tell: both together");
    assert_eq!(rig.value_of(missed, "eth1"), None);
    assert_eq!(rig.value_of("loadline_nic_transmit_drops_total", "eth0"), Some(8.0));
    assert_eq!(rig.value_of("loadline_nic_receive_errors_total", "eth0"), Some(5.0));
}

#[test]
fn a_host_of_stacks_is_counted_once() {
    let mut rig = Rig::new(|rig| {
        for name in ["eth0", "eth1"] {
            nic(rig, name, "1000");
            rig.tree.link(&format!("sys/class/net/{name}/master"), "../bond0");
        }
        rig.tree.file("sys/class/net/bond0/bonding/slaves", "eth0 eth1\n");
        rig.tree.file("sys/class/net/bond0/bonding/mode", "802.3ad 4\n");
        rig.tree.link("sys/class/net/bond0.100/lower_bond0", "../bond0");
        rig.tree.dir("sys/class/net/br0/bridge");
        rig.tree.dir("sys/class/net/veth1a2b3c4");
        rig.tree.dir("sys/class/net/lo");
        dev(rig, [line("eth0", 0, 0), line("eth1", 0, 0)].concat());
    });
    open(&mut rig);
    rig.tick();
    dev(&rig, case!("042-bond-vlan-bridge-double-count.input"));
    rig.tick();
    let names: Vec<_> = rig.numbers(RECEIVE_BYTES).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["eth0", "eth1", "bond0", "bond0.100"]);
    let total = rig.out.resources.last().unwrap();
    assert_eq!(total.device, "all links");
    assert_eq!(total.load[0], ("receive", "2.9 KiB/s".to_owned()), "3000 bytes, not 13300");
    let info = |device: &str| {
        let points = &rig.out.points;
        let point = points.iter().find(|p| p.desc.name == "loadline_nic_info" && &*p.labels[0] == device);
        point.unwrap().labels.iter().map(|l| l.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(info("eth0"), ["eth0", "physical", "bond0", "full"]);
    assert_eq!(info("bond0.100"), ["bond0.100", "vlan", "", ""]);
    let capacity = "loadline_nic_capacity_bytes_per_second";
    assert_eq!(rig.value_of(capacity, "bond0"), Some(250e6));
    assert_eq!(rig.value_of(capacity, "bond0.100"), Some(250e6));
}

#[test]
fn a_flood_of_pods_has_no_series() {
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
        rig.tree.dir("sys/class/net/wg0");
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
fn a_name_twice_in_one_file_is_one_link() {
    let mut rig = with("1000");
    dev(&rig, [line("eth0", 2000, 1000), line("eth0", 2000, 1000)].concat());
    rig.tick();
    assert_eq!(rig.value(RECEIVE_BYTES), Some(2000.0));
}

#[test]
fn a_line_missing_for_a_tick_is_a_gap_and_not_another_link() {
    let mut rig = with("1000");
    dev(&rig, "");
    rig.tick();
    assert_eq!(rig.value(RECEIVE_BYTES), None);
    dev(&rig, line("eth0", 3000, 1000));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_RATE), Some(1000.0), "over two seconds");
}

#[test]
fn a_changed_speed_is_seen_with_its_carrier_and_after_a_minute() {
    let capacity = "loadline_nic_capacity_bytes_per_second";
    let mut rig = with("1000");
    rig.tree.file("sys/class/net/eth0/speed", "100\n");
    rig.tick();
    assert_eq!(rig.value(capacity), Some(125e6), "not asked each tick");
    rig.tree.file("sys/class/net/eth0/carrier_changes", "3\n");
    rig.tick();
    assert_eq!(rig.value(capacity), Some(12.5e6));
    rig.tree.file("sys/class/net/eth0/speed", "10000\n");
    rig.clock.advance(Duration::from_secs(60));
    rig.tick();
    assert_eq!(rig.value(capacity), Some(1.25e9));
}

#[test]
fn a_speed_that_never_answers_delays_no_counter() {
    let mut rig = Rig::new(|rig| {
        nic(rig, "eth0", "1000");
        rig.tree.remove("sys/class/net/eth0/speed");
        dev(rig, line("eth0", 1000, 1000));
    });
    let speed = rig.tree.path("sys/class/net/eth0/speed");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &speed, mode).unwrap();
    rig.drive(Box::new(LinkSampler::new(&rig.tree.roots(), &rig.settings, Duration::ZERO)));
    rig.tick();
    dev(&rig, line("eth0", 3000, 1000));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_RATE), Some(2000.0));
    assert_eq!(rig.value("loadline_nic_capacity_known"), None, "not even that it isn't");
    assert_eq!(rig.out.resources[0].facts, "speed not known yet");
    // Lets the thread go.
    drop(std::fs::OpenOptions::new().write(true).open(speed));
}

#[test]
fn representors_are_left_out_once_they_are_told() {
    let mut rig = with("1000");
    nic(&rig, "eth0_3", "1000");
    rig.tree.file("sys/class/net/eth0_3/phys_port_name", "pf0vf3\n");
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
    assert_eq!(rig.try_tick().unwrap_err().kind, crate::base::fault::FaultKind::Missing);
    assert!(rig.out.points.is_empty());
}

#[test]
fn a_foreign_procfs_without_its_first_process_says_whose_network_is_shown() {
    let mut rig = Rig::new(|rig| rig.tree.file("proc/net/dev", line("eth0", 5, 5)));
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
