//! Floor 6: a snapshot as text for Prometheus and as a page for people.
