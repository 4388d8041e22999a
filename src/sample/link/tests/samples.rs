//! Which samples are believed, and what windows they make.

use super::*;
use crate::base::clock::Clock;
use crate::model::outcome::{OwnRun, OwnRuns};

#[test]
fn case_041_a_driver_that_shows_zero_for_a_tick_makes_no_spike() {
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
fn case_040_a_link_made_anew_under_its_name_starts_anew() {
    let mut rig = Rig::new(|rig| {
        nic(rig, "eth0", "10000");
        nic(rig, "wwan0", "100");
        dev(rig, case!("040-netdev-counter-goes-back.input-t0"));
    });
    open(&mut rig);
    rig.tick();
    rig.host.file("sys/class/net/eth0/ifindex", "17\n");
    rig.host.remove("sys/class/net/wwan0");
    dev(&rig, case!("040-netdev-counter-goes-back.input-t1"));
    rig.tick();
    assert_eq!(rig.numbers(RECEIVE_BYTES), [("eth0".to_owned(), 1500.0)]);
    assert_eq!(rig.numbers(RECEIVE_RATE), []);
}

#[test]
fn another_interface_with_higher_counters_makes_no_window() {
    let mut rig = with("10000");
    rig.host.file("sys/class/net/eth0/ifindex", "9\n");
    dev(&rig, line("eth0", 900_000_000, 900_000_000));
    rig.tick();
    assert_eq!(rig.value(RECEIVE_RATE), None);
}

#[test]
fn case_052_a_counter_below_zero_costs_its_direction_only() {
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
    let from = rig.clock.now();
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
        rig.host.file("sys/class/net/eth0/statistics/rx_dropped", "7\n");
        rig.host.file("sys/class/net/eth0/statistics/rx_missed_errors", "30\n");
        nic(rig, "eth1", "1000");
        let [eth0, eth1] =
            ["eth0", "eth1"].map(|name| format!("{name}: 1 1 5 37 0 0 0 0 2 2 6 8 0 0 0 0\n"));
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
