//! Floor 4: when probes may run. Pure over an injected clock.
