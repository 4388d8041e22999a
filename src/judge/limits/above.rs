//! Limits above the device: other people's load, the CPU, and time spent in software.

use super::{Finding, legs, percent};
use crate::base::legs::Saturation;
use crate::base::limits::{CPU_SHARE, FOREIGN_SHARE, QUOTA_SHARE, STEAL_SHARE};
use crate::base::units::Ratio;
use crate::judge::confidence::Margin;
use crate::judge::facts::{CpuFacts, Facts};

const FOREIGN: Margin = Margin { x: 0.0, threshold: FOREIGN_SHARE, full: 0.2 };
const CPU: Margin = Margin { x: 0.0, threshold: CPU_SHARE, full: 0.99 };
/// Behind a network nobody sees where operations wait, nor where packets do: CPUs that others fill are
/// a guess.
const CPU_GUESS: f64 = 0.65;
/// A thread of a link run that uses less is not what the run waits for.
const OWN_IDLE: f64 = 0.5;
const STEAL: Margin = Margin { x: 0.0, threshold: STEAL_SHARE, full: 0.2 };
const QUOTA: Margin = Margin { x: 0.0, threshold: QUOTA_SHARE, full: 0.1 };
const IN_FLIGHT: Margin = Margin { x: 0.0, threshold: 0.5, full: 0.3 };
const IDLE: Margin = Margin { x: 0.0, threshold: 0.3, full: 0.5 };

/// Others moved more than a tenth of the run's bytes: mean of quiet windows around it.
pub(super) fn contended(facts: &Facts) -> Option<Finding> {
    let flagged = facts.flags.contended == Some(true);
    let text = "others used it meanwhile: the result is theirs too, and no ceiling is learned";
    let found = match facts.device.foreign_share {
        Some(share) => Finding::new(Margin { x: share, ..FOREIGN }, share, text)
            .because(format!("others moved {} of the run's bytes", percent(share)))
            .only_if(share > FOREIGN.threshold),
        None if flagged => Finding::flagged(FOREIGN, text, "it was flagged as not alone"),
        None => return None,
    };
    let holds = found.holds || flagged;
    Some(Finding { holds, ..found.advise("run it again when it is quiet") })
}

/// A CPU or a thread that the run needs, all that it may use, steal, or its cgroup's quota. CPUs that
/// others fill, or that are stolen, hold nothing back where operations wait at the device.
pub(super) fn cpu(facts: &Facts) -> Option<Finding> {
    let (cpu, more) = (&facts.cpu, "more or faster CPUs, offloads, or fewer layers");
    let of = |share: Option<Ratio>, margin: Margin, what: &str, advice| {
        let share = share?.0;
        let text = format!("{what} was the limit, not the device or the link");
        let found = Finding::new(Margin { x: share, ..margin }, share, text)
            .because(format!("{what}: {}", percent(share)))
            .second(facts.saturation() == Some(Saturation::Saturated));
        Some(found.advise(advice))
    };
    let flagged = facts.flags.cpu_limited == Some(true) && cpu == &CpuFacts::default();
    let unsaid = || {
        let text = "a CPU was the limit, not the device or the link";
        Finding::flagged(CPU, text, "it was flagged as limited by CPU").advise(more)
    };
    let elsewhere = |share: Option<Ratio>| share.filter(|_| !facts.keeps_depth());
    let idle_itself = facts.is_link() && cpu.busiest_ratio.is_some_and(|share| share.0 < OWN_IDLE);
    let unseen = facts.network_backed() || idle_itself;
    let guess = |found: Option<Finding>| found.map(|found| found.at_most_if(unseen, CPU_GUESS));
    let less_shared = "a host that is less shared";
    [
        flagged.then(unsaid),
        of(cpu.busiest_ratio, CPU, "the busiest CPU or thread", more),
        guess(of(elsewhere(cpu.allowed_ratio), CPU, "all CPUs together", more)),
        guess(of(elsewhere(cpu.steal_ratio), STEAL, "steal by the hypervisor", less_shared)),
        of(cpu.throttled_ratio, QUOTA, "the cgroup's CPU quota", "raise the cgroup's quota"),
    ]
    .into_iter()
    .flatten()
    .max_by(|a, b| a.margin.nearness().total_cmp(&b.margin.nearness()))
}

