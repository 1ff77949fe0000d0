//! Namespaces of a store: what concerns one leaves the others alone, over restarts too.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use larder_conformance::client::Client;
use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, eventually};
use larder_store::{LogOptions, LogStore, Store as _};
use rustix::process::Signal;

/// A larderd with a store and these namespaces.
fn start(folder: &Folder, namespaces: &str) -> Server {
    start_with(folder, namespaces, &[])
}

/// Starts a server with additional options.
fn start_with(folder: &Folder, namespaces: &str, options: &[&str]) -> Server {
    let (store, file) = (folder.path().join("store"), folder.path().join("namespaces.toml"));
    fs::write(&file, namespaces).expect("writes");
    let plain = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let args = ["-u", "root", "-m", "64", "--store", &plain(&store), "--namespaces", &plain(&file)];
    let args = [&args, options].concat();
    Server::start(Path::new(env!("CARGO_BIN_EXE_larderd")), &args).expect("larderd starts")
}

fn set(client: &mut Client, key: &str) {
    assert_eq!(client.ask(&format!("set {key} 0 0 1\r\nx\r\n")), "STORED");
}

/// A figure of `stats namespaces`, 1 for yes; 0: there is none.
fn figure(client: &mut Client, prefix: &str, name: &str) -> u64 {
    let value = client.stat("namespaces", &format!("namespace:{prefix}:{name}")).unwrap_or_default();
    value.parse().unwrap_or_else(|_| u64::from(value == "yes"))
}

/// Which of the keys are there.
fn found<'k>(client: &mut Client, keys: &[&'k str]) -> Vec<&'k str> {
    keys.iter().copied().filter(|key| client.ask(&format!("mg {key}\r\n")) == "HD").collect()
}

const NESTED: &str = r#"
[default]
keep = "store"
[namespace."a:"]
keep = "store"
[namespace."a:b:"]
keep = "store"
[namespace."a:c:"]
keep = "cache"
"#;

#[test]
fn a_flush_leaves_nested_namespaces_alone() {
    let keys = ["x", "a:1", "a:b:1", "a:b"];
    for (command, left) in [
        ("flush_prefix a:", &["x", "a:b:1"][..]),
        ("flush_prefix a:b:", &["x", "a:1", "a:b"]),
        ("flush_prefix <null>", &["a:1", "a:b:1", "a:b"]),
        ("flush_all", &[]),
    ] {
        let folder = Folder::create();
        let server = start(&folder, NESTED);
        let mut client = Client::of(&server);
        ["a:c:1"].iter().chain(&keys).for_each(|key| set(&mut client, key));
        assert_eq!(client.ask(&format!("{command}\r\n")), "OK");
        assert_eq!(found(&mut client, &keys), left, "{command}");
        assert_eq!(found(&mut client, &["a:c:1"]).len(), usize::from(command != "flush_all"), "{command}");
        server.kill().expect("it is killed");
        let server = start(&folder, NESTED);
        let mut client = Client::of(&server);
        assert_eq!(found(&mut client, &keys), left, "{command}, after a crash");
        set(&mut client, "a:1");
        server.stop().expect("it stops");
        let server = start(&folder, NESTED);
        let mut client = Client::of(&server);
        let left: Vec<_> = keys.into_iter().filter(|key| *key == "a:1" || left.contains(key)).collect();
        assert_eq!(found(&mut client, &keys), left, "{command}, after a restart");
    }
}

#[test]
fn a_delayed_flush_leaves_nested_namespaces_alone_after_a_crash() {
    let folder = Folder::create();
    let server = start(&folder, NESTED);
    let mut client = Client::of(&server);
    ["a:1", "a:b:1"].iter().for_each(|key| set(&mut client, key));
    assert_eq!(client.ask("flush_prefix a: 2\r\n"), "OK");
    server.kill().expect("it is killed");
    let server = start(&folder, NESTED);
    let mut client = Client::of(&server);
    eventually(|| found(&mut client, &["a:1", "a:b:1"]) == ["a:b:1"]);
    server.kill().expect("it is killed");
    let server = start(&folder, NESTED);
    assert_eq!(found(&mut Client::of(&server), &["a:1", "a:b:1"]), ["a:b:1"]);
}

const QUOTA_BYTES: u64 = 4 << 20;
const LIMITED: &str = r#"
[namespace."a:"]
keep = "store"
disk = "4m"
[namespace."b:"]
keep = "store"
[namespace."c:"]
keep = "cache"
"#;
const REFUSED: &str = "SERVER_ERROR namespace is over its disk quota";

