//! Storage behind a network: real GlusterFS in a namespace of its own.

use super::Scenario;

pub const SCENARIOS: &[Scenario] = &[];
