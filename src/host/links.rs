//! /proc/net/dev: one line an interface, under names of any bytes.

use std::path::PathBuf;

use super::roots::{Roots, read_file, whole_lines};
use crate::model::load::{FlowCounters, LinkCounters};

/// Columns of a line: eight received, eight sent (net/core/net-procfs.c).
const COLUMNS: usize = 16;
/// Above it a counter has gone below zero in the driver and was printed unsigned.
const COUNTER_MAX: u64 = 1 << 63;

/// One interface as the file shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkLine<'a> {
    /// The kernel's name: any bytes but `/`, blank and NUL.
    pub name: &'a [u8],
    pub counters: LinkCounters,
    /// Every column is 0: an untouched interface, or a driver that failed to answer.
    pub blank: bool,
}

/// The file as parsed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkLines<'a> {
    pub lines: Vec<LinkLine<'a>>,
    /// Lines and fields that were left out.
    pub rejected: u64,
}

/// Reads /proc/net/dev line by line. Names may hold colons (`eth1:0`), and old kernels glue the
/// first counter to the colon: the name ends at the last one.
pub fn parse(text: &[u8]) -> LinkLines<'_> {
    let (text, rejected) = whole_lines(text);
    let mut found = LinkLines { rejected, ..LinkLines::default() };
    for line in text.split(|b| *b == b'\n') {
        let line = line.trim_ascii();
        // The two head lines are told by their bars, which no counter line has after its colon.
        let Some(colon) = line.iter().rposition(|b| *b == b':') else {
            let heading = line.is_empty() || line.contains(&b'|');
            found.rejected += u64::from(!heading);
            continue;
        };
        let (name, values) = (&line[..colon], &line[colon + 1..]);
        match columns(values) {
            Some(columns) if !name.is_empty() => {
                found.rejected += columns.iter().filter(|c| c.is_none()).count() as u64;
                found.lines.push(LinkLine {
                    name,
                    counters: counters(&columns),
                    blank: columns.iter().all(|c| *c == Some(0)),
                });
            }
            _ => found.rejected += 1,
        }
    }
    found
}

/// Exactly sixteen or more numbers; a field that can't be a count is `None`.
fn columns(values: &[u8]) -> Option<[Option<u64>; COLUMNS]> {
    let mut columns = [None; COLUMNS];
    let mut words = values.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    for column in &mut columns {
        let word = std::str::from_utf8(words.next()?).ok()?;
        *column = match word.parse::<u64>() {
            Ok(value) => (value < COUNTER_MAX).then_some(value),
            // A signed format of a foreign kernel: known to be nonsense, still a column.
            Err(_) => word.parse::<i64>().ok().map(|_| None)?,
        };
    }
    Some(columns)
}

fn counters(columns: &[Option<u64>; COLUMNS]) -> LinkCounters {
    let flow = |at: usize| FlowCounters {
        bytes: columns[at],
        packets: columns[at + 1],
        errors: columns[at + 2],
        drops: columns[at + 3],
    };
    LinkCounters { receive: flow(0), transmit: flow(COLUMNS / 2), receive_missed: None }
}

