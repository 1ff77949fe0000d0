//! What a damaged record of a site does to those that pull its log.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use larder_conformance::server::eventually;
use larder_conformance::sites::link::Link;
use larder_store::files::DiskFiles;

use crate::client::Client;
use crate::compare::compared;
use crate::site::{Cluster, LOG_FILE};
use crate::{converge, keys};

/// A site has a damaged record: whoever pulls from it is told which one, and comes back for it ever more rarely.
#[test]
fn a_damaged_record_is_named_to_whoever_pulls() {
    let mut cluster = Cluster::with_options(1, 2, "log", &["--store-segment-kib", "1024"]);
    let mut client = cluster.client(0);
    for number in 0..2000 {
        let value = format!("{number:04}").repeat(250);
        client.send(&format!("set key{number} 0 0 1000 noreply\r\n{value}\r\n"));
    }
    assert_eq!(client.ask("mn\r\n"), "MN");
    cluster.stop(0);
    let name = damage(&cluster.store(0), "0444".repeat(250).as_bytes(), 0);
    cluster.start_again(0);
    let joined = cluster.start_site(1);
    let mut taker = Client::of(&joined);
    let name = name.file_name().expect("it has one").to_string_lossy().into_owned();
    eventually(|| {
        let figures = taker.figures();
        let error = figures.lines().find(|line| line.contains(":last_error")).unwrap_or_default();
        error.contains(&name) && error.contains("is damaged at byte")
    });
}

/// A damaged record that a later one has replaced stops nobody who pulls: if its value is damaged, it is passed over,
/// or comes from the later one, which has it, too, if that is a touch; if nobody can say whose record it was, they take
/// a copy.
#[test]
fn a_damaged_record_that_was_replaced_stops_nobody() {
    for is_header in [false, true] {
        let mut cluster = Cluster::with_options(2, 2, "log", &["--store-segment-kib", "64"]);
        let (mut one, mut two) = (cluster.client(0), cluster.client(1));
        let keys = keys(200);
        assert_eq!(one.ask("set key7 0 0 3\r\nold\r\n"), "STORED");
        eventually(|| two.ask("mg key7 s\r\n") == "HD s3");
        let pieces = two.stat(":copied_pieces");
        cluster.set_links(Link::Cut);
        set_all(&mut one, &keys);
        for (request, reply) in [
            ("delete key7\r\n", "DELETED"),
            ("set key44 0 0 3\r\nnew\r\n", "STORED"),
            ("touch key55 9000\r\n", "TOUCHED"),
        ] {
            assert_eq!(one.ask(request), reply);
        }
        cluster.stop(0);
        let damaged: &[&str] = if is_header { &["0044"] } else { &["0044", "0055"] };
        for value in damaged {
            let wanted = value.repeat(250);
            damage(&cluster.store(0), wanted.as_bytes(), usize::from(is_header));
        }
        cluster.start_again(0);
        let mut one = cluster.client(0);
        cluster.set_links(Link::Open);
        eventually(|| two.look_up(&keys).iter().flatten().count() == 199);
        converge(&mut one, &mut two, &keys);
        assert_eq!(two.ask("mg key44 s\r\n"), "HD s3");
        // Counted after they are stored.
        eventually(|| (two.stat(":copied_pieces") > pieces) == is_header);
        // And the log follows.
        assert_eq!(one.ask("set key44 0 0 4\r\nlast\r\n"), "STORED");
        eventually(|| two.ask("mg key44 s\r\n") == "HD s4");
    }
}

/// An item is damaged, and nothing has replaced it: what is before it arrives, the log has the digest of its key, once,
/// and setting that again is enough.
#[test]
fn what_is_before_a_damaged_item_arrives() {
    let mut cluster = Cluster::with_options(2, 2, "log", &["--store-segment-kib", "64", "-v", LOG_FILE]);
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    let keys = keys(200);
    assert_eq!(one.ask("set first 0 0 3\r\nold\r\n"), "STORED");
    eventually(|| two.ask("mg first s\r\n") == "HD s3");
    let pieces = two.stat(":copied_pieces");
    cluster.set_links(Link::Cut);
    set_all(&mut one, &keys);
    cluster.stop(0);
    damage(&cluster.store(0), "0044".repeat(250).as_bytes(), 0);
    cluster.start_again(0);
    let mut one = cluster.client(0);
    cluster.set_links(Link::Open);
    eventually(|| two.look_up(&keys[..44]).iter().flatten().count() == 44);
    // `printf key44 | sha256sum` prints it.
    let named = "the item of the key with SHA-256 287490a6e7422fe3 cannot be read";
    eventually(|| two.figures().lines().any(|line| line.contains(":last_error") && line.contains(named)));
    assert_eq!(two.look_up(&keys[44..]).iter().flatten().count(), 0);
    let told = |line: &str| cluster.log(0).matches(line).count();
    let pulls = told("a site pulls");
    eventually(|| told("a site pulls") > pulls + 2);
    assert_eq!(told("a site cannot be given what it pulls"), 1);
    (0..2).for_each(|site| assert!(!cluster.log(site).contains("key44"), "{}", cluster.log(site)));
    assert_eq!(one.ask("set key44 0 0 4\r\nlast\r\n"), "STORED");
    converge(&mut one, &mut two, &keys);
    assert_eq!(two.ask("mg key44 s\r\n"), "HD s4");
    assert_eq!(two.stat(":copied_pieces"), pieces);
}

