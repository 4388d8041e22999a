//! Floor 3: link probes that speak iperf3's protocol over TCP, both halves.
//!
//! A control connection carries a cookie, states of a byte and JSON behind its length; the client
//! opens data connections to the same port, which begin with the same cookie. The client ends a test
//! in every direction. UDP and authorisation are refused in the protocol's own words.

pub mod client;
mod control;
mod door;
mod fields;
mod greet;
mod info;
pub mod parameters;
pub mod report;
mod results;
pub mod server;
mod session;
mod stream;
mod totals;
mod transfer;
pub mod wire;
