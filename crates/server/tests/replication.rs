//! Sites that all take writes, as processes: they converge, over links that are cut, slow, or deaf in one direction,
//! and through deaths. `SEED` repeats a run's requests.

#[path = "replication/client.rs"]
mod client;
#[path = "replication/compare.rs"]
mod compare;
#[path = "replication/proxy.rs"]
mod proxy;
#[path = "replication/site.rs"]
mod site;

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use client::Client;
use larder_conformance::server::eventually;
use proxy::Link;
use site::{Cluster, ENGINES};

/// Waits until both sites have the same of each key: value, flags, exptime and CAS value.
fn converge(one: &mut Client, other: &mut Client, keys: &[String]) {
    let since = std::time::Instant::now();
    loop {
        let (ones, others) = (one.look_up(keys), other.look_up(keys));
        let unequal: Vec<_> =
            ones.iter().zip(&others).zip(keys).filter(|((one, other), _)| one != other).collect();
        if unequal.is_empty() {
            return;
        }
        if since.elapsed().as_secs() > 30 {
            let figures = [one.figures(), other.figures()].concat();
            panic!("{} keys differ, such as {:?}\n{figures}", unequal.len(), unequal[0]);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key{number}")).collect()
}

#[test]
fn what_one_site_does_the_other_has() {
    for engine in ENGINES {
        let cluster = Cluster::of(2, engine);
        let (mut one, mut other) = (cluster.client(0), cluster.client(1));
        let keys = keys(8);
        assert_eq!(one.ask("set key0 7 0 3\r\none\r\n"), "STORED");
        assert_eq!(other.ask("set key1 9 1000 3\r\ntwo\r\n"), "STORED");
        eventually(|| other.ask("mg key0 f\r\n") == "HD f7" && one.ask("mg key1 f\r\n") == "HD f9");
        converge(&mut one, &mut other, &keys);
        // Each way, and what only one site's memory has.
        assert_eq!(other.ask("set key2 0 0 2\r\n10\r\n"), "STORED");
        eventually(|| one.ask("mg key2\r\n") == "HD");
        assert_eq!(one.ask("incr key2 5\r\n"), "15");
        eventually(|| other.ask("mg key2 s v\r\n") == "VA 2 s2" && other.line() == "15");
        assert_eq!(other.ask("touch key0 5000\r\n"), "TOUCHED");
        eventually(|| one.ask("mg key0 t\r\n").strip_prefix("HD t").is_some_and(|ttl| ttl != "-1"));
        assert_eq!(one.ask("delete key1\r\n"), "DELETED");
        eventually(|| other.ask("mg key1\r\n") == "EN");
        converge(&mut one, &mut other, &keys);
        // A flush is one of what is older: later sets stay, on both sites.
        assert_eq!(other.ask("flush_all\r\n"), "OK");
        assert_eq!(other.ask("set key5 0 0 5\r\nlater\r\n"), "STORED");
        eventually(|| one.ask("mg key0\r\n") == "EN" && one.ask("mg key5\r\n") == "HD");
        converge(&mut one, &mut other, &keys);
        assert_eq!(one.look_up(&keys).iter().flatten().count(), 1);
    }
}

#[test]
fn a_client_gives_no_version_of_its_own() {
    let cluster = Cluster::of(1, "memory");
    let mut one = cluster.client(0);
    for request in ["ms key 1 E77\r\nx\r\n", "md key I E77\r\n", "ma key N0 E77\r\n", "mg key N0 E77\r\n"] {
        let reply = one.ask(request);
        assert!(reply.starts_with("CLIENT_ERROR "), "{request}: {reply}");
    }
    assert_eq!(one.ask("mg key\r\n"), "EN");
}

/// With `-Z` all of it goes through TLS, and nobody learns anything without a certificate.
#[test]
fn sites_with_tls_converge_and_strangers_learn_nothing() {
    let mut cluster = Cluster::encrypted(2, "log");
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    let keys = keys(40);
    let value = "x".repeat(300_000);
    for (nth, key) in keys.iter().enumerate() {
        let client = if nth % 2 == 0 { &mut one } else { &mut other };
        assert_eq!(client.ask(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len())), "STORED");
    }
    eventually(|| one.look_up(&keys).iter().flatten().count() == 40);
    converge(&mut one, &mut other, &keys);
    // Who speaks no TLS gets an alert, and no challenge.
    let mut stream = std::net::TcpStream::connect(cluster.listen(0)).expect("it listens");
    stream.write_all(&[b'?'; 100]).expect("it is open");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() < 20 && !answer.windows(8).any(|bytes| bytes == b"LARDRREP"), "{answer:?}");
    // Nor does a site whose certificate is of another authority.
    cluster.start_as_stranger(1);
    let mut stranger = cluster.client(1);
    assert_eq!(one.ask("set key0 0 0 3\r\nnew\r\n"), "STORED");
    for client in [&mut one, &mut stranger] {
        eventually(|| client.figures().contains("last_error TLS: "));
    }
    assert_eq!(stranger.ask("mg key0 s\r\n"), "HD s300000");
    assert!(stranger.figures().contains(":connected no"));
}

