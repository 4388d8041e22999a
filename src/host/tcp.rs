//! /proc/net/snmp and /proc/net/netstat: pairs of lines, names above values (net/ipv4/proc.c).

use super::roots::whole_lines;

/// One named value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell<'a> {
    section: &'a [u8],
    column: &'a [u8],
    value: i64,
}

/// The values of a file, by section and column: never by position, since both grow with the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table<'a> {
    cells: Vec<Cell<'a>>,
    /// Pairs and values that were left out.
    pub rejected: u64,
}

impl<'a> Table<'a> {
    /// Reads pairs line by line; a section may be absent, empty, or come in several pairs
    /// (IcmpMsg: sixteen types a pair). A pair of unequal lengths can't be trusted and is skipped.
    pub fn parse(text: &'a [u8]) -> Self {
        let (text, rejected) = whole_lines(text);
        let mut table = Self { rejected, ..Self::default() };
        let mut names: Option<(&[u8], &[u8])> = None;
        for line in text.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()) {
            let Some(colon) = line.iter().position(|b| *b == b':') else {
                table.rejected += 1;
                continue;
            };
            let (section, rest) = (line[..colon].trim_ascii(), &line[colon + 1..]);
            match names.take() {
                Some((above, columns)) if above == section => table.pair(section, columns, rest),
                above => {
                    table.rejected += u64::from(above.is_some());
                    names = Some((section, rest));
                }
            }
        }
        table.rejected += u64::from(names.is_some());
        table
    }

    /// Reads /proc/net/snmp6, which has one `Ip6InReceives  1012` a line (net/ipv6/proc.c): the section
    /// is what ends in the first 6.
    pub fn parse_names(text: &'a [u8]) -> Self {
        let (text, rejected) = whole_lines(text);
        let mut table = Self { rejected, ..Self::default() };
        for line in text.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()) {
            match Self::named(line) {
                Some(cell) => table.cells.push(cell),
                None => table.rejected += 1,
            }
        }
        table
    }

    fn named(line: &'a [u8]) -> Option<Cell<'a>> {
        let mut words = words(line);
        let (name, value) = (words.next()?, words.next()?);
        let (section, column) = name.split_at(name.iter().position(|b| *b == b'6')? + 1);
        let value = std::str::from_utf8(value).ok()?.parse().ok()?;
        Some(Cell { section, column, value })
    }

    fn pair(&mut self, section: &'a [u8], columns: &'a [u8], values: &'a [u8]) {
        if words(columns).count() != words(values).count() {
            self.rejected += 1;
            return;
        }
        for (column, value) in words(columns).zip(words(values)) {
            match std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()) {
                Some(value) => self.cells.push(Cell { section, column, value }),
                None => self.rejected += 1,
            }
        }
    }

    /// A value as printed; `MaxConn` may be -1.
    pub fn get(&self, section: &str, column: &str) -> Option<i64> {
        let (section, column) = (section.as_bytes(), column.as_bytes());
        self.cells.iter().find(|c| c.section == section && c.column == column).map(|c| c.value)
    }

    /// A count; `None` where this kernel has no such column, or it is below zero.
    pub fn count(&self, section: &str, column: &str) -> Option<u64> {
        u64::try_from(self.get(section, column)?).ok()
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

/// What is counted of this network namespace's TCP. Absent where the kernel has no such column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters {
    pub retransmitted_segments: Option<u64>,
    /// Segments with new data; retransmissions and pure acknowledgements left out
    /// (Documentation/networking/snmp_counter.rst).
    pub original_data_segments: Option<u64>,
    /// Segments sent but for retransmissions; pure acknowledgements are in it.
    pub sent_segments: Option<u64>,
    pub timeouts: Option<u64>,
    pub spurious_timeouts: Option<u64>,
    pub lost_retransmits: Option<u64>,
    pub syn_retransmits: Option<u64>,
    pub listen_drops: Option<u64>,
}

impl TcpCounters {
    pub fn from_tables(snmp: &Table<'_>, netstat: &Table<'_>) -> Self {
        let tcp = |column| snmp.count("Tcp", column);
        let extended = |column| netstat.count("TcpExt", column);
        Self {
            retransmitted_segments: tcp("RetransSegs"),
            sent_segments: tcp("OutSegs"),
            original_data_segments: extended("TCPOrigDataSent"),
            timeouts: extended("TCPTimeouts"),
            spurious_timeouts: extended("TCPSpuriousRTOs"),
            lost_retransmits: extended("TCPLostRetransmit"),
            syn_retransmits: extended("TCPSynRetrans"),
            listen_drops: extended("ListenDrops"),
        }
    }
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

