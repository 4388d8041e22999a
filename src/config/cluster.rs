//! Targets that are OSDs of a Ceph cluster: `- {name: pool, ceph: {user: client.loadline}}`.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::allowed::{ANSWER, BUDGET, at_most};
use super::complaint::Complaint;
use super::declared;
use super::document::Section;
use super::read::optional;
use super::settings::{BUDGET_OF_CLUSTER, TargetSettings};
use crate::base::units::{Bytes, Seconds};
use crate::model::ceph::{Cluster, OSDS_MAX};
use crate::model::path::DeclaredBacking;

/// What such a target can be told beside `ceph`; the rest is about file systems.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetKeys {
    #[serde(rename = "name")]
    _name: IgnoredAny,
    /// Read apart, with their own places.
    #[serde(rename = "ceph")]
    _ceph: IgnoredAny,
    #[serde(default, rename = "backing")]
    _backing: IgnoredAny,
    #[serde(default, deserialize_with = "optional")]
    budget: Option<Bytes>,
    shared: Option<String>,
    #[serde(default)]
    shared_hosts: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    command: Option<PathBuf>,
    conf: Option<PathBuf>,
    user: Option<String>,
    keyring: Option<PathBuf>,
    #[serde(deserialize_with = "optional")]
    timeout: Option<Seconds>,
    osds: Vec<u32>,
}

/// The target `item`, of which `section` is the value of `ceph`.
pub(super) fn cluster(
    item: &Section<'_>,
    section: &Section<'_>,
    name: String,
) -> Result<TargetSettings, Complaint> {
    let keys: TargetKeys = item.read()?;
    let ceph = read(&section.clone().titled(format!("`ceph` of target `{name}`")))?;
    if let Some(section) = item.get("backing") {
        // A bench of an OSD crosses no link and makes no copies: its disk is all there is.
        let section = section.titled(format!("`backing` of target `{name}`"));
        section.only(&["media", "rpm", "bandwidth", "wal"])?;
    }
    let budget = BUDGET.check(item, "budget", keys.budget.unwrap_or(BUDGET_OF_CLUSTER))?;
    if keys.shared.is_none() && !keys.shared_hosts.is_empty() {
        return Err(item.refuse_value("shared_hosts", "say with `shared: NAME` what they share"));
    }
    Ok(TargetSettings {
        name,
        path: ceph.conf.clone(),
        writes: None,
        ballast: None,
        budget,
        wake: false,
        // What is declared for all is of this host's own storage.
        backing: declared::or(item, &DeclaredBacking::default())?,
        shared: keys.shared,
        shared_hosts: keys.shared_hosts,
        is_default: false,
        ceph: Some(ceph),
    })
}

fn read(section: &Section<'_>) -> Result<Cluster, Complaint> {
    let keys: Keys = section.read()?;
    let plain = Cluster::default();
    let files = [("conf", &keys.conf), ("keyring", &keys.keyring)];
    for (key, path) in files.into_iter().filter_map(|(key, path)| Some((key, path.as_ref()?))) {
        if !path.is_absolute() {
            let text = format!("`{}` must start with `/`", path.display());
            return Err(section.refuse_value(key, text));
        }
    }
    if let Some(command) = keys.command.as_deref().filter(|command| !is_command(command)) {
        let text = format!("`{}` is neither a name nor a whole path", command.display());
        return Err(section.refuse_value("command", text));
    }
    let user = keys.user.map(|user| user_of(&user)).transpose();
    let user = user.map_err(|text| section.refuse_value("user", text))?;
    at_most(section, "osds", keys.osds.len(), OSDS_MAX)?;
    Ok(Cluster {
        command: keys.command.unwrap_or(plain.command),
        search_path: None,
        conf: keys.conf.unwrap_or(plain.conf),
        user,
        keyring: keys.keyring,
        timeout: ANSWER.check(section, "timeout", keys.timeout.unwrap_or(plain.timeout))?,
        osds: keys.osds,
    })
}

fn is_command(command: &Path) -> bool {
    command.is_absolute() || command.components().count() == 1
}

/// `client.loadline`; `loadline` means the same.
///
/// # Errors
/// What is no name of a user of Ceph.
pub fn user_of(text: &str) -> Result<String, String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !begins || text.len() > 64 || !text.chars().all(sound) {
        return Err(format!("`{text}` is no user of Ceph (client.loadline)"));
    }
    Ok(if text.contains('.') { text.to_owned() } else { format!("client.{text}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Rate;
    use crate::config::document::Document;
    use crate::config::settings::Settings;

    fn target(keys: &str) -> Result<TargetSettings, String> {
        let text = format!("targets:\n  - {{name: pool, {keys}}}\n");
        let document = Document::parse("t.yml", &text).unwrap();
        let settings = Settings::read(&document, &["osd_bench"]);
        settings.map(|mut s| s.targets.remove(0)).map_err(|complaint| complaint.text)
    }

    #[test]
    fn a_cluster_has_its_own_key_and_time_out() {
        let plain = target("ceph: {}").unwrap();
        assert_eq!((plain.ceph, plain.budget), (Some(Cluster::default()), BUDGET_OF_CLUSTER));
        let keys = "ceph: {user: loadline, keyring: /k, timeout: 5s, osds: [0, 3]}, budget: 1GiB";
        let own = target(keys).unwrap().ceph.unwrap();
        assert_eq!((own.user.as_deref(), own.timeout), (Some("client.loadline"), Seconds(5.0)));
        assert_eq!(own.osds, [0, 3]);
    }

    #[test]
    fn what_is_declared_for_all_is_not_of_osds() {
        let text = "backing: {media: nvme}\ntargets: [{name: pool, ceph: {}}, {name: own, \
                    ceph: {}, backing: {media: hdd, bandwidth: 150MB/s, wal: same}}]\n";
        let document = Document::parse("t.yml", text).unwrap();
        let targets = Settings::read(&document, &["osd_bench"]).unwrap().targets;
        assert_eq!(targets[0].backing, DeclaredBacking::default());
        assert_eq!(targets[1].backing.bandwidth, Some(Rate(150e6)));
    }

    #[test]
    fn what_is_about_directories_or_no_name_is_refused() {
        for (keys, words) in [
            ("ceph: {}, path: /srv", "unknown key `path`"),
            ("ceph: {}, ballast: 1GiB", "unknown key `ballast`"),
            ("ceph: {user: '--version'}", "is no user of Ceph"),
            ("ceph: {command: bin/ceph}", "neither a name nor a whole path"),
            ("ceph: {conf: ceph.conf}", "must start with `/`"),
            ("ceph: {timeout: 1h}", "must be 1s to 2m"),
            ("ceph: {osd: [1]}", "unknown key `osd`"),
            ("ceph: {}, backing: {media: hdd, link: 1Gbit}", "unknown key `link`"),
        ] {
            let text = target(keys).unwrap_err();
            assert!(text.contains(words), "{keys}: {text}");
        }
    }
}
