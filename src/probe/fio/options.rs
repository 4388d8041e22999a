//! Options of a section by name, typed.

use super::ini::{Section, Setting};
use super::{Wrong, value};
use crate::base::units::Seconds;

pub(super) struct Options<'a> {
    pub(super) section: &'a Section,
    /// `kb_base`.
    pub(super) kilo: u64,
}

impl<'a> Options<'a> {
    pub(super) fn of(section: &'a Section) -> Result<Self, Wrong> {
        // It holds for the whole section, wherever in it it stands.
        let mut options = Self { section, kilo: 1024 };
        options.kilo = match options.text(&["kb_base"])? {
            None | Some((_, "1024")) => 1024,
            Some((_, "1000")) => 1000,
            Some((setting, _)) => return Err(setting.wrong("1024 or 1000")),
        };
        Ok(options)
    }

    /// The last of these keys: in fio the last one wins.
    pub(super) fn last(&self, keys: &[&str]) -> Option<&'a Setting> {
        self.section.options.iter().rev().find(|setting| keys.contains(&setting.key.as_str()))
    }

    pub(super) fn text(&self, keys: &[&str]) -> Result<Option<(&'a Setting, &'a str)>, Wrong> {
        let Some(setting) = self.last(keys) else { return Ok(None) };
        match setting.value.as_deref() {
            Some(value) => Ok(Some((setting, value))),
            None => Err(setting.wrong("a value is missing")),
        }
    }

    /// A complaint at the last of these keys, else at the section's head.
    pub(super) fn wrong(&self, keys: &[&str], text: String) -> Wrong {
        match self.last(keys) {
            Some(setting) => setting.wrong(text),
            None => {
                let text = format!("[{}]: {text}", self.section.name);
                Wrong { line: Some(self.section.line), column: 1, text }
            }
        }
    }

    pub(super) fn flag(&self, keys: &[&str], default: bool) -> Result<bool, Wrong> {
        let Some(setting) = self.last(keys) else { return Ok(default) };
        match setting.value.as_deref() {
            Some("1") => Ok(true),
            Some("0") => Ok(false),
            None if matches!(setting.key.as_str(), "end_fsync" | "direct" | "buffered") => {
                Err(setting.wrong("0 or 1 is missing"))
            }
            None => Ok(true),
            Some(_) => Err(setting.wrong("0 or 1")),
        }
    }

    pub(super) fn size(&self, keys: &[&str]) -> Result<Option<u64>, Wrong> {
        let Some((setting, text)) = self.text(keys)? else { return Ok(None) };
        value::size(text, self.kilo).map(Some).map_err(|text| setting.wrong(text))
    }

    pub(super) fn time(&self, keys: &[&str]) -> Result<Option<Seconds>, Wrong> {
        let Some((setting, text)) = self.text(keys)? else { return Ok(None) };
        value::time(text).map(Some).map_err(|text| setting.wrong(text))
    }

    pub(super) fn count(&self, keys: &[&str], default: u32) -> Result<u32, Wrong> {
        let Some((setting, text)) = self.text(keys)? else { return Ok(default) };
        value::count(text, self.kilo).map_err(|text| setting.wrong(text))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ini;
    use super::*;

    #[test]
    fn kb_base_holds_wherever_it_stands() {
        let section = ini::parse("[a]\nsize=4k\nkb_base=1000\n").unwrap().remove(0);
        let options = Options::of(&section).unwrap();
        assert_eq!(options.size(&["size"]), Ok(Some(4000)));
        assert_eq!(options.size(&["io_size"]), Ok(None));
    }

    #[test]
    fn a_switch_may_stand_alone_and_a_number_may_not() {
        let section = ini::parse("[a]\ntime_based\nend_fsync\nsize\nthread=2\n").unwrap().remove(0);
        let options = Options::of(&section).unwrap();
        assert_eq!(options.flag(&["time_based"], false), Ok(true));
        assert!(options.flag(&["end_fsync"], false).unwrap_err().text.contains("missing"));
        assert!(options.size(&["size"]).unwrap_err().text.contains("missing"));
        assert_eq!(options.flag(&["thread"], false).unwrap_err().line, Some(5));
    }
}
