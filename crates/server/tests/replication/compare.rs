//! What a site has lost behind its back is found by a comparison, and mended.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_conformance::server::eventually;

use larder_store::{Entry, FlushBy, KeyState, LogOptions, LogStore, Put, Store as _, VecSink};

use crate::client::Client;
use crate::site::{Cluster, LOG_FILE};
use crate::{converge, keys};

/// Waits until every site knows that every site has all up to now.
fn settle(cluster: &Cluster, sites: usize) {
    let now_secs = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
    (0..sites).for_each(|site| eventually(|| cluster.stat(site, "horizon_time") > now_secs + 1));
}

/// Compares a site with all others, once, and returns what it found, mended and cannot explain.
pub(crate) fn compared(client: &mut Client, peers: u64) -> [u64; 3] {
    let before = client.stat(":comparisons");
    assert_eq!(client.ask("stats replication compare\r\n"), "OK");
    eventually(|| client.stat(":comparisons") >= before + peers);
    [":compare_found", ":compare_mended", ":compare_unexplained"].map(|name| client.stat(name))
}

/// The store of a site that does not run, as whoever damages it has it.
struct Stopped(LogStore);

impl Stopped {
    fn open(directory: &Path) -> Self {
        Self(LogStore::open(directory, LogOptions::default()).expect("it is closed"))
    }

    fn state(&self, key: &str) -> KeyState {
        self.0.state(key.as_bytes()).expect("it can be read").expect("there is one")
    }

    fn put(&self, key: &str, value: &[u8], version: u64, exptime_secs: u64) {
        let put = Put {
            key: key.as_bytes(),
            value: &[value],
            client_flags: 0,
            exptime_secs,
            version,
            marks: larder_store::Marks::NONE,
            origin: (version & 0xFF) as u8,
            base_version: 0,
            expiry_value_version: version,
            expiry_version: version,
        };
        self.0.append(&[Entry::Put(put)]).expect("there is room");
    }

    fn delete(&self, key: &str, version: u64) {
        let delete = Entry::Delete { key: key.as_bytes(), version, base_version: 0 };
        self.0.append(&[delete]).expect("there is room");
    }

    /// Without a trace that others would see. No other key begins with it.
    fn forget(&self, key: &str) {
        let prefix = key.as_bytes();
        let flush = Entry::Flush { prefix, except: &[], version: 0, by: FlushBy::Sequence };
        self.0.append(&[flush]).expect("there is room");
        assert_eq!(self.0.state(prefix).expect("it can be read"), None);
    }

    fn value(&self, key: &str) -> Vec<u8> {
        let mut sink = VecSink::default();
        self.0.get(key.as_bytes(), 0, &mut sink).expect("it can be read").expect("it is there");
        sink.into_value()
    }

    fn close(self) {
        self.0.close().expect("it closes");
    }
}

/// Flips a bit of a value on the disk.
fn rot(directory: &Path, value: &[u8]) {
    let mut flipped = 0;
    for file in std::fs::read_dir(directory).expect("it is there") {
        let path = file.expect("it is there").path();
        let mut bytes = std::fs::read(&path).unwrap_or_default();
        let places: Vec<_> = (0..bytes.len().saturating_sub(value.len()))
            .filter(|at| bytes[*at..].starts_with(value))
            .collect();
        places.iter().for_each(|at| bytes[*at] ^= 1);
        flipped += places.len();
        if !places.is_empty() {
            std::fs::write(&path, bytes).expect("it can be written");
        }
    }
    assert!(flipped > 0, "the value is in the store");
}

/// What a comparison of two sites mends, and what it only reports: a deleted key must not come back.
#[test]
fn a_site_mends_what_it_lost_and_reports_what_it_cannot_explain() {
    let mut cluster = Cluster::with_options(2, 2, "log", &[LOG_FILE]);
    let keys = keys(200);
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    for (nth, key) in keys.iter().enumerate() {
        let client = if nth % 20 == 9 { &mut other } else { &mut one };
        let value = format!("{key} has this value");
        assert_eq!(client.ask(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len())), "STORED");
    }
    converge(&mut one, &mut other, &keys);
    assert_eq!(one.ask("touch key4 5000\r\n"), "TOUCHED");
    converge(&mut one, &mut other, &keys);
    settle(&cluster, 2);
    assert_eq!(compared(&mut other, 1), [0, 0, 0], "nothing is lost yet");

    cluster.stop(1);
    let directory = cluster.store(1);
    let store = Stopped::open(&directory);
    let version = |key| store.state(key).version;
    store.put("key0", b"key0 has that value", version("key0"), 0);
    store.put("key4", &store.value("key4"), version("key4"), 0);
    store.put("key6", b"an older one", version("key6") - (80 << 8), 0);
    store.forget("key102");
    store.put("ghost", b"boo", version("key0") - (90 << 8), 0);
    store.close();
    rot(&directory, b"key8 has this value");
    cluster.start_again(1);

    let mut other = cluster.client(1);
    assert!(other.ask("mg key8 v\r\n").contains("ERROR"), "it cannot be read");
    assert_eq!(compared(&mut other, 1), [5, 4, 1], "{}", other.figures());
    assert_eq!(other.stat(":compare_unreadable"), 1);
    let but_one: Vec<_> = keys.iter().filter(|key| *key != "key102").cloned().collect();
    converge(&mut one, &mut other, &but_one);
    assert_eq!(other.ask("mg key0 v\r\n"), "VA 19");
    assert_eq!(other.line(), "key0 has this value");
    assert_eq!((one.ask("mg key102\r\n"), other.ask("mg key102\r\n")), ("HD".into(), "EN".into()));
    // Whether the other site has lost a deletion, or this one an item, nobody can tell.
    assert_eq!(compared(&mut one, 1), [1, 0, 1], "{}", one.figures());
    assert_eq!((one.ask("mg ghost\r\n"), other.ask("mg ghost\r\n")), ("EN".into(), "HD".into()));
    // An operator can.
    assert_eq!(one.ask("touch key102 0\r\n"), "TOUCHED");
    assert_eq!(one.ask("set key102 0 0 5\r\nagain\r\n"), "STORED");
    assert_eq!(other.ask("delete ghost\r\n"), "DELETED");
    converge(&mut one, &mut other, &keys);
    settle(&cluster, 2);
    assert_eq!((compared(&mut one, 1), compared(&mut other, 1)), ([0, 0, 0], [0, 0, 0]));
    // `printf ghost | sha256sum` and `printf key8 | sha256sum` print these, and no log has a key.
    let logs = [cluster.log(0), cluster.log(1)];
    for (site, digest) in [(0, "ead6ef03d61ee60c"), (1, "5bda7a9c0fb9e510")] {
        assert!(logs[site].contains(&format!("key_sha256=\"{digest}\"")), "{}", logs[site]);
    }
    let shown = ["ghost", "key0", "key6", "key8", "key102"].map(|key| logs.concat().contains(key));
    assert_eq!(shown, [false; 5], "{}", logs.concat());
}

