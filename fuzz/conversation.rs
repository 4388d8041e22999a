//! Both halves of a conversation with a peer that may say anything: the one entry of the fuzzer and
//! of the tests. The first byte cuts the rest into pieces.

use loadline::base::units::Seconds;
use loadline::iperf::parameters::Parameters;
use loadline::iperf::report::Report;
use loadline::iperf::wire::{
    BLOCK_BYTES_MAX, COOKIE_BYTES, Cookie, Inbox, PARAMETERS_BYTES_MAX, RESULTS_BYTES_MAX,
    STREAMS_MAX, State,
};

/// Reads `bytes` as a server and as a client would.
///
/// # Panics
/// Where a promise doesn't hold: how bytes were cut makes no difference, and what is accepted is
/// within its bounds.
pub(super) fn hold(bytes: &[u8]) {
    let Some((piece, said)) = bytes.split_first() else { return };
    let pieces: Vec<&[u8]> = said.chunks(usize::from(*piece).max(1)).collect();
    for half in [server, client] {
        assert_eq!(heard(&pieces, half), heard(&[said], half));
    }
}

/// What one half took from its inbox, in words; `None` when it awaits more.
type Half = fn(&mut Inbox, &[String]) -> Option<String>;

/// Ends where a half hangs up.
const OVER: &str = "over";

fn heard(pieces: &[&[u8]], half: Half) -> Vec<String> {
    let (mut inbox, mut heard) = (Inbox::default(), Vec::new());
    let mut pushed = 0;
    for piece in pieces {
        inbox.push(piece);
        pushed += piece.len();
        assert!(inbox.len() <= pushed);
        while heard.last().is_none_or(|last: &String| last != OVER) {
            let Some(next) = half(&mut inbox, &heard) else { break };
            heard.push(next);
        }
    }
    heard
}

fn server(inbox: &mut Inbox, heard: &[String]) -> Option<String> {
    Some(match heard.len() {
        0 => match Cookie::read(&inbox.take::<COOKIE_BYTES>()?) {
            Some(cookie) => format!("{:?}", cookie.bytes()),
            None => OVER.into(),
        },
        1 => match message(inbox, PARAMETERS_BYTES_MAX)? {
            Some(json) => parameters(&json),
            None => OVER.into(),
        },
        _ if heard.last().is_some_and(|last| last == "TestEnd") => results(inbox)?,
        _ => state(inbox)?,
    })
}

fn client(inbox: &mut Inbox, heard: &[String]) -> Option<String> {
    Some(match heard.last().map(String::as_str) {
        Some("ExchangeResults") => results(inbox)?,
        Some("ServerError") => format!("{:?}", inbox.take::<4>()?),
        _ => state(inbox)?,
    })
}

fn state(inbox: &mut Inbox) -> Option<String> {
    let byte = inbox.byte()?;
    let state = State::read(byte);
    assert!(state.is_none_or(|state| state.byte() == byte));
    Some(state.map_or(OVER.into(), |state| format!("{state:?}")))
}

/// The next message; `Some(None)` where it is too long.
fn message(inbox: &mut Inbox, most: usize) -> Option<Option<Vec<u8>>> {
    match inbox.message(most) {
        Ok(message) => {
            let message = message?;
            assert!(message.len() <= most);
            Some(Some(message))
        }
        Err(long) => {
            assert!(long.length > most);
            Some(None)
        }
    }
}

fn parameters(json: &[u8]) -> String {
    let Ok(asked) = Parameters::read(json) else { return OVER.into() };
    if asked.complaint(Seconds(60.0)).is_none() {
        assert!((1..=STREAMS_MAX as i64).contains(&asked.streams), "{asked:?}");
        assert!((0..=60).contains(&asked.time) && (0..=60).contains(&asked.omit), "{asked:?}");
        assert!((1..=BLOCK_BYTES_MAX).contains(&asked.block), "{asked:?}");
    }
    format!("{asked:?}")
}

fn results(inbox: &mut Inbox) -> Option<String> {
    let Some(json) = message(inbox, RESULTS_BYTES_MAX)? else { return Some(OVER.into()) };
    let Ok(report) = Report::read(&json) else { return Some(OVER.into()) };
    assert!(report.streams.len() <= 2 * STREAMS_MAX);
    let again = Report::read(report.write().as_bytes()).unwrap_or_default();
    let counts = |report: &Report| -> Vec<_> {
        report.streams.iter().map(|s| (s.id, s.bytes.0, s.retransmits)).collect()
    };
    assert_eq!(counts(&again), counts(&report), "what is written is read again");
    Some(format!("{:?}", counts(&report)))
}
