//! Floor 4: probe kinds.
