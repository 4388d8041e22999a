//! TCP of this network namespace: segments sent again, and why.
//!
//! Own parser: procfs-core wants every column of /proc/net/snmp and has no /proc/net/netstat.

use super::{Kind, Reading, Sampler, Tick};
use crate::base::clock::Moment;
use crate::base::counter::step64;
use crate::base::fault::Fault;
use crate::base::units::{Ratio, Seconds};
use crate::base::window::{Held, Span};
use crate::config::settings::SampleSettings;
use crate::host::links::net_directory;
use crate::host::roots::{KeptFile, Roots};
use crate::host::tcp::{Table, TcpCounters};
use crate::model::metric::{Desc, Label, push_some};

static RETRANSMITTED: Desc = Desc::counter(
    "loadline_tcp_retransmitted_segments_total",
    &[],
    "Segments sent again, SYN-ACKs included.",
    "/proc/net/snmp Tcp RetransSegs",
);
static ORIGINAL: Desc = Desc::counter(
    "loadline_tcp_original_segments_total",
    &[],
    "Segments with data sent for the first time; on kernels that don't count these, all segments \
     but retransmissions, pure acknowledgements included.",
    "/proc/net/netstat TcpExt TCPOrigDataSent, else /proc/net/snmp Tcp OutSegs",
);
static RATIO: Desc = Desc::gauge(
    "loadline_tcp_retransmit_ratio",
    &[],
    "Retransmitted / (original + retransmitted) segments of the last window; absent under 100.",
    "/proc/net/snmp, /proc/net/netstat",
);
static TIMEOUTS: Desc = Desc::counter(
    "loadline_tcp_timeouts_total",
    &[],
    "Retransmission timers that fired: severe loss, or loss at the end of a burst.",
    "/proc/net/netstat TcpExt TCPTimeouts",
);
static SPURIOUS_TIMEOUTS: Desc = Desc::counter(
    "loadline_tcp_spurious_timeouts_total",
    &[],
    "Timeouts that proved needless: the path was slow, not lossy.",
    "/proc/net/netstat TcpExt TCPSpuriousRTOs",
);
static LOST_RETRANSMITS: Desc = Desc::counter(
    "loadline_tcp_lost_retransmits_total",
    &[],
    "Retransmissions that were lost again.",
    "/proc/net/netstat TcpExt TCPLostRetransmit",
);
static SYN_RETRANSMITS: Desc = Desc::counter(
    "loadline_tcp_syn_retransmits_total",
    &[],
    "SYN and SYN-ACK segments sent again: peers that don't answer, or loss at the start.",
    "/proc/net/netstat TcpExt TCPSynRetrans",
);
static LISTEN_DROPS: Desc = Desc::counter(
    "loadline_tcp_listen_drops_total",
    &[],
    "Connections that a listener dropped: its queue was full, or worse.",
    "/proc/net/netstat TcpExt ListenDrops",
);

static RECEIVE_BUFFER_ERRORS: Desc = Desc::counter(
    "loadline_udp_receive_buffer_errors_total",
    &["ip"],
    "UDP datagrams dropped because a socket's buffer was full: the program reads too slowly. `ip` is \
     4 or 6; absent where the kernel has no such protocol.",
    "/proc/net/snmp Udp RcvbufErrors, /proc/net/snmp6 Udp6RcvbufErrors",
);

pub static KIND: Kind = Kind {
    name: "tcp",
    help: "TCP segments sent, sent again, and lost, over all connections; UDP datagrams dropped.",
    descs: &[
        &RETRANSMITTED,
        &ORIGINAL,
        &RATIO,
        &TIMEOUTS,
        &SPURIOUS_TIMEOUTS,
        &LOST_RETRANSMITS,
        &SYN_RETRANSMITS,
        &LISTEN_DROPS,
        &RECEIVE_BUFFER_ERRORS,
    ],
    open,
};

fn open(roots: &Roots, settings: &SampleSettings) -> Box<dyn Sampler> {
    let (directory, _) = net_directory(roots);
    Box::new(TcpSampler {
        snmp: KeptFile::new(roots.proc(directory).join("snmp")),
        netstat: KeptFile::new(roots.proc(directory).join("netstat")),
        snmp6: KeptFile::new(roots.proc(directory).join("snmp6")),
        every: Seconds(settings.every.0.max(ASK_EVERY_SECONDS)),
        read: None,
        counts_original: false,
        before: None,
        ratio: Held::default(),
    })
}

struct TcpSampler {
    snmp: KeptFile,
    /// Some sandboxes and old kernels have none.
    netstat: KeptFile,
    /// Missing where IP version 6 is off.
    snmp6: KeptFile,
    /// The wished length of a window.
    every: Seconds,
    /// What was read last, and when.
    read: Option<(Moment, Counted)>,
    /// This kernel counts original data: from then on nothing else passes for it.
    counts_original: bool,
    /// Retransmitted and original segments.
    before: Option<(Moment, u64, u64)>,
    /// `None` within: too few segments to tell.
    ratio: Held<Option<Ratio>>,
}

