//! Copies of sites: interrupted, and taken by a site that was away for too long.

use std::net::TcpListener;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_conformance::server::eventually;
use larder_replication::entry::Entry;
use larder_replication::version::version_at;
use larder_store::files::DiskFiles;
use larder_store::{LogOptions, LogStore, Store as _, restore};

use crate::client::Client;
use crate::damage::damage;
use crate::peer::give_copy;
use crate::site::{Cluster, ENGINES};
use crate::{converge, keys};
use larder_conformance::sites::link::Link;

const ITEMS: usize = 100_000;
const VALUE_BYTES: usize = 100;
const CUTS: usize = 4;
/// Of each item: docs/replication-protocol.md, Entries; the keys have 9 bytes.
const COPY_BYTES: u64 = (ITEMS * (52 + 9 + VALUE_BYTES)) as u64;

/// The first of two sites, which has [`ITEMS`].
fn full_site() -> Cluster {
    let cluster = Cluster::of_planned(1, 2, "log");
    let (mut client, value) = (cluster.client(0), "v".repeat(VALUE_BYTES));
    for from in (0..ITEMS).step_by(1000) {
        let set = |number| format!("set key{number:06} 0 0 {VALUE_BYTES} noreply\r\n{value}\r\n");
        let sets: String = (from..from + 1000).map(set).collect();
        assert_eq!(client.ask(&format!("{sets}mn\r\n")), "MN");
    }
    cluster
}

fn has_all(client: &mut Client) -> bool {
    let keys: Vec<_> = (0..ITEMS).map(|number| format!("key{number:06}")).collect();
    client.look_up(&keys).iter().flatten().count() == ITEMS
}

fn is_taken(client: &mut Client) -> bool {
    client.stat("1:cursor") > 0
}

/// However often the link is cut, what was applied is not sent again.
#[test]
fn a_copy_goes_on_where_its_link_was_cut() {
    let cluster = full_site();
    cluster.set_link(1, Link::Narrow);
    let joined = cluster.start_site(1);
    let mut taker = Client::of(&joined);
    let mut pieces = 0;
    for _ in 0..CUTS {
        let pieces_at_cut = pieces;
        eventually(|| {
            pieces = taker.stat(":copied_pieces");
            pieces >= pieces_at_cut + 8
        });
        assert!(!is_taken(&mut taker), "that takes far longer");
        cluster.set_link(1, Link::Cut);
        cluster.set_link(1, Link::Narrow);
    }
    cluster.set_link(1, Link::Open);
    eventually(|| is_taken(&mut taker));
    let (copied, whole) = (taker.stat(":copied_bytes"), taker.stat(":copy_whole_bytes"));
    assert!((COPY_BYTES..COPY_BYTES * 11 / 10).contains(&copied), "{copied} of {COPY_BYTES}, {CUTS} cuts");
    assert!((COPY_BYTES / 2..COPY_BYTES * 2).contains(&whole), "{whole} were estimated of {COPY_BYTES}");
    assert!(has_all(&mut taker));
}

/// Nor when the taker dies.
#[test]
fn a_copy_goes_on_after_a_death_of_its_taker() {
    let mut cluster = full_site();
    // So that it is not over before the death.
    cluster.set_link(1, Link::Narrow);
    let joined = cluster.start_site(1);
    cluster.add(joined);
    let mut taker = cluster.client(1);
    eventually(|| taker.stat(":copied_bytes") > COPY_BYTES / 4);
    let before = taker.stat(":copied_bytes");
    cluster.kill(1);
    cluster.set_link(1, Link::Open);
    cluster.start_again(1);
    let mut taker = cluster.client(1);
    eventually(|| is_taken(&mut taker));
    let (all, since) = (taker.stat(":copy_bytes"), taker.stat(":copied_bytes"));
    assert!((COPY_BYTES..COPY_BYTES * 11 / 10).contains(&all), "{all} of {COPY_BYTES}");
    // A piece or more had not got to the log.
    assert!(since <= all - before / 2, "{since} after {before} of {all}");
    assert!(has_all(&mut taker));
}

/// Nor when the site dies that is copied.
#[test]
fn a_copy_goes_on_after_a_death_of_its_source() {
    let mut cluster = full_site();
    // So that it is not over before the death.
    cluster.set_link(1, Link::Narrow);
    let joined = cluster.start_site(1);
    cluster.add(joined);
    let mut taker = cluster.client(1);
    eventually(|| taker.stat(":copied_bytes") > COPY_BYTES / 4);
    cluster.kill(0);
    cluster.set_link(1, Link::Open);
    cluster.start_again(0);
    eventually(|| is_taken(&mut taker));
    let copied = taker.stat(":copied_bytes");
    assert!((COPY_BYTES..COPY_BYTES * 11 / 10).contains(&copied), "{copied} of {COPY_BYTES}");
    assert!(has_all(&mut taker));
}

