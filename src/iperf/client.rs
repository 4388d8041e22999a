//! The client's half: one test with a peer, from the first connection to the last word.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::control::{Broken, Control, Term};
use super::greet::{ASKED_TO_STOP, Greeted, greet, no_socket};
use super::parameters::{self, block};
use super::report::Report;
use super::results;
use super::stream::{Tuning, Untunable};
use super::totals::Totals;
use super::transfer::{Plan, Transfer};
use super::wire::{Cookie, RESULTS_BYTES_MAX, State, code};
use crate::model::link::{
    LinkFault, LinkIdentity, LinkInterval, LinkMeasured, LinkProfile, LinkReason,
};

/// How long a peer may take for each part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    pub connect: Duration,
    /// From the cookie to the first byte: a stock server that is stuck in another client's
    /// handshake says nothing at all (esnet/iperf #1862).
    pub first_byte: Duration,
    /// For each further step before the start; stock servers fill a buffer a stream meanwhile.
    pub step: Duration,
    pub results: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            first_byte: Duration::from_secs(5),
            step: Duration::from_secs(10),
            results: Duration::from_secs(10),
        }
    }
}

/// Which of both it is, the protocol has no word for.
const BUSY: &str = "busy with another test, or its lines are in use";

/// Who waits for a test.
pub trait Watch {
    /// True once the test should end; asked ten times a second.
    fn stopped(&self) -> bool;
    /// The test began.
    fn began(&mut self, peer: SocketAddr);
    /// About a second went by.
    fn interval(&mut self, interval: &LinkInterval);
}

/// A test to be made.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// As its name was resolved; the first that answers is taken.
    pub addresses: &'a [SocketAddr],
    pub profile: &'a LinkProfile,
    /// Told to peers that are loadlines.
    pub identity: Option<LinkIdentity>,
    pub patience: Patience,
}

/// Makes a test.
///
/// # Errors
/// A reason and a sentence that names the peer. Nothing is left behind: the peer is told.
pub fn run(order: &Order<'_>, watch: &mut dyn Watch) -> Result<LinkMeasured, LinkFault> {
    parameters::check(order.profile)
        .map_err(|(key, text)| LinkFault::new(LinkReason::Denied, format!("{key}: {text}")))?;
    let Greeted { control, peer, cookie } = greet(order, &|| watch.stopped())?;
    let mut test = Test { control, peer, order, watch, cookie, over: false };
    let result = test.run();
    if result.is_err() && !test.over {
        let _ = test.control.send(&[State::ClientTerminate]);
    }
    result
}

struct Test<'a> {
    control: Control,
    peer: SocketAddr,
    order: &'a Order<'a>,
    watch: &'a mut dyn Watch,
    cookie: Cookie,
    /// The peer ended the test itself, or can't hear us.
    over: bool,
}

