//! Floor 7: HTTP. Sees only what is published.