/// Nor when the connection ends before the site that is copied hears that it is taken: that site waits for it still.
#[test]
fn a_copy_goes_on_until_its_source_knows_that_it_is_taken() {
    let (_cluster, mut taker, give_copy) = copied_from_a_script();
    assert_eq!(give_copy(), None);
    assert_eq!(give_copy(), Some((50, b"behind".to_vec())));
    let lookups = ["named", "unnamed"].map(|key| taker.ask(&format!("mg {key} s\r\n")));
    assert_eq!(lookups, ["HD s3", "EN"]);
    assert_eq!(taker.stat(":copies"), 2);
}

/// What a copy has named is damaged on the disk before it ends: it begins anew, and deletes nothing that it names.
#[test]
fn a_copy_whose_names_are_damaged_begins_anew() {
    let (cluster, mut taker, give_copy) = copied_from_a_script();
    assert_eq!(give_copy(), None);
    let names = cluster.store(0).join("copy-of-2.named");
    let mut bytes = std::fs::read(&names).expect("it is there");
    // Of the only key, behind the file's own.
    bytes[20] ^= 1;
    std::fs::write(&names, bytes).expect("it can be written");
    assert_eq!(give_copy(), Some((50, b"behind".to_vec())));
    assert_eq!(give_copy(), None);
    let lookups = ["named", "unnamed"].map(|key| taker.ask(&format!("mg {key} s\r\n")));
    assert_eq!(lookups, ["HD s3", "EN"]);
}

/// A site with two keys, and what gives it a copy that names one of them, in place of its peer.
fn copied_from_a_script() -> (Cluster, Client, impl Fn() -> Option<(u64, Vec<u8>)>) {
    let cluster = Cluster::of_planned(1, 2, "log");
    let mut taker = cluster.client(0);
    for key in ["named", "unnamed"] {
        assert_eq!(taker.ask(&format!("set {key} 0 0 3\r\nold\r\n")), "STORED");
    }
    let listener = TcpListener::bind(cluster.listen(1)).expect("the port is free");
    let mut states = Vec::new();
    Entry::Delete { key: b"named", version: 1, base_version: 0 }.encode(&mut states);
    let horizon = version_at(unix_secs() * 1_000_000 + 10_000_000, 2);
    (cluster, taker, move || give_copy(&listener, &states, horizon))
}

fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs()
}

/// Waits until deletions of now may be forgotten.
fn forget(client: &mut Client) {
    let since = unix_secs();
    eventually(|| client.stat("horizon_time") > since + 1);
}

fn standing(client: &mut Client, site: u8) -> String {
    let figures = client.figures();
    let prefix = format!("STAT {site}:standing ");
    figures.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().to_owned()
}

fn change_while_one_is_away(one: &mut Client, keys: &[String]) {
    keys[..200].iter().for_each(|key| assert_eq!(one.ask(&format!("delete {key}\r\n")), "DELETED"));
    keys[200..300].iter().for_each(|key| {
        assert_eq!(one.ask(&format!("set {key} 0 0 3\r\nnew\r\n")), "STORED");
    });
}

/// A site that was away for longer than the bound brings back nothing that was deleted and forgotten meanwhile, and has
/// what was set; what it set itself, and the others do not know, is there if it is newer than what they may forget.
#[test]
fn what_was_deleted_while_a_site_was_silent_does_not_come_back() {
    for engine in ENGINES {
        let cluster = Cluster::with_options(3, 3, engine, &["--replication-silence-secs", "6"]);
        let [mut one, mut two, mut away] = [0, 1, 2].map(|site| cluster.client(site));
        let keys = keys(600);
        keys.iter().for_each(|key| assert_eq!(one.ask(&format!("set {key} 0 0 3\r\nold\r\n")), "STORED"));
        assert_eq!(one.ask("set key100 0 0 3\r\nred\r\n"), "STORED");
        converge(&mut one, &mut away, &keys);
        converge(&mut one, &mut two, &keys);
        cluster.set_links_of(2, Link::Cut);
        if engine == "log" {
            // Memory has it.
            assert_eq!(away.ask("mg key100 s\r\n"), "HD s3");
            damage(&cluster.store(2), b"red", 0);
        }
        change_while_one_is_away(&mut one, &keys);
        eventually(|| standing(&mut one, 3) == "silent" && standing(&mut two, 3) == "silent");
        forget(&mut one);
        forget(&mut two);
        // A touch does not make a value younger.
        keys[..50].iter().for_each(|key| assert_eq!(away.ask(&format!("touch {key} 9000\r\n")), "TOUCHED"));
        assert_eq!(away.ask("mg key0\r\n"), "HD", "it was not told");
        cluster.set_links_of(2, Link::Open);
        eventually(|| away.look_up(&keys[..200]).iter().flatten().count() == 0);
        eventually(|| standing(&mut one, 3) == "in" && standing(&mut two, 3) == "in");
        assert_eq!(away.ask("set key599 0 0 4\r\nback\r\n"), "STORED");
        eventually(|| one.ask("mg key599 s\r\n") == "HD s4" && two.ask("mg key599 s\r\n") == "HD s4");
        converge(&mut one, &mut away, &keys);
        converge(&mut one, &mut two, &keys);
        assert_eq!(one.look_up(&keys).iter().flatten().count(), 400);
    }
}

