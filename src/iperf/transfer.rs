//! The part of a test in which bytes move, the same on both ends: streams, the omitted time,
//! intervals, and what was counted in the end.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::control::Broken;
use super::report::stream_ids;
use super::stream::{Gate, Sample, Stream};
use super::totals::{Total, Totals};
use crate::base::clock::monotonic;
use crate::base::units::{Bytes, Seconds};
use crate::host::sys;
use crate::model::link::{LinkCpu, LinkDirection, LinkInterval, LinkRtt, LinkTick};
use crate::model::spread::ProcessUse;

/// How often each sender's round-trip time is asked for.
const RTT_EVERY: Duration = Duration::from_millis(100);
const INTERVAL: Duration = Duration::from_secs(1);
/// A last interval shorter than this says nothing and is left out; the totals have its bytes.
const INTERVAL_LEAST: Duration = Duration::from_millis(100);

const SWEEP_MOST: Duration = Duration::from_millis(200);

/// What moves, and until when.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Per direction.
    pub streams: usize,
    pub direction: LinkDirection,
    /// This end opened the connections.
    pub is_client: bool,
    pub block: u64,
    pub omit: Duration,
    /// This end sends no more than this once the omitted time is over.
    pub bytes_max: Option<u64>,
}

impl Plan {
    /// Number and direction of each connection, in the order of their making: in both directions
    /// at once the client sends on the first half.
    fn lanes(&self) -> Vec<(u32, bool)> {
        let client_sends = |n: usize| match self.direction {
            LinkDirection::Forward => true,
            LinkDirection::Reverse => false,
            LinkDirection::Both => n < self.streams,
        };
        let all = (0..self.connections()).map(|n| client_sends(n) == self.is_client);
        stream_ids().zip(all).collect()
    }

    pub(super) fn connections(&self) -> usize {
        self.streams * if self.direction == LinkDirection::Both { 2 } else { 1 }
    }
}

/// Bytes on the move.
pub(super) struct Transfer {
    gate: Arc<Gate>,
    streams: Vec<Stream>,
    plan: Plan,
    began: Duration,
    /// From here on it counts; `None` in the omitted time.
    counts_from: Option<Duration>,
    base: Vec<Sample>,
    interval: Edge,
    next_rtt: Duration,
    /// Microseconds.
    rtts: Histogram<u64>,
    used_before: ProcessUse,
}

/// Where the running interval began.
struct Edge {
    at: Duration,
    samples: Vec<Sample>,
}

impl Transfer {
    pub(super) fn start(plan: Plan, sockets: Vec<TcpStream>) -> io::Result<Self> {
        let gate = Arc::new(Gate::new()?);
        let used_before = sys::usage();
        if let (Some(bytes), true) = (plan.bytes_max, plan.omit.is_zero()) {
            gate.bound(bytes);
        }
        let rtts = Histogram::new_with_bounds(1, 60_000_000, 2).map_err(io::Error::other)?;
        let began = monotonic();
        let streams = plan
            .lanes()
            .into_iter()
            .zip(sockets)
            .map(|(lane, socket)| Stream::start(lane, socket, plan.block, &gate))
            .collect::<io::Result<Vec<_>>>()?;
        let base: Vec<_> =
            streams.iter().map(|stream| Sample { bytes: Bytes(0), ..stream.sample() }).collect();
        Ok(Self {
            gate,
            interval: Edge { at: began, samples: base.clone() },
            counts_from: plan.omit.is_zero().then_some(began),
            streams,
            plan,
            began,
            base,
            next_rtt: began + RTT_EVERY,
            rtts,
            used_before,
        })
    }

    /// Since the start, the omitted time included.
    pub(super) fn elapsed(&self) -> Duration {
        monotonic().saturating_sub(self.began)
    }

    /// Does what is due; an interval that ended is returned.
    pub(super) fn tick(&mut self) -> Option<LinkInterval> {
        let now = monotonic();
        if now >= self.next_rtt {
            self.next_rtt = now + RTT_EVERY;
            self.take_rtts();
        }
        if self.counts_from.is_none() && now >= self.began + self.plan.omit {
            return Some(self.begin_to_count());
        }
        (now >= self.interval.at + INTERVAL).then(|| self.end_interval())
    }

