//! The OLTP workload of pblio: eight Poisson streams on three storage units, offered in an open loop.
//!
//! What comes when and where is pure and follows from a seed; that it is what was published is
//! held against exact arithmetic. Requests begin when they are meant to, whatever came of those
//! before, and their latency is from that moment: a stalled device is charged with all it delayed.

mod asus;
mod generator;
mod open_loop;
mod ready;
mod space;
mod streams;
mod tally;
mod walk;

pub use asus::Asus;
pub use generator::{Arrivals, Generator, Request};
pub use open_loop::{Bench, Stint, StintEnd};
pub use space::Sizes;
