//! A run as it goes on: one line that renews itself on a terminal, nothing elsewhere.

use std::cell::RefCell;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::base::units::{Bytes, Rate};
use crate::model::job::{self, Profile, What};

/// The last rates, as bars.
const SPARKS: usize = 20;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) struct Progress {
    bar: ProgressBar,
    legs: Vec<Profile>,
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    last: job::Progress,
    rates: Vec<f64>,
}

impl Progress {
    pub(super) fn new(on_a_terminal: bool, legs: &[Profile]) -> Self {
        let bar = if on_a_terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        Self::on(bar, legs)
    }

    /// Under other lines.
    pub(super) fn among(bars: &MultiProgress, legs: &[Profile]) -> Self {
        Self::on(bars.add(ProgressBar::new_spinner()), legs)
    }

    fn on(bar: ProgressBar, legs: &[Profile]) -> Self {
        if let Ok(style) = ProgressStyle::with_template("  {wide_msg}") {
            bar.set_style(style);
        }
        Self { bar, legs: legs.to_vec(), seen: RefCell::default() }
    }

    pub(super) fn headline(&self, text: &str) {
        self.bar.println(text);
    }

    pub(super) fn take(&self, what: &What) {
        match what {
            What::Opened { .. } => {
                if let Some(text) = opened(what) {
                    self.bar.println(text);
                }
            }
            What::Layout { done, total } => {
                self.bar.set_message(format!("laying out the file: {done} of {total}"));
            }
            What::Progress(progress) => self.bar.set_message(self.line(progress)),
            What::Flush { seconds } => self.bar.set_message(format!("flushed in {seconds}")),
            What::Benched { index, count, result } => {
                let rate = result.bench.map_or(String::new(), |bench| bench.rate.to_string());
                let text = format!("{}/{count} osd.{}: {rate}", index + 1, result.osd.id);
                self.bar.set_message(text);
            }
            What::Confined { .. }
            | What::Leg { .. }
            | What::Step { .. }
            | What::Counts { .. }
            | What::Outcome { .. } => {}
        }
    }

    /// Of what is no worker's run.
    pub(super) fn say(&self, text: String) {
        self.bar.set_message(text);
    }

    fn line(&self, now: &job::Progress) -> String {
        let mut seen = self.seen.borrow_mut();
        if now.leg != seen.last.leg {
            *seen = Seen::default();
        }
        let moved = |p: &job::Progress| p.read_bytes.0.saturating_add(p.written_bytes.0);
        let time = (now.elapsed.0 - seen.last.elapsed.0).max(1e-3);
        let rate = |a: u64, b: u64| a.saturating_sub(b) as f64 / time;
        let reads = rate(now.read_operations, seen.last.read_operations);
        let writes = rate(now.write_operations, seen.last.write_operations);
        let bytes = Rate(rate(moved(now), moved(&seen.last)));
        seen.last = now.clone();
        seen.rates.push(reads + writes);
        let excess = seen.rates.len().saturating_sub(SPARKS);
        seen.rates.drain(..excess);
        // What a narrow terminal cuts off stands last.
        let mut parts = vec![
            format!("{:.0} s{}", now.elapsed.0, self.left(now, moved(now), bytes)),
            format!("{:.0}/s", reads + writes),
            format!("{bytes}, {} moved", Bytes(moved(now))),
        ];
        if let Some(leg) = self.legs.get(now.leg).filter(|_| self.legs.len() > 1) {
            parts.insert(0, format!("{}/{} {}", now.leg + 1, self.legs.len(), leg.name));
        }
        if let (Some(p50), Some(p99)) = (now.latency_p50, now.latency_p99) {
            parts.push(format!("p50 {p50} p99 {p99}"));
        }
        if reads > 0.0 && writes > 0.0 {
            parts.push(format!("read {reads:.0} write {writes:.0}"));
        }
        if let (Some(busy), Some(queue)) = (now.device_busy, now.device_queue) {
            parts.push(format!("busy {busy} queue {queue:.1}"));
        }
        parts.push(sparks(&seen.rates));
        parts.join("  ")
    }

    /// Of all legs, at most: this one ends by its time or by its bytes, those to come by their time.
    /// Nothing of a leg that wasn't planned.
    fn left(&self, now: &job::Progress, moved: u64, rate: Rate) -> String {
        let whole = |leg: &Profile| leg.runtime.0 + leg.ramp.0;
        let Some(leg) = self.legs.get(now.leg) else { return String::new() };
        let by_time = whole(leg) - now.elapsed.0;
        let by_bytes = leg.bytes_max.0.saturating_sub(moved) as f64 / rate.0.max(1.0);
        let to_come: f64 = self.legs.iter().skip(now.leg + 1).map(whole).sum();
        format!(", {:.0} s left", by_time.min(by_bytes).max(0.0) + to_come)
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// `io_uring, direct`: how bytes will be moved, when that is known.
pub(super) fn opened(what: &What) -> Option<String> {
    let What::Opened { engine, reason, direct } = what else { return None };
    let path = if *direct { "direct" } else { "through the page cache" };
    let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    Some(format!("{}{why}, {path}", engine.label()))
}

fn sparks(rates: &[f64]) -> String {
    let most = rates.iter().copied().fold(0.0, f64::max);
    let bar = |rate: &f64| {
        let share = if most > 0.0 { rate / most } else { 0.0 };
        BARS[((share * 7.0).round() as usize).min(7)]
    };
    rates.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{MIB, Seconds};
    use crate::probe::disk::{self, Preset};

    #[test]
    fn sparks_rise_with_the_rate() {
        assert_eq!(sparks(&[0.0, 50.0, 100.0]), "▁▅█");
        assert_eq!(sparks(&[0.0]), "▁");
    }

    #[test]
    fn time_left_ends_at_the_first_bound_and_counts_the_legs_to_come() {
        let of = |preset| disk::full(&disk::shape(preset).legs[0]);
        let mut first = of(Preset::SeqRead);
        first.bytes_max = Bytes(100 * MIB);
        let progress = Progress::new(false, &[first, of(Preset::RandRead)]);
        let now = |leg, seconds, mib| job::Progress {
            leg,
            elapsed: Seconds(seconds),
            read_operations: mib,
            read_bytes: Bytes(mib * MIB),
            latency_p50: Some(Seconds(0.001)),
            latency_p99: Some(Seconds(0.002)),
            ..job::Progress::default()
        };
        let line = progress.line(&now(0, 2.0, 20));
        assert!(line.starts_with("1/2 seq_read  2 s, 68 s left  10/s  10 MiB/s"), "{line}");
        assert!(line.contains("10 MiB/s, 20 MiB moved  p50 1.0 ms p99 2.0 ms"), "{line}");
        let line = progress.line(&now(1, 1.0, 1));
        assert!(line.starts_with("2/2 rand_read  1 s, 59 s left  1/s"), "{line}");
    }
}