    /// Until the next [`Transfer::tick`] has something to do.
    pub(super) fn patience(&self) -> Duration {
        let mut next = self.next_rtt.min(self.interval.at + INTERVAL);
        if self.counts_from.is_none() {
            next = next.min(self.began + self.plan.omit);
        }
        next.saturating_sub(monotonic())
    }

    fn take_rtts(&mut self) {
        if self.counts_from.is_none() {
            return;
        }
        let samples = self.streams.iter().filter(|s| s.sends).map(Stream::sample);
        for rtt in samples.filter_map(|sample| sample.info.rtt) {
            self.rtts.saturating_record((rtt.0 * 1e6) as u64);
        }
    }

    /// The omitted time is over: everything starts at nothing.
    fn begin_to_count(&mut self) -> LinkInterval {
        let last = self.end_interval();
        self.used_before = sys::usage();
        self.base.clone_from(&self.interval.samples);
        self.counts_from = Some(self.interval.at);
        if let Some(bytes) = self.plan.bytes_max {
            self.gate.bound(bytes);
        }
        last
    }

    /// The interval since the last one.
    fn end_interval(&mut self) -> LinkInterval {
        let (now, samples) = (monotonic(), self.samples());
        let phase = self.counts_from.unwrap_or(self.began);
        let since = |at: Duration| Seconds::from(at.saturating_sub(phase));
        let tick = |((stream, sample), last): ((&Stream, &Sample), &Sample)| {
            let info = sample.info.since(&last.info);
            LinkTick {
                id: stream.id,
                sends: stream.sends,
                bytes: Bytes(sample.bytes.0.saturating_sub(last.bytes.0)),
                retransmits: info.retransmits,
                congestion_window: info.congestion_window,
                rtt: info.rtt,
            }
        };
        let interval = LinkInterval {
            start: since(self.interval.at),
            end: since(now),
            omitted: self.counts_from.is_none(),
            streams: self
                .streams
                .iter()
                .zip(&samples)
                .zip(&self.interval.samples)
                .map(tick)
                .collect(),
        };
        self.interval = Edge { at: now, samples };
        interval
    }

    fn samples(&self) -> Vec<Sample> {
        self.streams.iter().map(Stream::sample).collect()
    }

    /// Why a stream ended before the test did.
    pub(super) fn broken(&self) -> Option<Broken> {
        self.streams.iter().find_map(Stream::ended)
    }

    /// Counted bytes that arrived here.
    pub(super) fn received(&self) -> u64 {
        if self.counts_from.is_none() {
            return 0;
        }
        let received = |(stream, base): (&Stream, &Sample)| {
            if stream.sends { 0 } else { stream.bytes().0.saturating_sub(base.bytes.0) }
        };
        self.streams.iter().zip(&self.base).map(received).sum()
    }

    /// Bytes of both directions, the omitted ones too.
    pub(super) fn moved(&self) -> u64 {
        self.streams.iter().map(|stream| stream.bytes().0).sum()
    }

    /// All that may be sent was sent, and the peer's kernel has it.
    pub(super) fn is_delivered(&self) -> bool {
        let mut senders = self.streams.iter().filter(|stream| stream.sends);
        self.gate.is_spent() && senders.all(|s| s.sample().info.in_flight.is_none_or(|n| n == 0))
    }

    /// Ends the counting. Receivers go on reading: a peer that still sends must not be reset.
    pub(super) fn stop(&mut self) -> (Totals, Option<LinkInterval>) {
        self.gate.stop();
        self.streams.iter_mut().filter(|stream| stream.sends).for_each(Stream::join);
        self.totals()
    }