/// The device had room: too little was in flight there, or it idled while requests waited.
pub(super) fn none(facts: &Facts) -> Option<Finding> {
    if facts.is_link() {
        return None;
    }
    let in_flight = facts.in_flight_share().map(|share| Margin { x: share, ..IN_FLIGHT });
    let idle = facts.device.idle_ratio.map(|idle| Margin { x: idle.0, ..IDLE });
    let both = [in_flight, idle].into_iter().flatten().filter(|m| m.reached()).count() == 2;
    let margin = [in_flight, idle]
        .into_iter()
        .flatten()
        .max_by(|a, b| a.nearness().total_cmp(&b.nearness()))?;
    let mut found = Finding::new(
        margin,
        margin.x,
        "time is spent above the device, which had room: look at the software",
    )
    .second(both)
    .advise("profile the software above the device: locks, single threads, small queues");
    if let Some(m) = in_flight {
        let asked = percent(m.x);
        found = found.because(format!("{asked} of what could be in flight was at the device"));
    }
    if let Some(m) = idle {
        found = found.because(format!("the device idled {} of the run", percent(m.x)));
    }
    found.because.extend(legs(facts));
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Frequency;
    use crate::judge::facts::DeviceFacts;
    use crate::judge::limits::judge;
    use crate::model::outcome::Flags;
    use crate::model::verdict::Limit;

    fn running() -> Facts {
        Facts { read_operations_per_second: Some(Frequency(900.0)), ..Facts::default() }
    }

    #[test]
    fn a_tenth_by_others_is_theirs_too() {
        let of = |share| {
            let device = DeviceFacts { foreign_share: Some(share), ..DeviceFacts::default() };
            judge(&Facts { device, ..running() })
        };
        assert_eq!(of(0.1).limit, Limit::Unknown);
        let verdict = of(0.2);
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Contended, 0.75));
    }

    #[test]
    fn what_was_only_flagged_is_told_without_a_number() {
        let verdict = |flags| {
            let verdict = judge(&Facts { flags, ..running() });
            (verdict.limit, verdict.ratio, verdict.confidence, verdict.because)
        };
        let contended = Flags { contended: Some(true), ..Flags::default() };
        let because = |text: &str| vec![text.to_owned()];
        let said = because("it was flagged as not alone");
        assert_eq!(verdict(contended), (Limit::Contended, None, 0.5, said));
        let cpu = Flags { cpu_limited: Some(true), ..Flags::default() };
        let said = because("it was flagged as limited by CPU");
        assert_eq!(verdict(cpu), (Limit::Cpu, None, 0.5, said));
        let device = DeviceFacts { foreign_share: Some(0.05), ..DeviceFacts::default() };
        let both = judge(&Facts { flags: contended, device, ..running() });
        assert_eq!((both.limit, both.confidence), (Limit::Contended, 0.5), "by its probe's word");
    }

    #[test]
    fn each_cpu_limit_counts_by_itself() {
        let of = |cpu| judge(&Facts { cpu, ..running() }).limit;
        let busiest_ratio = Some(Ratio(0.94));
        let almost = CpuFacts { busiest_ratio, ..CpuFacts::default() };
        assert_eq!(of(almost.clone()), Limit::Unknown);
        for cpu in [
            CpuFacts { busiest_ratio: Some(Ratio(0.97)), ..almost.clone() },
            CpuFacts { allowed_ratio: Some(Ratio(0.97)), ..almost.clone() },
            CpuFacts { steal_ratio: Some(Ratio(0.12)), ..almost.clone() },
            CpuFacts { throttled_ratio: Some(Ratio(0.06)), ..almost },
        ] {
            assert_eq!(of(cpu.clone()), Limit::Cpu, "{cpu:?}");
        }
    }

    #[test]
    fn cpus_that_others_fill_are_no_limit_of_what_waits_at_the_device() {
        let of = |in_flight, busiest| {
            let cpu = CpuFacts {
                busiest_ratio: Some(Ratio(busiest)),
                allowed_ratio: Some(Ratio(1.0)),
                steal_ratio: Some(Ratio(0.25)),
                ..CpuFacts::default()
            };
            let device = DeviceFacts { in_flight: Some(in_flight), ..DeviceFacts::default() };
            judge(&Facts { depth: Some(8.0), cpu, device, ..running() }).limit
        };
        assert_eq!(of(7.9, 0.05), Limit::Unknown);
        assert_eq!(of(7.9, 0.97), Limit::Cpu, "its own thread is at its end");
        assert_eq!(of(5.0, 0.05), Limit::Cpu);
    }

    #[test]
    fn behind_a_network_full_cpus_are_a_guess() {
        let cpu = CpuFacts { allowed_ratio: Some(Ratio(1.0)), ..CpuFacts::default() };
        let mut facts = Facts { cpu, ..running() };
        assert_eq!(judge(&facts).confidence, 0.75);
        facts.device.network_backed = Some(true);
        assert_eq!((judge(&facts).limit, judge(&facts).confidence), (Limit::Cpu, CPU_GUESS));
    }

    #[test]
    fn a_device_with_room_points_above_it() {
        let device = DeviceFacts {
            in_flight: Some(1.1),
            idle_ratio: Some(Ratio(0.6)),
            ..DeviceFacts::default()
        };
        let facts = Facts { depth: Some(32.0), device, ..running() };
        let verdict = judge(&facts);
        assert_eq!((verdict.limit, verdict.confidence), (Limit::None, 1.0));
        let narrow = DeviceFacts { slots: Some(1.0), idle_ratio: None, ..facts.device.clone() };
        assert_eq!(judge(&Facts { device: narrow, ..facts }).limit, Limit::Unknown);
    }
}
