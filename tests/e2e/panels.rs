//! What the panels of the dashboards ask, and what is wrong with an answer.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::server::Prometheus;

/// Runs of probes end within it, and leave time to the next.
const GAUGE_PATIENCE: Duration = Duration::from_secs(30);

/// A query of a panel.
pub struct Asked {
    pub panel: String,
    pub place: String,
    pub expression: String,
    legend: String,
    /// A table or a number: of now only.
    instant: bool,
    /// The panel says something where there is nothing.
    pub none: bool,
}

/// Name and content of each dashboard.
pub fn boards() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let json = paths.filter(|path| path.extension().is_some_and(|e| e == "json"));
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.file_stem().unwrap().display().to_string(), serde_json::from_str(&text).unwrap())
    };
    json.map(read).collect()
}

/// Variables as Grafana fills them in, with everything chosen and a scrape each second.
pub fn filled(text: &str) -> String {
    let mut text = text.replace("$__rate_interval", "20s");
    for variable in ["job", "instance", "device", "target", "probe", "peer"] {
        text = text.replace(&format!("\"${variable}\""), "\".+\"");
    }
    assert!(!text.contains('$'), "a variable without a value: {text}");
    text
}

pub fn asked() -> Vec<Asked> {
    let mut all = Vec::new();
    for (board, json) in boards() {
        for panel in json["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let text = |key: &str| target[key].as_str().unwrap().to_owned();
                let title = format!("{board}: {}", panel["title"]);
                all.push(Asked {
                    place: format!("{title}: {}", text("refId")),
                    panel: title,
                    expression: filled(&text("expr")),
                    legend: text("legendFormat"),
                    instant: target["instant"] == true,
                    none: panel["fieldConfig"]["defaults"]["noValue"].is_string(),
                });
            }
        }
    }
    assert!(all.len() > 100);
    all
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Series of an instant query, and where the panel draws over time of a range query too.
pub fn answers(prometheus: &Prometheus, query: &Asked, at: f64) -> Result<Vec<Value>, String> {
    let text = query.expression.as_str();
    let (start, end) = ((at - 20.0).to_string(), at.to_string());
    let mut data = vec![prometheus.ask("query", &[("query", text), ("time", &end)])?];
    if !query.instant {
        let range = [("query", text), ("start", &start), ("end", &end), ("step", "2")];
        data.push(prometheus.ask("query_range", &range)?);
        let series = |n: usize| data[n]["result"].as_array().map_or(0, Vec::len);
        if series(0) > 0 && series(1) == 0 {
            return Err("something now, but nothing over time".into());
        }
    }
    Ok(data.iter().flat_map(|d| d["result"].as_array().cloned().unwrap_or_default()).collect())
}

/// What is wrong with a series: its values, its labels, or whose it is.
pub fn complaint(series: &Value, query: &Asked) -> Option<String> {
    let labels = &series["metric"];
    if labels["job"] == "other" {
        return Some(format!("shows what is not loadline's: {labels}"));
    }
    let over_time = series["values"].as_array().cloned().unwrap_or_default();
    let mut values = over_time.iter().chain(series.get("value")).map(|v| v[1].as_str().unwrap());
    if let Some(value) = values.find(|v| !v.parse::<f64>().is_ok_and(f64::is_finite)) {
        return Some(format!("{value} of {labels}"));
    }
    let mut named = query.legend.split("{{").skip(1).filter_map(|part| part.split("}}").next());
    let missing = named.find(|label| labels[label].as_str().is_none_or(str::is_empty))?;
    Some(format!("the legend names `{missing}`, and there is only {labels}"))
}

/// A window's gauge may be absent in one scrape and there in the next; while a probe is at work on its
/// disk it is.
pub fn until_some(
    prometheus: &Prometheus,
    query: &Asked,
    wanted: bool,
) -> Result<Vec<Value>, String> {
    let begun = Instant::now();
    loop {
        let found = answers(prometheus, query, now())?;
        if !found.is_empty() || !wanted || begun.elapsed() > GAUGE_PATIENCE {
            return Ok(found);
        }
        std::thread::park_timeout(Duration::from_millis(500));
    }
}
