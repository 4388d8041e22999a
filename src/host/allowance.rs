//! What a cloud's network card counts of packets that were held back or dropped because an instance
//! had used up what it pays for: by ethtool's statistics, since no file has them.

use std::ffi::OsStr;
use std::path::Path;

use super::sys::interface_statistics;

/// Drivers of clouds' cards; others have thousands of statistics, and some ask their firmware for each
/// (only ENA has allowances today: drivers/net/ethernet/amazon/ena/ena_ethtool.c).
const DRIVERS: [&str; 6] = ["ena", "gve", "virtio_net", "hv_netvsc", "mana", "vif"];
const SUFFIX: &str = "_allowance_exceeded";
/// `ETH_GSTRING_LEN` of include/uapi/linux/ethtool.h.
const NAME_BYTES: usize = 32;
/// As many as any card has; a label value each.
const ALLOWANCES_MAX: usize = 16;

/// Packets beyond each allowance of `name` (`bw_in`, `pps`, `conntrack` ...) since its driver was loaded.
/// None where the card has no such thing. `name` is of this process's own network namespace. May be slow.
pub fn exceeded(net: &Path, name: &OsStr) -> Vec<(String, u64)> {
    let driver = net.join(name).join("device/driver").read_link().ok();
    let known = driver.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
    if !known.is_some_and(|driver| DRIVERS.contains(&driver)) {
        return Vec::new();
    }
    interface_statistics(name).map_or_else(|_| Vec::new(), |(names, values)| parse(&names, &values))
}

/// Allowances among the statistics of a card: names of 32 bytes each, and a value for each.
fn parse(names: &[u8], values: &[u64]) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for (name, value) in names.chunks_exact(NAME_BYTES).zip(values) {
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        let Ok(name) = std::str::from_utf8(&name[..end]) else { continue };
        let Some(allowance) = name.trim().strip_suffix(SUFFIX) else { continue };
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let new = !found.iter().any(|(known, _)| known == allowance);
        if !allowance.is_empty() && allowance.bytes().all(plain) && new {
            found.push((allowance.to_owned(), *value));
        }
        if found.len() == ALLOWANCES_MAX {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::Host;
    use super::*;

    fn names(names: &[&str]) -> Vec<u8> {
        let padded = |name: &&str| {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(NAME_BYTES, 0);
            bytes
        };
        names.iter().flat_map(padded).collect()
    }

    #[test]
    fn only_allowances_are_taken_of_a_cards_statistics() {
        let all = names(&[
            "tx_timeout",
            "bw_in_allowance_exceeded",
            " pps_allowance_exceeded",
            "conntrack_allowance_available",
            "queue_0_tx_cnt",
            "bw_in_allowance_exceeded",
            "_allowance_exceeded",
            "a.b_allowance_exceeded",
        ]);
        let found = parse(&all, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(found, [("bw_in".to_owned(), 2), ("pps".to_owned(), 3)]);
        assert_eq!(parse(&all, &[1, 2]).len(), 1, "a driver that gives fewer values than names");
        assert_eq!(parse(&all[..40], &[1, 2, 3]).len(), 0);
    }

    #[test]
    fn only_drivers_of_clouds_are_asked() {
        let host = Host::new();
        host.symlink("class/net/lo/device/driver", "/sys/bus/pci/drivers/mlx5_core");
        assert_eq!(exceeded(&host.at("class/net"), "lo".as_ref()), []);
        assert_eq!(exceeded(&host.at("class/net"), "gone".as_ref()), []);
    }

    proptest! {
        #[test]
        fn any_statistics_are_survived(
            names in prop::collection::vec(any::<u8>(), 0..400),
            values in prop::collection::vec(any::<u64>(), 0..20),
        ) {
            let found = parse(&names, &values);
            prop_assert!(found.len() <= values.len().min(ALLOWANCES_MAX));
        }
    }
}
