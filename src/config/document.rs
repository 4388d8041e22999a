//! YAML text to typed sections; every complaint has file, line, column and the nearest known key.
