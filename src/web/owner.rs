//! Who listens on a port: asked when it can't be had, so that the complaint names somebody.

use std::path::Path;

use crate::host::roots::{Roots, attribute, read_file};

/// `st` of /proc/net/tcp: TCP_LISTEN (include/net/tcp_states.h).
const LISTEN: &str = "0A";

/// A process that listens on a TCP port.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) pid: u32,
    pub(super) name: String,
}

/// The process that listens on `port`; `None` where it can't be seen: another user's, another pid
/// namespace's, or gone.
pub(super) fn of(roots: &Roots, port: u16) -> Option<Owner> {
    let sockets: Vec<String> = ["net/tcp", "net/tcp6"]
        .iter()
        .filter_map(|table| read_file(&roots.proc(table)).ok())
        .flat_map(|table| listeners(&String::from_utf8_lossy(&table), port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let processes = std::fs::read_dir(&roots.procfs).ok()?;
    processes.filter_map(Result::ok).find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = || attribute(&entry.path().join("comm")).unwrap_or_default();
        holds(&entry.path().join("fd"), &sockets).then(|| Owner { pid, name: name() })
    })
}

/// Socket inodes that listen on `port`, from a table as net/ipv4/tcp_ipv4.c writes it.
fn listeners(table: &str, port: u16) -> Vec<u64> {
    let inode = |line: &str| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local) = columns.get(1)?.rsplit_once(':')?;
        let listens = *columns.get(3)? == LISTEN && u16::from_str_radix(local, 16) == Ok(port);
        if listens { columns.get(9)?.parse().ok() } else { None }
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn holds(descriptors: &Path, sockets: &[String]) -> bool {
    let Ok(entries) = std::fs::read_dir(descriptors) else { return false };
    entries.filter_map(Result::ok).any(|entry| {
        std::fs::read_link(entry.path())
            .is_ok_and(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_listener_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let owner = of(&Roots::default(), port).unwrap();
        assert_eq!(owner.pid, std::process::id());
        assert!(!owner.name.is_empty());
        drop(listener);
        assert_eq!(of(&Roots::default(), port), None);
    }

    #[test]
    fn only_listeners_on_the_port_count_and_short_lines_are_nothing() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 00000000:2677 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n\
            1: 0100007F:2677 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1\n\
            2: 00000000:2678 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1\n\
            3: 00000000:2677 00000000:0000 0A\n\
            garbage\n";
        assert_eq!(listeners(table, 9847), [4711]);
    }
}
