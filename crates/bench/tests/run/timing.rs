//! A server with a known delay and a known stall: what is measured follows from arithmetic.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use larder_bench::Outcome;

use super::run_toml;

/// Answers each `get` by `END` after `delay`, except that it does nothing during the `stall`, counted from the first byte. Requests that
/// arrive on one connection while it waits are answered together.
fn slow_server(delay: Duration, stall: Option<(Duration, Duration)>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let begin = std::sync::Arc::new(std::sync::OnceLock::new());
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let begin = begin.clone();
            thread::spawn(move || {
                let mut buffer = [0; 64 * 1024];
                while let Ok(n) = stream.read(&mut buffer) {
                    if n == 0 {
                        break;
                    }
                    let is_get = buffer[..n].starts_with(b"get");
                    if is_get {
                        let begin: Instant = *begin.get_or_init(Instant::now);
                        if let Some((from, length)) = stall {
                            let (from, to) = (begin + from, begin + from + length);
                            if (from..to).contains(&Instant::now()) {
                                thread::sleep(to - Instant::now());
                            }
                        }
                        thread::sleep(delay);
                    }
                    let lines = buffer[..n].iter().filter(|&&byte| byte == b'\n').count();
                    let answer: &[u8] = if is_get { b"END\r\n" } else { b"ERROR\r\n" };
                    if stream.write_all(&answer.repeat(lines)).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

fn millis(outcome: &Outcome, quantile: f64) -> f64 {
    outcome.total.all().latency_nanos.value_at_quantile(quantile) as f64 / 1e6
}

#[test]
fn a_closed_loop_shows_the_delay() {
    let address = slow_server(Duration::from_millis(5), None);
    let outcome = run_toml(
        &address,
        "until.secs = 1.0
        [[group]]
        connections = 4
        command = [{ kind = \"get\" }]",
    );
    let p50 = millis(&outcome, 0.5);
    assert!((5.0..6.5).contains(&p50), "{p50}");
    // 4 connections, each of them 200 a second at most.
    let requests = outcome.total.all().requests;
    assert!((500..=804).contains(&requests), "{requests}");
}

#[test]
fn an_open_loop_charges_a_stall_to_every_request_that_it_kept_waiting() {
    let stall = (Duration::from_secs(1), Duration::from_secs(1));
    let address = slow_server(Duration::ZERO, Some(stall));
    let outcome = run_toml(
        &address,
        "until.secs = 4.0
        [[group]]
        connections = 10
        pipeline = 10
        arrival = { loop = \"open\", rate_per_sec = 1000.0, spacing = \"even\" }
        command = [{ kind = \"get\" }]",
    );
    // 4000 requests. Those due in the stall waited from 1 s down to nothing, evenly: a quarter of all. So 1/16 of all
    // waited longer than 750 ms, 1/8 longer than 500 ms, 3/16 longer than 250 ms, and three quarters not at all.
    assert_eq!(outcome.total.all().requests + outcome.total.unsent, 4000);
    for (quantile, expected) in
        [(1.0 - 1.0 / 16.0, 750.0), (1.0 - 1.0 / 8.0, 500.0), (1.0 - 3.0 / 16.0, 250.0)]
    {
        let measured = millis(&outcome, quantile);
        // What waited goes out over a hundred places, which takes a while.
        assert!((expected - 60.0..expected + 150.0).contains(&measured), "{quantile}: {measured} ms");
    }
    assert!((900.0..1150.0).contains(&millis(&outcome, 1.0)));
    assert!(millis(&outcome, 0.5) < 50.0);
    // All but the hundred that were on their way could not be sent.
    assert!(outcome.total.sent_late >= 800, "{}", outcome.total.sent_late);
    // The server's part: only that hundred waited, a fortieth.
    let service = &outcome.total.all().service_nanos;
    assert!(service.value_at_quantile(0.95) < 200_000_000, "{}", service.value_at_quantile(0.95));

    // A closed loop asks nothing while it waits, and so hardly notices.
    let address = slow_server(Duration::ZERO, Some(stall));
    let outcome = run_toml(
        &address,
        "until.secs = 3.0
        [[group]]
        connections = 10
        command = [{ kind = \"get\" }]",
    );
    assert!(millis(&outcome, 0.99) < 100.0);
    assert!((900.0..1150.0).contains(&millis(&outcome, 1.0)));
}

#[test]
fn the_rate_is_held() {
    let address = slow_server(Duration::ZERO, None);
    for (arrival, expected) in [
        ("loop = \"open\", rate_per_sec = 2000.0, spacing = \"even\"", 3998..=4002),
        // Poisson: 4000 with a standard deviation of 63.
        ("loop = \"open\", rate_per_sec = 2000.0", 3680..=4320),
        // At most: a client that gets no CPU for a while does not make up for it.
        ("loop = \"paced\", rate_per_sec = 2000.0", 3500..=4002),
        // From 1000 to 3000 a second: 4000 as well.
        (
            "loop = \"open\", rate_per_sec = 1000.0, rate_end_per_sec = 3000.0, spacing = \"even\"",
            3998..=4002,
        ),
    ] {
        let outcome = run_toml(
            &address,
            &format!(
                "until.secs = 2.0
                threads = 2
                [[group]]
                connections = 20
                arrival = {{ {arrival} }}
                command = [{{ kind = \"get\" }}]"
            ),
        );
        let asked = outcome.total.all().requests + outcome.total.unsent;
        assert!(expected.contains(&asked), "{arrival}: {asked}");
    }
}
