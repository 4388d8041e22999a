//! A complaint about the configuration: the place, the sentence, the line with a mark under it.

use std::fmt;

/// What is wrong with a configuration file, and where.
///
/// Shown as `loadline.yml:14:5: unknown key ...`, then the line with its fault underlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    pub file: String,
    pub text: String,
    /// `None`: the file as a whole.
    pub spot: Option<Spot>,
}

/// A place in a file, both counted from 1 and in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    pub line: usize,
    pub column: usize,
    /// The part of the line that is shown, and where in it the mark stands.
    excerpt: String,
    indent: usize,
    width: usize,
}

impl std::error::Error for Complaint {}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Complaint { file, text, spot } = self;
        let Some(Spot { line, column, excerpt, indent, width }) = spot else {
            return write!(f, "{file}: {text}");
        };
        write!(f, "{file}:{line}:{column}: {text}")?;
        write!(f, "\n{line:>5} | {excerpt}\n      | {:indent$}{}", "", "^".repeat(*width))
    }
}

/// Longest part of a line that is shown: one line of a file can be all of it.
const EXCERPT_CHARS_MAX: usize = 100;

impl Spot {
    /// The place `line:column` of `text`.
    pub fn new(text: &str, line: usize, column: usize) -> Self {
        let chars: Vec<char> = nth_line(text, line).chars().collect();
        let at = column.saturating_sub(1).min(chars.len());
        let from = if chars.len() > EXCERPT_CHARS_MAX { at.saturating_sub(40) } else { 0 };
        let shown: String = chars[from..]
            .iter()
            .take(EXCERPT_CHARS_MAX)
            // A tab or a control character would move the mark, or the terminal.
            .map(|c| if c.is_control() { ' ' } else { *c })
            .collect();
        let width = word_chars(&chars[at..]);
        let room = EXCERPT_CHARS_MAX - (at - from).min(EXCERPT_CHARS_MAX - 1);
        Self {
            line,
            column,
            excerpt: shown.trim_end().to_owned(),
            indent: at - from,
            width: width.clamp(1, room),
        }
    }
}

/// Length of the key or value at the start: to the closing quote, else to what ends a plain word.
fn word_chars(rest: &[char]) -> usize {
    if let [quote @ ('"' | '\''), rest @ ..] = rest {
        return rest.iter().position(|c| c == quote).map_or(rest.len() + 1, |end| end + 2);
    }
    let ends = |i: &usize| match rest[*i] {
        ':' => rest.get(i + 1).is_none_or(|next| next.is_whitespace()),
        c => c.is_whitespace() || matches!(c, ',' | ']' | '}'),
    };
    (0..rest.len()).find(ends).unwrap_or(rest.len())
}

/// Line `number` of `text`, split where YAML splits (YAML 1.1, 4.2: also NEL, LS and PS).
fn nth_line(text: &str, number: usize) -> &str {
    let mut rest = text;
    for _ in 1..number {
        let Some(end) = rest.find(is_break) else { return "" };
        let skip = if rest[end..].starts_with("\r\n") {
            2
        } else {
            rest[end..].chars().next().map_or(1, char::len_utf8)
        };
        rest = &rest[end + skip..];
    }
    rest.find(is_break).map_or(rest, |end| &rest[..end])
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The known word that was most likely meant: a slip of the fingers, a beginning, or its initials.
pub fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let typed = typed.to_lowercase().replace('-', "_");
    if typed.is_empty() || typed.len() > 64 {
        return None;
    }
    let slips = |word: &str| edits(&typed, word);
    let close = known.iter().min_by_key(|word| slips(word)).copied();
    let limit = (typed.chars().count() / 3).clamp(1, 2);
    if let Some(word) = close.filter(|word| slips(word) <= limit && word.chars().count() > 1) {
        return Some(word);
    }
    let initials =
        |word: &str| word.split('_').filter_map(|w| w.chars().next()).collect::<String>();
    known.iter().copied().find(|word| {
        (typed.len() >= 2 && word.contains('_') && initials(word) == typed)
            || (typed.len() >= 3 && (word.starts_with(&typed) || typed.starts_with(word)))
    })
}

/// Edits (insert, delete, replace, swap of neighbours) that make one word the other.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let differ = usize::from(a[i - 1] != b[j - 1]);
            next[j] = (row[j] + 1).min(next[j - 1] + 1).min(row[j - 1] + differ);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

/// ` (did you mean ...?)`, else what is known, else nothing.
pub fn hint(typed: &str, known: &[&str]) -> String {
    match nearest(typed, known) {
        Some(word) => format!(" (did you mean `{word}`?)"),
        None if known.is_empty() => String::new(),
        None => format!(" (known: {})", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_complaint_shows_the_line_and_marks_the_word() {
        let text = "probes:\n  - disk:\n      bs: 4k\n";
        let complaint = Complaint {
            file: "loadline.yml".into(),
            text: "unknown key `bs`".into(),
            spot: Some(Spot::new(text, 3, 7)),
        };
        let shown = "loadline.yml:3:7: unknown key `bs`\n    3 |       bs: 4k\n      |       ^^";
        assert_eq!(complaint.to_string(), shown);
    }

    #[test]
    fn the_nearest_word_is_a_slip_a_beginning_or_initials() {
        let known = ["block_size", "depth", "jobs", "runtime"];
        assert_eq!(nearest("bs", &known), Some("block_size"));
        assert_eq!(nearest("dpeth", &known), Some("depth"));
        assert_eq!(nearest("Depth", &known), Some("depth"));
        assert_eq!(nearest("run", &known), Some("runtime"));
        assert_eq!(nearest("block-size", &known), Some("block_size"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("", &known), None);
    }

    #[test]
    fn lines_end_where_yaml_ends_them() {
        assert_eq!(nth_line("a\r\nb\rc\nd\u{2028}e", 2), "b");
        assert_eq!(nth_line("a\r\nb\rc\nd\u{2028}e", 3), "c");
        assert_eq!(nth_line("a\r\nb\rc\nd\u{2028}e", 5), "e");
        assert_eq!(nth_line("a", 2), "");
    }

    proptest! {
        #[test]
        fn any_place_in_any_text_can_be_shown(text in ".{0,300}", line in 0..5usize, column in 0..400usize) {
            let spot = Spot::new(&text, line, column);
            prop_assert!(spot.excerpt.chars().count() <= EXCERPT_CHARS_MAX);
            prop_assert!(spot.width >= 1);
        }

        #[test]
        fn no_edits_means_the_same_word(a in "[a-d]{0,6}", b in "[a-d]{0,6}") {
            prop_assert_eq!(edits(&a, &b) == 0, a == b);
            prop_assert_eq!(edits(&a, &b), edits(&b, &a));
        }
    }
}
