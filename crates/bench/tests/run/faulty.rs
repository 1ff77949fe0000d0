//! Servers that corrupt, lose, keep too long, answer twice, hang or close are caught each time.

mod server;
mod wire;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use larder_bench::RunError;
use larder_bench::outcome::{Failure, Outcome};
use larder_bench::scenario::Kind;

use self::server::{Fault, FaultyServer};
use super::{check_each, failures, run_toml, try_run};

const DIALECTS: [&str; 3] = ["text", "meta", "binary"];

/// Reads and stores of a few keys, all of them checked. `more` belongs to the group. However long a server is without
/// CPU, no answer counts as missing.
fn run_checked(server: &FaultyServer, requests: u64, more: &str) -> Outcome {
    run_impatient(server, requests, 60.0, more)
}

/// The same, where answers that do not come are expected, and waited for so long.
fn run_impatient(server: &FaultyServer, requests: u64, timeout_secs: f64, more: &str) -> Outcome {
    run_toml(
        &server.address,
        &format!(
            "fill = true
            until.requests = {requests}
            truth = {{ verify = 1.0, verify_expiry = 1.0, misses_fail = true, timeout_secs = {timeout_secs:?} }}
            [[group]]
            keys.count = 40
            {more}"
        ),
    )
}

const ALL_GETS: &str = "command = [{ kind = \"get\" }, { kind = \"get\", keys = 5 }, { kind = \"set\" }]";
const SINGLE_GETS: &str = "command = [{ kind = \"get\" }, { kind = \"set\" }]";

#[track_caller]
fn assert_only(outcome: &Outcome, kinds: &[Failure], what: &str) {
    let total = &outcome.total;
    assert!(
        total.failures.keys().all(|kind| kinds.contains(kind)),
        "{what}: {:?} {:?}",
        total.failures,
        total.examples
    );
}

/// How many of `kind` were seen and how many there were, with one request at a time: nothing is in doubt.
#[track_caller]
fn caught_in_turn(fault: Fault, kind: Failure, more: &str) -> (u64, u64) {
    let server = FaultyServer::start(fault, 20);
    let outcome = run_checked(&server, 800, &format!("connections = 1\n{more}"));
    assert_only(&outcome, &[kind], &format!("{fault:?}, {more}"));
    assert!(!outcome.total.examples.is_empty(), "{fault:?}, {more}: not seen");
    let committed = server.committed();
    assert!(committed >= 5, "{committed} times {fault:?}");
    (failures(&outcome, kind), committed)
}

/// Every fault is seen, once each, and as what it is, in each dialect.
#[track_caller]
fn assert_each_is_caught(fault: Fault, kind: Failure, commands: &str) {
    for dialect in DIALECTS {
        let more = format!("protocol = \"{dialect}\"\n{commands}");
        let (caught, committed) = caught_in_turn(fault, kind, &more);
        assert_eq!(caught, committed, "{fault:?}, {dialect}");
    }
}

/// With many requests on their way at the same time some are in doubt, but none is taken for something else.
#[track_caller]
fn assert_caught_in_a_crowd(fault: Fault, kind: Failure) {
    for dialect in DIALECTS {
        let server = FaultyServer::start(fault, 20);
        let more = format!("connections = 6\npipeline = 4\nprotocol = \"{dialect}\"\n{ALL_GETS}");
        let outcome = run_checked(&server, 3000, &more);
        assert_only(&outcome, &[kind], &format!("{fault:?}, {dialect}"));
        let (caught, committed) = (failures(&outcome, kind), server.committed());
        assert!((1..=committed).contains(&caught), "{fault:?}, {dialect}: {caught} of {committed}");
        // An overlapping store puts only the order in doubt.
        if !matches!(fault, Fault::Stale) {
            assert_eq!(caught, committed, "{fault:?}, {dialect}");
        }
    }
}

