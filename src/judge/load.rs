//! Live load against ceilings: how full each disk is, whether it is at its ceiling, and whether it
//! falls short of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::effective::{DiskCeilings, Effective, Side};
use super::families;
use crate::base::limits::{FALLEN_SHARE, SPINDLE_BUSY, SPINDLE_QUEUE};
use crate::base::units::{Ratio, Seconds};
use crate::base::window::Latch;
use crate::model::live::{DiskLive, DiskWindow, KnownLine};
use crate::model::load::DiskLoad;
use crate::model::metric::{Desc, Label, Point, push_some};
use crate::model::snapshot::{Of, Resource, ResourceClass};

static UTILIZATION: Desc = Desc::gauge(
    "loadline_disk_utilization_ratio",
    &["device"],
    "Load of the last window / what the disk is known to give, reads and writes each by their own \
     ceilings; of one spindle its busy share where that is more. Above 1 where it gives more than it \
     was measured to. Absent while no ceiling is known.",
    "/proc/diskstats against measured ceilings",
);
static HEADROOM: Desc = Desc::gauge(
    "loadline_disk_headroom_ratio",
    &["device"],
    "1 - utilization, not below 0; absent with it.",
    "/proc/diskstats against measured ceilings",
);
static AT_CEILING: Desc = Desc::gauge(
    "loadline_disk_at_ceiling",
    &["device"],
    "1 once 8 of the last 10 windows were at the ceiling, 0 once 3 were. A spindle is when busy 95 % \
     of the time with a queue above 2; others from 90 % utilization with the queue, the latency or \
     the full slots to show for it.",
    "/proc/diskstats against measured ceilings",
);
static AT_CEILING_TIME: Desc = Desc::counter(
    "loadline_disk_at_ceiling_seconds_total",
    &["device"],
    "Seconds of windows at the ceiling.",
    "/proc/diskstats against measured ceilings",
);
static SATURATION: Desc = Desc::gauge(
    "loadline_disk_saturation_ratio",
    &["device"],
    "Share of the last 60 windows at the ceiling.",
    "/proc/diskstats against measured ceilings",
);
static DEGRADED: Desc = Desc::gauge(
    "loadline_disk_degraded",
    &["device"],
    "1 once 8 of the last 10 windows were slower than the disk's own measured ceiling: a queue that \
     once gave it, under 70 % of the rate, and twice the latency. 0 once 3 were; absent where it can't \
     be known, as where a spindle was measured on a small part of it.",
    "/proc/diskstats against measured ceilings",
);

/// Every family of live load against ceilings.
pub static DESCS: &[&Desc] =
    &[&UTILIZATION, &HEADROOM, &AT_CEILING, &AT_CEILING_TIME, &SATURATION, &DEGRADED];

const FULL: f64 = 0.9;
/// Of the queue that reached the ceiling.
const QUEUE_SHARE: f64 = 0.8;
/// Of the latency at the ceiling: what waits, and what is slower than it was.
const INFLATED: f64 = 2.0;
/// The kernel's own cost model takes its ceilings of small requests at this size (block/blk-iocost.c).
const PAGE: f64 = 4096.0;
/// Requests from half of the size at which bandwidth is measured are bound by it alone; ceilings of
/// operations hold for requests up to twice theirs.
const LARGE: f64 = 131_072.0;
const LARGER: f64 = 2.0;
/// A direction without a ceiling that does less than this of the other's is left out.
const TRACE: f64 = 0.01;
/// Ticks for which a disk that isn't there is remembered: its sampler may fail once.
const REMEMBERED_TICKS: u64 = 3;

/// What the sampling lane keeps of this from tick to tick.
#[derive(Default)]
pub struct Live {
    tick: u64,
    disks: BTreeMap<Label, Kept>,
    lines: Vec<KnownLine>,
    line_points: Arc<Vec<Point>>,
}

struct Kept {
    identity: Label,
    /// Tick in which it was there.
    seen: u64,
    utilization: Option<f64>,
    of: Of,
    at_ceiling: Latch,
    degraded: Latch,
    seconds: f64,
}

