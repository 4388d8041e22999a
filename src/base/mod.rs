//! Floor 0: values and clocks that know nothing of hosts or probes.

pub mod clock;
pub mod counter;
pub mod fault;
pub mod legs;
pub mod limits;
pub mod network;
pub mod pattern;
pub mod physics;
pub mod stats;
pub mod units;
pub mod window;
