//! The host as it is at start: whether its roots are there, and what it is.

use crate::base::fault::Fault;
use crate::host::roots::Roots;
use crate::model::snapshot::HostFacts;

/// A wrong root is found at start, not as a page without disks.
pub(super) fn roots_are_there(roots: &Roots) -> Result<(), Fault> {
    for (path, flag, wanted) in
        [(&roots.procfs, "--path.procfs", "diskstats"), (&roots.sysfs, "--path.sysfs", "block")]
    {
        let probe = path.join(wanted);
        if let Err(error) = std::fs::metadata(&probe) {
            let text = format!("{}: {error}; is {flag} right?", probe.display());
            return Err(Fault { text, ..Fault::os("", &error) });
        }
    }
    Ok(())
}

/// The machine, as its own files name it.
pub fn facts(roots: &Roots) -> HostFacts {
    use sysinfo::System;
    let read = |path| crate::host::roots::attribute(&roots.proc(path));
    HostFacts {
        name: read("sys/kernel/hostname").or_else(|| System::host_name().ok()).unwrap_or_default(),
        system: System::long_os_version().unwrap_or_default(),
        kernel: read("sys/kernel/osrelease")
            .or_else(|| System::kernel_version().ok())
            .unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
        boot_id: read("sys/kernel/random/boot_id").unwrap_or_default(),
        machine_id: crate::host::roots::attribute(&roots.rootfs.join("etc/machine-id"))
            .unwrap_or_default(),
    }
}
