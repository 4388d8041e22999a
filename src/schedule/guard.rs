//! Whether a probe may run now. Every reason to wait has its word and its number.

use std::collections::BTreeMap;

use crate::base::clock::Moment;
use crate::base::units::{Bytes, Ratio, Seconds};
use crate::config::settings::GuardSettings;
use crate::model::job::Device;
use crate::model::metric::Label;
use crate::model::outcome::{Conditions, DiskCondition, Inspection, LineUse, Skip};

/// The idle gate, by medium: a spindle is as busy as its time, anything else as its queue.
const ROTATIONAL_BUSY_MAX: Ratio = Ratio(0.20);
const QUEUE_MAX: f64 = 0.5;
const IN_FLIGHT_MAX: u64 = 1;
const LINE_MAX: Ratio = Ratio(0.20);
const IO_PRESSURE_MAX: Ratio = Ratio(0.05);
const CPU_IDLE_MIN: Ratio = Ratio(0.30);
/// A rotational disk that nobody used for longer may have spun down.
const ASLEEP_AFTER: Seconds = Seconds(600.0);
const INODES_FREE_MIN: Ratio = Ratio(0.01);
/// Older conditions say nothing about now.
const CONDITIONS_AGE_MAX: Seconds = Seconds(10.0);

/// A run that asks for leave.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Latency: passes the idle gate (its answer matters most on a busy disk) and runs on battery.
    pub exempt: bool,
    /// Leaf disks under the target.
    pub devices: &'a [Device],
    /// Most that it writes.
    pub writes: Bytes,
    /// As [`super::writes::may_write`] says.
    pub may_write: bool,
    /// Size of the file that it works in; 0 on a raw device.
    pub region: Bytes,
    pub inspection: Option<&'a Inspection>,
    /// Wakes a disk that sleeps.
    pub wake: bool,
}

/// Leave to run, or why not: the reason and a sentence with the number that decided.
pub type Leave = Result<(), (Skip, String)>;

/// Whether a request may run under these conditions.
pub fn permit(
    request: &Request<'_>,
    conditions: &Conditions,
    settings: &GuardSettings,
    now: Moment,
) -> Leave {
    switched_on(settings)?;
    within_hours(settings, now)?;
    if conditions.on_battery && !request.exempt {
        return skip(Skip::Battery, "the host runs on battery");
    }
    if let Some(inspection) = request.inspection {
        writable(request, inspection)?;
        roomy(request, inspection, settings)?;
    }
    if !request.wake {
        awake(request, conditions)?;
    }
    if request.exempt { Ok(()) } else { idle(request.devices, conditions, now) }
}

/// Whether a host's lines leave room for a test that fills one: each end asks for its own. A line
/// whose rate is unknown says nothing.
pub fn lines_idle(lines: &BTreeMap<Label, LineUse>) -> Leave {
    let mut used = lines.iter().filter_map(|(line, used)| Some((line, used.share?)));
    match used.find(|(_, used)| *used >= LINE_MAX) {
        Some((line, used)) => {
            skip(Skip::Busy, format!("{line} is used at {used} of its rate (limit {LINE_MAX})"))
        }
        None => Ok(()),
    }
}

fn skip(reason: Skip, text: impl Into<String>) -> Leave {
    Err((reason, text.into()))
}

fn switched_on(settings: &GuardSettings) -> Leave {
    match settings {
        GuardSettings { probes: false, .. } => skip(Skip::Off, "probes are off (guard.probes)"),
        GuardSettings { dry_run: true, .. } => skip(Skip::Off, "a dry run (guard.dry_run)"),
        _ => Ok(()),
    }
}

fn within_hours(settings: &GuardSettings, now: Moment) -> Leave {
    let wall = now.wall.as_secs();
    if let Some(span) = settings.blackout.iter().find(|span| span.contain(wall)) {
        return skip(Skip::Hours, format!("in the blackout {span}"));
    }
    let allowed = &settings.allowed_hours;
    if allowed.is_empty() || allowed.iter().any(|span| span.contain(wall)) {
        return Ok(());
    }
    let spans: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    skip(Skip::Hours, format!("outside the allowed hours {}", spans.join(", ")))
}

