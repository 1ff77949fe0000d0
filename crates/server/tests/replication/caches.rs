//! Caches of two sites that tell each other what they have changed.

use larder_conformance::server::eventually;

use larder_replication::told::{Told, decode_told};
use larder_replication::wire::{Gap, RingCursor, Side};

use crate::client::Client;
use crate::peer::Peer;
use crate::site::Cluster;
use larder_conformance::sites::link::Link;

const NAMESPACES: &str = r#"
[namespace."page:"]
keep = "cache"
replicate = "invalidations"
[namespace."value:"]
keep = "cache"
replicate = "values"
[namespace."own:"]
keep = "cache"
"#;

/// Two sites, once each follows the other.
fn sites() -> Cluster {
    let cluster = Cluster::with_namespaces(2, "memory", NAMESPACES);
    (0..2).for_each(|site| await_following(&mut cluster.client(site)));
    cluster
}

fn await_following(client: &mut Client) {
    eventually(|| client.figures().contains(":caches_connected yes"));
}

fn set(client: &mut Client, key: &str, value: &str) {
    assert_eq!(client.ask(&format!("set {key} 5 0 {}\r\n{value}\r\n", value.len())), "STORED");
}

fn has(client: &mut Client, key: &str) -> bool {
    client.ask(&format!("mg {key}\r\n")) == "HD"
}

/// So many deletions of keys of 200 bytes, at once.
fn delete_many(client: &mut Client, prefix: &str, count: usize) {
    let requests: String =
        (0..count).map(|number| format!("delete {prefix}{number:0200} noreply\r\n")).collect();
    assert_eq!(client.ask(&format!("{requests}mn\r\n")), "MN");
}

/// What is deleted, marked or flushed at one site is so at the other one; what is stored there stays.
#[test]
fn invalidations_are_told_and_fills_are_not() {
    let cluster = sites();
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    for key in ["page:a", "page:b", "page:c", "page:d", "own:a"] {
        set(&mut one, key, "one");
        set(&mut other, key, "other");
    }
    assert_eq!(one.ask("delete own:a\r\n"), "DELETED");
    assert_eq!(one.ask("delete page:a\r\n"), "DELETED");
    eventually(|| !has(&mut other, "page:a"));
    // Also what this site has not.
    assert_eq!(one.ask("delete page:a\r\n"), "NOT_FOUND");
    set(&mut other, "page:e", "other");
    assert_eq!(one.ask("delete page:e\r\n"), "NOT_FOUND");
    eventually(|| !has(&mut other, "page:e"));
    // But not what was refused.
    assert_eq!(one.ask("md page:c C1\r\n"), "EX");
    assert_eq!(one.ask("md page:b I T300\r\n"), "HD");
    // Who reads it first is to recompute it, at each site.
    eventually(|| other.ask("mg page:b\r\n") == "HD X W");
    assert_eq!(other.ask("mg page:b v\r\n"), "VA 5 Z X");
    assert_eq!(other.line(), "other");
    // An empty value, and the end of a key.
    assert_eq!(other.ask("md page:d x\r\n"), "HD");
    eventually(|| one.ask("mg page:d s\r\n") == "HD s0");
    for (client, value) in [(&mut one, "one"), (&mut other, "other")] {
        assert_eq!(client.ask("mg page:c v\r\n"), format!("VA {}", value.len()));
        assert_eq!(client.line(), value);
    }
    assert!(has(&mut other, "own:a"));
    assert_eq!(other.ask("flush_prefix page:\r\n"), "OK");
    eventually(|| !has(&mut one, "page:c"));
    set(&mut one, "page:c", "one");
    set(&mut one, "own:b", "one");
    assert_eq!(one.ask("flush_all\r\n"), "OK");
    set(&mut one, "page:f", "one");
    assert_eq!(one.ask("delete page:f\r\n"), "DELETED");
    // The default namespace is a cache that takes no part, and so is own:.
    eventually(|| other.stat("1:caches_told") > 0 || one.stat("2:caches_told") >= 7);
    assert!(has(&mut other, "own:a") && !has(&mut one, "own:b"));
}

