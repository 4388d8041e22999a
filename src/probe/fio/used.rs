//! What each of fio's jobs used of CPU, where a run was counted as a whole.

use crate::base::units::Seconds;
use crate::model::outcome::{Done, Measured, per_second};
use crate::model::spread::ProcessUse;

/// Of all jobs of a leg: fio adds up those that it reports as one.
pub(super) fn jobs_time(leg: &Measured) -> Seconds {
    Seconds(leg.elapsed.0 * f64::from(leg.profile.jobs))
}

/// Of all jobs of all that ran, which is what the process was counted for: no report shows the leg
/// that tells whether the first was saturated, nor a first leg that was run again.
fn run_time(done: &Done) -> Seconds {
    let shown = done.legs.iter().map(|leg| jobs_time(leg).0);
    let unseen = done.second_leg.iter().map(|second| {
        let again = done.legs.first().filter(|_| second.first_repeated).map(jobs_time);
        jobs_time(&second.measured).0 + again.unwrap_or_default().0
    });
    Seconds(shown.chain(unseen).sum())
}

/// A leg's part of what the run used.
pub(super) fn used_by(leg: &Measured, done: &Done) -> ProcessUse {
    let process = &done.cost.process;
    let part = per_second(jobs_time(leg).0, run_time(done));
    let count = |n: u64| (n as f64 * part).round() as u64;
    ProcessUse {
        user: Seconds(process.user.0 * part),
        system: Seconds(process.system.0 * part),
        context_switches: count(process.context_switches),
        major_faults: count(process.major_faults),
        minor_faults: count(process.minor_faults),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::json::report;
    use super::*;
    use crate::base::legs::Saturation;
    use crate::model::evidence::Evidence;
    use crate::model::job::Profile;
    use crate::model::outcome::{Cost, SecondLeg};
    use crate::model::samples::measured;
    use crate::probe::disk::{Preset, shape};

    #[test]
    fn each_job_has_its_part_of_what_the_run_used() {
        let leg = |jobs, elapsed| {
            let profile = Profile { jobs, ..shape(Preset::RandRead).legs.remove(0) };
            Measured { elapsed: Seconds(elapsed), ..measured(profile) }
        };
        let process = ProcessUse {
            user: Seconds(4.0),
            system: Seconds(8.0),
            context_switches: 1200,
            major_faults: 12,
            minor_faults: 24,
        };
        let cost = Cost { process, ..Cost::default() };
        let done = Done { legs: vec![leg(2, 3.0), leg(1, 6.0)], cost, ..Done::default() };
        let shown = report(&done, Duration::ZERO, 0);
        for job in shown["jobs"].as_array().unwrap() {
            assert_eq!(job["job_runtime"], 6000, "of all jobs: {job}");
            assert_eq!(
                (&job["ctx"], &job["majf"], &job["minf"]),
                (&json!(600), &json!(6), &json!(12))
            );
            let cpu = ["usr_cpu", "sys_cpu"].map(|key| job[key].as_f64().unwrap().round());
            assert_eq!(cpu, [33.0, 67.0], "of one CPU, as the mean of the jobs");
        }
        // A second leg, and the first again: of 12 s, a quarter is shown.
        let second = SecondLeg {
            measured: leg(2, 3.0),
            evidence: Evidence::default(),
            says: Saturation::Unsteady,
            first_repeated: true,
        };
        let second_leg = Some(Box::new(second));
        let done = Done { legs: vec![leg(1, 3.0)], second_leg, cost, ..Done::default() };
        let job = &report(&done, Duration::ZERO, 0)["jobs"][0];
        assert_eq!((&job["job_runtime"], &job["ctx"]), (&json!(3000), &json!(300)));
        assert!((job["usr_cpu"].as_f64().unwrap() - 100.0 / 3.0).abs() < 1e-9, "{job}");
    }
}
