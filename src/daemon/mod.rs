//! Floor 8: start and stop order.
