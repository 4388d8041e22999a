//! Floor 2: what was typed, with its place; and the core settings. Kinds read their own options.

pub mod document;
pub mod settings;
