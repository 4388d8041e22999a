//! What holds of every verdict, whatever the facts.

use std::time::Duration;

use proptest::prelude::*;

use super::{RULES, judge};
use crate::base::clock::Moment;
use crate::base::physics::Framing;
use crate::base::units::{Bytes, Frequency, Rate, Ratio, Seconds};
use crate::judge::facts::{CpuFacts, DeviceFacts, Facts, Known, LinkFacts, SecondLeg, Subject};
use crate::model::job::Access;
use crate::model::outcome::Flags;
use crate::model::path::{DeclaredBacking, DeclaredPath, Media, Raid, Wal};
use crate::model::verdict::{Ceiling, Limit, Persistence, Trust, Unit};
use crate::model::way::Line;

/// Sound numbers, and some that no instrument gives.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (-2.0..11.0f64).prop_map(|power| 10_f64.powf(power)),
        1 => Just(0.0),
        1 => any::<f64>(),
    ]
}

fn maybe<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::of(of)
}

fn share() -> impl Strategy<Value = Option<Ratio>> {
    maybe((0.0..1.0f64).prop_map(Ratio))
}

fn wire() -> impl Strategy<Value = DeclaredPath> {
    (maybe(number()), maybe(0u32..20_000), maybe(0u32..5)).prop_map(|(link, mtu, members)| {
        DeclaredPath { link: link.map(Rate), mtu, members, encapsulation: None }
    })
}

fn backing() -> impl Strategy<Value = DeclaredBacking> {
    let media = prop::sample::select(vec![Media::Hdd, Media::Ssd, Media::Nvme]);
    let raid = prop::sample::select(vec![Raid::None, Raid::Raid1, Raid::Raid5, Raid::Raid6]);
    let wal = prop::sample::select(vec![Wal::Same, Wal::Separate]);
    let disks = (maybe(media), maybe(0u32..20_000), maybe(0u32..200), maybe(0u32..8), maybe(raid));
    let rest = (maybe(wal), maybe(number()), maybe(any::<bool>()), maybe(number()));
    (wire(), disks, rest).prop_map(|(wire, disks, (wal, bandwidth, shared_link, limit))| {
        let (media, rpm, devices, replicas, raid) = disks;
        DeclaredBacking {
            wire,
            media,
            rpm,
            devices,
            replicas,
            raid,
            wal,
            bandwidth: bandwidth.map(Rate),
            shared_link,
            operations_limit: limit.map(Frequency),
            bytes_limit: None,
        }
    })
}

fn device() -> impl Strategy<Value = DeviceFacts> {
    let first = (share(), maybe(number()), maybe(number()), share(), maybe(number()));
    let second = (maybe(number()), maybe(number()), maybe(number()), share(), share());
    let third = (maybe(any::<bool>()), maybe(any::<bool>()), maybe(any::<bool>()), maybe(0u32..99));
    (first, second, third).prop_map(|(first, second, third)| DeviceFacts {
        busy_ratio: first.0,
        in_flight: first.1,
        slots: first.2,
        idle_ratio: first.3,
        write_amplification: first.4,
        read_share: second.0,
        write_share: second.1,
        foreign_share: second.2,
        flush_ratio: second.3,
        cgroup_ratio: second.4,
        rotational: third.0,
        is_virtual: third.1,
        network_backed: third.2,
        count: third.3,
        unseen: None,
    })
}

fn line() -> impl Strategy<Value = Line> {
    let words = (any::<u32>(), 0..200_u32, 0..3_u32, 0..100_u32, 0..50_u32);
    (number(), number(), words, any::<bool>()).prop_map(|(rate, flow, words, declared)| Line {
        rate: Rate(rate),
        flow: Rate(flow),
        framing: Framing {
            mtu: words.0,
            encapsulation: words.1,
            tags: words.2,
            headers: words.3,
            frame: words.4,
        },
        declared,
        source: "a line".into(),
    })
}

