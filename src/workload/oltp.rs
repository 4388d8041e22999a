//! The OLTP workload of pblio: eight Poisson streams on three storage units, offered in an open loop.
//!
//! What comes when and where is pure and follows from a seed; that it is what was published is
//! held against exact arithmetic.

mod generator;
mod space;
mod streams;
mod walk;

pub use generator::{Arrivals, Generator, Request};
pub use space::Sizes;