/// What the peer has may be older than a record that cannot be read, which it was never told of.
#[test]
fn what_cannot_be_read_is_not_turned_back() {
    let mut cluster = Cluster::of(2, "log");
    let names = ["deleted", "changed"].map(str::to_owned);
    let (mut one, mut other) = (cluster.client(0), cluster.client(1));
    names.iter().for_each(|key| assert_eq!(other.ask(&format!("set {key} 0 0 3\r\nold\r\n")), "STORED"));
    converge(&mut one, &mut other, &names);
    settle(&cluster, 2);
    cluster.stop(1);
    let directory = cluster.store(1);
    let store = Stopped::open(&directory);
    let later = |key| store.state(key).version + (1 << 8);
    store.delete("deleted", later("deleted"));
    store.put("changed", b"the new value", later("changed"), 0);
    store.close();
    rot(&directory, b"deleted");
    rot(&directory, b"the new value");
    cluster.start_again(1);
    let mut other = cluster.client(1);
    for _ in 0..2 {
        assert_eq!(compared(&mut other, 1), [2, 0, 2], "{}", other.figures());
        assert_eq!(other.ask("mg deleted v\r\n"), "EN");
        assert!(other.ask("mg changed v\r\n").contains("ERROR"), "it is lost, and not turned back");
    }
    // An operator decides.
    names.iter().for_each(|key| assert_eq!(other.ask(&format!("set {key} 0 0 3\r\nnew\r\n")), "STORED"));
    assert_eq!(compared(&mut other, 1), [0, 0, 0], "{}", other.figures());
}

/// Of three sites, two decide.
#[test]
fn a_majority_gives_back_what_a_site_lost() {
    let mut cluster = Cluster::of(3, "log");
    let keys = keys(50);
    let mut one = cluster.client(0);
    keys.iter().for_each(|key| assert_eq!(one.ask(&format!("set {key} 7 0 5\r\nvalue\r\n")), "STORED"));
    let all_have = |cluster: &Cluster| {
        (1..3).for_each(|site| converge(&mut cluster.client(0), &mut cluster.client(site), &keys));
    };
    all_have(&cluster);
    settle(&cluster, 3);
    cluster.stop(2);
    let store = Stopped::open(&cluster.store(2));
    keys[10..20].iter().for_each(|key| store.forget(key));
    store.put("key30", b"valve", store.state("key30").version, 0);
    store.put("ghost", b"boo", store.state("key20").version - (90 << 8), 0);
    store.close();
    cluster.start_again(2);
    let mut third = cluster.client(2);
    assert_eq!(third.look_up(&keys).iter().flatten().count(), 40, "{}", third.figures());
    let [_, mended, _] = compared(&mut third, 2);
    assert_eq!(mended, 11, "{}", third.figures());
    all_have(&cluster);
    for site in [0, 1] {
        assert_eq!(compared(&mut cluster.client(site), 2), [1, 0, 1], "of the ghost");
        assert_eq!(cluster.client(site).ask("mg ghost\r\n"), "EN");
    }
}

/// What is under way is no difference.
#[test]
fn sites_that_change_all_the_time_differ_in_nothing() {
    let cluster = Cluster::of(2, "log");
    let keys = keys(300);
    let mut rng = fastrand::Rng::with_seed(11);
    let mut clients = [cluster.client(0), cluster.client(1)];
    let comparisons = |cluster: &Cluster| [0, 1].map(|site| cluster.stat(site, ":comparisons"));
    let mut rounds = 0;
    while comparisons(&cluster).iter().any(|count| *count < 5) {
        for client in &mut clients {
            (0..4).for_each(|_| client.change_at_random(&keys, &mut rng, false));
            assert_eq!(client.ask("stats replication compare\r\n"), "OK");
        }
        rounds += 1;
        assert!(rounds < 1_000_000, "{}", clients[0].figures());
        for site in [0, 1] {
            assert_eq!(cluster.stat(site, ":compare_found"), 0, "{}", clients[site].figures());
        }
    }
}
