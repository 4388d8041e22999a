//! The client's first words: a connection, a cookie, and whether anybody answers.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::client::Order;
use super::control::{Broken, Control, Term};
use super::wire::{Cookie, Inbox};
use crate::model::link::{LinkFault, LinkReason};

const REOPENING: Duration = Duration::from_millis(300);
pub(super) const ASKED_TO_STOP: &str = "asked to stop";

/// A peer that has begun to answer the cookie.
pub(super) struct Greeted {
    pub control: Control,
    pub peer: SocketAddr,
    pub cookie: Cookie,
}

/// What came of a greeting.
enum Greeting {
    Answered(Greeted),
    Failed(LinkFault),
    /// Nobody listens, or the connection was reset without a word.
    Away(LinkFault),
}

/// Twice where the peer is away: stock servers close their port for a moment between two tests, and
/// whoever waits there is reset.
pub(super) fn greet(order: &Order<'_>, stopped: &dyn Fn() -> bool) -> Result<Greeted, LinkFault> {
    let mut greeting = greet_once(order, stopped);
    if matches!(greeting, Greeting::Away(_)) {
        std::thread::park_timeout(REOPENING);
        greeting = greet_once(order, stopped);
    }
    match greeting {
        Greeting::Answered(greeted) => Ok(greeted),
        Greeting::Failed(fault) | Greeting::Away(fault) => Err(fault),
    }
}

fn greet_once(order: &Order<'_>, stopped: &dyn Fn() -> bool) -> Greeting {
    let (socket, peer) = match connect(order, stopped) {
        Ok(connected) => connected,
        Err(fault) if fault.reason == LinkReason::Refused => return Greeting::Away(fault),
        Err(fault) => return Greeting::Failed(fault),
    };
    let mut control = match Control::new(socket, Inbox::default()) {
        Ok(control) => control,
        Err(error) => return Greeting::Failed(no_socket(&error)),
    };
    let cookie = cookie();
    // The connection may be closed already, and still hold the word that says why.
    let _ = control.write(cookie.bytes());
    let fault = |reason, text: &str| LinkFault::new(reason, format!("{peer}: {text}"));
    match control.wait_for_any(&Term { patience: order.patience.first_byte, stopped }) {
        Ok(()) if control.is_reset() => Greeting::Away(fault(
            LinkReason::Busy,
            "closed at once: busy with another test, or ending",
        )),
        Ok(()) => Greeting::Answered(Greeted { control, peer, cookie }),
        Err(Broken::Stopped) => Greeting::Failed(fault(LinkReason::Stopped, ASKED_TO_STOP)),
        _ => Greeting::Failed(fault(LinkReason::Timeout, "handshake: no answer in time")),
    }
}

fn cookie() -> Cookie {
    let mut random = [0; 36];
    fastrand::Rng::new().fill(&mut random);
    Cookie::from_random(random)
}

pub(super) fn no_socket(error: &io::Error) -> LinkFault {
    LinkFault::new(LinkReason::Refused, format!("no socket: {error}"))
}

fn connect(
    order: &Order<'_>,
    stopped: &dyn Fn() -> bool,
) -> Result<(TcpStream, SocketAddr), LinkFault> {
    let mut fault = LinkFault::new(LinkReason::Refused, "the peer's name has no address");
    for address in order.addresses {
        if stopped() {
            let text = format!("{address}: {ASKED_TO_STOP}");
            return Err(LinkFault::new(LinkReason::Stopped, text));
        }
        match TcpStream::connect_timeout(address, order.patience.connect) {
            Ok(socket) => return Ok((socket, *address)),
            Err(error) => {
                let late = error.kind() == io::ErrorKind::TimedOut;
                let reason = if late { LinkReason::Timeout } else { LinkReason::Refused };
                fault = LinkFault::new(reason, format!("{address}: {error}"));
            }
        }
    }
    Err(fault)
}
