//! Floor 6: a snapshot as text for Prometheus and as a page for people.

pub mod metrics;
pub mod page;
mod phrase;
pub mod reference;
pub mod report;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::base::clock::Moment;
use crate::base::units::Seconds;
use crate::judge::families;
use crate::model::metric::{Desc, Point};
use crate::model::snapshot::Snapshot;
use crate::probe;

/// A snapshot older than this many sampling periods is no longer served as true.
const STALE_PERIODS: u32 = 3;

static STALE: Desc = Desc::gauge(
    "loadline_snapshot_stale",
    &[],
    "Whether the last snapshot is older than three sampling periods and is therefore withheld, 0 or 1",
    "age of the snapshot at the request",
);

/// What this floor adds to a snapshot's own points.
pub static DESCS: &[&Desc] = &[&STALE];

/// The one place where lanes put what they know and where requests find it.
pub struct Published {
    current: Mutex<Current>,
    ready: AtomicBool,
    complained: AtomicBool,
}

struct Current {
    period: Duration,
    shown: Arc<Shown>,
}

/// A snapshot with what was made of it so far: nothing is rendered before somebody asks.
#[derive(Default)]
struct Shown {
    snapshot: Arc<Snapshot>,
    fresh: Views,
    stale: Views,
}

#[derive(Default)]
struct Views {
    metrics: OnceLock<Bytes>,
    gzip: OnceLock<Bytes>,
    page: OnceLock<Bytes>,
}

/// Bytes ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    pub bytes: Bytes,
    pub gzip: bool,
}

impl Published {
    /// Holds an empty snapshot, which is stale; `period` is the sampling period.
    pub fn new(period: Seconds) -> Self {
        let current = Current { period: period.duration(), shown: Arc::default() };
        Self {
            current: Mutex::new(current),
            ready: AtomicBool::new(false),
            complained: AtomicBool::new(false),
        }
    }

    /// Replaces what is published; requests that are being answered keep the old one.
    pub fn publish(&self, snapshot: Snapshot) {
        if !snapshot.points.is_empty() {
            self.ready.store(true, Ordering::Release);
        }
        let shown = Shown { snapshot: Arc::new(snapshot), ..Shown::default() };
        self.lock().shown = Arc::new(shown);
    }

