//! What is published of verdicts.

use crate::base::clock::Moment;
use crate::model::metric::{Desc, Label, Point, push_some};
use crate::model::snapshot::ProbeView;
use crate::model::verdict::Limit;

static VERDICT: Desc = Desc::gauge(
    "loadline_verdict",
    &["probe", "target", "limit"],
    "1 for the limit that bound the last run, 0 for every other.",
    "judged from the last run",
);
static CONFIDENCE: Desc = Desc::gauge(
    "loadline_verdict_confidence_ratio",
    &["probe", "target"],
    "How sure the verdict on the last run is; 0 where the evidence doesn't decide.",
    "judged from the last run",
);
static CEILING_RATIO: Desc = Desc::gauge(
    "loadline_probe_ceiling_ratio",
    &["probe", "target"],
    "Result of the last run / the ceiling that bound it; absent where no number is known for it.",
    "judged from the last run",
);

/// Every family of verdicts.
pub static VERDICTS: &[&Desc] = &[&VERDICT, &CONFIDENCE, &CEILING_RATIO];

/// The verdict on a probe's last run, for as long as its result is published.
pub fn verdict(view: &ProbeView, now: Moment, out: &mut Vec<Point>) {
    let Some(verdict) = view.fresh_verdict(now) else { return };
    for limit in Limit::ALL {
        let labels: [&Label; 3] = [&view.name, &view.target, &limit.label().into()];
        let is_it = f64::from(u8::from(limit == verdict.limit));
        out.push(Point::number(&VERDICT, &labels, is_it));
    }
    let labels: [&Label; 2] = [&view.name, &view.target];
    out.push(Point::number(&CONFIDENCE, &labels, verdict.confidence));
    push_some(out, &CEILING_RATIO, &labels, view.ceiling_ratio);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::units::Seconds;
    use crate::judge::facts::Facts;
    use crate::judge::limits::judge;
    use crate::model::metric::Value;
    use crate::model::outcome::Done;

    fn at(seconds: u64) -> Moment {
        Moment::default().plus(Duration::from_secs(seconds))
    }

    fn page(now: Moment) -> Vec<(String, f64)> {
        let view = ProbeView {
            name: "fast".into(),
            target: "srv".into(),
            every: Seconds(10.0),
            last_success: Some(at(100)),
            last: Some(Arc::new(Done::default())),
            verdict: Some(Arc::new(judge(&Facts::default()))),
            ..ProbeView::default()
        };
        let mut out = Vec::new();
        verdict(&view, now, &mut out);
        out.into_iter()
            .map(|point| match point.value {
                Value::Number(n) => (format!("{}{:?}", point.desc.name, point.labels), n),
                Value::Histogram(_) => panic!("no histogram is of a verdict"),
            })
            .collect()
    }

    #[test]
    fn one_limit_of_the_full_set_is_one() {
        let page = page(at(105));
        let limits: Vec<_> =
            page.iter().filter(|(n, _)| n.starts_with("loadline_verdict[")).collect();
        assert_eq!(limits.len(), Limit::ALL.len());
        assert_eq!(limits.iter().map(|(_, n)| n).sum::<f64>(), 1.0);
        assert!(page.contains(&(r#"loadline_verdict["fast", "srv", "unknown"]"#.into(), 1.0)));
        assert!(!page.iter().any(|(name, _)| name.contains("ceiling")), "no ceiling, no share");
    }

    #[test]
    fn a_verdict_leaves_with_its_result() {
        assert!(page(at(131)).is_empty());
    }
}
