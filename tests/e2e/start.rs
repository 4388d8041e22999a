//! Starting and stopping.

use std::time::Duration;

use rustix::process::Signal;

use crate::Promise;
use crate::harness::{NO_PROBES, Setup, until_idle, until_within};

pub const PROMISES: &[Promise] = &[
    Promise::new("start_by_hand_has_results_of_the_first_pass_within_a_minute", first_pass).alone(),
    Promise::new("first_lines_say_what_is_done_where_and_what_is_off", first_lines),
    Promise::new("sigterm_ends_within_5_s_in_the_middle_of_a_probe", stop_in_a_probe).alone(),
    Promise::new("silent_and_idle_sockets_cost_no_scrape", many_sockets),
];

fn first_pass() {
    until_idle();
    let daemon = Setup { log: true, ..Setup::default() }.start();
    for profile in ["seq_read", "rand_read", "seq_write", "rand_rw", "rand_write"] {
        let label = format!("probe=\"{profile}\"");
        let rate = until_within(Duration::from_secs(60), profile, || {
            daemon.page().get("loadline_probe_operations_per_second", &[&label])
        });
        assert!(rate > 0.0, "{profile}: {rate}");
    }
    let page = daemon.page();
    for direction in ["read", "write"] {
        let name = format!("loadline_probe_{direction}_latency_seconds");
        let q50 = page.get(&name, &["probe=\"latency\"", "q=\"0.5\""]);
        // 16 reads are enough for no quantile but the mean; the histogram always is there.
        let count = page.get(
            &format!("loadline_probe_{direction}_duration_seconds_count"),
            &["probe=\"latency\""],
        );
        assert!(count.is_some_and(|n| n > 0.0), "{direction}: {count:?} {q50:?}");
    }
    let html = daemon.get("/").unwrap();
    assert!(html.contains("seq_read") && html.contains("/metrics"), "{html}");
}

fn first_lines() {
    let daemon = Setup::default().start();
    let text = daemon.printed();
    for wanted in
        ["samples", "probes", "off", "open", "every 1 s", "writes at most", "a day of 2 GiB"]
    {
        assert!(text.contains(wanted), "`{wanted}` is missing in\n{text}");
    }
    assert!(text.contains(&format!("http://127.0.0.1:{}/metrics", daemon.port)), "{text}");
}

fn stop_in_a_probe() {
    let config = "
targets: [{name: t, path: TARGET, ballast: 64MiB}]
probes: [{name: long, kind: disk, target: t, every: 1h, disk: {profile: rand_read, runtime: 60s}}]
";
    until_idle();
    let dir = crate::harness::disk_dir();
    let text = config.replace("TARGET", &dir.path().display().to_string());
    let mut daemon = Setup::config(text).start();
    // On whichever disk of this host the directory lies.
    crate::harness::until_within(crate::harness::PATIENCE * 4, "a run at work", || {
        let page = daemon.page();
        let at_work = page.all("loadline_probe_active_seconds_total", &[]);
        at_work.iter().any(|(_, seconds)| *seconds > 0.0).then_some(())
    });
    crate::harness::until("the run", || {
        let html = daemon.get("/").ok()?;
        html.contains("running").then_some(())
    });
    daemon.signal(Signal::TERM);
    let status = daemon.wait(Duration::from_secs(5));
    assert!(status.success(), "{status}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.iter().all(|p| p.ends_with(".loadline")), "{left:?}");
}

fn many_sockets() {
    use std::io::Write;
    use std::net::TcpStream;
    let daemon = Setup::config(NO_PROBES).start();
    let mut held = Vec::new();
    for n in 0..500 {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", daemon.port)) else { continue };
        match n % 4 {
            0 => {}
            1 => drop(socket.write_all(b"GET /metr")),
            2 => drop(socket.write_all(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")),
            // Asks for the page and never reads it.
            _ => drop(socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")),
        }
        held.push(socket);
    }
    assert!(held.len() > 400, "only {} sockets", held.len());
    for _ in 0..10 {
        let page = daemon.get("/metrics").expect("an honest scrape");
        assert!(page.contains("loadline_build_info"));
    }
}
