//! Clients that break the protocol, against our server: each answered, counted, and no hindrance.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use loadline::base::units::{Bytes, Seconds};
use loadline::iperf::server::{Admit, Limits};
use loadline::iperf::wire::framed;
use loadline::model::link::{LinkProfile, LinkReason};
use rustix::net::{AddressFamily, SocketType};

use crate::{Ours, STRANGER, connect, mebibytes, patient_limits, profile, test, until};

const COOKIE: &[u8; 37] = b"abcdefghijklmnopqrstuvwxyz234567abcd\0";
const ASKS: &str =
    r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072}"#;

fn quick() -> LinkProfile {
    LinkProfile { runtime: Seconds(0.05), bytes_max: Some(mebibytes(1)), ..profile() }
}

/// All that comes until the end; an error where the end is a reset.
fn rest(mut socket: &TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).map(|_| bytes)
}

fn state(mut socket: &TcpStream) -> u8 {
    let mut byte = [0];
    socket.read_exact(&mut byte).unwrap();
    byte[0]
}

/// A control connection whose parameters were accepted.
fn begun(address: SocketAddr) -> TcpStream {
    asked(address, ASKS)
}

fn asked(address: SocketAddr, parameters: &str) -> TcpStream {
    let mut control = connect(address);
    control.write_all(COOKIE).unwrap();
    assert_eq!(state(&control), 9);
    control.write_all(&framed(parameters)).unwrap();
    assert_eq!(state(&control), 10);
    control
}

/// A test under way, and its only data connection.
fn running(address: SocketAddr) -> (TcpStream, TcpStream) {
    joined(address, begun(address))
}

fn joined(address: SocketAddr, control: TcpStream) -> (TcpStream, TcpStream) {
    let mut data = connect(address);
    data.write_all(COOKIE).unwrap();
    assert_eq!((state(&control), state(&control)), (1, 2));
    (control, data)
}

#[test]
fn busy_is_one_byte_and_an_end_without_a_reset() {
    let ours = Ours::patient();
    let _turn = ours.house.turn().unwrap();
    for _ in 0..20 {
        let mut second = connect(ours.address);
        second.write_all(COOKIE).unwrap();
        assert_eq!(state(&second), 9);
        second.write_all(&framed(ASKS)).unwrap();
        assert_eq!(rest(&second).unwrap(), [0xff]);
    }
    assert_eq!(ours.server.counts().get(&Some(LinkReason::Busy)), Some(&20));
}

#[test]
fn a_running_test_is_busy_to_whoever_comes() {
    let ours = Ours::patient();
    let (mut control, data) = running(ours.address);
    for _ in 0..20 {
        let mut second = connect(ours.address);
        // The same cookie too: all data connections are there.
        second.write_all(COOKIE).unwrap();
        // More than the cookie, unread: the answer must not be reset away.
        second.write_all(&[7; 5000]).unwrap();
        assert_eq!(rest(&second).unwrap(), [0xff]);
    }
    control.write_all(&[4]).unwrap();
    assert_eq!(state(&control), 13);
    drop((control, data));
    until("the slot", || test(ours.address, &quick()).is_ok());
}

#[test]
fn a_wrong_cookie_on_a_data_connection_costs_only_itself() {
    let ours = Ours::patient();
    let control = begun(ours.address);
    let mut wrong = connect(ours.address);
    let mut cookie = *COOKIE;
    cookie[0] = b'z';
    wrong.write_all(&cookie).unwrap();
    assert_eq!(rest(&wrong).unwrap(), [0xff]);
    let mut data = connect(ours.address);
    data.write_all(COOKIE).unwrap();
    assert_eq!((state(&control), state(&control)), (1, 2));
}

#[test]
fn other_protocols_are_sent_away_and_counted() {
    let ours = Ours::patient();
    let http = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(40)).into_bytes();
    let tls = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[0x5a; 40]].concat();
    let iperf2 = [&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x13, 0x89][..], &[0; 40]].concat();
    for bytes in [http, tls, iperf2, vec![0; 64], vec![0xff; 4000]] {
        let mut socket = connect(ours.address);
        socket.write_all(&bytes).unwrap();
        assert_eq!(rest(&socket).unwrap(), b"", "{bytes:?}");
    }
    assert_eq!(ours.server.counts().get(&Some(LinkReason::Protocol)), Some(&5));
    test(ours.address, &quick()).unwrap();
}