fn writable(request: &Request<'_>, inspection: &Inspection) -> Leave {
    if request.writes == Bytes(0) {
        return Ok(());
    }
    let at = &inspection.mount_point;
    if inspection.read_only {
        return skip(Skip::ReadOnly, format!("{at} is mounted read-only"));
    }
    if !request.may_write {
        let text = match inspection.zoned {
            true => format!("no writes on {at}: a disk under it is written in zones"),
            false => format!("no writes on this target (on {at}): `writes: true` allows them"),
        };
        return skip(Skip::ReadOnly, text);
    }
    Ok(())
}

fn roomy(request: &Request<'_>, inspection: &Inspection, settings: &GuardSettings) -> Leave {
    if request.region == Bytes(0) {
        return Ok(());
    }
    let Inspection { mount_point, size, available, .. } = inspection;
    let share = Bytes((size.0 as f64 * settings.reserve_share) as u64);
    let needed = share.max(settings.reserve).max(Bytes(request.region.0.saturating_mul(2)));
    if *available < needed {
        return skip(Skip::Full, format!("{mount_point}: {available} free of {needed} needed"));
    }
    if let Some(free) = inspection.inodes_free.filter(|free| *free <= INODES_FREE_MIN) {
        return skip(Skip::Full, format!("{mount_point}: {free} of the inodes free"));
    }
    Ok(())
}

fn awake(request: &Request<'_>, conditions: &Conditions) -> Leave {
    for (device, disk) in seen(request.devices, conditions) {
        if is_rotational(device, disk) && disk.idle_for > ASLEEP_AFTER {
            let text = format!(
                "{} may be asleep: unused for {:.0} min (`wake: true` wakes it)",
                device.name,
                disk.idle_for.0 / 60.0
            );
            return skip(Skip::Asleep, text);
        }
    }
    Ok(())
}

/// The idle gate. What the host can't tell is no reason to wait; what it can't tell yet is.
pub fn idle(devices: &[Device], conditions: &Conditions, now: Moment) -> Leave {
    let busy = |text: String| skip(Skip::Busy, text);
    let age = now.since(conditions.at);
    if conditions.at == Moment::default() || age > CONDITIONS_AGE_MAX {
        return busy("the load of this host is not known (no sample in the last 10 s)".into());
    }
    if conditions.resync {
        return busy("an md array is resyncing".into());
    }
    for (device, disk) in seen(devices, conditions) {
        if let Some(text) = device_busy(device, disk) {
            return busy(text);
        }
    }
    if let Some(share) = conditions.io_pressure.filter(|share| *share >= IO_PRESSURE_MAX) {
        return busy(format!("tasks wait for I/O {share} of the time (limit {IO_PRESSURE_MAX})"));
    }
    if let Some(share) = conditions.cpu_idle.filter(|share| *share <= CPU_IDLE_MIN) {
        return busy(format!("the CPU is {share} idle (limit {CPU_IDLE_MIN})"));
    }
    Ok(())
}

/// Why a device is too busy, if it is.
fn device_busy(device: &Device, disk: &DiskCondition) -> Option<String> {
    let name = &device.name;
    if disk.in_flight > IN_FLIGHT_MAX {
        return Some(format!("{name} has {} requests in flight (limit 1)", disk.in_flight));
    }
    let (known, over) = if is_rotational(device, disk) {
        let over = disk.busy.filter(|busy| *busy >= ROTATIONAL_BUSY_MAX);
        let say = |busy| format!("{name} is {busy} busy (limit {ROTATIONAL_BUSY_MAX})");
        (disk.busy.is_some(), over.map(say))
    } else {
        let over = disk.queue.filter(|queue| *queue >= QUEUE_MAX);
        let say = |queue| format!("{name} has a queue of {queue:.1} (limit {QUEUE_MAX})");
        (disk.queue.is_some(), over.map(say))
    };
    over.or_else(|| (!known).then(|| format!("{name}: no window yet")))
}

fn is_rotational(device: &Device, disk: &DiskCondition) -> bool {
    // What the operator declared reaches the sampler first.
    disk.rotational.or(device.rotational) == Some(true)
}

