//! A run as it goes on: one line that renews itself on a terminal, nothing elsewhere.

use std::cell::RefCell;

use indicatif::{ProgressBar, ProgressStyle};

use crate::base::units::{Rate, Seconds};
use crate::model::job::{self, Profile, What};

/// The last rates, as bars.
const SPARKS: usize = 20;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) struct Progress {
    bar: ProgressBar,
    total: Seconds,
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    last: job::Progress,
    /// Time of earlier legs.
    before: Seconds,
    rates: Vec<f64>,
}

impl Progress {
    pub(super) fn new(on_a_terminal: bool, profile: &Profile) -> Self {
        let bar = if on_a_terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("  {wide_msg}") {
            bar.set_style(style);
        }
        let total = Seconds(profile.runtime.0 + profile.ramp.0);
        Self { bar, total, seen: RefCell::default() }
    }

    pub(super) fn headline(&self, text: &str) {
        self.bar.println(text);
    }

    pub(super) fn take(&self, what: &What) {
        match what {
            What::Opened { engine, reason, direct } => {
                let path = if *direct { "direct" } else { "through the page cache" };
                let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
                self.bar.println(format!("{}{why}, {path}", engine.label()));
            }
            What::Layout { done, total } => {
                self.bar.set_message(format!("laying out the file: {done} of {total}"));
            }
            What::Progress(progress) => self.bar.set_message(self.line(progress)),
            What::Flush { seconds } => self.bar.set_message(format!("flushed in {seconds}")),
            What::Confined { .. } | What::Leg { .. } | What::Outcome { .. } => {}
        }
    }

    fn line(&self, now: &job::Progress) -> String {
        let mut seen = self.seen.borrow_mut();
        if seen.last.leg != now.leg {
            // The next leg counts from its own start.
            seen.before.0 += seen.last.elapsed.0;
            seen.last = job::Progress::default();
        }
        let time = (now.elapsed.0 - seen.last.elapsed.0).max(1e-3);
        let rate = |a: u64, b: u64| a.saturating_sub(b) as f64 / time;
        let reads = rate(now.read_operations, seen.last.read_operations);
        let writes = rate(now.write_operations, seen.last.write_operations);
        let bytes = rate(
            now.read_bytes.0 + now.written_bytes.0,
            seen.last.read_bytes.0 + seen.last.written_bytes.0,
        );
        seen.last = now.clone();
        seen.rates.push(reads + writes);
        let excess = seen.rates.len().saturating_sub(SPARKS);
        seen.rates.drain(..excess);
        let mut parts = vec![
            format!("{:.0} s of {:.0}", seen.before.0 + now.elapsed.0, self.total.0),
            format!("{:.0}/s (read {reads:.0}  write {writes:.0})", reads + writes),
            Rate(bytes).to_string(),
        ];
        if let (Some(p50), Some(p99)) = (now.latency_p50, now.latency_p99) {
            parts.push(format!("p50 {p50}  p99 {p99}"));
        }
        if let (Some(busy), Some(queue)) = (now.device_busy, now.device_queue) {
            parts.push(format!("busy {busy}  queue {queue:.1}"));
        }
        parts.push(sparks(&seen.rates));
        parts.join("   ")
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
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

    #[test]
    fn sparks_rise_with_the_rate() {
        assert_eq!(sparks(&[0.0, 50.0, 100.0]), "▁▅█");
        assert_eq!(sparks(&[0.0]), "▁");
    }
}