fn link() -> impl Strategy<Value = LinkFacts> {
    let numbers = (maybe(number()), maybe(any::<u64>()), maybe(any::<u64>()), maybe(number()));
    let rest = (maybe(any::<u64>()), share(), share());
    (numbers, maybe(line()), rest).prop_map(|(numbers, line, (window, receive, send))| LinkFacts {
        line_bytes_per_second: numbers.0.map(Rate),
        line,
        retransmits: numbers.1,
        segment_payload_bytes: numbers.2.map(Bytes),
        round_trip_seconds: numbers.3.map(Seconds),
        window_bytes: window.map(Bytes),
        receive_window_limited_ratio: receive,
        send_buffer_limited_ratio: send,
    })
}

fn known() -> impl Strategy<Value = Known> {
    let other = (any::<u64>(), number()).prop_map(|(b, r)| (Bytes(b), Frequency(r)));
    let others = prop::collection::vec(other, 0..3);
    let ceilings = prop::collection::vec(ceiling(), 0..4);
    (maybe(number()), others, ceilings).prop_map(|(sequential, other_blocks, ceilings)| Known {
        sequential_read_bytes_per_second: sequential.map(Rate),
        other_blocks,
        ceilings,
    })
}

/// As a run found it.
fn ceiling() -> impl Strategy<Value = Ceiling> {
    let direction = prop::sample::select(vec!["read", "write", "mixed"]);
    let trust = prop::sample::select(vec![Trust::Knee, Trust::Declared]);
    let at = maybe((0u64..1 << 40).prop_map(|at| Moment::default().plus(Duration::from_secs(at))));
    (number(), direction, trust, any::<[bool; 2]>(), at).prop_map(
        |(value, direction, trust, [bytes, burst], at)| {
            let unit = if bytes { Unit::BytesPerSecond } else { Unit::OperationsPerSecond };
            let source = (trust, "a knee".to_owned());
            let lasting = Ceiling::lasting((value, unit), ("target srv", direction), source);
            let kind = if burst { Persistence::Burst } else { Persistence::Sustained };
            Ceiling { at, kind, ..lasting }
        },
    )
}

fn facts() -> impl Strategy<Value = Facts> {
    let subject = prop::sample::select(vec![
        Subject::Storage,
        Subject::Storage,
        Subject::Link,
        Subject::Store,
    ]);
    let access = prop::sample::select(vec![Access::Sequential, Access::Random, Access::RandomMap]);
    let access = maybe(access);
    let shape = (subject, access, maybe(0u64..1 << 24), maybe(number()), maybe(number()));
    let rates = prop::array::uniform5(maybe(number()));
    let second = maybe((maybe(number()), number(), maybe(number())));
    let rest = (maybe(number()), maybe(number()), second, share(), share());
    let about = (device(), link(), backing(), wire(), known());
    (shape, rates, rest, about).prop_map(|(shape, rates, rest, about)| Facts {
        subject: shape.0,
        place: None,
        access: shape.1,
        block_bytes: shape.2.map(Bytes),
        depth: shape.3,
        duration_seconds: shape.4.map(Seconds),
        read_operations_per_second: rates[0].map(Frequency),
        write_operations_per_second: rates[1].map(Frequency),
        read_bytes_per_second: rates[2].map(Rate),
        write_bytes_per_second: rates[3].map(Rate),
        goodput_bytes_per_second: rates[4].map(Rate),
        latency_p50_seconds: rest.0.map(Seconds),
        rate_cv: rest.1,
        second_leg: rest.2.map(|(depth, rate_per_second, latency)| SecondLeg {
            depth,
            rate_per_second,
            latency_p50_seconds: latency.map(Seconds),
        }),
        cpu: CpuFacts { busiest_ratio: rest.3, steal_ratio: rest.4, ..CpuFacts::default() },
        device: about.0,
        link: about.1,
        flags: Flags::default(),
        backing: about.2,
        path: about.3,
        known: about.4,
    })
}

fn full_link(share: f64) -> Facts {
    Facts {
        subject: Subject::Link,
        goodput_bytes_per_second: Some(Rate(125e6 * 1448.0 / 1538.0 * share)),
        path: DeclaredPath { link: Some(Rate(125e6)), mtu: Some(1500), ..DeclaredPath::default() },
        ..Facts::default()
    }
}

