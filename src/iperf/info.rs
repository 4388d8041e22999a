//! `struct tcp_info` (include/uapi/linux/tcp.h): what the kernel knows of a connection it sends on.

use std::os::fd::AsFd;

use crate::base::counter::step64;
use crate::base::units::{Bytes, Seconds};
use crate::host::sys;

/// More than any kernel returns: 6.18 gives 280.
const ROOM: usize = 512;

/// Counts since the connection began, and values of now. `None` where the kernel is too old.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Info {
    pub retransmits: Option<u64>,
    pub bytes_sent: Option<u64>,
    pub bytes_retransmitted: Option<u64>,
    pub busy: Option<Seconds>,
    pub rwnd_limited: Option<Seconds>,
    pub sndbuf_limited: Option<Seconds>,
    /// Smoothed.
    pub rtt: Option<Seconds>,
    pub rtt_min: Option<Seconds>,
    pub mss: Option<Bytes>,
    pub congestion_window: Option<Bytes>,
    /// Bytes not sent yet, and segments not acknowledged.
    pub in_flight: Option<u64>,
}

impl Info {
    pub(super) fn of(socket: impl AsFd) -> std::io::Result<Self> {
        let mut bytes = [0; ROOM];
        let length = sys::tcp_info(socket.as_fd(), &mut bytes)?;
        Ok(Self::read(bytes.get(..length).unwrap_or_default()))
    }

    fn read(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let four = bytes.get(at..)?.first_chunk::<4>()?;
            Some(u64::from(u32::from_ne_bytes(*four)))
        };
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk::<8>()?));
        let micros = |n: u64| Seconds(n as f64 / 1e6);
        let mss = word(16).filter(|n| *n > 0);
        Self {
            mss: mss.map(Bytes),
            rtt: word(68).filter(|n| *n > 0).map(micros),
            congestion_window: word(80).zip(mss).map(|(segments, mss)| Bytes(segments * mss)),
            retransmits: word(100),
            in_flight: word(24).zip(word(144)).map(|(unacked, unsent)| unacked + unsent),
            // All ones until the first sample.
            rtt_min: word(148).filter(|n| *n > 0 && *n < u64::from(u32::MAX)).map(micros),
            busy: long(168).map(micros),
            rwnd_limited: long(176).map(micros),
            sndbuf_limited: long(184).map(micros),
            bytes_sent: long(200),
            bytes_retransmitted: long(208),
        }
    }

    /// What was counted since `base`; what isn't a count is of now.
    #[must_use]
    pub(super) fn since(&self, base: &Info) -> Info {
        let count = |now: Option<u64>, then: Option<u64>| step64(then?, now?).grown();
        let time = |now: Option<Seconds>, then: Option<Seconds>| {
            Some(Seconds((now?.0 - then?.0).max(0.0)))
        };
        Info {
            retransmits: count(self.retransmits, base.retransmits),
            bytes_sent: count(self.bytes_sent, base.bytes_sent),
            bytes_retransmitted: count(self.bytes_retransmitted, base.bytes_retransmitted),
            busy: time(self.busy, base.busy),
            rwnd_limited: time(self.rwnd_limited, base.rwnd_limited),
            sndbuf_limited: time(self.sndbuf_limited, base.sndbuf_limited),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn known() -> [u8; 216] {
        let mut bytes = [0; 216];
        let mut put = |at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        for (at, value) in [(16, 1448), (68, 1500), (80, 10), (100, 7), (148, 900), (200, 5)] {
            put(at, value);
        }
        bytes
    }

    #[test]
    fn an_old_kernels_fields_are_absent_and_not_zero() {
        let whole = Info::read(&known());
        assert_eq!((whole.retransmits, whole.mss), (Some(7), Some(Bytes(1448))));
        assert_eq!((whole.rtt, whole.rtt_min), (Some(Seconds(0.0015)), Some(Seconds(0.0009))));
        assert_eq!(whole.congestion_window, Some(Bytes(14480)));
        assert_eq!(whole.bytes_sent, Some(5));
        // Linux 2.6 ends with total_retrans.
        let old = Info::read(&known()[..104]);
        assert_eq!((old.retransmits, old.rtt), (Some(7), Some(Seconds(0.0015))));
        assert_eq!(
            (old.rtt_min, old.busy, old.bytes_sent, old.in_flight),
            (None, None, None, None)
        );
        assert_eq!(Info::read(&[]), Info::default());
    }

    #[test]
    fn no_sample_of_the_round_trip_is_no_time() {
        let mut bytes = known();
        bytes[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[68..72].copy_from_slice(&[0; 4]);
        let info = Info::read(&bytes);
        assert_eq!((info.rtt, info.rtt_min), (None, None));
    }

    #[test]
    fn counts_are_since_the_omitted_time() {
        let base = Info { retransmits: Some(5), bytes_sent: Some(100), ..Info::default() };
        let now = Info { retransmits: Some(7), bytes_sent: None, ..Info::default() };
        let since = now.since(&base);
        assert_eq!((since.retransmits, since.bytes_sent), (Some(2), None));
    }

    #[test]
    fn this_kernel_counts_what_was_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
        let info = Info::of(&near).unwrap();
        assert_eq!(info.bytes_sent, Some(5000));
        assert!(info.mss.is_some() && info.rtt.is_some() && info.retransmits.is_some());
    }
}
