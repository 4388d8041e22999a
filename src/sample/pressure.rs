//! Pressure: the time tasks waited for CPU, I/O, memory, interrupts.

use super::{Kind, Reading, Sampler, Tick};
use crate::base::clock::Moment;
use crate::base::counter::step64;
use crate::base::fault::{Fault, FaultKind};
use crate::base::units::{Ratio, Seconds};
use crate::base::window::{Held, Span};
use crate::config::settings::SampleSettings;
use crate::host::pressure::parse;
use crate::host::roots::{KeptFile, Roots};
use crate::model::metric::{Desc, push_some};
use crate::model::outcome::{OwnRun, OwnRuns};

macro_rules! waiting {
    ($resource:literal) => {
        Desc::counter(
            concat!("loadline_pressure_", $resource, "_waiting_seconds_total"),
            &[],
            concat!("Seconds in which at least one task waited for ", $resource, "."),
            concat!("/proc/pressure/", $resource, " some total"),
        )
    };
}

macro_rules! stalled {
    ($resource:literal) => {
        Desc::counter(
            concat!("loadline_pressure_", $resource, "_stalled_seconds_total"),
            &[],
            concat!("Seconds in which all tasks that had work waited for ", $resource, "."),
            concat!("/proc/pressure/", $resource, " full total"),
        )
    };
}

static CPU_WAITING: Desc = waiting!("cpu");
/// Undefined for a whole system: the kernel prints 0 (Documentation/accounting/psi.rst).
static CPU_STALLED: Desc = stalled!("cpu");
static IO_WAITING: Desc = waiting!("io");
static IO_STALLED: Desc = stalled!("io");
static MEMORY_WAITING: Desc = waiting!("memory");
static MEMORY_STALLED: Desc = stalled!("memory");
static IRQ_WAITING: Desc = waiting!("irq");
static IRQ_STALLED: Desc = stalled!("irq");

pub static KIND: Kind = Kind {
    name: "pressure",
    help: "Time in which tasks waited for CPU, I/O, memory and interrupts.",
    descs: &[
        &CPU_WAITING,
        &CPU_STALLED,
        &IO_WAITING,
        &IO_STALLED,
        &MEMORY_WAITING,
        &MEMORY_STALLED,
        &IRQ_WAITING,
        &IRQ_STALLED,
    ],
    open,
};

fn open(roots: &Roots, settings: &SampleSettings) -> Box<dyn Sampler> {
    let pressed = |name: &str, waiting, stalled| Pressed {
        file: KeptFile::new(roots.proc("pressure").join(name)),
        waiting,
        stalled,
        absent: 0,
    };
    Box::new(PressureSampler {
        resources: [
            pressed("io", &IO_WAITING, &IO_STALLED),
            pressed("cpu", &CPU_WAITING, &CPU_STALLED),
            pressed("memory", &MEMORY_WAITING, &MEMORY_STALLED),
            // Since 6.1, and only with CONFIG_IRQ_TIME_ACCOUNTING.
            pressed("irq", &IRQ_WAITING, &IRQ_STALLED),
        ],
        every: settings.every,
        before: None,
        io_pressure: Held::default(),
    })
}

/// Where there are others, a file that this kernel lacks is asked for again after so many ticks.
const ABSENT_TICKS: u32 = 60;

struct Pressed {
    file: KeptFile,
    waiting: &'static Desc,
    stalled: &'static Desc,
    /// Ticks for which it isn't asked.
    absent: u32,
}

struct PressureSampler {
    /// I/O first: it decides for the guard.
    resources: [Pressed; 4],
    every: Seconds,
    /// Microseconds in which a task waited for I/O.
    before: Option<(Moment, u64)>,
    io_pressure: Held<Option<Ratio>>,
}

impl PressureSampler {
    fn window(&mut self, tick: Tick<'_>, waiting_us: Option<u64>) {
        let Some(waiting_us) = waiting_us else {
            self.before = None;
            self.io_pressure.miss();
            return;
        };
        if let Some((then, before)) = self.before {
            let grown = step64(before, waiting_us).grown();
            match (Span::between(then, tick.at, self.every), grown) {
                (Span::Short, Some(_)) => return,
                // It can't be told from that of others which tasks waited.
                _ if any_own_run(tick.own, then, tick.at) => self.io_pressure = Held::default(),
                (Span::Good(Seconds(length)), Some(by)) => {
                    self.io_pressure.set(Ratio::of(by as f64 / 1e6, length));
                }
                _ => self.io_pressure.miss(),
            }
        }
        self.before = Some((tick.at, waiting_us));
    }
}