/// A damaged record does not say whose it was: who has come to it takes a copy, which ends at its key. What is before
/// it arrives also at a site that comes after another one has met the damage.
#[test]
fn what_is_before_a_damaged_header_arrives_whoever_comes_first() {
    let mut cluster = Cluster::with_options(3, 3, "log", &["--store-segment-kib", "64"]);
    let mut one = cluster.client(0);
    let keys = keys(60);
    assert_eq!(one.ask("set first 0 0 3\r\nold\r\n"), "STORED");
    (1..3).for_each(|site| eventually(|| cluster.client(site).ask("mg first s\r\n") == "HD s3"));
    cluster.set_links(Link::Cut);
    set_all(&mut one, &keys);
    cluster.stop(0);
    damage(&cluster.store(0), "0044".repeat(250).as_bytes(), 1);
    cluster.start_again(0);
    for site in [2, 1] {
        cluster.set_links_of(site, Link::Open);
        let mut client = cluster.client(site);
        eventually(|| client.look_up(&keys[..44]).iter().flatten().count() == 44);
        let is_told = |line: &str| line.contains(":last_error") && line.contains("is damaged at");
        eventually(|| client.figures().lines().any(is_told));
    }
    assert_eq!(cluster.client(0).ask("set key44 0 0 4\r\nlast\r\n"), "STORED");
    for site in 1..3 {
        converge(&mut cluster.client(0), &mut cluster.client(site), &keys);
        assert_eq!(cluster.client(site).ask("mg key44 s\r\n"), "HD s4");
    }
}

/// Before a damaged record nobody is sent anything, and it has been replaced: a site that comes to it takes a copy.
#[test]
fn a_damaged_record_behind_what_is_not_told_stops_nobody() {
    let mut cluster = Cluster::with_options(2, 2, "log", &["--store-segment-kib", "64"]);
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    assert_eq!(one.ask("set first 0 0 3\r\nold\r\n"), "STORED");
    eventually(|| two.ask("mg first s\r\n") == "HD s3");
    cluster.set_links(Link::Cut);
    let copies = two.stat(":copies");
    let value = "0044".repeat(250);
    for key in (0..100).map(|number| format!("own:{number}")).chain(["key44".to_owned()]) {
        assert_eq!(one.ask(&format!("set {key} 0 0 1000\r\n{value}\r\n")), "STORED");
    }
    assert_eq!(one.ask("set key44 0 0 3\r\nnew\r\n"), "STORED");
    cluster.stop(0);
    let wanted = format!("key44{value}");
    damage(&cluster.store(0), wanted.as_bytes(), 1);
    cluster.start_again(0);
    cluster.set_links(Link::Open);
    // Its items are there before it is whole.
    eventually(|| two.ask("mg key44 s\r\n") == "HD s3" && two.stat(":copies") == copies + 1);
}

/// A repair cuts the record out. The site counts as restored then, and its peers have what was behind the record.
#[test]
fn a_repair_lets_all_go_on_behind_a_damaged_header() {
    let mut cluster = Cluster::with_options(2, 2, "log", &["--store-segment-kib", "64"]);
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    let keys = keys(200);
    assert_eq!(one.ask("set first 0 0 3\r\nold\r\n"), "STORED");
    eventually(|| two.ask("mg first s\r\n") == "HD s3");
    cluster.set_links(Link::Cut);
    set_all(&mut one, &keys);
    cluster.stop(0);
    damage(&cluster.store(0), "0044".repeat(250).as_bytes(), 1);
    cluster.start_again(0);
    cluster.set_links(Link::Open);
    eventually(|| two.look_up(&keys).iter().flatten().count() == 44);
    cluster.stop(0);
    let files = DiskFiles::open(cluster.store(0)).expect("a directory");
    let report = larder_store::check(&files, true).expect("it can be read");
    assert!(report.is_repaired);
    drop(files);
    cluster.start_again(0);
    eventually(|| two.look_up(&keys).iter().flatten().count() == 199);
    converge(&mut cluster.client(0), &mut two, &keys);
}

