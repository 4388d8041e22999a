//! The control connection, with a deadline for everything that is awaited on it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::wire::{Inbox, State, TooLong, framed};
use crate::base::clock::monotonic;

/// A peer that takes nothing for so long is gone.
const WRITE: Duration = Duration::from_secs(5);
/// The connection is silent for as long as the test runs: without these a peer that vanished is
/// not noticed, and a firewall forgets the connection (esnet/iperf #753).
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(2), 3);

/// How often something that is awaited looks whether it should be given up.
const LOOK: Duration = Duration::from_millis(100);

/// How long something is awaited, and what gives it up before.
pub(super) struct Term<'a> {
    pub patience: Duration,
    pub stopped: &'a dyn Fn() -> bool,
}

impl From<Duration> for Term<'static> {
    fn from(patience: Duration) -> Self {
        Self { patience, stopped: &|| false }
    }
}

/// Why nothing more comes from the peer.
#[derive(Debug)]
pub(super) enum Broken {
    Late,
    /// This end was asked to stop.
    Stopped,
    Closed,
    Reset,
    /// Another protocol, or none.
    Unknown(u8),
    TooLong(TooLong),
    Other(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Broken::Reset,
            io::ErrorKind::TimedOut
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => Broken::Late,
            io::ErrorKind::UnexpectedEof => Broken::Closed,
            _ => Broken::Other(error),
        }
    }
}

pub(super) struct Control {
    pub socket: TcpStream,
    inbox: Inbox,
}

impl Control {
    /// Takes a connection over, with what was read from it.
    pub(super) fn new(socket: TcpStream, inbox: Inbox) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(WRITE))?;
        let (idle, every, probes) = KEEPALIVE;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, idle)?;
        sockopt::set_tcp_keepintvl(&socket, every)?;
        sockopt::set_tcp_keepcnt(&socket, probes)?;
        Ok(Self { socket, inbox })
    }

    pub(super) fn send(&mut self, states: &[State]) -> Result<(), Broken> {
        let bytes: Vec<u8> = states.iter().map(|state| state.byte()).collect();
        self.write(&bytes)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        Ok(self.socket.write_all(bytes)?)
    }

    pub(super) fn send_message(&mut self, json: &str) -> Result<(), Broken> {
        self.write(&framed(json))
    }

    /// The next state.
    pub(super) fn state<'a>(&mut self, term: impl Into<Term<'a>>) -> Result<State, Broken> {
        let byte = self.await_some(&term.into(), |inbox| Ok(inbox.byte()))?;
        State::read(byte).ok_or(Broken::Unknown(byte))
    }

    pub(super) fn message<'a>(
        &mut self,
        most: usize,
        term: impl Into<Term<'a>>,
    ) -> Result<Vec<u8>, Broken> {
        self.await_some(&term.into(), |inbox| inbox.message(most))
    }

    /// A big-endian word behind SERVER_ERROR; older servers send one or none.
    pub(super) fn word(&mut self, patience: Duration) -> Option<i32> {
        let word = self.await_some(&patience.into(), |inbox| Ok(inbox.take::<4>()));
        word.ok().map(i32::from_be_bytes)
    }

    fn await_some<T>(
        &mut self,
        term: &Term<'_>,
        mut take: impl FnMut(&mut Inbox) -> Result<Option<T>, TooLong>,
    ) -> Result<T, Broken> {
        let deadline = monotonic() + term.patience;
        loop {
            if let Some(found) = take(&mut self.inbox).map_err(Broken::TooLong)? {
                return Ok(found);
            }
            self.wait_until(deadline, term)?;
            let mut bytes = [0; 16 << 10];
            // Bytes that came before a reset are still to be read: `busy` comes so.
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(Broken::Closed),
                Ok(n) => self.inbox.push(bytes.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for anything to read, or an end; false when time is up.
    pub(super) fn wait(&self, patience: Duration) -> Result<bool, Broken> {
        if self.inbox.is_empty() { self.wait_for_more(patience) } else { Ok(true) }
    }

    /// Waits for anything to read, or an end, as long as `term` has it.
    pub(super) fn wait_for_any(&self, term: &Term<'_>) -> Result<(), Broken> {
        self.wait_until(monotonic() + term.patience, term)
    }

    fn wait_until(&self, deadline: Duration, term: &Term<'_>) -> Result<(), Broken> {
        loop {
            if (term.stopped)() {
                return Err(Broken::Stopped);
            }
            let left = deadline.saturating_sub(monotonic());
            if left.is_zero() {
                return Err(Broken::Late);
            }
            if self.wait_for_more(left.min(LOOK))? {
                return Ok(());
            }
        }
    }

    /// Nothing came but a reset; what came before one is still to be read.
    pub(super) fn is_reset(&self) -> bool {
        let peeked = self.socket.peek(&mut [0]);
        self.inbox.is_empty()
            && peeked.is_err_and(|error| matches!(Broken::from(error), Broken::Reset))
    }

    fn wait_for_more(&self, patience: Duration) -> Result<bool, Broken> {
        let time = patience.try_into().map_err(|_| Broken::Late)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(Broken::Other(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_silent_connection_is_kept_alive_and_states_are_sent_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let control = Control::new(near, Inbox::default()).unwrap();
        let (idle, between, probes) = KEEPALIVE;
        assert!(sockopt::socket_keepalive(&control.socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&control.socket).unwrap(), idle);
        assert_eq!(sockopt::tcp_keepintvl(&control.socket).unwrap(), between);
        assert_eq!(sockopt::tcp_keepcnt(&control.socket).unwrap(), probes);
        assert!(control.socket.nodelay().unwrap());
    }
}