#[test]
fn malformed_parameters_are_refused_with_the_protocols_number() {
    let ours = Ours::patient();
    for bytes in [
        framed("[]"),
        framed("{"),
        framed("nonsense"),
        b"\xff\xff\xff\xff".to_vec(),
        b"\x00\x01\x00\x01".to_vec(),
        framed(&format!("{{\"x\":{}", "[".repeat(60_000))),
    ] {
        let mut socket = connect(ours.address);
        socket.write_all(COOKIE).unwrap();
        assert_eq!(state(&socket), 9);
        socket.write_all(&bytes).unwrap();
        assert_eq!(rest(&socket).unwrap(), [0xfe, 0, 0, 0, 114, 0, 0, 0, 0]);
    }
}

#[test]
fn a_stranger_is_told_and_takes_no_slot() {
    let ours = Ours::patient();
    let _turn = ours.house.turn().unwrap();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::new(STRANGER, 0)).unwrap();
    rustix::net::connect(&socket, &ours.address).unwrap();
    let mut socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(crate::PATIENCE)).unwrap();
    socket.write_all(COOKIE).unwrap();
    assert_eq!(rest(&socket).unwrap(), [0xfe, 0, 0, 0, 142, 0, 0, 0, 0]);
    assert_eq!(ours.server.counts().get(&Some(LinkReason::Denied)), Some(&1));
}

#[test]
fn hundreds_of_silent_dribbling_and_foreign_connections_keep_nobody_out() {
    let ours = Ours::patient();
    let mut crowd = Vec::new();
    for n in 0..400 {
        let mut socket = connect(ours.address);
        let _ = match n % 4 {
            0 => Ok(()),
            1 => socket.write_all(b"abc"),
            2 => socket.write_all(&[0; 4000]),
            // A cookie, and no parameters.
            _ => socket.write_all(COOKIE),
        };
        crowd.push(socket);
        if n % 100 == 99 {
            let measured = test(ours.address, &quick()).unwrap();
            assert_eq!(measured.forward.unwrap().received, mebibytes(1), "with {n} others");
        }
    }
}

#[test]
fn silence_in_each_phase_is_counted_and_frees_the_slot() {
    let short = Duration::from_millis(300);
    let ours = Ours::new(Limits {
        cookie: short,
        parameters: short,
        streams: short,
        end: short,
        results: short,
        leave: short,
        ..Limits::default()
    });
    let silent = connect(ours.address);
    assert_eq!(rest(&silent).unwrap(), b"");
    let mut no_parameters = connect(ours.address);
    no_parameters.write_all(COOKIE).unwrap();
    assert_eq!(rest(&no_parameters).unwrap(), [9]);
    let no_streams = begun(ours.address);
    assert_eq!(rest(&no_streams).unwrap(), [0xfe, 0, 0, 0, 204, 0, 0, 0, 0]);
    let (no_end, _data) = running(ours.address);
    assert_eq!(rest(&no_end).unwrap(), [0xfe, 0, 0, 0, 160, 0, 0, 0, 0]);
    let (mut no_results, _data) = running(ours.address);
    no_results.write_all(&[4]).unwrap();
    assert_eq!(rest(&no_results).unwrap(), [13]);
    until("all counted", || ours.server.counts().get(&Some(LinkReason::Timeout)) == Some(&5));
    // Before its own deadlines: a loaded machine is slow, and the limits are short.
    until("an honest client", || test(ours.address, &quick()).is_ok());
}

