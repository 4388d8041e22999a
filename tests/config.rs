//! Every rule of the configuration has its bad file, which begins with its exact complaint.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::path::{Path, PathBuf};

use loadline::base::units::{Bytes, Rate, Seconds};
use loadline::config::document::Document;
use loadline::config::settings::{DEFAULT_TARGET, FirstRun, Hours, Media, Settings};

const KINDS: &[&str] = &["latency", "disk", "knee", "throughput"];

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs").join(folder);
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn read(path: &Path) -> Result<Settings, String> {
    let name = path.file_name().unwrap().to_str().unwrap();
    Document::from_bytes(name, &std::fs::read(path).unwrap())
        .and_then(|document| Settings::read(&document, KINDS))
        .map_err(|complaint| complaint.to_string())
}

/// The complaint stands in the first lines, `# ` before each; BLESS=1 writes it there.
#[test]
fn every_bad_file_is_refused_in_its_own_words() {
    let mut wrong = Vec::new();
    for path in files("invalid") {
        let text = std::fs::read_to_string(&path).unwrap();
        let complaint = match read(&path) {
            Err(complaint) => complaint,
            Ok(settings) => panic!("{} is accepted: {settings:?}", path.display()),
        };
        let header: String = complaint.lines().map(|line| format!("# {line}\n")).collect();
        if std::env::var_os("BLESS").is_some() {
            // What is there of an older complaint goes; a new file has none.
            let lines = text.lines().skip_while(|line| line.starts_with("# "));
            let rest: String = lines.map(|line| format!("{line}\n")).collect();
            std::fs::write(&path, header + &rest).unwrap();
        } else if !text.starts_with(&header) {
            wrong.push(complaint);
        }
    }
    assert!(wrong.is_empty(), "other words than expected:\n{}", wrong.join("\n"));
}

#[test]
fn every_good_file_is_accepted() {
    for path in files("valid") {
        read(&path).unwrap_or_else(|complaint| panic!("{complaint}"));
    }
}

#[test]
fn an_empty_file_means_the_defaults() {
    let document = Document::parse("loadline.yml", "").unwrap();
    assert_eq!(Settings::read(&document, KINDS).unwrap(), Settings::default());
}

#[test]
fn the_example_says_what_it_seems_to_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("loadline.example.yml");
    let settings = read(&path).unwrap_or_else(|complaint| panic!("{complaint}"));
    assert_eq!(settings.sample.links["eth0"].rate, Some(Rate(125e6)));
    assert_eq!(settings.sample.disks["sda"].media, Some(Media::Hdd));
    assert_eq!(settings.targets[0].path, Path::new("/srv"));
    assert_eq!(settings.targets[0].budget, Bytes(2 << 30));
    let probes = settings.probes.unwrap();
    assert_eq!((probes[0].every, &probes[0].target[..]), (Some(Seconds(30.0)), "srv"));
    let night = Hours { from: 22 * 60, to: 6 * 60, utc_offset: 120 };
    assert_eq!(settings.guard.allowed_hours, [night]);
    assert_eq!(settings.first_run, FirstRun::Spread);
}

#[test]
fn a_probe_finds_its_options_and_complains_of_them_at_their_place() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Options {
        depth: u32,
        #[serde(default, deserialize_with = "loadline::config::read::optional")]
        block_size: Option<Bytes>,
    }
    let read = |options: &str| {
        let text = format!(
            "probes:\n- {{name: off, kind: disk, enabled: false}}\n\
             - name: fast\n  kind: disk\n  disk: {options}\n"
        );
        let document = Document::parse("loadline.yml", &text).unwrap();
        let settings = Settings::read(&document, KINDS).unwrap();
        let probes = settings.probes.unwrap();
        assert_eq!((probes.len(), probes[0].target.as_str()), (1, DEFAULT_TARGET));
        let section = Settings::options(&document, &probes[0]).unwrap();
        section.read::<Options>().map_err(|complaint| complaint.to_string())
    };
    let options = read("{depth: 8, block_size: 4k}").unwrap();
    assert_eq!((options.depth, options.block_size), (8, Some(Bytes(4096))));
    let wrong = |options: &str| read(options).unwrap_err().lines().next().unwrap().to_owned();
    assert_eq!(
        wrong("{bs: 4k}"),
        "loadline.yml:5:10: unknown key `bs` in probe `fast` (did you mean `block_size`?)"
    );
    assert_eq!(wrong("{}"), "loadline.yml:5:9: `depth` is missing in probe `fast`");
    assert_eq!(
        wrong("{depth: many}"),
        "loadline.yml:5:17: `depth` of probe `fast`: \
         expected a whole number, 0 or more, found the text `many`"
    );
    assert_eq!(
        wrong("{depth: 1, block_size: -4}"),
        "loadline.yml:5:32: `block_size` of probe `fast`: `-4` is negative"
    );
}