    /// Ends the counting after what has arrived by now, once the peer stopped sending.
    pub(super) fn sweep(&mut self) -> (Totals, Option<LinkInterval>) {
        self.streams.iter().for_each(Stream::no_more);
        let begun = monotonic();
        // A peer that goes on sending would be counted for ever; closing ends it.
        while monotonic() < begun + SWEEP_MOST
            && self.streams.iter().any(|stream| !stream.sends && !stream.is_finished())
        {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.stop()
    }

    fn totals(&mut self) -> (Totals, Option<LinkInterval>) {
        self.take_rtts();
        let now = monotonic();
        let whole = now.saturating_sub(self.interval.at) >= INTERVAL_LEAST
            || self.interval.at == self.counts_from.unwrap_or(self.began);
        let last = whole.then(|| self.end_interval());
        let samples = self.samples();
        let total = |((stream, sample), base): ((&Stream, &Sample), &Sample)| Total {
            id: stream.id,
            sends: stream.sends,
            bytes: Bytes(sample.bytes.0.saturating_sub(base.bytes.0)),
            info: sample.info.since(&base.info),
        };
        let time = now.saturating_sub(self.counts_from.unwrap_or(now)).into();
        let totals = Totals {
            time,
            cpu: self.cpu(time),
            streams: self.streams.iter().zip(&samples).zip(&self.base).map(total).collect(),
            rtt: self.rtt(&samples),
            congestion: self.streams.first().and_then(Stream::congestion),
        };
        (totals, last)
    }

    /// Of the counted `time`.
    fn cpu(&self, time: Seconds) -> LinkCpu {
        let used = sys::usage().since(&self.used_before);
        let share = |cpu: Seconds| if time.0 > 0.0 { cpu.0 / time.0 } else { 0.0 };
        let (user, system) = (share(used.user), share(used.system));
        LinkCpu { total: user + system, user, system }
    }

    fn rtt(&self, samples: &[Sample]) -> Option<LinkRtt> {
        if self.rtts.is_empty() {
            return None;
        }
        // The connection's least, which knows no omitted time.
        let whole = self.plan.omit.is_zero();
        let least = samples.iter().filter_map(|sample| sample.info.rtt_min.filter(|_| whole));
        let at = |q: f64| Seconds(self.rtts.value_at_quantile(q) as f64 / 1e6);
        let smoothed = Seconds(self.rtts.min() as f64 / 1e6);
        let min = least.fold(smoothed, |a, b| if b.0 < a.0 { b } else { a });
        Some(LinkRtt { min, median: at(0.5), p99: at(0.99) })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::info::Info;
    use super::*;

    fn sending(omit: Duration) -> (Transfer, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let plan = Plan {
            streams: 1,
            direction: LinkDirection::Forward,
            is_client: true,
            block: 4096,
            omit,
            bytes_max: Some(1),
        };
        (Transfer::start(plan, vec![near]).unwrap(), far)
    }

    fn used() -> f64 {
        let ProcessUse { user, system, .. } = sys::usage();
        user.0 + system.0
    }

    fn work() {
        let begun = used();
        while used() < begun + 0.02 {
            std::hint::black_box((0..10_000u64).fold(1, |a, b| a ^ b.wrapping_mul(a)));
        }
    }

    #[test]
    fn cpu_time_of_the_omitted_time_is_left_out() {
        let idle = || std::thread::park_timeout(Duration::from_millis(20));
        for counted in [work, idle] {
            let (mut transfer, _far) = sending(Duration::from_millis(1));
            work();
            let before = used();
            assert!(transfer.tick().unwrap().omitted);
            let from = used();
            counted();
            let until = used();
            let totals = transfer.stop().0;
            let spent = totals.cpu.total * totals.time.0;
            assert!(spent >= until - from, "{spent} s: less than in the counted time");
            assert!(spent <= used() - before, "{spent} s: more than in the counted time");
        }
    }

    #[test]
    fn the_least_round_trip_is_the_connections_only_where_nothing_is_omitted() {
        for (omit, least) in [(Duration::ZERO, 0.001), (Duration::from_millis(1), 0.005)] {
            let (mut transfer, _far) = sending(omit);
            transfer.rtts.record(5000).unwrap();
            let info = Info { rtt_min: Some(Seconds(0.001)), ..Info::default() };
            let rtt = transfer.rtt(&[Sample { info, ..Sample::default() }]).unwrap();
            assert!((rtt.min.0 - least).abs() < 1e-4, "{omit:?}: {rtt:?}");
        }
    }
}
