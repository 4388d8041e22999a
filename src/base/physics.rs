//! What wires and spindles can do at best, from their numbers alone. Rates are real numbers in bytes
//! or operations a second.

use serde::{Deserialize, Serialize};

use super::units::{Bytes, Rate, Seconds};

/// IPv4 and TCP headers with timestamps (RFC 791, RFC 9293, RFC 7323).
const HEADERS_BYTES: u32 = 52;
/// Ethernet header, checksum, preamble and gap (IEEE 802.3).
pub const FRAME_BYTES: u32 = 38;
/// Seconds of a long seek and of a short one, read with the least and the most that ordering the
/// queue gains.
const SEEK_LONG: f64 = 0.012;
const SEEK_SHORT: f64 = 0.004;
const ORDER_LEAST: f64 = 0.75;
const ORDER_MOST: f64 = 4.0;
/// Blocks above this take noticeably longer to pass under the head than to find.
const TRANSFER_FROM: Bytes = Bytes(64 << 10);
/// A number is round when two digits tell it, this closely.
const ROUND_SHARE: f64 = 0.003;

/// A path's packets: what a link's line rate is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Framing {
    /// Of the wire itself; an overlay's packets are smaller by its own headers.
    #[serde(rename = "mtu_bytes")]
    pub mtu: u32,
    /// Bytes that the overlay adds to each packet.
    #[serde(rename = "encapsulation_bytes")]
    pub encapsulation: u32,
    /// 802.1Q tags on the wire.
    pub tags: u32,
    /// IP and TCP headers of the payload's own packet.
    #[serde(rename = "headers_bytes")]
    pub headers: u32,
    /// What the rate is spent on beside each packet: 38 on a wire, less where a shaper counts.
    #[serde(rename = "frame_bytes")]
    pub frame: u32,
}

impl Default for Framing {
    /// IPv4 with timestamps on plain Ethernet.
    fn default() -> Self {
        let (headers, frame) = (HEADERS_BYTES, FRAME_BYTES);
        Framing { mtu: 1500, encapsulation: 0, tags: 0, headers, frame }
    }
}

impl Framing {
    /// The same path with packets of so much payload, as TCP cuts it.
    #[must_use]
    pub fn with_payload(self, segment: Bytes) -> Framing {
        let segment = u32::try_from(segment.0).unwrap_or(u32::MAX);
        let mtu = segment.saturating_add(self.headers).saturating_add(self.encapsulation);
        Framing { mtu, ..self }
    }
}

/// TCP payload that a line of `line_rate` carries; `None` where a packet holds nothing.
pub fn goodput(line_rate: Rate, framing: Framing) -> Option<Rate> {
    let payload = payload(framing)?.0 as f64;
    let wire = f64::from(framing.mtu) + f64::from(framing.frame) + 4.0 * f64::from(framing.tags);
    Some(Rate(line_rate.0 * payload / wire))
}

/// TCP payload of one packet, for turning bytes into segments.
pub fn payload(framing: Framing) -> Option<Bytes> {
    let payload = framing.mtu.checked_sub(framing.encapsulation)?.checked_sub(framing.headers)?;
    Some(Bytes(u64::from(payload))).filter(|bytes| bytes.0 > 0)
}

/// Operations a second between a spindle's worst and its best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    pub low: f64,
    pub high: f64,
}

impl Band {
    pub fn times(self, n: f64) -> Band {
        Band { low: self.low * n, high: self.high * n }
    }
}

/// Random operations a second of one spindle. Blocks above 64 KiB add the time of their transfer at
/// `bandwidth`.
pub fn spindle_band(rpm: f64, block: Bytes, bandwidth: Rate) -> Band {
    let long = block > TRANSFER_FROM && bandwidth.0 > 0.0;
    let transfer = if long { block.0 as f64 / bandwidth.0 } else { 0.0 };
    let half_turn = 30.0 / rpm.max(1.0);
    Band {
        low: ORDER_LEAST / (SEEK_LONG + half_turn + transfer),
        high: ORDER_MOST / (SEEK_SHORT + half_turn + transfer),
    }
}

/// How an array keeps its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Parity {
    #[default]
    None,
    Mirror,
    Single,
    Double,
}

impl Parity {
    /// Disk operations that one small write costs.
    pub fn write_penalty(self) -> f64 {
        match self {
            Parity::None => 1.0,
            Parity::Mirror => 2.0,
            Parity::Single => 4.0,
            Parity::Double => 6.0,
        }
    }
}

/// How many spindles' worth of random operations a set of them gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub devices: f64,
    pub outstanding: f64,
    /// Share of writes, 0 to 1.
    pub writes: f64,
    /// Disk operations a write costs, copies on other hosts included.
    pub penalty: f64,
}

