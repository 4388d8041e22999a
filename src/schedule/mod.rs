//! Floor 4: when probes may run. Pure over an injected clock.

pub mod budget;
pub mod due;
pub mod guard;
pub mod turn;

#[cfg(test)]
mod simulation;
