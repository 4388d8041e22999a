//! From the socket down: each interface that packets to a peer go through, what it adds to them, and
//! how much of them it lets through.

use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::link_facts::{Declared, facts, fastest_member, way_out};
use super::super::links::text_of;
use super::super::roots::attribute;
use super::kernel::{Ask, Device, Tunnel};
use crate::base::physics::{FRAME_BYTES, Framing, goodput};
use crate::base::units::Rate;

/// VXLAN on a VLAN on a bridge on a bond is four; more than this is a loop or a jest.
const DEVICES_MAX: usize = 12;
const IPV4: u32 = 20;
const IPV6: u32 = 40;
const TCP: u32 = 20;
const TIMESTAMPS: u32 = 12;
/// What the kernel counts of a frame beside its packet: the Ethernet header, and no checksum,
/// preamble or gap.
const COUNTED: u32 = 14;

/// One thing that bounds a direction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) rate: Rate,
    pub(super) flow: Rate,
    pub(super) framing: Framing,
    pub(super) declared: bool,
    /// `eth0`, `tbf on eth0`.
    pub(super) name: String,
}

impl Bound {
    fn payload(&self) -> f64 {
        goodput(self.rate, self.framing).map_or(0.0, |rate| rate.0)
    }
}

/// What was found on the way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) devices: Vec<String>,
    pub(super) transmit: Vec<Bound>,
    pub(super) receive: Vec<Bound>,
    /// Packets as they are on the lowest interface that was found.
    pub(super) framing: Option<Framing>,
    /// What they are wrapped in.
    pub(super) overlays: Vec<&'static str>,
    /// Why the way ended where no rate is known.
    pub(super) unknown: String,
}

impl Found {
    /// What binds most.
    pub(super) fn least(bounds: &[Bound]) -> Option<&Bound> {
        bounds.iter().min_by(|a, b| a.payload().total_cmp(&b.payload()))
    }
}

/// What is read on the way down.
pub(super) struct Walk<'a> {
    pub(super) kernel: &'a dyn Ask,
    /// /sys/class/net.
    pub(super) net: &'a Path,
    pub(super) declared: &'a Declared,
    /// TCP here uses timestamps.
    pub(super) timestamps: bool,
}

/// Where to go on.
enum Step {
    Down(u32),
    /// There is nothing below that counts.
    End,
}

