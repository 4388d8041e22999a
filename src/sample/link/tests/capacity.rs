//! Lines and their ceilings.

use super::*;
use crate::base::units::{Rate, Ratio};
use crate::config::settings::LinkSettings;

#[test]
fn case_045_each_direction_is_measured_against_the_line_by_itself() {
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
    assert_eq!(&*rig.out.resources[0].facts, "40 Gbit/s");
    assert_eq!(rig.out.resources[0].load.len(), 2);
}

#[test]
fn half_duplex_directions_share_the_line() {
    let mut rig = with("100");
    rig.host.file("sys/class/net/eth0/duplex", "half\n");
    rig.host.file("sys/class/net/eth0/carrier_changes", "3\n");
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
        assert_eq!(&*rig.out.resources[0].facts, "speed unknown");
    }
}

#[test]
fn case_088_a_speed_that_cannot_be_asked_for_keeps_its_last_value() {
    let capacity = "loadline_nic_capacity_bytes_per_second";
    let mut rig = with("1000");
    rig.host.remove("sys/class/net/eth0/speed");
    rig.host.symlink("sys/class/net/eth0/speed", "speed");
    rig.clock.advance(Duration::from_secs(60));
    rig.tick();
    assert_eq!((rig.value(capacity), rig.out.rejected), (Some(125e6), 1));
    assert!(rig.out.notes[0].starts_with("eth0: its facts can't be read"), "{:?}", rig.out.notes);
    rig.host.remove("sys/class/net/eth0/speed");
    rig.clock.advance(Duration::from_secs(60));
    rig.tick();
    assert_eq!(rig.value(capacity), None, "no answer is an answer");
    assert_eq!(rig.out.notes, ["eth0: speed unknown, link alert off: set `links.eth0.rate`"]);
}

#[test]
fn a_bond_tells_of_its_busiest_member() {
    let mut rig = Rig::new(|rig| {
        for name in ["eth0", "eth1"] {
            nic(rig, name, "1000");
            rig.host.symlink(&format!("sys/class/net/{name}/master"), "../bond0");
        }
        rig.host.file("sys/class/net/bond0/bonding/slaves", "eth0 eth1\n");
        rig.host.file("sys/class/net/bond0/bonding/mode", "balance-xor 2\n");
    });
    dev(&rig, ["eth0", "eth1", "bond0"].map(|name| line(name, 0, 0)).concat());
    open(&mut rig);
    rig.tick();
    let text = [line("eth0", 100_000_000, 0), line("eth1", 0, 5), line("bond0", 100_000_000, 5)];
    dev(&rig, text.concat());
    rig.tick();
    assert_eq!(rig.value_of(RECEIVE_SHARE, "bond0"), Some(0.4));
    assert_eq!(rig.value("loadline_nic_busiest_member_utilization_ratio"), Some(0.8));
}

#[test]
fn a_declared_rate_is_the_capacity_and_watches_the_link() {
    let mut rig = Rig::new(|rig| {
        rig.host.file("sys/class/net/tun0/speed", "10\n");
        dev(rig, line("tun0", 0, 0));
    });
    let rate = Some(Rate(1e6));
    rig.settings.links.insert("tun0".into(), LinkSettings { rate });
    open(&mut rig);
    rig.tick();
    dev(&rig, line("tun0", 500_000, 0));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_SHARE), Some(0.5));
    assert_eq!(&*rig.out.resources[0].facts, "8 Mbit/s (declared), virtual");
    assert!(rig.out.notes.is_empty());
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
fn a_changed_speed_is_seen_with_its_carrier_and_after_a_minute() {
    let capacity = "loadline_nic_capacity_bytes_per_second";
    let mut rig = with("1000");
    rig.host.file("sys/class/net/eth0/speed", "100\n");
    rig.tick();
    assert_eq!(rig.value(capacity), Some(125e6), "not asked each tick");
    rig.host.file("sys/class/net/eth0/carrier_changes", "3\n");
    rig.tick();
    assert_eq!(rig.value(capacity), Some(12.5e6));
    rig.host.file("sys/class/net/eth0/speed", "10000\n");
    rig.clock.advance(Duration::from_secs(60));
    rig.tick();
    assert_eq!(rig.value(capacity), Some(1.25e9));
}

#[test]
fn case_046_a_speed_that_never_answers_delays_no_counter() {
    let mut rig = Rig::new(|rig| {
        nic(rig, "eth0", "1000");
        rig.host.remove("sys/class/net/eth0/speed");
        dev(rig, line("eth0", 1000, 1000));
    });
    let speed = rig.host.at("sys/class/net/eth0/speed");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &speed, mode).unwrap();
    rig.drive(Box::new(LinkSampler::new(&rig.host.roots(), &rig.settings, Duration::ZERO)));
    rig.tick();
    dev(&rig, line("eth0", 3000, 1000));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_RATE), Some(2000.0));
    assert_eq!(rig.value("loadline_nic_capacity_known"), None, "not even that it isn't");
    assert_eq!(&*rig.out.resources[0].facts, "speed not known yet");
    // Lets the thread go.
    drop(std::fs::OpenOptions::new().write(true).open(speed));
}
