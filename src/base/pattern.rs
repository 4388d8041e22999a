//! Patterns of names, as shells know them.

/// `*` is any text, `?` any one character; the pattern is for the whole name.
pub fn is_match(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Where the last `*` stands, and up to where it has swallowed the name.
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
            _ => match star {
                Some((at, swallowed)) => {
                    star = Some((at, swallowed + 1));
                    p = at + 1;
                    n = swallowed + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn case_029_a_pattern_is_for_the_whole_name() {
        assert!(!is_match("dm", "dm-1") && !is_match("dm", "admsd"));
        assert!(is_match("dm-*", "dm-1") && is_match("sd?", "sda") && !is_match("sd?", "sdaa"));
        assert!(is_match("*", "") && is_match("*a*b", "xaab") && !is_match("*a*b", "xaba"));
    }

    proptest! {
        #[test]
        fn stars_around_any_part_of_a_name_match_it(
            a in "[a-z*?]{0,6}", b in "[a-z]{0,6}", c in "[a-z]{0,6}"
        ) {
            let (pattern, name) = (format!("*{b}*"), format!("{a}{b}{c}"));
            prop_assert!(is_match(&pattern, &name) && is_match(&a, &a));
        }
    }
}
