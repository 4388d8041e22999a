//! How a command by hand finds a Ceph cluster.

use std::path::PathBuf;

use clap::Args;

use crate::base::units::Seconds;
use crate::config::cluster::user_of;
use crate::model::ceph::Cluster;
use crate::model::job::{Place, Target};

#[derive(Debug, Args)]
#[command(next_help_heading = "Ceph")]
pub(super) struct ClusterArguments {
    /// Configuration of the cluster's clients
    #[arg(long, value_name = "FILE", default_value = "/etc/ceph/ceph.conf")]
    ceph_conf: PathBuf,
    /// Whom to be, like client.loadline [default: client.admin]
    #[arg(long, value_name = "NAME", value_parser = user_of)]
    ceph_user: Option<String>,
    /// Its key [default: where the configuration says]
    #[arg(long, value_name = "FILE")]
    ceph_keyring: Option<PathBuf>,
    /// The command to ask with
    #[arg(long, value_name = "COMMAND", default_value = "ceph")]
    ceph_command: PathBuf,
    /// How long each question may take
    #[arg(long, value_name = "TIME", default_value = "10s")]
    ceph_timeout: Seconds,
}

impl ClusterArguments {
    /// The cluster as a target; without `osds` all of them.
    pub(super) fn target(&self, osds: &[u32]) -> Target {
        let cluster = Cluster {
            command: self.ceph_command.clone(),
            search_path: std::env::var("PATH").ok(),
            conf: self.ceph_conf.clone(),
            user: self.ceph_user.clone(),
            keyring: self.ceph_keyring.clone(),
            timeout: self.ceph_timeout,
            osds: osds.to_vec(),
        };
        let name = self.ceph_conf.display().to_string();
        Target { name, place: Place::Cluster(Box::new(cluster)) }
    }
}