    /// The sampling period changes when the configuration is read anew.
    pub fn set_period(&self, period: Seconds) {
        self.lock().period = period.duration();
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.lock().shown.snapshot)
    }

    /// True from the first snapshot on that held a reading.
    pub fn ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Text format 0.0.4 as of `now`; a stale snapshot gives only what loadline says of itself.
    pub fn metrics(&self, now: Moment, gzip: bool) -> Body {
        let (shown, stale) = self.at(now);
        let views = shown.views(stale);
        let plain = views.metrics.get_or_init(|| self.render(&shown.snapshot, stale));
        if !gzip {
            return Body { bytes: plain.clone(), gzip: false };
        }
        Body { bytes: views.gzip.get_or_init(|| compress(plain)).clone(), gzip: true }
    }

    /// The page for people, HTML. Ages on it are as of the snapshot.
    pub fn page(&self, now: Moment) -> Bytes {
        let (shown, stale) = self.at(now);
        let page = || Bytes::from(page::render(&shown.snapshot, stale));
        shown.views(stale).page.get_or_init(page).clone()
    }

    fn render(&self, snapshot: &Snapshot, stale: bool) -> Bytes {
        let flag = Point::number(&STALE, &[], f64::from(u8::from(stale)));
        let points: &[Point] = if stale { &[] } else { &snapshot.points };
        let probes = if stale { Vec::new() } else { probe_points(snapshot) };
        let ceilings: &[Arc<Vec<Point>>] = if stale { &[] } else { &snapshot.ceilings };
        let ceilings = ceilings.iter().flat_map(|points| points.iter());
        let all = snapshot.itself.iter().chain(points).chain(ceilings).chain(&probes);
        let all = all.chain([&flag]);
        let exposition = metrics::render(all);
        if let Some(example) = &exposition.refused.example
            && !self.complained.swap(true, Ordering::Relaxed)
        {
            let refused = &exposition.refused;
            tracing::warn!(
                duplicates = refused.duplicates,
                misfits = refused.misfits,
                not_finite = refused.not_finite,
                "series left out of /metrics, first {example}; this is said once"
            );
        }
        Bytes::from(exposition.text)
    }

    fn at(&self, now: Moment) -> (Arc<Shown>, bool) {
        let current = self.lock();
        // By the clock that goes on in suspend: a reading from before it is no longer true.
        let age = now.boot.saturating_sub(current.shown.snapshot.at.boot);
        (Arc::clone(&current.shown), age > current.period * STALE_PERIODS)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shown {
    fn views(&self, stale: bool) -> &Views {
        if stale { &self.stale } else { &self.fresh }
    }
}

/// Series of probes and their targets: made when somebody asks, not at each snapshot.
fn probe_points(snapshot: &Snapshot) -> Vec<Point> {
    let mut points = Vec::with_capacity(64 * snapshot.probes.len());
    for view in &snapshot.probes {
        probe::metrics::points(view, snapshot.at, &mut points);
        families::verdict(view, snapshot.at, &mut points);
    }
    for link in &snapshot.links {
        probe::throughput::metrics::points(link, snapshot.at, &mut points);
        families::link_verdict(link, snapshot.at, &mut points);
    }
    for target in &snapshot.targets {
        probe::metrics::target_points(target, &mut points);
    }
    points
}

fn compress(plain: &[u8]) -> Bytes {
    // Level 1: a tenth of the size for a third of the default level's time.
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 8 + 64), Compression::fast());
    // Writing to memory doesn't fail; if it did, an empty body would be a failed scrape, as it should.
    match encoder.write_all(plain).and_then(|()| encoder.finish()) {
        Ok(bytes) => Bytes::from(bytes),
        Err(_) => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::base::clock::{Clock, ManualClock};

    static READING: Desc = Desc::gauge("loadline_test_ratio", &[], "reading", "test");
    static ITSELF: Desc = Desc::gauge("loadline_sampler_up", &[], "itself", "test");

    fn published(clock: &ManualClock) -> Published {
        let published = Published::new(Seconds(1.0));
        published.publish(Snapshot {
            at: clock.now(),
            points: vec![Point::number(&READING, &[], 0.5)],
            itself: vec![Point::number(&ITSELF, &[], 1.0)],
            ..Snapshot::default()
        });
        published
    }

    fn text(published: &Published, clock: &ManualClock) -> String {
        String::from_utf8(published.metrics(clock.now(), false).bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_stale_snapshot_gives_only_what_loadline_says_of_itself() {
        let clock = ManualClock::starting_at(1_000_000);
        let published = published(&clock);
        clock.advance(Duration::from_secs(3));
        let fresh = text(&published, &clock);
        assert!(fresh.contains("loadline_test_ratio 0.5\n"));
        assert!(fresh.contains("loadline_snapshot_stale 0\n"));
        clock.advance(Duration::from_millis(1));
        let stale = text(&published, &clock);
        assert!(!stale.contains("loadline_test_ratio"));
        assert!(stale.contains("loadline_sampler_up 1\n"));
        assert!(stale.contains("loadline_snapshot_stale 1\n"));
    }

    #[test]
    fn a_reading_from_before_suspend_is_stale() {
        let clock = ManualClock::starting_at(1_000_000);
        let published = published(&clock);
        clock.suspend(Duration::from_secs(600));
        assert!(text(&published, &clock).contains("loadline_snapshot_stale 1\n"));
    }

    #[test]
    fn a_longer_period_makes_the_same_age_fresh() {
        let clock = ManualClock::starting_at(1_000_000);
        let published = published(&clock);
        clock.advance(Duration::from_secs(20));
        assert!(text(&published, &clock).contains("loadline_snapshot_stale 1\n"));
        published.set_period(Seconds(10.0));
        assert!(text(&published, &clock).contains("loadline_snapshot_stale 0\n"));
    }

    #[test]
    fn a_snapshot_is_rendered_once_per_state_and_not_before_it_is_asked_for() {
        let clock = ManualClock::starting_at(1_000_000);
        let published = published(&clock);
        assert!(published.lock().shown.fresh.metrics.get().is_none());
        let first = published.metrics(clock.now(), false).bytes;
        let again = published.metrics(clock.now(), false).bytes;
        assert_eq!(first.as_ptr(), again.as_ptr());
        let zipped = [(); 2].map(|()| published.metrics(clock.now(), true).bytes.as_ptr());
        assert_eq!(zipped[0], zipped[1]);
    }

    #[test]
    fn gzip_holds_the_same_text() {
        let clock = ManualClock::starting_at(1_000_000);
        let published = published(&clock);
        let body = published.metrics(clock.now(), true);
        assert!(body.gzip);
        let mut unpacked = String::new();
        flate2::read::GzDecoder::new(&body.bytes[..]).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, text(&published, &clock));
    }

    #[test]
    fn ready_with_the_first_reading_and_from_then_on() {
        let clock = ManualClock::starting_at(1_000_000);
        let empty = Published::new(Seconds(1.0));
        assert!(!empty.ready());
        empty.publish(Snapshot { at: clock.now(), ..Snapshot::default() });
        assert!(!empty.ready());
        let published = published(&clock);
        published.publish(Snapshot::default());
        assert!(published.ready());
    }

    #[test]
    fn nothing_published_yet_is_stale_and_parses() {
        let clock = ManualClock::starting_at(1_000_000);
        let text = text(&Published::new(Seconds(1.0)), &clock);
        assert!(text.ends_with("loadline_snapshot_stale 1\n"));
    }
}
