//! Glob patterns on kernel names: `*` is any run of characters, `?` is any one.

/// True when the whole of `name` is what `pattern` describes. Linear in memory, and at worst
/// the product of both lengths in time.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star stood, and how much of the name it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_describe_the_whole_name() {
        for (pattern, name) in [
            ("eth0", "eth0"),
            ("eth*", "eth0.100"),
            ("*", ""),
            ("e?h*0", "eth1.0"),
            ("*a*b", "aab"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("eth4", "eth4.100"), ("eth?", "eth"), ("", "lo"), ("*b", "aba")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_matches_itself_and_every_cut_of_it_with_a_star(name in "[a-z.0-9]{0,15}", at in 0usize..16) {
            let at = at.min(name.len());
            let starred = format!("{}*{}", &name[..at], &name[at..]);
            prop_assert!(matches(&name, &name));
            prop_assert!(matches(&starred, &name));
        }
    }
}
