//! The metric families of probes and their targets.

use crate::model::metric::Desc;

const PROBE: &[&str] = &["probe", "target"];
const REASON: &[&str] = &["probe", "target", "reason"];
const QUANTILE: &[&str] = &["probe", "target", "q"];
const FLAG: &[&str] = &["probe", "target", "flag"];
const INFO: &[&str] =
    &["probe", "target", "profile", "engine", "block_size", "depth", "jobs", "direct", "streams"];
const TARGET: &[&str] = &["target"];

/// One family as a static: `family!(NAME, kind, "name", LABELS, "help", "source")`.
macro_rules! family {
    ($($id:ident: $kind:ident $name:literal $labels:ident $help:literal $source:literal;)*) => {
        $(pub(super) static $id: Desc = Desc::$kind($name, $labels, $help, $source);)*
    };
}

pub(super) use family;

family! {
    RUNS: counter "loadline_probe_runs_total" PROBE
        "Runs that took place, whatever came of them." "probe lane";
    FAILURES: counter "loadline_probe_failures_total" REASON
        "Runs that failed, by kind of fault." "probe lane";
    SKIPS: counter "loadline_probe_skips_total" REASON
        "Runs that did not take place, by reason." "probe lane";
    LAST_RUN: gauge "loadline_probe_last_run_timestamp_seconds" PROBE
        "When the last run ended, as Unix time." "probe lane";
    LAST_SUCCESS: gauge "loadline_probe_last_success_timestamp_seconds" PROBE
        "When the last successful run ended, as Unix time." "probe lane";
    INTERVAL: gauge "loadline_probe_interval_seconds" PROBE
        "Time from one run to the next, as planned." "configuration";
    RUN_TIME: gauge "loadline_probe_run_seconds" PROBE
        "How long the last run took, everything included." "probe lane";
    HUNG: gauge "loadline_probe_hung_seconds" PROBE
        "For how long the worker has been stuck in calls into the target; 0 when it isn't."
        "probe lane";
    PROBE_INFO: gauge "loadline_probe_info" INFO
        "How the last run was done; 1." "worker";
    OPERATIONS: gauge "loadline_probe_operations_per_second" PROBE
        "Operations a second of the last run, reads and writes together." "worker";
    READ_OPERATIONS: gauge "loadline_probe_read_operations_per_second" PROBE
        "Reads a second of the last run." "worker";
    WRITE_OPERATIONS: gauge "loadline_probe_write_operations_per_second" PROBE
        "Writes a second of the last run, the final flush included." "worker";
    READ_BYTES: gauge "loadline_probe_read_bytes_per_second" PROBE
        "Bytes read a second in the last run." "worker";
    WRITE_BYTES: gauge "loadline_probe_write_bytes_per_second" PROBE
        "Bytes written a second in the last run, the final flush included." "worker";
    READ_LATENCY: gauge "loadline_probe_read_latency_seconds" QUANTILE
        "Total latency of reads of the last run at a quantile it had operations enough for."
        "worker";
    WRITE_LATENCY: gauge "loadline_probe_write_latency_seconds" QUANTILE
        "Total latency of writes of the last run at a quantile it had operations enough for."
        "worker";
    READ_DURATION: histogram "loadline_probe_read_duration_seconds" PROBE
        "Total latency of the reads of all runs." "worker";
    WRITE_DURATION: histogram "loadline_probe_write_duration_seconds" PROBE
        "Total latency of the writes of all runs." "worker";
    DEVICE_BUSY: gauge "loadline_probe_device_busy_ratio" PROBE
        "Share of the last run in which the busiest leaf disk had work." "stat file of the disk";
    AMPLIFICATION: gauge "loadline_probe_write_amplification_ratio" PROBE
        "Bytes written at the leaf disks / bytes the last run wrote." "stat file of the disk";
    READ_SHARE: gauge "loadline_probe_device_read_share_ratio" PROBE
        "Bytes read at the leaf disks / bytes the last run read." "stat file of the disk";
    FOREIGN: gauge "loadline_probe_foreign_load_ratio" PROBE
        "Bytes a second that others moved around the last run / its own." "stat file of the disk";
    CPU: gauge "loadline_probe_cpu_ratio" PROBE
        "CPUs that the worker used during the last run." "clock of the worker";
    THREAD: gauge "loadline_probe_busiest_thread_cpu_ratio" PROBE
        "Share of a CPU that the busiest thread of the last run used, or a kernel thread on its way \
         to the disks." "/proc/self/task, /proc/PID/stat";
    STEAL: gauge "loadline_probe_cpu_steal_ratio" PROBE
        "CPU time that the hypervisor withheld during the last run." "/proc/stat";
    THROTTLED: gauge "loadline_probe_cpu_throttled_ratio" PROBE
        "Share of the last run in which a CPU limit of a cgroup held the worker back." "cpu.stat";
    IO_LIMIT: gauge "loadline_probe_io_limit_used_ratio" PROBE
        "What the last run used of the cgroup limit on I/O that it came nearest to." "io.max";
    VARIATION: gauge "loadline_probe_rate_variation_ratio" PROBE
        "Standard deviation / mean of the rates of the last run in intervals of 100 ms." "worker";
    FLAGS: gauge "loadline_probe_flag" FLAG
        "Validity of the last run: 1 where the flag holds; absent where that can't be known."
        "worker";
    TARGET_READ: counter "loadline_probe_read_bytes_total" TARGET
        "Bytes that probes read from the target." "worker";
    TARGET_WRITTEN: counter "loadline_probe_written_bytes_total" TARGET
        "Bytes that probes wrote to the target, as its disks counted them where that is more."
        "worker";
    BUDGET: gauge "loadline_write_budget_remaining_bytes" TARGET
        "Bytes that probes may still write to the target now." "budget";
    SIZE: gauge "loadline_filesystem_size_bytes" TARGET
        "Size of the file system of the target." "statvfs in a worker";
    AVAILABLE: gauge "loadline_filesystem_available_bytes" TARGET
        "Space on the file system of the target that users may take." "statvfs in a worker";
}

/// Families of every probe, of whatever kind.
pub static EVERY: &[&Desc] = &[
    &RUNS,
    &FAILURES,
    &SKIPS,
    &LAST_RUN,
    &LAST_SUCCESS,
    &INTERVAL,
    &RUN_TIME,
    &HUNG,
    &PROBE_INFO,
    &FLAGS,
];

/// Families of probes on storage.
pub static STORAGE: &[&Desc] = &[
    &OPERATIONS,
    &READ_OPERATIONS,
    &WRITE_OPERATIONS,
    &READ_BYTES,
    &WRITE_BYTES,
    &READ_LATENCY,
    &WRITE_LATENCY,
    &READ_DURATION,
    &WRITE_DURATION,
    &DEVICE_BUSY,
    &AMPLIFICATION,
    &READ_SHARE,
    &FOREIGN,
    &CPU,
    &THREAD,
    &STEAL,
    &THROTTLED,
    &IO_LIMIT,
    &VARIATION,
];

/// Families of targets.
pub static TARGETS: &[&Desc] = &[&TARGET_READ, &TARGET_WRITTEN, &BUDGET, &SIZE, &AVAILABLE];
