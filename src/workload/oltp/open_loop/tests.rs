//! The open loop on an engine made of arithmetic: what it delays is charged to it.

use super::*;
use crate::base::units::MIB;
use crate::model::job::EngineKind;
use crate::model::oltp::{Load, Oltp, Variant};
use crate::workload::ground;
use crate::workload::testing::{Ears, disk_directory, run_in};

/// Completes everything at once, but for a pause: what comes within it ends with it.
struct Pausing {
    buffers: Vec<Vec<u8>>,
    queued: Vec<(Operation, Duration)>,
    pause: std::ops::Range<Duration>,
    fails: bool,
}

impl Engine for Pausing {
    fn buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        self.buffers.get_mut(slot).map(Vec::as_mut_slice)
    }

    fn queue(&mut self, operation: Operation) -> io::Result<()> {
        let now = monotonic();
        let end = if self.pause.contains(&now) { self.pause.end } else { now };
        self.queued.push((operation, end));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, patience: Duration, out: &mut Vec<Completion>) -> io::Result<()> {
        let until = monotonic() + patience;
        loop {
            let now = monotonic();
            let fails = self.fails;
            let result = |operation: &Operation| match fails {
                true => Err(rustix::io::Errno::IO),
                false => Ok(operation.bytes.unwrap_or(0)),
            };
            self.queued.retain(|(operation, end)| {
                if *end > now {
                    return true;
                }
                out.push(Completion { slot: operation.slot, result: result(operation), at: *end });
                false
            });
            if !out.is_empty() || now >= until {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }
}

fn asus(ears: &Ears) -> Asus {
    let dir = disk_directory();
    let run = run_in(dir.path(), Bytes(16 * MIB), Vec::new());
    let oltp = Oltp::of_region(Variant::Pblio, Load::Bsu(1));
    let held = ground::hold(&run.target).unwrap();
    Asus::open(&held, &run, &oltp, ears).unwrap()
}

/// A stint on an engine that pauses for this part of it, with these slots.
fn stint(bsus: u32, slots: usize, pause: (u64, u64), change: impl Fn(&mut Stint)) -> StintEnd {
    let ears = Ears::default();
    let asus = asus(&ears);
    let chosen = Chosen { kind: EngineKind::Threads, reason: String::new() };
    let start = monotonic();
    let [from, to] = [pause.0, pause.1].map(|ms| start + Duration::from_millis(ms));
    let buffers = vec![vec![0; 65536]; slots];
    let engine = Pausing { buffers, queued: Vec::new(), pause: from..to, fails: pause.0 == 77 };
    let mut bench = Bench {
        asus: &asus,
        chosen: &chosen,
        engine: Box::new(engine),
        slots,
        watch: &ears,
        filler: Filler::new(1),
        seed: 1,
    };
    let mut stint = Stint {
        index: 0,
        arrivals: Arrivals::bsus(Variant::Pblio, bsus, None),
        ramp: Seconds(0.0),
        window: Seconds(1.0),
        bytes_max: Bytes(u64::MAX),
        patience: None,
        counts_every: None,
    };
    change(&mut stint);
    bench.run(
        &crate::workload::pattern::tests::profile(crate::model::job::Access::Random, 0.5, 4096),
        &stint,
    )
}

#[test]
fn a_pause_is_charged_with_all_that_it_delayed() {
    for slots in [512, 4] {
        // 2000 operations a second, and nothing for 400 ms of a second: in a closed loop one request
        // of each slot would have waited. Here the mean is 0.4 x 200 ms at least.
        let end = stint(40, slots, (300, 700), |_| {});
        let mean = end.step.latency_mean.0;
        assert!((0.07..0.2).contains(&mean), "{slots} slots: {mean}");
        assert!(end.step.latency_p99.unwrap().0 > 0.35, "{:?}", end.step);
        let offered = end.step.operations as f64;
        assert!((offered / 2000.0 - 1.0).abs() < 0.15, "{slots} slots: {offered}");
        assert_eq!(end.step.unserved, 0);
        let service = end.service_mean.unwrap().0;
        assert!(slots > 4 || service < 0.5 * mean, "what waits for a slot isn't in service");
    }
}

#[test]
fn a_target_that_stands_still_ends_a_step_of_a_search() {
    let end = stint(40, 16, (100, 5000), |stint| {
        stint.window = Seconds(60.0);
        stint.patience = Some(Seconds(0.2));
    });
    assert!(end.step.overloaded && !end.step.sustained(Seconds(100.0)));
    assert!(end.step.unserved > 300, "{:?}", end.step);
    assert!(end.step.window.0 < 2.0);
}

#[test]
fn the_ramp_costs_bytes_and_counts_nowhere() {
    let end = stint(40, 512, (0, 0), |stint| {
        (stint.ramp, stint.window) = (Seconds(0.5), Seconds(0.25));
    });
    let bytes = end.measured.reads.bytes.0 + end.measured.writes.bytes.0;
    let ramp = end.moved.read.0 + end.moved.written.0 - bytes;
    assert!(ramp > bytes && end.moved.operations > 2 * end.step.operations, "{:?}", end.step);
}

#[test]
fn errors_are_never_timed() {
    let end = stint(40, 512, (77, 77), |_| {});
    assert_eq!((end.step.operations, end.measured.reads.latency_mean), (0, None));
    assert!(end.measured.errors > 0);
    let Some(Halt::Failed(fault)) = end.halt else { panic!("{:?}", end.halt) };
    assert!(fault.text.contains(" on asu"), "{fault}");
}
