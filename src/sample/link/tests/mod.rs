//! The sampler over small trees, tick by tick.

macro_rules! case {
    ($name:literal) => {
        include_bytes!(concat!("../../../../tests/fixtures/cases/", $name)).as_slice()
    };
}

mod capacity;
mod samples;
mod selection;

use std::time::Duration;

use super::LinkSampler;
use crate::sample::rig::Rig;

const RECEIVE_BYTES: &str = "loadline_nic_receive_bytes_total";
const RECEIVE_RATE: &str = "loadline_nic_receive_bytes_per_second";
const RECEIVE_SHARE: &str = "loadline_nic_receive_utilization_ratio";
const TRANSMIT_SHARE: &str = "loadline_nic_transmit_utilization_ratio";

/// A line of /proc/net/dev without errors and drops.
fn line(name: &str, receive_bytes: u64, transmit_bytes: u64) -> String {
    format!("{name}: {receive_bytes} 0 0 0 0 0 0 0 {transmit_bytes} 0 0 0 0 0 0 0\n")
}

fn dev(rig: &Rig, text: impl AsRef<[u8]>) {
    rig.host.file("proc/1/net/dev", text);
}

/// A physical interface of `speed` Mbit/s.
fn nic(rig: &Rig, name: &str, speed: &str) {
    let own = format!("sys/class/net/{name}");
    rig.host.dir(&format!("{own}/device"));
    rig.host.file(&format!("{own}/speed"), format!("{speed}\n"));
    rig.host.file(&format!("{own}/duplex"), "full\n");
    rig.host.file(&format!("{own}/operstate"), "up\n");
    rig.host.file(&format!("{own}/ifindex"), "2\n");
    rig.host.file(&format!("{own}/carrier_changes"), "1\n");
}

/// Waits for every answer, so that a busy test machine changes nothing.
fn open(rig: &mut Rig) {
    let patience = Duration::from_secs(60);
    rig.drive(Box::new(LinkSampler::new(&rig.host.roots(), &rig.settings, patience)));
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