#[test]
fn nothing_known_is_unknown() {
    let verdict = judge(&Facts::default());
    assert_eq!((verdict.limit, verdict.confidence, verdict.ceiling), (Limit::Unknown, 0.0, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_facts_have_a_verdict_with_a_confidence_and_a_sentence(facts in facts()) {
        let verdict = judge(&facts);
        prop_assert!((0.0..=1.0).contains(&verdict.confidence), "{verdict:?}");
        prop_assert_eq!(verdict.limit == Limit::Unknown, verdict.confidence == 0.0);
        prop_assert!(!verdict.text.is_empty());
        prop_assert!(verdict.rivals.iter().all(|rival| rival.limit != verdict.limit));
    }

    #[test]
    fn only_a_second_fact_makes_it_more_than_three_quarters_sure(facts in facts()) {
        let verdict = judge(&facts);
        let holding = RULES.iter().find_map(|(_, look)| look(&facts).filter(|found| found.holds));
        let second = holding.is_some_and(|found| found.second);
        prop_assert!(verdict.confidence <= 0.75 || second, "{verdict:?}");
    }

    #[test]
    fn without_a_second_leg_what_needs_it_is_a_guess(facts in facts()) {
        let facts = Facts { second_leg: None, ..facts };
        let verdict = judge(&facts);
        let holding = RULES.iter().find_map(|(_, look)| look(&facts).filter(|found| found.holds));
        let needs_it = match verdict.limit {
            Limit::Latency | Limit::Seek | Limit::Bandwidth => true,
            Limit::Operations | Limit::Backend => true,
            Limit::Throttle => holding.is_some_and(|found| !found.counted),
            _ => false,
        };
        let busy = facts.is_random() && facts.busy_spindles();
        let most = if busy { 0.75 } else { 0.5 };
        prop_assert!(!needs_it || verdict.confidence <= most, "{verdict:?}");
    }

    #[test]
    fn no_rival_is_nearer_than_there(facts in facts()) {
        let verdict = judge(&facts);
        prop_assert!(verdict.rivals.iter().all(|rival| rival.ratio <= 1.0), "{verdict:?}");
        let holds = |limit| {
            RULES.iter().any(|(l, look)| *l == limit && look(&facts).is_some_and(|f| f.holds))
        };
        let there = verdict.rivals.iter().filter(|rival| rival.ratio == 1.0);
        prop_assert!(there.into_iter().all(|rival| holds(rival.limit)), "{verdict:?}");
    }

    #[test]
    fn a_flag_against_a_run_leaves_a_third_at_most(facts in facts()) {
        let flags = Flags { short: Some(true), ..Flags::default() };
        let verdict = judge(&Facts { flags, ..facts });
        prop_assert!(verdict.confidence <= 0.3, "{verdict:?}");
    }

    #[test]
    fn a_fuller_link_is_never_less_sure(share in 0.0..1.04f64, more in 0.0..0.01f64) {
        let (less, more) = (judge(&full_link(share)), judge(&full_link(share + more)));
        prop_assert!(less.limit != Limit::Link || more.limit == Limit::Link);
        prop_assert!(more.confidence >= less.confidence - 1e-9);
    }

    #[test]
    fn more_of_others_is_never_less_contended(share in 0.0..1.0f64, more in 0.0..1.0f64) {
        let of = |share| {
            let device = DeviceFacts { foreign_share: Some(share), ..DeviceFacts::default() };
            judge(&Facts { device, ..full_link(0.5) })
        };
        prop_assert!(of(share + more).confidence >= of(share).confidence);
    }

    #[test]
    fn evidence_that_was_saved_is_read_as_it_was(facts in facts()) {
        // JSON has no endless numbers: such facts come back as unknown, or not at all.
        let saved = serde_json::to_string(&facts).unwrap();
        if let Ok(read) = serde_yaml::from_str::<Facts>(&saved) {
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), saved);
        }
    }
}
