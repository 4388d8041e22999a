//! The control connection's bytes: cookie, states, and messages behind their length. Pure.

use std::fmt;

pub const COOKIE_BYTES: usize = 37;
/// Stock servers since 3.18 take 8 KiB.
pub const PARAMETERS_BYTES_MAX: usize = 64 << 10;
/// 256 streams are about 50 KiB; a peer's own output may be embedded.
pub const RESULTS_BYTES_MAX: usize = 4 << 20;
pub const STREAMS_MAX: usize = 128;
pub const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// 36 printable characters and a NUL that name a test, on every connection of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl fmt::Debug for Cookie {
    /// Who has the cookie can join the test: it isn't for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(..)")
    }
}

impl Cookie {
    /// From as many random bytes, by the alphabet that stock peers use.
    pub fn from_random(random: [u8; COOKIE_BYTES - 1]) -> Self {
        const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut bytes = [0; COOKIE_BYTES];
        for (byte, random) in bytes.iter_mut().zip(random) {
            *byte = ALPHABET[usize::from(random % 32)];
        }
        Self(bytes)
    }

    /// `None` for what no iperf3 sends: another protocol's first bytes. Up to 3.1 a cookie holds
    /// host name and time and may be short of 36 characters, so that any text before a NUL will do.
    pub fn read(bytes: &[u8; COOKIE_BYTES]) -> Option<Self> {
        let end = bytes.iter().position(|b| *b == 0)?;
        let text = &bytes[..end];
        (end >= 8 && text.iter().all(u8::is_ascii_graphic)).then_some(Self(*bytes))
    }

    pub fn bytes(&self) -> &[u8; COOKIE_BYTES] {
        &self.0
    }
}

/// One signed byte on the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    TestStart,
    TestRunning,
    TestEnd,
    ParamExchange,
    CreateStreams,
    ServerTerminate,
    ClientTerminate,
    ExchangeResults,
    DisplayResults,
    Done,
    /// Busy; or the wrong cookie on a data connection.
    AccessDenied,
    /// Two big-endian words may follow.
    ServerError,
}

impl State {
    pub const ALL: [State; 12] = [
        State::TestStart,
        State::TestRunning,
        State::TestEnd,
        State::ParamExchange,
        State::CreateStreams,
        State::ServerTerminate,
        State::ClientTerminate,
        State::ExchangeResults,
        State::DisplayResults,
        State::Done,
        State::AccessDenied,
        State::ServerError,
    ];

    pub fn byte(self) -> u8 {
        match self {
            State::TestStart => 1,
            State::TestRunning => 2,
            State::TestEnd => 4,
            State::ParamExchange => 9,
            State::CreateStreams => 10,
            State::ServerTerminate => 11,
            State::ClientTerminate => 12,
            State::ExchangeResults => 13,
            State::DisplayResults => 14,
            State::Done => 16,
            State::AccessDenied => 0xff,
            State::ServerError => 0xfe,
        }
    }

    /// `None` for bytes that nobody sends: another protocol answers there.
    pub fn read(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.byte() == byte)
    }
}

/// The protocol's own numbers for what went wrong (`i_errno`), as far as they are sent or matter.
pub mod code {
    pub const DURATION: i32 = 5;
    pub const STREAMS: i32 = 6;
    pub const BLOCK: i32 = 7;
    pub const UNIMPLEMENTED: i32 = 13;
    pub const TOTAL_RATE: i32 = 27;
    pub const MAX_DURATION: i32 = 37;
    pub const MESSAGE: i32 = 110;
    pub const RECEIVE_PARAMETERS: i32 = 114;
    pub const RECEIVE_RESULTS: i32 = 117;
    /// Stock clients say of it that the server is busy.
    pub const ACCESS_DENIED: i32 = 121;
    pub const BUFFER: i32 = 141;
    pub const AUTHORISATION: i32 = 142;
    pub const NO_DATA: i32 = 144;
    pub const EXPIRED: i32 = 160;
    pub const STREAM: i32 = 200;
    pub const ACCEPT: i32 = 204;
}

/// SERVER_ERROR with its two words.
pub fn server_error(code: i32) -> [u8; 9] {
    let mut bytes = [0; 9];
    bytes[0] = State::ServerError.byte();
    bytes[1..5].copy_from_slice(&code.to_be_bytes());
    bytes
}

/// A message behind its length, as one piece.
pub fn framed(json: &str) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(4 + json.len());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(json.as_bytes());
    bytes
}

/// A message longer than its reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    pub length: usize,
    pub most: usize,
}

/// Bytes that arrived and were not asked for yet. How they were cut on the way makes no difference:
/// states, lengths and bodies come apart or together.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
}