/// The devices that the sampler sees.
fn seen<'a>(
    devices: &'a [Device],
    conditions: &'a Conditions,
) -> impl Iterator<Item = (&'a Device, &'a DiskCondition)> {
    devices.iter().filter_map(|device| Some((device, conditions.disks.get(device.name.as_str())?)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::units::{GIB, MIB};
    use crate::config::settings::Hours;
    use crate::model::samples::inspection;

    fn now() -> Moment {
        Moment::default().plus(Duration::from_secs(20_000 * 86_400 + 12 * 3600))
    }

    fn quiet(rotational: Option<bool>) -> Conditions {
        let disk = DiskCondition {
            busy: Some(Ratio(0.0)),
            queue: Some(0.0),
            in_flight: 0,
            rotational,
            idle_for: Seconds(5.0),
        };
        Conditions {
            at: now(),
            disks: [("sda".into(), disk)].into(),
            io_pressure: Some(Ratio(0.0)),
            cpu_idle: Some(Ratio(0.9)),
            ..Conditions::default()
        }
    }

    fn disk(conditions: &mut Conditions) -> &mut DiskCondition {
        conditions.disks.get_mut("sda").unwrap()
    }

    fn roomy_place() -> Inspection {
        Inspection { inodes_free: Some(Ratio(0.5)), ..inspection() }
    }

    fn sda() -> Vec<Device> {
        vec![Device { name: "sda".into(), stat: "block/sda/stat".into(), rotational: None }]
    }

    /// What the guard says to a writing run; `latency` runs are exempt.
    fn ask(conditions: &Conditions, inspection: &Inspection, latency: bool) -> Leave {
        let devices = sda();
        let request = Request {
            exempt: latency,
            devices: &devices,
            writes: Bytes(64 * MIB),
            may_write: true,
            region: Bytes(512 * MIB),
            inspection: Some(inspection),
            wake: false,
        };
        permit(&request, conditions, &GuardSettings::default(), now())
    }

    fn reason(leave: Leave) -> Option<Skip> {
        leave.err().map(|(skip, _)| skip)
    }

    #[test]
    fn a_line_in_use_keeps_link_tests_away() {
        let used = |share: Option<f64>| {
            let used = LineUse { share: share.map(Ratio), ..LineUse::default() };
            BTreeMap::from([("eth0".into(), used)])
        };
        assert_eq!(lines_idle(&used(Some(0.19))), Ok(()));
        assert_eq!(lines_idle(&used(None)), Ok(()), "its rate is unknown");
        let (skip, text) = lines_idle(&used(Some(0.35))).unwrap_err();
        assert_eq!(
            (skip, text.as_str()),
            (Skip::Busy, "eth0 is used at 35.0 % of its rate (limit 20.0 %)")
        );
    }

    #[test]
    fn each_number_of_the_idle_gate_makes_a_probe_wait() {
        type Change = fn(&mut Conditions);
        let cases: [(Option<bool>, Change, Option<&str>); 11] = [
            (Some(true), |c| disk(c).busy = Some(Ratio(0.19)), None),
            (Some(true), |c| disk(c).busy = Some(Ratio(0.20)), Some("sda is 20.0 % busy")),
            (Some(true), |c| disk(c).queue = Some(0.7), None),
            (Some(false), |c| disk(c).busy = Some(Ratio(0.9)), None),
            (Some(false), |c| disk(c).queue = Some(0.5), Some("sda has a queue of 0.5")),
            (None, |c| disk(c).queue = Some(0.6), Some("sda has a queue of 0.6")),
            (None, |c| disk(c).in_flight = 2, Some("sda has 2 requests in flight")),
            (None, |c| disk(c).queue = None, Some("sda: no window yet")),
            (None, |c| c.io_pressure = Some(Ratio(0.05)), Some("tasks wait for I/O 5.0 %")),
            (None, |c| c.cpu_idle = Some(Ratio(0.3)), Some("the CPU is 30.0 % idle")),
            (None, |c| c.resync = true, Some("an md array is resyncing")),
        ];
        for (rotational, change, said) in cases {
            let mut conditions = quiet(rotational);
            change(&mut conditions);
            match (ask(&conditions, &roomy_place(), false), said) {
                (Ok(()), None) => {}
                (Err((Skip::Busy, text)), Some(said)) => assert!(text.starts_with(said), "{text}"),
                (leave, said) => panic!("{leave:?}, expected {said:?}"),
            }
            assert_eq!(ask(&conditions, &roomy_place(), true), Ok(()), "latency is exempt");
        }
    }

    #[test]
    fn what_the_host_can_never_tell_is_no_reason_to_wait() {
        let conditions = Conditions { at: now(), ..Conditions::default() };
        assert_eq!(ask(&conditions, &roomy_place(), false), Ok(()));
    }

    #[test]
    fn without_a_sample_of_late_nobody_runs_but_latency() {
        for at in [Moment::default(), Moment::default().plus(Duration::from_secs(60))] {
            let conditions = Conditions { at, ..quiet(None) };
            assert_eq!(reason(ask(&conditions, &roomy_place(), false)), Some(Skip::Busy));
            assert_eq!(ask(&conditions, &roomy_place(), true), Ok(()));
        }
    }

    #[test]
    fn a_disk_that_may_be_asleep_is_left_asleep() {
        let mut conditions = quiet(Some(true));
        disk(&mut conditions).idle_for = Seconds(3600.0);
        let (skip, text) = ask(&conditions, &roomy_place(), true).unwrap_err();
        assert_eq!(skip, Skip::Asleep);
        assert_eq!(text, "sda may be asleep: unused for 60 min (`wake: true` wakes it)");
        disk(&mut conditions).rotational = Some(false);
        assert_eq!(ask(&conditions, &roomy_place(), true), Ok(()), "flash doesn't sleep");
    }

    #[test]
    fn on_battery_only_latency_runs() {
        let conditions = Conditions { on_battery: true, ..quiet(None) };
        assert_eq!(reason(ask(&conditions, &roomy_place(), false)), Some(Skip::Battery));
        assert_eq!(ask(&conditions, &roomy_place(), true), Ok(()));
    }

    #[test]
    fn space_is_kept_by_the_largest_of_share_amount_and_twice_the_file() {
        let place = |size: u64, available: u64| Inspection {
            size: Bytes(size),
            available: Bytes(available),
            ..roomy_place()
        };
        let says = |place| reason(ask(&quiet(None), &place, false));
        assert_eq!(says(place(100 * GIB, 5 * GIB)), None);
        assert_eq!(says(place(100 * GIB, 5 * GIB - 1)), Some(Skip::Full), "5 %");
        assert_eq!(says(place(3 * GIB, 2 * GIB)), None);
        assert_eq!(says(place(3 * GIB, 2 * GIB - 1)), Some(Skip::Full), "2 GiB");
        let few = Inspection { inodes_free: Some(Ratio(0.01)), ..roomy_place() };
        assert_eq!(says(few), Some(Skip::Full));
        let uncounted = Inspection { inodes_free: None, ..roomy_place() };
        assert_eq!(says(uncounted), None);
    }

    #[test]
    fn nothing_is_written_where_it_must_not_be() {
        let read_only = Inspection { read_only: true, ..roomy_place() };
        assert_eq!(reason(ask(&quiet(None), &read_only, true)), Some(Skip::ReadOnly));
    }

    #[test]
    fn switches_and_hours_come_first() {
        let devices = sda();
        let request = Request {
            exempt: true,
            devices: &devices,
            writes: Bytes(0),
            may_write: false,
            region: Bytes(0),
            inspection: None,
            wake: false,
        };
        let hours =
            |from: u32, to: u32| vec![Hours { from: from * 60, to: to * 60, utc_offset: 0 }];
        let plain = GuardSettings::default;
        let says = |settings: GuardSettings| permit(&request, &quiet(None), &settings, now());
        let text = |settings| says(settings).unwrap_err();
        assert_eq!(text(GuardSettings { probes: false, ..plain() }).0, Skip::Off);
        assert_eq!(text(GuardSettings { dry_run: true, ..plain() }).0, Skip::Off);
        assert_eq!(
            text(GuardSettings { allowed_hours: hours(22, 6), ..plain() }),
            (Skip::Hours, "outside the allowed hours 22:00-06:00 UTC".into())
        );
        let both =
            GuardSettings { allowed_hours: hours(8, 18), blackout: hours(11, 13), ..plain() };
        assert_eq!(text(both), (Skip::Hours, "in the blackout 11:00-13:00 UTC".into()));
        assert_eq!(says(GuardSettings { allowed_hours: hours(8, 18), ..plain() }), Ok(()));
    }
}
