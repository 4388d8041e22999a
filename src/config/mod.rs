//! Floor 2: what was typed, with its place; and the core settings. Kinds read their own options.

mod allowed;
pub mod cluster;
pub mod complaint;
pub mod declared;
pub mod document;
pub mod hours;
mod navigate;
pub mod peer_files;
pub mod peers;
pub mod read;
mod rules;
pub mod settings;
pub mod watch;
