//! The busiest keys and prefixes of a load whose truth is known.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server::Larderd;

/// A key of rank r is asked for with weight 1/r (Zipf), of 100,000 keys. Prefixes, each of all ranks between two
/// squares, then have shares of about 2/g.
///
/// What is reported is right if nothing is clearly busier than what is named before it, or instead of it. Clearly: by
/// more than five standard deviations of the sample, from which the busiest are told.
#[test]
fn the_busiest_keys_and_prefixes_of_a_zipf_load_are_named() {
    let server = Larderd::start(&["-t", "4"]);
    let start = Instant::now();
    let sums = weights();
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|seed| {
            let (sums, address) = (sums.clone(), server.cache);
            thread::spawn(move || ask(address, seed, &sums))
        })
        .collect();
    let mut keys = vec![0_u64; KEYS];
    for thread in threads {
        let asked = thread.join().expect("it does not panic");
        keys.iter_mut().zip(asked).for_each(|(sum, count)| *sum += count);
    }
    let mut prefixes = vec![0_u64; prefix(KEYS) + 1];
    keys.iter().enumerate().for_each(|(at, count)| prefixes[prefix(at + 1)] += count);

    // A worker looks at 4,000 keys in a second if so many come; half of that is taken for granted.
    let secs = start.elapsed().as_secs_f64();
    let samples = (2_000.0 * secs * CONNECTIONS as f64).min(keys.iter().sum::<u64>() as f64);
    let reported: Value = serde_json::from_str(&server.get("/api/keys").body).expect("it is JSON");
    let ranks = named(&reported["keys"], |name| name.split_once(':').map(|(_, rank)| rank));
    check(&ranks.iter().map(|rank| rank - 1).collect::<Vec<_>>(), &keys, samples);
    check(&named(&reported["prefixes"], |name| name.strip_prefix("group")), &prefixes, samples);
}

/// Whatever the pieces are in which values arrive and replies are sent. So few that all of them are looked at.
#[test]
fn a_key_counts_as_often_as_it_was_asked_for() {
    let server = Larderd::start(&["-t", "1"]);
    let mut stream = TcpStream::connect(server.cache).expect("larderd listens");
    let mut ask = |request: &[u8], reply: &[u8]| {
        stream.write_all(request).expect("larderd reads");
        let mut answered = vec![0; reply.len()];
        stream.read_exact(&mut answered).expect("larderd answers");
        assert!(answered == reply, "{}", request.escape_ascii());
    };
    let value = "x".repeat(60_000);
    ask(b"set key 0 0 60000\r\n", b"");
    thread::sleep(Duration::from_millis(100));
    ask(format!("{value}\r\n").as_bytes(), b"STORED\r\n");
    let hit = format!("VALUE key 0 60000\r\n{value}\r\n");
    let replies = format!("{hit}END\r\n").repeat(20);
    ask("get key\r\n".repeat(20).as_bytes(), replies.as_bytes());
    ask(
        "get key\r\ntouch none 0\r\n".repeat(20).as_bytes(),
        replies.replace("END\r\n", "END\r\nNOT_FOUND\r\n").as_bytes(),
    );
    ask(format!("get{}\r\n", " key".repeat(20)).as_bytes(), format!("{}END\r\n", hit.repeat(20)).as_bytes());
    let reported: Value = serde_json::from_str(&server.get("/api/keys").body).expect("it is JSON");
    assert_eq!((&reported["keys"][0]["name"], &reported["keys"][0]["requests"]), (&"key".into(), &61.into()));
}

/// Sums of the weights of all ranks up to each.
fn weights() -> Vec<f64> {
    let mut sum = 0.0;
    (1..=KEYS)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect()
}

/// The number of the prefix of a key, from its rank.
fn prefix(rank: usize) -> usize {
    (rank - 1).isqrt()
}

/// Asks for keys drawn by the weights, at no more than 40,000 in a second; returns how often each was asked for.
fn ask(address: SocketAddr, seed: u64, sums: &[f64]) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut counts = vec![0; sums.len()];
    let mut stream = TcpStream::connect(address).expect("larderd listens");
    for _ in 0..BATCHES {
        let mut gets = String::new();
        for _ in 0..BATCH {
            let drawn = random.f64() * sums[sums.len() - 1];
            let at = sums.partition_point(|&sum| sum < drawn);
            counts[at] += 1;
            gets += &format!("get group{}:{}\r\n", prefix(at + 1), at + 1);
        }
        stream.write_all(gets.as_bytes()).expect("larderd reads");
        let mut replies = [0; BATCH * b"END\r\n".len()];
        stream.read_exact(&mut replies).expect("larderd answers");
        assert_eq!(replies, *b"END\r\n".repeat(BATCH));
        thread::sleep(Duration::from_millis(5));
    }
    counts
}

/// The numbers in the names that are reported, the busiest first.
fn named(reported: &Value, number: impl Fn(&str) -> Option<&str>) -> Vec<usize> {
    let names = reported.as_array().expect("a list").iter().map(|key| key["name"].as_str().expect("a name"));
    names.map(|name| number(name).and_then(|text| text.parse().ok()).expect("it is one of ours")).collect()
}

/// Whether the twenty that are reported are right, by how often each was asked for.
#[track_caller]
fn check(reported: &[usize], counts: &[u64], samples: f64) {
    let all = counts.iter().sum::<u64>() as f64;
    // A count is estimated from a sample with a variance of count * all / samples.
    let is_clearly_more = |one: u64, other: u64| {
        let (one, other) = (one as f64, other as f64);
        one - other > 5.0 * ((one + other) * all / samples).sqrt()
    };
    assert_eq!(reported.len(), 20);
    for (place, &named) in reported.iter().enumerate() {
        for (other, &count) in
            counts.iter().enumerate().filter(|(other, _)| !reported[..place].contains(other))
        {
            let (less, more) = (counts[named], count);
            assert!(!is_clearly_more(more, less), "{named} ({less}) is named before {other} ({more})");
        }
    }
    // That it says anything: the first five at least can be told from the twenty-first.
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|one, other| other.cmp(one));
    assert!(is_clearly_more(sorted[4], sorted[20]), "the sample is too small: {samples}");
}

const KEYS: usize = 100_000;
const CONNECTIONS: u64 = 4;
const BATCHES: usize = 600;
const BATCH: usize = 200;
