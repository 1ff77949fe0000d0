//! Servers that corrupt, lose, keep too long, answer twice, hang or close are caught each time.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use larder_bench::RunError;
use larder_bench::outcome::Failure;

use super::{failures, run_toml, try_run};

/// What a server does wrong with every 20th get.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Corrupt,
    Truncate,
    OtherKey,
    WrongFlags,
    Stale,
    Lose,
    ExpireNever,
    ExpireAtOnce,
    AnswerTwice,
    Hang,
    Close,
    Refuse,
    NoMemory,
}

#[derive(Default)]
struct Items {
    /// Flags, value, and the value before.
    by_key: HashMap<String, (String, Vec<u8>, Vec<u8>)>,
    gets: u64,
}

/// A small server of `get` and `set` that takes no notice of expiry.
fn faulty_server(fault: Fault) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let items = Arc::new(Mutex::new(Items::default()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let items = items.clone();
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    let answer = match words[..] {
                        ["get", key] => get(&mut items.lock().unwrap(), key, fault),
                        ["set", key, flags, _, bytes] => {
                            let mut value = vec![0; bytes.parse::<usize>().unwrap() + 2];
                            reader.read_exact(&mut value).unwrap();
                            value.truncate(value.len() - 2);
                            let items = &mut items.lock().unwrap().by_key;
                            let before = items.remove(key).map_or_else(|| value.clone(), |item| item.1);
                            items.insert(key.into(), (flags.into(), value, before));
                            Some(b"STORED\r\n".to_vec())
                        }
                        _ => Some(b"ERROR\r\n".to_vec()),
                    };
                    match answer {
                        Some(answer) if stream.write_all(&answer).is_ok() => {}
                        Some(_) => return,
                        None if fault == Fault::Hang => thread::sleep(Duration::from_secs(3600)),
                        None => return,
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

/// `None`: no answer.
fn get(items: &mut Items, key: &str, fault: Fault) -> Option<Vec<u8>> {
    items.gets += 1;
    let is_wrong = items.gets % 20 == 0;
    let Some((flags, value, before)) = items.by_key.get(key) else { return Some(b"END\r\n".to_vec()) };
    let answer = |key: &str, flags: &str, value: &[u8]| {
        [format!("VALUE {key} {flags} {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
    };
    let right = answer(key, flags, value);
    if !is_wrong {
        return Some(right);
    }
    Some(match fault {
        Fault::None | Fault::ExpireNever => right,
        Fault::Corrupt => {
            let mut value = value.clone();
            let middle = value.len() / 2;
            value[middle] ^= 0x10;
            answer(key, flags, &value)
        }
        Fault::Truncate => answer(key, flags, &value[..value.len() - 1]),
        Fault::OtherKey => {
            let (_, (flags, value, _)) = items.by_key.iter().find(|(other, _)| *other != key)?;
            answer(key, flags, value)
        }
        Fault::WrongFlags => answer(key, "1", value),
        Fault::Stale => answer(key, flags, before),
        Fault::Lose | Fault::ExpireAtOnce => b"END\r\n".to_vec(),
        Fault::AnswerTwice => right.repeat(2),
        Fault::Hang | Fault::Close => return None,
        Fault::Refuse => b"SERVER_ERROR I do not feel like it\r\n".to_vec(),
        Fault::NoMemory => b"SERVER_ERROR out of memory storing object\r\n".to_vec(),
    })
}

#[track_caller]
fn assert_caught(fault: Fault, kinds: &[Failure]) {
    let outcome = run_toml(
        &faulty_server(fault),
        "fill = true
        until.requests = 2000
        truth = { verify = 1.0, misses_fail = true, timeout_secs = 0.3 }
        [[group]]
        connections = 2
        keys.count = 20
        command = [{ kind = \"get\" }, { kind = \"set\" }]",
    );
    let total = &outcome.total;
    for (kind, count) in &total.failures {
        assert!(kinds.contains(kind), "{fault:?}: {count} of {kind:?}: {:?}", total.examples);
    }
    if !kinds.is_empty() {
        assert!(!total.examples.is_empty());
        assert!(kinds.iter().any(|&kind| failures(&outcome, kind) > 0), "{fault:?} was not seen");
    }
    if kinds.len() == 1 && !matches!(fault, Fault::AnswerTwice | Fault::Hang | Fault::Close | Fault::Stale) {
        // About 1000 gets, of which every 20th is wrong.
        let caught = failures(&outcome, kinds[0]);
        assert!((40..=60).contains(&caught), "{fault:?}: {caught} caught");
    }
}

#[test]
fn a_right_server_passes() {
    assert_caught(Fault::None, &[]);
}

#[test]
fn a_server_that_corrupts_is_caught() {
    assert_caught(Fault::Corrupt, &[Failure::WrongValue]);
    assert_caught(Fault::Truncate, &[Failure::WrongValue]);
    assert_caught(Fault::OtherKey, &[Failure::WrongValue]);
    assert_caught(Fault::WrongFlags, &[Failure::WrongValue]);
}

#[test]
fn a_server_that_brings_back_the_past_is_caught() {
    assert_caught(Fault::Stale, &[Failure::StaleValue]);
}

#[test]
fn a_server_that_loses_is_caught() {
    assert_caught(Fault::Lose, &[Failure::Lost]);
}

#[test]
fn a_server_that_refuses_is_caught() {
    assert_caught(Fault::Refuse, &[Failure::ErrorReply]);
    assert_caught(Fault::NoMemory, &[Failure::OutOfMemory]);
}

#[test]
fn a_server_that_answers_twice_is_caught() {
    assert_caught(Fault::AnswerTwice, &[Failure::Protocol]);
}

#[test]
fn a_server_that_closes_is_caught() {
    assert_caught(Fault::Close, &[Failure::Closed]);
}

#[test]
fn a_server_that_hangs_is_caught() {
    let outcome = run_toml(
        &faulty_server(Fault::Hang),
        "fill = true
        until.secs = 2.0
        truth.timeout_secs = 0.2
        [[group]]
        connections = 2
        keys.count = 20
        command = [{ kind = \"get\" }]",
    );
    let hung = failures(&outcome, Failure::Timeout);
    // Every 20th get hangs for 0.2 s, until the next look at it.
    assert!((5..=25).contains(&hung), "{hung}");
    assert!(outcome.total.reconnects + 2 >= hung);
    // 19 answers for each that did not come.
    assert!((outcome.total.all().requests / 19).abs_diff(hung) <= 1, "{hung}");
}

#[test]
fn a_server_that_expires_wrongly_is_caught() {
    for (fault, failure) in
        [(Fault::ExpireNever, Failure::ExpiredLate), (Fault::ExpireAtOnce, Failure::ExpiredEarly)]
    {
        // It holds all for ever, or loses every 20th at once, whereas half of the keys live for a second and half for an hour.
        let outcome = run_toml(
            &faulty_server(fault),
            "until.secs = 3.0
            truth = { verify_expiry = 1.0, expiry_slack_secs = 0.5 }
            [[group]]
            connections = 1
            keys = { count = 1000, popularity = { spread = \"sequential\" } }
            requests = 1000
            command = [{ kind = \"set\", ttl = [{ secs = 1, weight = 1.0 }, { secs = 3600, weight = 1.0 }] }]
            [[group]]
            connections = 1
            keys.count = 1000
            arrival = { loop = \"paced\", rate_per_sec = 1000.0 }
            command = [{ kind = \"get\" }]",
        );
        let total = &outcome.total;
        // Neither of them expires anything in time.
        let allowed = [Failure::ExpiredLate, failure];
        assert!(total.failures.keys().all(|kind| allowed.contains(kind)), "{:?}", total.examples);
        assert!(total.expiry_verified > 1500, "{}", total.expiry_verified);
        // Of 3000 gets half are of keys with an hour, and 1 of 20 misses; the others' second is over, slack and doubt included, for 1.1 s.
        let expected = if failure == Failure::ExpiredEarly { 40..=110 } else { 300..=900 };
        assert!(expected.contains(&failures(&outcome, failure)), "{:?}", total.failures);
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = try_run(&address, "[[group]]\ncommand = [{ kind = \"get\" }]").unwrap_err();
    assert!(matches!(error, RunError::Server { .. }), "{error}");
    assert!(error.to_string().starts_with(&address), "{error}");
}