/// Stores numbered values of 1000 bytes from several connections, many at a time. Returns how many were refused.
fn offer(server: &Server, prefix: &str, count: usize) -> usize {
    const CONNECTIONS: usize = 4;
    let value = "v".repeat(1000);
    let offer = |connection: usize| {
        let mut client = Client::of(server);
        let mut refused = 0;
        let numbers: Vec<_> = (connection..count).step_by(CONNECTIONS).collect();
        for batch in numbers.chunks(64) {
            let sets: String = (batch.iter())
                .map(|number| format!("set {prefix}{number} 0 0 1000\r\n{value}\r\n"))
                .collect();
            client.send(&sets);
            for _ in batch {
                match client.line().as_str() {
                    "STORED" => {}
                    REFUSED => refused += 1,
                    other => panic!("{other}"),
                }
            }
        }
        refused
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|nth| scope.spawn(move || offer(nth))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

#[test]
fn a_quota_of_disk_holds_under_load_and_concerns_its_namespace_alone() {
    let folder = Folder::create();
    let server = start(&folder, LIMITED);
    let mut client = Client::of(&server);
    // Five times the quota.
    let count = (QUOTA_BYTES * 5 / 1056) as usize;
    let refused = offer(&server, "a:", count);
    // By arithmetic: 48 bytes, key and value, up to a multiple of 8.
    let record_bytes = |number: usize| (48 + format!("a:{number}").len() + 1000).next_multiple_of(8) as u64;
    let holds = |bytes: u64| bytes.abs_diff(QUOTA_BYTES) <= QUOTA_BYTES / 50;
    let stored: Vec<_> =
        (0..count).filter(|number| client.ask(&format!("mg a:{number}\r\n")) == "HD").collect();
    assert_eq!(stored.len(), count - refused);
    let stored_bytes = stored.iter().map(|number| record_bytes(*number)).sum();
    assert!(holds(stored_bytes), "{stored_bytes} bytes are stored");
    let disk_bytes = figure(&mut client, "a:", "disk_bytes");
    assert!(disk_bytes.abs_diff(stored_bytes) <= stored_bytes / 500, "{disk_bytes} of {stored_bytes}");
    assert_eq!(figure(&mut client, "a:", "disk_limit_bytes"), QUOTA_BYTES);
    assert_eq!(figure(&mut client, "a:", "refused_disk"), refused as u64);
    // Others have none.
    assert_eq!(offer(&server, "b:", 8_000) + offer(&server, "c:", 1_000), 0);
    assert!(figure(&mut client, "b:", "disk_bytes") > 2 * QUOTA_BYTES);
    assert_eq!(
        (figure(&mut client, "b:", "disk_limit_bytes"), figure(&mut client, "c:", "disk_bytes")),
        (0, 0)
    );

    // What stores no value goes on; the old value stays where a store is refused.
    let first = stored[0];
    let full = |key: &str| format!("set {key} 0 0 50000\r\n{}\r\n", "w".repeat(50_000));
    assert_eq!(client.ask(&full(&format!("a:{first}"))), REFUSED);
    assert_eq!(client.ask(&full("a:new")), REFUSED);
    assert_eq!(client.ask(&full(&format!("a:{first}")).replacen("set", "append", 1)), REFUSED);
    assert_eq!(client.ask(&format!("mg a:{first} s\r\n")), "HD s1000");
    assert_eq!(client.ask(&format!("touch a:{first} 0\r\n")), "TOUCHED");
    let room = 50_000 / record_bytes(0) as usize + 2;
    for number in &stored[..room] {
        assert_eq!(client.ask(&format!("delete a:{number}\r\n")), "DELETED");
    }
    assert_eq!(client.ask(&full("a:new")), "STORED");
    assert_eq!(client.ask(&full("a:newer")), REFUSED);

    // Restarts: clean, and not.
    let used = |client: &mut Client| ["a:", "b:"].map(|prefix| figure(client, prefix, "disk_bytes"));
    let before = used(&mut client);
    server.stop().expect("it stops");
    let server = start(&folder, LIMITED);
    let mut client = Client::of(&server);
    assert_eq!((figure(&mut client, "a:", "disk_counting"), used(&mut client)), (0, before));
    assert_eq!(client.ask(&full("a:newer")), REFUSED);
    server.kill().expect("it is killed");
    let server = start(&folder, LIMITED);
    let mut client = Client::of(&server);
    eventually(|| figure(&mut client, "a:", "disk_counting") == 0);
    assert_eq!(used(&mut client), before);
    assert_eq!(client.ask(&full("a:newer")), REFUSED);

    // Another quota, without a restart.
    let reload = |quota: &str| {
        let changed = LIMITED.replace("4m", quota);
        fs::write(folder.path().join("namespaces.toml"), changed).expect("writes");
        server.signal(Signal::HUP).expect("it is told");
    };
    reload("5m");
    eventually(|| client.ask(&full("a:newer")) == "STORED");
    reload("1m");
    eventually(|| figure(&mut client, "a:", "disk_limit_bytes") == 1 << 20);
    assert_eq!(client.ask("set a:tiny 0 0 1\r\nx\r\n"), REFUSED);

    // A flush makes room, and so does what expires.
    assert_eq!(client.ask("flush_prefix a:\r\n"), "OK");
    eventually(|| client.ask("set a:tiny 0 0 1\r\nx\r\n") == "STORED");
    eventually(|| figure(&mut client, "a:", "disk_bytes") == (48 + 6 + 1_u64).next_multiple_of(8));
    let expiring = |client: &mut Client, number: u32| {
        client.ask(&format!("set a:{number} 0 2 50000\r\n{}\r\n", "w".repeat(50_000)))
    };
    let since = Instant::now();
    let filled = (0..30).find(|number| expiring(&mut client, *number) == REFUSED);
    // The first of them may have expired while a slow machine stored the others.
    if since.elapsed().as_secs() < 1 {
        assert_eq!(filled, Some((1 << 20) / 50_064), "items of 50,064 bytes fill a mebibyte");
    }
    eventually(|| expiring(&mut client, 99) == "STORED");
    assert_eq!(found(&mut client, &["b:0", "b:7999"]), ["b:0", "b:7999"]);
}

/// The bound in docs/store.md: 1.5 times the live bytes, and six files. With files as short as here, changes in flight
/// and figures that are read in the middle of a batch add some more. A client that outruns cleaning waits, and nobody
/// is refused.
#[test]
fn who_overwrites_without_pause_keeps_the_disk_within_its_bound() {
    const SEGMENT_BYTES: u64 = 1 << 20;
    let folder = Folder::create();
    let server = start_with(&folder, LIMITED, &["--store-segment-kib", "1024", "--durability", "interval"]);
    let mut client = Client::of(&server);
    let mut figures = |names: [&str; 2]| {
        let lines = client.lines("stats store\r\n", "END");
        names.map(|name| {
            let value = lines.iter().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
            value.and_then(|value| value.parse::<u64>().ok()).expect("a figure")
        })
    };
    let mut worst = 0;
    std::thread::scope(|scope| {
        // 1.6 MB are live of a quota of 4 MiB; 60 MiB are written.
        let refused = scope.spawn(|| (0..40).map(|_| offer(&server, "a:", 1_500)).sum::<usize>());
        while !refused.is_finished() {
            let [live, disk] = figures(["live_bytes", "disk_bytes"]);
            worst = worst.max(disk.saturating_sub(live * 3 / 2));
        }
        assert_eq!(refused.join().expect("no panic"), 0);
    });
    assert!(worst <= 12 * SEGMENT_BYTES, "{worst} bytes more than 1.5 times what lives");
    // Replies do not wait for the log.
    eventually(|| figures(["appended_bytes", "segments"])[0] > 60 << 20);
}

/// Who begins with a quota of disk while the server runs finds what was stored before.
#[test]
fn a_quota_of_disk_can_come_later() {
    let folder = Folder::create();
    let unlimited = LIMITED.replace("disk = \"4m\"\n", "");
    let server = start(&folder, &unlimited);
    let mut client = Client::of(&server);
    assert_eq!(offer(&server, "a:", 2_000), 0);
    assert_eq!(figure(&mut client, "a:", "disk_bytes"), 0, "nothing is counted");
    fs::write(folder.path().join("namespaces.toml"), LIMITED.replace("4m", "1m")).expect("writes");
    server.signal(Signal::HUP).expect("it is told");
    eventually(|| client.ask("set a:0 0 0 1\r\nx\r\n") == REFUSED);
    let bytes: u64 =
        (0..2_000).map(|number: u64| (1048 + 2 + number.to_string().len() as u64).next_multiple_of(8)).sum();
    let counted = figure(&mut client, "a:", "disk_bytes");
    assert!(counted.abs_diff(bytes) <= bytes / 500 + 2_000, "{counted} of {bytes}");
}

/// Changes on their way to the log count for the difference that they make.
#[test]
fn changes_of_an_item_on_their_way_leave_room_for_others() {
    let folder = Folder::create();
    let server = start(&folder, LIMITED);
    let mut client = Client::of(&server);
    let value = "v".repeat(500_000);
    assert_eq!(client.ask(&format!("set a:large 0 0 500000\r\n{value}\r\n")), "STORED");
    for (change, reply) in [
        // Of these the first writes the item anew, with a time; the others find one.
        ("touch a:large 1000\r\n", "TOUCHED"),
        ("append a:large 0 0 1\r\nx\r\n", "STORED"),
        ("md a:large I\r\n", "HD"),
    ] {
        let small = "set a:small 0 0 1\r\nx\r\n";
        let asked = [&change.repeat(40), small].concat();
        client.send(&asked);
        (0..40).for_each(|_| assert_eq!(client.line(), reply));
        assert_eq!(client.line(), "STORED", "behind {change:?}");
    }
    // 40 bytes were appended.
    let bytes =
        [48 + 7 + 500_040, 48 + 7 + 1].map(|bytes: u64| bytes.next_multiple_of(8)).iter().sum::<u64>();
    eventually(|| figure(&mut client, "a:", "disk_bytes").abs_diff(bytes) <= bytes / 500);
}

/// Sizes that change all the time, from several connections; in the end they only grow, so that nothing hides what was
/// admitted beyond the quota.
#[test]
fn a_quota_of_disk_holds_while_items_grow_and_shrink() {
    const KEYS: usize = 1200;
    const BATCH: usize = 32;
    let folder = Folder::create();
    let server = start(&folder, LIMITED);
    let value = "v".repeat(20_000);
    let load = &|connection: usize| {
        let mut random = fastrand::Rng::with_seed(connection as u64);
        let mut client = Client::of(&server);
        let mut refused = 0;
        for round in 0..90 {
            let request = |random: &mut fastrand::Rng| {
                let key = random.usize(..KEYS);
                let value = &value[random.usize(..value.len())..];
                match random.u8(0..10) {
                    _ if round >= 64 => format!("append a:{key} 0 0 10000\r\n{}\r\n", "v".repeat(10_000)),
                    _ if round >= 60 => format!("delete a:{key}\r\n"),
                    0 => format!("delete a:{key}\r\n"),
                    1..3 => format!("touch a:{key} 1000\r\n"),
                    _ => format!("set a:{key} 0 0 {}\r\n{value}\r\n", value.len()),
                }
            };
            let requests: String = (0..BATCH).map(|_| request(&mut random)).collect();
            client.send(&requests);
            refused += (0..BATCH).filter(|_| client.line() == REFUSED).count();
        }
        refused
    };
    let refused: usize = std::thread::scope(|scope| {
        let loads: Vec<_> = (0..4).map(|nth| scope.spawn(move || load(nth))).collect();
        loads.into_iter().map(|load| load.join().expect("no panic")).sum()
    });
    assert!(refused > 0, "the quota is reached");
    let mut client = Client::of(&server);
    // By what is there: 48 bytes, key and value, up to a multiple of 8.
    let stored = (0..KEYS).filter_map(|key| {
        let reply = client.ask(&format!("mg a:{key} s\r\n"));
        let value_bytes: usize = reply.strip_prefix("HD s")?.parse().expect("a length");
        Some((48 + format!("a:{key}").len() + value_bytes).next_multiple_of(8) as u64)
    });
    let stored: u64 = stored.sum();
    assert!(stored.abs_diff(QUOTA_BYTES) <= QUOTA_BYTES / 50, "{stored} bytes are stored");
    let counted = figure(&mut client, "a:", "disk_bytes");
    assert!(counted.abs_diff(stored) <= stored / 500, "{counted} of {stored}");
}

/// A delayed flush of a namespace that a later file does not have.
#[test]
fn a_delayed_flush_does_not_outlive_its_namespace() {
    let without = NESTED.replace("[namespace.\"a:b:\"]\nkeep = \"store\"\n", "");
    assert_ne!(without, NESTED);
    for (delay_secs, is_due) in [(1, true), (100_000, false)] {
        let folder = Folder::create();
        let server = start(&folder, NESTED);
        let mut client = Client::of(&server);
        ["a:1", "a:b:1"].iter().for_each(|key| set(&mut client, key));
        assert_eq!(client.ask(&format!("flush_prefix a:b: {delay_secs}\r\n")), "OK");
        let due = SystemTime::now() + Duration::from_secs(2);
        server.kill().expect("it is killed");
        eventually(|| !is_due || SystemTime::now() > due);

        let server = start(&folder, &without);
        let mut client = Client::of(&server);
        let left: &[&str] = if is_due { &["a:1"] } else { &["a:1", "a:b:1"] };
        assert_eq!(found(&mut client, &["a:1", "a:b:1"]), left, "{delay_secs}");
        set(&mut client, "a:b:2");
        server.stop().expect("it stops");
        let store = LogStore::open(&folder.path().join("store"), LogOptions::default()).expect("it opens");
        assert_eq!(store.pending_flushes(), [], "{delay_secs}");
        drop(store);
        // It comes back: what was stored meanwhile stays.
        let server = start(&folder, NESTED);
        assert_eq!(found(&mut Client::of(&server), &["a:b:2"]), ["a:b:2"], "{delay_secs}");
    }
}
