//! The text of a job file as sections of options, each with its line.

use super::Wrong;

/// Label values and tables show section names.
const NAME_CHARS_MAX: usize = 64;

/// A job's section with the options of every `[global]` before it, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) options: Vec<Setting>,
}

/// `key=value`, or a key alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) line: usize,
    /// Of the key, in characters from 1.
    pub(super) column: usize,
}

impl Setting {
    /// As it was written, for people.
    pub(super) fn shown(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.key),
            None => self.key.clone(),
        }
    }

    pub(super) fn wrong(&self, text: impl std::fmt::Display) -> Wrong {
        let text = format!("`{}`: {text}", self.shown());
        Wrong { line: Some(self.line), column: self.column, text }
    }
}

pub(super) fn parse(text: &str) -> Result<Vec<Section>, Wrong> {
    let mut global: Vec<Setting> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut in_global = None;
    for (index, raw) in text.strip_prefix('\u{feff}').unwrap_or(text).split('\n').enumerate() {
        let line = index + 1;
        // fio cuts a line at its first `;` or `#`, wherever they stand (parse.c, strip_blank_end).
        let kept = raw.split([';', '#']).next().unwrap_or("");
        let content = kept.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        if content.is_empty() {
            continue;
        }
        let column = kept.chars().take_while(|c| c.is_whitespace() || c.is_control()).count() + 1;
        let wrong = |text: &str| Wrong { line: Some(line), column, text: text.to_owned() };
        if let Some(rest) = content.strip_prefix('[') {
            let name = rest.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| wrong("a section is written `[name]`"))?;
            if name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
                return Err(wrong("a section's name has at most 64 printable characters"));
            }
            // fio looks at these six letters only (init.c, parse_jobs_ini).
            in_global = Some(name.starts_with("global"));
            if in_global == Some(false) {
                let options = global.clone();
                sections.push(Section { name: name.to_owned(), line, options });
            }
            continue;
        }
        let setting = setting(content, line, column)?;
        match (in_global, sections.last_mut()) {
            (Some(true), _) => global.push(setting),
            (Some(false), Some(section)) => section.options.push(setting),
            _ => return Err(wrong("an option outside of a section, such as `[global]`")),
        }
    }
    Ok(sections)
}

fn setting(content: &str, line: usize, column: usize) -> Result<Setting, Wrong> {
    let wrong = |text: &str| Wrong { line: Some(line), column, text: text.to_owned() };
    if content.split_whitespace().next() == Some("include") {
        return Err(wrong("`include`: a job file stands for itself here; write its options out"));
    }
    let (key, value) = match content.split_once('=') {
        Some((key, value)) => (key.trim_end(), Some(value.trim_start().to_owned())),
        None => (content, None),
    };
    // `${NAME}` of the environment, and fio's own `$pagesize`, `$mb_memory`, `$ncpus`.
    if content.contains('$') {
        return Err(wrong(&format!(
            "`{key}`: variables are not filled in: write the value itself"
        )));
    }
    Ok(Setting { key: key.to_owned(), value, line, column })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Vec<(String, Option<String>, usize)> {
        let section = parse(text).unwrap().remove(0);
        section.options.into_iter().map(|o| (o.key, o.value, o.line)).collect()
    }

    #[test]
    fn comments_blanks_and_line_ends_are_as_fio_takes_them() {
        let text = "\u{feff}; of a disk\r\n\r\n[j]\r\n\t bs = 4k ; why\r\n#x\nstonewall\nrw=read#y";
        assert_eq!(
            options(text),
            [
                ("bs".into(), Some("4k".into()), 4),
                ("stonewall".into(), None, 6),
                ("rw".into(), Some("read".into()), 7),
            ]
        );
    }

    #[test]
    fn what_is_no_job_file_is_refused_with_its_line() {
        for (text, line, words) in [
            ("bs=4k\n[a]", 1, "outside of a section"),
            ("[a]\n[b", 2, "written `[name]`"),
            ("[]", 1, "written `[name]`"),
            ("[a]\n\ninclude other.fio", 3, "`include`"),
            ("[a]\nsize=${SIZE}", 2, "`size`: variables"),
            ("[a]\nnumjobs=$ncpus", 2, "`numjobs`: variables"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert_eq!(wrong.line, Some(line), "{text}");
            assert!(wrong.text.contains(words), "{text}: {}", wrong.text);
        }
    }

    #[test]
    fn a_place_is_that_of_the_key() {
        let section = parse("[a]\n   bs=4k").unwrap().remove(0);
        assert_eq!((section.options[0].line, section.options[0].column), (2, 4));
    }
}
