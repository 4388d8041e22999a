//! Whether an address is this host's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// True for the addresses of this host's interfaces, in its network namespace, and for all of the
/// loopback.
///
/// Asks for the route and sends nothing: only to itself does a host speak from the very address that
/// it speaks to (net/ipv4/route.c, ip_route_output_key_hash_rcu: RTN_LOCAL). To bind to the address
/// would not tell: net.ipv4.ip_nonlocal_bind lets it be anybody's.
pub fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    if address.is_loopback() || address.is_unspecified() {
        return true;
    }
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = || {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(SocketAddr::new(address, 9))?;
        socket.local_addr()
    };
    from().is_ok_and(|from: SocketAddr| from.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_always_this_host() {
        for own in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0"] {
            assert!(is_own(own.parse().unwrap()), "{own}");
        }
    }

    #[test]
    fn addresses_for_documentation_are_nobodys() {
        for other in ["192.0.2.1", "198.51.100.7", "2001:db8::1"] {
            assert!(!is_own(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn the_address_that_leads_out_is_this_hosts() {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_err() {
            println!("skipped: no route leads out of this host");
            return;
        }
        assert!(is_own(socket.local_addr().unwrap().ip()));
    }
}