impl Test<'_> {
    fn run(&mut self) -> Result<LinkMeasured, LinkFault> {
        self.open()?;
        let sockets = self.data_connections()?;
        self.expect(State::TestStart, self.order.patience.step)?;
        self.expect(State::TestRunning, self.order.patience.step)?;
        let mut transfer = Transfer::start(self.plan(), sockets).map_err(|e| no_socket(&e))?;
        self.watch.began(self.peer);
        self.move_bytes(&mut transfer)?;
        // The server closes the data connections first thing: what the kernel knows of them is
        // asked for before it is told.
        let (own, last) = transfer.stop();
        if let Some(interval) = last {
            self.watch.interval(&interval);
        }
        self.say(&[State::TestEnd])?;
        self.exchange(&own)
    }

    fn fault(&self, reason: LinkReason, text: impl std::fmt::Display) -> LinkFault {
        LinkFault::new(reason, format!("{}: {text}", self.peer))
    }

    fn unless_stopped(&self) -> Result<(), LinkFault> {
        if self.watch.stopped() { Err(self.broken(Broken::Stopped, "")) } else { Ok(()) }
    }

    fn open(&mut self) -> Result<(), LinkFault> {
        self.expect(State::ParamExchange, self.order.patience.first_byte)?;
        let json = parameters::write(self.order.profile, self.order.identity.as_ref());
        self.control.send_message(&json).map_err(|broken| self.broken(broken, "parameters"))?;
        self.expect(State::CreateStreams, self.order.patience.step)
    }

    /// One after another, since the server numbers them as they come.
    fn data_connections(&mut self) -> Result<Vec<TcpStream>, LinkFault> {
        let tuning = self.tuning();
        let mut sockets = Vec::new();
        for _ in 0..self.plan().connections() {
            self.unless_stopped()?;
            let socket = TcpStream::connect_timeout(&self.peer, self.order.patience.connect)
                .map_err(|error| {
                    let late = error.kind() == io::ErrorKind::TimedOut;
                    let reason = if late { LinkReason::Timeout } else { LinkReason::Refused };
                    self.fault(reason, format!("data connection: {error}"))
                })?;
            tuning.apply(&socket).map_err(|untunable| self.untunable(untunable))?;
            io::Write::write_all(&mut &socket, self.cookie.bytes())
                .map_err(|error| self.broken(error.into(), "data connection"))?;
            sockets.push(socket);
        }
        Ok(sockets)
    }

    fn tuning(&self) -> Tuning {
        let profile = self.order.profile;
        Tuning {
            window: profile.window.map(|bytes| bytes.0),
            congestion: profile.congestion.clone(),
            pacing: profile.pacing.map(|rate| rate.0 as u64),
            nodelay: false,
            type_of_service: profile.type_of_service,
        }
    }

    fn untunable(&self, untunable: Untunable) -> LinkFault {
        let text = match untunable {
            Untunable::Window(bytes) => format!(
                "this kernel gives a window of {bytes} bytes at most: raise net.core.rmem_max and \
                 net.core.wmem_max"
            ),
            Untunable::Congestion(error) => format!("congestion control: {error}"),
            Untunable::Other(error) => format!("data connection: {error}"),
        };
        self.fault(LinkReason::Denied, text)
    }

    fn plan(&self) -> Plan {
        let profile = self.order.profile;
        Plan {
            streams: profile.streams as usize,
            direction: profile.direction,
            is_client: true,
            block: block(profile),
            omit: profile.omit.duration(),
            bytes_max: profile.bytes_max.map(|bytes| bytes.0),
        }
    }

    /// Until time or bytes are up; the peer has nothing to say meanwhile.
    fn move_bytes(&mut self, transfer: &mut Transfer) -> Result<(), LinkFault> {
        let profile = self.order.profile;
        let end = profile.omit.duration() + profile.runtime.duration();
        loop {
            if let Some(interval) = transfer.tick() {
                self.watch.interval(&interval);
            }
            self.unless_stopped()?;
            let left = end.saturating_sub(transfer.elapsed());
            if left.is_zero() || self.has_all_bytes(transfer) {
                return Ok(());
            }
            let mut patience = transfer.patience().min(left);
            if profile.bytes_max.is_some() {
                patience = patience.min(BYTES_LOOK);
            }
            let spoke = self.control.wait(patience).map_err(|b| self.broken(b, "test"))?;
            let broken = transfer.broken();
            if spoke || broken.is_some() {
                return Err(match (self.control.state(LAST_WORD), broken) {
                    (Err(Broken::Late), Some(broken)) => self.broken(broken, "data connection"),
                    (said, _) => self.unexpected(State::TestRunning, said),
                });
            }
        }
    }

    fn has_all_bytes(&self, transfer: &Transfer) -> bool {
        let profile = self.order.profile;
        profile.bytes_max.is_some_and(|most| {
            (!profile.direction.forward() || transfer.is_delivered())
                && (!profile.direction.reverse() || transfer.received() >= most.0)
        })
    }

    /// Results both ways, and the last word.
    fn exchange(&mut self, own: &Totals) -> Result<LinkMeasured, LinkFault> {
        let patience = self.order.patience.results;
        self.expect(State::ExchangeResults, patience)?;
        let json = own.report(self.order.identity.clone()).write();
        self.control.send_message(&json).map_err(|broken| self.broken(broken, "results"))?;
        let watch = &*self.watch;
        let term = Term { patience, stopped: &|| watch.stopped() };
        let answer = self.control.message(RESULTS_BYTES_MAX, term);
        let answer = answer.map_err(|broken| self.broken(broken, "results"))?;
        self.expect(State::DisplayResults, patience)?;
        self.over = true;
        // A stock server takes the next client once it has closed this connection.
        if self.control.send(&[State::Done]).is_ok() {
            let _ = self.control.state(LAST_WORD);
        }
        let malformed = |text: String| self.fault(LinkReason::Protocol, format!("results: {text}"));
        let theirs = Report::read(&answer).map_err(malformed)?;
        results::measured(self.peer.to_string(), self.order.profile, own, &theirs)
            .map_err(malformed)
    }

    fn say(&mut self, states: &[State]) -> Result<(), LinkFault> {
        self.control.send(states).map_err(|broken| self.broken(broken, "test"))
    }

    fn expect(&mut self, state: State, patience: Duration) -> Result<(), LinkFault> {
        let watch = &*self.watch;
        match self.control.state(Term { patience, stopped: &|| watch.stopped() }) {
            Ok(found) if found == state => Ok(()),
            other => Err(self.unexpected(state, other)),
        }
    }

    /// What came in place of `awaited`, as a reason.
    fn unexpected(&mut self, awaited: State, came: Result<State, Broken>) -> LinkFault {
        match came {
            Err(broken) => self.broken(broken, phase(awaited)),
            Ok(State::AccessDenied) => {
                self.over = true;
                self.fault(LinkReason::Busy, BUSY)
            }
            Ok(State::ServerError) => {
                let error = self.control.word(LAST_WORD);
                let errno = error.and_then(|_| self.control.word(LAST_WORD)).unwrap_or(0);
                self.over = true;
                let (reason, text) = server_error(error, errno);
                self.fault(reason, text)
            }
            Ok(State::ServerTerminate) => {
                self.over = true;
                self.fault(LinkReason::Protocol, "the peer was stopped")
            }
            Ok(state) => {
                self.fault(LinkReason::Protocol, format!("{state:?} in place of {awaited:?}"))
            }
        }
    }

    fn broken(&self, broken: Broken, phase: &str) -> LinkFault {
        let protocol = |text: String| self.fault(LinkReason::Protocol, format!("{phase}: {text}"));
        match broken {
            Broken::Late => self.fault(LinkReason::Timeout, format!("{phase}: no answer in time")),
            Broken::Stopped => self.fault(LinkReason::Stopped, ASKED_TO_STOP),
            Broken::Closed | Broken::Reset => protocol("the peer closed the connection".into()),
            Broken::Unknown(byte) => {
                protocol(format!("no iperf3 answers there (byte {byte:#04x})"))
            }
            Broken::TooLong(long) => {
                protocol(format!("{} bytes, of at most {}", long.length, long.most))
            }
            Broken::Other(error) => protocol(error.to_string()),
        }
    }
}

