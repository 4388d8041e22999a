use proptest::prelude::*;

use super::*;
use crate::base::units::Rate;

pub(crate) fn of(resource: Resource, way: Way, unit: Unit) -> Of {
    Of { resource, way, unit }
}

fn reads(name: &str) -> Of {
    of(Resource::Disk(name.into()), Way::Read, Unit::OperationsPerSecond)
}

pub(crate) fn entry(of: Of, by: &str, value: f64) -> Entry {
    Entry {
        of,
        identity: "naa.1".into(),
        by: by.into(),
        value,
        trust: Trust::Knee,
        kind: Persistence::Sustained,
        short_stroke: false,
        block: Bytes(4096),
        depth: 8.0,
        latency: Seconds(0.001),
        source: "a knee at depth 8".into(),
        at: Some(1_700_000_000.0),
        fallen: 0,
    }
}

fn reached(of: &Of, value: f64, kind: Persistence) -> Reached {
    Reached { value, kind, ..entry(of.clone(), "", 1.0).reached() }
}

fn effective(book: &Book, of: &Of) -> Option<f64> {
    book.effective(of, &[]).map(|entry| entry.value)
}

#[test]
fn a_probe_has_one_word_and_the_best_stable_rate_counts() {
    let mut book = Book::default();
    let of = reads("sda");
    book.learn(entry(of.clone(), "knee@t", 10_000.0));
    book.learn(entry(of.clone(), "rand_read@t", 9_800.0));
    assert_eq!(effective(&book, &of), Some(10_000.0));
    book.learn(entry(of.clone(), "knee@t", 9_000.0));
    assert_eq!(effective(&book, &of), Some(9_800.0));
    assert_eq!(effective(&book, &reads("sdb")), None);
}

#[test]
fn what_was_exceeded_is_no_ceiling() {
    let mut book = Book::default();
    let of = reads("sda");
    book.learn(entry(of.clone(), "knee@t", 1000.0));
    book.measured(&reached(&of, 1049.0, Persistence::Sustained), &[]);
    assert_eq!(effective(&book, &of), Some(1000.0));
    book.measured(&reached(&of, 1051.0, Persistence::Burst), &[]);
    assert_eq!(effective(&book, &of), Some(1000.0), "a burst says nothing of what lasts");
    book.measured(&reached(&of, 1051.0, Persistence::Sustained), &[]);
    assert_eq!(effective(&book, &of), None);
}

#[test]
fn a_ceiling_of_one_block_size_is_none_of_anothers() {
    let mut book = Book::default();
    let of = reads("sda");
    let large = || Entry { block: Bytes(65_536), ..entry(of.clone(), "large@t", 5000.0) };
    book.learn(large());
    book.learn(entry(of.clone(), "small@t", 90_000.0));
    assert_eq!(book.entries().len(), 2, "4 KiB went faster than 64 KiB, as they do");
    book.learn(Entry { block: Bytes(32_768), ..entry(of.clone(), "half@t", 9000.0) });
    let by: Vec<&str> = book.entries().iter().map(|entry| entry.by.as_str()).collect();
    assert_eq!(by, ["small@t", "half@t"], "half of the block is near enough");
}

#[test]
fn a_fall_is_learned_from_the_third_run_in_a_row() {
    let mut book = Book::default();
    let of = reads("sda");
    let mut finds = |value| {
        book.learn(entry(of.clone(), "knee@t", value));
        effective(&book, &of)
    };
    assert_eq!(finds(10_000.0), Some(10_000.0));
    let falls = [finds(3000.0), finds(3000.0), finds(8000.0)];
    assert_eq!(falls, [Some(10_000.0), Some(10_000.0), Some(8000.0)], "it came back");
    let falls = [finds(3000.0), finds(3100.0), finds(3000.0)];
    assert_eq!(falls, [Some(8000.0), Some(8000.0), Some(3000.0)]);
    let other = |entry: Entry| {
        let mut book = book.clone();
        book.learn(entry);
        effective(&book, &of)
    };
    let low = || entry(of.clone(), "knee@t", 300.0);
    assert_eq!(other(Entry { identity: "naa.2".into(), ..low() }), Some(300.0));
    assert_eq!(other(Entry { block: Bytes(65_536), ..low() }), Some(300.0), "told to");
}

#[test]
fn what_a_probe_found_leaves_with_it() {
    let mut book = Book::default();
    let long = "p".repeat(200);
    book.learn(entry(reads("sda"), "gone@t", 600.0));
    book.learn(entry(reads("sda"), &long, 500.0));
    book.keep_found_by(&[long]);
    assert_eq!(effective(&book, &reads("sda")), Some(500.0));
}

