//! Include and exclude patterns on kernel names.

use crate::base::pattern::is_match;
use crate::config::settings::Filter;

/// True where a device is wanted: what the class rules say, less `exclude`, plus `include`.
pub(super) fn wanted(filter: &Filter, name: &str, by_class: bool) -> bool {
    let any = |patterns: &[String]| patterns.iter().any(|pattern| is_match(pattern, name));
    any(&filter.include) || (by_class && !any(&filter.exclude))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn include_wins_over_exclude_and_over_the_class() {
        let filter = Filter { include: vec!["sda".into()], exclude: vec!["sd*".into()] };
        assert!(wanted(&filter, "sda", false));
        assert!(!wanted(&filter, "sdb", true));
        assert!(wanted(&filter, "vda", true) && !wanted(&filter, "loop0", false));
    }
}