/// A peer that closes a connection has a word on the other one by then.
const LAST_WORD: Duration = Duration::from_millis(500);
/// How often a test bounded by bytes looks whether it has them.
const BYTES_LOOK: Duration = Duration::from_millis(5);

fn phase(awaited: State) -> &'static str {
    match awaited {
        State::ParamExchange => "handshake",
        State::CreateStreams => "parameters",
        State::TestStart => "start",
        State::TestRunning => "test",
        _ => "results",
    }
}

fn server_error(error: Option<i32>, errno: i32) -> (LinkReason, String) {
    let Some(error) = error else {
        return (LinkReason::Protocol, "the peer reports an error without a number".into());
    };
    let (reason, text) = match error {
        code::ACCESS_DENIED => (LinkReason::Busy, BUSY),
        code::AUTHORISATION => {
            (LinkReason::Denied, "this host is not admitted there, or not without credentials")
        }
        code::DURATION | code::MAX_DURATION => (LinkReason::Denied, "too long for the peer"),
        code::STREAMS => (LinkReason::Denied, "too many streams for the peer"),
        code::BLOCK => (LinkReason::Denied, "too large a block for the peer"),
        code::TOTAL_RATE => (LinkReason::Denied, "over the peer's rate or byte limit"),
        code::BUFFER => (LinkReason::Denied, "too large a window for the peer"),
        code::UNIMPLEMENTED => (LinkReason::Denied, "the peer doesn't do this kind of test"),
        code::NO_DATA | code::EXPIRED => (LinkReason::Timeout, "no data in time, says the peer"),
        _ => (LinkReason::Protocol, "the peer reports an error"),
    };
    (reason, format!("{text} (iperf3 error {error}, errno {errno})"))
}
