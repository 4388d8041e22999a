//! Lists of peers in files, as Prometheus' file_sd has them: JSON or YAML, read again when they
//! change. A file that is gone, empty or garbage changes nothing: its last good list stays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::document::Document;
use super::peers::{peer_at, same};
use super::settings::PeerSettings;
use super::watch::Watched;
use crate::base::clock::Moment;
use crate::base::fault::{Fault, FaultKind};
use crate::base::pattern::is_match;
use crate::model::peer::Peer;

/// Of all patterns; more are left out.
const FILES_MAX: usize = 64;
const TARGETS_MAX: usize = 1024;

/// All files of some patterns.
#[derive(Debug, Default)]
pub struct PeerFiles {
    patterns: Vec<String>,
    port: Option<u16>,
    files: BTreeMap<PathBuf, File>,
}

/// What is known of one file.
#[derive(Debug)]
pub struct File {
    watched: Watched,
    /// The last good one.
    pub peers: Vec<Peer>,
    /// When it was last found to be as `peers` says.
    pub read_at: Option<Moment>,
    pub failures: u64,
    complaint: Option<String>,
}

impl PeerFiles {
    /// Reads what is there now.
    pub fn open(settings: Option<&PeerSettings>, now: Moment) -> Self {
        let patterns = settings.map(|peers| peers.files.clone()).unwrap_or_default();
        let port = settings.and_then(|peers| peers.files_port);
        let mut all = Self { patterns, port, files: BTreeMap::new() };
        all.find(now);
        all
    }

    /// Looks for new files and changes; true where there are other peers than before.
    pub fn poll(&mut self, now: Moment) -> bool {
        let mut changed = false;
        for file in self.files.values_mut() {
            changed |= file.poll(self.port, now);
        }
        self.find(now) || changed
    }

    /// Each file, by its path.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &File)> {
        self.files.iter().map(|(path, file)| (path.as_path(), file))
    }

    /// What is wrong with files now.
    pub fn complaints(&self) -> Vec<String> {
        self.files.values().filter_map(|file| file.complaint.clone()).collect()
    }

    fn find(&mut self, now: Moment) -> bool {
        let found: Vec<PathBuf> = self.patterns.iter().flat_map(|p| matches(p)).collect();
        let mut changed = false;
        for path in found {
            if self.files.len() >= FILES_MAX || self.files.contains_key(&path) {
                continue;
            }
            let mut file = File {
                watched: Watched::new(path.clone()),
                peers: Vec::new(),
                read_at: None,
                failures: 0,
                complaint: None,
            };
            changed |= match file.watched.read() {
                Ok(bytes) => file.take(&bytes, self.port, now),
                Err(fault) => file.lose(&fault),
            };
            self.files.insert(path, file);
        }
        changed
    }
}

impl File {
    /// True where the peers are others now.
    fn poll(&mut self, port: Option<u16>, now: Moment) -> bool {
        if let Err(error) = self.watched.path().metadata() {
            return self.lose(&Fault::os(self.watched.path().display(), &error));
        }
        match self.watched.poll() {
            Ok(Some(bytes)) => return self.take(&bytes, port, now),
            Ok(None) if self.complaint.is_none() => self.read_at = Some(now),
            Ok(None) => {}
            Err(fault) => return self.lose(&fault),
        }
        false
    }

    fn take(&mut self, bytes: &[u8], port: Option<u16>, now: Moment) -> bool {
        let name = self.watched.path().display().to_string();
        match parse(&name, bytes, port) {
            Ok(peers) => {
                self.complaint = None;
                self.read_at = Some(now);
                let changed = peers != self.peers;
                self.peers = peers;
                changed
            }
            Err(fault) => self.complain(fault.text),
        }
    }

    /// It can't be read: once it can again, the very same bytes are news.
    fn lose(&mut self, fault: &Fault) -> bool {
        self.watched = Watched::new(self.watched.path().to_path_buf());
        self.complain(fault.text.clone())
    }

    /// Each state of being wrong is counted once.
    fn complain(&mut self, text: String) -> bool {
        if self.complaint.as_ref() != Some(&text) {
            tracing::warn!("{text}: the last good list of peers stays");
            self.failures += 1;
            self.complaint = Some(text);
        }
        false
    }
}

