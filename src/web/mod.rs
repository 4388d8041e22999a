//! Floor 7: HTTP. Sees only what is published.

pub mod listen;
mod owner;
pub mod routes;
mod seats;
