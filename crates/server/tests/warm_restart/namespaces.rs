//! `-e FILE` beside `--namespaces` and `--store`: each namespace that is kept warm has a file of its own.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server, eventually};
use rustix::process::Signal;

use crate::killed::rounds;
use crate::load::{Load, stop_and_compare};
use crate::server::{Client, MemoryFile, chown_to_server, larderd, stop};

/// A file of namespaces, and a file for the caches.
struct Kept {
    file: MemoryFile,
    folder: Folder,
}

impl Kept {
    fn new(namespaces: &str) -> Self {
        let kept = Self { file: MemoryFile::new(), folder: Folder::create() };
        kept.write(namespaces);
        kept
    }

    fn write(&self, namespaces: &str) {
        self.folder.write("namespaces.toml", namespaces);
    }

    fn args<'a>(&self, toml: &'a mut String, args: &[&'a str]) -> Vec<&'a str> {
        *toml = self.folder.arg("namespaces.toml");
        [&["--namespaces", toml.as_str()], args].concat()
    }

    fn start(&self, args: &[&str]) -> Server {
        self.file.start(&self.args(&mut String::new(), args))
    }

    fn said(&self, args: &[&str]) -> (Option<i32>, String) {
        self.file.said(&self.args(&mut String::new(), args))
    }

    /// Starts a server that says this, and stops it.
    fn says(&self, expected: &str) {
        let (code, said) = self.said(&[]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.lines().any(|line| line.ends_with(expected)), "{expected}\n{said}");
    }

    fn refused(&self, args: &[&str], file: &str, reason: &str) {
        let (code, said) = self.said(args);
        let expected = format!("larderd: -e {file}: {reason}");
        assert_eq!((code, said.trim_end()), (Some(71), expected.as_str()));
    }
}

/// What a key has, as text.
fn get(client: &mut Client, key: &str) -> Option<String> {
    client.gets(key).map(|(_, _, value)| String::from_utf8(value).unwrap())
}

const THREE: &str = "[namespace.\"a:\"]\nmemory = \"8m\"\n[namespace.\"b:\"]\nmemory = \"8m\"\n";

/// Each policy keeps what it promises, side by side: in the table of docs/guides/namespaces.md.
#[test]
fn each_policy_keeps_what_it_promises_under_load() {
    let kept = Kept::new(
        "[default]\nkeep = \"cache\"\n\
         [namespace.\"warm\"]\nkeep = \"warm\"\nmemory = \"16m\"\n\
         [namespace.\"wide\"]\nkeep = \"warm\"\nmemory = \"16m\"\n\
         [namespace.\"store\"]\nkeep = \"store\"\nmemory = \"1m\"\n\
         [namespace.\"cache\"]\nkeep = \"cache\"\nmemory = \"16m\"\n",
    );
    let store = kept.folder.arg("store");
    let start = || kept.start(&["-m", "65", "-t", "3", "--store", &store]);
    let mut server = start();
    let mut loads = [
        Load::new("default", false),
        Load::new("warm", true),
        Load::new("wide", true),
        Load::new("store", true),
        Load::new("cache", false),
    ];
    let mut random = fastrand::Rng::with_seed(4);
    let mut last_cas = 0;
    for round in 0..rounds().div_ceil(2) as usize {
        let by = [Signal::KILL, Signal::TERM, Signal::KILL, Signal::USR1][round % 4];
        server = stop_and_compare(server, by, &mut loads, start, &mut random);
        let mut client = Client::of(&server);
        let mut word = |name: &str| client.word("stats namespaces", &format!("namespace:{name}"));
        assert_eq!(word("warm:keep").as_deref(), Some("warm"));
        assert_eq!(word("warm:memory_file"), Some(kept.file.of_namespace("warm")));
        assert_eq!((word("cache:memory_file"), word("<null>:memory_file")), (None, None));
        assert_eq!(word("warm:curr_items"), Some(loads[1].items().to_string()));
        assert_eq!(word("wide:curr_items"), Some(loads[2].items().to_string()));
        assert_eq!(client.word("stats settings", "memory_file").as_deref(), Some(kept.file.path()));
        client.set("warm/cas", 0, 0, b"new");
        let (_, cas, _) = client.gets("warm/cas").unwrap();
        assert!(cas > last_cas, "{cas} is above {last_cas}");
        last_cas = cas;
        assert_eq!(client.ask("delete warm/cas"), "DELETED");
    }
    assert_eq!(kept.file.beside(), ["warm", "wide"]);
    assert!(!kept.file.0.exists(), "the default is not kept");
    assert!(loads.iter().all(|load| load.done() > 0));
}

#[test]
fn a_file_that_cannot_be_kept_costs_its_namespace_alone() {
    let kept = Kept::new(THREE);
    let fill = || {
        let server = kept.start(&[]);
        let mut client = Client::of(&server);
        for key in ["a:1", "b:1", "c:1"] {
            client.set(key, 7, 1000, key.as_bytes());
        }
        server
    };
    let cold = |reason: &str| {
        let name = kept.file.of_namespace("b:");
        kept.says(&format!("the cache in {name} cannot be kept, it starts empty: {reason}"));
        let server = kept.start(&[]);
        let mut client = Client::of(&server);
        assert_eq!(get(&mut client, "b:1"), None, "{reason}");
        for key in ["a:1", "c:1"] {
            assert_eq!(get(&mut client, key).as_deref(), Some(key), "{reason}");
            let left = client.ask(&format!("mg {key} t"));
            let left: u32 = left.strip_prefix("HD t").expect("it expires").parse().unwrap();
            assert!((900..=1000).contains(&left), "{reason}: {left}");
        }
        stop(server, Signal::TERM);
    };
    let of_b = || fs::File::options().write(true).open(kept.file.of_namespace("b:")).unwrap();
    let damage = |bytes: &[u8], at: u64| of_b().write_all_at(bytes, at).unwrap();
    stop(fill(), Signal::USR1);
    damage(&9u32.to_ne_bytes(), 12);
    cold("it has format 9 of another version of larder");
    stop(fill(), Signal::KILL);
    damage(b"x", 20);
    cold("its first page is damaged");
    stop(fill(), Signal::TERM);
    of_b().set_len(10_000).unwrap();
    cold("it was truncated");
    stop(fill(), Signal::KILL);
    damage(&[0; 120], 8);
    cold("it was never finished");
    // The word of `log/superblock.rs` that says when its time began, as of a server that began long ago.
    stop(fill(), Signal::KILL);
    let unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    damage(&(unix_secs - 10_000_000).to_ne_bytes(), 17 * 8);
    cold("its time is not that of the others");
    // What is no cache is no one's to overwrite.
    let other = kept.file.of_namespace("b:");
    fs::remove_file(&other).unwrap();
    fs::write(&other, "precious").unwrap();
    chown_to_server(other.as_ref());
    let reason = "it is not larder's, and is left as it is; name a new file, or remove it";
    kept.refused(&[], &other, reason);
    assert_eq!(fs::read(&other).unwrap(), b"precious");
    fs::remove_file(&other).unwrap();
    let alone = Server::start(env!("CARGO_BIN_EXE_larderd").as_ref(), &["-e", &other]);
    let alone = alone.unwrap();
    assert_eq!(Client::of(&alone).ask("mn"), "MN");
    kept.refused(&[], &other, "another process is using it");
    drop(alone);
    fs::remove_file(&other).unwrap();
    // All are there again.
    stop(fill(), Signal::KILL);
    let server = kept.start(&[]);
    assert_eq!(get(&mut Client::of(&server), "b:1").as_deref(), Some("b:1"));
}

#[test]
fn prefixes_that_look_like_paths_stay_beside_the_file() {
    let long = "é".repeat(125);
    let prefixes = ["../x/", "a/b", "a/", "/", "é:", "%2f", "~", long.as_str()];
    let table = prefixes.map(|prefix| format!("[namespace.\"{prefix}\"]\nmemory = \"2m\"\n"));
    let kept = Kept::new(&table.concat());
    for by in [Signal::KILL, Signal::USR1, Signal::TERM] {
        let server = kept.start(&[]);
        let mut client = Client::of(&server);
        for prefix in prefixes {
            let key = if prefix.len() == 250 { prefix.to_owned() } else { format!("{prefix}1") };
            let before = (by != Signal::KILL).then(|| prefix.to_owned());
            assert_eq!(get(&mut client, &key), before, "{prefix}");
            client.set(&key, 0, 0, prefix.as_bytes());
        }
        stop(server, by);
    }
    let names = kept.file.beside();
    assert_eq!(names.len(), prefixes.len(), "{names:?}");
    for name in ["..%2fx%2f", "a%2fb", "a%2f", "%2f", "%c3%a9:", "%252f", "%7e"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
}

/// A value is the last one of its key, whatever the policies were when it was written.
#[test]
fn no_old_value_comes_back_with_other_policies() {
    let kept = Kept::new("[namespace.\"b:\"]\nmemory = \"8m\"\n");
    let set = |server: Server, value: &str, expected: Option<&str>| {
        let mut client = Client::of(&server);
        assert_eq!(get(&mut client, "b:1").as_deref(), expected);
        client.set("b:1", 0, 0, value.as_bytes());
        client.set("other", 0, 0, b"kept");
        stop(server, Signal::KILL);
    };
    set(kept.file.start(&[]), "without namespaces", None);
    let name = kept.file.path();
    kept.says(&format!("1 items of {name} belong to other namespaces now, and are dropped"));
    set(kept.start(&[]), "with them", None);
    set(kept.start(&[]), "with them again", Some("with them"));
    assert_eq!(kept.file.beside(), ["b:"]);
    let (_, said) = kept.file.said(&[]);
    let removed = |name: &str| format!("removed {name}: its namespace is not kept warm any more");
    let of_b = kept.file.of_namespace("b:");
    assert!(said.contains(&removed(&of_b)), "{said}");
    assert!(kept.file.beside().is_empty());
    set(kept.file.start(&[]), "without namespaces again", None);
    set(kept.start(&[]), "with them at last", None);
    // Another policy for each of the two.
    kept.write("[default]\nkeep = \"cache\"\n[namespace.\"b:\"]\nmemory = \"8m\"\n");
    let (_, said) = kept.said(&[]);
    assert!(said.contains(&removed(name)), "{said}");
    set(kept.start(&[]), "default is a cache", Some("with them at last"));
    // An orderly stop leaves each file in order, also where the default has none.
    stop(kept.start(&[]), Signal::TERM);
    let (_, said) = kept.said(&["-v"]);
    assert!(said.contains("was_killed=false"), "{said}");
    kept.write("[namespace.\"b:\"]\nkeep = \"cache\"\n");
    let (_, said) = kept.said(&[]);
    assert!(said.contains(&removed(&of_b)), "{said}");
    set(kept.start(&[]), "b: is a cache", None);
    let server = kept.start(&[]);
    assert_eq!(get(&mut Client::of(&server), "other").as_deref(), Some("kept"));
    stop(server, Signal::TERM);
    // Files of others have such names, too.
    let other = kept.file.of_namespace("other");
    fs::write(&other, "precious").unwrap();
    chown_to_server(other.as_ref());
    stop(kept.start(&[]), Signal::TERM);
    assert_eq!(fs::read(&other).unwrap(), b"precious");
}

/// Servers beside each other may have files whose names look alike: what is another's stays.
#[test]
fn the_file_of_another_server_is_neither_removed_nor_taken() {
    let kept = Kept::new("[namespace.\"a:\"]\nmemory = \"8m\"\n");
    let of_b = kept.file.of_namespace("b");
    let start_other = || {
        let mut command = server::command(larderd());
        command.args(["-e", &of_b]);
        let server = Server::start_command(command).unwrap();
        assert_eq!(Client::of(&server).ask("mn"), "MN");
        server
    };
    let other = start_other();
    Client::of(&other).set("key", 0, 0, b"others");
    // While it runs, and when it does not.
    let (code, said) = kept.said(&["-v"]);
    let alone = format!("left {of_b} alone: it belongs to another -e");
    assert!(code == Some(0) && said.contains(&alone), "{said}");
    stop(other, Signal::TERM);
    let (code, said) = kept.said(&["-v"]);
    assert!(code == Some(0) && said.contains(&alone), "{said}");
    let other = start_other();
    assert_eq!(get(&mut Client::of(&other), "key").as_deref(), Some("others"));
    stop(other, Signal::KILL);
    // Nor is it that of a namespace.
    kept.write("[namespace.\"b\"]\nmemory = \"8m\"\n");
    let reason = "it belongs to another -e; name another, or remove it";
    kept.refused(&[], &of_b, reason);
    let other = start_other();
    assert_eq!(get(&mut Client::of(&other), "key").as_deref(), Some("others"));
    stop(other, Signal::TERM);
}

/// Also that of a namespace: what it has may be older than what this `-e` was told since.
#[test]
fn the_file_of_a_namespace_of_another_e_is_not_taken() {
    let policies = "[namespace.\"a:\"]\nmemory = \"8m\"\n";
    let (kept, other) = (Kept::new(policies), Kept::new(policies));
    let server = other.start(&[]);
    Client::of(&server).set("a:1", 0, 0, b"others");
    stop(server, Signal::TERM);
    let (here, there) = (kept.file.of_namespace("a:"), other.file.of_namespace("a:"));
    fs::rename(&there, &here).unwrap();
    kept.refused(&[], &here, "it belongs to another -e; name another, or remove it");
    fs::rename(&here, &there).unwrap();
    let server = other.start(&[]);
    assert_eq!(get(&mut Client::of(&server), "a:1").as_deref(), Some("others"));
    stop(server, Signal::TERM);
}

#[test]
fn a_file_that_does_not_say_whose_it_is_stays() {
    let kept = Kept::new("[namespace.\"a:\"]\nmemory = \"8m\"\n");
    let server = kept.start(&[]);
    Client::of(&server).set("a:1", 0, 0, b"value");
    stop(server, Signal::KILL);
    // The word of `log/superblock.rs` that says it, as an earlier version left it.
    let of_a = kept.file.of_namespace("a:");
    fs::File::options().write(true).open(&of_a).unwrap().write_all_at(&[0; 8], 26 * 8).unwrap();
    kept.write("[namespace.\"a:\"]\nkeep = \"cache\"\n");
    let (code, said) = kept.said(&[]);
    let alone = format!("left {of_a} alone: it does not say which -e it belongs to");
    assert!(code == Some(0) && said.contains(&alone), "{said}");
    // It is taken up as before, and then says it.
    kept.write("[namespace.\"a:\"]\nmemory = \"8m\"\n");
    let server = kept.start(&[]);
    assert_eq!(get(&mut Client::of(&server), "a:1").as_deref(), Some("value"));
    stop(server, Signal::KILL);
    kept.write("[namespace.\"a:\"]\nkeep = \"cache\"\n");
    let (_, said) = kept.said(&[]);
    assert!(said.contains(&format!("removed {of_a}: its namespace is not kept warm any more")), "{said}");
    assert!(kept.file.beside().is_empty());
}

/// What the command line says where no policy does.
#[test]
fn the_command_line_says_where_the_rest_is_kept() {
    let (file, folder) = (MemoryFile::new(), Folder::create());
    let store = folder.arg("store");
    let value = |args: &[&str]| {
        let server = file.start(&[&["--store", &store], args].concat());
        let found = get(&mut Client::of(&server), "key");
        stop(server, Signal::KILL);
        found
    };
    let set = |args: &[&str], value: &str| {
        let server = file.start(&[&["--store", &store], args].concat());
        Client::of(&server).set("key", 0, 0, value.as_bytes());
        stop(server, Signal::KILL);
    };
    // The store has all, unless told otherwise.
    set(&[], "stored");
    assert!(!file.0.exists());
    set(&["--keep", "warm"], "warm");
    assert!(file.0.exists());
    assert_eq!(value(&["--keep", "warm"]).as_deref(), Some("warm"));
    assert_eq!(value(&[]).as_deref(), Some("stored"));
    let (_, said) = file.said(&["--store", &store]);
    let expected = format!("-e {} has no effect: no namespace is kept warm", file.path());
    assert!(said.contains(&expected), "{said}");
    // With a file of namespaces the rest is warm, that of its sections too.
    let toml = folder.write("namespaces.toml", "[namespace.\"s:\"]\nkeep = \"store\"\n[namespace.\"w:\"]\n");
    let args = ["--store", &store, "--namespaces", toml.to_str().unwrap()];
    for expected in [None, Some("value".to_owned())] {
        let server = file.start(&args);
        let mut client = Client::of(&server);
        for key in ["s:1", "w:1", "rest"] {
            assert_eq!(get(&mut client, key), expected, "{key}");
            client.set(key, 0, 0, b"value");
        }
        let mut keep =
            |name: &str| client.word("stats namespaces", &format!("namespace:{name}:keep")).unwrap();
        assert_eq!([keep("s:"), keep("w:"), keep("<null>")], ["store", "warm", "warm"]);
        stop(server, Signal::KILL);
    }
    assert_eq!(file.beside(), ["w:"]);
}

#[test]
fn all_files_together_fit_or_the_server_does_not_start() {
    let kept = Kept::new("[namespace.\"a:\"]\n");
    let system = rustix::fs::statvfs(kept.file.0.parent().unwrap()).unwrap();
    let free_mib = (system.f_bavail * system.f_frsize) >> 20;
    // Each would fit.
    let memory = (free_mib + free_mib / 4).to_string();
    let (code, said) = kept.said(&["-m", &memory]);
    assert!(
        code == Some(71) && said.contains(&format!("of the {memory} MiB that are to be cached")),
        "{said}"
    );
}

/// Quotas change while the server runs, and from one start to the next; where items are kept does not.
#[test]
fn quotas_change_with_and_without_a_restart() {
    let kept = Kept::new(THREE);
    let server = kept.start(&["-m", "64"]);
    let mut client = Client::of(&server);
    let value = vec![b'v'; 1000];
    for number in 0..3000 {
        client.set(&format!("a:{number}"), 0, 0, &value);
        client.set(&format!("b:{number}"), 0, 0, &value);
    }
    let reload = |server: &Server, namespaces: &str| {
        kept.write(namespaces);
        server.signal(Signal::HUP).unwrap();
    };
    let mut limit =
        |name: &str| client.word("stats namespaces", &format!("namespace:{name}:limit_maxbytes")).unwrap();
    reload(&server, "[namespace.\"a:\"]\nkeep = \"cache\"\n[namespace.\"b:\"]\n");
    reload(&server, "[namespace.\"a:\"]\nmemory = \"16m\"\n[namespace.\"b:\"]\nmemory = \"2m\"\n");
    eventually(|| limit("a:") == (16 << 20).to_string() && limit("b:") == (2 << 20).to_string());
    eventually(|| {
        let used = client.word("stats namespaces", "namespace:b::memory_used_bytes").unwrap();
        used.parse::<u64>().unwrap() < 5 << 19
    });
    stop(server, Signal::KILL);
    let server = kept.start(&["-m", "64"]);
    let mut client = Client::of(&server);
    let mut items = |name: &str| {
        client
            .word("stats namespaces", &format!("namespace:{name}:curr_items"))
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert_eq!(items("a:"), 3000);
    let left = items("b:");
    assert!((100..3000).contains(&left), "{left} are left in 2 MiB");
    stop(server, Signal::USR1);
    let (_, said) = kept.said(&["-m", "64", "-v"]);
    assert_eq!(said.matches("was_killed=false").count(), 3, "{said}");
    // The default's share, and both others, are other ones.
    kept.write("[namespace.\"a:\"]\nmemory = \"2m\"\n[namespace.\"b:\"]\nmemory = \"40m\"\n");
    let server = kept.start(&["-m", "50"]);
    let mut client = Client::of(&server);
    assert_eq!(client.word("stats namespaces", "namespace:b::curr_items"), Some(left.to_string()));
    eventually(|| {
        let items = client.word("stats namespaces", "namespace:a::curr_items").unwrap();
        (100..3000).contains(&items.parse::<u64>().unwrap())
    });
}
