//! Floor 4: when probes may run. Pure over an injected clock.

pub mod budget;
pub mod calm;
pub mod due;
pub mod foreign;
pub mod guard;
pub mod roster;
pub mod slots;
pub mod tournament;
pub mod turn;
pub mod writes;

#[cfg(test)]
mod mesh_simulation;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod slots_simulation;
