//! A judged set as JSON, which `loadline report --from` takes again: the evidence is all it needs.

use serde::Serialize;
use serde_json::Value;

use crate::judge::facts::{Facts, Run};
use crate::judge::set::Judged;
use crate::model::verdict::{Advice, Limit, Rival, Unit, Verdict};

#[derive(Serialize)]
struct Saved<'a> {
    runs: Vec<SavedRun<'a>>,
    advice: &'a [Advice],
}

#[derive(Serialize)]
struct SavedRun<'a> {
    name: &'a str,
    kind: &'a str,
    profile: Option<&'a str>,
    operations_per_second: Option<f64>,
    bytes_per_second: Option<f64>,
    verdict: SavedVerdict<'a>,
}

#[derive(Serialize)]
struct SavedVerdict<'a> {
    limit: Limit,
    ratio: Option<f64>,
    confidence: f64,
    ceiling: Option<SavedCeiling<'a>>,
    evidence: Value,
    rivals: &'a [Rival],
    text: &'a str,
}

#[derive(Serialize)]
struct SavedCeiling<'a> {
    value: f64,
    unit: Unit,
    source: &'a str,
}

/// # Errors
/// None of numbers: what isn't finite is null.
pub fn json(judged: &Judged) -> Result<String, serde_json::Error> {
    let runs: Result<Vec<_>, _> =
        judged.runs.iter().map(|(run, verdict)| saved(run, verdict)).collect();
    serde_json::to_string_pretty(&Saved { runs: runs?, advice: &judged.advice })
}

fn saved<'a>(run: &'a Run, verdict: &'a Verdict) -> Result<SavedRun<'a>, serde_json::Error> {
    let ceiling = verdict.ceiling.as_ref().map(|ceiling| SavedCeiling {
        value: ceiling.value,
        unit: ceiling.unit,
        source: &ceiling.source,
    });
    Ok(SavedRun {
        name: &run.name,
        kind: &run.kind,
        profile: run.profile.as_deref(),
        operations_per_second: run.facts.operations(),
        bytes_per_second: run.facts.bytes(),
        verdict: SavedVerdict {
            limit: verdict.limit,
            ratio: verdict.ratio,
            confidence: verdict.confidence,
            ceiling,
            evidence: evidence(&run.facts)?,
            rivals: &verdict.rivals,
            text: &verdict.text,
        },
    })
}

/// What is known, without the fields of what isn't.
fn evidence(facts: &Facts) -> Result<Value, serde_json::Error> {
    fn known(value: Value) -> Option<Value> {
        match value {
            Value::Null => None,
            Value::Object(fields) => {
                let fields: serde_json::Map<String, Value> = fields
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, known(value)?)))
                    .collect();
                (!fields.is_empty()).then_some(Value::Object(fields))
            }
            Value::Array(items) if items.is_empty() => None,
            other => Some(other),
        }
    }
    Ok(known(serde_json::to_value(facts)?).unwrap_or_else(|| Value::Object(Default::default())))
}
