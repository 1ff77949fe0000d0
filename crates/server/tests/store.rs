//! A store for operators: its statistics, lists of keys from disk, and backups while it serves.

use std::collections::BTreeSet;
use std::path::Path;

use larder_conformance::client::Client;
use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, eventually};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Its values are together four times its memory.
const ITEMS: usize = 32_000;
const VALUE_BYTES: usize = 1000;

fn start(store: &Path, options: &[&str]) -> Server {
    let store = store.to_str().expect("a plain path");
    let args = [&["-u", "root", "-m", "8", "--store", store][..], options].concat();
    Server::start(Path::new(env!("CARGO_BIN_EXE_larderd")), &args).expect("larderd starts")
}

fn number(client: &mut Client, name: &str) -> u64 {
    let value = client.stat("store", name).unwrap_or_else(|| panic!("no {name}"));
    value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
}

fn fill(client: &mut Client) {
    let value = "v".repeat(VALUE_BYTES);
    for item in 0..ITEMS {
        client.send(&format!("set key:{item} 7 0 {VALUE_BYTES} noreply\r\n{value}\r\n"));
    }
    assert_eq!(client.ask("set last 0 0 1\r\nx\r\n"), "STORED");
}

fn keys(lines: &[String]) -> (usize, BTreeSet<&str>) {
    let keys: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("key=")?.split(' ').next()).collect();
    (keys.len(), keys.into_iter().collect())
}

#[test]
fn keys_are_listed_once_whether_they_are_in_memory_or_on_disk() {
    let folder = Folder::create();
    let server = start(&folder.path().join("store"), &["--durability", "interval"]);
    let mut client = Client::of(&server);
    fill(&mut client);
    assert_eq!(client.ask("delete key:0\r\n"), "DELETED");
    let in_memory = number(&mut client, "memory_items") as usize;
    assert!(in_memory < ITEMS / 2, "{in_memory} of them are in memory");
    let lines = client.lines("lru_crawler metadump all\r\n", "END");
    let (count, keys) = keys(&lines);
    assert_eq!((count, keys.len()), (ITEMS, ITEMS), "with `last`, without `key:0`");
    assert!(keys.contains("last") && !keys.contains("key:0"));
    let lines = client.lines("lru_crawler mgdump all\r\n", "EN");
    assert_eq!(lines.iter().filter(|line| line.starts_with("mg ")).count(), ITEMS);
    // A client that does not read its list stops nobody.
    let mut idle = Client::of(&server);
    idle.send("lru_crawler metadump all\r\n");
    assert_eq!(client.ask("set other 0 0 1\r\nx\r\n"), "STORED");
    assert_eq!(client.lines("lru_crawler metadump all\r\n", "END").len(), ITEMS + 3, "with OK and END");
}

#[test]
fn statistics_count_what_was_stored_and_read() {
    let folder = Folder::create();
    let server = start(&folder.path().join("store"), &[]);
    let mut client = Client::of(&server);
    fill(&mut client);
    let key_bytes: usize = (0..ITEMS).map(|item| format!("key:{item}").len()).sum();
    let stored_bytes = ITEMS * VALUE_BYTES + key_bytes + "last".len() + "x".len();
    // Counted once the changes are.
    eventually(|| number(&mut client, "stored_bytes") == stored_bytes as u64);
    assert_eq!(number(&mut client, "changes"), ITEMS as u64 + 1);
    assert!(number(&mut client, "appended_bytes") >= stored_bytes as u64);
    assert_eq!(client.stat("store", "state").as_deref(), Some("writable"));
    assert!(number(&mut client, "commit:count") > 0 && number(&mut client, "fsync:p99_nanos") > 0);
    for item in 0..1000 {
        assert!(client.ask(&format!("get key:{item}\r\n")).starts_with("VALUE"), "{item}");
        client.value(VALUE_BYTES);
        assert_eq!(client.line(), "END");
    }
    let found = number(&mut client, "lookups_found");
    assert!((1..=1000).contains(&found), "{found}");
    assert_eq!((number(&mut client, "get_hits"), number(&mut client, "get_misses")), (1000, 0));
    assert_eq!(client.ask("get nothing\r\n"), "END");
    assert_eq!(number(&mut client, "get_misses"), 1);
    // Without a store there are none.
    let without =
        Server::start(Path::new(env!("CARGO_BIN_EXE_larderd")), &["-u", "root"]).expect("larderd starts");
    assert_eq!(Client::of(&without).ask("stats store\r\n"), "ERROR");
}

