//! The metric families of link probes.

use crate::model::metric::Desc;
use crate::probe::families::{
    FAILURES, FLAGS, INTERVAL, LAST_RUN, LAST_SUCCESS, PROBE_INFO, RUN_TIME, RUNS, SKIPS, family,
};

const PEER: &[&str] = &["probe", "peer"];
const REASON: &[&str] = &["probe", "peer", "reason"];
const DIRECTION: &[&str] = &["probe", "peer", "direction"];
const QUANTILE: &[&str] = &["probe", "peer", "direction", "q"];
const STREAM: &[&str] = &["probe", "peer", "direction", "stream"];
const FLAG: &[&str] = &["probe", "peer", "flag"];
const INFO: &[&str] = &["probe", "peer", "profile", "streams"];

pub(super) static PEER_RUNS: Desc = RUNS.labelled(PEER);
pub(super) static PEER_FAILURES: Desc = FAILURES.labelled(REASON);
pub(super) static PEER_SKIPS: Desc = SKIPS.labelled(REASON);
pub(super) static PEER_LAST_RUN: Desc = LAST_RUN.labelled(PEER);
pub(super) static PEER_LAST_SUCCESS: Desc = LAST_SUCCESS.labelled(PEER);
pub(super) static PEER_INTERVAL: Desc = INTERVAL.labelled(PEER);
pub(super) static PEER_RUN_TIME: Desc = RUN_TIME.labelled(PEER);
pub(super) static PEER_INFO: Desc = PROBE_INFO.labelled(INFO);
pub(super) static PEER_FLAGS: Desc = FLAGS.labelled(FLAG);

family! {
    TRANSMIT: gauge "loadline_link_probe_transmit_bytes_per_second" PEER
        "Payload a second from this host to the peer in the last run: what arrived, over the \
         receiver's time." "the peer's results";
    RECEIVE: gauge "loadline_link_probe_receive_bytes_per_second" PEER
        "Payload a second from the peer to this host in the last run." "worker";
    SINGLE: gauge "loadline_link_probe_single_stream_bytes_per_second" DIRECTION
        "Payload a second of one stream alone, before the others." "worker, the peer's results";
    STREAM_RATE: gauge "loadline_link_probe_stream_bytes_per_second" STREAM
        "Payload a second of each stream of the last run." "worker, the peer's results";
    LINE: gauge "loadline_link_probe_line_bytes_per_second" DIRECTION
        "Rate of the slowest line that is known on the way, headers and all; absent while none is."
        "rtnetlink, /sys/class/net/*/speed, configuration";
    CEILING: gauge "loadline_link_probe_ceiling_bytes_per_second" DIRECTION
        "Payload a second that the way carries, by its line rate, its packets and what wraps them; \
         absent while no line rate is known." "line rate, TCP_INFO tcpi_snd_mss";
    RETRANSMITS: counter "loadline_link_probe_retransmits_total" DIRECTION
        "Segments that the sender sent again in all runs; absent until a sender's kernel said it."
        "TCP_INFO tcpi_total_retrans";
    RETRANSMIT_RATIO: gauge "loadline_link_probe_retransmit_ratio" DIRECTION
        "Bytes sent again / bytes sent, in the last run." "TCP_INFO tcpi_bytes_retrans, tcpi_bytes_sent";
    RTT: gauge "loadline_link_probe_rtt_seconds" QUANTILE
        "Round-trip time under the load of the last run: the least of a packet (q 0), and of the \
         smoothed value ten times a second." "TCP_INFO tcpi_min_rtt, tcpi_rtt";
    BUSY: counter "loadline_link_probe_busy_total" PEER
        "Times that the peer was in another test, or its lines in use; second tries counted."
        "the peer's answer";
    LIST_MISMATCH: gauge "loadline_link_probe_list_mismatch" PEER
        "Whether the peer goes by another list of peers or other times than this host; absent until \
         it said so." "the peer's results";
    LIST_INFO: gauge "loadline_mesh_list_info" LIST
        "Digest of the list of peers and the times of the schedule, the same on all hosts that agree; \
         1." "configuration, files";
    MEMBERS: gauge "loadline_mesh_peers" NONE
        "Hosts in the schedule, this one among them." "configuration, files";
    SOURCE_PEERS: gauge "loadline_mesh_source_peers" SOURCE
        "Peers that a list names: `list`, or a file." "configuration, files";
    SOURCE_READ: gauge "loadline_mesh_source_last_success_timestamp_seconds" SOURCE
        "Unix time at which the list was last found good; what is in force is of then." "files";
    SOURCE_FAILURES: counter "loadline_mesh_source_failures_total" SOURCE
        "Times that a list was gone, empty or garbage; the last good one stayed." "files";
    DROPPED: gauge "loadline_mesh_dropped_peers" DROP
        "Entries of lists that are no peers, by reason: self, duplicate, same_host, over_limit."
        "configuration, files";
    SERVED: counter "loadline_peer_tests_total" RESULT
        "Tests of this host by peers, by how they ended: ok, or why not; refused ones are busy and \
         denied." "server";
}

const NONE: &[&str] = &[];
const LIST: &[&str] = &["digest"];
const SOURCE: &[&str] = &["source"];
const DROP: &[&str] = &["reason"];
const RESULT: &[&str] = &["result"];

/// Families of link probes.
pub static DESCS: &[&Desc] = &[
    &PEER_RUNS,
    &PEER_FAILURES,
    &PEER_SKIPS,
    &PEER_LAST_RUN,
    &PEER_LAST_SUCCESS,
    &PEER_INTERVAL,
    &PEER_RUN_TIME,
    &PEER_INFO,
    &PEER_FLAGS,
    &TRANSMIT,
    &RECEIVE,
    &SINGLE,
    &STREAM_RATE,
    &LINE,
    &CEILING,
    &RETRANSMITS,
    &RETRANSMIT_RATIO,
    &RTT,
    &BUSY,
    &LIST_MISMATCH,
    &LIST_INFO,
    &MEMBERS,
    &SOURCE_PEERS,
    &SOURCE_READ,
    &SOURCE_FAILURES,
    &DROPPED,
    &SERVED,
];
