//! A server with a known delay and a known stall: what is measured is at least what follows from arithmetic.
//!
//! On a busy machine everything may take longer, and nothing takes less. So counts are compared, and times only with
//! what they cannot be below.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use larder_bench::Outcome;

use super::{check_each, run_toml};

/// Answers each `get` by `END` after `delay`, except that it does nothing during the `stall`, counted from the first
/// byte. Requests that arrive on one connection while it waits are answered together.
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
                                thread::sleep(to.saturating_duration_since(Instant::now()));
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

/// Requests that took at least so long.
fn slower_than(outcome: &Outcome, millis: u64) -> u64 {
    let latencies = outcome.total.all().latency_nanos;
    latencies.count_between(millis * 1_000_000, latencies.high())
}

/// Requests of which the server's part took at least so long.
fn served_slower_than(outcome: &Outcome, millis: u64) -> u64 {
    let service = outcome.total.all().service_nanos;
    service.count_between(millis * 1_000_000, service.high())
}

#[test]
fn a_closed_loop_shows_the_delay() {
    let outcome = run_toml(
        &slow_server(Duration::from_millis(5), None),
        "until.secs = 1.0
        [[group]]
        connections = 4
        command = [{ kind = \"get\" }]",
    );
    assert_eq!(slower_than(&outcome, 5), outcome.total.all().requests);
    // 4 connections, each of them 200 a second at most.
    let requests = outcome.total.all().requests;
    assert!((1..=804).contains(&requests), "{requests}");
}

#[test]
fn an_open_loop_charges_a_stall_to_every_request_that_it_kept_waiting() {
    let stall = (Duration::from_secs(1), Duration::from_secs(1));
    let outcome = run_toml(
        &slow_server(Duration::ZERO, Some(stall)),
        "until.secs = 4.0
        [[group]]
        connections = 10
        pipeline = 10
        arrival = { loop = \"open\", rate_per_sec = 1000.0, spacing = \"even\" }
        command = [{ kind = \"get\" }]",
    );
    // 4000 requests. Those due in the stall waited from 1 s down to nothing, evenly: 250 of them longer than 750 ms,
    // 500 longer than 500 ms, 750 longer than 250 ms.
    let unsent = outcome.total.unsent;
    assert_eq!(outcome.total.all().requests + unsent, 4000);
    for (millis, expected) in [(750, 250), (500, 500), (250, 750)] {
        let waited = slower_than(&outcome, millis);
        assert!(waited + unsent >= expected - 10, "{waited} of {expected} waited {millis} ms");
    }
    assert!(millis(&outcome, 1.0) >= 900.0);
    // All but the hundred that were on their way could not be sent.
    let sent_late = outcome.total.sent_late;
    assert!(sent_late + unsent >= 800, "{sent_late}");
    // The server's part: of that hundred alone.
    let (waited, served) = (slower_than(&outcome, 200), served_slower_than(&outcome, 200));
    assert!(served + 600 <= waited + unsent, "{served} of {waited}");

    // A closed loop asks nothing while it waits, and so hardly notices: ten of some thousands.
    let outcome = run_toml(
        &slow_server(Duration::ZERO, Some(stall)),
        "until.secs = 3.0
        [[group]]
        connections = 10
        command = [{ kind = \"get\" }]",
    );
    let (waited, all) = (slower_than(&outcome, 800), outcome.total.all().requests);
    assert!(waited >= 1 && waited * 10 < all, "{waited} of {all}");
}

#[test]
fn connections_are_not_blamed_while_one_is_free() {
    let outcome = run_toml(
        &slow_server(Duration::ZERO, None),
        "until.secs = 2.0
        [[group]]
        connections = 50
        arrival = { loop = \"open\", rate_per_sec = 10.0 }
        command = [{ kind = \"get\" }]",
    );
    // There were fewer requests than connections, so one was always free, however late it was used.
    let (requests, late) = (outcome.total.all().requests, outcome.total.client_late);
    assert!((1..50).contains(&requests) && late <= requests, "{late} of {requests}");
    assert_eq!((outcome.total.sent_late, outcome.total.unsent), (0, 0));
}

#[test]
fn a_closed_loop_sees_a_stall_once_for_each_request_on_its_way() {
    let stall = (Duration::from_millis(500), Duration::from_secs(3));
    check_each([(1, 1), (10, 1), (2, 4)], |(connections, pipeline)| {
        let outcome = run_toml(
            &slow_server(Duration::from_millis(1), Some(stall)),
            &format!(
                "until.secs = 4.0
                [[group]]
                connections = {connections}
                pipeline = {pipeline}
                command = [{{ kind = \"get\" }}]"
            ),
        );
        // As much as the machine may be away at either end of the stall.
        let waited = slower_than(&outcome, 1500);
        assert_eq!(waited, connections * pipeline, "{connections} connections, {pipeline} in flight");
        assert_eq!(outcome.total.all().latency_nanos.len(), outcome.total.all().requests);
    });
}

/// Of an even schedule of R requests a second, a stall of S seconds makes R (S - t) wait longer than t.
#[test]
fn an_open_loop_counts_each_one_s_part_of_a_stall() {
    const RATE: u64 = 500;
    let stall = (Duration::from_millis(500), Duration::from_secs(1));
    let outcome = run_toml(
        &slow_server(Duration::ZERO, Some(stall)),
        &format!(
            "until.secs = 2.5
            [[group]]
            connections = 1
            pipeline = 1000
            arrival = {{ loop = \"open\", rate_per_sec = {RATE}.0, spacing = \"even\" }}
            command = [{{ kind = \"get\" }}]"
        ),
    );
    let unsent = outcome.total.unsent;
    assert_eq!(outcome.total.all().requests + unsent, RATE * 5 / 2);
    // The connection has room for all that are due. What is sent in time waits for the server alone.
    for millis in [200, 400, 600, 800] {
        let expected = RATE * (1000 - millis) / 1000;
        let (waited, served) = (slower_than(&outcome, millis), served_slower_than(&outcome, millis));
        assert!(waited + unsent + RATE / 20 >= expected, "{waited} of {expected} waited {millis} ms");
        assert!(served <= waited, "{served} of {waited} at {millis} ms");
        let late = outcome.total.sent_late;
        assert!(served + late + RATE / 20 >= waited, "{served} of {waited} at {millis} ms, {late} late");
    }
}

#[test]
fn more_than_a_server_can_take_waits_ever_longer() {
    const RATE: f64 = 400.0;
    const SECS: f64 = 3.0;
    const DELAY_MILLIS: f64 = 5.0;
    // One at a time and 5 ms each are no more than 200 a second.
    let outcome = run_toml(
        &slow_server(Duration::from_millis(5), None),
        &format!(
            "until.secs = {SECS}
            [[group]]
            connections = 1
            arrival = {{ loop = \"open\", rate_per_sec = {RATE}, spacing = \"even\" }}
            command = [{{ kind = \"get\" }}]"
        ),
    );
    let all = outcome.total.all();
    assert!(all.requests <= (SECS * 200.0) as u64 + 1, "{}", all.requests);
    assert_eq!(all.requests + outcome.total.unsent, (RATE * SECS) as u64);
    // The n-th was due at n / RATE, and no sooner answered than after n times 5 ms.
    let grows_millis = DELAY_MILLIS - 1000.0 / RATE;
    for quantile in [0.25, 0.5, 1.0] {
        let (measured, least) = (millis(&outcome, quantile), quantile * all.requests as f64 * grows_millis);
        // The histogram is exact to a hundredth.
        assert!(measured >= least * 0.99 - DELAY_MILLIS, "{quantile}: {measured} ms, not {least} ms");
    }
    // The server's part is its 5 ms each time, and the last of them waited for many such parts.
    assert_eq!(served_slower_than(&outcome, 5), all.requests);
    assert!(all.service_nanos.value_at_quantile(0.5) < all.latency_nanos.value_at_quantile(0.5));
}

#[test]
fn the_rate_of_an_open_loop_is_held_within_one_percent() {
    check_each([(1000, 4), (5000, 3)], |(rate, secs)| {
        let address = slow_server(Duration::ZERO, None);
        let outcome = run_toml(
            &address,
            &format!(
                "until.secs = {secs}.0
                [[group]]
                connections = 50
                arrival = {{ loop = \"open\", rate_per_sec = {rate}.0, spacing = \"even\" }}
                command = [{{ kind = \"get\" }}]"
            ),
        );
        let (asked, planned) = (outcome.total.all().requests as f64, f64::from(rate * secs));
        let off = (asked / outcome.elapsed_secs / f64::from(rate) - 1.0).abs();
        // A machine too busy to hold it says so.
        let late = (outcome.total.sent_late + outcome.total.unsent) as f64;
        assert!(off <= 0.01 || late > planned * 0.01, "{asked} in {} s", outcome.elapsed_secs);
        assert!((asked + outcome.total.unsent as f64 - planned).abs() <= 2.0, "{asked} of {planned}");
    });
}

#[test]
fn the_rate_is_held() {
    let address = slow_server(Duration::ZERO, None);
    let arrivals = [
        ("loop = \"open\", rate_per_sec = 2000.0, spacing = \"even\"", 3998..=4002),
        // Poisson: 4000 with a standard deviation of 63.
        ("loop = \"open\", rate_per_sec = 2000.0", 3680..=4320),
        // At most: a client that gets no CPU for a while does not make up for it.
        ("loop = \"paced\", rate_per_sec = 2000.0", 1..=4002),
        // From 1000 to 3000 a second: 4000 as well.
        (
            "loop = \"open\", rate_per_sec = 1000.0, rate_end_per_sec = 3000.0, spacing = \"even\"",
            3998..=4002,
        ),
    ];
    check_each(arrivals, |(arrival, expected)| {
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
    });
}

/// Rates are told by period: the last one must not be said to be longer than it was. Here it would be ten seconds.
#[test]
fn the_last_period_is_as_long_as_it_was() {
    let address = slow_server(Duration::from_millis(5), None);
    for until in ["secs = 1.5", "requests = 500"] {
        let outcome = run_toml(
            &address,
            &format!(
                "period_secs = 10\nuntil = {{ {until} }}\n[[group]]\nconnections = 2\ncommand = [{{ kind = \"get\" }}]\n"
            ),
        );
        let told: f64 = outcome.periods.iter().map(|period| period.secs).sum();
        // The two are read one after the other.
        let apart = (told - outcome.elapsed_secs).abs();
        assert!(apart < outcome.elapsed_secs / 2.0, "{until}: {told} s of {} s", outcome.elapsed_secs);
    }
}
