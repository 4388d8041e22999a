//! Blocks of addresses, as an allow-list names them, and endpoints.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `10.0.0.0/24`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// IPv4 in IPv6's clothes, as dual-stack listeners see it, is IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32u32.saturating_sub(self.prefix.into());
                (own.to_bits() ^ other.to_bits()).checked_shr(shift).is_none_or(|rest| rest == 0)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128u32.saturating_sub(self.prefix.into());
                (own.to_bits() ^ other.to_bits()).checked_shr(shift).is_none_or(|rest| rest == 0)
            }
            _ => false,
        }
    }

    /// Its first two addresses that hosts may have: one of them may be this host's.
    pub fn first_hosts(&self) -> [IpAddr; 2] {
        let hosts = |whole: u32| whole.saturating_sub(self.prefix.into());
        match self.address {
            IpAddr::V4(own) => {
                let network = own.to_bits() & u32::MAX.checked_shl(hosts(32)).unwrap_or(0);
                [1, 2].map(|host| IpAddr::V4((network | host).into()))
            }
            IpAddr::V6(own) => {
                let network = own.to_bits() & u128::MAX.checked_shl(hosts(128)).unwrap_or(0);
                [1, 2].map(|host| IpAddr::V6((network | host).into()))
            }
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not an address or a block of them (10.0.0.0/24)");
        let (address, prefix) = match text.trim().split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(whole), |p| p.parse().map_err(|_| bad()))?;
        if prefix > whole { Err(bad()) } else { Ok(Self { address, prefix }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Where something listens: a name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

impl Endpoint {
    /// `storage2`, `10.0.0.2:5201`, `2001:db8::2`, `[2001:db8::2]:5201`; `port` where none is named.
    ///
    /// # Errors
    /// A sentence about what is none.
    pub fn parse(text: &str, port: u16) -> Result<Self, String> {
        let bad = || format!("`{text}` is not an address or a name (storage2, 10.0.0.2:5201)");
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let (host, port) = match text.rsplit_once(':') {
            _ if bare.parse::<Ipv6Addr>().is_ok() => (bare, port),
            None => (text, port),
            Some((host, port)) => {
                let host = match host.strip_prefix('[') {
                    Some(host) => host.strip_suffix(']').ok_or_else(bad)?,
                    None => host,
                };
                (host, port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?)
            }
        };
        let of_name = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
        let is_name = !host.is_empty() && host.len() < 254 && host.chars().all(of_name);
        let is_one = !host.contains(':') || host.parse::<Ipv6Addr>().is_ok();
        if is_name && is_one { Ok(Self { host: host.into(), port }) } else { Err(bad()) }
    }

    /// The address, where it is written as one.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_port_or_is_given_one() {
        let endpoint =
            |text: &str| Endpoint::parse(text, 5201).map(|endpoint| endpoint.to_string());
        for (text, right) in [
            ("storage2", "storage2:5201"),
            ("storage2:99", "storage2:99"),
            ("10.0.0.2", "10.0.0.2:5201"),
            ("2001:db8::2", "[2001:db8::2]:5201"),
            ("[2001:db8::2]", "[2001:db8::2]:5201"),
            ("[2001:db8::2]:99", "[2001:db8::2]:99"),
        ] {
            assert_eq!(endpoint(text).as_deref(), Ok(right));
        }
        for bad in ["", ":5201", "a b", "a:0", "a:x", "a:99999", "a:b:1", "[::1:2", "http://a/"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    fn holds(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_block_holds_its_addresses_and_no_other() {
        assert!(holds("10.0.0.0/24", "10.0.0.255") && !holds("10.0.0.0/24", "10.0.1.0"));
        assert!(holds("10.0.0.7", "10.0.0.7") && !holds("10.0.0.7", "10.0.0.6"));
        assert!(holds("0.0.0.0/0", "255.1.2.3") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("2001:db8::/32", "2001:db8:1::1") && !holds("2001:db8::/32", "2001:db9::1"));
        assert!(holds("::/0", "2001:db8::1"));
        assert!(holds("10.0.0.0/8", "::ffff:10.1.2.3"), "a dual-stack listener sees it so");
    }

    #[test]
    fn the_first_hosts_of_a_block_are_in_it() {
        let first = |text: &str| {
            let network: Network = text.parse().unwrap();
            network.first_hosts().map(|host| host.to_string())
        };
        assert_eq!(first("10.2.0.77/24"), ["10.2.0.1", "10.2.0.2"]);
        assert_eq!(first("0.0.0.0/0"), ["0.0.0.1", "0.0.0.2"]);
        assert_eq!(first("fd01::9/64"), ["fd01::1", "fd01::2"]);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for bad in ["", "host", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/-1", "10.0.0.0/"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
