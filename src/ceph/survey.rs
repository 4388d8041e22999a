//! What a cluster tells without any I/O of ours: its health, and what is known of its OSDs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::command::{Client, Cut};
use super::{health, metadata, settings, space, tree};
use crate::base::fault::{Fault, FaultKind};
use crate::model::ceph::{Health, OSDS_MAX, Osd, Survey};

/// Lines of the cluster's log that are looked through.
const LOG_LINES: &str = "1000";

/// Whether the cluster is well now, and what it is busy with; errors as [`Client::ask`].
pub fn health(client: &Client<'_>) -> Result<Health, Cut> {
    Ok(health::parse(&client.ask(&["status"])?))
}

/// Whether an OSD is up now; errors as [`Client::ask`].
pub fn is_up(client: &Client<'_>, osd: u32) -> Result<bool, Cut> {
    let osds = tree::parse(&client.ask(&["osd", "tree"])?);
    Ok(osds.get(&osd).is_some_and(|osd| osd.up))
}

/// All that is known of the cluster's OSDs, or of those that it names. What only tells more is left
/// out where it can't be asked, and said.
///
/// # Errors
/// As [`Client::ask`], for the health and the tree.
pub fn take(client: &Client<'_>) -> Result<Survey, Cut> {
    let health = health(client)?;
    let mut osds = tree::parse(&client.ask(&["osd", "tree"])?);
    let wanted = &client.cluster.osds;
    osds.retain(|id, _| wanted.is_empty() || wanted.contains(id));
    let mut unknown: Vec<Fault> = wanted
        .iter()
        .filter(|id| !osds.contains_key(id))
        .map(|id| Fault::new(FaultKind::Missing, format!("osd.{id}: the cluster has none")))
        .collect();
    let osds_count = osds.len();
    while osds.len() > OSDS_MAX {
        osds.pop_last();
    }
    type Add = fn(&Value, &mut BTreeMap<u32, Osd>);
    let more: [(&[&str], Add); 5] = [
        (&["osd", "metadata"], metadata::add),
        (&["osd", "perf"], metadata::add_latency),
        (&["osd", "df"], space::add),
        (&["config", "dump"], settings::add_capacity),
        (&["log", "last", LOG_LINES, "warn", "cluster"], settings::add_refused),
    ];
    for (words, add) in more {
        match client.ask(words) {
            Ok(answer) => add(&answer, &mut osds),
            Err(Cut::Stopped) => return Err(Cut::Stopped),
            Err(Cut::Failed(fault)) => unknown.push(fault),
        }
    }
    Ok(Survey { health, osds: osds.into_values().collect(), osds_count, unknown })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::model::ceph::Cluster;

    /// A cluster made of what a real one answered, as far as `refused` doesn't hold.
    fn answers(dir: &std::path::Path, refused: &str) -> Cluster {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/ceph");
        let script = format!(
            "#!/bin/sh\nwhile [ \"$1\" != json ]; do shift; done; shift\n\
             case \"$*\" in {refused}) echo 'Error EACCES: access denied' >&2; exit 13;; esac\n\
             case \"$*\" in log*) echo '[]';; *) cat \"{fixtures}/$(echo $* | tr ' ' -).json\";; esac\n"
        );
        let path = dir.join("ceph");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Cluster { command: path, ..Cluster::default() }
    }

    fn survey(cluster: &Cluster) -> Result<Survey, Cut> {
        take(&Client { cluster, stopped: &|| false })
    }

    #[test]
    fn a_cluster_is_known_by_what_it_answers() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = answers(dir.path(), "none");
        let found = survey(&cluster).unwrap();
        assert!(found.health.is_ok() && found.unknown.is_empty(), "{found:?}");
        assert_eq!((found.osds.len(), found.osds_count), (2, 2));
        let osd = &found.osds[0];
        assert!(osd.up && osd.media.is_some() && osd.available.is_some() && osd.capacity.is_some());
        let chosen = Cluster { osds: vec![1, 9], ..cluster };
        let found = survey(&chosen).unwrap();
        assert_eq!((found.osds.len(), found.osds[0].id), (1, 1));
        assert_eq!(found.unknown[0].text, "osd.9: the cluster has none");
    }

    #[test]
    fn what_only_tells_more_may_be_refused() {
        let dir = tempfile::tempdir().unwrap();
        let found = survey(&answers(dir.path(), "'osd perf'|'config dump'")).unwrap();
        assert_eq!(found.unknown.len(), 2, "{:?}", found.unknown);
        assert!(found.osds[0].available.is_some() && found.osds[0].capacity.is_none());
        let Err(Cut::Failed(fault)) = survey(&answers(dir.path(), "status")) else { panic!() };
        assert_eq!(fault.kind, FaultKind::Denied);
    }
}
