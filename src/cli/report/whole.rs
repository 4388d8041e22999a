//! How far a report is: two lines that renew themselves on a terminal, one line for each run
//! elsewhere. All of it on standard error.

use std::io::Write;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::base::clock::{Clock, Moment, SystemClock};
use crate::base::units::{Rate, Seconds};
use crate::cli::progress::{Progress, opened};
use crate::judge::advice::result;
use crate::judge::facts::{Facts, Run};
use crate::model::job::{Profile, What};
use crate::model::verdict::Unit;

pub(super) struct Whole {
    on_a_terminal: bool,
    bars: MultiProgress,
    bar: ProgressBar,
    run: Progress,
    /// Of the estimate, of all that is over.
    past: Seconds,
    total: Seconds,
    /// Estimate of what is going on, and when it began.
    now: (Seconds, Moment),
    /// Which run of how many.
    number: usize,
    count: usize,
    /// Runs that came to their end.
    pub(super) whole: usize,
    /// How bytes are moved, as it was said last.
    engine: String,
}

impl Whole {
    pub(super) fn new(on_a_terminal: bool, total: Seconds, count: usize) -> Self {
        let target = match on_a_terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bars = MultiProgress::with_draw_target(target);
        let bar = bars.add(ProgressBar::new((total.0 * 1e3) as u64));
        let style = ProgressStyle::with_template("  [{bar:20}] {wide_msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("##."));
        }
        let run = Progress::among(&bars, &[]);
        let now = (Seconds(0.0), SystemClock.now());
        let (past, engine) = (Seconds(0.0), String::new());
        Self { on_a_terminal, bars, bar, run, past, total, now, number: 0, count, whole: 0, engine }
    }

    pub(super) fn say(&self, text: &str) {
        if self.on_a_terminal {
            let _ = self.bars.println(text);
        } else {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// A run of about so long begins.
    pub(super) fn begin(&mut self, name: &str, (time, legs): (Seconds, &[Profile])) {
        self.run.end();
        self.number += 1;
        self.now = (time, SystemClock.now());
        self.run = Progress::among(&self.bars, legs);
        self.show(&format!("{}/{} {name}", self.number, self.count));
    }

    pub(super) fn take(&mut self, what: &What) {
        match opened(what) {
            Some(text) if text == self.engine => {}
            Some(text) => {
                self.say(&text);
                self.engine = text;
            }
            None => self.run.take(what),
        }
        self.advance();
    }

    /// What a run says that isn't a worker's.
    pub(super) fn hear(&mut self, text: String) {
        self.run.say(text);
        self.advance();
    }

    fn advance(&self) {
        let (planned, began) = self.now;
        let elapsed = SystemClock.now().since(began).0.min(planned.0);
        self.bar.set_position(((self.past.0 + elapsed) * 1e3) as u64);
    }

    /// Something that was part of the estimate is over.
    pub(super) fn passed(&mut self, planned: Seconds) {
        self.past.0 += planned.0;
        self.bar.set_position((self.past.0 * 1e3) as u64);
    }

    pub(super) fn done(&mut self, name: &str, run: Option<&Run>, is_whole: bool) {
        self.whole += usize::from(is_whole);
        self.passed(self.now.0);
        let facts = run.map(|run| &run.facts);
        let show = |facts: &Facts, (value, unit): (f64, Unit)| match facts.is_link() {
            true => Rate(value).bits(),
            false => unit.show(value),
        };
        let rate = facts.and_then(|facts| Some(show(facts, result(facts)?)));
        let latency = facts.and_then(|facts| facts.latency_p50_seconds);
        let latency = latency.map_or(String::new(), |p50| format!(", p50 {p50}"));
        let rate = rate.unwrap_or_else(|| "no result".into());
        self.say(&format!("{}/{}  {name}: {rate}{latency}", self.number, self.count));
    }

    fn show(&self, text: &str) {
        let left = Seconds((self.total.0 - self.past.0).max(0.0).ceil());
        let left = humantime::format_duration(left.duration());
        self.bar.set_message(format!("{text}, about {left} left"));
    }

    pub(super) fn end(&self) {
        self.run.end();
        self.bar.finish_and_clear();
    }
}