#[test]
fn backups_are_taken_while_it_serves_and_can_be_restored() {
    let folder = Folder::create();
    let backups = folder.path().join("backups");
    let server = start(
        &folder.path().join("store"),
        &["--durability", "interval", "--backup-dir", backups.to_str().expect("a plain path")],
    );
    let mut client = Client::of(&server);
    fill(&mut client);
    assert_eq!(client.ask("stats store backup ../up\r\n").split(':').next(), Some("CLIENT_ERROR usage"));
    assert_eq!(client.ask("stats store backup monday\r\n"), "OK");
    assert_eq!(client.ask("set later 5 0 3\r\nabc\r\n"), "STORED");
    eventually(|| client.stat("store", "backup_state").as_deref() == Some("done"));
    assert_eq!(client.ask("delete key:7\r\n"), "DELETED");
    assert_eq!(client.ask("stats store backup tuesday monday\r\n"), "OK");
    eventually(|| client.stat("store", "backup_state").as_deref() == Some("done"));
    assert_eq!(client.ask("stats store backup tuesday\r\n"), "OK");
    eventually(|| {
        client.stat("store", "backup_error").is_some_and(|error| error == "tuesday exists already")
    });

    let restored = folder.path().join("restored");
    let open = |path: &Path| larder_store::files::DiskFiles::open(path).expect("a directory");
    let (tuesday, monday) = (open(&backups.join("tuesday")), open(&backups.join("monday")));
    larder_store::restore(&[&tuesday, &monday], &open(&restored)).expect("it is whole");
    let server = start(&restored, &[]);
    let mut client = Client::of(&server);
    assert_eq!(client.ask("get later\r\n"), "VALUE later 5 3");
    assert_eq!((client.line(), client.line()), ("abc".into(), "END".into()));
    assert_eq!(client.ask("get key:7\r\n"), "END");
    assert_eq!(client.ask("get key:8\r\n"), format!("VALUE key:8 7 {VALUE_BYTES}"));
    drop(client);
    let mut client = Client::of(&server);
    assert_eq!(keys(&client.lines("lru_crawler metadump all\r\n", "END")).0, ITEMS + 1);
    assert_eq!(client.ask("stats store backup x\r\n"), "CLIENT_ERROR backups not enabled");
}

/// Files come and go while it serves, it is killed, it stops: `-o drop_privileges` forbids nothing of that.
#[test]
fn a_confined_store_is_kept() {
    let folder = Folder::create();
    let (store, backups) = (folder.file("store"), folder.file("backups"));
    let options = [
        &["-o", "drop_privileges", "--durability", "interval", "--store-segment-kib", "512"][..],
        &["--backup-dir", backups.to_str().expect("a plain path")],
    ]
    .concat();
    let server = start(&store, &options);
    let mut client = Client::of(&server);
    fill(&mut client);
    fill(&mut client);
    fill(&mut client);
    // Files of the first two times are removed.
    eventually(|| number(&mut client, "disk_bytes") < 2 * number(&mut client, "live_bytes"));
    assert_eq!(client.ask("stats store backup monday\r\n"), "OK");
    eventually(|| client.stat("store", "backup_state").as_deref() == Some("done"));
    assert_eq!(client.stat("store", "state").as_deref(), Some("writable"));
    server.kill().expect("it runs");
    for _ in 0..2 {
        let server = start(&store, &options);
        let mut client = Client::of(&server);
        assert_eq!(number(&mut client, "records"), ITEMS as u64 + 1);
        assert_eq!(client.ask("get key:8\r\n"), format!("VALUE key:8 7 {VALUE_BYTES}"));
        assert!(server.stop().expect("it runs").success());
    }
    let files = larder_store::files::DiskFiles::open(&store).expect("a directory");
    assert_eq!(larder_store::check(&files, false).expect("it can be read").damages, []);
}

