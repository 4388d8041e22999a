//! /proc/net/softnet_stat: packets that a CPU dropped or had no time for (net/core/net-procfs.c).
//!
//! One line per *online* CPU of hexadecimal 32-bit columns: 9, 11, 13 or 15 by kernel. Column 12
//! (from 0) is the CPU; older kernels don't say, and there the line's place has to do.

use super::roots::whole_lines;

/// What is of use of one CPU's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softnet {
    pub cpu: usize,
    /// The backlog was full (net.core.netdev_max_backlog).
    pub dropped: u32,
    /// Budget or time ended with packets left (net.core.netdev_budget).
    pub squeezed: u32,
}

const CPU_COLUMN: usize = 12;

/// Lines by CPU, and how many could not be read.
pub fn parse(text: &[u8]) -> (Vec<Softnet>, u64) {
    let (text, mut rejected) = whole_lines(text);
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).enumerate();
    let parsed = lines
        .filter_map(|(place, line)| {
            let found = row(line, place);
            rejected += u64::from(found.is_none());
            found
        })
        .collect();
    (parsed, rejected)
}

fn row(line: &[u8], place: usize) -> Option<Softnet> {
    let columns: Option<Vec<u32>> = std::str::from_utf8(line)
        .ok()?
        .split_ascii_whitespace()
        .map(|word| u32::from_str_radix(word, 16).ok())
        .collect();
    let columns = columns?;
    let cpu = columns.get(CPU_COLUMN).map_or(Some(place), |cpu| usize::try_from(*cpu).ok())?;
    Some(Softnet { cpu, dropped: *columns.get(1)?, squeezed: *columns.get(2)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_of_every_kernel_are_read_by_position() {
        let nine = b"0000000a 00000001 00000002 0 0 0 0 0 0\n";
        assert_eq!(parse(nine).0, [Softnet { cpu: 0, dropped: 1, squeezed: 2 }]);
        let fifteen =
            b"ff 3 4 0 0 0 0 0 0 0 0 0 00000007 0 0\nff 5 6 0 0 0 0 0 0 0 0 0 00000009 0 0\n";
        let cpus: Vec<_> = parse(fifteen).0.iter().map(|s| (s.cpu, s.dropped)).collect();
        assert_eq!(cpus, [(7, 3), (9, 5)], "CPU 8 is offline");
    }

    #[test]
    fn a_bad_line_costs_itself_only() {
        let (lines, rejected) = parse(b"what is this\n1 2\n1 2 3\n");
        assert_eq!((lines.len(), rejected), (1, 2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(text in prop::collection::vec(any::<u8>(), 0..500)) {
            let (lines, _) = parse(&text);
            prop_assert!(lines.len() <= text.len());
        }
    }
}
