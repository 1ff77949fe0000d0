//! Sites whose store is an older copy of itself, as after a machine's snapshot was restored, and two servers with one
//! number.

use larder_conformance::server::eventually;
use larder_conformance::sites::link::Link;

use crate::client::Client;
use crate::site::{Cluster, LOG_FILE, copy_directory};
use crate::{converge, keys};

const REFUSAL: &str = "SERVER_ERROR site has an older copy of its store and waits for a copy of another site";

/// Two sites with the same keys. There is a copy of the second one's store from before the last `later` keys were
/// changed. The second site is down.
fn aged(later: usize) -> (Cluster, Vec<String>) {
    let mut cluster = Cluster::with_options(2, 2, "log", &[LOG_FILE]);
    let keys = keys(700);
    set(&mut cluster.client(0), &keys[..50], "first");
    set(&mut cluster.client(1), &keys[50..100], "first");
    for site in 0..2 {
        eventually(|| cluster.client(site).look_up(&keys[..100]).iter().flatten().count() == 100);
    }
    cluster.stop(1);
    copy_directory(&cluster.store(1), &cluster.folder().file("copy"));
    cluster.start_again(1);
    set(&mut cluster.client(1), &keys[..later], "later");
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    converge(&mut one, &mut two, &keys);
    cluster.kill(1);
    (cluster, keys)
}

fn set(client: &mut Client, keys: &[String], value: &str) {
    for key in keys {
        assert_eq!(client.ask(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len())), "STORED");
    }
}

/// Puts the copy in place of the store.
fn age(cluster: &Cluster) {
    copy_directory(&cluster.folder().file("copy"), &cluster.store(1));
}

/// Sets each key, repeating until it succeeds. Returns how many were refused at first.
fn set_in_the_end(client: &mut Client, keys: &[String]) -> usize {
    let mut refused = 0;
    for key in keys {
        let mut reply = client.ask(&format!("set {key} 0 0 3\r\nnew\r\n"));
        refused += usize::from(reply == REFUSAL);
        eventually(|| {
            if reply != "STORED" {
                assert_eq!(reply, REFUSAL);
                reply = client.ask(&format!("set {key} 0 0 3\r\nnew\r\n"));
            }
            reply == "STORED"
        });
    }
    refused
}

/// Checks that both sites have everything that was acknowledged: the data from before the copy came back, and 400 new
/// keys.
fn check(cluster: &Cluster, keys: &[String], later: usize) {
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    for client in [&mut one, &mut two] {
        eventually(|| client.takes_changes());
    }
    converge(&mut one, &mut two, keys);
    let values: Vec<_> = two.values(keys).into_iter().flatten().map(|(value, _)| value).collect();
    let count = |begin: &[u8]| values.iter().filter(|value| value.starts_with(begin)).count();
    assert_eq!((values.len(), count(b"later"), count(b"new")), (later.max(100) + 400, later, 400));
}

/// Client writes have meanwhile made the log as long again as the peer knows it.
#[test]
fn a_store_that_is_an_older_copy_takes_a_copy_of_the_other_site() {
    let (mut cluster, keys) = aged(200);
    age(&cluster);
    cluster.start_again(1);
    set_in_the_end(&mut cluster.client(1), &keys[200..600]);
    check(&cluster, &keys, 200);
    let log = cluster.log(1);
    assert_eq!(log.matches("this store is an older copy").count(), 1, "{log}");
    assert_eq!(cluster.stat(1, ":copies"), 1);
}

/// An older copy that comes back once more is found again. The other site, which has everything, is not accused.
#[test]
fn an_older_copy_that_comes_back_twice_is_found_twice() {
    let (mut cluster, keys) = aged(200);
    for time in 1..=2 {
        age(&cluster);
        cluster.start_again(1);
        eventually(|| cluster.log(1).matches("this site has a copy of another one").count() == time);
        assert!(cluster.client(1).takes_changes());
        cluster.kill(1);
    }
    cluster.start_again(1);
    set(&mut cluster.client(1), &keys[200..600], "new");
    check(&cluster, &keys, 200);
    let found = [0, 1].map(|site| cluster.log(site).matches("this store is an older copy").count());
    assert_eq!(found, [0, 2]);
}