/// Six values of 6 MB are read while memory has room for two: their readers take turns.
#[test]
fn items_larger_than_what_memory_has_free_are_read_in_turn() {
    const READERS: usize = 6;
    const VALUE_BYTES: usize = 6_000_000;
    let folder = Folder::create();
    let server = start(folder.path(), &["-m", "16", "-I", "7m", "--durability", "os"]);
    let value = "v".repeat(VALUE_BYTES);
    for nth in 0..READERS {
        let answer = Client::of(&server).ask(&format!("set large{nth} 0 0 {}\r\n{value}\r\n", value.len()));
        assert_eq!(answer, "STORED");
    }
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::of(server);
                for nth in [reader, (reader + 1) % READERS] {
                    let head = client.ask(&format!("get large{nth}\r\n"));
                    assert_eq!(head, format!("VALUE large{nth} 0 {VALUE_BYTES}"));
                    assert_eq!((client.value(VALUE_BYTES).len(), client.line()), (VALUE_BYTES, "END".into()));
                }
            });
        }
    });
    // One request reads all of them: nobody else waits, and it gets all.
    let mut client = Client::of(&server);
    client.send("get large0 large1 large2 large3 large4 large5\r\n");
    for nth in 0..READERS {
        assert_eq!(client.line(), format!("VALUE large{nth} 0 {VALUE_BYTES}"));
        assert_eq!(client.value(VALUE_BYTES).len(), VALUE_BYTES);
    }
    assert_eq!(client.line(), "END");
}

/// Its namespace had more memory before. It can be deleted, though not read.
#[test]
fn an_item_that_memory_has_no_room_for_can_be_deleted() {
    let folder = Folder::create();
    let server = start(folder.path(), &["-m", "100", "-I", "30m"]);
    let value = "v".repeat(20 << 20);
    assert_eq!(Client::of(&server).ask(&format!("set large 0 0 {}\r\n{value}\r\n", value.len())), "STORED");
    server.kill().expect("it runs");
    let server = start(folder.path(), &["-m", "16"]);
    let mut client = Client::of(&server);
    assert_eq!(client.ask("get large\r\n"), "SERVER_ERROR out of memory reading item from store");
    assert_eq!(client.ask("delete large\r\n"), "DELETED");
    assert_eq!(client.ask("delete large\r\n"), "NOT_FOUND");
    server.kill().expect("it runs");
    let server = start(folder.path(), &["-m", "100", "-I", "30m"]);
    assert_eq!(Client::of(&server).ask("get large\r\n"), "END");
}

/// Descriptors run out and come back: changes that need one are refused meanwhile, and nothing is given up for good.
#[test]
fn a_store_goes_on_once_there_are_descriptors_again() {
    let folder = Folder::create();
    let server = start(&folder.path().join("store"), &["-t", "1", "--store-segment-kib", "16"]);
    let mut client = Client::of(&server);
    let value = "v".repeat(5_000);
    assert_eq!(client.ask(&format!("set first 0 0 5000\r\n{value}\r\n")), "STORED");
    let files = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").count() as u64;
    let limit = |current| {
        let pid = Pid::from_raw(server.pid() as i32);
        let maximum = getrlimit(Resource::Nofile).maximum;
        prlimit(pid, Resource::Nofile, Rlimit { current: Some(current), maximum }).expect("it runs")
    };
    let before = limit(files() + 6);
    let mut others = Vec::new();
    let mut refused = 0;
    for nth in 0..40 {
        others.push(server.connect());
        match client.ask(&format!("set key{nth} 0 0 5000\r\n{value}\r\n")).as_str() {
            "STORED" => {}
            "SERVER_ERROR store cannot write" => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(refused > 0, "there was a descriptor for all");
    drop(others);
    limit(before.current.unwrap_or(1024));
    eventually(|| client.ask(&format!("set again 0 0 5000\r\n{value}\r\n")) == "STORED");
    assert_eq!(client.stat("store", "state").as_deref(), Some("writable"));
}

/// Watchers see items that are on disk as hits.
#[test]
fn watchers_see_hits_on_disk() {
    let folder = Folder::create();
    let server = start(&folder.path().join("store"), &["-t", "1"]);
    let mut client = Client::of(&server);
    assert_eq!(client.ask("set key 0 0 3\r\nabc\r\n"), "STORED");
    server.stop().expect("it stops");
    let server = start(&folder.path().join("store"), &["-t", "1"]);
    let mut watcher = Client::of(&server);
    assert_eq!(watcher.ask("watch fetchers deletions\r\n"), "OK");
    let mut client = Client::of(&server);
    for (request, reply, status) in [
        ("mg key s\r\n", "HD s3", "found"),
        ("mg none s\r\n", "EN", "not_found"),
        ("touch key 0\r\n", "TOUCHED", "found"),
    ] {
        assert_eq!(client.ask(request), reply);
        let line = watcher.line();
        assert!(line.contains("type=item_get") && line.contains(&format!("status={status} ")), "{line}");
    }
}
