//! A target that a report measures: what was found there, what may run on it, what its runs say.

use super::plan::{self, Planned};
use crate::base::units::{Bytes, MIB, Seconds};
use crate::cli::hand::{self, FILE_DEFAULT, Hand, RESERVE};
use crate::config::settings::{Settings, TargetSettings};
use crate::daemon::targets::target_of;
use crate::judge::facts;
use crate::judge::from_outcome;
use crate::model::job::{Place, Region, Run, Target};
use crate::model::outcome::{Done, Inspection};
use crate::schedule::writes::may_write;

/// A smaller file is soon all in some cache.
pub(super) const FILE_MIN: Bytes = Bytes(64 * MIB);

/// A target that answered.
pub(super) struct Seen {
    pub(super) settings: TargetSettings,
    pub(super) target: Target,
    pub(super) inspection: Inspection,
    /// Of the declared file: as it is there, or as it will be laid out; 0 for a raw device.
    pub(super) file: Bytes,
    pub(super) runs: Vec<Planned>,
}

impl Seen {
    /// What is there, or why it can't be measured.
    pub(super) fn look(
        hand: &Hand,
        settings: TargetSettings,
        size: Option<Bytes>,
    ) -> Result<Self, String> {
        let target = target_of(&settings);
        let inspection =
            hand.inspect(&target).map_err(|outcome| hand::parts(outcome).1.unwrap_or_default())?;
        let name = &settings.name;
        hand::is_disk(name, &inspection)?;
        let file = match target.place {
            Place::Device(_) => Bytes(0),
            Place::Directory(_) => file_size(size, &inspection).ok_or_else(|| {
                let (free, file) = (inspection.available, size.unwrap_or(FILE_MIN));
                format!("{name}: {free} free: a file of {file} would not leave {RESERVE}")
            })?,
        };
        if inspection.read_only && file.0 > 0 && inspection.ballast != Some(file) {
            return Err(format!("{name} is mounted read-only, and there is no file to read"));
        }
        Ok(Self { settings, target, inspection, file, runs: Vec::new() })
    }

    /// Bytes that are written before the first run.
    pub(super) fn laid_out(&self) -> u64 {
        if self.inspection.ballast == Some(self.file) { 0 } else { self.file.0 }
    }

    pub(super) fn why_not_written(&self, settings: &Settings) -> Option<String> {
        let name = &self.settings.name;
        if matches!(self.target.place, Place::Device(_)) {
            return Some(format!("{name} is a raw device, which is only read"));
        }
        if self.inspection.read_only {
            return Some(format!("{name} is mounted read-only"));
        }
        if self.settings.writes == Some(false) {
            return Some(format!("`writes` of {name} is false"));
        }
        (!may_write(&self.settings, &self.inspection, &settings.sample.disks))
            .then(|| format!("{name} is written in zones, or each overwrite there is kept"))
    }

    pub(super) fn time(&self) -> Seconds {
        let runs: f64 = self.runs.iter().map(|run| run.time().0).sum();
        Seconds(plan::layout_time(Bytes(self.laid_out())).0 + runs)
    }

    pub(super) fn run_of(&self, planned: &Planned, hand: &Hand) -> Run {
        Run {
            kind: planned.kind.into(),
            target: self.target.clone(),
            region: match self.target.place {
                Place::Directory(_) => Region::Ballast(self.file),
                Place::Device(_) => Region::WholeDevice,
            },
            legs: planned.legs.clone(),
            engine: None,
            seed: hand::seed(),
            devices: self.inspection.devices.clone(),
            top: self.inspection.top.clone(),
            reserve: RESERVE,
            procfs: hand.roots.procfs.clone(),
            quiet: planned.quiet,
        }
    }

