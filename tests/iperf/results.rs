//! The end of a test, and what our client makes of the results that a peer tells.

use std::io::{Read, Write};

use loadline::base::units::Seconds;
use loadline::iperf::wire::framed;
use loadline::model::link::{LinkDirection, LinkFault, LinkMeasured, LinkProfile, LinkReason};

use crate::fake::{Fake, hold, message};
use crate::{PATIENCE, Seen, profile, watched};

/// A whole server for one stream that answers with these results.
fn answering(results: String) -> Fake {
    Fake::new(move |n, mut socket| {
        if n > 0 {
            return hold(socket);
        }
        socket.read_exact(&mut [0; 37]).unwrap();
        socket.write_all(&[9]).unwrap();
        message(&mut socket);
        socket.write_all(&[10, 1, 2]).unwrap();
        let mut end = [0];
        socket.read_exact(&mut end).unwrap();
        assert_eq!(end, [4]);
        socket.write_all(&[13]).unwrap();
        message(&mut socket);
        let mut answer = framed(&results);
        answer.push(14);
        socket.write_all(&answer).unwrap();
        hold(socket);
    })
}

fn results(streams: &str) -> String {
    format!(
        r#"{{"cpu_util_total":1,"cpu_util_user":0,"cpu_util_system":1,
        "sender_has_retransmits":18446744073709551615,"streams":[{streams}]}}"#
    )
}

fn tested(fake: &Fake) -> Result<LinkMeasured, LinkFault> {
    let asked = LinkProfile { runtime: Seconds(0.05), ..profile() };
    watched(fake.address, &asked, &mut Seen::default())
}

#[test]
fn a_rate_is_the_receivers_bytes_over_the_receivers_time() {
    let stream = r#"{"id":1,"bytes":125000000,"retransmits":18446744073709551615,
        "jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":2.5}"#;
    let flow = tested(&answering(results(stream))).unwrap().forward.unwrap();
    assert_eq!(flow.rate().unwrap().0, 5e7);
    // 3.1 doesn't tell its time, and a clock that was set in the test tells nonsense: ours has to do.
    let old = r#"{"id":1,"bytes":125000000,"retransmits":-1}"#.to_owned();
    let set = |from: &str, to: &str| {
        old.replace('}', &format!(",\"start_time\":{from},\"end_time\":{to}}}"))
    };
    for stream in [old.clone(), set("0", "-3600"), set("0", "1e9"), set("3600", "5"), set("0", "0")]
    {
        let flow = tested(&answering(results(&stream))).unwrap().forward.unwrap();
        assert_eq!(flow.receiver_time, flow.sender_time, "{stream}");
    }
}

#[test]
fn results_without_sense_are_a_fault_and_no_number() {
    let zero = r#"{"id":1,"bytes":0,"retransmits":-1}"#;
    let other = r#"{"id":2,"bytes":5,"retransmits":-1}"#;
    let below = r#"{"id":1,"bytes":-5,"retransmits":-1}"#;
    for (bad, text) in [
        (results(zero), "no byte arrived"),
        (results(other), "stream 1"),
        (results(below), "bytes"),
        (results(""), "stream 1"),
        ("{}".into(), "missing"),
        ("[]".into(), "object"),
        (results(zero).replace("streams", "smaerts"), "streams"),
    ] {
        let fault = tested(&answering(bad.clone())).unwrap_err();
        assert_eq!(fault.reason, LinkReason::Protocol, "{bad}: {fault}");
        assert!(fault.text.contains(text), "{bad}: {fault}");
    }
}

#[test]
fn oversized_results_are_refused_by_their_length() {
    let fake = Fake::new(|n, mut socket| {
        if n == 0 {
            socket.write_all(&[9, 10, 1, 2]).unwrap();
            let mut all = [0; 37];
            socket.read_exact(&mut all).unwrap();
            message(&mut socket);
            socket.read_exact(&mut [0]).unwrap();
            socket.write_all(&[13, 0x7f, 0xff, 0xff, 0xff]).unwrap();
        }
        hold(socket);
    });
    let fault = tested(&fake).unwrap_err();
    assert!(fault.reason == LinkReason::Protocol && fault.text.contains("bytes"), "{fault}");
}

#[test]
fn a_sender_that_is_told_late_is_read_to_its_end() {
    // In reverse the server still sends when the client ends the test; it closes the data
    // connection before it says anything, and can't while its data isn't taken.
    let (tell, sent) = std::sync::mpsc::channel();
    let (tell, sent) = (std::sync::Mutex::new(tell), std::sync::Mutex::new(sent));
    let fake = Fake::new(move |n, mut socket| {
        socket.read_exact(&mut [0; 37]).unwrap();
        if n > 0 {
            socket.write_all(&vec![7; 64 << 20]).unwrap();
            return tell.lock().unwrap().send(()).unwrap();
        }
        socket.write_all(&[9]).unwrap();
        message(&mut socket);
        socket.write_all(&[10, 1, 2]).unwrap();
        let mut end = [0];
        socket.read_exact(&mut end).unwrap();
        sent.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        socket.write_all(&[13]).unwrap();
        let own = String::from_utf8(message(&mut socket)).unwrap();
        assert!(own.contains(r#""sender_has_retransmits":-1"#), "{own}");
        let mut answer = framed(&results(r#"{"id":1,"bytes":67108864,"retransmits":3}"#));
        answer.push(14);
        socket.write_all(&answer).unwrap();
        hold(socket);
    });
    let direction = LinkDirection::Reverse;
    let asked = LinkProfile { runtime: Seconds(0.001), direction, ..profile() };
    match watched(fake.address, &asked, &mut Seen::default()) {
        Ok(measured) => assert_eq!(measured.reverse.unwrap().retransmits, Some(3)),
        // So short a test may end before anything came.
        Err(fault) => assert!(fault.text.contains("no byte arrived"), "{fault}"),
    }
}

#[test]
fn data_connections_that_are_reset_at_the_end_are_no_fault_and_were_looked_at_before() {
    // A stock server closes them with data unread, and says only then that it is time for results.
    let (close, closing) = std::sync::mpsc::channel::<()>();
    let (tell, closed) = std::sync::mpsc::channel();
    let (close, tell) = (std::sync::Mutex::new(Some(close)), std::sync::Mutex::new(tell));
    let (closing, closed) = (std::sync::Mutex::new(closing), std::sync::Mutex::new(closed));
    let fake = Fake::new(move |n, mut socket| {
        socket.read_exact(&mut [0; 37]).unwrap();
        if n > 0 {
            let _ = closing.lock().unwrap().recv_timeout(PATIENCE);
            drop(socket);
            return tell.lock().unwrap().send(()).unwrap();
        }
        socket.write_all(&[9]).unwrap();
        message(&mut socket);
        socket.write_all(&[10, 1, 2]).unwrap();
        socket.read_exact(&mut [0]).unwrap();
        drop(close.lock().unwrap().take());
        closed.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        socket.write_all(&[13]).unwrap();
        message(&mut socket);
        let stream = r#"{"id":1,"bytes":1000,"retransmits":-1}"#;
        socket.write_all(&[framed(&results(stream)), vec![14]].concat()).unwrap();
        hold(socket);
    });
    let flow = tested(&fake).unwrap().forward.unwrap();
    assert!(
        flow.retransmits.is_some() && flow.congestion.is_some() && flow.rtt.is_some(),
        "{flow:?}"
    );
}
