//! Floor 9: arguments and commands.
