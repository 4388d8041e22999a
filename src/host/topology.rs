//! From a directory to its leaf devices, without a call on the mount.
