//! `loadline report --ceph`: a cluster's OSDs, and the options that decide what clients get beside
//! recovery and scrubs, as they are in effect. It asks, and moves nothing.

use std::fmt::Write as _;

use comfy_table::{Table, TableStyle, presets};
use serde_json::{Value, json};

use super::Format;
use crate::base::units::Bytes;
use crate::cli::cluster::ClusterArguments;
use crate::cli::hand::{self, Hand};
use crate::cli::probe::osd_table;
use crate::cli::{EXIT_FAULT, Failure};
use crate::host::roots::Roots;
use crate::model::ceph::{OsdResult, Setting, SettingValue, Survey};

/// The text of the report on the cluster.
pub(super) fn report(arguments: &ClusterArguments, format: Format) -> Result<String, Failure> {
    let hand = Hand::until_interrupted(Roots::default())?;
    let asked = hand.survey(&arguments.target(&[]));
    let (survey, settings) = asked.map_err(|outcome| Failure {
        code: EXIT_FAULT,
        text: hand::parts(outcome).1.unwrap_or_default(),
    })?;
    Ok(match format {
        Format::Json => format!("{:#}\n", as_json(&survey, &settings)),
        Format::Table => text(&survey, &settings, presets::NOTHING, ""),
        Format::Markdown => text(&survey, &settings, presets::ASCII_MARKDOWN, "## "),
    })
}

fn text(survey: &Survey, settings: &[Setting], style: TableStyle, heading: &str) -> String {
    let osds = results(survey);
    let health = &survey.health;
    let mut parts = vec![format!("{heading}Health\n  {}", health.status)];
    let of_health = health.checks.iter().chain(&health.busy);
    of_health.for_each(|line| parts[0].push_str(&format!("\n  {line}")));
    parts.push(format!("{heading}OSDs\n{}", osd_table::for_people(&osds, style)));
    let mut table = Table::new();
    table.load_style(style);
    table.set_header(["option", "value", "from", "OSDs"]);
    for setting in settings {
        let alone = setting.values.len() == 1;
        for value in &setting.values {
            let osds = if alone { "all".into() } else { ids(&value.osds) };
            table.add_row([&setting.name, &shown(setting, value), &value.source, &osds]);
        }
    }
    parts.push(format!("{heading}Options in effect\n{}", table.trim_fmt()));
    let notes = notes(settings);
    if !notes.is_empty() {
        parts.push(format!("{heading}What they mean\n  {}", notes.join("\n  ")));
    }
    if !survey.unknown.is_empty() {
        let unknown: Vec<String> = survey.unknown.iter().map(ToString::to_string).collect();
        parts.push(format!("{heading}Not known\n  {}", unknown.join("\n  ")));
    }
    parts.join("\n\n") + "\n"
}

fn results(survey: &Survey) -> Vec<OsdResult> {
    survey.osds.iter().map(|osd| OsdResult { osd: osd.clone(), bench: None }).collect()
}

fn ids(osds: &[u32]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = osds.iter().take(SHOWN).map(ToString::to_string).collect();
    let mut text = shown.join(" ");
    if osds.len() > SHOWN {
        let _ = write!(text, " and {} more", osds.len() - SHOWN);
    }
    text
}

/// Sizes as people read them; the rest as Ceph writes it, without the zeros behind.
fn shown(setting: &Setting, value: &SettingValue) -> String {
    let text = &value.value;
    let is_size = ["osd_memory_target", "bluestore_cache_size"];
    let is_size = is_size.iter().any(|name| setting.name.starts_with(name));
    match text.parse::<u64>() {
        Ok(bytes) if is_size && bytes > 0 => Bytes(bytes).to_string(),
        _ if text.contains('.') && text.parse::<f64>().is_ok() => {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => text.clone(),
    }
}

/// What options do to each other.
fn notes(settings: &[Setting]) -> Vec<String> {
    let find = |name: &str| settings.iter().find(|setting| setting.name == name);
    let is = |name: &str, value: &str| {
        let has = |found: &SettingValue| found.value == value;
        find(name).is_some_and(|setting| setting.values.iter().any(has))
    };
    let mut notes = Vec::new();
    if is("osd_op_queue", "wpq") {
        notes.push("osd_op_queue is wpq: the mClock options have no effect".to_owned());
    }
    if is("osd_op_queue", "mclock_scheduler")
        && is("osd_mclock_override_recovery_settings", "false")
    {
        notes.push(
            "mClock sets backfills and recovery itself: osd_max_backfills and \
             osd_recovery_max_active count only with osd_mclock_override_recovery_settings"
                .to_owned(),
        );
    }
    let hours = (find("osd_scrub_begin_hour"), find("osd_scrub_end_hour"));
    if let (Some(begin), Some(end)) = hours
        && begin.values.iter().zip(&end.values).all(|(b, e)| b.value == e.value)
    {
        notes.push("scrubs may begin at any hour: their first and last hour are the same".into());
    }
    let differ = settings.iter().filter(|setting| setting.values.len() > 1);
    let differ: Vec<&str> = differ.map(|setting| setting.name.as_str()).collect();
    if !differ.is_empty() {
        notes.push(format!("OSDs differ in {}", differ.join(", ")));
    }
    notes
}

fn as_json(survey: &Survey, settings: &[Setting]) -> Value {
    let mut value = osd_table::json(&results(survey));
    if let Some(map) = value.as_object_mut() {
        map.insert("health".into(), json!(survey.health));
        map.insert("options".into(), json!(settings));
        map.insert("notes".into(), json!(notes(settings)));
        let unknown: Vec<String> = survey.unknown.iter().map(ToString::to_string).collect();
        map.insert("unknown".into(), json!(unknown));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, values: &[(&str, &[u32])]) -> Setting {
        let value = |(value, osds): &(&str, &[u32])| SettingValue {
            value: (*value).into(),
            source: "default".into(),
            osds: osds.to_vec(),
        };
        Setting { name: name.into(), values: values.iter().map(value).collect() }
    }

    #[test]
    fn options_are_shown_as_people_read_them_and_say_what_they_do() {
        let settings = [
            setting("osd_op_queue", &[("wpq", &[0, 1])]),
            setting("osd_memory_target", &[("4294967296", &[0]), ("939524096", &[1])]),
            setting("osd_recovery_sleep_hdd", &[("0.100000", &[0, 1])]),
            setting("osd_scrub_begin_hour", &[("0", &[0, 1])]),
            setting("osd_scrub_end_hour", &[("0", &[0, 1])]),
        ];
        let text = text(&Survey::default(), &settings, presets::NOTHING, "");
        for words in
            ["4 GiB", "896 MiB", "0.1 ", "all", "mClock options have no effect", "any hour"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.contains("OSDs differ in osd_memory_target"), "{text}");
        let value = as_json(&Survey::default(), &settings);
        assert_eq!(value["options"][0]["name"], "osd_op_queue");
    }

    #[test]
    fn both_tables_of_a_markdown_report_are_markdown() {
        let survey = Survey { osds: vec![Default::default()], ..Survey::default() };
        let settings = [setting("osd_op_queue", &[("wpq", &[0])])];
        let text = text(&survey, &settings, presets::ASCII_MARKDOWN, "## ");
        assert_eq!(text.lines().filter(|line| line.starts_with("|--")).count(), 2, "{text}");
    }
}
