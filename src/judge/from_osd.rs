//! Facts of one OSD's bench, from what its cluster says of it.

use super::facts::{DeviceFacts, Facts, Subject};
use crate::model::ceph::{Bench, Osd};
use crate::model::job::Access;
use crate::model::path::{DeclaredBacking, Media, Wal};

/// Of a bench that `osd` had; `declared` is that of the disks under OSDs, each by itself.
pub fn store(bench: &Bench, osd: &Osd, declared: &DeclaredBacking) -> Facts {
    let backing = if is_of(declared, osd) { declared.clone() } else { DeclaredBacking::default() };
    // BlueStore keeps its log with its data unless told otherwise, and large blocks don't go through
    // it: that each byte is written twice must be declared.
    let separate = osd.separate_wal.filter(|separate| *separate).map(|_| Wal::Separate);
    Facts {
        subject: Subject::Store,
        access: Some(Access::Sequential),
        block_bytes: Some(bench.block),
        duration_seconds: bench.elapsed,
        write_operations_per_second: bench.operations_per_second(),
        write_bytes_per_second: Some(bench.rate),
        device: DeviceFacts { rotational: osd.media.map(turns), ..DeviceFacts::default() },
        backing: DeclaredBacking { wal: backing.wal.or(separate), ..backing },
        ..Facts::default()
    }
}

fn turns(media: Media) -> bool {
    media == Media::Hdd
}

/// Clusters have disks of more than one kind: what is declared of one kind isn't true of another. The
/// class is the operator's word, where a controller hides what the disk is.
fn is_of(declared: &DeclaredBacking, osd: &Osd) -> bool {
    let classes = [Media::Hdd, Media::Ssd, Media::Nvme].into_iter();
    let class = classes.into_iter().find(|media| media.label() == osd.device_class);
    let kinds = declared.media.zip(class.or(osd.media));
    kinds.is_none_or(|(declared, kind)| turns(declared) == turns(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, MIB, Rate};
    use crate::judge::limits::judge;
    use crate::model::verdict::{Limit, Verdict};

    fn bench(rate: f64) -> Bench {
        Bench { bytes: Bytes(256 * MIB), block: Bytes(4 * MIB), elapsed: None, rate: Rate(rate) }
    }

    fn hdd() -> Osd {
        Osd { device_class: "hdd".into(), media: Some(Media::Hdd), ..Osd::default() }
    }

    fn slow_disks() -> DeclaredBacking {
        let (media, bandwidth) = (Some(Media::Hdd), Some(Rate(100e6)));
        DeclaredBacking { media, bandwidth, ..DeclaredBacking::default() }
    }

    fn verdict(rate: f64, osd: &Osd, declared: &DeclaredBacking) -> Verdict {
        judge(&store(&bench(rate), osd, declared))
    }

    #[test]
    fn golden_2_an_osd_is_judged_as_the_report_judges_it() {
        let wal = |wal| DeclaredBacking { wal: Some(wal), ..slow_disks() };
        let fast = verdict(408.4e6, &hdd(), &wal(Wal::Separate));
        assert_eq!((fast.limit, fast.confidence), (Limit::Cache, 0.75));
        let twice = verdict(36.5e6, &hdd(), &wal(Wal::Same));
        assert_eq!((twice.limit, twice.confidence), (Limit::WritePath, 1.0));
        let full = verdict(96e6, &hdd(), &slow_disks());
        assert_eq!((full.limit, full.confidence), (Limit::Bandwidth, 0.5), "one leg");
    }

    #[test]
    fn without_a_declaration_nothing_is_claimed_and_what_is_missing_is_said() {
        for (rate, media) in [(36e6, Media::Hdd), (200e6, Media::Hdd), (1.8e9, Media::Ssd)] {
            let osd = Osd { media: Some(media), separate_wal: Some(false), ..Osd::default() };
            let verdict = verdict(rate, &osd, &DeclaredBacking::default());
            assert_eq!(verdict.limit, Limit::Unknown, "{rate} of {media:?}");
            assert!(verdict.text.contains("bandwidth: 150MB/s"), "{}", verdict.text);
        }
    }

    #[test]
    fn a_log_with_the_data_is_a_guess_and_one_on_its_own_no_reason_at_all() {
        let with = |separate_wal| {
            let osd = Osd { separate_wal, ..hdd() };
            let verdict = verdict(35e6, &osd, &slow_disks());
            (verdict.limit, verdict.confidence)
        };
        assert_eq!(with(Some(false)), (Limit::WritePath, 0.5));
        assert_eq!(with(None), (Limit::WritePath, 0.5));
        assert_eq!(with(Some(true)), (Limit::Unknown, 0.0));
    }

    #[test]
    fn what_is_declared_of_spindles_says_nothing_of_flash_in_the_same_cluster() {
        let flash = Osd { device_class: "ssd".into(), media: Some(Media::Ssd), ..Osd::default() };
        assert_eq!(verdict(400e6, &flash, &slow_disks()).limit, Limit::Unknown);
        let hidden = Osd { media: Some(Media::Ssd), ..hdd() };
        assert_eq!(verdict(400e6, &hidden, &slow_disks()).limit, Limit::Cache, "by its class");
    }
}
