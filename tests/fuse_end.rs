//! The end of a FUSE file system of a test. Who had a file of it open may let go of it a moment after
//! its process is gone (io_uring does), and until then a plain unmount is refused and the mount stays.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use fuser::BackgroundSession;

/// Takes the mount out of sight at once; its thread ends with the last open file.
pub fn end(session: Option<BackgroundSession>, mounted: &Path) {
    let done = Command::new("umount").arg("-l").arg(mounted).status();
    if !done.is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "{} stays mounted", mounted.display());
    }
    drop(session);
}