fn any_own_run(own: &OwnRuns, from: Moment, to: Moment) -> bool {
    let runs = |run: &OwnRun| {
        run.from.mono < to.mono && run.until.is_none_or(|until| until.mono > from.mono)
    };
    own.0.iter().any(runs)
}

impl Sampler for PressureSampler {
    fn read(&mut self, tick: Tick<'_>, out: &mut Reading) -> Result<(), Fault> {
        let (mut first_fault, mut readable, mut io) = (None, false, None);
        for (at, pressed) in self.resources.iter_mut().enumerate() {
            if pressed.absent > 0 {
                pressed.absent -= 1;
                continue;
            }
            match pressed.file.read().map(parse) {
                Ok(pressure) => {
                    readable = true;
                    if at == 0 {
                        io = pressure.waiting_us;
                    }
                    let seconds = |us: Option<u64>| us.map(|us| us as f64 / 1e6);
                    push_some(&mut out.points, pressed.waiting, &[], seconds(pressure.waiting_us));
                    push_some(&mut out.points, pressed.stalled, &[], seconds(pressure.stalled_us));
                }
                Err(fault) if readable && fault.kind == FaultKind::Missing => {
                    pressed.absent = ABSENT_TICKS;
                }
                Err(fault) => first_fault = first_fault.or(Some(fault)),
            }
        }
        self.window(tick, io);
        out.conditions.io_pressure = self.io_pressure.get().copied().flatten();
        match first_fault {
            // Booted with psi=0 each read fails with EOPNOTSUPP; older kernels have no files.
            Some(fault) if !readable && fault.kind == FaultKind::Missing => {
                Err(Fault { kind: FaultKind::Unsupported, ..fault })
            }
            Some(fault) if !readable => Err(fault),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::Rig;
    use super::*;
    use crate::base::clock::Clock;

    fn io(rig: &Rig, total_us: u64) {
        let averages = "avg10=0.00 avg60=0.00 avg300=0.00";
        let text = format!("some {averages} total={total_us}\nfull {averages} total=7\n");
        rig.host.file("proc/pressure/io", text);
    }

    #[test]
    fn io_pressure_is_of_the_last_window() {
        let mut rig = Rig::new(|rig| io(rig, 5_000_000));
        rig.open(&KIND);
        rig.tick();
        assert_eq!(rig.out.conditions.io_pressure, None);
        io(&rig, 5_250_000);
        rig.tick();
        assert_eq!(rig.out.conditions.io_pressure, Some(Ratio(0.25)));
        assert_eq!(rig.value(IO_WAITING.name), Some(5.25));
        assert_eq!(rig.value(IO_STALLED.name), Some(0.000_007));
    }

    #[test]
    fn an_own_run_leaves_no_pressure_for_the_guard_to_judge() {
        let mut rig = Rig::new(|rig| io(rig, 0));
        rig.open(&KIND);
        rig.tick();
        let from = rig.clock.now();
        rig.own = OwnRuns(vec![OwnRun { devices: vec!["sda".into()], from, until: None }]);
        io(&rig, 900_000);
        rig.tick();
        assert_eq!(rig.out.conditions.io_pressure, None);
        rig.own.0[0].until = Some(rig.clock.now());
        io(&rig, 1_000_000);
        rig.tick();
        let after = rig.out.conditions.io_pressure.unwrap();
        assert!((after.0 - 0.1).abs() < 1e-9, "what follows is known again: {after:?}");
    }

    #[test]
    fn files_and_lines_that_a_kernel_lacks_are_absent() {
        let mut rig = Rig::new(|rig| io(rig, 0));
        rig.host
            .file("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\n");
        rig.open(&KIND);
        rig.tick();
        let names: Vec<_> = rig.out.points.iter().map(|p| p.desc.name).collect();
        assert_eq!(names, [IO_WAITING.name, IO_STALLED.name, CPU_WAITING.name]);
    }

    #[test]
    fn a_file_that_comes_later_is_found() {
        let mut rig = Rig::new(|rig| io(rig, 0));
        rig.open(&KIND);
        rig.tick();
        rig.host
            .file("proc/pressure/irq", "full avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\n");
        for _ in 0..=ABSENT_TICKS {
            rig.tick();
        }
        assert_eq!(rig.value(IRQ_STALLED.name), Some(2.0));
    }

    #[test]
    fn a_kernel_without_pressure_does_not_support_it() {
        let mut rig = Rig::new(|_| ());
        rig.open(&KIND);
        assert_eq!(rig.try_tick().unwrap_err().kind, FaultKind::Unsupported);
    }
}
