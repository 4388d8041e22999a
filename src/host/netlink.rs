//! Questions to the kernel's network layer, and the form of its answers (man 7 netlink, rtnetlink): it
//! speaks of the network namespace that this process is in.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

// include/uapi/linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
/// Also of a question with one answer: an error of 0 follows it.
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const ATTRIBUTE_TYPE: u16 = 0x3fff;
pub(super) const HEADER_BYTES: usize = 16;
/// A dump answers in pieces of at most this.
const PIECE_BYTES: usize = 64 << 10;
/// No host has so many pieces: an answer without an end is given up.
const PIECES_MAX: usize = 256;

/// A socket to the kernel.
#[derive(Debug)]
pub(super) struct Netlink(OwnedFd);

pub(super) struct Question<'a> {
    /// `RTM_GET...`.
    pub(super) kind: u16,
    /// All there are, else the one that `body` describes.
    pub(super) all: bool,
    /// The struct that belongs to the kind, and attributes.
    pub(super) body: &'a [u8],
}

impl Netlink {
    /// # Errors
    /// Where the sandbox knows no netlink.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // Protocol 0 is NETLINK_ROUTE.
        Ok(Self(socket_with(family, kind, flags, None)?))
    }

    /// Hands over the body of each message of the answer.
    ///
    /// # Errors
    /// The kernel's, or `InvalidData` for an answer without an end.
    pub(super) fn ask(
        &self,
        question: &Question<'_>,
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        let address = SocketAddrNetlink::new(0, 0);
        sendto(&self.0, &written(question), SendFlags::empty(), &address)?;
        let mut buffer = vec![0; PIECE_BYTES];
        for _ in 0..PIECES_MAX {
            let (length, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            if messages(buffer.get(..length).unwrap_or_default(), each)? {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "an answer without an end"))
    }
}

fn written(question: &Question<'_>) -> Vec<u8> {
    let how = if question.all { NLM_F_DUMP } else { NLM_F_ACK };
    let length = HEADER_BYTES + question.body.len();
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(question.kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | how).to_ne_bytes());
    message.resize(HEADER_BYTES, 0);
    message.extend(question.body);
    message
}

/// The bodies in one piece of an answer; true when it was the last piece.
pub(super) fn messages(mut piece: &[u8], each: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
    while let Some(length) = u32_at(piece, 0).map(|n| n as usize) {
        if length < HEADER_BYTES || length > piece.len() {
            break;
        }
        let body = &piece[HEADER_BYTES..length];
        match u16_at(piece, 4) {
            Some(NLMSG_DONE) => return Ok(true),
            Some(NLMSG_ERROR) => return refusal(body).map_or(Ok(true), Err),
            _ => each(body),
        }
        piece = piece.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// An error of 0 is none, but the end of an answer.
fn refusal(body: &[u8]) -> Option<io::Error> {
    let errno = u32_at(body, 0).unwrap_or(0) as i32;
    (errno != 0).then(|| io::Error::from_raw_os_error(errno.saturating_neg()))
}

/// The content of the first attribute of a type.
pub(super) fn attribute(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(list, 0)?);
        let content = list.get(4..length)?;
        if u16_at(list, 2)? & ATTRIBUTE_TYPE == wanted {
            return Some(content);
        }
        list = list.get(length.next_multiple_of(4)..)?;
    }
}

/// Adds an attribute.
pub(super) fn push_attribute(list: &mut Vec<u8>, kind: u16, content: &[u8]) {
    list.extend(((content.len() + 4) as u16).to_ne_bytes());
    list.extend(kind.to_ne_bytes());
    list.extend(content);
    list.resize(list.len().next_multiple_of(4), 0);
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut out = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.resize(HEADER_BYTES, 0);
        out.extend(body);
        out
    }

    #[test]
    fn an_answer_ends_with_done_or_with_no_error() {
        for end in [message(NLMSG_DONE, &[]), message(NLMSG_ERROR, &[0; 20])] {
            let mut bodies = Vec::new();
            let piece = [message(36, b"one."), end, message(36, b"two.")].concat();
            assert!(messages(&piece, &mut |body| bodies.push(body.to_vec())).unwrap());
            assert_eq!(bodies, [b"one."]);
        }
        assert!(!messages(&message(36, b"one."), &mut |_| {}).unwrap());
    }

    #[test]
    fn the_kernels_refusal_is_an_error() {
        let piece = message(NLMSG_ERROR, &(-1i32).to_ne_bytes());
        let error = messages(&piece, &mut |_| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1));
    }

    #[test]
    fn an_attribute_is_found_behind_others() {
        let mut list = Vec::new();
        push_attribute(&mut list, 1, b"odd");
        push_attribute(&mut list, 4, &7_u32.to_ne_bytes());
        assert_eq!(attribute(&list, 4).and_then(|content| u32_at(content, 0)), Some(7));
        assert_eq!((attribute(&list, 1), attribute(&list, 9)), (Some(b"odd".as_slice()), None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(piece in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut count = 0;
            let _ = messages(&piece, &mut |_| count += 1);
            prop_assert!(count <= piece.len() / HEADER_BYTES);
            let _ = attribute(&piece, 1);
        }
    }
}