/// A value comes with its flags and its expiry, however it was changed; and goes nowhere from there.
#[test]
fn values_are_told_once() {
    let cluster = sites();
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    let is_there = |client: &mut Client, key: &str, flags: &str, value: &str| {
        let reply = client.ask(&format!("mg {key} v f\r\n"));
        let found = if reply.starts_with("VA ") { client.line() } else { String::new() };
        reply == format!("VA {} {flags}", value.len()) && found == value
    };
    set(&mut one, "value:a", "one");
    eventually(|| has(&mut other, "value:a") && is_there(&mut other, "value:a", "f5", "one"));
    assert_eq!(one.ask("append value:a 0 0 4\r\nmore\r\n"), "STORED");
    eventually(|| is_there(&mut other, "value:a", "f5", "onemore"));
    assert_eq!(one.ask("touch value:a 1000\r\n"), "TOUCHED");
    eventually(|| other.ask("mg value:a t\r\n").strip_prefix("HD t").is_some_and(|ttl| ttl != "-1"));
    set(&mut one, "value:n", "41");
    assert_eq!(one.ask("incr value:n 1\r\n"), "42");
    eventually(|| has(&mut other, "value:n") && is_there(&mut other, "value:n", "f5", "42"));
    let long = "x".repeat(300_000);
    set(&mut one, "value:long", &long);
    eventually(|| has(&mut other, "value:long") && is_there(&mut other, "value:long", "f5", &long));
    assert_eq!(one.ask("delete value:a\r\n"), "DELETED");
    eventually(|| !has(&mut other, "value:a"));
    // The way back.
    set(&mut other, "value:b", "other");
    eventually(|| has(&mut one, "value:b"));
    assert_eq!(one.ask("mg value:n v f c\r\n").split(' ').next(), Some("VA"));
    assert_eq!(one.line(), "42");
    // What was applied was not told again: each site has told its own changes, seven and one.
    eventually(|| {
        other.stat(":caches_applied") + other.stat(":caches_outdated") == one.stat("2:caches_told")
    });
    assert_eq!((one.stat("2:caches_told"), other.stat("1:caches_told")), (7, 1));
}

/// A value is on its way here while this site flushes: it was stored before, and stays away.
#[test]
fn a_flush_meets_what_is_on_its_way() {
    let cluster = sites();
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    // So that the value is told before the flush is known.
    cluster.set_links(Link::Slow);
    for number in 0..5 {
        let (late, mark) = (format!("value:late{number}"), format!("value:mark{number}"));
        set(&mut one, &late, "one");
        assert_eq!(other.ask("flush_prefix value:\r\n"), "OK");
        eventually(|| !has(&mut one, &late));
        set(&mut one, &mark, "one");
        eventually(|| has(&mut other, &mark));
        assert!(!has(&mut other, &late), "{late} was flushed, and is back");
    }
}

/// What is set at once after a flush is at the other site, too.
#[test]
fn what_follows_a_flush_stays_at_both_sites() {
    let cluster = sites();
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    for round in 0..10 {
        let sets: String =
            (0..200).map(|number| format!("set value:{round}-{number} 0 0 1 noreply\r\nx\r\n")).collect();
        assert_eq!(
            one.ask(&format!("flush_prefix value: noreply\r\n{sets}set value:last{round} 0 0 1\r\nx\r\n")),
            "STORED"
        );
        let keys: Vec<_> = (0..200).map(|number| format!("value:{round}-{number}")).collect();
        eventually(|| other.values(&keys).iter().flatten().count() == 200);
    }
}

