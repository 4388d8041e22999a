//! Whether the host runs on its battery (Documentation/ABI/testing/sysfs-class-power).

use std::path::Path;

use super::roots::{Roots, attribute};

/// True when the host has a battery of its own, and an outside supply that is off with none that
/// is on. A mouse's battery (scope `Device`) is not the host's.
///
/// Only attributes that ask no embedded controller are read.
pub fn on_battery(roots: &Roots) -> bool {
    let Ok(supplies) = std::fs::read_dir(roots.sys("class/power_supply")) else { return false };
    let (mut battery, mut off, mut on) = (false, false, false);
    for supply in supplies.flatten() {
        match kind_of(&supply.path()) {
            Supply::Battery => battery = true,
            Supply::Outside { online: true } => on = true,
            Supply::Outside { online: false } => off = true,
            Supply::Other => {}
        }
    }
    battery && off && !on
}

enum Supply {
    Battery,
    Outside { online: bool },
    Other,
}

fn kind_of(supply: &Path) -> Supply {
    let is = |name: &str, value: &str| attribute(&supply.join(name)).as_deref() == Some(value);
    if is("scope", "Device") {
        return Supply::Other;
    }
    match attribute(&supply.join("type")).as_deref() {
        Some("Battery") => Supply::Battery,
        // `online` 2 is a supply with a programmable voltage: on as well.
        Some("Mains" | "USB" | "Wireless") => match attribute(&supply.join("online")) {
            Some(online) => Supply::Outside { online: online != "0" },
            None => Supply::Other,
        },
        _ => Supply::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Host;
    use super::*;

    fn with(supplies: &[(&str, &str, &str)]) -> bool {
        let host = Host::new();
        for (name, kind, online) in supplies {
            host.file(&format!("sys/class/power_supply/{name}/type"), format!("{kind}\n"));
            if !online.is_empty() {
                host.file(&format!("sys/class/power_supply/{name}/online"), format!("{online}\n"));
            }
        }
        on_battery(&host.roots())
    }

    #[test]
    fn a_laptop_without_mains_is_on_battery() {
        assert!(with(&[("AC", "Mains", "0"), ("BAT0", "Battery", "")]));
        assert!(!with(&[("AC", "Mains", "1"), ("BAT0", "Battery", "")]));
        assert!(!with(&[("AC", "Mains", "0"), ("usbc", "USB", "1"), ("BAT0", "Battery", "")]));
    }

    #[test]
    fn a_host_without_a_battery_of_its_own_never_is() {
        assert!(!with(&[]));
        assert!(!with(&[("AC", "Mains", "0")]));
        let host = Host::new();
        host.file("sys/class/power_supply/AC/type", "Mains\n");
        host.file("sys/class/power_supply/AC/online", "0\n");
        host.file("sys/class/power_supply/mouse/type", "Battery\n");
        host.file("sys/class/power_supply/mouse/scope", "Device\n");
        assert!(!on_battery(&host.roots()));
    }
}
