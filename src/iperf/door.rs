//! The door takes every connection up to the moment when it is known what it is: a data connection
//! of the running test, a client that may begin one, or anything else, which is answered and sent
//! away.
//!
//! It never waits for one peer: silent, slow and foreign connections are a line in a table, with a
//! deadline, and give way when the table is full. The slot is taken by whoever has sent whole and
//! sound parameters, so that no cookie alone keeps others out.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::parameters::Parameters;
use super::server::{Running, Shared, Slot, lock};
use super::session::Session;
use super::wire::{COOKIE_BYTES, Cookie, Inbox, PARAMETERS_BYTES_MAX, State, code, server_error};
use crate::base::clock::monotonic;
use crate::model::link::LinkReason;

/// Out of descriptors: so long until the next try.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// A connection that isn't part of a test, or not yet.
struct Waiting {
    socket: TcpStream,
    known: bool,
    inbox: Inbox,
    phase: Phase,
    deadline: Duration,
    /// Place in the order of acceptance, and of the last progress.
    accepted: u64,
    moved: u64,
}

#[derive(PartialEq)]
enum Phase {
    Cookie,
    Parameters(Cookie),
    /// Answered; what it still sends is read, so that closing doesn't reset the answer away.
    Leaving,
}

pub(super) struct Door {
    listener: TcpListener,
    shared: Arc<Shared>,
    leaving: Receiver<TcpStream>,
    waiting: Vec<Waiting>,
    order: u64,
    sessions: Vec<JoinHandle<()>>,
}

impl Door {
    pub(super) fn new(
        listener: TcpListener,
        shared: Arc<Shared>,
        leaving: Receiver<TcpStream>,
    ) -> Self {
        Self { listener, shared, leaving, waiting: Vec::new(), order: 0, sessions: Vec::new() }
    }

    /// Until the server is dropped; tests end with it.
    pub(super) fn run(&mut self) {
        while !self.shared.is_stopped() {
            let ready = self.wait();
            let now = monotonic();
            for (one, ready) in std::mem::take(&mut self.waiting).into_iter().zip(ready) {
                let stays = match ready {
                    true => self.serve(one),
                    false if now < one.deadline => Some(one),
                    false => self.late(&one),
                };
                self.waiting.extend(stays);
            }
            while let Ok(socket) = self.leaving.try_recv() {
                let one = self.seat(socket, true);
                let stays = self.leave(one, &[]);
                self.waiting.extend(stays);
            }
            self.accept();
        }
        if let Some(running) = lock(&self.shared.running).as_ref() {
            let _ = running.control.shutdown(Shutdown::Read);
        }
        for session in self.sessions.drain(..) {
            let _ = session.join();
        }
    }