impl Spread {
    /// min(devices, outstanding) / ((1 - w) + w x penalty).
    pub fn spindles(self) -> f64 {
        let writes = self.writes.clamp(0.0, 1.0);
        self.devices.min(self.outstanding) / write_factor(writes, self.penalty.max(1.0))
    }
}

/// What an operation costs on average where a share of `writes` costs `penalty` each, and a read 1.
pub fn write_factor(writes: f64, penalty: f64) -> f64 {
    (1.0 - writes) + writes * penalty
}

/// Little's law: the time one of `in_flight` takes at `rate`; `None` where nothing moves.
pub fn latency_of(in_flight: f64, rate: f64) -> Option<Seconds> {
    let seconds = in_flight / rate;
    (rate > 0.0 && seconds.is_finite()).then_some(Seconds(seconds))
}

/// Bytes a second that one stream of `window` gets over a round trip.
pub fn window_rate(window: Bytes, round_trip: Seconds) -> Option<Rate> {
    let rate = window.0 as f64 / round_trip.0;
    (round_trip.0 > 0.0 && rate.is_finite()).then_some(Rate(rate))
}

/// Whether two digits and zeros say `value`, within 0.3 %: what a person sets a limit to.
pub fn is_round(value: f64) -> bool {
    if !value.is_finite() || value < 10.0 {
        return false;
    }
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    let nearest = (value / unit).round() * unit;
    (value / nearest - 1.0).abs() <= ROUND_SHARE
}