/// Files of a pattern; a plain path is there whether the file is or not.
fn matches(pattern: &str) -> Vec<PathBuf> {
    let path = Path::new(pattern);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
    let name = name.to_string_lossy();
    if !name.contains(['*', '?']) {
        return vec![path.to_path_buf()];
    }
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            // A shell's `*` doesn't stand for what is hidden, as editors' and ConfigMaps' files are.
            is_match(&name, &file) && (name.starts_with('.') || !file.starts_with('.'))
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

#[derive(Deserialize)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Groups of targets with labels, of which `host` and `passive` count; JSON is YAML.
/// `port` stands for theirs: a list that Prometheus scrapes by has another service's.
fn parse(name: &str, bytes: &[u8], port: Option<u16>) -> Result<Vec<Peer>, Fault> {
    let malformed = |text: String| Fault::new(FaultKind::Malformed, text);
    let in_line = |complaint: super::complaint::Complaint| {
        malformed(complaint.to_string().lines().next().unwrap_or(name).to_owned())
    };
    let document = Document::list_from_bytes(name, bytes).map_err(in_line)?;
    let mut peers: Vec<Peer> = Vec::new();
    for item in document.root().items().map_err(in_line)? {
        let group: Group = item.read().map_err(in_line)?;
        for target in &group.targets {
            let plain = peer_at(target, port).map_err(|text| in_line(item.refuse(text)))?;
            let machine = group.labels.get("host").cloned();
            let passive = group.labels.get("passive").is_some_and(|value| value == "true");
            let one = Peer { machine, passive, ..plain };
            if !peers.iter().any(|other| same(other, &one)) {
                peers.push(one);
            }
        }
    }
    match peers.len() {
        0 => Err(malformed(format!("{name}: no peer in it"))),
        n if n > TARGETS_MAX => Err(malformed(format!("{name}: over {TARGETS_MAX} peers"))),
        _ => Ok(peers),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::clock::{Clock, ManualClock};

    fn settings(pattern: String) -> PeerSettings {
        PeerSettings { files: vec![pattern], ..PeerSettings::default() }
    }

    fn names(files: &PeerFiles) -> Vec<String> {
        files.files().flat_map(|(_, file)| file.peers.iter().map(|p| p.name.clone())).collect()
    }

    #[test]
    fn json_and_yaml_are_read_with_the_labels_that_count() {
        let json =
            r#"[{"targets": ["10.0.0.2:5201", "b:99"], "labels": {"host": "hv", "x": "y"}}]"#;
        let yaml = "- targets: [10.0.0.2, 'b:99']\n  labels: {host: hv}\n";
        let peers = parse("f", json.as_bytes(), None).unwrap();
        assert_eq!(peers, parse("f", yaml.as_bytes(), None).unwrap());
        assert_eq!((peers[0].name.as_str(), peers[0].machine.as_deref()), ("10.0.0.2", Some("hv")));
        assert_eq!((peers[1].name.as_str(), peers[1].passive), ("b:99", false));
        let passive = "- {targets: [c], labels: {passive: 'true'}}";
        assert!(parse("f", passive.as_bytes(), None).unwrap()[0].passive);
        let scraped = parse("f", b"- targets: ['a:9847', '[::1]:9847']", Some(5201)).unwrap();
        assert_eq!((scraped[0].name.as_str(), scraped[0].endpoint.port), ("a", 5201));
        assert_eq!((scraped[1].name.as_str(), scraped[1].endpoint.port), ("::1", 5201));
    }

    #[test]
    fn what_is_no_list_of_peers_is_refused_with_its_place() {
        for (text, said) in [
            ("", "f: no peer in it"),
            ("[]", "f: no peer in it"),
            ("[{\"targets\": []}]", "f: no peer in it"),
            ("{\"targets\": [\"a\"]}", "f:1:1: expected a list"),
            ("- targets: a", "f:1:12: `targets`"),
            ("- labels: {}", "f:1:3: `targets` is missing"),
            ("- targets: ['a b']", "f:1:3: `a b` is not an address or a name"),
            ("[", "f:2:1"),
        ] {
            let fault = parse("f", text.as_bytes(), None).unwrap_err();
            assert!(fault.text.starts_with(said), "{text}: {fault}");
        }
    }

    #[test]
    fn a_change_is_seen_and_garbage_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::starting_at(1_000);
        let file = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        file("a.yml", "- targets: [a]\n");
        file(".b.yml", "- targets: [hidden]\n");
        let pattern = format!("{}/*.yml", dir.path().display());
        let mut files = PeerFiles::open(Some(&settings(pattern)), clock.now());
        assert_eq!(names(&files), ["a"]);
        file("c.yml", "- targets: [c, d]\n");
        assert!(files.poll(clock.now()));
        assert_eq!(names(&files), ["a", "c", "d"]);
        for garbage in ["", "[]", "- targets: [a", "- targets: ['\u{1}']\n"] {
            file("a.yml", garbage);
            assert!(!files.poll(clock.now()) && !files.poll(clock.now()), "{garbage:?}");
            assert_eq!((names(&files).len(), files.complaints().len()), (3, 1), "{garbage:?}");
        }
        std::fs::remove_file(dir.path().join("c.yml")).unwrap();
        assert!(!files.poll(clock.now()) && !files.poll(clock.now()));
        assert_eq!(names(&files).len(), 3, "a list that is gone stays");
        file("a.yml", "- targets: [z]\n");
        files.poll(clock.now());
        assert!(files.poll(clock.now()));
        assert_eq!(names(&files), ["z", "c", "d"]);
        let failures: Vec<u64> = files.files().map(|(_, file)| file.failures).collect();
        assert!(failures[0] >= 3 && failures[1] == 1, "{failures:?}");
    }

    #[test]
    fn a_file_that_is_not_there_is_one_failure_and_no_peer() {
        let now = Moment::default();
        let mut files = PeerFiles::open(Some(&settings("/no/such/file.json".into())), now);
        assert!(!files.poll(now));
        let (_, file) = files.files().next().unwrap();
        assert_eq!((file.failures, file.read_at, file.peers.len()), (1, None, 0));
    }

    #[test]
    fn a_file_that_comes_back_as_it_was_is_good_again() {
        let dir = tempfile::tempdir().unwrap();
        let [path, away] = ["a.yml", "away"].map(|name| dir.path().join(name));
        std::fs::write(&path, "- targets: [a]\n").unwrap();
        let clock = ManualClock::starting_at(1_000);
        let mut files = PeerFiles::open(Some(&settings(path.display().to_string())), clock.now());
        std::fs::rename(&path, &away).unwrap();
        assert!(!files.poll(clock.now()) && files.complaints().len() == 1);
        std::fs::rename(&away, &path).unwrap();
        clock.advance(std::time::Duration::from_secs(60));
        assert!(!files.poll(clock.now()) && !files.poll(clock.now()), "the same peers");
        let (_, file) = files.files().next().unwrap();
        assert_eq!((file.failures, file.read_at), (1, Some(clock.now())));
        assert!(files.complaints().is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse("f", &bytes, None);
        }
    }
}