/// The server's accept queue is full at first, as when many clients connect at once.
#[test]
fn connections_wait_for_a_server_that_takes_its_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    rustix::net::listen(&listener, 1).unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                    stream.write_all(b"END\r\n").unwrap();
                }
            });
        }
    });
    let outcome = run_toml(
        &address,
        "until.requests = 10
        truth.timeout_secs = 60.0
        [[group]]
        connections = 10
        command = [{ kind = \"get\" }]",
    );
    assert_only(&outcome, &[], "connected");
    assert_eq!(outcome.total.all().requests, 10);
}

#[test]
fn a_right_server_passes_every_check() {
    let cases = DIALECTS.into_iter().flat_map(|dialect| [("tcp", dialect), ("udp", dialect)]);
    check_each(cases, |(transport, dialect)| {
        let server = FaultyServer::start(Fault::None, 1);
        let outcome = run_toml(
            &server.address,
            &format!(
                "fill = true
                threads = 2
                until.requests = 6000
                truth = {{ verify = 1.0, verify_expiry = 1.0, expiry_slack_secs = 0.5, misses_fail = true }}
                [[group]]
                connections = 6
                pipeline = 4
                protocol = \"{dialect}\"
                transport = \"{transport}\"
                arrival = {{ loop = \"paced\", rate_per_sec = 2000.0 }}
                keys.count = 500
                command = [
                    {{ kind = \"get\", weight = 10.0 }},
                    {{ kind = \"get\", keys = 5, weight = 4.0 }},
                    {{ kind = \"set\", ttl = [{{ secs = 1, weight = 2.0 }}, {{ secs = 0, weight = 1.0 }}] }},
                    {{ kind = \"set\", noreply = true }},
                    {{ kind = \"delete\", weight = 0.2 }},
                ]"
            ),
        );
        assert_only(&outcome, &[], &format!("{transport}, {dialect}"));
        let total = &outcome.total;
        assert!(total.verified > 1000 && total.expiry_verified > 500, "{transport}, {dialect}");
        assert!(total.commands[&Kind::Get].misses > 100, "{transport}, {dialect}");
    });
}

#[test]
fn wrong_values_are_caught() {
    for fault in [Fault::Corrupt, Fault::Shorten, Fault::OtherValue, Fault::WrongFlags] {
        assert_each_is_caught(fault, Failure::WrongValue, ALL_GETS);
        assert_caught_in_a_crowd(fault, Failure::WrongValue);
    }
}

#[test]
fn wrong_values_are_caught_over_udp() {
    for fault in [Fault::Corrupt, Fault::OtherValue] {
        for dialect in DIALECTS {
            let more = format!("protocol = \"{dialect}\"\ntransport = \"udp\"\n{ALL_GETS}");
            let (caught, committed) = caught_in_turn(fault, Failure::WrongValue, &more);
            assert_eq!(caught, committed, "{fault:?}, {dialect}");
        }
    }
}

#[test]
fn another_key_than_asked_for_is_caught() {
    let (caught, committed) = caught_in_turn(Fault::OtherKey, Failure::Protocol, SINGLE_GETS);
    assert_eq!(caught, committed);
}

#[test]
fn the_past_is_caught() {
    assert_each_is_caught(Fault::Stale, Failure::StaleValue, ALL_GETS);
    assert_caught_in_a_crowd(Fault::Stale, Failure::StaleValue);
}

#[test]
fn stores_and_deletes_that_were_not_made_are_caught() {
    for dialect in DIALECTS {
        for (fault, commands) in [
            (Fault::DropStore, SINGLE_GETS),
            (Fault::DropStore, "command = [{ kind = \"get\" }, { kind = \"set\", noreply = true }]"),
            (Fault::DropDelete, "command = [{ kind = \"get\" }, { kind = \"set\" }, { kind = \"delete\" }]"),
        ] {
            let more = format!("protocol = \"{dialect}\"\n{commands}");
            // Seen as often as the key is read before it is stored again.
            let (caught, committed) = caught_in_turn(fault, Failure::StaleValue, &more);
            assert!(caught >= committed / 4, "{fault:?}, {dialect}: {caught}, {committed} committed");
        }
    }
}

#[test]
fn lost_keys_are_caught() {
    assert_each_is_caught(Fault::Lose, Failure::Lost, ALL_GETS);
    assert_caught_in_a_crowd(Fault::Lose, Failure::Lost);
}

#[test]
fn wrong_expiry_is_caught() {
    let faults = [(Fault::ExpireLate, Failure::ExpiredLate), (Fault::ExpireEarly, Failure::ExpiredEarly)];
    let cases = DIALECTS.into_iter().flat_map(|dialect| faults.map(|fault| (fault, dialect)));
    check_each(cases, |((fault, failure), dialect)| {
        let server = FaultyServer::start(fault, 10);
        let outcome = run_toml(
            &server.address,
            &format!(
                "until.secs = 4.0
                truth = {{ verify = 1.0, verify_expiry = 1.0, expiry_slack_secs = 0.5, misses_fail = true }}
                [[group]]
                connections = 1
                protocol = \"{dialect}\"
                keys = {{ count = 1000, popularity = {{ spread = \"sequential\" }} }}
                requests = 1000
                command = [{{ kind = \"set\", ttl = [{{ secs = 1, weight = 1.0 }}, {{ secs = 3600, weight = 1.0 }}] }}]
                [[group]]
                connections = 1
                protocol = \"{dialect}\"
                keys.count = 1000
                arrival = {{ loop = \"paced\", rate_per_sec = 1000.0 }}
                command = [{{ kind = \"get\" }}, {{ kind = \"get\", keys = 3 }}]"
            ),
        );
        assert_only(&outcome, &[failure], &format!("{fault:?}, {dialect}"));
        let (caught, committed) = (failures(&outcome, failure), server.committed());
        // In doubt: an hour's key that is just being stored, a second's key in its last moments.
        assert!(committed > 50, "{fault:?}, {dialect}: {committed}");
        assert!((committed * 3 / 4..=committed).contains(&caught), "{dialect}: {caught} of {committed}");
    });
}

#[test]
fn what_nobody_asked_for_is_caught() {
    // A get of many may name a key twice, which then is answered before it is asked for.
    assert_each_is_caught(Fault::AnswerTwice, Failure::Protocol, SINGLE_GETS);
    assert_each_is_caught(Fault::Unasked, Failure::Protocol, SINGLE_GETS);
    for dialect in DIALECTS {
        let commands = "command = [{ kind = \"get\" }, { kind = \"set\", noreply = true }]";
        let more = format!("protocol = \"{dialect}\"\n{commands}");
        let (caught, committed) = caught_in_turn(Fault::AnswerQuiet, Failure::Protocol, &more);
        assert!((committed / 2..=committed).contains(&caught), "{dialect}: {caught} of {committed}");
    }
}

#[test]
fn a_second_answer_to_the_last_request_is_caught() {
    for dialect in DIALECTS {
        // Of ten stores of one key nine are opportunities.
        let server = FaultyServer::start(Fault::AnswerTwiceLater, 9);
        let outcome = run_toml(
            &server.address,
            &format!(
                "until.requests = 10
                truth.verify = 1.0
                [[group]]
                connections = 1
                protocol = \"{dialect}\"
                keys.count = 1
                command = [{{ kind = \"set\" }}]"
            ),
        );
        assert_eq!(server.committed(), 1);
        assert_eq!(failures(&outcome, Failure::Protocol), 1, "{dialect}: {:?}", outcome.total.failures);
        assert_only(&outcome, &[Failure::Protocol], dialect);
        assert_eq!(outcome.total.all().requests, 10);
    }
}

#[test]
fn what_goes_wrong_before_the_clock_starts_counts_as_well() {
    for dialect in DIALECTS {
        let server = FaultyServer::start(Fault::AnswerFirstTwice, 30);
        let more = format!("connections = 1\nprotocol = \"{dialect}\"\n{SINGLE_GETS}");
        let outcome = run_checked(&server, 200, &more);
        assert_only(&outcome, &[Failure::Protocol], dialect);
        assert!(outcome.total.has_failed() && server.committed() > 0, "{dialect}");
        assert_eq!(outcome.total.all().requests, 200, "{dialect}");
    }
}

#[test]
fn refusals_are_caught() {
    assert_each_is_caught(Fault::Refuse, Failure::ErrorReply, ALL_GETS);
    assert_each_is_caught(Fault::NoMemory, Failure::OutOfMemory, ALL_GETS);
}

#[test]
fn closed_connections_are_caught() {
    for fault in [Fault::Close, Fault::CloseMidway] {
        assert_each_is_caught(fault, Failure::Closed, ALL_GETS);
    }
}

/// Each of these costs a timeout. A server that gets no CPU for so long may add one of its own.
#[test]
fn silence_is_caught() {
    let faults = [
        (Fault::Hang, &DIALECTS[..]),
        (Fault::HangMidway, &DIALECTS),
        (Fault::AnswerLate, &DIALECTS),
        (Fault::CutOut(50), &DIALECTS),
        // In text the end of the answer is taken for the end of the value, which it does not look like.
        (Fault::CutOut(3), &["meta", "binary"]),
    ];
    let cases =
        faults.into_iter().flat_map(|(fault, dialects)| dialects.iter().map(move |dialect| (fault, dialect)));
    check_each(cases, |(fault, dialect)| {
        let server = FaultyServer::start(fault, 30);
        let more = format!("connections = 1\nprotocol = \"{dialect}\"\n{SINGLE_GETS}");
        let outcome = run_impatient(&server, 250, 0.4, &more);
        assert_only(&outcome, &[Failure::Timeout], &format!("{fault:?}, {dialect}"));
        let (caught, committed) = (failures(&outcome, Failure::Timeout), server.committed());
        assert!(committed >= 2, "{fault:?}, {dialect}: {committed}");
        assert!(caught >= committed, "{fault:?}, {dialect}: {caught} of {committed}");
        assert!(outcome.total.reconnects >= caught, "{fault:?}, {dialect}");
        assert_eq!(outcome.total.all().requests + caught, 250, "{fault:?}, {dialect}");
    });
    let (caught, committed) = caught_in_turn(Fault::CutOut(3), Failure::Protocol, SINGLE_GETS);
    assert_eq!(caught, committed);
}

/// An answer that comes when its request has been given up is not taken for that to the next.
#[test]
fn late_datagrams_are_lost_and_harm_nothing() {
    check_each(DIALECTS, |dialect| {
        let server = FaultyServer::start(Fault::AnswerLate, 30);
        let more = format!("connections = 1\nprotocol = \"{dialect}\"\ntransport = \"udp\"\n{SINGLE_GETS}");
        let outcome = run_impatient(&server, 250, 0.4, &more);
        assert_only(&outcome, &[], dialect);
        let (lost, committed) = (outcome.total.datagrams_lost, server.committed());
        assert!(lost >= committed && committed >= 2, "{dialect}: {lost} of {committed}");
        assert_eq!(outcome.total.all().requests + lost, 250, "{dialect}");
    });
}

#[test]
fn a_server_that_stops_reading_is_caught() {
    check_each(DIALECTS, |dialect| {
        let server = FaultyServer::start(Fault::StopReading, 10);
        let outcome = run_toml(
            &server.address,
            &format!(
                "until.requests = 40
                truth = {{ verify = 1.0, timeout_secs = 0.4 }}
                [[group]]
                connections = 1
                protocol = \"{dialect}\"
                keys.count = 4
                values.bytes = 1000000
                command = [{{ kind = \"set\", noreply = true }}]"
            ),
        );
        assert_only(&outcome, &[Failure::Timeout], dialect);
        assert!(failures(&outcome, Failure::Timeout) > 0, "{dialect}");
        assert_eq!(outcome.total.all().requests, 40, "{dialect}");
    });
}

/// It takes connections, and says nothing ever.
#[test]
fn a_server_that_never_says_a_word_is_caught() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let scenario = "until.secs = 0.5\ntruth.timeout_secs = 0.2\n[[group]]\nconnections = 2\ncommand = [{}]";
    let outcome = run_toml(&address, scenario);
    assert_only(&outcome, &[Failure::Timeout], "asked");
    assert!(failures(&outcome, Failure::Timeout) >= 2);
    let firsts = [
        "fill = true",
        "flush = true",
        "target.tls = {}",
        "target.login = { user = \"a\", password = \"b\" }",
    ];
    check_each(firsts, |first| {
        let error = try_run(&address, &format!("{first}\n{scenario}")).unwrap_err();
        assert!(matches!(error, RunError::Server { .. }), "{first}: {error}");
    });
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    // A port that was free a moment ago may be another program's by now.
    let address = "127.0.0.1:1";
    let error = try_run(address, "[[group]]\ncommand = [{ kind = \"get\" }]").unwrap_err();
    assert!(matches!(error, RunError::Server { .. }), "{error}");
    assert!(error.to_string().starts_with(address), "{error}");
}
