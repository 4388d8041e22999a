//! The wire's readers on anything: the fuzzer's corpus, and for a while what becomes of it by chance.
//! `cargo +nightly fuzz run wire` does the same guided by coverage.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[path = "../../fuzz/conversation.rs"]
mod conversation;

/// Seconds that chance has; `tests/run` gives it a minute.
const SECONDS: &str = "LOADLINE_FUZZ_SECONDS";
/// What a reader may look for.
const WORDS: [&[u8]; 20] = [
    b"\xff",
    b"\xfe",
    b"\x04",
    b"\x0d",
    b"\x00\x00\x00\x02",
    b"\xff\xff\xff\xff",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"null",
    b"true",
    b"-1",
    b"18446744073709551615",
    b"1e999",
    b"\"streams\":",
    b"\"parallel\":",
    b"\"\\u0000\"",
    b"\xc3\x28",
];

fn corpus() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/wire");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8);
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn the_corpus_is_read_the_same_however_it_is_cut() {
    for mut bytes in corpus() {
        for piece in [0, 2, 3, 37, 255] {
            bytes[0] = piece;
            conversation::hold(&bytes);
        }
    }
}

fn changed(rng: &mut fastrand::Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.usize(1..8) {
        let at = rng.usize(..=bytes.len());
        let end = rng.usize(at..=bytes.len());
        match rng.u8(..6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
            1 => bytes.insert(at, rng.u8(..)),
            2 => drop(bytes.drain(at..end.min(at + 64))),
            3 => drop(bytes.splice(at..at, WORDS[rng.usize(..WORDS.len())].iter().copied())),
            4 => bytes.extend_from_within(at..end.min(at + 256)),
            _ => {
                let other = &corpus[rng.usize(..corpus.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[rng.usize(..other.len())..]);
            }
        }
    }
    bytes
}

/// Says what a reader didn't survive.
struct Tried<'a>(&'a [u8]);

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("keep in fuzz/corpus/wire: {}", self.0.escape_ascii());
        }
    }
}

#[test]
fn what_chance_makes_of_the_corpus_is_survived() {
    let seconds = std::env::var(SECONDS).map_or(1, |text| text.parse().unwrap());
    let (corpus, begun) = (corpus(), Instant::now());
    let (mut rng, mut tried) = (fastrand::Rng::new(), 0u64);
    println!("seed {}", rng.get_seed());
    while begun.elapsed() < Duration::from_secs(seconds) {
        let bytes = changed(&mut rng, &corpus);
        let shown = Tried(&bytes);
        conversation::hold(shown.0);
        tried += 1;
    }
    println!("{tried} conversations in {seconds} s");
    assert!(tried > 0);
}
