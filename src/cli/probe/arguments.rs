//! What `loadline probe disk` can be told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::base::units::{Bytes, Ratio, Seconds};
use crate::config::read::Quantity;
use crate::model::job::{Access, EngineKind};
use crate::probe::disk::Preset;

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum ProfileName {
    SeqRead,
    SeqWrite,
    RandRead,
    RandRw,
    RandWrite,
}

impl ProfileName {
    pub(super) fn preset(self) -> Preset {
        match self {
            ProfileName::SeqRead => Preset::SeqRead,
            ProfileName::SeqWrite => Preset::SeqWrite,
            ProfileName::RandRead => Preset::RandRead,
            ProfileName::RandRw => Preset::RandRw,
            ProfileName::RandWrite => Preset::RandWrite,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum EngineName {
    IoUring,
    Aio,
    Threads,
}

impl EngineName {
    pub(super) fn kind(self) -> EngineKind {
        match self {
            EngineName::IoUring => EngineKind::IoUring,
            EngineName::Aio => EngineKind::Aio,
            EngineName::Threads => EngineKind::Threads,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum AccessName {
    /// From the start of each job's part to its end, and again
    Sequential,
    /// Independent draws: a block may come twice
    Random,
    /// Each block once, in random order, before any comes twice
    RandomMap,
}

impl AccessName {
    pub(super) fn access(self) -> Access {
        match self {
            AccessName::Sequential => Access::Sequential,
            AccessName::Random => Access::Random,
            AccessName::RandomMap => Access::RandomMap,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(super) enum Format {
    /// For people on a terminal; tab-separated columns into a pipe
    Table,
    /// Everything that was measured
    Json,
    /// The keys that consumers of fio's JSON read
    FioJson,
}

const EXAMPLES: &str = "\
Examples:
  loadline probe disk --target /srv --profile rand_rw
  loadline probe disk --target /srv --profile seq_read --runtime 10s --format json
  loadline probe disk --target /srv --reads 0 --sync --depth 1 --jobs 1    what a commit costs
  loadline probe disk --target /srv --block-size 16k --reads 70% --seed 1  the same run each time
  loadline probe disk --target /srv --fio-job job.fio --format fio-json
  loadline probe disk --target /dev/disk/by-id/wwn-0x5000c500a1b2c3d4 --profile rand_read

Sizes are written 4k, 512MiB, 2GiB; times 500ms, 10s, 2m; shares 0.7 or 70%.";

/// What a job file says itself.
const SHAPE: [&str; 11] = [
    "profile",
    "access",
    "reads",
    "block_size",
    "depth",
    "jobs",
    "runtime",
    "ramp",
    "sync",
    "flush",
    "engine",
];

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct DiskArguments {
    /// Directory to work in through an unnamed file, or raw device to read
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) target: PathBuf,
    /// Shape of the workload; what follows changes it
    #[arg(long, value_enum, default_value = "rand_read")]
    pub(super) profile: ProfileName,
    /// Order of offsets
    #[arg(long, value_enum)]
    pub(super) access: Option<AccessName>,
    /// Share of reads, 0.7 or 70%
    #[arg(long, value_name = "SHARE", value_parser = share, allow_negative_numbers = true)]
    pub(super) reads: Option<Ratio>,
    /// Size of an operation, like 4k
    #[arg(long, value_name = "SIZE")]
    pub(super) block_size: Option<Bytes>,
    /// Operations in flight per job
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) depth: Option<u32>,
    /// Independent jobs over parts of the file
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) jobs: Option<u32>,
    /// How long, like 10s [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(super) runtime: Option<Seconds>,
    /// Time before that counts, like 2s
    #[arg(long, value_name = "TIME")]
    pub(super) ramp: Option<Seconds>,
    /// Most bytes moved [default: 16GiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) bytes: Option<Bytes>,
    /// Size of the unnamed file [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<Bytes>,
    /// Each write waits until its data is safe (O_DSYNC)
    #[arg(long)]
    pub(super) sync: bool,
    /// Whether a run that wrote ends with a flush, inside its time [default: true]
    #[arg(long, value_name = "BOOL")]
    pub(super) flush: Option<bool>,
    /// Leave out the second leg, which shows at twice the depth whether the device is at its end
    #[arg(long, conflicts_with = "fio_job")]
    pub(super) one_leg: bool,
    /// Run through the page cache where the file system knows no direct I/O [default: direct only]
    #[arg(long)]
    pub(super) buffered: bool,
    /// Forces an engine [default: the first that works]
    #[arg(long, value_enum)]
    pub(super) engine: Option<EngineName>,
    /// Seed of offsets and data [default: another each time]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) seed: Option<u64>,
    /// Run the sections of an fio job file, one after the other, in place of a profile
    #[arg(long, value_name = "FILE", conflicts_with_all = SHAPE)]
    pub(super) fio_job: Option<PathBuf>,
    /// Of the job file, only this section; repeatable
    #[arg(long, value_name = "NAME", requires = "fio_job")]
    pub(super) section: Vec<String>,
    /// How to print the result
    #[arg(long, value_enum, default_value = "table")]
    pub(super) format: Format,
    /// Write more than 16 GiB without asking
    #[arg(long)]
    pub(super) yes: bool,
}

/// As in the configuration: `70%`, or a number up to 1.
fn share(text: &str) -> Result<Ratio, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(Ratio(number)),
        Ok(_) => Err(format!("`{text}` is not {} of 0 to 1", Ratio::WHAT)),
        Err(_) => Ratio::from_text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_a_percentage() {
        assert_eq!((share("0.7"), share("70%")), (Ok(Ratio(0.7)), Ok(Ratio(0.7))));
        for bad in ["70", "-0.1", "nan", "101%", "much", ""] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