/// A site that cannot read what a peer has changed goes on with what follows. A comparison mends it; a delete does
/// without reading.
#[test]
fn a_damaged_record_of_who_pulls_stops_nothing() {
    let mut cluster = Cluster::with_options(2, 2, "log", &["--store-segment-kib", "64"]);
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    let keys = keys(200);
    set_all(&mut one, &keys);
    eventually(|| two.look_up(&keys).iter().flatten().count() == 200);
    // All that it has is confirmed.
    assert_eq!(two.ask("set key0 0 0 3\r\nown\r\n"), "STORED");
    eventually(|| one.ask("mg key0 s\r\n") == "HD s3");
    cluster.stop(1);
    for (value, is_header) in [("0044", true), ("0055", false), ("0066", false), ("0077", true)] {
        damage(&cluster.store(1), value.repeat(250).as_bytes(), usize::from(is_header));
    }
    for (request, reply) in [
        ("set key44 0 0 3\r\nnew\r\n", "STORED"),
        ("touch key55 9000\r\n", "TOUCHED"),
        ("set marker 0 0 2\r\nis\r\n", "STORED"),
    ] {
        assert_eq!(one.ask(request), reply);
    }
    cluster.start_again(1);
    let mut two = cluster.client(1);
    eventually(|| two.ask("mg marker s\r\n") == "HD s2");
    for key in ["key66", "key77"] {
        assert_eq!(two.ask(&format!("delete {key}\r\n")), "DELETED");
        eventually(|| one.ask(&format!("mg {key} s\r\n")) == "EN");
        assert_eq!(two.ask(&format!("mg {key} s\r\n")), "EN");
    }
    // A comparison leaves out what may be newer than all have said.
    eventually(|| {
        compared(&mut two, 1);
        two.ask("mg key44 s\r\n") == "HD s3"
    });
    converge(&mut one, &mut two, &keys);
}

/// A site serves from its memory what its disk cannot tell any more: an older deletion of a peer does not take it away.
#[test]
fn a_deletion_takes_away_nothing_newer_that_only_memory_has() {
    let cluster = Cluster::of(2, "log");
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    assert_eq!(one.ask("set key 0 0 3\r\nold\r\n"), "STORED");
    eventually(|| two.ask("mg key s\r\n") == "HD s3");
    cluster.set_links(Link::Cut);
    assert_eq!(one.ask("delete key\r\n"), "DELETED");
    assert_eq!(two.ask("set key 0 0 5\r\nnewer\r\n"), "STORED");
    eventually(|| try_damage(&cluster.store(1), b"newer", 1).is_some());
    assert_eq!(one.ask("set marker 0 0 2\r\nis\r\n"), "STORED");
    cluster.set_link(1, Link::Open);
    eventually(|| two.ask("mg marker s\r\n") == "HD s2");
    assert_eq!(two.ask("mg key s\r\n"), "HD s5");
}

/// Gives each key its number, 250 times over.
fn set_all(client: &mut Client, keys: &[String]) {
    for (number, key) in keys.iter().enumerate() {
        let value = format!("{number:04}").repeat(250);
        assert_eq!(client.ask(&format!("set {key} 0 0 1000\r\n{value}\r\n")), "STORED");
    }
}

/// Changes a byte of a segment that has these bytes: one of them, or one so far before them. Returns its path.
pub(crate) fn damage(directory: &Path, wanted: &[u8], before: usize) -> PathBuf {
    try_damage(directory, wanted, before).expect("a segment has it")
}

fn try_damage(directory: &Path, wanted: &[u8], before: usize) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("it is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    // The oldest first.
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if let Some(found) = try_damage(&path, wanted, before) {
                return Some(found);
            }
            continue;
        }
        let bytes = std::fs::read(&path).expect("it can be read");
        let is_segment = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segment-"));
        if is_segment && let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
            let at = at - before;
            // The site may write on meanwhile.
            let file = File::options().write(true).open(&path).expect("it can be written");
            file.write_all_at(&[bytes[at] ^ 1], at as u64).expect("it can be written");
            return Some(path);
        }
    }
    None
}
