//! The metric families of OSDs, and what fills them.

use crate::model::ceph::{OsdResult, deviations};
use crate::model::metric::{Desc, Label, Point, push_some};
use crate::model::outcome::Done;

const OSD: &[&str] = &["probe", "target", "osd"];
const CLASSED: &[&str] = &["probe", "target", "osd", "device_class"];

static RATE: Desc = Desc::gauge(
    "loadline_osd_bench_bytes_per_second",
    CLASSED,
    "Bytes a second that an OSD wrote in its last bench.",
    "ceph tell osd.N bench",
);
static DEVIATION: Desc = Desc::gauge(
    "loadline_osd_bench_deviation_ratio",
    OSD,
    "Rate of an OSD's last bench / median of its device class, less 1: -0.6 is 40 % of the median.",
    "ceph tell osd.N bench",
);
static SEPARATE_WAL: Desc = Desc::gauge(
    "loadline_osd_separate_wal",
    OSD,
    "1 where the log of an OSD is on another device than its data, 0 where on the same.",
    "ceph osd metadata",
);
static CAPACITY: Desc = Desc::gauge(
    "loadline_osd_capacity_operations_per_second",
    CLASSED,
    "Operations a second that mClock takes an OSD for, where that was measured or set.",
    "ceph config dump",
);
static COMMIT: Desc = Desc::gauge(
    "loadline_osd_commit_latency_seconds",
    OSD,
    "Time of an OSD's writes to their commit, as it told when the run began.",
    "ceph osd perf",
);

/// Families of OSDs.
pub(super) static OSDS: &[&Desc] = &[&RATE, &DEVIATION, &SEPARATE_WAL, &CAPACITY, &COMMIT];

/// Labels are those of the probe and its target.
pub(super) fn points([probe, target]: [&Label; 2], done: &Done, out: &mut Vec<Point>) {
    for (result, deviation) in done.osds.iter().zip(deviations(&done.osds)) {
        let OsdResult { osd, bench } = result;
        let name = Label::from(format!("osd.{}", osd.id));
        let class = Label::from(osd.device_class.as_str());
        let plain = [probe, target, &name];
        let classed = [probe, target, &name, &class];
        let wal = osd.separate_wal.map(|separate| f64::from(u8::from(separate)));
        push_some(out, &RATE, &classed, bench.map(|bench| bench.rate.0));
        push_some(out, &DEVIATION, &plain, deviation);
        push_some(out, &SEPARATE_WAL, &plain, wal);
        push_some(out, &CAPACITY, &classed, osd.capacity.map(|capacity| capacity.0));
        push_some(out, &COMMIT, &plain, osd.commit_latency.map(|latency| latency.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Rate};
    use crate::model::ceph::{Bench, Osd};
    use crate::model::metric::Value;

    #[test]
    fn an_osd_tells_what_it_knows_and_nothing_else() {
        let result = |id, rate: Option<f64>, separate_wal| {
            let bench = rate.map(|rate| Bench {
                bytes: Bytes(1 << 28),
                block: Bytes(1 << 22),
                elapsed: None,
                rate: Rate(rate),
            });
            let device_class = "hdd".into();
            OsdResult { osd: Osd { id, device_class, separate_wal, ..Osd::default() }, bench }
        };
        let osds = vec![result(0, Some(3e6), Some(true)), result(1, Some(1e6), Some(false))];
        let osds = [osds, vec![result(2, None, None)]].concat();
        let done = Done { osds, ..Done::default() };
        let (mut out, [probe, target]) = (Vec::new(), ["b", "pool"].map(Label::from));
        points([&probe, &target], &done, &mut out);
        let shown = |point: &Point| {
            let Value::Number(value) = point.value else { panic!() };
            format!("{}{{{}}} {value}", point.desc.name, point.labels[2..].join(","))
        };
        let page: Vec<String> = out.iter().map(shown).collect();
        assert_eq!(
            page,
            [
                "loadline_osd_bench_bytes_per_second{osd.0,hdd} 3000000",
                "loadline_osd_bench_deviation_ratio{osd.0} 0.5",
                "loadline_osd_separate_wal{osd.0} 1",
                "loadline_osd_bench_bytes_per_second{osd.1,hdd} 1000000",
                "loadline_osd_bench_deviation_ratio{osd.1} -0.5",
                "loadline_osd_separate_wal{osd.1} 0",
            ]
        );
    }
}