    #[test]
    fn case_056_an_absent_section_is_absent() {
        let table = Table::parse(case!("056-snmp-icmpmsg-absent.input"));
        for (section, column, value) in [
            ("Ip", "InReceives", 12_063),
            ("Ip", "OutTransmits", 8953),
            ("Tcp", "MaxConn", -1),
            ("Tcp", "ActiveOpens", 177),
            ("Tcp", "OutSegs", 10_083),
            ("Tcp", "RetransSegs", 18),
            ("Tcp", "OutRsts", 94),
        ] {
            assert_eq!(table.get(section, column), Some(value), "{section} {column}");
        }
        assert_eq!(table.get("IcmpMsg", "InType3"), None);
        assert_eq!((table.count("Tcp", "MaxConn"), table.rejected), (None, 0));
    }

    #[test]
    fn case_057_pairs_of_one_section_are_merged() {
        let table = Table::parse(case!("057-snmp-icmpmsg-repeated-pairs.input"));
        let columns = table.cells.iter().filter(|c| c.section == b"IcmpMsg").count();
        assert_eq!((columns, table.rejected), (22, 0));
        for (column, value) in [("InType0", 1), ("InType3", 2), ("OutType3", 19), ("OutType69", 22)]
        {
            assert_eq!(table.get("IcmpMsg", column), Some(value), "{column}");
        }
        assert_eq!(table.get("Tcp", "OutRsts"), Some(10));
    }

    #[test]
    fn case_060_an_absent_column_is_absent_and_not_zero() {
        let table = Table::parse(case!("060-snmp-old-embedded-short.input"));
        assert_eq!(table.get("Udp", "InDatagrams"), Some(11_438));
        assert_eq!(table.get("Udp", "OutDatagrams"), Some(13_602));
        assert_eq!(table.get("Udp", "RcvbufErrors"), None);
        assert_eq!(table.get("Tcp", "OutRsts"), Some(0));
        assert_eq!((table.get("Tcp", "InSegs"), table.get("Tcp", "OutSegs")), (Some(5), Some(7)));
    }

    #[test]
    fn case_061_a_pair_of_unequal_lengths_is_skipped_alone() {
        let table = Table::parse(case!("061-netstat-header-value-mismatch.input"));
        assert_eq!(table.get("TcpExt", "ListenDrops"), None);
        assert_eq!(table.get("IpExt", "InOctets"), Some(7777));
        assert_eq!(table.get("IpExt", "OutOctets"), Some(8888));
        assert_eq!(table.rejected, 1);
    }

    #[test]
    fn case_062_an_empty_pair_is_no_error() {
        let table = Table::parse(case!("062-snmp-gvisor-empty-pair.input"));
        assert_eq!((table.get("Udp", "InDatagrams"), table.rejected), (Some(5), 0));
        assert!(table.cells.iter().all(|c| c.section != b"IcmpMsg"));
    }

    #[test]
    fn case_064_names_of_ip_version_6_are_split_at_their_6() {
        let table = Table::parse_names(case!("064-snmp6-and-counter-drop.input"));
        for (section, column, value) in [
            ("Ip6", "InReceives", 1012),
            ("Ip6", "InNoECTPkts", 1010),
            ("Icmp6", "OutType143", 32),
            ("Udp6", "InDatagrams", 3),
            ("UdpLite6", "InDatagrams", 0),
        ] {
            assert_eq!(table.get(section, column), Some(value), "{section} {column}");
        }
        assert_eq!((table.cells.len(), table.rejected), (6, 0));
    }

    #[test]
    fn a_header_without_values_costs_only_itself() {
        let table = Table::parse(b"Ip: A B\nTcp: RetransSegs\nTcp: 7\nUdp: X\n");
        assert_eq!(table.get("Tcp", "RetransSegs"), Some(7));
        assert_eq!(table.rejected, 2);
    }

    #[test]
    fn this_kernels_own_files_have_what_is_published() {
        let read = |path: &str| super::super::roots::read_file(path.as_ref()).unwrap();
        let (snmp, netstat) = (read("/proc/self/net/snmp"), read("/proc/self/net/netstat"));
        let (snmp, netstat) = (Table::parse(&snmp), Table::parse(&netstat));
        let counters = TcpCounters::from_tables(&snmp, &netstat);
        assert!(counters.retransmitted_segments.is_some() && counters.sent_segments.is_some());
        assert_eq!((snmp.rejected, netstat.rejected), (0, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(text in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(Table::parse(&text).cells.len() <= text.len());
        }

        #[test]
        fn a_mutated_byte_costs_at_most_its_pairs(at: usize, byte: u8) {
            let mut text = case!("056-snmp-icmpmsg-absent.input").to_vec();
            let at = at % text.len();
            text[at] = byte;
            let table = Table::parse(&text);
            let sections: std::collections::BTreeSet<_> =
                table.cells.iter().map(|c| c.section).collect();
            prop_assert!(sections.len() >= 3, "{sections:?}");
        }
    }
}
