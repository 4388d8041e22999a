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

/// Names, separated by blanks, and how they are treated.
const OTHERS: &[(&str, Treatment)] = &[
    ("name description", NoEffect("a section is called by its own name")),
    ("group_reporting", NoEffect("a section's jobs are always reported as one")),
    (
        "new_group per_job_logs unit_base percentile_list clat_percentiles lat_percentiles \
         slat_percentiles significant_figures bwavgtime iopsavgtime log_avg_msec log_hist_msec \
         log_entries write_bw_log write_lat_log write_iops_log write_hist_log disable_lat \
         disable_clat disable_slat disable_bw disable_bw_measurement gtod_reduce disk_util \
         clocksource stats",
        NoEffect("it shapes fio's own output"),
    ),
    (
        "thread exitall exitall_on_error create_serialize",
        NoEffect("a job here is neither a process nor a thread of its own"),
    ),
    (
        "fallocate create_fsync create_on_open unlink unlink_each_loop file_service_type openfiles \
         allow_file_create fadvise_hint",
        NoEffect("the file is always written whole before, and kept or gone as loadline does it"),
    ),
    ("overwrite", Only(&["1"], "the file is written whole before, so writes overwrite it")),
    (
        "fixedbufs registerfiles nonvectored userspace_reap",
        NoEffect("the engine does by itself what the kernel has of this"),
    ),
    ("random_generator", Only(&["tausworthe", "tausworthe64"], "`tausworthe` comes nearest")),
    ("random_distribution", Only(&["random"], "offsets are uniform: `random`")),
    ("percentage_random", Only(&["100"], "`rw=randread` and its like are random throughout")),
    ("refill_buffers scramble_buffers", NoEffect(DATA)),
    ("zero_buffers buffer_compress_percentage dedupe_percentage", Only(&["0"], DATA)),
    ("buffer_pattern", Only(&[], DATA)),
    (
        "mem iomem mem_align iomem_align lockmem",
        NoEffect("buffers are aligned as the file asks for"),
    ),
    ("invalidate", Only(&["1"], "the file's pages are always dropped before")),
    (
        "fsync fdatasync fsync_on_close",
        Only(
            &["0"],
            "no flush after every N writes: `sync=dsync` commits each write by itself (what a \
             database's log feels), `end_fsync=1` flushes once at the end",
        ),
    ),
    (
        "rate rate_iops rate_min rate_iops_min thinktime thinkcycles",
        Only(&["0"], "a rate can't be held: bound the job by `size` or `runtime`"),
    ),
    (
        "bsrange bssplit blocksize_range bs_unaligned",
        Only(&[], "one block size a section: write `bs=`, and a section for each size"),
    ),
    (
        "iodepth_batch iodepth_batch_submit iodepth_batch_complete iodepth_batch_complete_min",
        Only(&["1"], "what is free is submitted, and what is done is taken, at once"),
    ),
    (
        "filename directory filename_format opendir",
        Only(
            &[],
            "the place comes from the target: `--target DIR`, or `target` in the configuration",
        ),
    ),
    (
        "offset fileoffset offset_increment",
        Only(&["0"], "jobs have parts of the file that don't overlap, from its start on"),
    ),
    ("nrfiles nr_files", Only(&["1"], "one file, of which each job has its part")),
    ("filesize", Only(&[], "`size` is both the file's size and the amount")),
    ("loops", Only(&["1"], "write the whole amount as `io_size`")),
    ("hipri sqthread_poll", Only(&["0"], "no polling: it burns a CPU of the host")),
    ("verify do_verify", Only(&["0", "none"], "data is not verified: use fio itself for that")),
    ("startdelay", Only(&["0"], "a run starts at once")),
    (
        "cpus_allowed cpumask nice prio prioclass cgroup uid gid ioscheduler",
        Only(&[], "a worker keeps the place and rank that loadline gave it"),
    ),
    ("exec_prerun exec_postrun", Only(&[], "nothing is executed")),
    (
        "steadystate latency_target max_latency",
        Only(&["0"], "a run ends by time or amount; whether it was steady is in its result"),
    ),
];

const DATA: &str = "blocks are always unique and can't be compressed";

/// `None`: fio may know it, this engine doesn't.
pub(super) fn treatment(key: &str) -> Option<Treatment> {
    if HONOURED.contains(&key) {
        return Some(Honoured);
    }
    let found = OTHERS.iter().find(|(names, _)| names.split_whitespace().any(|name| name == key));
    found.map(|(_, treatment)| *treatment)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_option_is_treated_in_one_way() {
        let others = OTHERS.iter().flat_map(|(names, _)| names.split_whitespace());
        let all: Vec<&str> = HONOURED.iter().copied().chain(others).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(treatment("bssplit").map(|t| matches!(t, Only(..))), Some(true));
        assert_eq!(treatment("zonemode"), None);
    }
}
