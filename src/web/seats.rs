//! A bounded number of connections, and a clock on each: a request can't be held up by others.
//!
//! hyper bounds only the time of a request's head, and counts a connection kept alive between two
//! scrapes as one that sends its head slowly. Bytes tell the difference: a connection that
//! got nothing since its last answer is idle, one that got something owes the rest of a request,
//! and one whose peer takes nothing is blocked. Each state has its own limit.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

/// How much, and for how long, a peer may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections over all listeners; one more takes the place of the least active.
    pub connections: usize,
    /// From the connection to its first whole request.
    pub first_request: Duration,
    /// From a later request's first byte to its last.
    pub request: Duration,
    /// Without a byte taken by a peer that is being answered.
    pub write: Duration,
    /// Between an answer and the next request.
    pub idle: Duration,
    /// For answers under way when asked to stop.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            first_request: Duration::from_secs(5),
            request: Duration::from_secs(5),
            write: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            stop: Duration::from_secs(2),
        }
    }
}

/// The seats of all listeners together.
#[derive(Clone)]
pub(super) struct Seats(Arc<Shared>);

struct Shared {
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Counts seatings and movements alike: order is all that eviction needs.
    turn: u64,
    seats: BTreeMap<u64, Seat>,
}

struct Seat {
    moved: u64,
    /// Dropped to tell the connection that its seat is gone.
    _held: oneshot::Sender<()>,
}

impl Seats {
    pub(super) fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared { limits, table: Mutex::default() }))
    }

    /// A seat for a new connection; at the cap the one without progress for longest gives way.
    fn take(&self, stream: TcpStream) -> Seated {
        let (held, gone) = oneshot::channel();
        let mut table = self.table();
        if table.seats.len() >= self.0.limits.connections
            && let Some(id) = table.least_active()
        {
            table.seats.remove(&id);
        }
        let id = table.next();
        table.seats.insert(id, Seat { moved: id, _held: held });
        drop(table);
        let limits = self.0.limits;
        Seated {
            stream,
            seats: self.clone(),
            id,
            gone,
            state: State::Request,
            limit: Box::pin(sleep(limits.first_request)),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn next(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    fn least_active(&self) -> Option<u64> {
        self.seats.iter().min_by_key(|(_, seat)| seat.moved).map(|(id, _)| *id)
    }

    fn moved(&mut self, id: u64) {
        let turn = self.next();
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.moved = turn;
        }
    }
}

impl<S> Accept<TcpStream, S> for Seats {
    type Stream = Seated;
    type Service = S;
    type Future = std::future::Ready<io::Result<(Seated, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // An answer is a few large writes; waiting to fill a packet only delays the last.
        let ready = stream.set_nodelay(true).map(|()| (self.take(stream), service));
        std::future::ready(ready)
    }
}

/// What the bytes of a connection say it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Request,
    Blocked,
}

/// A connection in its seat. Fails when the seat is given to another or its limit passes.
pub(super) struct Seated {
    stream: TcpStream,
    seats: Seats,
    id: u64,
    gone: oneshot::Receiver<()>,
    state: State,
    limit: Pin<Box<Sleep>>,
}

impl Seated {
    fn enter(&mut self, state: State) {
        let limits = &self.seats.0.limits;
        let time = match state {
            State::Idle => limits.idle,
            State::Request => limits.request,
            State::Blocked => limits.write,
        };
        self.state = state;
        self.limit.as_mut().reset(Instant::now() + time);
    }

    fn moved(&mut self) {
        self.seats.table().moved(self.id);
    }

    /// An error when this connection has to end. Also leaves word to be woken for that.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if Pin::new(&mut self.gone).poll(context).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "gave way to another"));
        }
        if self.limit.as_mut().poll(context).is_ready() {
            let text = match self.state {
                State::Idle => "idle too long",
                State::Request => "request too slow",
                State::Blocked => "answer not read",
            };
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Ok(())
    }

    /// Keeps the books on a write's end.
    fn wrote(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match result {
            Poll::Pending if self.state != State::Blocked => self.enter(State::Blocked),
            Poll::Ready(Ok(n)) if n > 0 => {
                self.moved();
                self.enter(State::Idle);
            }
            _ => {}
        }
        result
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.seats.table().seats.remove(&self.id);
    }
}

impl AsyncRead for Seated {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.check(context)?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            this.moved();
            if this.state == State::Idle {
                this.enter(State::Request);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Seated {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check(context)?;
        let result = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.wrote(result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check(context)?;
        let result = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
