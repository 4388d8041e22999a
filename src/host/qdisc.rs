//! Root queueing disciplines by rtnetlink: what waits, is put back or dropped below the sockets.
//!
//! There is no file for this. RTM_GETQDISC dumps every qdisc of the network namespace; `mq` sums its
//! queues there (net/sched/sch_mq.c). TCA_STATS2 is read, not the older struct tc_stats.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// Queue of one interface's root qdisc. Counters are of 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub ifindex: u32,
    pub backlog_bytes: u32,
    pub drops: u32,
    pub requeues: u32,
}

// include/uapi/linux/netlink.h, rtnetlink.h, pkt_sched.h, gen_stats.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const ATTRIBUTE_TYPE: u16 = 0x3fff;
const HEADER_BYTES: usize = 16;
const TCMSG_BYTES: usize = 20;
/// A dump answers in pieces of at most this.
const PIECE_BYTES: usize = 64 << 10;
/// No host has so many pieces: an answer without an end is given up.
const PIECES_MAX: usize = 256;

/// An open socket to the kernel's routing tables.
#[derive(Debug)]
pub struct QdiscSocket(OwnedFd);

impl QdiscSocket {
    /// # Errors
    /// Where the sandbox knows no netlink.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // Protocol 0 is NETLINK_ROUTE.
        Ok(Self(socket_with(family, kind, flags, None)?))
    }

    /// The root queues of this network namespace.
    ///
    /// # Errors
    /// The kernel's, or `InvalidData` for an answer without an end.
    pub fn dump(&self) -> io::Result<Vec<Queue>> {
        sendto(&self.0, &request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut buffer = vec![0; PIECE_BYTES];
        let mut queues = Vec::new();
        for _ in 0..PIECES_MAX {
            let (length, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            if parse(buffer.get(..length).unwrap_or_default(), &mut queues)? {
                return Ok(queues);
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "an answer without an end"))
    }
}

fn request() -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + TCMSG_BYTES);
    message.extend(((HEADER_BYTES + TCMSG_BYTES) as u32).to_ne_bytes());
    message.extend(RTM_GETQDISC.to_ne_bytes());
    message.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    message.resize(HEADER_BYTES + TCMSG_BYTES, 0);
    message
}

/// Adds the root queues of one piece; true when it was the last.
fn parse(mut piece: &[u8], queues: &mut Vec<Queue>) -> io::Result<bool> {
    while let Some(length) = u32_at(piece, 0).map(|n| n as usize) {
        if length < HEADER_BYTES || length > piece.len() {
            break;
        }
        let body = &piece[HEADER_BYTES..length];
        match u16_at(piece, 4) {
            Some(NLMSG_DONE) => return Ok(true),
            Some(NLMSG_ERROR) => {
                let errno = u32_at(body, 0).unwrap_or(0) as i32;
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            Some(RTM_NEWQDISC) => queues.extend(root_queue(body)),
            _ => {}
        }
        piece = piece.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
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

/// The content of the first attribute of a type.
fn attribute(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(list, 0)?);
        let content = list.get(4..length)?;
        if u16_at(list, 2)? & ATTRIBUTE_TYPE == wanted {
            return Some(content);
        }
        list = list.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attr(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut out = ((content.len() + 4) as u16).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(content);
        out.resize(out.len().next_multiple_of(4), 0);
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

    #[test]
    fn only_root_queues_are_taken_and_the_end_is_seen() {
        let piece = [
            message(RTM_NEWQDISC, 2, TC_H_ROOT, &stats([3, 4500, 6, 7, 0])),
            message(RTM_NEWQDISC, 2, 0x10001, &stats([1, 1, 1, 1, 1])),
            message(RTM_NEWQDISC, 3, TC_H_ROOT, &attr(1, b"noqueue\0")),
            message(NLMSG_DONE, 0, 0, &[]),
        ]
        .concat();
        let mut queues = Vec::new();
        assert!(parse(&piece, &mut queues).unwrap());
        let queue = Queue { ifindex: 2, backlog_bytes: 4500, drops: 6, requeues: 7 };
        assert_eq!(queues, [queue]);
    }

    #[test]
    fn the_kernels_refusal_is_an_error() {
        let mut refusal = message(NLMSG_ERROR, 0, 0, &[]);
        refusal[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&(-1i32).to_ne_bytes());
        let error = parse(&refusal, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1));
    }

    #[test]
    fn this_kernel_answers_to_the_end() {
        let Ok(socket) = QdiscSocket::open() else { return };
        socket.dump().unwrap();
        socket.dump().unwrap();
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(piece in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut queues = Vec::new();
            let _ = parse(&piece, &mut queues);
            prop_assert!(queues.len() <= piece.len() / HEADER_BYTES);
        }
    }
}
