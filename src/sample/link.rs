//! Links: /proc/net/dev each tick against the capacity that sysfs, bonds or the operator tell.
//!
//! Own parser: procfs-core needs a blank after the colon and gives up on the first odd line.

mod families;
mod track;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::track::{Belief, Circumstances, Track};
use super::filter::wanted;
use super::{Kind, Reading, Sampler, Tick};
use crate::base::clock::Moment;
use crate::base::fault::Fault;
use crate::base::units::{Rate, Ratio, Seconds};
use crate::config::settings::{Filter, SampleSettings};
use crate::host::allowance::exceeded;
use crate::host::aside::Aside;
use crate::host::link_class::{LinkClass, class, is_line};
use crate::host::link_facts::{Declared, LinkFacts, facts};
use crate::host::links::{LinkLine, is_own_network, net_directory, parse, text_of};
use crate::host::roots::{KeptFile, Roots};
use crate::model::live::KnownLine;
use crate::model::load::{FlowLoad, LinkLoad};
use crate::model::snapshot::{Flow, Of, Resource, ResourceClass};

pub static KIND: Kind = Kind {
    name: "link",
    help: "Traffic of physical interfaces, bonds, teams and VLANs, against the rate of their lines.",
    descs: families::DESCS,
    open,
};

fn open(roots: &Roots, settings: &SampleSettings) -> Box<dyn Sampler> {
    /// What a tick may lose to slow drivers; quick ones answer in microseconds.
    const PATIENCE: Duration = Duration::from_millis(20);
    Box::new(LinkSampler::new(roots, settings, PATIENCE))
}

struct LinkSampler {
    file: KeptFile,
    /// What is wrong with the place that is read.
    note: Option<String>,
    links: Links,
}

impl LinkSampler {
    fn new(roots: &Roots, settings: &SampleSettings, patience: Duration) -> Self {
        let (directory, note) = net_directory(roots);
        Self {
            file: KeptFile::new(roots.proc(directory).join("dev")),
            note,
            links: Links::new(roots, settings, patience),
        }
    }
}

impl Sampler for LinkSampler {
    fn read(&mut self, tick: Tick<'_>, out: &mut Reading) -> Result<(), Fault> {
        let found = parse(self.file.read()?);
        out.rejected += found.rejected;
        out.notes.extend(self.note.clone());
        self.links.take(&found.lines, tick, out);
        Ok(())
    }
}

/// Said in containers with a network of their own, above all.
const NOTHING_WATCHED: &str = "no physical interface here: no link is watched; set \
                               `links.NAME.rate` to watch another kind";

/// Whether an interface is watched; remembered, so that a thousand pods cost no look at sysfs.
#[derive(Clone, Copy)]
struct Choice {
    watched: bool,
    class: LinkClass,
    made: Moment,
    seen: Moment,
}

/// All that is known of the host's links.
struct Links {
    net: PathBuf,
    every: Seconds,
    filter: Filter,
    declared: Declared,
    watched_max: usize,
    choices: HashMap<Vec<u8>, Choice>,
    tracks: BTreeMap<Vec<u8>, Track>,
    aside: Aside<OsString, LinkFacts>,
}

impl Links {
    fn new(roots: &Roots, settings: &SampleSettings, patience: Duration) -> Self {
        let net = roots.sys("class/net");
        let rates =
            settings.links.iter().filter_map(|(name, link)| Some((name.clone(), link.rate?)));
        let declared: Declared = rates.collect();
        let (asked_net, rates) = (net.clone(), declared.clone());
        let own_network = is_own_network(roots);
        Self {
            net,
            every: settings.every,
            filter: settings.link_filter.clone(),
            declared,
            watched_max: settings.devices_max,
            choices: HashMap::new(),
            tracks: BTreeMap::new(),
            aside: Aside::new("link-facts", patience, move |name: &OsString| {
                let mut facts = facts(&asked_net, name, &rates);
                if own_network {
                    facts.allowances = exceeded(&asked_net, name);
                }
                facts
            }),
        }
    }

