//! The key `peers`: hosts that test the way to each other, and who may test the way to this one.

use std::path::PathBuf;

use serde::Deserialize;

use super::allowed::{PARTNERS, at_most};
use super::complaint::Complaint;
use super::document::Section;
use super::read::{check_address, one_or_many};
use super::settings::PeerSettings;
use crate::base::network::Endpoint;
use crate::model::peer::Peer;

const NETWORKS_MAX: usize = 256;
/// In the list; files may name more.
const PEERS_MAX: usize = 256;
const FILES_MAX: usize = 64;
const NAME_CHARS_MAX: usize = 64;
/// Where iperf3 listens.
pub const PORT: u16 = 5201;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    listen: Option<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    allow: Vec<String>,
    #[serde(rename = "self")]
    own_name: Option<String>,
    /// Read apart, with its own places.
    #[serde(default, rename = "list")]
    _list: serde::de::IgnoredAny,
    #[serde(default, deserialize_with = "one_or_many")]
    files: Vec<String>,
    files_port: Option<std::num::NonZeroU16>,
    partners: Option<usize>,
    #[serde(default)]
    allow_same_kernel: bool,
    #[serde(default)]
    any_clock: bool,
    #[serde(default)]
    i_know: bool,
}

/// `None` where there is no such key: nobody listens, and nobody is tested.
pub(super) fn peers(root: &Section<'_>) -> Result<Option<PeerSettings>, Complaint> {
    let Some(section) = root.get("peers") else { return Ok(None) };
    let keys: Keys = section.read()?;
    let list = match section.get("list") {
        Some(list) => list_of(&list)?,
        None => Vec::new(),
    };
    at_most(&section, "files", keys.files.len(), FILES_MAX)?;
    for file in &keys.files {
        check_pattern(file).map_err(|text| section.refuse_value("files", text))?;
    }
    if let Some(name) = &keys.own_name {
        check_name(name).map_err(|text| section.refuse_value("self", text))?;
    }
    let known = !list.is_empty() || !keys.files.is_empty();
    check_listen(&section, &keys, known)?;
    let network = |text: &String| text.parse().map_err(|text| section.refuse_value("allow", text));
    Ok(Some(PeerSettings {
        allow: keys.allow.iter().map(network).collect::<Result<_, Complaint>>()?,
        listen: keys.listen,
        own_name: keys.own_name,
        list,
        files: keys.files,
        files_port: keys.files_port.map(u16::from),
        partners: PARTNERS.check(&section, "partners", keys.partners.unwrap_or(16))?,
        allow_same_kernel: keys.allow_same_kernel,
        any_clock: keys.any_clock,
        i_know: keys.i_know,
    }))
}

fn check_listen(section: &Section<'_>, keys: &Keys, known: bool) -> Result<(), Complaint> {
    match &keys.listen {
        Some(listen) => {
            check_address(listen).map_err(|text| section.refuse_value("listen", text))?;
            if (keys.allow.is_empty() && !known) || keys.allow.len() > NETWORKS_MAX {
                let text = format!(
                    "`peers.allow`: expected 1 to {NETWORKS_MAX} addresses or blocks of them \
                     (10.0.0.0/24)"
                );
                return Err(section.refuse(text));
            }
        }
        None if !keys.allow.is_empty() => {
            let text = "`peers.allow` needs `listen`: the address where they are answered";
            return Err(section.refuse(text));
        }
        None if !known => {
            let text =
                "`peers` needs `list` or `files`, whom to test, or `listen`, where to answer";
            return Err(section.refuse(text));
        }
        None => {}
    }
    Ok(())
}

/// `storage2`, `10.0.0.2:5201`, or keys.
fn list_of(section: &Section<'_>) -> Result<Vec<Peer>, Complaint> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Keys {
        name: Option<String>,
        address: Option<String>,
        host: Option<String>,
        #[serde(default)]
        passive: bool,
    }

    let items = section.items()?;
    at_most(section, "list", items.len(), PEERS_MAX)?;
    let mut list: Vec<Peer> = Vec::new();
    for item in items {
        let item = item.titled("this peer");
        let peer = if item.keys().is_ok() {
            let Keys { name, address, host, passive } = item.read()?;
            let Some(text) = address.as_ref().or(name.as_ref()) else {
                return Err(item.refuse("this peer has no `name` and no `address`"));
            };
            let key = if address.is_some() { "address" } else { "name" };
            let plain = peer(text).map_err(|text| item.refuse_value(key, text))?;
            let name = name.unwrap_or(plain.name);
            check_name(&name).map_err(|text| item.refuse_value("name", text))?;
            Peer { name, machine: host, passive, ..plain }
        } else {
            let text: String = item.read()?;
            peer(&text).map_err(|text| item.refuse(text))?
        };
        if let Some(other) = list.iter().find(|other| same(other, &peer)) {
            return Err(item.refuse(format!("peer `{}` is there twice", other.name)));
        }
        list.push(peer);
    }
    Ok(list)
}

