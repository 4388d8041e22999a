//! What `loadline probe oltp` can be told: its own flags, and pblio's as pblio takes them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::super::arguments::EngineName;
use crate::base::units::{Bytes, Seconds};
use crate::cli::{EXIT_USAGE, Failure};
use crate::model::oltp::Variant;

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum VariantName {
    /// 55.2 % reads, as pblio has them
    Pblio,
    /// 39.4 % reads, as the first published generator had them
    Classic,
}

impl VariantName {
    pub(super) fn variant(self) -> Variant {
        match self {
            VariantName::Pblio => Variant::Pblio,
            VariantName::Classic => Variant::Classic,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(super) enum Format {
    /// For people on a terminal; tab-separated columns into a pipe; pblio's line comes last
    Table,
    /// Everything that was measured
    Json,
}

impl Format {
    pub(super) fn is_text(self) -> bool {
        self == Format::Table
    }
}

const EXAMPLES: &str = "\
Examples:
  loadline probe oltp --target /srv --bsu 60               3000 operations a second for 5 minutes
  loadline probe oltp --target /srv --search               the most whose mean stays under 30 ms
  loadline probe oltp --target /srv --search --limit 5ms --format json
  loadline probe oltp -asu1=/a/1,/b/1 -asu2=/a/2,/b/2 -asu3=/a/3 -bsu 2 -runlen 60
  loadline probe oltp -asu1 /a/1 -asu2 /a/2 -asu3 /a/3 -bsu 100 -runlen 600 -data pblio.data

One BSU is 50 operations a second. ASUs are files: the first two alike, the third 2/9 of one of them
at least; they are written over. Without them an unnamed file in --target is all three (45/45/10 %).
Latency is from when an operation was meant to begin. Times are written 60, 60s, 10m; sizes 512MiB.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct OltpArguments {
    /// Directory to work in, through an unnamed file that is all three ASUs
    #[arg(long, value_name = "DIR", default_value = ".", conflicts_with = "asu1")]
    pub(super) target: PathBuf,
    /// Size of the unnamed file [default: 512MiB]
    #[arg(long, value_name = "SIZE", conflicts_with = "asu1")]
    pub(super) size: Option<Bytes>,
    /// Files of ASU1 (data)
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', requires_all = ["asu2", "asu3"])]
    pub(super) asu1: Vec<PathBuf>,
    /// Files of ASU2 (users)
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', requires_all = ["asu1", "asu3"])]
    pub(super) asu2: Vec<PathBuf>,
    /// Files of ASU3 (log)
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', requires_all = ["asu1", "asu2"])]
    pub(super) asu3: Vec<PathBuf>,
    /// Load, in units of 50 operations a second [default: 50]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) bsu: Option<u32>,
    /// How long; of a search, at most [default: 300]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) runlen: Option<Seconds>,
    /// Find the highest rate whose mean latency stays under --limit
    #[arg(long, conflicts_with_all = ["bsu", "ramp", "data"])]
    pub(super) search: bool,
    /// Mean latency that is too much [default: 30ms]
    #[arg(long, value_name = "TIME", requires = "search")]
    pub(super) limit: Option<Seconds>,
    /// Whose share of reads
    #[arg(long, value_enum, default_value = "pblio")]
    pub(super) variant: VariantName,
    /// Time before that counts, like 10s [default: none]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) ramp: Option<Seconds>,
    /// Most bytes moved [default: 16GiB for a search, else what the load is]
    #[arg(long, value_name = "SIZE")]
    pub(super) bytes: Option<Bytes>,
    /// Generators with hot spots of their own [default: one for each 100 BSU begun]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) contexts: Option<u32>,
    /// Direct I/O or no run at all; false goes through the page cache where there is none
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(super) directio: Option<bool>,
    /// Size of a block in KiB: 4
    #[arg(long, value_name = "KIB", default_value = "4", hide = true)]
    blocksize: u32,
    /// File that gets a line of JSON each --dataperiod, as pblio writes it
    #[arg(long, value_name = "FILE")]
    pub(super) data: Option<PathBuf>,
    /// Time between two lines
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = time)]
    pub(super) dataperiod: Seconds,
    /// Forces an engine [default: the first that works]
    #[arg(long, value_enum)]
    pub(super) engine: Option<EngineName>,
    /// Seed of the workload and its data [default: another each time]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) seed: Option<u64>,
    /// How to print the result
    #[arg(long, value_enum, default_value = "table")]
    pub(super) format: Format,
    /// Write over files that hold data, and more than 16 GiB, without asking
    #[arg(long)]
    pub(super) yes: bool,
    #[arg(long, hide = true)]
    cache: Option<String>,
    #[arg(long, hide = true)]
    cachemeta: Option<String>,
    #[arg(long, hide = true)]
    cpuprofile: Option<String>,
    #[arg(long, hide = true)]
    mock_reads: bool,
    #[arg(long, hide = true)]
    mock_writes: bool,
}

impl OltpArguments {
    /// pblio's flags that are of its cache, or of itself.
    pub(super) fn refuse_what_is_of_the_cache(&self) -> Result<(), Failure> {
        let asked = [
            ("cache", self.cache.is_some()),
            ("cachemeta", self.cachemeta.is_some()),
            ("cpuprofile", self.cpuprofile.is_some()),
            ("mock_reads", self.mock_reads),
            ("mock_writes", self.mock_writes),
            ("blocksize", self.blocksize != 4),
        ];
        match asked.into_iter().find(|(_, is)| *is) {
            None => Ok(()),
            Some(("blocksize", _)) => {
                let text = "--blocksize: the workload is in blocks of 4 KiB".into();
                Err(Failure { code: EXIT_USAGE, text })
            }
            Some((flag, _)) => {
                let text = format!("--{flag}: is of pblio's cache, which isn't here: leave it out");
                Err(Failure { code: EXIT_USAGE, text })
            }
        }
    }
}

/// Seconds, as pblio has them, or a time with its unit.
fn time(text: &str) -> Result<Seconds, String> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Seconds(seconds.into())),
        Err(_) => text.parse(),
    }
}