/// As [`is_round`] of a rate in bytes, in MB or in MiB.
pub fn is_round_rate(rate: Rate) -> bool {
    [1e6, (1_u64 << 20) as f64].into_iter().any(|unit| is_round(rate.0 / unit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIGABIT: Rate = Rate(125e6);

    /// Mbit/s to two digits, as the tables of the field give them.
    fn mbit(line: f64, mtu: u32, encapsulation: u32, tags: u32) -> String {
        let framing = Framing { mtu, encapsulation, tags, ..Framing::default() };
        let rate = goodput(Rate(line * 125e6), framing).unwrap();
        format!("{:.2}", rate.0 * 8.0 / 1e6)
    }

    #[test]
    fn goodput_is_that_of_the_worked_tables() {
        for (line, mtu, encapsulation, tags, expected) in [
            (1.0, 1500, 0, 0, "941.48"),
            (1.0, 1500, 42, 0, "914.17"),
            (1.0, 1500, 50, 0, "908.97"),
            (1.0, 1500, 58, 0, "903.77"),
            (1.0, 1500, 0, 1, "939.04"),
            (1.0, 1500, 50, 1, "906.61"),
            (1.0, 1500, 58, 1, "901.43"),
            (1.0, 9000, 0, 0, "990.04"),
            (1.0, 9000, 42, 0, "985.39"),
            (1.0, 9000, 50, 1, "984.07"),
            (10.0, 1500, 0, 0, "9414.82"),
            (10.0, 1500, 50, 0, "9089.73"),
            (10.0, 1500, 58, 0, "9037.71"),
            (10.0, 9000, 0, 0, "9900.42"),
            (10.0, 9000, 50, 0, "9845.10"),
            (10.0, 9000, 58, 0, "9836.25"),
            (25.0, 1500, 0, 0, "23537.06"),
        ] {
            assert_eq!(mbit(line, mtu, encapsulation, tags), expected, "{mtu} {encapsulation}");
        }
        let none = Framing { mtu: 60, encapsulation: 50, ..Framing::default() };
        assert_eq!((goodput(GIGABIT, none), payload(none)), (None, None));
    }

    /// `(packet, overlay, headers, Mbit/s)`: IPv6 inside, outside, and where there are no timestamps.
    #[test]
    fn other_headers_leave_what_the_table_says() {
        for (mtu, encapsulation, headers, expected) in [
            (1500, 0, 72, "928.48"),
            (1500, 50, 72, "895.97"),
            (1500, 70, 52, "895.97"),
            (1550, 50, 52, "911.84"),
            (1558, 58, 52, "907.27"),
            (9000, 0, 72, "987.83"),
            (1500, 0, 40, "949.28"),
            (1500, 50, 40, "916.78"),
            (9000, 50, 40, "985.84"),
        ] {
            let framing = Framing { mtu, encapsulation, headers, ..Framing::default() };
            let rate = goodput(GIGABIT, framing).unwrap();
            assert_eq!(format!("{:.2}", rate.0 * 8.0 / 1e6), expected, "{framing:?}");
            let again = Framing { mtu: 9, ..framing }.with_payload(payload(framing).unwrap());
            assert_eq!(again, framing);
        }
    }

    #[test]
    fn a_shaper_that_counts_frames_only_gives_what_a_wire_would() {
        let shaper = Framing { encapsulation: 50, frame: 14, ..Framing::default() };
        let rate = goodput(Rate(984_395e3 / 8.0), shaper).unwrap();
        assert_eq!(format!("{:.2}", rate.0 * 8.0 / 1e6), "908.97");
    }

    #[test]
    fn a_gigabit_is_112_mebibytes() {
        let rate = goodput(GIGABIT, Framing::default()).unwrap();
        assert_eq!(format!("{:.1}", rate.0 / f64::from(1 << 20)), "112.2");
    }

    #[test]
    fn spindles_are_as_fast_as_the_table_says() {
        let band = |rpm| {
            let Band { low, high } = spindle_band(rpm, Bytes(4096), Rate(150e6));
            (low.round(), high.round())
        };
        assert_eq!(band(7200.0), (46.0, 490.0));
        assert_eq!(band(15_000.0), (54.0, 667.0));
        let large = spindle_band(7200.0, Bytes(1 << 20), Rate(100e6));
        assert!(large.high < 4.0 / 0.018 && large.high > 4.0 / 0.019);
    }

    #[test]
    fn writes_cost_what_the_array_makes_of_them() {
        let spread = |writes, penalty| {
            Spread { devices: 12.0, outstanding: 32.0, writes, penalty }.spindles()
        };
        assert_eq!(spread(0.0, Parity::Double.write_penalty()), 12.0);
        assert_eq!(spread(1.0, Parity::Double.write_penalty()), 2.0);
        assert_eq!(spread(1.0, Parity::Single.write_penalty()), 3.0);
        assert_eq!(spread(1.0, 3.0 * Parity::Mirror.write_penalty()), 2.0);
        assert_eq!(
            Spread { devices: 12.0, outstanding: 1.0, writes: 0.0, penalty: 1.0 }.spindles(),
            1.0
        );
    }

    #[test]
    fn a_window_over_a_round_trip_is_a_rate() {
        let rate = window_rate(Bytes(512 << 10), Seconds(0.004)).unwrap();
        assert_eq!(format!("{:.1}", rate.0 * 8.0 / 1e6), "1048.6");
        assert_eq!(window_rate(Bytes(1), Seconds(0.0)), None);
        assert_eq!(latency_of(8.0, 4000.0), Some(Seconds(0.002)));
        assert_eq!(latency_of(8.0, 0.0), None);
        // Case 114: a volume held at 500/s, one and 32 in flight.
        let held = [1.0, 32.0].map(|in_flight| latency_of(in_flight, 500.0));
        assert_eq!(held, [Some(Seconds(0.002)), Some(Seconds(0.064))]);
        // Case 109: three copies, each written to a journal on the same disks first.
        assert_eq!(1000.0 * write_factor(1.0, 3.0 * 2.0), 6000.0);
    }

    #[test]
    fn limits_that_people_set_are_round() {
        for round in [300.0, 500.0, 1500.0, 2999.0, 3008.0, 16_000.0, 100.2, 10.0] {
            assert!(is_round(round), "{round}");
        }
        for odd in [304.0, 1530.0, 3012.0, 9.0, 0.0, f64::NAN, f64::INFINITY] {
            assert!(!is_round(odd), "{odd}");
        }
        assert!(is_round_rate(Rate(125.2e6)) == is_round(125.2));
        assert!(is_round_rate(Rate(120.0 * 1048576.0)) && is_round_rate(Rate(250e6)));
    }

    proptest! {
        #[test]
        fn faster_lines_and_larger_packets_never_carry_less(
            line in 1e6..1e11, mtu in 600u32..9000, more in 1u32..500, encapsulation in 0u32..100,
        ) {
            let of = |line: f64, mtu| {
                let framing = Framing { mtu, encapsulation, ..Framing::default() };
                goodput(Rate(line), framing).unwrap().0
            };
            prop_assert!(of(line * 1.01, mtu) > of(line, mtu));
            prop_assert!(of(line, mtu + more) > of(line, mtu));
            prop_assert!(of(line, mtu) < line);
        }

        #[test]
        fn more_spindles_never_give_less(devices in 1.0..100.0f64, outstanding in 1.0..256.0f64,
                                         writes in 0.0..1.0f64, penalty in 1.0..18.0f64) {
            let of = |devices| Spread { devices, outstanding, writes, penalty }.spindles();
            prop_assert!(of(devices + 1.0) >= of(devices));
            prop_assert!(of(devices) <= devices);
        }

        #[test]
        fn any_number_can_be_asked(value in any::<f64>()) {
            let _ = (is_round(value), is_round_rate(Rate(value)), latency_of(value, value));
            let band = spindle_band(value, Bytes(1 << 20), Rate(value));
            prop_assert!(band.low <= band.high || value.is_nan());
        }
    }
}
