//! The key `peers`: who may test the way to this host.

use serde::Deserialize;

use super::complaint::Complaint;
use super::document::Section;
use super::read::one_or_many;
use super::rules::check_address;
use super::settings::PeerSettings;

const NETWORKS_MAX: usize = 256;

/// `None` where there is no such key: nobody listens.
pub(super) fn peers(root: &Section<'_>) -> Result<Option<PeerSettings>, Complaint> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Keys {
        listen: Option<String>,
        #[serde(default, deserialize_with = "one_or_many")]
        allow: Vec<String>,
    }

    let Some(section) = root.get("peers") else { return Ok(None) };
    let Keys { listen, allow } = section.read()?;
    let Some(listen) = listen else {
        return Err(section.refuse("`peers` needs `listen`: the address where they are answered"));
    };
    check_address(&listen).map_err(|text| section.refuse_value("listen", text))?;
    if allow.is_empty() || allow.len() > NETWORKS_MAX {
        let text = format!(
            "`peers.allow`: expected 1 to {NETWORKS_MAX} addresses or blocks of them (10.0.0.0/24)"
        );
        return Err(section.refuse(text));
    }
    let network = |text: &String| text.parse().map_err(|text| section.refuse_value("allow", text));
    let allow = allow.iter().map(network).collect::<Result<_, Complaint>>()?;
    Ok(Some(PeerSettings { listen, allow }))
}
