//! Lines on the pipes between daemon and worker: split, bounded, versioned.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use serde::Deserialize;

use crate::base::fault::{Fault, FaultKind};
use crate::model::job::{Event, Job, LINE_BYTES_MAX, WIRE_VERSION, What};

/// How much of a bad line a fault shows.
const SHOWN_CHARS_MAX: usize = 80;

/// Splits a stream of bytes into lines of at most [`LINE_BYTES_MAX`], newline included.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    taken: usize,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line, without its newline; `None` until more bytes come.
    pub(super) fn next(&mut self) -> Option<Result<&[u8], Fault>> {
        let rest = &self.buffer[self.taken..];
        let window = &rest[..rest.len().min(LINE_BYTES_MAX)];
        let Some(end) = window.iter().position(|b| *b == b'\n') else {
            return (window.len() == LINE_BYTES_MAX).then(|| Err(too_long()));
        };
        self.taken += end + 1;
        Some(Ok(&rest[..end]))
    }

    /// Bytes of a line that has no end yet.
    pub(super) fn is_partial(&self) -> bool {
        self.taken < self.buffer.len()
    }
}

fn too_long() -> Fault {
    Fault::new(FaultKind::Malformed, format!("worker: a line is over {LINE_BYTES_MAX} bytes"))
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// One event of a worker.
///
/// # Errors
/// `Unsupported` for another wire version, `Malformed` for anything else that isn't an event.
pub(super) fn decode_event(line: &[u8]) -> Result<What, Fault> {
    check_version(line)?;
    serde_json::from_slice::<Event>(line).map(|e| e.what).map_err(|e| malformed(line, &e))
}

/// The job on a worker's standard input; errors as [`decode_event`].
pub(super) fn decode_job(line: &[u8]) -> Result<Job, Fault> {
    check_version(line)?;
    serde_json::from_slice(line).map_err(|e| malformed(line, &e))
}

/// Looks at the version first: the rest of a foreign line may have any shape.
fn check_version(line: &[u8]) -> Result<(), Fault> {
    let version: Version = serde_json::from_slice(line).map_err(|e| malformed(line, &e))?;
    if version.v == WIRE_VERSION {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Unsupported,
        format!(
            "worker: the other side speaks wire version {}, this one {WIRE_VERSION}: \
             restart loadline to end the upgrade",
            version.v
        ),
    ))
}

fn malformed(line: &[u8], error: &serde_json::Error) -> Fault {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN_CHARS_MAX)]);
    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    Fault::new(FaultKind::Malformed, format!("worker: {error} in the line {shown:?}"))
}

/// One line for a worker.
///
/// # Errors
/// `Internal` where it doesn't fit.
pub(super) fn encode_job(job: &Job) -> Result<Vec<u8>, Fault> {
    encode(job, "job")
}

/// One line for the daemon; errors as [`encode_job`].
pub(super) fn encode_event(what: What) -> Result<Vec<u8>, Fault> {
    encode(&Event::new(what), "event")
}

fn encode(value: &impl serde::Serialize, name: &str) -> Result<Vec<u8>, Fault> {
    let internal = |text| Fault::new(FaultKind::Internal, text);
    let mut line =
        serde_json::to_vec(value).map_err(|e| internal(format!("worker: {name}: {e}")))?;
    line.push(b'\n');
    if line.len() > LINE_BYTES_MAX {
        let length = line.len();
        return Err(internal(format!(
            "worker: {name} of {length} bytes, a line holds {LINE_BYTES_MAX}"
        )));
    }
    Ok(line)
}

/// What came of one read or write that doesn't wait.
pub(super) enum Moved {
    Bytes(usize),
    /// Nothing now.
    Later,
    /// The other end is closed, or the pipe is broken.
    Closed,
}

pub(super) fn read_now(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Moved {
    match rustix::io::read(fd, buffer) {
        Ok(0) => Moved::Closed,
        result => moved(result),
    }
}

pub(super) fn write_now(fd: BorrowedFd<'_>, bytes: &[u8]) -> Moved {
    moved(rustix::io::write(fd, bytes))
}

fn moved(result: Result<usize, Errno>) -> Moved {
    match result {
        Ok(n) => Moved::Bytes(n),
        Err(Errno::AGAIN | Errno::INTR) => Moved::Later,
        Err(_) => Moved::Closed,
    }
}

/// Reads and writes on `fd` never wait from now on.
pub(super) fn dont_wait(fd: &impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::Bytes;

    fn all(lines: &mut Lines) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| lines.next().map(|line| line.unwrap().to_vec())).collect()
    }

    #[test]
    fn a_line_of_the_greatest_length_passes_and_a_longer_one_does_not() {
        let mut lines = Lines::default();
        let mut longest = vec![b'x'; LINE_BYTES_MAX - 1];
        longest.push(b'\n');
        lines.push(&longest);
        assert_eq!(lines.next().unwrap().unwrap().len(), LINE_BYTES_MAX - 1);
        lines.push(&vec![b'x'; LINE_BYTES_MAX - 1]);
        assert!(lines.next().is_none());
        lines.push(b"x");
        assert_eq!(lines.next().unwrap().unwrap_err().kind, FaultKind::Malformed);
    }

    #[test]
    fn a_foreign_version_is_told_from_garbage() {
        let kind = |line: &[u8]| decode_event(line).unwrap_err().kind;
        assert_eq!(kind(br#"{"v":2,"event":"unheard_of"}"#), FaultKind::Unsupported);
        assert_eq!(kind(br#"{"v":1,"event":"unheard_of"}"#), FaultKind::Malformed);
        assert_eq!(kind(b"Segmentation fault"), FaultKind::Malformed);
        assert_eq!(kind(b""), FaultKind::Malformed);
        let job = decode_job(br#"{"v":2,"wish":"tea"}"#).unwrap_err();
        assert_eq!(job.kind, FaultKind::Unsupported);
    }

    #[test]
    fn what_does_not_fit_a_line_is_never_sent() {
        let parts = vec![("x".repeat(LINE_BYTES_MAX), true)];
        assert_eq!(encode_event(What::Confined { parts }).unwrap_err().kind, FaultKind::Internal);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_pipe_cuts_them(
            parts in prop::collection::vec("[a-z]{0,12}", 0..20),
            cuts in prop::collection::vec(1usize..9, 1..40),
        ) {
            let text: String = parts.iter().map(|p| format!("{p}\n")).collect();
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            let (mut rest, mut cut) = (text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*cut.next().unwrap()).min(rest.len()));
                lines.push(now);
                seen.extend(all(&mut lines));
                rest = later;
            }
            let wanted: Vec<Vec<u8>> = parts.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(seen, wanted);
            prop_assert!(!lines.is_partial());
        }

        #[test]
        fn no_line_breaks_the_reader(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_event(&line);
            let _ = decode_job(&line);
        }

        #[test]
        fn an_event_comes_out_as_it_went_in(done in any::<u64>(), total in any::<u64>()) {
            let what = What::Layout { done: Bytes(done), total: Bytes(total) };
            let line = encode_event(what.clone()).unwrap();
            prop_assert_eq!(decode_event(&line[..line.len() - 1]).unwrap(), what);
        }
    }
}
