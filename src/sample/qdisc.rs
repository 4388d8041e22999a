//! What waits to be sent below the sockets: the root qdisc of each line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Kind, Reading, Sampler, Tick};
use crate::base::clock::Moment;
use crate::base::counter::Extended;
use crate::base::fault::Fault;
use crate::host::link_class::is_line;
use crate::host::links::is_own_network;
use crate::host::qdisc::{QdiscSocket, Queue};
use crate::host::roots::attribute;
use crate::model::metric::{Desc, Label, Point};

static BACKLOG: Desc = Desc::gauge(
    "loadline_nic_transmit_backlog_bytes",
    &["device"],
    "Bytes that wait in the link's root qdisc now; staying above 0, the link is the limit.",
    "RTM_GETQDISC, TCA_STATS_QUEUE backlog",
);
static REQUEUES: Desc = Desc::counter(
    "loadline_nic_transmit_requeues_total",
    &["device"],
    "Packets that the driver had no room for and the root qdisc took back.",
    "RTM_GETQDISC, TCA_STATS_QUEUE requeues, extended to 64 bit",
);
static DROPS: Desc = Desc::counter(
    "loadline_nic_transmit_queue_drops_total",
    &["device"],
    "Packets that the root qdisc dropped.",
    "RTM_GETQDISC, TCA_STATS_QUEUE drops, extended to 64 bit",
);

pub static KIND: Kind = Kind {
    name: "qdisc",
    help: "What waits to be sent, is put back or dropped in the root qdisc of each line.",
    descs: &[&BACKLOG, &REQUEUES, &DROPS],
    open: |roots, settings| {
        Box::new(QdiscSampler {
            net: roots.sys("class/net"),
            of_this_host: is_own_network(roots),
            devices_max: settings.devices_max,
            socket: None,
            asked: None,
            lines: BTreeMap::new(),
        })
    },
};

/// The kernel asks every device for its statistics in a dump: not at each tick.
const ASK_EVERY_SECONDS: f64 = 10.0;

struct QdiscSampler {
    net: PathBuf,
    /// Netlink speaks of our own network namespace, whatever `--path.procfs` says.
    of_this_host: bool,
    devices_max: usize,
    socket: Option<QdiscSocket>,
    asked: Option<Moment>,
    /// By interface index.
    lines: BTreeMap<u32, Line>,
}

struct Line {
    name: Label,
    backlog_bytes: u32,
    requeues: Extended,
    drops: Extended,
}

impl QdiscSampler {
    fn ask(&mut self) -> Result<(), Fault> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => QdiscSocket::open().map_err(|error| Fault::os("rtnetlink", &error))?,
        };
        let queues = socket.dump().map_err(|error| Fault::os("rtnetlink: qdiscs", &error))?;
        // Only a socket that answered to the end is used again.
        self.socket = Some(socket);
        let names = self.lines_by_index();
        self.lines.retain(|index, line| names.get(index).is_some_and(|name| *name == line.name));
        for queue in queues {
            if let Some(name) = names.get(&queue.ifindex) {
                self.take(queue, name);
            }
        }
        Ok(())
    }

    fn take(&mut self, queue: Queue, name: &Label) {
        if self.lines.len() >= self.devices_max && !self.lines.contains_key(&queue.ifindex) {
            return;
        }
        let line = self.lines.entry(queue.ifindex).or_insert_with(|| Line {
            name: Arc::clone(name),
            backlog_bytes: 0,
            requeues: Extended::default(),
            drops: Extended::default(),
        });
        line.backlog_bytes = queue.backlog_bytes;
        line.requeues.take(u64::from(queue.requeues));
        line.drops.take(u64::from(queue.drops));
    }

    /// Names of the lines by index.
    fn lines_by_index(&self) -> BTreeMap<u32, Label> {
        let entries = std::fs::read_dir(&self.net).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name())
            .filter(|name| is_line(&self.net, name))
            .filter_map(|name| {
                let index = attribute(&self.net.join(&name).join("ifindex"))?.parse().ok()?;
                Some((index, Arc::from(name.to_string_lossy())))
            })
            .collect()
    }
}

impl Sampler for QdiscSampler {
    fn read(&mut self, tick: Tick<'_>, out: &mut Reading) -> Result<(), Fault> {
        if !self.of_this_host {
            return Ok(());
        }
        if self.asked.is_none_or(|asked| tick.at.since(asked).0 >= ASK_EVERY_SECONDS) {
            self.asked = Some(tick.at);
            self.ask()?;
        }
        for line in self.lines.values() {
            let label = [&line.name];
            out.points.push(Point::number(&BACKLOG, &label, f64::from(line.backlog_bytes)));
            out.points.push(Point::number(&REQUEUES, &label, line.requeues.total() as f64));
            out.points.push(Point::number(&DROPS, &label, line.drops.total() as f64));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(net: PathBuf) -> QdiscSampler {
        QdiscSampler {
            net,
            of_this_host: true,
            devices_max: 2,
            socket: None,
            asked: None,
            lines: BTreeMap::new(),
        }
    }

    fn queue(ifindex: u32, requeues: u32) -> Queue {
        Queue { ifindex, requeues, ..Queue::default() }
    }

    #[test]
    fn counters_of_32_bits_go_on_over_their_wrap_and_devices_are_capped() {
        let mut sampler = sampler("/nowhere".into());
        for (index, name) in [(1, "a"), (2, "b"), (3, "c")] {
            sampler.take(queue(index, u32::MAX), &Arc::from(name));
        }
        sampler.take(queue(1, 4), &Arc::from("a"));
        assert_eq!(sampler.lines.len(), 2);
        assert_eq!(sampler.lines[&1].requeues.total(), u64::from(u32::MAX) + 5);
    }

    #[test]
    fn this_hosts_lines_are_asked_for_without_a_fault() {
        let mut sampler = sampler("/sys/class/net".into());
        sampler.ask().unwrap();
    }
}