/// Beats alone carry the log as far again, also while the other site is down.
#[test]
fn an_older_copy_is_found_once_its_log_is_long_enough_again() {
    for is_down in [false, true] {
        let later = if is_down { 200 } else { 3 };
        let (mut cluster, keys) = aged(later);
        let known = cluster.stat(0, "2:cursor");
        if is_down {
            cluster.take_servers().into_iter().for_each(|server| server.kill().expect("it runs"));
            age(&cluster);
            let two = cluster.start_site(1);
            let mut client = Client::of(&two);
            set(&mut client, &keys[200..600], "new");
            eventually(|| client.stat("log_durable_sequence") > known);
            let one = cluster.start_site(0);
            cluster.put_servers(vec![one, two]);
        } else {
            cluster.set_links(Link::Cut);
            age(&cluster);
            cluster.start_again(1);
            // Only notes and beats are written: there are no clients.
            eventually(|| cluster.stat(1, "log_durable_sequence") > known);
            cluster.set_links(Link::Open);
            set_in_the_end(&mut cluster.client(1), &keys[200..600]);
        }
        check(&cluster, &keys, later);
    }
}

/// Until it has a copy it takes no changes, and a restart does not change that; it says why. What it took before it was
/// found stays, however long it waits for the copy.
#[test]
fn a_site_with_an_older_copy_takes_no_changes_until_it_has_another() {
    let (mut cluster, keys) = aged(200);
    cluster.set_links(Link::Cut);
    age(&cluster);
    cluster.start_again(1);
    set(&mut cluster.client(1), &keys[400..600], "new");
    // It is pulled from, and cannot pull.
    cluster.set_link(0, Link::Open);
    eventually(|| !cluster.client(1).takes_changes());
    cluster.kill(1);
    cluster.start_again(1);
    let mut two = cluster.client(1);
    for request in ["set key0 0 0 1\r\nx\r\n", "delete key0\r\n", "flush_all\r\n", "touch key0 9\r\n"] {
        assert_eq!(two.ask(request), REFUSAL, "{request}");
    }
    assert_eq!(two.set_by_binary("key0", "x"), 0x84, "internal error");
    let figures = two.figures();
    assert!(figures.contains("STAT refused site 1 has more of the log of site 2 than is there"), "{figures}");
    assert_eq!(two.ask("mg key0 s\r\n"), "HD s5", "it serves what it has");
    // The other site counts it as restored, and goes on.
    eventually(|| cluster.client(0).figures().contains("STAT 2:standing restored"));
    set(&mut cluster.client(0), &keys[200..400], "new");
    let beats = cluster.stat(0, "log_durable_sequence");
    eventually(|| cluster.stat(0, "log_durable_sequence") > beats + 2);
    cluster.set_link(1, Link::Open);
    check(&cluster, &keys, 200);
    eventually(|| cluster.client(0).figures().contains("STAT 2:standing in"));
    assert_eq!(two.ask("set key0 0 0 5\r\nlater\r\n"), "STORED");
}

/// Both sites go on with older copies: the one with the higher number takes the other's copy first.
#[test]
fn of_two_older_copies_both_are_found() {
    let (mut cluster, keys) = aged(200);
    for server in cluster.take_servers() {
        server.stop().expect("it runs");
    }
    copy_directory(&cluster.store(0), &cluster.folder().file("copy0"));
    let servers = (0..2).map(|site| cluster.start_site(site)).collect();
    cluster.put_servers(servers);
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    set(&mut one, &keys[600..650], "one");
    set(&mut two, &keys[650..700], "two");
    converge(&mut one, &mut two, &keys);
    cluster.take_servers().into_iter().for_each(|server| server.kill().expect("it runs"));
    copy_directory(&cluster.folder().file("copy0"), &cluster.store(0));
    age(&cluster);
    let servers = (0..2).map(|site| cluster.start_site(site)).collect();
    cluster.put_servers(servers);
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    set_in_the_end(&mut one, &keys[200..300]);
    set_in_the_end(&mut two, &keys[300..600]);
    converge(&mut one, &mut two, &keys);
    assert_eq!(two.look_up(&keys[200..600]).iter().flatten().count(), 400);
    let logs = [cluster.log(0), cluster.log(1)].concat();
    assert!(logs.contains("this store is an older copy"), "{logs}");
}