impl Live {
    /// Sets this tick's `disks` against their ceilings; adds what is published, and shows it in
    /// `resources`, where the disks are in the same order.
    pub fn disks(
        &mut self,
        disks: &[DiskLive],
        ceilings: &Effective,
        (out, resources): (&mut Vec<Point>, &mut [Resource]),
    ) {
        self.tick += 1;
        let shown = resources.iter_mut().filter(|shown| shown.class == ResourceClass::Disk);
        let shown = shown.map(Some).chain(std::iter::repeat_with(|| None));
        for (disk, shown) in disks.iter().zip(shown) {
            let own = ceilings.disks.get(&disk.device);
            let own = own.filter(|own| *own.identity == *disk.identity);
            if own.is_none() && !disk.spindle {
                continue;
            }
            let kept = self.kept(disk);
            let Some(window) = &disk.window else { continue };
            if window.new {
                kept.observe(disk, window, own);
            }
            kept.points(&disk.device, own.is_some(), out);
            let of_ceiling = kept.utilization.filter(|_| own.is_some() && kept.of == Of::Ceiling);
            let shown = shown.filter(|shown| *shown.device == *disk.device);
            if let (Some(shown), Some(utilization)) = (shown, of_ceiling) {
                (shown.share, shown.of) = (Some(Ratio(utilization)), Of::Ceiling);
            }
        }
        let tick = self.tick;
        self.disks.retain(|_, kept| tick - kept.seen <= REMEMBERED_TICKS);
    }

    /// What is kept of a disk; anew where another bears the name.
    fn kept(&mut self, disk: &DiskLive) -> &mut Kept {
        let new = || Kept {
            identity: Arc::clone(&disk.identity),
            seen: 0,
            utilization: None,
            of: Of::default(),
            at_ceiling: Latch::default(),
            degraded: Latch::default(),
            seconds: 0.0,
        };
        let kept = self.disks.entry(Arc::clone(&disk.device)).or_insert_with(new);
        if kept.identity != disk.identity {
            *kept = new();
        }
        kept.seen = self.tick;
        kept
    }

    /// What lines carry: made anew when one of them changes.
    pub fn lines(&mut self, lines: Vec<KnownLine>) -> Arc<Vec<Point>> {
        if lines != self.lines {
            let mut points = Vec::with_capacity(4 * lines.len());
            lines.iter().for_each(|line| families::line(line, &mut points));
            (self.lines, self.line_points) = (lines, Arc::new(points));
        }
        Arc::clone(&self.line_points)
    }
}

impl Kept {
    fn observe(&mut self, disk: &DiskLive, window: &DiskWindow, own: Option<&DiskCeilings>) {
        let used = own.and_then(|own| used(&window.load, own));
        let most = used.map(|used| if disk.spindle { used.bytes } else { used.most() });
        let busy = window.busy.filter(|_| disk.spindle).map(|busy| busy.0);
        (self.utilization, self.of) = match (most, busy) {
            (_, None) if disk.spindle => (None, Of::Time),
            (most, Some(busy)) if most.is_none_or(|most| most <= busy) => (Some(busy), Of::Time),
            (most, _) => (most, Of::Ceiling),
        };
        let at_ceiling = is_at_ceiling(disk, window, (self.utilization, own));
        match at_ceiling {
            Some(is) => {
                self.at_ceiling.push(is);
                self.seconds += if is { window.load.window.0 } else { 0.0 };
            }
            None => self.at_ceiling = Latch::default(),
        }
        match own.and_then(|own| is_degraded(window, own)) {
            Some(is) => self.degraded.push(is),
            None => self.degraded = Latch::default(),
        }
    }

    fn points(&self, device: &Label, has_ceiling: bool, out: &mut Vec<Point>) {
        let labels = &[device];
        let flag = |on: bool| f64::from(u8::from(on));
        push_some(out, &UTILIZATION, labels, self.utilization);
        push_some(out, &HEADROOM, labels, self.utilization.map(|used| (1.0 - used).max(0.0)));
        push_some(out, &AT_CEILING, labels, self.at_ceiling.on().map(flag));
        push_some(out, &SATURATION, labels, self.at_ceiling.share().map(|share| share.0));
        out.push(Point::number(&AT_CEILING_TIME, labels, self.seconds));
        push_some(out, &DEGRADED, labels, self.degraded.on().filter(|_| has_ceiling).map(flag));
    }
}

/// Shares of what a disk gives.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// By the linear model: what each request costs, and each byte.
    cost: f64,
    operations: f64,
    bytes: f64,
}

impl Used {
    fn most(self) -> f64 {
        self.cost.max(self.operations).max(self.bytes)
    }
}

/// One direction of a window.
#[derive(Clone, Copy)]
struct Flow<'a> {
    operations: f64,
    bytes: f64,
    side: &'a Side,
}

fn flows<'a>(load: &DiskLoad, own: &'a DiskCeilings) -> [Flow<'a>; 2] {
    let flow = |operations, bytes, side| Flow { operations, bytes, side };
    [
        flow(load.reads_per_second, load.read_bytes_per_second, &own.read),
        flow(load.writes_per_second, load.write_bytes_per_second, &own.write),
    ]
}