/// A kernel name as text: what isn't UTF-8 is written `\xNN`, so that two names stay two.
pub fn text_of(name: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String can't fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// True where the network that this process is in, which sockets speak of, is the one whose /proc is
/// read.
pub fn is_own_network(roots: &Roots) -> bool {
    let of = |path: PathBuf| std::fs::read_link(path).ok();
    let own = of("/proc/self/ns/net".into());
    roots.procfs == Roots::default().procfs || (own.is_some() && own == of(roots.proc("1/ns/net")))
}

/// The directory of a host's network files, and what is wrong with it where something is.
///
/// /proc/net is /proc/self/net: of a foreign procfs it shows this process's own network namespace
/// (or nothing). There the host's first process is asked, where it may be.
pub fn net_directory(roots: &Roots) -> (&'static str, Option<String>) {
    if roots.procfs == Roots::default().procfs {
        return ("net", None);
    }
    match std::fs::File::open(roots.proc("1/net/dev")) {
        Ok(_) => ("1/net", None),
        Err(error) => {
            let (first, own) = (roots.proc("1/net/dev"), roots.proc("net"));
            let (first, own) = (first.display(), own.display());
            let note = format!(
                "{first}: {error}: {own} is read, which may be the network of this container \
                 only: run with the host's network"
            );
            ("net", Some(note))
        }
    }
}

/// Bytes that an interface of this process's network received and sent so far.
pub fn bytes_moved(roots: &Roots, name: &str) -> Option<(u64, u64)> {
    let (directory, _) = net_directory(roots);
    let text = read_file(&roots.proc(directory).join("dev")).ok()?;
    let lines = parse(&text).lines;
    let line = lines.iter().find(|line| text_of(line.name) == name)?;
    Some((line.counters.receive.bytes?, line.counters.transmit.bytes?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    macro_rules! case {
        ($name:literal) => {
            include_bytes!(concat!("../../tests/fixtures/cases/", $name)).as_slice()
        };
    }

    fn line<'a>(found: &LinkLines<'a>, name: &str) -> LinkLine<'a> {
        *found.lines.iter().find(|l| l.name == name.as_bytes()).unwrap()
    }

    #[test]
    fn case_036_a_counter_glued_to_the_colon_shifts_no_column() {
        let found = parse(case!("036-netdev-no-space-after-colon.input"));
        assert_eq!((found.lines.len(), found.rejected), (3, 0));
        let eth0 = line(&found, "eth0").counters;
        assert_eq!(eth0.receive.bytes, Some(4_046_496_815));
        assert_eq!(eth0.receive.packets, Some(27_661_328));
        assert_eq!(eth0.transmit.bytes, Some(61_800_195_044));
        assert_eq!(eth0.transmit.packets, Some(32_419_766));
        assert_eq!(line(&found, "eth1").counters.transmit.packets, Some(12_498_214));
        assert_eq!(line(&found, "lo").counters.receive.bytes, Some(32_108_095));
    }

    #[test]
    fn case_037_a_name_ends_at_the_last_colon() {
        let found = parse(case!("037-netdev-alias-many-colons.input"));
        for (name, bytes) in
            [("team0", 1000), ("team0:1", 2000), ("tun10001:1", 3000), ("eth1:0", 4000)]
        {
            assert_eq!(line(&found, name).counters.receive.bytes, Some(bytes), "{name}");
        }
        assert_eq!((found.lines.len(), found.rejected), (4, 0));
    }

    #[test]
    fn case_038_any_bytes_are_a_name_and_no_two_names_become_one() {
        let found = parse(case!("038-netdev-strange-names.input"));
        let names: std::collections::BTreeSet<_> =
            found.lines.iter().map(|l| text_of(l.name)).collect();
        assert_eq!(names.len(), 7);
        for name in ["eth4", "eth4.100", "flannel.1", "💩0", "wlan%d", "bad\\xff0", "a\\b\"c"] {
            assert!(names.contains(name), "{name} in {names:?}");
        }
    }

    #[test]
    fn case_052_a_counter_below_zero_is_unknown_and_its_neighbours_are_kept() {
        let found = parse(case!("052-netdev-negative-as-u64.input"));
        let dummy = line(&found, "dummy0").counters;
        assert_eq!((dummy.receive.bytes, dummy.receive.packets), (None, Some(12)));
        assert_eq!((dummy.transmit.bytes, found.rejected), (Some(3400), 1));
    }

    #[test]
    fn case_050_a_flood_of_pods_is_read_whole() {
        let found = parse(case!("050-veth-flood-cardinality.input"));
        assert_eq!((found.lines.len(), found.rejected), (202, 0));
        assert!(found.lines.iter().all(|l| l.name.len() <= 15));
    }

    #[test]
    fn short_lines_and_words_are_skipped_and_counted() {
        let found = parse(b"  eth0: 1 2 3\n eth1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 x\n: 1\nx\n");
        assert_eq!((found.lines.len(), found.rejected), (0, 4));
        let more = parse(b"eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18\n");
        assert_eq!(more.lines[0].counters.transmit.bytes, Some(9), "later columns are ignored");
    }

    #[test]
    fn the_bytes_of_one_interface_are_those_of_its_line() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { procfs: root.path().into(), ..Roots::default() };
        assert_eq!(bytes_moved(&roots, "eth0"), None);
        std::fs::create_dir_all(root.path().join("net")).unwrap();
        std::fs::write(root.path().join("net/dev"), case!("036-netdev-no-space-after-colon.input"))
            .unwrap();
        assert_eq!(bytes_moved(&roots, "eth0"), Some((4_046_496_815, 61_800_195_044)));
        assert_eq!(bytes_moved(&roots, "eth9"), None);
    }

    #[test]
    fn case_048_a_foreign_procfs_is_asked_for_its_first_process() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { procfs: root.path().into(), ..Roots::default() };
        let (directory, note) = net_directory(&roots);
        assert_eq!(directory, "net");
        assert!(note.unwrap().contains("1/net/dev"));
        std::fs::create_dir_all(root.path().join("1/net")).unwrap();
        std::fs::write(root.path().join("1/net/dev"), "").unwrap();
        assert_eq!(net_directory(&roots), ("1/net", None));
        assert_eq!(net_directory(&Roots::default()), ("net", None));
    }

    #[test]
    fn a_foreign_host_is_not_told_of_by_our_own_network() {
        let root = tempfile::tempdir().unwrap();
        assert!(!is_own_network(&Roots { procfs: root.path().into(), ..Roots::default() }));
        assert!(is_own_network(&Roots::default()));
    }

    #[test]
    fn a_second_opinion_agrees_on_this_host() {
        use procfs_core::FromRead;
        let text = super::super::roots::read_file("/proc/self/net/dev".as_ref()).unwrap();
        let theirs = procfs_core::net::InterfaceDeviceStatus::from_read(text.as_slice()).unwrap();
        let ours = parse(&text);
        assert_eq!(ours.lines.len(), theirs.0.len());
        for line in &ours.lines {
            let them = &theirs.0[&text_of(line.name)];
            assert_eq!(line.counters.receive.bytes, Some(them.recv_bytes));
            assert_eq!(line.counters.receive.drops, Some(them.recv_drop));
            assert_eq!(line.counters.transmit.packets, Some(them.sent_packets));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(text in prop::collection::vec(any::<u8>(), 0..2000)) {
            let found = parse(&text);
            prop_assert!(found.lines.len() <= text.len());
        }

        #[test]
        fn a_mutated_file_loses_only_what_was_hit(at in 0usize..100_000, byte: u8) {
            let mut text = case!("050-veth-flood-cardinality.input").to_vec();
            let at = at % text.len();
            text[at] = byte;
            let found = parse(&text);
            prop_assert!(found.lines.len() >= 200, "{}", found.lines.len());
        }
    }
}
