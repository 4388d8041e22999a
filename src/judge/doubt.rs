//! Declarations that a run and the kernel contradict together. One of them alone is no contradiction:
//! controllers, loops and hypervisors say of media what they like, and spindles have caches.

use super::facts::{Facts, HDD_USUAL};
use crate::base::limits::DEVICE_SHARE;
use crate::base::physics::spindle_band;
use crate::base::units::{Bytes, Frequency};
use crate::model::path::Media;

/// Usual spindles, where flash is declared and nobody says how fast they turn.
const RPM: f64 = 7200.0;

/// Why the declared medium can't be believed: the kernel says another, random operations come at a
/// rate of that other, and the disk itself was seen to move them.
pub fn medium(facts: &Facts) -> Option<String> {
    let (declared, turns) = (facts.backing.media?, facts.device.rotational?);
    let rate = facts.operations().filter(|_| facts.is_random() && reached_the_disk(facts))?;
    if (declared == Media::Hdd) == turns {
        return None;
    }
    let spindles = facts.band().or_else(|| {
        let block = Bytes(facts.mean_block().unwrap_or(4096.0) as u64);
        Some(spindle_band(RPM, block, HDD_USUAL).times(facts.devices()?))
    })?;
    let is_of_spindles = rate <= spindles.high;
    (is_of_spindles == turns).then(|| {
        let says = if turns { "turns" } else { "doesn't turn" };
        let rate = Frequency(rate);
        let declared = declared.label();
        format!("the kernel says that its disk {says}, and {rate} agrees: is it {declared}?")
    })
}

fn reached_the_disk(facts: &Facts) -> bool {
    let reached = |moved: f64, share: Option<f64>| {
        moved <= 0.0 || share.is_some_and(|share| share >= DEVICE_SHARE)
    };
    let device = &facts.device;
    reached(facts.read_bytes(), device.read_share)
        && reached(facts.write_bytes(), device.write_share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Rate;
    use crate::judge::facts::{DeviceFacts, SecondLeg};
    use crate::judge::limits::judge;
    use crate::model::job::Access;
    use crate::model::path::DeclaredBacking;
    use crate::model::verdict::{Limit, Verdict};

    fn verdict(media: Media, turns: bool, rate: f64, read_share: f64) -> Verdict {
        let device = DeviceFacts {
            rotational: Some(turns),
            read_share: Some(read_share),
            in_flight: Some(31.0),
            count: Some(1),
            ..DeviceFacts::default()
        };
        judge(&Facts {
            access: Some(Access::Random),
            depth: Some(32.0),
            read_operations_per_second: Some(Frequency(rate)),
            read_bytes_per_second: Some(Rate(rate * 4096.0)),
            second_leg: Some(SecondLeg { rate_per_second: rate * 1.02, ..SecondLeg::default() }),
            rate_cv: Some(0.08),
            device,
            backing: DeclaredBacking { media: Some(media), ..DeclaredBacking::default() },
            ..Facts::default()
        })
    }

    #[test]
    fn a_medium_that_kernel_and_rate_deny_makes_no_sure_verdict_and_that_is_said() {
        for (media, turns, rate) in
            [(Media::Hdd, false, 60_000.0), (Media::Ssd, true, 118.0), (Media::Nvme, true, 320.0)]
        {
            let doubted = verdict(media, turns, rate, 1.0);
            assert!(doubted.confidence <= 0.5, "{doubted:?}");
            assert!(doubted.because.iter().any(|fact| fact.contains("is it")), "{doubted:?}");
        }
    }

    #[test]
    fn one_of_them_alone_denies_nothing() {
        let sure = |verdict: Verdict| (verdict.limit, verdict.confidence > 0.7);
        assert_eq!(sure(verdict(Media::Hdd, true, 60_000.0, 1.0)), (Limit::Cache, true));
        assert_eq!(sure(verdict(Media::Hdd, false, 118.0, 1.0)), (Limit::Seek, true), "a loop");
        assert_eq!(sure(verdict(Media::Nvme, true, 60_000.0, 1.0)), (Limit::Operations, true));
        let unseen = verdict(Media::Hdd, false, 60_000.0, 0.0);
        assert_eq!(sure(unseen), (Limit::Cache, true), "no disk moved them");
    }
}