/// The target of a probe that has none.
pub(super) fn no_target(
    item: &Section<'_>,
    target: bool,
    engine: bool,
) -> Result<String, Complaint> {
    match [("target", target), ("engine", engine)].into_iter().find(|(_, there)| *there) {
        Some((key, _)) => {
            Err(item.refuse_value(key, "this kind tests the way to all `peers`: leave it out"))
        }
        None => Ok(String::new()),
    }
}

/// A name or an address is the same peer's.
pub fn same(one: &Peer, other: &Peer) -> bool {
    one.name == other.name || one.endpoint == other.endpoint
}

/// A peer as one text names it: by itself, with the port where that is none of iperf3's.
pub(super) fn peer(text: &str) -> Result<Peer, String> {
    peer_at(text, None)
}

/// As [`peer`]; a `port` stands for the text's.
pub(super) fn peer_at(text: &str, port: Option<u16>) -> Result<Peer, String> {
    let mut endpoint = Endpoint::parse(text, PORT)?;
    endpoint.port = port.unwrap_or(endpoint.port);
    let name = if endpoint.port == PORT { endpoint.host.clone() } else { endpoint.to_string() };
    Ok(Peer { name, endpoint, machine: None, passive: false })
}

fn check_name(name: &str) -> Result<(), String> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || "_.-:[]".contains(c);
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(in_name) {
        return Err(format!(
            "`{name}` is not a name (1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 _ . - :)"
        ));
    }
    Ok(())
}

/// As Prometheus has it: `*` and `?` stand in the last part alone.
fn check_pattern(text: &str) -> Result<(), String> {
    let path = PathBuf::from(text);
    let wild = |text: &str| text.contains(['*', '?', '[']);
    let in_parent = path.parent().and_then(|parent| parent.to_str()).is_none_or(wild);
    if path.is_absolute() && path.file_name().is_some() && !in_parent && !text.contains('[') {
        return Ok(());
    }
    Err(format!("`{text}` is not a path or pattern of files (/etc/loadline/peers/*.yml)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Document;

    fn read(text: &str) -> Result<PeerSettings, String> {
        let document = Document::parse("f", &format!("peers: {text}\n")).unwrap();
        let said = |c: Complaint| c.to_string().lines().next().unwrap_or("").to_owned();
        peers(&document.root()).map_err(said).map(Option::unwrap)
    }

    #[test]
    fn peers_are_names_addresses_or_both() {
        let read = read(
            "{self: a, list: [b, '10.0.0.3', 'c:99', {name: d, address: '10.0.0.4:1', host: hv}, \
             {address: e, passive: true}], files: /etc/peers/*.json}",
        )
        .unwrap();
        let names: Vec<_> = read.list.iter().map(|peer| peer.name.as_str()).collect();
        assert_eq!(names, ["b", "10.0.0.3", "c:99", "d", "e"]);
        let places: Vec<_> = read.list.iter().map(|peer| peer.endpoint.to_string()).collect();
        assert_eq!(places, ["b:5201", "10.0.0.3:5201", "c:99", "10.0.0.4:1", "e:5201"]);
        assert_eq!(read.list[3].machine.as_deref(), Some("hv"));
        assert!(read.list[4].passive && read.partners == 16 && read.listen.is_none());
    }

    #[test]
    fn what_is_wrong_is_said_at_its_place() {
        for (text, said) in [
            ("{}", "f:1:8: `peers` needs `list` or `files`, whom to test, or `listen`"),
            ("{list: [a, a]}", "f:1:19: peer `a` is there twice"),
            ("{list: [a, {name: b, address: a}]}", "f:1:19: peer `a` is there twice"),
            ("{list: [a:b:c]}", "f:1:16: `a:b:c` is not an address or a name"),
            ("{list: [{host: a}]}", "f:1:16: this peer has no `name` and no `address`"),
            ("{list: [{nam: a}]}", "f:1:17: unknown key `nam` in this peer"),
            ("{files: 'peers.yml'}", "f:1:16: `files` of `peers`: `peers.yml` is not a path"),
            ("{files: '/a/*/b.yml'}", "f:1:16: `files` of `peers`: `/a/*/b.yml` is not a path"),
            ("{list: [a], partners: 0}", "f:1:30: `partners` of `peers`: must be 1 to 1024"),
            ("{list: [a], self: 'a b'}", "f:1:26: `self` of `peers`: `a b` is not a name"),
        ] {
            let complaint = read(text).unwrap_err();
            assert!(complaint.starts_with(said), "{text}: {complaint}");
        }
    }
}