    fn take(&mut self, lines: &[LinkLine<'_>], tick: Tick<'_>, out: &mut Reading) {
        let mut present = Vec::new();
        for line in lines {
            if self.watches(line.name, tick.at, out) {
                present.push(line);
            }
        }
        self.choices.retain(|_, choice| choice.seen == tick.at);
        self.learn(tick.at, out);
        for line in present {
            self.publish(line, tick, out);
        }
        self.push_busiest_members(out);
        if self.tracks.is_empty() {
            out.notes.push(NOTHING_WATCHED.into());
        }
        self.push_total(out);
        self.forget(tick.at);
    }

    /// Whether `name` has series, and its track up to date. A name twice in a file is taken once:
    /// chunks of a seq_file may overlap when interfaces come and go.
    fn watches(&mut self, name: &[u8], at: Moment, out: &mut Reading) -> bool {
        let choice = self.choice(name, at);
        if !choice.watched {
            return false;
        }
        let new =
            || Track::new(&self.net.join(OsStr::from_bytes(name)), &text_of(name), choice.class);
        let full = self.tracks.len() >= self.watched_max;
        let track = match self.tracks.entry(name.to_vec()) {
            Entry::Occupied(track) if track.get().seen == at => return false,
            Entry::Occupied(track) => {
                let track = track.into_mut();
                if track.replaced() {
                    *track = new();
                }
                track
            }
            Entry::Vacant(_) if full => {
                out.dropped_devices += 1;
                return false;
            }
            Entry::Vacant(place) => place.insert(new()),
        };
        (track.seen, track.absences) = (at, 0);
        if track.wants_facts(at) {
            track.asked_at = Some(at);
            self.aside.ask(OsStr::from_bytes(name).to_owned());
        }
        true
    }

    fn choice(&mut self, name: &[u8], at: Moment) -> Choice {
        /// An interface may get its master or its device after its first tick.
        const CHOICE_SECONDS: f64 = 60.0;
        if let Some(choice) = self.choices.get_mut(name)
            && at.since(choice.made).0 < CHOICE_SECONDS
        {
            choice.seen = at;
            return *choice;
        }
        let text = text_of(name);
        let kernel_name = OsStr::from_bytes(name);
        let by_class = self.declared.contains_key(&text) || is_line(&self.net, kernel_name);
        let choice = Choice {
            watched: wanted(&self.filter, &text, by_class),
            class: class(&self.net, kernel_name),
            made: at,
            seen: at,
        };
        self.choices.insert(name.to_vec(), choice);
        choice
    }

    /// Takes what has been found out aside.
    fn learn(&mut self, at: Moment, out: &mut Reading) {
        for (name, facts) in self.aside.answers() {
            let name = name.as_bytes();
            let Some(track) = self.tracks.get_mut(name) else { continue };
            track.refusal.clone_from(&facts.refusal);
            if facts.refusal.is_some() {
                // What was known of it holds; it is asked again in a minute.
                out.rejected += 1;
                continue;
            }
            // Its traffic is that of a virtual function, and is counted at the port as well.
            if facts.representor && !wanted(&self.filter, &track.name, false) {
                self.tracks.remove(name);
                let class = LinkClass::Virtual;
                let choice = Choice { watched: false, class, made: at, seen: at };
                self.choices.insert(name.to_vec(), choice);
                continue;
            }
            track.facts = Some(facts);
        }
    }

    fn publish(&mut self, line: &LinkLine<'_>, tick: Tick<'_>, out: &mut Reading) {
        let Some(track) = self.tracks.get_mut(line.name) else { return };
        let counters = track.told_apart(line.counters);
        let now =
            Circumstances { at: tick.at, own: tick.own, every: self.every, blank: line.blank };
        if track.take(counters, now) == Belief::Doubted {
            out.rejected += 1;
        } else {
            families::push(track, &counters, out);
        }
        out.lines.extend(line_of(track));
        let used = track.used().filter(|_| track.class == LinkClass::Physical);
        out.conditions.lines.extend(used.map(|used| (Arc::clone(&track.name), used)));
        out.resources.push(resource(track));
        out.notes.extend(note(track));
    }

    /// A hash over few flows can fill one line of a bond while the bond looks half empty.
    fn push_busiest_members(&self, out: &mut Reading) {
        let mut busiest: BTreeMap<&str, Ratio> = BTreeMap::new();
        for member in self.tracks.values() {
            let Some(facts) = member.facts.as_ref().filter(|f| !f.bond.is_empty()) else {
                continue;
            };
            let Some(share) = member.share() else { continue };
            let most = busiest.entry(&facts.bond).or_insert(share);
            *most = if share > *most { share } else { *most };
        }
        for bond in self.tracks.values().filter(|track| track.class == LinkClass::Bond) {
            if let Some(share) = busiest.get(&*bond.name) {
                out.points.push(families::busiest_member(bond, *share));
            }
        }
    }

    /// Traffic of the host, over physical interfaces only: bonds, VLANs and bridges carry the same
    /// bytes again. On the page, where there is more than one.
    fn push_total(&self, out: &mut Reading) {
        let physical = self.tracks.values().filter(|t| t.class == LinkClass::Physical);
        let loads: Vec<&LinkLoad> = physical.filter_map(Track::load).collect();
        if loads.len() < 2 {
            return;
        }
        let total = |of: fn(&LinkLoad) -> Option<FlowLoad>| {
            Flow::of_bytes(loads.iter().filter_map(|l| of(l)).map(|f| f.bytes_per_second).sum())
        };
        out.resources.push(Resource {
            device: "all links".into(),
            class: ResourceClass::Link,
            facts: format!("{} physical interfaces", loads.len()).into(),
            load: vec![("receive", total(|l| l.receive)), ("transmit", total(|l| l.transmit))],
            share: None,
            of: Of::LineRate,
        });
    }

    /// A tick without its line may be a chunk boundary of the file; three are its end.
    fn forget(&mut self, at: Moment) {
        const ABSENCES_MAX: u32 = 3;
        self.tracks.retain(|_, track| {
            track.absences += u32::from(track.seen != at);
            track.absences < ABSENCES_MAX
        });
    }
}

/// `None` while the rate of its line or its MTU isn't known.
fn line_of(track: &Track) -> Option<KnownLine> {
    let facts = track.facts.as_ref()?;
    let capacity = facts.capacity?;
    Some(KnownLine {
        device: track.name.clone(),
        receive: capacity.receive,
        transmit: capacity.transmit,
        declared: capacity.declared,
        mtu: facts.mtu?,
        tagged: track.class == LinkClass::Vlan,
    })
}

fn resource(track: &Track) -> Resource {
    let flow = |flow: Option<FlowLoad>| flow.map(|f| Flow::of_bytes(f.bytes_per_second));
    let load = track.load().map(|l| [("receive", flow(l.receive)), ("transmit", flow(l.transmit))]);
    Resource {
        device: Arc::clone(&track.name),
        class: ResourceClass::Link,
        facts: facts_in_words(track).into(),
        load: load
            .into_iter()
            .flatten()
            .filter_map(|(direction, flow)| Some((direction, flow?)))
            .collect(),
        share: track.share(),
        of: Of::LineRate,
    }
}

fn facts_in_words(track: &Track) -> String {
    let mut words = Vec::new();
    let Some(facts) = &track.facts else { return "speed not known yet".into() };
    match facts.capacity {
        Some(capacity) => {
            let declared = if capacity.declared { " (declared)" } else { "" };
            words.push(format!("{}{declared}", in_bits(capacity.transmit)));
        }
        None if facts.up => words.push("speed unknown".into()),
        None => words.push("down".into()),
    }
    if track.class != LinkClass::Physical {
        words.push(track.class.label().into());
    }
    if facts.half_duplex {
        words.push("half duplex".into());
    }
    if !facts.bond.is_empty() {
        words.push(format!("slave of {}", facts.bond));
    }
    words.join(", ")
}

/// Lines are sold in decimal bits.
fn in_bits(rate: Rate) -> String {
    let bits = rate.0 * 8.0;
    let (value, unit) = match bits {
        b if b >= 1e9 => (b / 1e9, "Gbit/s"),
        b if b >= 1e6 => (b / 1e6, "Mbit/s"),
        b => (b / 1e3, "kbit/s"),
    };
    let rounded = (value * 10.0).round() / 10.0;
    format!("{rounded} {unit}")
}

/// Which alert can't work, and what would let it. A VLAN's line is that of what it stands on.
fn note(track: &Track) -> Option<String> {
    let name = &track.name;
    if let Some(refusal) = &track.refusal {
        return Some(format!("{name}: its facts can't be read: {refusal}"));
    }
    let facts = track.facts.as_ref()?;
    let own_line = matches!(
        track.class,
        LinkClass::Physical | LinkClass::Bond | LinkClass::Team | LinkClass::Unknown
    );
    (own_line && facts.up && facts.capacity.is_none())
        .then(|| format!("{name}: speed unknown, link alert off: set `links.{name}.rate`"))
}

#[cfg(test)]
mod tests;