/// What both sites had, and one deletes while the link is cut, stays deleted, whatever the other one does with it in
/// its memory; and what it set anew later stays.
#[test]
fn what_was_deleted_during_a_cut_does_not_come_back() {
    for engine in ENGINES {
        let cluster = Cluster::of(2, engine);
        let (mut one, mut other) = (cluster.client(0), cluster.client(1));
        let keys = keys(1000);
        keys.iter().for_each(|key| assert_eq!(one.ask(&format!("set {key} 0 0 3\r\nold\r\n")), "STORED"));
        converge(&mut one, &mut other, &keys);
        cluster.set_links(Link::Cut);
        keys[..500].iter().for_each(|key| assert_eq!(other.ask(&format!("delete {key}\r\n")), "DELETED"));
        // Touched at the one while it is deleted at the other: older than the deletion or newer, its value is gone.
        keys[..100].iter().for_each(|key| assert_eq!(one.ask(&format!("touch {key} 9000\r\n")), "TOUCHED"));
        keys[100..200].iter().for_each(|key| {
            assert_eq!(one.ask(&format!("set {key} 0 0 3\r\nnew\r\n")), "STORED");
        });
        cluster.set_links(Link::Open);
        eventually(|| one.look_up(&keys[200..500]).iter().flatten().count() == 0);
        converge(&mut one, &mut other, &keys);
        let found = one.look_up(&keys);
        assert_eq!(found[..100].iter().flatten().count(), 0, "deleted, and touched before or after that");
        assert_eq!(found[100..200].iter().flatten().count(), 100, "set after they were deleted");
        assert_eq!(found[200..500].iter().flatten().count(), 0);
        assert_eq!(found[500..].iter().flatten().count(), 500);
    }
}

/// Both sites change the same keys at full speed, while the links between them fail in every way.
#[test]
fn sites_that_fight_over_keys_converge() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    for engine in ENGINES {
        let cluster = Cluster::of(2, engine);
        let keys = keys(2000);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for site in 0..2 {
                let (mut client, keys, is_over) = (cluster.client(site), &keys, &is_over);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed ^ site as u64);
                    while !is_over.load(SeqCst) {
                        client.change_at_random(keys, &mut rng, true);
                    }
                });
            }
            let mut rng = fastrand::Rng::with_seed(!seed);
            for _ in 0..12 {
                let link = [Link::Open, Link::Cut, Link::Slow, Link::Deaf][rng.usize(..4)];
                if rng.bool() {
                    cluster.set_links(link)
                } else {
                    cluster.set_link(rng.usize(..2), link)
                }
                std::thread::sleep(std::time::Duration::from_millis(rng.u64(100..500)));
            }
            is_over.store(true, SeqCst);
        });
        cluster.set_links(Link::Open);
        let (mut one, mut other) = (cluster.client(0), cluster.client(1));
        // Both have what the other one has done since.
        for (client, mark) in [(&mut one, "mark0"), (&mut other, "mark1")] {
            assert_eq!(client.ask(&format!("set {mark} 0 0 1\r\nx\r\n")), "STORED");
        }
        eventually(|| one.ask("mg mark1\r\n") == "HD" && other.ask("mg mark0\r\n") == "HD");
        converge(&mut one, &mut other, &keys);
        assert!(one.look_up(&keys).iter().flatten().count() > 100, "not everything is gone");
        assert!(cluster.stat(0, ":conflicts") + cluster.stat(1, ":conflicts") > 0);
    }
}