/// A short cut is resumed; after a long one, or a restart of the peer, what may be missing is flushed, no more.
#[test]
fn after_a_gap_nothing_outdated_is_served() {
    let mut cluster = sites();
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    for key in ["page:a", "page:b", "page:c", "value:a"] {
        set(&mut other, key, "other");
    }
    eventually(|| has(&mut one, "value:a"));
    let flushes = other.stat(":caches_flushes");
    cluster.set_links(Link::Cut);
    eventually(|| other.figures().contains(":caches_connected no"));
    delete_many(&mut one, "page:x", 100);
    assert_eq!(one.ask("delete page:a\r\n"), "NOT_FOUND");
    assert!(has(&mut other, "page:a"), "nobody has told it");
    cluster.set_links(Link::Open);
    eventually(|| !has(&mut other, "page:a"));
    assert!(has(&mut other, "page:b") && other.stat(":caches_flushes") == flushes, "resumed, not flushed");
    // More than the ring holds.
    cluster.set_links(Link::Cut);
    eventually(|| other.figures().contains(":caches_connected no"));
    assert_eq!(one.ask("delete page:b\r\n"), "NOT_FOUND");
    delete_many(&mut one, "page:x", 90_000);
    assert!(one.stat("ring_bytes") <= 16 << 20);
    assert!(has(&mut other, "page:b") && has(&mut other, "page:c"));
    cluster.set_links(Link::Open);
    eventually(|| !has(&mut other, "page:b"));
    assert!(!has(&mut other, "page:c"));
    eventually(|| other.stat(":caches_flushes") > flushes);
    assert!(has(&mut other, "value:a"), "nothing of it is missing");
    // And what is stored from here on stays.
    await_following(&mut other);
    eventually(|| one.stat("2:caches_told") > 0 && other.stat(":caches_applied") > 100);
    set(&mut other, "page:c", "other");
    let flushes = other.stat(":caches_flushes");
    cluster.kill(0);
    eventually(|| other.figures().contains(":caches_connected no"));
    assert!(has(&mut other, "page:c"));
    cluster.start_again(0);
    eventually(|| !has(&mut other, "page:c"));
    eventually(|| other.stat(":caches_flushes") > flushes && !has(&mut other, "value:a"));
}

/// Who says that it takes no body so long is told that the value is gone, and hears what follows.
#[test]
fn a_value_that_a_peer_does_not_take_is_gone_there() {
    let mut cluster = Cluster::with_namespaces(2, "memory", NAMESPACES);
    cluster.stop(1);
    let mut client = cluster.client(0);
    let follow = Side::Follow { cursor: RingCursor::default(), body_bytes_max: 400_000 };
    let mut peer = Peer::connect(cluster.listen(0), 2, follow);
    assert!(matches!(peer.next().0, Side::Following(_, Gap::All)));
    let mut told = |client: &mut Client, value: &str| {
        set(client, "value:a", value);
        let (side, body) = peer.next();
        assert!(matches!(side, Side::Told { .. }), "{side:?}");
        decode_told(&body).expect("it is told").first().map(|told| matches!(told, Told::Value { .. }))
    };
    let (small, large) = ("x".repeat(100_000), "x".repeat(400_000));
    let values = [&small, &large, &small].map(|value| told(&mut client, value));
    assert_eq!(values, [Some(true), Some(false), Some(true)]);
    assert_eq!((client.stat("2:caches_too_large"), client.stat("2:caches_told")), (1, 3));
}

/// Both sites change the same keys at full speed, over links that fail: then they have the same.
#[test]
fn caches_that_fight_over_keys_converge() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let cluster = sites();
    let keys: Vec<_> = (0..300).map(|number| format!("value:{number}")).collect();
    std::thread::scope(|scope| {
        for site in 0..2 {
            let (mut client, keys) = (cluster.client(site), &keys);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ site as u64);
                (0..200).for_each(|_| client.change_at_random(keys, &mut rng, false));
            });
        }
        let mut rng = fastrand::Rng::with_seed(!seed);
        for _ in 0..6 {
            cluster.set_link(rng.usize(..2), [Link::Open, Link::Cut, Link::Slow][rng.usize(..3)]);
            std::thread::sleep(std::time::Duration::from_millis(rng.u64(50..200)));
        }
    });
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    // However the threads took turns: of this key one site's value comes too late.
    cluster.set_links(Link::Cut);
    for client in [&mut one, &mut other] {
        eventually(|| client.figures().contains(":caches_connected no"));
        set(client, &keys[0], "1000");
    }
    cluster.set_links(Link::Open);
    let values = |client: &mut Client| client.values(&keys);
    let since = std::time::Instant::now();
    while values(&mut one) != values(&mut other) {
        if since.elapsed().as_secs() > 60 {
            panic!("the sites differ\n{}{}", one.figures(), other.figures());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(values(&mut one).iter().flatten().count() > 50, "not everything is gone");
    eventually(|| one.stat(":caches_outdated") + other.stat(":caches_outdated") > 0);
    // Each at one of the sites.
    for (nth, key) in keys.iter().enumerate() {
        let client = if nth % 2 == 0 { &mut one } else { &mut other };
        client.ask(&format!("delete {key}\r\n"));
    }
    eventually(|| values(&mut one).iter().chain(&values(&mut other)).flatten().count() == 0);
}
