//! Peers that do as a test tells them, against our client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use loadline::base::units::Seconds;
use loadline::iperf::client::{self, Order, Patience};
use loadline::model::link::{LinkFault, LinkProfile};

use crate::{PATIENCE, Seen, profile};

/// A server that does as it is told with each connection, in order.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
}

type Play = Arc<dyn Fn(usize, TcpStream) + Send + Sync>;

impl Fake {
    pub(super) fn new(play: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let play: Play = Arc::new(play);
        std::thread::spawn(move || {
            for (n, socket) in listener.incoming().enumerate() {
                let (play, socket) = (Arc::clone(&play), socket.unwrap());
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                std::thread::spawn(move || play(n, socket));
            }
        });
        Self { address }
    }

    /// Says this once the cookie is there, and closes.
    pub(super) fn saying(bytes: &'static [u8]) -> Self {
        Self::new(move |_, mut socket| {
            socket.read_exact(&mut [0; 37]).unwrap();
            let _ = socket.write_all(bytes);
        })
    }
}

pub(super) fn hold(mut socket: TcpStream) {
    let _ = socket.read_to_end(&mut Vec::new());
}

pub(super) fn message(socket: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut body).unwrap();
    body
}

pub(super) fn fault(peer: SocketAddr, patience: Patience) -> LinkFault {
    let profile = LinkProfile { runtime: Seconds(0.05), ..profile() };
    let order = Order { addresses: &[peer], profile: &profile, identity: None, patience };
    client::run(&order, &mut Seen::default()).unwrap_err()
}

pub(super) fn short() -> Patience {
    let short = Duration::from_millis(200);
    Patience { connect: PATIENCE, first_byte: short, step: short, results: short }
}
