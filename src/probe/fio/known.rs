//! What becomes of each option that is not honoured as it stands.

/// How an option is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Read by `job`.
    Honoured,
    /// Means nothing for the result; says why.
    NoEffect(&'static str),
    /// Only these values, which are what happens here anyway; else refused with what is nearest.
    Only(&'static [&'static str], &'static str),
}

use Treatment::{Honoured, NoEffect, Only};

const OUTPUT: &str = "it shapes fio's own output";
const LAYOUT: &str =
    "the file is always written whole before, and gone or kept as loadline keeps it";
const RATE: &str = "a rate can't be held: leave it out, and bound the job by `size` or `runtime`";
const BLOCKS: &str = "one block size a section: write `bs=`, and a section for each size";
const BATCH: &str = "each operation is submitted by itself, as with fio's default of 1";
const FLUSH: &str = "no flush after every N writes: `sync=dsync` commits each write by itself (as a \
                     database's log feels it), `end_fsync=1` flushes once at the end";
const PLACE: &str =
    "the place comes from the target: `--target DIR`, or `target` in the configuration";
const DATA: &str = "blocks are always unique and can't be compressed";
const HOST: &str = "a worker keeps the place and rank that loadline gave it";
const VERIFY: &str = "data is not verified: use fio itself for that";

/// `None`: fio may know it, this engine doesn't.
pub(super) fn treatment(key: &str) -> Option<Treatment> {
    Some(match key {
        "rw" | "readwrite" | "rwmixread" | "rwmixwrite" | "bs" | "blocksize" | "iodepth"
        | "numjobs" | "runtime" | "timeout" | "time_based" | "ramp_time" | "size" | "io_size"
        | "io_limit" | "number_ios" | "direct" | "buffered" | "sync" | "end_fsync" | "kb_base"
        | "randrepeat" | "allrandrepeat" | "randseed" | "norandommap" | "ioengine"
        | "stonewall" | "wait_for_previous" => Honoured,

        "name" | "description" => NoEffect("a section is called by its own name"),
        "group_reporting" => NoEffect("a section's jobs are always reported as one"),
        "new_group"
        | "per_job_logs"
        | "unit_base"
        | "percentile_list"
        | "clat_percentiles"
        | "lat_percentiles"
        | "slat_percentiles"
        | "significant_figures"
        | "bwavgtime"
        | "iopsavgtime"
        | "log_avg_msec"
        | "log_hist_msec"
        | "log_entries"
        | "write_bw_log"
        | "write_lat_log"
        | "write_iops_log"
        | "write_hist_log"
        | "disable_lat"
        | "disable_clat"
        | "disable_slat"
        | "disable_bw"
        | "disable_bw_measurement"
        | "gtod_reduce"
        | "disk_util"
        | "clocksource"
        | "eta"
        | "stats" => NoEffect(OUTPUT),
        "thread" | "exitall" | "exitall_on_error" | "create_serialize" => {
            NoEffect("a job here is neither a process nor a thread of its own")
        }
        "fallocate" | "create_fsync" | "create_on_open" | "unlink" | "unlink_each_loop"
        | "file_service_type" | "openfiles" | "allow_file_create" | "fadvise_hint" => {
            NoEffect(LAYOUT)
        }
        "overwrite" => Only(&["1"], "the file is written whole before, so writes overwrite it"),
        "fixedbufs" | "registerfiles" | "nonvectored" | "userspace_reap" => {
            NoEffect("the engine does what the kernel has of this by itself")
        }
        "random_generator" => Only(&["tausworthe", "tausworthe64"], "`tausworthe` comes nearest"),
        "random_distribution" => Only(&["random"], "offsets are uniform: `random`"),
        "refill_buffers" | "scramble_buffers" => NoEffect(DATA),
        "zero_buffers" | "buffer_compress_percentage" | "dedupe_percentage" => Only(&["0"], DATA),
        "mem" | "iomem" | "mem_align" | "iomem_align" | "lockmem" => {
            NoEffect("buffers are aligned as the file asks for")
        }
        "invalidate" => Only(&["1"], "the file's pages are always dropped before"),
        "fsync" | "fdatasync" | "fsync_on_close" => Only(&["0"], FLUSH),
        "rate" | "rate_iops" | "rate_min" | "rate_iops_min" | "thinktime" | "thinkcycles" => {
            Only(&["0"], RATE)
        }
        "bsrange" | "bssplit" | "blocksize_range" | "bs_unaligned" => Only(&[], BLOCKS),
        "iodepth_batch"
        | "iodepth_batch_submit"
        | "iodepth_batch_complete"
        | "iodepth_batch_complete_min" => Only(&["1"], BATCH),
        "filename" | "directory" | "filename_format" | "opendir" => Only(&[], PLACE),
        "offset" | "fileoffset" | "offset_increment" => {
            Only(&["0"], "jobs have parts of the file that don't overlap, from its start on")
        }
        "nrfiles" | "nr_files" => Only(&["1"], "one file, of which each job has its part"),
        "loops" => Only(&["1"], "write the whole amount as `io_size`"),
        "percentage_random" => Only(&["100"], "`rw=randread` and its like are random throughout"),
        "hipri" | "sqthread_poll" => Only(&["0"], "no polling: it burns a CPU of the host"),
        "verify" => Only(&["0", "none"], VERIFY),
        "startdelay" => Only(&["0"], "a run starts at once"),
        "cpus_allowed" | "cpumask" | "nice" | "prio" | "prioclass" | "cgroup" | "uid" | "gid"
        | "ioscheduler" => Only(&[], HOST),
        "filesize" => Only(&[], "`size` is both the file's size and the amount"),
        "exec_prerun" | "exec_postrun" => Only(&[], "nothing is executed"),
        "steadystate" | "latency_target" | "max_latency" => {
            Only(&["0"], "a run ends by time or amount; whether it was steady is in its result")
        }
        _ => return None,
    })
}

/// Options that mean something here, for hints.
pub(super) const HONOURED: &[&str] = &[
    "rw",
    "readwrite",
    "rwmixread",
    "rwmixwrite",
    "bs",
    "blocksize",
    "iodepth",
    "numjobs",
    "runtime",
    "timeout",
    "time_based",
    "ramp_time",
    "size",
    "io_size",
    "io_limit",
    "number_ios",
    "direct",
    "buffered",
    "sync",
    "end_fsync",
    "kb_base",
    "randrepeat",
    "allrandrepeat",
    "randseed",
    "norandommap",
    "ioengine",
    "stonewall",
    "wait_for_previous",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_hints_is_the_list_of_what_is_honoured() {
        assert!(HONOURED.iter().all(|key| treatment(key) == Some(Honoured)));
        assert_eq!(treatment("zonemode"), None);
    }
}