#[test]
fn a_short_stroke_counts_only_where_nothing_better_is_known() {
    let mut book = Book::default();
    let of = reads("sda");
    book.learn(Entry { short_stroke: true, ..entry(of.clone(), "a@t", 600.0) });
    assert_eq!(effective(&book, &of), Some(600.0));
    book.learn(entry(of.clone(), "b@raw", 120.0));
    // 600 is beyond 120, and it was found before: only later ones are held against it.
    assert_eq!(effective(&book, &of), Some(120.0));
}

#[test]
fn a_device_swapped_under_its_name_loses_its_ceiling_and_one_that_is_away_keeps_it() {
    let mut book = Book::default();
    book.learn(entry(reads("sda"), "a@t", 600.0));
    book.learn(entry(reads("sdb"), "a@u", 600.0));
    let now = |resource: &Resource| match resource {
        Resource::Disk(name) if name == "sda" => Some("naa.2".to_owned()),
        _ => None,
    };
    assert_eq!(book.keep_same(now), 1);
    assert_eq!(effective(&book, &reads("sdb")), Some(600.0));
}

#[test]
fn what_is_declared_is_believed_until_a_run_goes_beyond_it() {
    let backing = DeclaredBacking {
        bytes_limit: Some(Rate(100e6)),
        bandwidth: Some(Rate(30e6)),
        devices: Some(4),
        replicas: Some(3),
        ..DeclaredBacking::default()
    };
    let declared = declared("srv", &backing);
    let of = |way| of(Resource::Target("srv".into()), way, Unit::BytesPerSecond);
    let mut book = Book::default();
    let value = |book: &Book, way| book.effective(&of(way), &declared).map(|e| e.value);
    assert_eq!(value(&book, Way::Read), Some(100e6));
    assert_eq!(value(&book, Way::Write), Some(40e6), "each write is three");
    book.learn(entry(of(Way::Read), "seq_read@srv", 90e6));
    assert_eq!(value(&book, Way::Read), Some(100e6));
    book.measured(&reached(&of(Way::Read), 120e6, Persistence::Burst), &declared);
    assert_eq!(value(&book, Way::Read), Some(90e6), "it is none: 120 MB/s were measured");
}

#[test]
fn a_declaration_is_disproved_for_one_disk_and_as_it_stood() {
    let limit = |rate| {
        let bytes_limit = Some(Rate(rate));
        declared("srv", &DeclaredBacking { bytes_limit, ..DeclaredBacking::default() })
    };
    let of = of(Resource::Target("srv".into()), Way::Read, Unit::BytesPerSecond);
    let mut book = Book::default();
    let value = |book: &Book, rate| book.effective(&of, &limit(rate)).map(|e| e.value);
    book.measured(&reached(&of, 120e6, Persistence::Burst), &limit(100e6));
    assert_eq!((value(&book, 100e6), value(&book, 50e6)), (None, Some(50e6)));
    book.keep_same(|_| Some("naa.1".into()));
    assert_eq!(value(&book, 100e6), None, "still the disk that gave more");
    book.keep_same(|_| Some("naa.2".into()));
    assert_eq!(value(&book, 100e6), Some(100e6));
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let resource = (any::<bool>(), 0..3_u8).prop_map(|(disk, n)| match disk {
        true => Resource::Disk(format!("sd{n}")),
        false => Resource::Target(format!("t{n}")),
    });
    let way = prop_oneof![Just(Way::Read), Just(Way::Write)];
    // serde_json reads the last digit of some numbers wrong, which is no matter of ours.
    let value = prop_oneof![
        8 => (0..1_u32 << 20).prop_map(f64::from),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)],
    ];
    (resource, way, value, ".{0,200}", any::<[bool; 3]>()).prop_map(
        |(resource, way, value, text, [bytes, burst, short_stroke])| {
            let unit = if bytes { Unit::BytesPerSecond } else { Unit::OperationsPerSecond };
            let kind = if burst { Persistence::Burst } else { Persistence::Sustained };
            let by = text.chars().take(2).collect::<String>();
            let plain = entry(Of { resource, way, unit }, &by, value);
            Entry { kind, short_stroke, source: text.clone(), identity: text, ..plain }
        },
    )
}

proptest! {
    // Each entry has the whole book written: more cases take minutes.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_runs_find_a_book_is_bounded_sound_and_comes_back_as_it_was(
        found in prop::collection::vec(any_entry(), 0..200),
    ) {
        let mut book = Book::default();
        for entry in found {
            let of = entry.of.clone();
            book.learn(entry);
            if let Some(most) = effective(&book, &of) {
                prop_assert!(most.is_finite() && most > 0.0);
            }
        }
        prop_assert!(book.written_bytes() <= BYTES_MAX);
        let text = serde_json::to_string(&book).unwrap();
        prop_assert_eq!(serde_json::from_str::<Book>(&text).unwrap(), book);
    }
}