/// Fewer segments tell nothing of loss.
const SEGMENTS_MIN: u64 = 100;
/// The kernel sums over all its CPUs and prints ten thousand bytes for the nine numbers that are wanted,
/// a third of the work of a tick; and a ratio of five seconds has its hundred segments more often.
const ASK_EVERY_SECONDS: f64 = 5.0;
/// A tick that comes a little early is still the one in which to ask.
const EARLY: f64 = 0.9;

/// The counters of one reading.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    tcp: TcpCounters,
    original: Option<u64>,
    /// UDP's receive buffer errors, by version of IP.
    datagrams: [Option<u64>; 2],
}

impl TcpSampler {
    fn original(&mut self, counters: &TcpCounters) -> Option<u64> {
        self.counts_original |= counters.original_data_segments.is_some();
        if self.counts_original { counters.original_data_segments } else { counters.sent_segments }
    }

    fn window(&mut self, at: Moment, segments: Option<(u64, u64)>) {
        let Some((retransmitted, original)) = segments else {
            self.before = None;
            self.ratio.miss();
            return;
        };
        if let Some((then, retransmitted_before, original_before)) = self.before {
            let grown = step64(retransmitted_before, retransmitted)
                .grown()
                .zip(step64(original_before, original).grown());
            match (Span::between(then, at, self.every), grown) {
                (Span::Short, Some(_)) => return,
                (Span::Good(_), Some((again, first))) => {
                    let all = first.saturating_add(again);
                    let ratio = Ratio::of(again as f64, all as f64);
                    self.ratio.set(ratio.filter(|_| all >= SEGMENTS_MIN));
                }
                _ => self.ratio.miss(),
            }
        }
        self.before = Some((at, retransmitted, original));
    }
}

impl TcpSampler {
    fn ask(&mut self, at: Moment, out: &mut Reading) -> Result<Counted, Fault> {
        let (tcp, datagrams) = {
            let snmp = Table::parse(self.snmp.read()?);
            let netstat = self.netstat.read().map(Table::parse).unwrap_or_default();
            let snmp6 = self.snmp6.read().map(Table::parse_names).unwrap_or_default();
            out.rejected += snmp.rejected + netstat.rejected + snmp6.rejected;
            let datagrams =
                [snmp.count("Udp", "RcvbufErrors"), snmp6.count("Udp6", "RcvbufErrors")];
            (TcpCounters::from_tables(&snmp, &netstat), datagrams)
        };
        let original = self.original(&tcp);
        self.window(at, tcp.retransmitted_segments.zip(original));
        Ok(Counted { tcp, original, datagrams })
    }
}

