//! Root queueing disciplines by rtnetlink: what waits, is put back or dropped below the sockets.
//!
//! There is no file for this. RTM_GETQDISC dumps every qdisc of the network namespace; `mq` sums its
//! queues there (net/sched/sch_mq.c). TCA_STATS2 is read, not the older struct tc_stats.

use std::io;

use super::netlink::{Netlink, Question, attribute, u16_at, u32_at};
use crate::base::units::Rate;

/// Queue of one interface's root qdisc. Counters are of 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub ifindex: u32,
    pub backlog_bytes: u32,
    pub drops: u32,
    pub requeues: u32,
}

/// A token bucket as root qdisc: what an interface sends at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBucket {
    pub rate: Rate,
    /// Counted for each frame beside its bytes: `overhead` of tc.
    pub overhead: u16,
}

// include/uapi/linux/rtnetlink.h, pkt_sched.h, gen_stats.h
const RTM_GETQDISC: u16 = 38;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCMSG_BYTES: usize = 20;

/// An open socket to the kernel's routing tables.
#[derive(Debug)]
pub struct QdiscSocket(Netlink);

impl QdiscSocket {
    /// # Errors
    /// Where the sandbox knows no netlink.
    pub fn open() -> io::Result<Self> {
        Ok(Self(Netlink::open()?))
    }

    /// The root queues of this network namespace.
    ///
    /// # Errors
    /// The kernel's, or `InvalidData` for an answer without an end.
    pub fn dump(&self) -> io::Result<Vec<Queue>> {
        let mut queues = Vec::new();
        self.0.ask(&QDISCS, &mut |body| queues.extend(root_queue(body)))?;
        Ok(queues)
    }
}

const QDISCS: Question<'_> = Question { kind: RTM_GETQDISC, all: true, body: &[0; TCMSG_BYTES] };

/// The token bucket at the root of an interface of this network namespace, if it has one.
///
/// # Errors
/// As [`QdiscSocket::dump`].
pub(super) fn token_bucket(socket: &Netlink, ifindex: u32) -> io::Result<Option<TokenBucket>> {
    let mut found = None;
    let mut look = |body: &[u8]| {
        if u32_at(body, 4) == Some(ifindex) && u32_at(body, 12) == Some(TC_H_ROOT) {
            found = found.or(bucket(body));
        }
    };
    socket.ask(&QDISCS, &mut look)?;
    Ok(found)
}

/// `struct tc_tbf_qopt` begins with `struct tc_ratespec`: its overhead is at 2, its rate at 8. A rate
/// that needs more than 32 bits has its own attribute.
fn bucket(body: &[u8]) -> Option<TokenBucket> {
    let attributes = body.get(TCMSG_BYTES..)?;
    if attribute(attributes, TCA_KIND)? != b"tbf\0" {
        return None;
    }
    let options = attribute(attributes, TCA_OPTIONS)?;
    let spec = attribute(options, TCA_TBF_PARMS)?;
    let wide = attribute(options, TCA_TBF_RATE64).and_then(|content| content.first_chunk());
    let rate = match wide {
        Some(wide) => u64::from_ne_bytes(*wide) as f64,
        None => f64::from(u32_at(spec, 8)?),
    };
    (rate > 0.0).then_some(TokenBucket { rate: Rate(rate), overhead: u16_at(spec, 2)? })
}

