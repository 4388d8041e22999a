//! What is published of OLTP runs, beside what is of every probe on storage.

use super::super::metrics::STORAGE;
use crate::model::metric::{Desc, Label, Point, push_some};
use crate::model::outcome::Done;

const PROBE: &[&str] = &["probe", "target"];
const LOAD: &[&str] = &["probe", "target", "load"];

static MAX: Desc = Desc::gauge(
    "loadline_oltp_max_operations_per_second",
    PROBE,
    "Highest rate of the OLTP workload whose mean latency stayed under the limit; absent where the \
     last search did not find it.",
    "worker",
);
static LIMIT: Desc = Desc::gauge(
    "loadline_oltp_limit_seconds",
    PROBE,
    "Mean latency under which the last search kept.",
    "configuration",
);
static LATENCY: Desc = Desc::gauge(
    "loadline_oltp_latency_seconds",
    LOAD,
    "Mean latency at a share of the highest rate, from when an operation was meant to begin.",
    "worker",
);
static TAIL: Desc = Desc::gauge(
    "loadline_oltp_p99_latency_seconds",
    LOAD,
    "Latency of which 99 % were under it, at a share of the highest rate.",
    "worker",
);
static RATE: Desc = Desc::gauge(
    "loadline_oltp_operations_per_second",
    LOAD,
    "Operations a second completed at a share of the highest rate.",
    "worker",
);
static OFFERED: Desc = Desc::gauge(
    "loadline_oltp_offered_operations_per_second",
    PROBE,
    "Operations a second that the last run offered; of a search, at the highest rate that held.",
    "worker",
);
static ACHIEVED: Desc = Desc::gauge(
    "loadline_oltp_achieved_operations_per_second",
    PROBE,
    "Operations a second completed of those offered.",
    "worker",
);
static MEAN: Desc = Desc::gauge(
    "loadline_oltp_mean_latency_seconds",
    PROBE,
    "Mean latency of the last run, from when an operation was meant to begin.",
    "worker",
);

const OWN: [&Desc; 8] = [&MAX, &LIMIT, &LATENCY, &TAIL, &RATE, &OFFERED, &ACHIEVED, &MEAN];

/// These and those of every probe on storage.
pub(super) static DESCS: &[&Desc] = &joined();

const fn joined() -> [&'static Desc; OWN.len() + STORAGE.len()] {
    let mut all = [OWN[0]; OWN.len() + STORAGE.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < OWN.len() { OWN[i] } else { STORAGE[i - OWN.len()] };
        i += 1;
    }
    all
}

/// Of a fresh result; nothing where it is none of this kind.
pub(in crate::probe) fn points(labels: [&Label; 2], done: &Done, out: &mut Vec<Point>) {
    let Some(oltp) = &done.oltp else { return };
    let step = &oltp.step;
    out.push(Point::number(&OFFERED, &labels, step.offered));
    out.push(Point::number(&ACHIEVED, &labels, step.achieved));
    if step.operations > 0 {
        out.push(Point::number(&MEAN, &labels, step.latency_mean.0));
    }
    let Some(search) = &oltp.search else { return };
    out.push(Point::number(&LIMIT, &labels, search.limit.0));
    let Some(highest) = search.highest() else { return };
    out.push(Point::number(&MAX, &labels, highest));
    for (load, step) in search.curve.iter().filter(|(_, step)| step.operations > 0) {
        let load = Label::from(load.to_string());
        let labels: [&Label; 3] = [labels[0], labels[1], &load];
        out.push(Point::number(&RATE, &labels, step.achieved));
        out.push(Point::number(&LATENCY, &labels, step.latency_mean.0));
        push_some(out, &TAIL, &labels, step.latency_p99.map(|p99| p99.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Seconds;
    use crate::model::metric::Value;
    use crate::model::oltp::{OltpDone, Search, SearchEnd, Step};

    fn page(end: SearchEnd) -> Vec<String> {
        let step = |offered: f64, mean: f64| Step {
            offered,
            achieved: offered,
            latency_mean: Seconds(mean),
            operations: 500,
            ..Step::default()
        };
        let curve = vec![(0.1, step(400.0, 0.001)), (1.0, step(4000.0, 0.029))];
        let search =
            Search { limit: Seconds(0.03), end, best: Some(4000.0), steps: Vec::new(), curve };
        let step = step(4000.0, 0.029);
        let oltp = OltpDone { step, search: Some(search), ..OltpDone::default() };
        let done = Done { oltp: Some(Box::new(oltp)), ..Done::default() };
        let mut out = Vec::new();
        points([&"p".into(), &"t".into()], &done, &mut out);
        out.iter()
            .map(|point| {
                let Value::Number(value) = point.value else { panic!("{point:?}") };
                let labels: Vec<&str> = point.labels.iter().map(|l| &**l).collect();
                let name = point.desc.name.trim_start_matches("loadline_oltp_");
                format!("{name}{{{}}} {value}", labels.join(","))
            })
            .collect()
    }

    #[test]
    fn a_search_is_published_with_its_curve() {
        let page = page(SearchEnd::Found);
        for line in [
            "max_operations_per_second{p,t} 4000",
            "limit_seconds{p,t} 0.03",
            "latency_seconds{p,t,0.1} 0.001",
            "latency_seconds{p,t,1} 0.029",
            "operations_per_second{p,t,0.1} 400",
        ] {
            assert!(page.iter().any(|is| is == line), "{line}: {page:?}");
        }
        assert!(!page.iter().any(|line| line.starts_with("p99")), "500 operations have none");
    }

    #[test]
    fn what_a_search_did_not_find_is_absent() {
        let page = page(SearchEnd::Bytes);
        assert!(!page.iter().any(|l| l.starts_with("max") || l.starts_with("latency")), "{page:?}");
        assert!(page.iter().any(|line| line.starts_with("achieved")), "{page:?}");
    }
}
