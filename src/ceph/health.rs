//! `ceph status`: whether the cluster is well, and what it is busy with.

use serde_json::Value;

use super::json::{count_at, list, number_at, text_at};
use crate::model::ceph::Health;

/// Parts of the names of placement groups' states that are work beside clients'. `active+clean` is
/// none; `deep` comes with `scrubbing`.
const WORK: [&str; 7] =
    ["recover", "backfill", "scrubbing", "peering", "repair", "snaptrim", "degraded"];
const RATES: [&str; 2] = ["recovering_bytes_per_sec", "recovering_objects_per_sec"];

pub(super) fn parse(status: &Value) -> Health {
    let health = status.get("health").unwrap_or(&Value::Null);
    let groups = status.get("pgmap").unwrap_or(&Value::Null);
    // Before Luminous.
    let old = text_at(health, "overall_status");
    let status = Some(text_at(health, "status")).filter(|status| !status.is_empty());
    Health { status: status.unwrap_or(old), checks: checks(health), busy: busy(groups) }
}

fn checks(health: &Value) -> Vec<String> {
    const CHECKS_MAX: usize = 16;
    let Some(checks) = health.get("checks").and_then(Value::as_object) else {
        return list(health, "summary").iter().map(|s| text_at(s, "summary")).collect();
    };
    let shown = |(name, check): (&String, &Value)| {
        let message = check.pointer("/summary/message").and_then(Value::as_str);
        format!("{name} ({})", message.unwrap_or_default())
    };
    let muted = |check: &Value| check.get("muted").and_then(Value::as_bool) == Some(true);
    checks.iter().filter(|(_, check)| !muted(check)).map(shown).take(CHECKS_MAX).collect()
}

fn busy(groups: &Value) -> Vec<String> {
    let states = list(groups, "pgs_by_state").iter().filter_map(|entry| {
        let state = text_at(entry, "state_name");
        let works = WORK.iter().any(|work| state.contains(work));
        works.then(|| format!("{} {state}", count_at(entry, "count").unwrap_or(0)))
    });
    let recovers = RATES.iter().any(|key| number_at(groups, key).is_some_and(|rate| rate > 0.0));
    let mut busy: Vec<String> = states.collect();
    if recovers && busy.is_empty() {
        busy.push("recovery".into());
    }
    busy
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_at_rest_is_ok_and_has_nothing_to_do() {
        let status = include_str!("../../tests/fixtures/ceph/status.json");
        let health = parse(&serde_json::from_str(status).unwrap());
        assert!(health.is_ok() && health.busy.is_empty() && health.checks.is_empty(), "{health:?}");
    }

    #[test]
    fn what_is_wrong_is_named_unless_it_is_muted() {
        let health = parse(&json!({"health": {"status": "HEALTH_WARN", "checks": {
            "OSD_DOWN": {"summary": {"message": "1 osds down", "count": 1}, "muted": false},
            "POOL_NO_REDUNDANCY": {"summary": {"message": "1 pool"}, "muted": true}}}}));
        assert!(!health.is_ok());
        assert_eq!(health.checks, ["OSD_DOWN (1 osds down)"]);
        let old = parse(&json!({"health": {"overall_status": "HEALTH_OK"}}));
        assert!(old.is_ok());
        assert!(!parse(&json!({})).is_ok(), "what says nothing is not well");
    }

    #[test]
    fn recovery_and_scrubs_are_work() {
        let of = |state: &str| {
            parse(&json!({"health": {"status": "HEALTH_OK"}, "pgmap": {"pgs_by_state": [
                {"state_name": "active+clean", "count": 128}, {"state_name": state, "count": 2}]}}))
            .busy
        };
        assert_eq!(of("active+clean+scrubbing+deep"), ["2 active+clean+scrubbing+deep"]);
        assert_eq!(of("active+remapped+backfill_wait").len(), 1);
        assert_eq!(of("active+recovering+degraded").len(), 1);
        assert_eq!(of("active+clean+wait"), [] as [&str; 0]);
        let moving = parse(&json!({"pgmap": {"recovering_bytes_per_sec": 7}}));
        assert_eq!(moving.busy, ["recovery"]);
    }
}
