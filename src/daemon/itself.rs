//! What loadline says of itself: the families that are served even when everything else is stale.

use std::sync::Arc;

use crate::base::clock::Moment;
use crate::host::roots;
use crate::model::metric::{Desc, Label, Point, push_some};

pub static BUILD_INFO: Desc = Desc::gauge(
    "loadline_build_info",
    &["version", "revision"],
    "Always 1; the running version and its revision.",
    "build",
);
pub static SAMPLER_UP: Desc = Desc::gauge(
    "loadline_sampler_up",
    &["sampler"],
    "Whether the sampler's last reading succeeded; absent where this kernel lacks its source.",
    "sampling lane",
);
pub static SAMPLER_LAST_SUCCESS: Desc = Desc::gauge(
    "loadline_sampler_last_success_timestamp_seconds",
    &["sampler"],
    "Unix time of the sampler's last good reading; everything it publishes is of that time.",
    "sampling lane",
);
pub static SAMPLER_READ: Desc = Desc::gauge(
    "loadline_sampler_read_seconds",
    &["sampler"],
    "Time the sampler's last reading took.",
    "sampling lane",
);
pub static SAMPLER_FAILURES: Desc = Desc::counter(
    "loadline_sampler_failures_total",
    &["sampler", "reason"],
    "Readings that failed, by reason: missing, denied (also: too many open files), malformed ...",
    "sampling lane",
);
pub static SAMPLER_REJECTED: Desc = Desc::counter(
    "loadline_sampler_rejected_total",
    &["sampler"],
    "Lines, fields and windows that were skipped because they could not be true.",
    "sampling lane",
);
pub static SAMPLES_LATE: Desc = Desc::counter(
    "loadline_samples_late_total",
    &[],
    "Readings that were skipped because the one before was still on or the host stood still.",
    "sampling lane",
);
pub static LANE_RESTARTS: Desc = Desc::counter(
    "loadline_lane_restarts_total",
    &["lane"],
    "Times a lane was started again after a panic.",
    "supervisor",
);
pub static CONFIG_RELOAD_OK: Desc = Desc::gauge(
    "loadline_config_last_reload_successful",
    &[],
    "Whether the last attempt to load the configuration succeeded; 0 keeps the old one.",
    "configuration",
);
pub static CONFIG_RELOAD_AT: Desc = Desc::gauge(
    "loadline_config_last_reload_success_timestamp_seconds",
    &[],
    "Unix time of the last successful load of the configuration.",
    "configuration",
);
pub static STATE_DISCARDED: Desc = Desc::counter(
    "loadline_state_discarded_total",
    &["reason"],
    "State files that were not believed and set aside, and ceilings in them of another machine or of \
     another device under the same name.",
    "state file",
);
pub static SANDBOX: Desc = Desc::gauge(
    "loadline_sandbox_enforced",
    &["part"],
    "Whether this part of the last worker's confinement held on this kernel.",
    "worker",
);
pub static DROPPED_DEVICES: Desc = Desc::gauge(
    "loadline_dropped_devices",
    &[],
    "Devices without series because of sample.devices_max.",
    "samplers",
);
static CPU: Desc = Desc::counter(
    "process_cpu_seconds_total",
    &[],
    "User and system CPU time of the daemon, workers that ended included.",
    "/proc/self/stat",
);
static RESIDENT: Desc = Desc::gauge(
    "process_resident_memory_bytes",
    &[],
    "Resident memory of the daemon.",
    "/proc/self/stat",
);
static VIRTUAL: Desc = Desc::gauge(
    "process_virtual_memory_bytes",
    &[],
    "Virtual memory of the daemon.",
    "/proc/self/stat",
);
static START: Desc = Desc::gauge(
    "process_start_time_seconds",
    &[],
    "Unix time at which the daemon started.",
    "/proc/self/stat",
);
static OPEN_FDS: Desc =
    Desc::gauge("process_open_fds", &[], "Open file descriptors of the daemon.", "/proc/self/fd");
static MAX_FDS: Desc =
    Desc::gauge("process_max_fds", &[], "Limit of open file descriptors.", "getrlimit");

pub static DESCS: &[&Desc] = &[
    &BUILD_INFO,
    &SAMPLER_UP,
    &SAMPLER_LAST_SUCCESS,
    &SAMPLER_READ,
    &SAMPLER_FAILURES,
    &SAMPLER_REJECTED,
    &SAMPLES_LATE,
    &LANE_RESTARTS,
    &CONFIG_RELOAD_OK,
    &CONFIG_RELOAD_AT,
    &STATE_DISCARDED,
    &SANDBOX,
    &DROPPED_DEVICES,
    &CPU,
    &RESIDENT,
    &VIRTUAL,
    &START,
    &OPEN_FDS,
    &MAX_FDS,
];

/// Everything that the daemon publishes, for the metric reference and the checks of rules and panels.
pub fn descs() -> Vec<&'static Desc> {
    let samplers = crate::sample::SAMPLERS.iter().flat_map(|kind| kind.descs.iter());
    let mut all: Vec<&'static Desc> = samplers
        .chain(crate::probe::PROBES.iter().flat_map(|kind| kind.descs.iter()))
        .chain(crate::probe::metrics::EVERY)
        .chain(crate::probe::metrics::TARGETS)
        .chain(crate::probe::throughput::metrics::DESCS)
        .chain(crate::judge::families::DESCS)
        .chain(crate::judge::load::DESCS)
        .chain(DESCS)
        .chain(crate::publish::DESCS)
        .copied()
        .collect();
    all.sort_by_key(|desc| (desc.name, desc.labels));
    all.dedup_by_key(|desc| (desc.name, desc.labels));
    all
}

/// Revision the binary was built from; `unknown` outside a checkout.
pub const REVISION: &str = env!("LOADLINE_REVISION");

pub fn build_info() -> Point {
    let (version, revision): (Label, Label) =
        (Arc::from(env!("CARGO_PKG_VERSION")), Arc::from(REVISION));
    Point::number(&BUILD_INFO, &[&version, &revision], 1.0)
}

/// The `process_*` families, from the daemon's own /proc entry.
pub fn process(out: &mut Vec<Point>, started: Moment) {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let page = rustix::param::page_size() as f64;
    let stat = roots::read_file("/proc/self/stat".as_ref()).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // The command name may hold anything; fields are counted after its closing bracket.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let field = |n: usize| fields.get(n - 3).and_then(|v| v.parse::<f64>().ok());
    let cpu: Option<f64> = [14, 15, 16, 17].into_iter().map(field).sum();
    push_some(out, &CPU, &[], cpu.map(|c| c / ticks));
    push_some(out, &VIRTUAL, &[], field(23));
    push_some(out, &RESIDENT, &[], field(24).map(|pages| pages * page));
    push_some(out, &START, &[], Some(started.unix_seconds()));
    let open = std::fs::read_dir("/proc/self/fd").map(|fds| fds.count().saturating_sub(1));
    push_some(out, &OPEN_FDS, &[], open.ok().map(|n| n as f64));
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    push_some(out, &MAX_FDS, &[], limit.map(|n| n as f64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_families_are_all_there_on_linux() {
        let mut points = Vec::new();
        process(&mut points, Moment::default());
        assert_eq!(points.len(), 6, "{points:?}");
    }
}
