//! Values for tests, which name only what they are about: `Measured { reads, ..measured(profile()) }`.

use super::job::{Access, Backing, Device, EngineKind, Profile};
use super::outcome::{Direction, Inspection, Measured};
use super::way::{Line, PeerWay};
use crate::base::physics::Framing;
use crate::base::units::{Bytes, GIB, Rate, Ratio, Seconds};

/// Random reads of 4 KiB by one job for 10 s.
pub(crate) fn profile() -> Profile {
    Profile {
        name: "rand_read".into(),
        access: Access::Random,
        reads: Ratio(1.0),
        block: Bytes(4096),
        depth: 4,
        jobs: 1,
        runtime: Seconds(10.0),
        ramp: Seconds(0.0),
        bytes_max: Bytes(1 << 40),
        operations_max: None,
        span: None,
        sync: false,
        flush: false,
        direct: true,
        oltp: None,
    }
}

/// A leg as long as its profile in which nothing moved.
pub(crate) fn measured(profile: Profile) -> Measured {
    Measured {
        elapsed: profile.runtime,
        profile,
        engine: EngineKind::IoUring,
        engine_reason: String::new(),
        direct: true,
        reads: Direction::default(),
        writes: Direction::default(),
        flush: None,
        seed: 1,
        rates: Vec::new(),
        steady: None,
        errors: 0,
        short_operations: 0,
    }
}

/// Half of 100 GiB of xfs on one disk, of which it isn't known whether it turns.
pub(crate) fn inspection() -> Inspection {
    let sda = Device { name: "sda".into(), stat: "block/sda/stat".into(), rotational: None };
    Inspection {
        mount_point: "/srv".into(),
        filesystem: "xfs".into(),
        source: "/dev/sda1".into(),
        backing: Backing::Local,
        copy_on_write: false,
        zoned: false,
        read_only: false,
        size: Bytes(100 * GIB),
        available: Bytes(50 * GIB),
        inodes_free: None,
        devices: vec![sda.clone()],
        top: vec![sda],
        ballast: None,
    }
}

/// VXLAN over a gigabit, which carries 908.97 Mbit/s of payload either way.
pub(crate) fn vxlan() -> PeerWay {
    let line = Line {
        rate: Rate(125e6),
        flow: Rate(125e6),
        framing: Framing { encapsulation: 50, ..Framing::default() },
        declared: false,
        source: "eth0, 1 Gbit/s, VXLAN, MTU 1500".into(),
    };
    PeerWay {
        devices: vec!["vx0".into(), "eth0".into()],
        transmit: Some(line.clone()),
        receive: Some(line),
        ..PeerWay::default()
    }
}