    /// Waits for anything; true in the place of each connection that has something to read.
    fn wait(&mut self) -> Vec<bool> {
        let now = monotonic();
        let next = self.waiting.iter().map(|w| w.deadline).min();
        let patience = next.map(|deadline| deadline.saturating_sub(now));
        let patience = patience.and_then(|time| time.try_into().ok());
        let mut polled = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&self.shared.bell, PollFlags::IN),
        ];
        polled.extend(self.waiting.iter().map(|w| PollFd::new(&w.socket, PollFlags::IN)));
        if poll(&mut polled, patience.as_ref()).is_err() {
            return vec![false; self.waiting.len()];
        }
        let ready = polled.iter().skip(2).map(|fd| !fd.revents().is_empty()).collect();
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.shared.bell, &mut rung);
        ready
    }

    fn late(&self, one: &Waiting) -> Option<Waiting> {
        if one.phase != Phase::Leaving {
            self.shared.count(Some(LinkReason::Timeout));
        }
        None
    }

    fn accept(&mut self) {
        loop {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Out of descriptors, most likely: one less waits here. Without the pause a
                    // connection that can't be accepted would keep this thread running.
                    self.evict();
                    std::thread::park_timeout(EXHAUSTED);
                    return;
                }
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            let known = self.shared.admit.knows(peer.ip().to_canonical());
            let one = self.seat(socket, known);
            self.waiting.push(one);
            if self.waiting.len() > self.shared.limits.waiting_max {
                self.evict();
            }
        }
    }

    fn seat(&mut self, socket: TcpStream, known: bool) -> Waiting {
        self.order += 1;
        Waiting {
            socket,
            known,
            inbox: Inbox::default(),
            phase: Phase::Cookie,
            deadline: monotonic() + self.shared.limits.cookie,
            accepted: self.order,
            moved: self.order,
        }
    }

    /// Strangers give way first, then whoever made no progress for longest.
    fn evict(&mut self) {
        let honest = |w: &Waiting| w.known && w.phase != Phase::Leaving;
        let least = (0..self.waiting.len())
            .min_by_key(|at| self.waiting.get(*at).map(|w| (honest(w), w.moved)));
        if let Some(at) = least {
            self.waiting.swap_remove(at);
        }
    }

    /// Reads what came; gives back the connection where it stays at the door.
    fn serve(&mut self, mut one: Waiting) -> Option<Waiting> {
        let mut bytes = [0; 4096];
        // No byte of a data connection behind its cookie is the door's to read.
        let most = if one.phase == Phase::Cookie { COOKIE_BYTES - one.inbox.len() } else { 4096 };
        let read = match one.socket.read(bytes.get_mut(..most)?) {
            Ok(0) => return None,
            Ok(read) => bytes.get(..read)?,
            Err(error) => {
                let again = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
                return again.contains(&error.kind()).then_some(one);
            }
        };
        self.order += 1;
        one.moved = self.order;
        match &one.phase {
            Phase::Leaving => return Some(one),
            Phase::Cookie | Phase::Parameters(_) => one.inbox.push(read),
        }
        match &one.phase {
            Phase::Cookie => match one.inbox.take::<COOKIE_BYTES>() {
                Some(cookie) => self.named(one, &cookie),
                None => Some(one),
            },
            _ => match one.inbox.message(PARAMETERS_BYTES_MAX) {
                Ok(Some(json)) => self.asked(one, &json),
                Ok(None) => Some(one),
                Err(_) => self.malformed(one),
            },
        }
    }

    /// A connection said which test it belongs to.
    fn named(&mut self, mut one: Waiting, cookie: &[u8; COOKIE_BYTES]) -> Option<Waiting> {
        let Some(cookie) = Cookie::read(cookie) else {
            self.shared.count(Some(LinkReason::Protocol));
            return self.leave(one, &[]);
        };
        if !one.known {
            return self.refuse(one, LinkReason::Denied, &server_error(code::AUTHORISATION));
        }
        match lock(&self.shared.running).as_ref() {
            Some(Running { cookie: theirs, streams: Some(streams), .. }) if *theirs == cookie => {
                let _ = streams.send((one.accepted, one.socket));
                return None;
            }
            None => {}
            Some(_) => return self.busy(one),
        }
        one.phase = Phase::Parameters(cookie);
        one.deadline = monotonic() + self.shared.limits.parameters;
        one.socket.write_all(&[State::ParamExchange.byte()]).ok()?;
        Some(one)
    }

    /// A client asks for a test; whoever is first to ask for a sound one gets the slot.
    fn asked(&mut self, one: Waiting, json: &[u8]) -> Option<Waiting> {
        let Ok(parameters) = Parameters::read(json) else { return self.malformed(one) };
        if let Some(code) = parameters.complaint(self.shared.limits.runtime_max) {
            return self.refuse(one, LinkReason::Denied, &server_error(code));
        }
        let Phase::Parameters(cookie) = &one.phase else { return None };
        let (streams, data) = channel();
        {
            let mut running = lock(&self.shared.running);
            let turn = if running.is_none() { self.shared.admit.turn() } else { None };
            let Some(turn) = turn else {
                drop(running);
                return self.busy(one);
            };
            let (streams, control) = (Some(streams), one.socket.try_clone().ok()?);
            *running = Some(Running { cookie: cookie.clone(), streams, control, _turn: turn });
        }
        let slot = Slot(Arc::clone(&self.shared));
        let Waiting { socket, inbox, .. } = one;
        let begun = Session::new((socket, inbox), parameters, data, slot).and_then(|session| {
            let body = move || session.run();
            std::thread::Builder::new().name("peer-test".into()).spawn(body)
        });
        self.sessions.retain(|session| !session.is_finished());
        self.sessions.extend(begun.ok());
        None
    }

    fn busy(&self, one: Waiting) -> Option<Waiting> {
        self.refuse(one, LinkReason::Busy, &[State::AccessDenied.byte()])
    }

    fn malformed(&self, one: Waiting) -> Option<Waiting> {
        self.refuse(one, LinkReason::Protocol, &server_error(code::RECEIVE_PARAMETERS))
    }

    fn refuse(&self, one: Waiting, reason: LinkReason, answer: &[u8]) -> Option<Waiting> {
        self.shared.count(Some(reason));
        self.leave(one, answer)
    }

    /// The last word to a connection, which is then read to its end.
    fn leave(&self, mut one: Waiting, answer: &[u8]) -> Option<Waiting> {
        one.socket.set_nonblocking(true).ok()?;
        one.socket.write_all(answer).ok()?;
        one.socket.shutdown(Shutdown::Write).ok()?;
        one.phase = Phase::Leaving;
        one.deadline = monotonic() + self.shared.limits.leave;
        Some(one)
    }
}
