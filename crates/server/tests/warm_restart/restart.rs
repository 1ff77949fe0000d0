//! One cache, in one file.

use std::time::Duration;
use std::{fs, thread};

use larder_conformance::server::eventually;
use rustix::process::Signal;

use crate::server::{Client, MemoryFile, chown_to_server, said_at, stop};

/// As memcached after SIGUSR1: flags, CAS values, times to live and `curr_items` are right, CAS values and `uptime` go
/// on. Here also after SIGTERM, SIGINT and SIGKILL, with other options, and in the second of the stop.
#[test]
fn a_server_goes_on_with_the_cache_of_the_one_before() {
    let file = MemoryFile::new();
    let large = vec![b'l'; 3_000_000];
    let mut server = file.start(&["-I", "8m"]);
    let mut client = Client::of(&server);
    client.set("flags", 4_000_000_000, 0, b"value");
    client.set("large", 1, 0, &large);
    client.set("empty", 2, 0, b"");
    client.set("ttl", 3, 1000, b"value");
    client.set("brief", 4, 2, b"value");
    client.set("gone", 5, 0, b"value");
    assert_eq!(client.ask("delete gone"), "DELETED");
    assert_eq!(client.ask("touch empty 500"), "TOUCHED");
    assert_eq!(client.ask("mn"), "MN");
    let (_, first_cas, _) = client.gets("flags").unwrap();
    let mut last_cas = first_cas;
    let ends: [(Signal, &[&str]); 5] = [
        (Signal::USR1, &["-I", "8m"]),
        (Signal::TERM, &["-t", "1", "-I", "8m"]),
        (Signal::INT, &["-t", "9", "-c", "50", "-R", "7", "-B", "ascii"]),
        (Signal::KILL, &["-m", "80", "-I", "8m"]),
        (Signal::KILL, &["-m", "40", "-M"]),
    ];
    let mut uptime = client.stat("uptime");
    for (number, (by, args)) in ends.into_iter().enumerate() {
        // All of it in the same second.
        stop(server, by);
        server = file.start(args);
        client = Client::of(&server);
        let (flags, cas, value) = client.gets("flags").expect("it is kept");
        assert_eq!((flags, cas, &value[..]), (4_000_000_000, first_cas, &b"value"[..]));
        assert_eq!(client.gets("large").map(|(_, _, value)| value == large), Some(true));
        assert_eq!(client.gets("gone"), None);
        for (key, ttl_secs) in [("ttl", 1000), ("empty", 500)] {
            let ttl = client.ask(&format!("mg {key} t"));
            let left: u32 = ttl.strip_prefix("HD t").expect("it expires").parse().unwrap();
            assert!((ttl_secs - 60..=ttl_secs).contains(&left), "{ttl}");
        }
        let key = format!("new-{number}");
        client.set(&key, 0, 0, b"new");
        let (_, cas, _) = client.gets(&key).unwrap();
        assert!(cas > last_cas, "{cas} is above {last_cas}");
        last_cas = cas;
        // It may expire in between.
        let was_brief = client.ask("mg brief").starts_with("HD");
        let items = client.stat("curr_items");
        let is_brief = client.gets("brief").is_some();
        let others = 4 + number as u64 + 1;
        assert!((others + u64::from(is_brief)..=others + u64::from(was_brief)).contains(&items), "{items}");
        let now = client.stat("uptime");
        assert!(now >= uptime);
        uptime = now;
    }
    // What expires meanwhile is gone.
    stop(server, Signal::USR1);
    let server = file.start(&[]);
    let mut client = Client::of(&server);
    client.set("brief", 4, 1, b"value");
    stop(server, Signal::USR1);
    thread::sleep(Duration::from_millis(2100));
    let server = file.start(&[]);
    let mut client = Client::of(&server);
    assert_eq!(client.gets("brief"), None);
    assert!(client.gets("ttl").is_some());
    assert_eq!(client.ask("cache_memlimit 100"), "OK");
}

#[test]
fn flushes_and_the_shutdown_command_are_kept() {
    let file = MemoryFile::new();
    let server = file.start(&["-A"]);
    let mut client = Client::of(&server);
    client.set("flushed", 0, 0, b"value");
    assert_eq!(client.ask("flush_all"), "OK");
    client.set("there", 0, 0, b"value");
    client.send(b"shutdown\r\n").unwrap();
    let mut server = server;
    eventually(|| !server.is_running());
    let server = file.start(&[]);
    let mut client = Client::of(&server);
    assert_eq!(client.gets("flushed"), None);
    assert!(client.gets("there").is_some());
    assert_eq!(client.ask("flush_all 1"), "OK");
    stop(server, Signal::KILL);
    thread::sleep(Duration::from_millis(2100));
    let server = file.start(&[]);
    assert_eq!(Client::of(&server).gets("there"), None);
}

/// Every line, and that a file that is not larder's stays as it is.
#[test]
fn what_cannot_be_used_is_named() {
    let file = MemoryFile::new();
    stop(file.start(&[]), Signal::USR1);
    let cold = |reason: &str| {
        let (code, said) = file.said(&[]);
        assert_eq!(code, Some(0), "{said}");
        let expected = format!("the cache in {} cannot be kept, it starts empty: {reason}", file.path());
        assert!(said.lines().any(|line| line.ends_with(&expected)), "{said}");
    };
    let write = |bytes: &[u8], at: u64| {
        use std::os::unix::fs::FileExt as _;
        let opened = fs::File::options().write(true).open(&file.0).unwrap();
        opened.write_all_at(bytes, at).unwrap();
    };
    write(&9u32.to_ne_bytes(), 12);
    cold("it has format 9 of another version of larder");
    write(b"x", 20);
    cold("its first page is damaged");
    fs::File::options().write(true).open(&file.0).unwrap().set_len(10_000).unwrap();
    cold("it was truncated");
    write(&[0; 120], 8);
    cold("it was never finished");
    let running = file.start(&[]);
    let refused = |path: &str, reason: &str| {
        let (code, said) = said_at(path, &[]);
        assert_eq!((code, said.trim_end()), (Some(71), format!("larderd: -e {path}: {reason}").as_str()));
    };
    refused(file.path(), "another process is using it");
    drop(running);
    let other = MemoryFile::new();
    for content in [&b"precious"[..], &[0; 5000]] {
        fs::write(&other.0, content).unwrap();
        chown_to_server(&other.0);
        refused(other.path(), "it is not larder's, and is left as it is; name a new file, or remove it");
        assert_eq!(fs::read(&other.0).unwrap(), content);
    }
    // memcached dies of an empty file.
    fs::write(&other.0, b"").unwrap();
    chown_to_server(&other.0);
    assert_eq!(other.said(&[]), (Some(0), String::new()));
    let link = MemoryFile::new();
    std::os::unix::fs::symlink(&other.0, &link.0).unwrap();
    refused(link.path(), "it is a symbolic link");
    refused("/dev/null", "it is a device");
    refused("/dev/shm", "it is a directory");
    // 1 TiB: more than the file system of any machine that runs this has free.
    let (code, said) = other.said(&["-m", "1048576"]);
    assert!(code == Some(71) && said.contains("MiB of the 1048576 MiB that are to be cached"), "{said}");
    fs::set_permissions(&other.0, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    refused(other.path(), "others may write to it (mode 666)");
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&other.0, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        std::os::unix::fs::chown(&other.0, Some(1), None).unwrap();
        let (code, said) = other.said(&[]);
        // Without the right to write to it, it is not opened.
        assert!(code == Some(71) && said.contains(&format!("-e {}: ", other.path())), "{said}");
    }
}
