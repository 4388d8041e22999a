//! A judged set of runs as people read it: what was looked at, where it caps out, why, and what to
//! change.

mod chart;
mod declared;
mod json;
mod words;

use comfy_table::{ContentArrangement, Table, presets};

use crate::judge::facts::Run;
use crate::judge::set::Judged;
use crate::model::verdict::{Advice, Verdict};

pub use chart::{Curve, bar};
pub use declared::{backing_in_words, declarations, path_in_words};
pub use json::json;

/// All that a report tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The machine and its paths: devices, media, links, what is declared and what is unknown.
    pub about: Vec<(String, String)>,
    pub judged: Judged,
    /// What ladders of depths found.
    pub curves: Vec<Curve>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
}

/// How text is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Table,
    Markdown,
}

impl Report {
    /// `width`: columns of the terminal; `None` doesn't wrap.
    pub fn text(&self, style: Style, width: Option<u16>) -> String {
        let heading = |text: &str| match style {
            Style::Table => text.to_owned(),
            Style::Markdown => format!("## {text}\n"),
        };
        let set = Setting { style, width };
        let mut parts: Vec<String> = Vec::new();
        if !self.about.is_empty() {
            parts.push(self.about(style));
        }
        parts.push(format!("{}\n{}", heading("Where it caps out"), self.summary(set)));
        parts.push(format!("{}\n{}", heading("Why"), self.why(set)));
        if !self.curves.is_empty() {
            parts.push(format!("{}\n{}", heading("What more in flight gives"), self.curves(style)));
        }
        if !self.judged.advice.is_empty() {
            let title = heading("What to change, cheapest first");
            parts.push(format!("{title}\n{}", self.advice(set)));
        }
        if !self.skipped.is_empty() {
            parts.push(format!("Not measured: {}.", self.skipped.join("; ")));
        }
        parts.join("\n\n") + "\n"
    }

    fn about(&self, style: Style) -> String {
        let width = self.about.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let line = |(name, text): &(String, String)| match style {
            Style::Table => format!("{name:width$}  {text}"),
            Style::Markdown => format!("- {name}: {text}"),
        };
        self.about.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn summary(&self, set: Setting) -> String {
        let header = ["component", "result", "ceiling", "share", "verdict", "confidence"];
        set.table(header, self.judged.runs.iter().map(|(run, verdict)| words::row(run, verdict)))
    }

    fn why(&self, set: Setting) -> String {
        let paragraph = |(run, verdict): &(Run, Verdict)| set.paragraph(&words::why(run, verdict));
        let between = if set.style == Style::Markdown { "\n\n" } else { "\n" };
        self.judged.runs.iter().map(paragraph).collect::<Vec<_>>().join(between)
    }

    fn curves(&self, style: Style) -> String {
        let text = |curve: &Curve| {
            let lines = curve.lines().into_iter().map(|line| format!("{INDENT}{line}"));
            let lines = lines.collect::<Vec<_>>().join("\n");
            match style {
                Style::Table => format!("{INDENT}{}\n{lines}", curve.name),
                Style::Markdown => format!("{}\n\n```text\n{lines}\n```", curve.name),
            }
        };
        self.curves.iter().map(text).collect::<Vec<_>>().join("\n")
    }

    fn advice(&self, set: Setting) -> String {
        let row = |advice: &Advice| {
            [advice.change.clone(), words::effect(advice), advice.effort.label().into()]
        };
        let header = ["change", "effect (and what binds next)", "effort"];
        set.table(header, self.judged.advice.iter().map(row))
    }
}

#[derive(Clone, Copy)]
struct Setting {
    style: Style,
    width: Option<u16>,
}

const INDENT: &str = "  ";

impl Setting {
    fn table<const N: usize>(
        self,
        header: [&str; N],
        rows: impl Iterator<Item = [String; N]>,
    ) -> String {
        let mut table = Table::new();
        match self.style {
            Style::Table => table.load_style(presets::NOTHING),
            Style::Markdown => table.load_style(presets::ASCII_MARKDOWN),
        };
        if let Some(width) = self.width {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(width.saturating_sub(INDENT.len() as u16));
        }
        table.set_header(header);
        table.add_rows(rows);
        match self.style {
            Style::Table => {
                let lines = table.trim_fmt();
                // A table without borders still pads its first column.
                let indented =
                    |line: &str| format!("{INDENT}{}", line.strip_prefix(' ').unwrap_or(line));
                lines.lines().map(indented).collect::<Vec<_>>().join("\n")
            }
            Style::Markdown => table.trim_fmt(),
        }
    }

    /// Wrapped at words, indented by two.
    fn paragraph(self, text: &str) -> String {
        let width = match (self.style, self.width) {
            (Style::Table, Some(width)) => usize::from(width.max(40)) - INDENT.len(),
            _ => usize::MAX,
        };
        let indent = if self.style == Style::Table { INDENT } else { "" };
        let mut lines: Vec<String> = vec![String::new()];
        for word in text.split(' ') {
            let last = lines.last().map_or(0, |line| line.chars().count());
            if last > 0 && last + 1 + word.chars().count() > width {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
    }
}
