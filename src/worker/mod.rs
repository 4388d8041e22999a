//! Floor 5: worker processes: every call that can hang on a target is made in one.
