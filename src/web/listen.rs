//! Addresses, and the server on them: one runtime on the caller's thread, a seat a connection.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use axum::Router;
use axum_server::{Control, Handle, Server};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::task::JoinSet;

use super::owner::{self, Owner};
pub use super::seats::Limits;
use super::seats::Seats;
use crate::base::fault::{Fault, FaultKind};
use crate::host::roots::Roots;

/// Connections that wait to be accepted; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 1024;
/// Kernel memory for what a peer hasn't taken yet, a connection: it grows to megabytes otherwise.
const SEND_BUFFER_BYTES: usize = 256 << 10;
/// A request's head may be this long, and so much of an answer is copied at a time.
const REQUEST_BYTES_MAX: usize = 32 << 10;

/// Listens on `address`: `:9847` (all addresses of both families), `127.0.0.1:9847`,
/// `[::1]:9847` or `name:9847`. `option` is where another can be chosen.
///
/// # Errors
/// Malformed where it isn't an address, Refused where the port is taken (the text names the
/// process, where it can be seen), else by errno.
pub fn bind(address: &str, option: &str) -> Result<TcpListener, Fault> {
    let places = resolve(address)?;
    let mut last = None;
    for place in places {
        match listen(place) {
            Ok(listener) => return Ok(listener),
            // No such family or address on this host: the next may do.
            Err(error @ (Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)) => last = Some(error),
            Err(Errno::ADDRINUSE) => return Err(in_use(place.port(), option)),
            Err(error) => return Err(Fault::os(address, &error.into())),
        }
    }
    Err(Fault::os(address, &last.unwrap_or(Errno::ADDRNOTAVAIL).into()))
}

/// Where to try to listen, in order.
fn resolve(address: &str) -> Result<Vec<SocketAddr>, Fault> {
    let malformed = || {
        let text = format!(
            "`{address}` is not an address to listen on (write :9847, 127.0.0.1:9847 or [::1]:9847)"
        );
        Fault::new(FaultKind::Malformed, text)
    };
    if let Some(port) = address.strip_prefix(':') {
        let port = port.parse().map_err(|_| malformed())?;
        let all: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        return Ok(all.map(|ip| SocketAddr::new(ip, port)).to_vec());
    }
    let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(malformed());
    }
    let places: Vec<_> = address.to_socket_addrs().map_err(|_| malformed())?.collect();
    if places.is_empty() { Err(malformed()) } else { Ok(places) }
}

fn listen(place: SocketAddr) -> Result<TcpListener, Errno> {
    let family = if place.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // A restart must not wait for the old connections' TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if place.is_ipv6() {
        // `::` takes both families, whatever net.ipv6.bindv6only says.
        sockopt::set_ipv6_v6only(&socket, !place.ip().is_unspecified())?;
    }
    net::bind(&socket, &place)?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

fn in_use(port: u16, option: &str) -> Fault {
    let who = match owner::of(&Roots::default(), port) {
        Some(Owner { pid, name }) if name == env!("CARGO_PKG_NAME") => {
            format!("another loadline? pid {pid}")
        }
        Some(Owner { pid, name }) => format!("by {name}, pid {pid}"),
        None => "another loadline?".to_owned(),
    };
    let text = format!("port {port} is in use ({who}); choose another with {option}");
    Fault::new(FaultKind::Refused, text)
}

/// Serves until `stop` is there, then finishes what is being answered within `limits.stop`.
/// Blocks the calling thread, which is the only one that it uses.
///
/// # Errors
/// When the runtime or a listener can't be set up; a connection's fault ends that connection only.
pub fn serve(
    listeners: Vec<TcpListener>,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (seats, control) = (Seats::new(limits), Control::new());
        let mut servers = JoinSet::new();
        for listener in listeners {
            let server = server(listener, &seats, &control, limits)?;
            servers.spawn(server.serve(router.clone().into_make_service()));
        }
        let mut ended = std::pin::pin!(async {
            while let Some(server) = servers.join_next().await {
                server.map_err(io::Error::other)??;
            }
            Ok(())
        });
        tokio::select! {
            result = &mut ended => return result,
            () = stop => control.graceful_shutdown(Some(limits.stop)),
        }
        ended.await
    })
}

fn server(
    listener: TcpListener,
    seats: &Seats,
    control: &Control,
    limits: Limits,
) -> io::Result<Server<SocketAddr, Seats>> {
    // Accepted connections inherit it.
    sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER_BYTES)?;
    let mut server = axum_server::from_tcp(listener)?
        .handle(Handle::with_control(control.clone()))
        .acceptor(seats.clone())
        .http1_only()
        .first_request_timeout(limits.first_request)
        .accept_error_handler(|_, error| tracing::debug!(%error, "connection not accepted"));
    server.http_builder().http1().max_buf_size(REQUEST_BYTES_MAX);
    Ok(server)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_bare_port_listens_on_all_addresses() {
        let listener = bind(":0", "--listen").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listener.local_addr().unwrap().ip().is_unspecified());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
        if listener.local_addr().unwrap().is_ipv6() && TcpListener::bind("[::1]:0").is_ok() {
            assert!(TcpStream::connect(("::1", port)).is_ok());
        }
    }

    #[test]
    fn an_address_listens_there_only() {
        let listener = bind("127.0.0.1:0", "--listen").unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
        let listener = bind("localhost:0", "--listen").unwrap();
        assert!(listener.local_addr().unwrap().ip().is_loopback());
    }

    #[test]
    fn the_kernel_tunes_the_buffers_of_what_is_no_page() {
        let listener = bind("127.0.0.1:0", "--listen").unwrap();
        let plain = TcpListener::bind("127.0.0.1:0").unwrap();
        let size = |listener| sockopt::socket_send_buffer_size(listener).unwrap();
        assert_eq!(size(&listener), size(&plain));
    }

    #[test]
    fn a_taken_port_names_its_owner() {
        let first = bind("127.0.0.1:0", "--listen").unwrap();
        let port = first.local_addr().unwrap().port();
        let fault = bind(&format!("127.0.0.1:{port}"), "`peers.listen`").unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert!(fault.text.starts_with(&format!("port {port} is in use (")), "{fault}");
        assert!(fault.text.contains(&format!("pid {}", std::process::id())), "{fault}");
        assert!(fault.text.ends_with("; choose another with `peers.listen`"), "{fault}");
    }

    #[test]
    fn what_is_no_address_is_refused_with_examples() {
        for bad in ["", ":", ":http", "9847", "127.0.0.1", "127.0.0.1:99999", "::1:", ":-1"] {
            let fault = bind(bad, "--listen").unwrap_err();
            assert_eq!(fault.kind, FaultKind::Malformed, "{bad}: {fault}");
            assert!(fault.text.contains("127.0.0.1:9847"), "{fault}");
        }
    }

    #[test]
    fn an_address_of_another_host_is_a_fault_that_names_it() {
        let fault = bind("192.0.2.1:9847", "--listen").unwrap_err();
        assert!(fault.text.starts_with("192.0.2.1:9847: "), "{fault}");
    }
}