/// The command line with `-asu1` of `probe oltp` as `--asu1`: flags in Go have one dash or two.
pub(in crate::cli) fn go_flags(line: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = line.collect();
    let is_ours = line.get(1).is_some_and(|word| word == "probe")
        && line.get(2).is_some_and(|word| word == "oltp");
    if !is_ours {
        return line;
    }
    let command = OltpArguments::augment_args(clap::Command::new("oltp"));
    let known: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    for index in 3..line.len() {
        let Some(text) = line[index].to_str() else { continue };
        let Some(flag) = text.strip_prefix('-').filter(|flag| !flag.starts_with('-')) else {
            continue;
        };
        if flag == "version" {
            return [line.swap_remove(0), "--version".into()].into();
        }
        if known.contains(&flag.split('=').next().unwrap_or_default()) {
            line[index] = format!("-{text}").into();
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::probe::oltp::leg;
    use crate::model::job::Profile;
    use crate::model::oltp::Load;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        oltp: OltpArguments,
    }

    fn parse(words: &[&str]) -> Result<OltpArguments, String> {
        let line = [&["loadline", "probe", "oltp"], words].concat();
        let line = go_flags(line.into_iter().map(OsString::from));
        let line = Line::try_parse_from(&line[2..]).map_err(|e| e.to_string())?;
        Ok(line.oltp)
    }

    fn leg_of(words: &[&str]) -> Result<Profile, String> {
        leg(&parse(words)?).map_err(|failure| failure.text)
    }

    #[test]
    fn pblios_own_line_is_taken_with_one_dash_and_with_two() {
        let single =
            ["-asu1=/x/a,/x/b", "-asu2", "/x/c", "-asu3=/x/d", "-bsu", "2", "-runlen", "60"];
        let double: Vec<String> = single
            .iter()
            .map(|word| if word.starts_with('-') { format!("-{word}") } else { (*word).into() })
            .collect();
        let double: Vec<&str> = double.iter().map(String::as_str).collect();
        for words in [&single[..], &double[..]] {
            let leg = leg_of(words).unwrap();
            let oltp = leg.oltp.unwrap();
            assert_eq!((oltp.load, leg.runtime), (Load::Bsu(2), Seconds(60.0)));
            assert_eq!(oltp.asus[0], [PathBuf::from("/x/a"), "/x/b".into()]);
            assert_eq!(oltp.asus[2], [PathBuf::from("/x/d")]);
            assert!(leg.direct && !oltp.overwrite);
        }
        let all = parse(&[
            "-directio=false",
            "-data",
            "x.data",
            "-dataperiod=5",
            "-blocksize",
            "4",
            "-contexts=3",
        ])
        .unwrap();
        assert_eq!((all.directio, all.contexts), (Some(false), Some(3)));
        assert_eq!(all.dataperiod, Seconds(5.0));
        assert_eq!(parse(&["-directio"]).unwrap().directio, Some(true));
    }

    #[test]
    fn other_commands_keep_their_dashes() {
        let words = ["loadline", "probe", "disk", "-bsu"].map(OsString::from);
        assert_eq!(go_flags(words.clone().into_iter()), words);
        let version = ["loadline", "probe", "oltp", "-version"].map(OsString::from);
        assert_eq!(go_flags(version.into_iter()), ["loadline", "--version"]);
    }

    #[test]
    fn the_defaults_are_pblios_and_a_search_has_a_limit_of_30_ms() {
        let plain = leg_of(&[]).unwrap();
        assert_eq!(plain.runtime, Seconds(300.0));
        assert_eq!(plain.oltp.unwrap().load, Load::Bsu(50));
        let search = leg_of(&["--search"]).unwrap();
        assert_eq!(search.oltp.unwrap().load, Load::Search { limit: Seconds(0.03) });
        let classic = leg_of(&["--search", "--limit", "5ms", "--variant", "classic"]).unwrap();
        assert_eq!(classic.name, "oltp_classic");
    }

    #[test]
    fn what_can_not_be_is_told_with_its_flag() {
        for (words, says) in [
            (&["-asu1=/x"][..], "--asu2"),
            (&["-bsu", "0"], "--bsu"),
            (&["-bsu", "-1"], "--bsu"),
            (&["-runlen", "2h"], "--runlen"),
            (&["-runlen", "soon"], "--runlen"),
            (&["--limit", "5ms"], "--search"),
            (&["--search", "-bsu", "5"], "--bsu"),
            (&["--search", "-runlen", "5"], "--runlen"),
            (&["-blocksize", "8"], "--blocksize"),
            (&["-cache", "x"], "pblio's cache"),
            (&["-contexts=0"], "--contexts"),
            (&["-bsu", "1000", "-runlen", "600"], "--yes"),
            (&["-asux=/x"], "-a"),
        ] {
            let text = leg_of(words).unwrap_err();
            assert!(text.contains(says), "{words:?}: {text}");
        }
    }
}
