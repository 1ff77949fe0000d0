//! Sites that all take writes, as processes: they converge, over links that are cut, slow, or deaf in one direction,
//! and through deaths. `SEED` repeats a run's requests.

#[path = "replication/caches.rs"]
mod caches;
#[path = "replication/client.rs"]
mod client;
#[path = "replication/compare.rs"]
mod compare;
#[path = "replication/copies.rs"]
mod copies;
#[path = "replication/damage.rs"]
mod damage;
#[path = "replication/homes.rs"]
mod homes;
#[path = "replication/members.rs"]
mod members;
#[path = "replication/older_copies.rs"]
mod older_copies;
#[path = "replication/peer.rs"]
mod peer;
#[path = "replication/site.rs"]
mod site;

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use client::Client;
use larder_conformance::server::eventually;
use larder_conformance::sites::link::Link;
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
        if since.elapsed().as_secs() > 60 {
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

/// Each conflict is counted with its namespace, and told to who watches, as is what becomes of a peer.
#[test]
fn conflicts_and_lost_peers_are_told() {
    let cluster = Cluster::of(2, "memory");
    let (mut one, mut other, mut watcher) = (cluster.client(0), cluster.client(1), cluster.client(1));
    assert_eq!(watcher.ask("watch replication\r\n"), "OK");
    cluster.set_links(Link::Cut);
    let mut told = |what: &str| {
        loop {
            let line = watcher.line();
            if line.contains(what) {
                return line;
            }
        }
    };
    assert!(told(" type=site ").contains(" site=1 state=lost peer=127.0.0.1:"));
    assert_eq!(one.ask("set a%b 0 0 5\r\nfirst\r\n"), "STORED");
    assert_eq!(other.ask("set a%b 0 0 6\r\nsecond\r\n"), "STORED");
    // Its own change has not reached the other one, which would else not send what it has replaced.
    cluster.set_link(1, Link::Open);
    assert!(told(" type=site ").contains(" state=connected"));
    let conflict = told(" type=conflict ");
    cluster.set_links(Link::Open);
    let field = |name: &str| {
        let words = conflict.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        words.unwrap_or_else(|| panic!("no {name}: {conflict}")).to_owned()
    };
    // The later one wins, by the clocks of the sites, which are the same here.
    assert_eq!((field("key").as_str(), field("namespace").as_str()), ("a%25b", "<null>"));
    assert_eq!((field("winner_site").as_str(), field("loser_site").as_str()), ("2", "1"));
    let version = |name: &str| field(name).parse::<u64>().expect("a version");
    assert!(version("winner") > version("loser"));
    eventually(|| one.ask("mg a%b s\r\n") == "HD s6");
    assert_eq!(other.ask("mg a%b c\r\n"), format!("HD c{}", version("winner")));
    // That of the peer is counted once all that came with it is applied.
    eventually(|| cluster.stat(1, ":conflicts") == 1);
    assert!(other.report("stats namespaces").contains("STAT namespace:<null>:conflicts 1\n"));
}

/// A site that refuses its own clients goes on with what the others change.
#[test]
fn a_read_only_site_has_what_the_others_change() {
    let cluster = Cluster::of(2, "memory");
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    cluster.set_read_only(1, "on");
    assert_eq!(one.ask("set key 0 0 3\r\none\r\n"), "STORED");
    eventually(|| other.ask("mg key s\r\n") == "HD s3");
    assert_eq!(other.ask("delete key\r\n"), "SERVER_ERROR read-only for maintenance");
    assert_eq!(one.ask("delete key\r\n"), "DELETED");
    eventually(|| other.ask("mg key\r\n") == "EN");
    cluster.set_read_only(1, "off");
    assert_eq!(other.ask("set key 0 0 3\r\ntwo\r\n"), "STORED");
    eventually(|| one.ask("mg key s\r\n") == "HD s3");
}

/// Who connects again and again, and knows no token, shuts no site out.
#[test]
fn strangers_leave_room_for_sites() {
    let cluster = Cluster::of(2, "memory");
    let listen = cluster.listen(0);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (filled, is_filled) = std::sync::mpsc::channel();
        let is_over = &is_over;
        scope.spawn(move || {
            let mut held = std::collections::VecDeque::new();
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                held.extend(std::net::TcpStream::connect(listen));
                if held.len() > 150 {
                    held.pop_front();
                    let _ = filled.send(());
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        is_filled.recv().expect("it runs");
        cluster.set_links(Link::Cut);
        let (mut one, mut other) = (cluster.client(0), cluster.client(1));
        eventually(|| other.figures().contains(":connected no"));
        assert_eq!(one.ask("set key 0 0 1\r\nx\r\n"), "STORED");
        cluster.set_links(Link::Open);
        eventually(|| other.ask("mg key s\r\n") == "HD s1");
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    });
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
        // The last change may have been a flush.
        (0..10).for_each(|_| one.change_at_random(&keys, &mut fastrand::Rng::with_seed(seed), false));
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
    let mut cluster = Cluster::of_planned(2, 3, "log");
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
        eventually(|| third.takes_changes());
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

/// It would give versions below horizons of those that it has not heard.
#[test]
fn a_new_site_takes_no_changes_before_it_has_heard_all_others() {
    let mut cluster = Cluster::of_planned(2, 3, "log");
    assert_eq!(cluster.client(0).ask("set key 7 0 1\r\n1\r\n"), "STORED");
    cluster.link(2, 1).set(Link::Cut);
    let joined = cluster.start_site(2);
    cluster.add(joined);
    let mut third = cluster.client(2);
    eventually(|| third.ask("mg key f\r\n") == "HD f7");
    // The one that it hears beats meanwhile.
    let heard = third.stat(":entries");
    eventually(|| third.stat(":entries") > heard + 1);
    assert!(!third.takes_changes());
    let refusal = "SERVER_ERROR new site takes no changes before it has heard all others";
    for request in [
        "set key 0 0 1\r\nx\r\n",
        "set new 0 0 1\r\nx\r\n",
        "add new 0 0 1\r\nx\r\n",
        "append key 0 0 1\r\nx\r\n",
        "cas key 0 0 1 5\r\nx\r\n",
        "ms key 1\r\nx\r\n",
        "incr key 1\r\n",
        "ma key\r\n",
        "touch key 100\r\n",
        "gat 100 key\r\n",
        "mg key T100\r\n",
        "mg new N100\r\n",
        "delete key\r\n",
        "md key\r\n",
        "md key I\r\n",
        "flush_all\r\n",
        "flush_prefix rep:\r\n",
    ] {
        assert_eq!(third.ask(request), refusal, "{request}");
    }
    assert_eq!(third.set_by_binary("key", "x"), 0x84, "internal error");
    // What is the site's own goes on, and so do reads.
    assert_eq!(third.ask("set own:key 0 0 1\r\nx\r\n"), "STORED");
    assert_eq!(third.ask("flush_prefix own:\r\n"), "OK");
    assert_eq!(third.ask("mg key f\r\n"), "HD f7");

    cluster.link(2, 1).set(Link::Open);
    eventually(|| third.takes_changes());
    assert_eq!(third.ask("set key 8 0 1\r\n2\r\n"), "STORED");
    eventually(|| cluster.client(0).ask("mg key f\r\n") == "HD f8");
    // From now on it does so with nobody there.
    cluster.set_links(Link::Cut);
    cluster.kill(2);
    cluster.start_again(2);
    assert_eq!(cluster.client(2).ask("set key 9 0 1\r\n3\r\n"), "STORED");
}

/// The touch of a newer value is there before that value: it counts, whatever is done with the older value meanwhile.
#[test]
fn a_touch_of_an_older_value_does_not_replace_the_expiry_of_a_newer_one() {
    for engine in ENGINES {
        let cluster = Cluster::of(3, engine);
        let mut clients = [0, 1, 2].map(|site| cluster.client(site));
        assert_eq!(clients[0].ask("set key 0 0 3\r\nold\r\n"), "STORED");
        for client in &mut clients {
            eventually(|| client.ask("mg key\r\n") == "HD");
        }
        cluster.link(0, 2).set(Link::Cut);
        assert_eq!(clients[2].ask("set key 1 1000 3\r\nnew\r\n"), "STORED");
        eventually(|| clients[1].ask("mg key f\r\n") == "HD f1");
        assert_eq!(clients[1].ask("touch key 5000\r\n"), "TOUCHED");
        let lives_on = |client: &mut Client, flags: &str| {
            let reply = client.ask("mg key f t\r\n");
            let ttl = reply.strip_prefix(&format!("HD {flags} t")).and_then(|ttl| ttl.parse::<i32>().ok());
            ttl.is_some_and(|ttl| (4000..=5000).contains(&ttl))
        };
        eventually(|| lives_on(&mut clients[0], "f0"));
        // In memory twice, and once more after it was looked up in the store.
        for _ in 0..2 {
            assert_eq!(clients[0].ask("touch key 9000\r\n"), "TOUCHED");
            assert_eq!(clients[0].ask("touch key 8000\r\n"), "TOUCHED");
            eventually(|| lives_on(&mut clients[0], "f0"));
        }
        cluster.link(0, 2).set(Link::Open);
        for client in &mut clients {
            eventually(|| lives_on(client, "f1"));
        }
    }
}

/// Of the beats that a peer has missed, the last one says all.
#[test]
fn only_the_newest_beat_is_sent() {
    let cluster = Cluster::of(2, "log");
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    cluster.set_links(Link::Cut);
    eventually(|| one.figures().contains(":connected no"));
    let before = one.stat(":entries");
    let missed_from = other.stat("log_durable_sequence");
    // Nothing else comes into its log, as long as it pulls nothing.
    eventually(|| other.stat("log_durable_sequence") >= missed_from + 5);
    let opened = other.stat("log_durable_sequence");
    cluster.link(0, 1).set(Link::Open);
    eventually(|| one.stat(":entries") > before);
    let entries = one.stat(":entries") - before;
    let made_meanwhile = other.stat("log_durable_sequence") - opened;
    assert!(entries <= 1 + made_meanwhile, "{entries} beats, of which {made_meanwhile} were made meanwhile");
}