/// Changes that a killed site loses were never sent to others, so its store is not an older copy.
#[test]
fn a_site_that_is_killed_has_no_older_copy() {
    let mut cluster = Cluster::with_options(2, 2, "log", &[LOG_FILE]);
    let keys = keys(200);
    for round in 0..4 {
        let site = round % 2;
        let (mut client, value) = (cluster.client(site), "v".repeat(500));
        for key in &keys {
            let set = format!("set {key} 0 0 500 noreply\r\n{value}\r\nmn\r\n");
            assert_eq!(client.ask(&set), "MN");
        }
        cluster.kill(site);
        cluster.start_again(site);
    }
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    converge(&mut one, &mut two, &keys);
    set(&mut one, &keys[..1], "one");
    set(&mut two, &keys[1..2], "two");
    converge(&mut one, &mut two, &keys);
    let logs = [cluster.log(0), cluster.log(1)].concat();
    assert!(!logs.contains("older copy"), "{logs}");
}

/// A machine was cloned with its larderd: a site that is connected to both tells both, and neither takes changes.
#[test]
fn two_servers_with_one_number_take_no_changes() {
    let mut cluster = Cluster::with_options(2, 3, "log", &[LOG_FILE]);
    set(&mut cluster.client(0), &keys(10), "value");
    cluster.stop(0);
    let twin = cluster.start_twin(2, 0);
    cluster.start_again(0);
    let mut twin_client = Client::of(&twin);
    eventually(|| !cluster.client(0).takes_changes() && !twin_client.takes_changes());
    let refusal = "SERVER_ERROR site takes no changes while another server has its number";
    for client in [&mut cluster.client(0), &mut twin_client] {
        assert_eq!(client.ask("set key0 0 0 1\r\nx\r\n"), refusal);
        assert_eq!(client.ask("mg key0 s\r\n"), "HD s5");
        assert!(client.figures().contains("STAT refused two servers have the number 1"));
    }
    // The site that sees both goes on, and names them.
    assert_eq!(cluster.client(1).ask("set key0 0 0 1\r\nx\r\n"), "STORED");
    let addresses = [0, 2].map(|other| cluster.link(1, other).address().to_string());
    eventually(|| {
        let log = cluster.log(1);
        log.lines().any(|line| {
            line.contains("two servers have the number 1, at ")
                && addresses.iter().all(|address| line.contains(address))
        })
    });
    twin.kill().expect("it runs");
}

/// Being its own peer is a mistake in its settings, not a second server.
#[test]
fn a_site_that_is_its_own_peer_is_told_so() {
    let mut cluster = Cluster::with_options(1, 1, "log", &[LOG_FILE]);
    let address = cluster.listen(0).to_string();
    cluster.stop(0);
    let server = cluster.start_with(0, &["--peer", &address]);
    let mut client = Client::of(&server);
    eventually(|| client.figures().contains("the site has connected to itself"));
    eventually(|| cluster.log(0).contains("ERROR"));
    assert!(!client.figures().contains("STAT refused two servers"), "{}", client.figures());
    server.kill().expect("it runs");
}

/// The notes that an idle site writes into its own log do not count as changes.
#[test]
fn a_site_that_has_every_change_is_not_behind() {
    let cluster = Cluster::of(2, "log");
    let keys = keys(20);
    set(&mut cluster.client(0), &keys, "value");
    for site in 0..2 {
        let mut client = cluster.client(site);
        let other = 2 - site;
        eventually(|| client.stat(&format!("{other}:entries_behind")) == 0);
        // It stays at 0 through several beats.
        let beats = client.stat("log_durable_sequence");
        eventually(|| {
            assert_eq!(client.stat(&format!("{other}:entries_behind")), 0);
            client.stat("log_durable_sequence") > beats + 10
        });
    }
    cluster.set_links(Link::Cut);
    set(&mut cluster.client(0), &keys, "other");
    eventually(|| cluster.stat(0, "2:entries_behind") == 20);
    assert_eq!(cluster.client(0).ask("delete key0\r\n"), "DELETED");
    eventually(|| cluster.stat(0, "2:entries_behind") == 21);
    cluster.set_links(Link::Open);
    eventually(|| cluster.stat(0, "2:entries_behind") == 0);
}
