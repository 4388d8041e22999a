//! Blocks of addresses, as an allow-list names them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_no_block_is_refused() {
        for bad in ["", "host", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/-1", "10.0.0.0/"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