    /// What a judge is given of a run.
    pub(super) fn judgeable(
        &self,
        planned: &Planned,
        name: &str,
        done: &Done,
    ) -> Option<facts::Run> {
        let place = from_outcome::Place {
            inspection: Some(&self.inspection),
            devices: &self.inspection.devices,
            backing: &self.settings.backing,
        };
        let facts = from_outcome::storage(done, &place)?;
        Some(facts::Run {
            name: name.to_owned(),
            kind: planned.kind.into(),
            profile: Some(planned.profile.clone()),
            facts: facts::Facts { place: Some(self.settings.name.clone()), ..facts },
        })
    }
}

/// The file that is there, else one that leaves the reserve.
fn file_size(asked: Option<Bytes>, inspection: &Inspection) -> Option<Bytes> {
    if let Some(there) = inspection.ballast.filter(|there| *there >= FILE_MIN) {
        return Some(there);
    }
    let room = inspection.available.0.saturating_sub(RESERVE.0) / MIB * MIB;
    let size = asked.unwrap_or(FILE_DEFAULT.min(Bytes(room)));
    (FILE_MIN..=Bytes(room)).contains(&size).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::GIB;
    use crate::model::samples;

    fn inspection(available: u64) -> Inspection {
        Inspection { available: Bytes(available), ..samples::inspection() }
    }

    fn seen(path: &str, inspection: Inspection) -> Seen {
        let settings = hand::target_by_hand(path.as_ref(), Default::default()).unwrap();
        let target = target_of(&settings);
        Seen { settings, target, inspection, file: FILE_DEFAULT, runs: Vec::new() }
    }

    #[test]
    fn a_file_that_is_there_is_used_and_another_leaves_the_reserve() {
        let roomy = inspection(50 * GIB);
        assert_eq!(file_size(None, &roomy), Some(FILE_DEFAULT));
        assert_eq!(file_size(Some(Bytes(GIB)), &roomy), Some(Bytes(GIB)));
        let there = Some(Bytes(300 * MIB));
        assert_eq!(file_size(Some(Bytes(GIB)), &Inspection { ballast: there, ..roomy }), there);
        let tight = inspection(RESERVE.0 + 100 * MIB);
        assert_eq!(file_size(None, &tight), Some(Bytes(100 * MIB)));
        assert_eq!(file_size(Some(FILE_DEFAULT), &tight), None);
        assert_eq!(file_size(None, &inspection(RESERVE.0 + 10 * MIB)), None);
        assert_eq!(file_size(None, &inspection(0)), None);
    }

    #[test]
    fn what_is_not_written_has_its_reason() {
        let why = |place: Seen| place.why_not_written(&Settings::default());
        assert_eq!(why(seen("/srv", inspection(GIB))), None);
        let raw = why(seen("/dev/sda", inspection(GIB))).unwrap();
        assert!(raw.contains("only read"), "{raw}");
        let fixed = Inspection { read_only: true, ..inspection(GIB) };
        assert!(why(seen("/srv", fixed)).unwrap().contains("read-only"));
        let zoned = Inspection { zoned: true, ..inspection(GIB) };
        assert!(why(seen("/srv", zoned)).unwrap().contains("zones"));
        let mut kept = seen("/srv", inspection(GIB));
        kept.settings.writes = Some(false);
        assert_eq!(why(kept).unwrap(), "`writes` of /srv is false");
    }

    #[test]
    fn a_file_is_only_laid_out_where_there_is_none() {
        let mut place = seen("/srv", inspection(GIB));
        assert_eq!(place.laid_out(), FILE_DEFAULT.0);
        let without = place.time();
        place.inspection.ballast = Some(FILE_DEFAULT);
        assert_eq!(place.laid_out(), 0);
        assert!(place.time() < without);
        place.inspection.ballast = None;
        place.file = Bytes(0);
        assert_eq!(place.laid_out(), 0, "a raw device");
    }

    #[test]
    fn an_outcome_without_a_leg_is_no_run() {
        let size = plan::Size { quick: true, runtime: None };
        let planned = plan::runs(size, Bytes(GIB)).unwrap().remove(0);
        assert!(seen("/srv", inspection(GIB)).judgeable(&planned, "a", &Done::default()).is_none());
    }
}