impl Sampler for TcpSampler {
    fn read(&mut self, tick: Tick<'_>, out: &mut Reading) -> Result<(), Fault> {
        let holds = |(at, _): &(Moment, Counted)| tick.at.since(*at).0 < self.every.0 * EARLY;
        let Counted { tcp: counters, original, datagrams } = match self.read.filter(holds) {
            Some((_, counted)) => counted,
            None => {
                let counted = self.ask(tick.at, out)?;
                self.read = Some((tick.at, counted));
                counted
            }
        };
        for (desc, value) in [
            (&RETRANSMITTED, counters.retransmitted_segments),
            (&ORIGINAL, original),
            (&TIMEOUTS, counters.timeouts),
            (&SPURIOUS_TIMEOUTS, counters.spurious_timeouts),
            (&LOST_RETRANSMITS, counters.lost_retransmits),
            (&SYN_RETRANSMITS, counters.syn_retransmits),
            (&LISTEN_DROPS, counters.listen_drops),
        ] {
            push_some(&mut out.points, desc, &[], value.map(|n| n as f64));
        }
        for (ip, dropped) in ["4", "6"].into_iter().zip(datagrams) {
            let ip = [&Label::from(ip)];
            push_some(&mut out.points, &RECEIVE_BUFFER_ERRORS, &ip, dropped.map(|n| n as f64));
        }
        let ratio = self.ratio.get().copied().flatten();
        push_some(&mut out.points, &RATIO, &[], ratio.map(|r| r.0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::Rig;
    use super::*;
    use crate::base::fault::FaultKind;

    /// A host that is looked at as often as this sampler asks.
    fn slow(fill: impl FnOnce(&Rig)) -> Rig {
        let mut rig = Rig::new(fill);
        rig.step = Duration::from_secs(5);
        rig
    }

    fn snmp(rig: &Rig, retransmitted: u64, sent: u64) {
        let text = format!("Tcp: MaxConn OutSegs RetransSegs\nTcp: -1 {sent} {retransmitted}\n");
        rig.host.file("proc/1/net/snmp", text);
        rig.host.file("proc/1/net/dev", "");
    }

    fn netstat(rig: &Rig, original: u64) {
        let names = "TcpExt: ListenDrops TCPTimeouts TCPOrigDataSent";
        rig.host.file("proc/1/net/netstat", format!("{names}\nTcpExt: 5 6 {original}\n"));
    }

    #[test]
    fn the_ratio_is_of_data_and_not_of_acknowledgements() {
        let mut rig = slow(|rig| {
            snmp(rig, 10, 50_000);
            netstat(rig, 1000);
        });
        rig.open(&KIND);
        rig.tick();
        assert_eq!(rig.value(RATIO.name), None, "one sample is no window");
        snmp(&rig, 20, 90_000);
        netstat(&rig, 1190);
        rig.tick();
        assert_eq!(rig.value(RATIO.name), Some(0.05));
        assert_eq!(rig.value(ORIGINAL.name), Some(1190.0));
        assert_eq!(rig.value(LISTEN_DROPS.name), Some(5.0));
        assert_eq!(rig.value(SYN_RETRANSMITS.name), None, "this kernel has no such column");
    }

    #[test]
    fn case_064_without_ip_version_6_the_rest_is_there() {
        let mut rig = slow(|rig| snmp(rig, 1, 2));
        rig.open(&KIND);
        rig.tick();
        let dropped = |rig: &Rig, ip| rig.value_of(RECEIVE_BUFFER_ERRORS.name, ip);
        assert_eq!((dropped(&rig, "4"), dropped(&rig, "6"), rig.out.rejected), (None, None, 0));
        rig.host.file("proc/1/net/snmp6", "Ip6InReceives  \t1012\nUdp6RcvbufErrors  \t7\n");
        rig.tick();
        assert_eq!((dropped(&rig, "6"), rig.out.rejected), (Some(7.0), 0));
        rig.host.file("proc/1/net/snmp6", "Udp6RcvbufErrors  \t7\nUdp6InDatagrams 1");
        rig.tick();
        assert_eq!((dropped(&rig, "6"), rig.out.rejected), (Some(7.0), 1), "cut off in mid-line");
    }

    #[test]
    fn under_a_hundred_segments_there_is_no_ratio() {
        let mut rig = slow(|rig| snmp(rig, 0, 0));
        rig.open(&KIND);
        rig.tick();
        snmp(&rig, 50, 49);
        rig.tick();
        assert_eq!(rig.value(RATIO.name), None);
        snmp(&rig, 75, 124);
        rig.tick();
        assert_eq!(rig.value(RATIO.name), Some(0.25));
        assert_eq!(rig.value(ORIGINAL.name), Some(124.0), "OutSegs, where nothing else is counted");
    }

    #[test]
    fn a_counter_that_drops_is_a_reset_and_no_ratio() {
        let mut rig = slow(|rig| snmp(rig, 1000, 10_000));
        rig.open(&KIND);
        rig.tick();
        snmp(&rig, 3, 50);
        rig.tick();
        assert_eq!((rig.value(RATIO.name), rig.value(RETRANSMITTED.name)), (None, Some(3.0)));
        snmp(&rig, 53, 200);
        rig.tick();
        assert_eq!(rig.value(RATIO.name), Some(0.25));
    }

    #[test]
    fn a_netstat_that_fails_for_a_tick_is_not_replaced_by_another_counter() {
        let mut rig = slow(|rig| {
            snmp(rig, 0, 1000);
            netstat(rig, 10);
        });
        rig.open(&KIND);
        rig.tick();
        rig.host.file("proc/1/net/netstat", "TcpExt: A\nTcpExt: 1 2\n");
        rig.tick();
        assert_eq!(rig.value(ORIGINAL.name), None);
        assert_eq!(rig.out.rejected, 1);
    }

    #[test]
    fn a_ratio_leaves_after_three_windows_without_one() {
        let mut rig = slow(|rig| snmp(rig, 0, 0));
        rig.open(&KIND);
        rig.tick();
        snmp(&rig, 100, 100);
        rig.tick();
        for _ in 0..2 {
            rig.clock.suspend(std::time::Duration::from_secs(60));
            rig.tick();
            assert_eq!(rig.value(RATIO.name), Some(0.5));
        }
        rig.clock.suspend(std::time::Duration::from_secs(60));
        rig.tick();
        assert_eq!(rig.value(RATIO.name), None);
    }

    #[test]
    fn between_two_readings_the_last_one_stands() {
        let mut rig = Rig::new(|rig| snmp(rig, 1, 1000));
        rig.open(&KIND);
        rig.tick();
        snmp(&rig, 2, 2000);
        for _ in 0..4 {
            rig.tick();
            assert_eq!(rig.value(RETRANSMITTED.name), Some(1.0));
        }
        rig.tick();
        assert_eq!(rig.value(RETRANSMITTED.name), Some(2.0));
    }

    #[test]
    fn a_missing_file_is_a_fault_and_nothing_is_published() {
        let mut rig = slow(|_| ());
        rig.open(&KIND);
        let fault = rig.try_tick().unwrap_err();
        assert_eq!(fault.kind, FaultKind::Missing);
        assert!(rig.out.points.is_empty());
    }
}