impl Inbox {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.rest().len()
    }

    pub fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// The next `N` bytes once they are there.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let found = *self.rest().first_chunk::<N>()?;
        self.taken += N;
        Some(found)
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// The next message once it is whole.
    ///
    /// # Errors
    /// As soon as its length says that it is over `most` bytes long: nothing of it is kept.
    pub fn message(&mut self, most: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let Some((length, body)) = self.rest().split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > most {
            return Err(TooLong { length, most });
        }
        let Some(body) = body.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.taken += 4 + length;
        Ok(Some(body))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// Case 118, a real server's bytes: states one by one, two in a segment, JSON with a state behind.
    fn server_bytes() -> Vec<u8> {
        hex(include_str!(
            "../../tests/fixtures/cases/118-iperf-control-framing.input-server-stream.hex"
        ))
    }

    /// What a client takes from it, with the bytes pushed in the pieces given.
    fn taken(pieces: &[&[u8]]) -> (Vec<u8>, usize) {
        let mut inbox = Inbox::default();
        let (mut states, mut length) = (Vec::new(), 0);
        for piece in pieces {
            inbox.push(piece);
            loop {
                if states.last() == Some(&13) && length == 0 {
                    let Some(message) = inbox.message(RESULTS_BYTES_MAX).unwrap() else { break };
                    length = message.len();
                } else {
                    let Some(byte) = inbox.byte() else { break };
                    states.push(byte);
                }
            }
        }
        (states, length)
    }

    #[test]
    fn every_chunking_of_a_real_conversation_reads_the_same() {
        let bytes = server_bytes();
        let right = (vec![9, 10, 1, 2, 13, 14], 323);
        assert_eq!(taken(&[&bytes]), right);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(taken(&single), right);
    }

    #[test]
    fn states_have_the_bytes_of_the_protocol() {
        for (state, byte) in [
            (State::TestStart, 0x01),
            (State::TestRunning, 0x02),
            (State::TestEnd, 0x04),
            (State::ParamExchange, 0x09),
            (State::CreateStreams, 0x0a),
            (State::ServerTerminate, 0x0b),
            (State::ClientTerminate, 0x0c),
            (State::ExchangeResults, 0x0d),
            (State::DisplayResults, 0x0e),
            (State::Done, 0x10),
            (State::AccessDenied, 0xff),
            (State::ServerError, 0xfe),
        ] {
            assert_eq!((state.byte(), State::read(byte)), (byte, Some(state)));
        }
        for unused in [0, 3, 5, 6, 7, 8, 15, b'H', 0x16] {
            assert_eq!(State::read(unused), None, "{unused}");
        }
    }

    #[test]
    fn the_busy_word_and_the_error_words_are_those_of_stock_servers() {
        assert_eq!(server_error(code::BUFFER), [0xfe, 0, 0, 0, 0x8d, 0, 0, 0, 0]);
        assert_eq!(server_error(code::TOTAL_RATE), [0xfe, 0, 0, 0, 27, 0, 0, 0, 0]);
        assert_eq!(State::AccessDenied.byte(), 0xff);
    }

    #[test]
    fn a_cookie_is_36_characters_and_a_nul() {
        let cookie = Cookie::from_random(std::array::from_fn(|i| i as u8 * 7));
        let (text, end) = cookie.bytes().split_at(36);
        assert!(text.iter().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(b)));
        assert_eq!(end, [0]);
        assert_eq!(Cookie::read(cookie.bytes()), Some(cookie.clone()));
        assert_eq!(format!("{cookie:?}"), "Cookie(..)");
        // Up to 3.1: host name, seconds, microseconds, then what was in the buffer.
        let mut old = [0; 37];
        old[..35].copy_from_slice(b"node-1.1669800000.123456.123a4b5c6d");
        assert!(Cookie::read(&old).is_some());
    }

    #[test]
    fn other_protocols_are_no_cookie() {
        let first_37 = |bytes: &[u8]| {
            let mut cookie = [0xaa; 37];
            let n = bytes.len().min(37);
            cookie[..n].copy_from_slice(&bytes[..n]);
            cookie
        };
        let http = first_37(b"GET / HTTP/1.1\r\nHost: storage-1:5201\r\nUser-Agent: x\r\n\r\n");
        let tls = first_37(&hex("16030100f8010000f40303 5a1b 00"));
        let iperf2 = first_37(&hex("00000000 00000001 00001451 00000000 00000000 fffffc18"));
        let ssh = first_37(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n");
        for bytes in [http, tls, iperf2, ssh, [0; 37], [b'a'; 37]] {
            assert_eq!(Cookie::read(&bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn an_oversized_message_is_refused_by_its_length_alone() {
        let mut inbox = Inbox::default();
        inbox.push(&[0, 1, 0, 1]);
        let fault = TooLong { length: 65537, most: PARAMETERS_BYTES_MAX };
        assert_eq!(inbox.message(PARAMETERS_BYTES_MAX), Err(fault));
        let mut inbox = Inbox::default();
        inbox.push(b"HTTP");
        assert!(inbox.message(RESULTS_BYTES_MAX).is_err());
    }

    #[test]
    fn a_length_is_big_endian() {
        assert_eq!(framed("{}"), [0, 0, 0, 2, b'{', b'}']);
        let mut inbox = Inbox::default();
        inbox.push(&framed(&"x".repeat(0x90)));
        assert_eq!(inbox.rest()[..4], [0, 0, 0, 0x90]);
    }

    proptest! {
        #[test]
        fn any_cut_reads_the_same(cuts in prop::collection::vec(0usize..400, 0..20)) {
            let bytes = server_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c % bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(taken(&pieces), (vec![9, 10, 1, 2, 13, 14], 323));
        }

        #[test]
        fn any_bytes_are_survived_and_never_kept_twice(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..10),
            most in 0usize..100,
        ) {
            let mut inbox = Inbox::default();
            let mut pushed = 0;
            for piece in &pieces {
                inbox.push(piece);
                pushed += piece.len();
                if let Ok(Some(message)) = inbox.message(most) {
                    prop_assert!(message.len() <= most);
                }
                let _ = inbox.take::<COOKIE_BYTES>().map(|bytes| Cookie::read(&bytes));
                prop_assert!(inbox.len() <= pushed);
            }
        }
    }
}