/// Sites that are killed while both write go on with what they had, and lose nothing that the other one has not.
#[test]
fn sites_that_are_killed_converge() {
    let mut cluster = Cluster::of(2, "log");
    let keys = keys(500);
    for round in 0..4 {
        for site in 0..2 {
            let mut client = cluster.client(site);
            let mut rng = fastrand::Rng::with_seed(round * 2 + site as u64);
            (0..40).for_each(|_| client.change_at_random(&keys, &mut rng, false));
        }
        cluster.kill(round as usize % 2);
        let mut left = cluster.client((round as usize + 1) % 2);
        let mut rng = fastrand::Rng::with_seed(100 + round);
        (0..10).for_each(|_| left.change_at_random(&keys, &mut rng, false));
        cluster.start_again(round as usize % 2);
    }
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    for (client, mark) in [(&mut one, "mark0"), (&mut other, "mark1")] {
        assert_eq!(client.ask(&format!("set {mark} 0 0 1\r\nx\r\n")), "STORED");
    }
    eventually(|| one.ask("mg mark1\r\n") == "HD" && other.ask("mg mark0\r\n") == "HD");
    converge(&mut one, &mut other, &keys);
    assert!(one.look_up(&keys).iter().flatten().count() > 50, "not everything is gone");
}

/// A third site that has nothing takes a copy, while the others go on.
#[test]
fn a_new_site_joins_while_the_others_serve() {
    for engine in ENGINES {
        let mut cluster = Cluster::of_planned(2, 3, engine);
        let keys = keys(2000);
        let mut one = cluster.client(0);
        keys.iter().for_each(|key| {
            assert_eq!(one.ask(&format!("set {key} 0 0 {}\r\n{}\r\n", key.len(), key)), "STORED");
        });
        keys[..200].iter().for_each(|key| assert_eq!(one.ask(&format!("delete {key}\r\n")), "DELETED"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for site in 0..2 {
                let (mut client, keys, is_over) = (cluster.client(site), &keys, &is_over);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(site as u64);
                    while !is_over.load(SeqCst) {
                        client.change_at_random(&keys[..1000], &mut rng, false);
                    }
                });
            }
            let joined = cluster.start_site(2);
            let mut third = Client::of(&joined);
            eventually(|| third.look_up(&keys[1000..]).iter().flatten().count() == 1000);
            is_over.store(true, SeqCst);
            cluster.add(joined);
        });
        let (mut one, mut other, mut third) = (cluster.client(0), cluster.client(1), cluster.client(2));
        for (client, mark) in [(&mut one, "mark0"), (&mut other, "mark1"), (&mut third, "mark2")] {
            assert_eq!(client.ask(&format!("set {mark} 0 0 1\r\nx\r\n")), "STORED");
        }
        for client in [&mut one, &mut other, &mut third] {
            eventually(|| {
                ["mark0", "mark1", "mark2"].iter().all(|mark| client.ask(&format!("mg {mark}\r\n")) == "HD")
            });
        }
        converge(&mut one, &mut other, &keys);
        converge(&mut one, &mut third, &keys);
    }
}
