//! The server's half: one test, from accepted parameters to the exchange of results.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::control::{Broken, Control};
use super::parameters::Parameters;
use super::report::Report;
use super::server::{Limits, Shared, Slot};
use super::stream::{Tuning, Untunable};
use super::transfer::{Plan, Transfer};
use super::wire::{Inbox, RESULTS_BYTES_MAX, State, code, server_error};
use crate::base::clock::monotonic;
use crate::model::link::LinkReason;

/// How often a test looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// Why a test ended early, and what is still to be said.
struct End {
    reason: LinkReason,
    say: Vec<u8>,
}

impl End {
    fn silent(reason: LinkReason) -> Self {
        Self { reason, say: Vec::new() }
    }

    fn error(reason: LinkReason, code: i32) -> Self {
        Self { reason, say: server_error(code).to_vec() }
    }

    fn stopped() -> Self {
        Self { reason: LinkReason::Stopped, say: vec![State::ServerTerminate.byte()] }
    }
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        Self::silent(match broken {
            Broken::Late => LinkReason::Timeout,
            Broken::Stopped => LinkReason::Stopped,
            _ => LinkReason::Protocol,
        })
    }
}

pub(super) struct Session {
    control: Control,
    parameters: Parameters,
    data: Receiver<(u64, TcpStream)>,
    shared: Arc<Shared>,
    slot: Option<Slot>,
}

impl Session {
    pub(super) fn new(
        (socket, inbox): (TcpStream, Inbox),
        parameters: Parameters,
        data: Receiver<(u64, TcpStream)>,
        slot: Slot,
    ) -> io::Result<Self> {
        let control = Control::new(socket, inbox)?;
        Ok(Self { control, parameters, data, shared: Arc::clone(&slot.0), slot: Some(slot) })
    }

    pub(super) fn run(mut self) {
        let mut ended = self.test();
        if ended.is_err() && self.shared.is_stopped() {
            ended = Err(End::stopped());
        }
        let reason = ended.as_ref().err().map(|end| end.reason);
        self.shared.count(reason);
        drop(self.slot.take());
        if let Err(End { say, .. }) = ended {
            let _ = self.control.write(&say);
        }
        self.shared.let_leave(self.control.socket);
        self.shared.ended.fetch_add(1, Ordering::AcqRel);
    }

    fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    fn test(&mut self) -> Result<(), End> {
        self.control.send(&[State::CreateStreams])?;
        let sockets = self.data_connections()?;
        self.control.send(&[State::TestStart, State::TestRunning])?;
        let lost = |_: io::Error| End::error(LinkReason::Denied, code::STREAM);
        let mut transfer = Transfer::start(self.plan(), sockets).map_err(lost)?;
        self.move_bytes(&mut transfer)?;
        // What the client sent before its last word has arrived, and counts.
        let (totals, _) = transfer.sweep();
        // Closes the data connections, for which a client in reverse waits.
        drop(transfer);
        self.control.send(&[State::ExchangeResults])?;
        let answer = self.control.message(RESULTS_BYTES_MAX, self.limits().results);
        let malformed = || End::error(LinkReason::Protocol, code::RECEIVE_RESULTS);
        let answer = match answer {
            Err(Broken::TooLong(_)) => return Err(malformed()),
            other => other?,
        };
        Report::read(&answer).map_err(|_| malformed())?;
        let asked = self.parameters.identity.is_some();
        let peer = self.control.socket.peer_addr().ok().filter(|_| asked);
        let identity = peer.and_then(|peer| self.shared.admit.identity(peer));
        self.control.send_message(&totals.report(identity).write())?;
        // A client may begin its next test as soon as it has heard that this one is over.
        drop(self.slot.take());
        self.control.send(&[State::DisplayResults])?;
        Ok(())
    }