impl Walk<'_> {
    /// The way to `to`; `scope` is the interface of an address that is good on one link only.
    pub(super) fn to(&self, to: IpAddr, scope: Option<u32>) -> Found {
        let mut found = Found::default();
        if let Err(why) = self.go(to, scope, &mut found) {
            found.unknown = why;
        }
        found
    }

    fn go(&self, to: IpAddr, scope: Option<u32>, found: &mut Found) -> Result<(), String> {
        let to = to.to_canonical();
        let hop = self.kernel.hop(to, scope).map_err(|error| unasked("the route", &error))?;
        if hop.local {
            return Err("the peer is this host itself".into());
        }
        if hop.encapsulates {
            return Err("the route puts packets into others in a way that isn't known here".into());
        }
        let first = self.device(hop.ifindex)?;
        let ip = if to.is_ipv6() { IPV6 } else { IPV4 };
        let timestamps = if self.timestamps { TIMESTAMPS } else { 0 };
        let mut framing = Framing {
            mtu: hop.mtu.map_or(first.mtu, |mtu| mtu.min(first.mtu)),
            headers: ip + TCP + timestamps,
            ..Framing::default()
        };
        let mut device = first;
        for _ in 0..DEVICES_MAX {
            found.devices.push(text_of(device.name.as_bytes()));
            if framing.mtu > device.mtu {
                let (packet, name, mtu) = (framing.mtu, device.name.display(), device.mtu);
                return Err(format!("packets of {packet} bytes don't fit {name}'s MTU of {mtu}"));
            }
            found.framing = Some(framing);
            self.shaper(&device, framing, found);
            device = match self.step(&device, &mut framing, found)? {
                Step::Down(ifindex) => self.device(ifindex)?,
                Step::End => return Ok(()),
            };
        }
        Err("there is no end to what the way stands on".into())
    }

    fn device(&self, ifindex: u32) -> Result<Device, String> {
        self.kernel.device(ifindex).map_err(|error| unasked("an interface on the way", &error))
    }

    /// A token bucket at the root sees all that is sent, frame by frame.
    fn shaper(&self, device: &Device, framing: Framing, found: &mut Found) {
        let Ok(Some(bucket)) = self.kernel.token_bucket(device.ifindex) else { return };
        found.transmit.push(Bound {
            rate: bucket.rate,
            flow: bucket.rate,
            framing: Framing { frame: COUNTED + u32::from(bucket.overhead), tags: 0, ..framing },
            declared: false,
            name: format!("tbf on {}", device.name.display()),
        });
    }

    /// What `device` makes of packets, and what it stands on.
    fn step(
        &self,
        device: &Device,
        framing: &mut Framing,
        found: &mut Found,
    ) -> Result<Step, String> {
        let name = device.name.display();
        if device.loopback {
            return Err("the peer is this host itself".into());
        }
        if device.name.to_str().is_some_and(|name| self.declared.contains_key(name)) {
            return self.line(device, *framing, found);
        }
        if let Some(tunnel) = &device.tunnel {
            return self.tunnel((device, tunnel), framing, found);
        }
        let below = |what: &str| {
            let elsewhere = format!("{name}: {what} is in another network namespace");
            device.lower.map(Step::Down).ok_or(elsewhere)
        };
        match device.kind.as_str() {
            "" | "bond" | "team" => self.line(device, *framing, found),
            "vlan" => {
                framing.tags += 1;
                found.overlays.push("VLAN");
                below("what it stands on")
            }
            "macvlan" | "macvtap" | "ipvlan" | "ipvtap" => below("what it stands on"),
            "veth" => {
                let Step::Down(end) = below("its other end")? else { return Ok(Step::End) };
                let end = self.device(end)?;
                let master = end.master.ok_or_else(|| {
                    format!("{name} leads to {}, which leads nowhere", end.name.display())
                })?;
                Ok(Step::Down(master))
            }
            "bridge" => {
                let out = self.sysfs(device).and_then(|_| {
                    way_out(self.net, &device.name)
                        .ok_or_else(|| format!("{name} has no one way out"))
                })?;
                Ok(Step::Down(self.ifindex(&out).ok_or_else(|| format!("{name}: no way out"))?))
            }
            kind => {
                // Nor what it adds to each packet.
                found.framing = None;
                Err(format!("what carries {name}, a {kind}, isn't known"))
            }
        }
    }

    fn tunnel(
        &self,
        (device, tunnel): (&Device, &Tunnel),
        framing: &mut Framing,
        found: &mut Found,
    ) -> Result<Step, String> {
        let outer = if tunnel.outer_v6 { IPV6 } else { IPV4 };
        // A tag inside is one more thing that is carried.
        let adds = outer + tunnel.adds + 4 * framing.tags;
        let (mtu, encapsulation) =
            (framing.mtu.saturating_add(adds), framing.encapsulation.saturating_add(adds));
        *framing = Framing { mtu, encapsulation, tags: 0, ..*framing };
        found.overlays.push(tunnel.label);
        let Some(remote) = tunnel.remote else {
            let unknown = format!("{} has ends of which none is known", device.name.display());
            return tunnel.lower.map(Step::Down).ok_or(unknown);
        };
        let hop = self.kernel.hop(remote, tunnel.lower);
        let hop = hop.map_err(|error| unasked("the route of a tunnel", &error))?;
        if hop.local || hop.encapsulates {
            return Err(format!("{} leads to this host itself", device.name.display()));
        }
        Ok(Step::Down(hop.ifindex))
    }

    /// The rate of a line, as declared or as sysfs has it.
    fn line(&self, device: &Device, framing: Framing, found: &mut Found) -> Result<Step, String> {
        let name = text_of(device.name.as_bytes());
        let unknown = || format!("the line rate of {name} isn't known");
        if !self.declared.contains_key(&name) {
            self.sysfs(device)?;
        }
        let capacity = facts(self.net, &device.name, self.declared).capacity.ok_or_else(unknown)?;
        let member = fastest_member(self.net, &device.name, self.declared);
        let bound = |rate: Rate| Bound {
            rate,
            flow: member.map_or(rate, |member| Rate(member.0.min(rate.0))),
            framing: Framing { frame: FRAME_BYTES, ..framing },
            declared: capacity.declared,
            name: name.clone(),
        };
        found.transmit.push(bound(capacity.transmit));
        found.receive.push(bound(capacity.receive));
        Ok(Step::End)
    }

    /// # Errors
    /// Where /sys shows another namespace's interfaces than rtnetlink.
    fn sysfs(&self, device: &Device) -> Result<(), String> {
        match self.ifindex(&device.name) {
            Some(ifindex) if ifindex == device.ifindex => Ok(()),
            _ => Err(format!(
                "{} doesn't show {}: it is of another network namespace",
                self.net.display(),
                device.name.display()
            )),
        }
    }

    fn ifindex(&self, name: &OsStr) -> Option<u32> {
        attribute(&self.net.join(name).join("ifindex"))?.parse().ok()
    }
}

fn unasked(what: &str, error: &io::Error) -> String {
    format!("{what}: {error}")
}