#[test]
fn a_client_that_dies_or_gives_up_frees_the_slot_at_once() {
    let ours = Ours::patient();
    drop(begun(ours.address));
    until("the slot after a dead handshake", || test(ours.address, &quick()).is_ok());
    drop(running(ours.address));
    until("the slot after a dead test", || test(ours.address, &quick()).is_ok());
    let (mut control, _data) = running(ours.address);
    control.write_all(&[12]).unwrap();
    assert_eq!(rest(&control).unwrap(), b"");
    until("the slot after CLIENT_TERMINATE", || test(ours.address, &quick()).is_ok());
    let (mut control, _data) = running(ours.address);
    control.write_all(&[9]).unwrap();
    assert_eq!(rest(&control).unwrap(), [0xfe, 0, 0, 0, 110, 0, 0, 0, 0]);
    until("the slot after nonsense", || test(ours.address, &quick()).is_ok());
}

#[test]
fn a_client_that_dies_once_it_has_all_its_bytes_frees_the_slot() {
    let ours = Ours::patient();
    let asks = ASKS.replace("\"num\":0", "\"num\":1000,\"reverse\":true");
    let (control, mut data) = joined(ours.address, asked(ours.address, &asks));
    data.read_exact(&mut [0; 1000]).unwrap();
    drop((control, data));
    until("the slot", || test(ours.address, &quick()).is_ok());
}

#[test]
fn malformed_results_are_refused_and_the_end_of_file_is_a_last_word() {
    let ours = Ours::patient();
    for bad in [framed("{}"), b"\x7f\xff\xff\xff".to_vec(), framed("x")] {
        let (mut control, _data) = running(ours.address);
        control.write_all(&[4]).unwrap();
        assert_eq!(state(&control), 13);
        control.write_all(&bad).unwrap();
        assert_eq!(rest(&control).unwrap(), [0xfe, 0, 0, 0, 117, 0, 0, 0, 0]);
    }
    let (mut control, _data) = running(ours.address);
    control.write_all(&[4]).unwrap();
    assert_eq!(state(&control), 13);
    let good = r#"{"cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,
        "sender_has_retransmits":1,"streams":[]}"#;
    control.write_all(&framed(good)).unwrap();
    let answer = rest(&control).unwrap();
    assert_eq!(answer.last(), Some(&14), "results, and DISPLAY_RESULTS right behind them");
    until("counted", || ours.server.counts().get(&None) == Some(&1));
}

#[test]
fn data_connections_are_numbered_as_they_were_opened() {
    let ours = Ours::patient();
    let mut control = connect(ours.address);
    control.write_all(COOKIE).unwrap();
    assert_eq!(state(&control), 9);
    control.write_all(&framed(&ASKS.replace("\"parallel\":1", "\"parallel\":3"))).unwrap();
    assert_eq!(state(&control), 10);
    let mut streams: Vec<TcpStream> = (0..3).map(|_| connect(ours.address)).collect();
    // A lost packet may hold the first cookie up.
    for at in [2, 1, 0] {
        streams[at].write_all(COOKIE).unwrap();
    }
    assert_eq!((state(&control), state(&control)), (1, 2));
    for (n, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&vec![7; 1000 * (n + 1)]).unwrap();
    }
    // Loopback delivers before the next call returns.
    control.write_all(&[4]).unwrap();
    assert_eq!(state(&control), 13);
    let good = r#"{"cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,
        "sender_has_retransmits":1,"streams":[]}"#;
    control.write_all(&framed(good)).unwrap();
    let answer = rest(&control).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&answer[4..answer.len() - 1]).unwrap();
    let counted: Vec<_> = json["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["id"].as_u64().unwrap(), s["bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(counted, [(1, 1000), (3, 2000), (4, 3000)]);
}

#[test]
fn a_window_that_this_kernel_does_not_give_is_refused_with_the_protocols_number() {
    let ours = Ours::patient();
    let mut control = connect(ours.address);
    control.write_all(COOKIE).unwrap();
    assert_eq!(state(&control), 9);
    let asks = ASKS.replace("\"len\"", "\"window\":536870912,\"len\"");
    control.write_all(&framed(&asks)).unwrap();
    assert_eq!(state(&control), 10);
    let mut data = connect(ours.address);
    data.write_all(COOKIE).unwrap();
    assert_eq!(rest(&control).unwrap(), [0xfe, 0, 0, 0, 141, 0, 0, 0, 0]);
}