/// The same of a site that is restored from a backup of before, also if it cannot read all that it has: a record of
/// which nobody knows the key, or the value of an item that was deleted.
#[test]
fn what_was_deleted_since_a_backup_does_not_come_back() {
    [None, Some((&b"of this alone"[..], 1)), Some((b"old", 0))]
        .into_iter()
        .for_each(restore_behind_deletions);
}

fn restore_behind_deletions(damaged: Option<(&[u8], usize)>) {
    let mut cluster = Cluster::of(2, "log");
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    let keys = keys(600);
    assert_eq!(two.ask("set own:1 0 0 13\r\nof this alone\r\n"), "STORED");
    keys.iter().for_each(|key| assert_eq!(one.ask(&format!("set {key} 0 0 3\r\nold\r\n")), "STORED"));
    converge(&mut one, &mut two, &keys);
    cluster.kill(1);
    let backup = DiskFiles::open(cluster.folder().file("backup")).expect("a directory");
    let store = LogStore::open(&cluster.store(1), LogOptions::default()).expect("it opens");
    store.backup(&backup, None).expect("it is written");
    drop(store);
    cluster.start_again(1);
    change_while_one_is_away(&mut one, &keys);
    forget(&mut one);
    cluster.kill(1);
    std::fs::remove_dir_all(cluster.store(1)).expect("it is there");
    let restored = DiskFiles::open(cluster.store(1)).expect("a directory");
    restore(&[&backup], &restored).expect("it is whole");
    drop(restored);
    if let Some((wanted, before)) = damaged {
        damage(&cluster.store(1), wanted, before);
    }
    cluster.start_again(1);
    let mut two = cluster.client(1);
    eventually(|| two.stat(":copies") == 1);
    assert_eq!(two.look_up(&keys[..200]).iter().flatten().count(), 0);
    eventually(|| standing(&mut one, 2) == "in" && two.look_up(&keys).iter().flatten().count() == 400);
    if damaged.is_none_or(|(_, before)| before == 0) {
        assert_eq!(two.ask("set key599 0 0 4\r\nback\r\n"), "STORED");
        converge(&mut one, &mut two, &keys);
    }
    assert_eq!(one.look_up(&keys).iter().flatten().count(), 400);
}

/// Bytes of the files of a store.
fn disk_bytes(store: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(store).expect("there is a store");
    files.flatten().filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum()
}

/// What a site keeps for one that is away has a bound; one that is further behind takes a copy, and has all the same,
/// deletions, too.
#[test]
fn a_site_behind_the_bound_of_the_log_takes_a_copy() {
    let options = ["--replication-log-mib", "1", "--store-segment-kib", "64"];
    let cluster = Cluster::with_options(2, 2, "log", &options);
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    let keys = keys(300);
    keys.iter().for_each(|key| assert_eq!(one.ask(&format!("set {key} 0 0 3\r\nold\r\n")), "STORED"));
    converge(&mut one, &mut two, &keys);
    let pieces = two.stat(":copied_pieces");
    cluster.set_links(Link::Cut);
    keys[..50].iter().for_each(|key| assert_eq!(one.ask(&format!("delete {key}\r\n")), "DELETED"));
    let (value, written) = ("v".repeat(1000), one.stat("log_durable_sequence"));
    for _ in 0..40 {
        let set = |key: &String| format!("set {key} 0 0 1000 noreply\r\n{value}\r\n");
        let sets: String = keys[50..].iter().map(set).collect();
        assert_eq!(one.ask(&format!("{sets}mn\r\n")), "MN");
    }
    // 10 MB of the log; they were only on their way to the disk. With less left there the log begins later.
    eventually(|| one.stat("log_durable_sequence") >= written + 40 * 250);
    assert!(one.stat("2:entries_behind") >= 40 * 250);
    eventually(|| disk_bytes(&cluster.store(0)) < 6 << 20);
    cluster.set_links(Link::Open);
    eventually(|| two.stat(":copied_pieces") > pieces);
    converge(&mut one, &mut two, &keys);
    assert_eq!(two.look_up(&keys).iter().flatten().count(), 250);
}