/// `None` where what moves has no ceiling to go by.
fn used(load: &DiskLoad, own: &DiskCeilings) -> Option<Used> {
    let flows = flows(load, own);
    let most = |of: fn(&Side) -> Option<f64>| {
        flows.iter().filter_map(|flow| of(flow.side)).reduce(f64::max)
    };
    let [operations_max, bytes_max] = [most(operations), most(bytes)];
    let share = |amount: f64, most: Option<f64>| most.map_or(0.0, |most| amount / most);
    let mut used = Used {
        cost: 0.0,
        operations: share(flows.iter().map(|f| f.operations).sum(), operations_max),
        bytes: share(flows.iter().map(|f| f.bytes).sum(), bytes_max),
    };
    for flow in flows {
        match flow.cost() {
            Some(cost) => used.cost += cost,
            None => {
                let trace = share(flow.operations, operations_max) + share(flow.bytes, bytes_max);
                let known = operations_max.is_some() || bytes_max.is_some();
                if !known || trace >= TRACE {
                    return None;
                }
            }
        }
    }
    Some(used).filter(|used| used.most().is_finite())
}

fn operations(side: &Side) -> Option<f64> {
    side.operations.as_ref().map(|entry| entry.value)
}

fn bytes(side: &Side) -> Option<f64> {
    side.bytes.as_ref().map(|entry| entry.value)
}

impl Flow<'_> {
    fn cost(&self) -> Option<f64> {
        if self.operations <= 0.0 {
            return Some(0.0);
        }
        let size = self.bytes / self.operations;
        match (&self.side.operations, &self.side.bytes) {
            (Some(small), Some(large)) => {
                let page = if small.block.0 > 0 { small.block.0 as f64 } else { PAGE };
                let each = (1.0 / small.value - page / large.value).max(0.0);
                Some(self.operations * each + self.bytes / large.value)
            }
            (Some(small), None) if size <= LARGER * (small.block.0 as f64).max(PAGE) => {
                Some(self.operations / small.value)
            }
            (None, Some(large)) if size >= LARGE => Some(self.bytes / large.value),
            _ => None,
        }
    }
}

/// `None` where it can't be known.
fn is_at_ceiling(
    disk: &DiskLive,
    window: &DiskWindow,
    (utilization, own): (Option<f64>, Option<&DiskCeilings>),
) -> Option<bool> {
    if disk.spindle {
        let queue = window.timed.then_some(window.load.queue)?;
        return Some(window.busy?.0 >= SPINDLE_BUSY && queue > SPINDLE_QUEUE);
    }
    let utilization = utilization?;
    if utilization < FULL {
        return Some(false);
    }
    let slots = disk.slots.map(|slots| window.load.in_flight >= u64::from(slots));
    let (depth, latency) = own.and_then(|own| reached(&window.load, own))?;
    let queue = window.timed.then_some(window.load.queue >= QUEUE_SHARE * depth);
    let waits = time_of_each(window).map(|time| time.0 >= INFLATED * latency.0);
    let evidence = [slots, queue, waits];
    evidence.iter().any(Option::is_some).then(|| evidence.contains(&Some(true)))
}

/// The queue and the latency at the ceiling that this load is nearest to: by its busier direction and
/// the size of its requests.
fn reached(load: &DiskLoad, own: &DiskCeilings) -> Option<(f64, Seconds)> {
    let [reads, writes] = flows(load, own);
    let busier = if reads.operations >= writes.operations { reads } else { writes };
    let (small, large) = (&busier.side.operations, &busier.side.bytes);
    let entry = match busier.bytes >= LARGE * busier.operations {
        true => large.as_ref().or(small.as_ref()),
        false => small.as_ref().or(large.as_ref()),
    }?;
    Some((entry.depth, entry.latency)).filter(|(depth, latency)| *depth > 0.0 && latency.0 > 0.0)
}

/// Mean of all requests; endless where what is in flight doesn't come back.
fn time_of_each(window: &DiskWindow) -> Option<Seconds> {
    let rate = window.load.completed as f64 / window.load.window.0;
    (window.timed && window.load.queue > 0.0).then(|| Seconds(window.load.queue / rate))
}

/// In flight what once gave the ceiling, far from it, and each request takes twice as long. `None`
/// where it can't be known.
fn is_degraded(window: &DiskWindow, own: &DiskCeilings) -> Option<bool> {
    let seeks = [&own.read, &own.write];
    // What was measured on a small part of a spindle says too much of the whole.
    let short = seeks.into_iter().flat_map(|side| &side.operations).any(|e| e.short_stroke);
    let (depth, latency) = reached(&window.load, own).filter(|_| window.timed && !short)?;
    if window.load.queue < depth {
        return Some(false);
    }
    let time = time_of_each(window)?;
    Some(used(&window.load, own)?.most() < FALLEN_SHARE && time.0 >= INFLATED * latency.0)
}

#[cfg(test)]
mod tests;