/// The queue in one message, if it is a root's and says what it holds.
fn root_queue(body: &[u8]) -> Option<Queue> {
    let (ifindex, parent) = (u32_at(body, 4)?, u32_at(body, 12)?);
    let stats = attribute(body.get(TCMSG_BYTES..)?, TCA_STATS2)?;
    let queue = attribute(stats, TCA_STATS_QUEUE)?;
    let number = |at| u32_at(queue, at);
    (parent == TC_H_ROOT).then_some(Queue {
        ifindex,
        backlog_bytes: number(4)?,
        drops: number(8)?,
        requeues: number(12)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::netlink::{HEADER_BYTES, messages, push_attribute};
    use super::*;

    fn attr(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_attribute(&mut out, kind, content);
        out
    }

    fn message(kind: u16, ifindex: u32, parent: u32, attributes: &[u8]) -> Vec<u8> {
        let length = HEADER_BYTES + TCMSG_BYTES + attributes.len();
        let mut out = (length as u32).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.resize(HEADER_BYTES + 4, 0);
        for word in [ifindex, 0, parent, 0] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(attributes);
        out
    }

    fn stats(words: [u32; 5]) -> Vec<u8> {
        let queue: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let inner = [attr(1, &[0; 16]), attr(TCA_STATS_QUEUE, &queue)].concat();
        [attr(1, b"fq_codel\0"), attr(TCA_STATS2 | 0x8000, &inner)].concat()
    }

    const RTM_NEWQDISC: u16 = 36;

    fn tbf(rate: u32, overhead: u16, wide: Option<u64>) -> Vec<u8> {
        let mut spec = vec![0; 36];
        spec[2..4].copy_from_slice(&overhead.to_ne_bytes());
        spec[8..12].copy_from_slice(&rate.to_ne_bytes());
        let mut options = attr(TCA_TBF_PARMS, &spec);
        options
            .extend(wide.map(|rate| attr(TCA_TBF_RATE64, &rate.to_ne_bytes())).unwrap_or_default());
        let attributes = [attr(TCA_KIND, b"tbf\0"), attr(TCA_OPTIONS, &options)].concat();
        message(RTM_NEWQDISC, 2, TC_H_ROOT, &attributes)[HEADER_BYTES..].to_vec()
    }

    #[test]
    fn only_root_queues_are_taken() {
        let piece = [
            message(RTM_NEWQDISC, 2, TC_H_ROOT, &stats([3, 4500, 6, 7, 0])),
            message(RTM_NEWQDISC, 2, 0x10001, &stats([1, 1, 1, 1, 1])),
            message(RTM_NEWQDISC, 3, TC_H_ROOT, &attr(1, b"noqueue\0")),
        ]
        .concat();
        let mut queues = Vec::new();
        assert!(!messages(&piece, &mut |body| queues.extend(root_queue(body))).unwrap());
        let queue = Queue { ifindex: 2, backlog_bytes: 4500, drops: 6, requeues: 7 };
        assert_eq!(queues, [queue]);
    }

    #[test]
    fn a_token_bucket_says_its_rate_however_wide() {
        let of = |rate, overhead| Some(TokenBucket { rate: Rate(rate), overhead });
        assert_eq!(bucket(&tbf(123_049_375, 24, None)), of(123_049_375.0, 24));
        assert_eq!(bucket(&tbf(u32::MAX, 0, Some(12_500_000_000))), of(12.5e9, 0));
        assert_eq!(bucket(&tbf(0, 0, None)), None);
        let other = [attr(TCA_KIND, b"fq\0"), attr(TCA_OPTIONS, &[0; 40])].concat();
        assert_eq!(bucket(&message(RTM_NEWQDISC, 2, TC_H_ROOT, &other)[HEADER_BYTES..]), None);
    }

    #[test]
    fn this_kernel_answers_to_the_end() {
        let Ok(socket) = QdiscSocket::open() else { return };
        socket.dump().unwrap();
        socket.dump().unwrap();
        assert_eq!(token_bucket(&socket.0, u32::MAX).unwrap(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(body in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = (root_queue(&body), bucket(&body));
        }

        #[test]
        fn a_spoilt_token_bucket_has_a_rate_or_none(at: usize, byte: u8) {
            let mut body = tbf(125_000_000, 24, Some(125_000_000));
            let at = at % body.len();
            body[at] = byte;
            prop_assert!(bucket(&body).is_none_or(|bucket| bucket.rate.0 > 0.0));
        }
    }
}
