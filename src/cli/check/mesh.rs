//! What `loadline check` says of tests with peers: who, how, and when.

use std::collections::BTreeSet;

use crate::base::clock::{Clock, SystemClock};
use crate::config::peer_files::PeerFiles;
use crate::daemon::meetings::fills;
use crate::daemon::mesh::Mesh;
use crate::daemon::plan::Plan;
use crate::host::roots::Roots;
use crate::model::peer::Peer;

/// Peers that are named one by one.
const NAMED_MAX: usize = 20;

/// Nothing where no probe goes to peers.
pub(super) fn lines(plan: &Plan, host_name: &str, roots: &Roots) -> Vec<String> {
    let (Some(link), Some(settings)) = (&plan.link, &plan.settings.peers) else {
        return Vec::new();
    };
    let now = SystemClock.now();
    let files = PeerFiles::open(Some(settings), now);
    let mesh = Mesh::new(plan, &files, host_name);
    let mut lines = vec![String::new()];
    lines.extend(files.complaints());
    let Some(tournament) = &mesh.tournament else {
        lines.push(format!("{}: there is no peer but this host", link.name));
        return lines;
    };
    let own = &mesh.peers[tournament.me].name;
    let duration = |time| humantime::format_duration(time).to_string();
    lines.push(format!("{}: {}; this host is `{own}`", link.name, link.shape.summary));
    lines.push(format!(
        "  slots of {}, one every {}; list {}",
        duration(tournament.timing.length),
        duration(tournament.timing.period),
        mesh.digest
    ));
    let tested = |(peer, one): (usize, &Peer)| {
        let every = tournament.interval(peer)?;
        let next = tournament.next(now.wall, Some(peer))?;
        let at = humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + next.begins);
        let every = duration(std::time::Duration::from_secs(every.0.round() as u64));
        Some(format!("  {} at {}, every {every}, next {at}", one.name, one.endpoint))
    };
    let mut peers: Vec<String> = mesh.peers.iter().enumerate().filter_map(tested).collect();
    let more = peers.len().saturating_sub(NAMED_MAX);
    peers.truncate(NAMED_MAX);
    lines.extend(peers);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    let tested = mesh.peers.iter().enumerate().filter(|(at, _)| tournament.interval(*at).is_some());
    let asks: BTreeSet<String> =
        tested.filter_map(|(_, peer)| fills::unasked(peer, roots, &plan.settings)).collect();
    lines.extend(asks.into_iter().map(|text| format!("no test is made: {text}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Document;
    use crate::config::settings::Settings;

    fn said(text: &str) -> String {
        let document = Document::parse("f", text).unwrap();
        let settings = Settings::read(&document, &crate::daemon::plan::kind_names()).unwrap();
        let plan = Plan::build(settings, &document, std::path::Path::new("/state")).unwrap();
        lines(&plan, "storage1", &Roots::default()).join("\n")
    }

    #[test]
    fn peers_are_said_with_their_slots() {
        let said = said("peers: {list: [storage2, storage3, {name: storage1, host: hv}]}");
        assert!(
            said.contains("throughput: 4 streams for 5 s each way, 2 s of one alone"),
            "{said}"
        );
        assert!(said.contains("this host is `storage1`"), "{said}");
        assert!(said.contains("slots of 23s, one every 8h; list "), "{said}");
        assert!(said.contains("  storage2 at storage2:5201, every 2days, next 2"), "{said}");
    }

    #[test]
    fn without_peers_nothing_is_said_and_alone_that_is() {
        assert_eq!(said(""), "");
        assert!(said("peers: {list: [storage1]}").contains("no peer but this host"));
        let gone = said("peers: {files: /no/such/file.yml}");
        assert!(gone.contains("/no/such/file.yml: No such file"), "{gone}");
    }
}