    fn plan(&self) -> Plan {
        let asked = &self.parameters;
        let bytes = Some(asked.bytes).filter(|n| *n > 0 && asked.omit == 0);
        // A sender passes the limit, so that the test is cut there: one that only stopped would
        // show a slow wire.
        let most = self.limits().bytes_max.0.saturating_add(1);
        Plan {
            streams: usize::try_from(asked.streams).unwrap_or(1),
            direction: asked.direction,
            is_client: false,
            block: asked.block,
            omit: Duration::from_secs(asked.omit.unsigned_abs()),
            bytes_max: Some(bytes.unwrap_or(most).min(most)),
        }
    }

    /// All connections of the test, in the order in which they were accepted.
    fn data_connections(&mut self) -> Result<Vec<TcpStream>, End> {
        let wanted = self.plan().connections();
        let tuning = self.tuning();
        let deadline = monotonic() + self.limits().streams;
        let mut sockets = Vec::new();
        while sockets.len() < wanted {
            if self.shared.is_stopped() {
                return Err(End::stopped());
            }
            let left = deadline.saturating_sub(monotonic());
            if left.is_zero() {
                return Err(End::error(LinkReason::Timeout, code::ACCEPT));
            }
            match self.data.recv_timeout(left.min(LOOK)) {
                Ok((order, socket)) => {
                    tune(&socket, &tuning)?;
                    sockets.push((order, socket));
                }
                // Nothing is due from the client but an end.
                Err(RecvTimeoutError::Timeout) => {
                    if self.control.wait(Duration::ZERO)? {
                        return Err(self.early());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(End::stopped()),
            }
        }
        self.shared.has_all_streams();
        sockets.sort_by_key(|(order, _)| *order);
        Ok(sockets.into_iter().map(|(_, socket)| socket).collect())
    }

    fn tuning(&self) -> Tuning {
        let asked = &self.parameters;
        Tuning {
            window: asked.window,
            congestion: asked.congestion.clone(),
            pacing: asked.pacing.map(|bits| (bits / 8).max(1)),
            nodelay: asked.nodelay,
            type_of_service: asked.type_of_service,
        }
    }

    /// Until the client says that it is over.
    fn move_bytes(&mut self, transfer: &mut Transfer) -> Result<(), End> {
        let asked = &self.parameters;
        let time = if asked.time > 0 {
            asked.time.unsigned_abs() as f64
        } else {
            self.limits().runtime_max.0
        };
        let end =
            Duration::from_secs_f64(time + asked.omit.unsigned_abs() as f64) + self.limits().end;
        loop {
            transfer.tick();
            if self.shared.is_stopped() {
                return Err(End::stopped());
            }
            let left = end.saturating_sub(transfer.elapsed());
            if left.is_zero() {
                return Err(End::error(LinkReason::Timeout, code::EXPIRED));
            }
            if transfer.moved() > self.limits().bytes_max.0 {
                return Err(End::error(LinkReason::Denied, code::TOTAL_RATE));
            }
            if self.control.wait(transfer.patience().min(left).min(LOOK))? {
                return match self.control.state(LOOK)? {
                    State::TestEnd => Ok(()),
                    State::ClientTerminate => Err(End::silent(LinkReason::Stopped)),
                    _ => Err(End::error(LinkReason::Protocol, code::MESSAGE)),
                };
            }
        }
    }

    /// What a client says that should say nothing.
    fn early(&mut self) -> End {
        match self.control.state(LOOK) {
            Ok(State::ClientTerminate) => End::silent(LinkReason::Stopped),
            Ok(_) => End::error(LinkReason::Protocol, code::MESSAGE),
            Err(broken) => broken.into(),
        }
    }
}

fn tune(socket: &TcpStream, tuning: &Tuning) -> Result<(), End> {
    let lost = |_: io::Error| End::silent(LinkReason::Protocol);
    socket.set_nonblocking(false).map_err(lost)?;
    match tuning.apply(socket) {
        // A stock server goes on with its own congestion control, and says so in its results.
        Ok(()) | Err(Untunable::Congestion(_)) => Ok(()),
        Err(Untunable::Window(_)) => Err(End::error(LinkReason::Denied, code::BUFFER)),
        Err(Untunable::Other(_)) => Err(End::error(LinkReason::Denied, code::STREAM)),
    }
}