#[test]
fn a_server_that_ends_waits_for_no_client() {
    // A client that owes its results for a minute; the server's end is not put off.
    let ours = Ours::patient();
    let (mut control, _data) = running(ours.address);
    control.write_all(&[4]).unwrap();
    assert_eq!(state(&control), 13);
    let ended = std::thread::spawn(move || drop(ours));
    assert_eq!(rest(&control).unwrap(), [0x0b]);
    ended.join().unwrap();
}

#[test]
fn a_client_that_sends_for_ever_ends_its_test_all_the_same() {
    let ours = Ours::patient();
    let (mut control, mut data) = running(ours.address);
    let sender = std::thread::spawn(move || while data.write_all(&[7; 65536]).is_ok() {});
    control.write_all(&[4]).unwrap();
    assert_eq!(state(&control), 13, "its data connection is closed by then");
    sender.join().unwrap();
}

#[test]
fn a_test_that_began_counts_as_one_and_no_other_connection_does() {
    let ours = Ours::new(Limits { bytes_max: Bytes(1000), ..patient_limits() });
    let mut http = connect(ours.address);
    http.write_all(&[b"GET / HTTP/1.1\r\n", &[b'x'; 40][..]].concat()).unwrap();
    assert_eq!(rest(&http).unwrap(), b"");
    let mut malformed = connect(ours.address);
    malformed.write_all(&[&COOKIE[..], &framed("[]")].concat()).unwrap();
    rest(&malformed).unwrap();
    let mut too_long = connect(ours.address);
    let asks = ASKS.replace("\"time\":1", "\"time\":61");
    too_long.write_all(&[&COOKIE[..], &framed(&asks)].concat()).unwrap();
    assert_eq!(rest(&too_long).unwrap(), [9, 0xfe, 0, 0, 0, 37, 0, 0, 0, 0]);
    let turn = ours.house.turn();
    let mut busy = connect(ours.address);
    busy.write_all(&[&COOKIE[..], &framed(ASKS)].concat()).unwrap();
    assert_eq!(rest(&busy).unwrap(), [9, 0xff]);
    drop((turn, connect(ours.address)));
    assert_eq!(ours.server.ended(), 0);

    drop(begun(ours.address));
    until("a dead handshake", || ours.server.ended() == 1);
    let (control, mut data) = running(ours.address);
    data.write_all(&[7; 1001]).unwrap();
    assert_eq!(rest(&control).unwrap(), [0xfe, 0, 0, 0, 27, 0, 0, 0, 0]);
    until("a test that was cut", || ours.server.ended() == 2);
}

#[test]
fn the_byte_limit_is_of_both_directions_together_and_cuts_the_test() {
    let ours = Ours::new(Limits { bytes_max: mebibytes(4), ..patient_limits() });
    let cut = [0xfe, 0, 0, 0, 27, 0, 0, 0, 0];
    let asks = ASKS.replace("\"num\":0", "\"num\":0,\"reverse\":true");
    let (control, data) = joined(ours.address, asked(ours.address, &asks));
    // All that a reverse test may move comes, and then an end.
    let sent = rest(&data).map(|bytes| bytes.len());
    assert_eq!((rest(&control).unwrap(), sent.unwrap()), (cut.to_vec(), (4 << 20) + 1));
    // Two directions of 3 MiB, neither of which is over the limit.
    let asks = ASKS.replace("\"num\":0", "\"num\":3145728,\"bidirectional\":true");
    let mut control = asked(ours.address, &asks);
    let mut up = connect(ours.address);
    up.write_all(COOKIE).unwrap();
    let (_control, mut down) = joined(ours.address, control.try_clone().unwrap());
    let sender = std::thread::spawn(move || up.write_all(&vec![7; 3 << 20]));
    let _ = down.read_to_end(&mut Vec::new());
    let mut said = [0; 9];
    control.read_exact(&mut said).unwrap();
    assert_eq!(said, cut);
    let _ = sender.join();
}
