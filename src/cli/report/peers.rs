//! Where links to peers will be measured: the one place that a report's `--peer` goes through.

use crate::cli::{EXIT_USAGE, Failure};

/// # Errors
/// With what to do instead, as long as a report runs none.
pub(super) fn check(peers: &[String]) -> Result<(), Failure> {
    let Some(peer) = peers.first() else { return Ok(()) };
    let text = format!(
        "--peer {peer}: a report runs no test with a peer by itself; `iperf3 -J -c {peer} > link.json` \
         does, and `loadline report --iperf3 link.json` judges that"
    );
    Err(Failure { code: EXIT_USAGE, text })
}
