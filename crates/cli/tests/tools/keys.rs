//! Tools about single keys.

use std::fs;

use larder_conformance::folder::Folder;
use serde_json::Value;

use crate::{both, command, ended, larder, larder_fed, ok, start_larderd, start_memcached};

#[test]
fn values_are_stored_and_found() {
    for server in both() {
        ok(&server, &["set", "a", "hello", "--flags", "7"]);
        assert_eq!(ok(&server, &["get", "a"]), "hello\n");
        let long = ok(&server, &["get", "--long", "a"]);
        assert!(long.starts_with("a 7 5 ") && long.ends_with("\nhello\n"), "{long}");
        assert_eq!(ok(&server, &["cat", "a", "a"]), "hellohello");

        ok(&server, &["append", "a", "!"]);
        ok(&server, &["prepend", "a", "("]);
        assert_eq!(ok(&server, &["get", "a"]), "(hello!\n");
        let told = larder(&server, &["add", "a", "x"]);
        assert_eq!((told.code, &told.err[..]), (1, "larder add: a: is there already\n"));
        for tool in ["replace", "append", "prepend"] {
            let told = larder(&server, &[tool, "none", "x"]);
            assert_eq!((told.code, told.err), (1, format!("larder {tool}: none: not found\n")));
        }
        ok(&server, &["add", "b", "x"]);
        ok(&server, &["replace", "b", "y"]);
        assert_eq!(ok(&server, &["get", "b"]), "y\n");

        // Whatever bytes come on standard input.
        let bytes = [0, 13, 10, 255];
        assert_eq!(larder_fed(&server, &["set", "c"], &bytes).code, 0);
        let json: Value =
            serde_json::from_str(&ok(&server, &["get", "--json", "a", "c"])).expect("it is JSON");
        assert_eq!((&json[0]["value"], &json[0]["flags"]), (&"(hello!".into(), &7.into()));
        assert_eq!(json[1]["value_base64"], "AA0K/w==");
    }
}

#[test]
fn cas_stores_only_what_nobody_changed() {
    for server in both() {
        ok(&server, &["set", "a", "1"]);
        let long = ok(&server, &["get", "--long", "a"]);
        let cas = long.split_whitespace().nth(3).expect("it is the fourth word");
        ok(&server, &["cas", "a", cas, "2"]);
        let told = larder(&server, &["cas", "a", cas, "3"]);
        assert_eq!((told.code, &told.err[..]), (1, "larder cas: a: has been changed since\n"));
        assert_eq!(larder(&server, &["cas", "none", cas, "3"]).code, 1);
        assert_eq!(ok(&server, &["get", "a"]), "2\n");
    }
}

/// protocol.txt: incr wraps at 2^64, decr stops at 0.
#[test]
fn numbers_are_counted() {
    for server in both() {
        assert_eq!(larder(&server, &["incr", "n"]).code, 1);
        assert_eq!(ok(&server, &["incr", "n", "--initial", "5"]), "5\n");
        assert_eq!(ok(&server, &["incr", "n", "--initial", "5"]), "6\n");
        assert_eq!(ok(&server, &["incr", "n", "18446744073709551615"]), "5\n");
        assert_eq!(ok(&server, &["decr", "n", "2"]), "3\n");
        assert_eq!(ok(&server, &["decr", "n", "9"]), "0\n");
        ok(&server, &["set", "text", "x"]);
        let told = larder(&server, &["incr", "text"]);
        assert!(told.code == 1 && told.err.contains("non-numeric"), "{told:?}");
    }
}

#[test]
fn missing_keys_are_named_and_the_others_served() {
    for server in both() {
        ok(&server, &["set", "a", "1"]);
        let address = server.address();
        for (tool, out) in [("get", "1\n"), ("cat", "1"), ("exist", ""), ("touch", "")] {
            let told = larder(&server, &[tool, "none", "a"]);
            assert_eq!((told.code, &told.out[..]), (1, out), "{tool}");
            assert_eq!(told.err, format!("larder {tool}: none: not found\n"));
            ok(&server, &[tool, "a"]);
        }
        ok(&server, &["rm", "a"]);
        assert_eq!(larder(&server, &["rm", "a"]).code, 1);
        let told = larder(&server, &["get", "no key"]);
        assert_eq!(told.code, 64, "{told:?}");
        assert!(told.err.contains(&address.to_string()), "{told:?}");
    }
}

#[test]
fn times_to_live_reach_the_server() {
    for server in both() {
        let ttl = |key: &str| {
            use std::io::{BufRead as _, BufReader, Write as _};
            let mut stream = server.connect().expect("it listens");
            write!(stream, "mg {key} t\r\n").expect("it reads");
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).expect("it answers");
            line.trim_end().strip_prefix("HD t").expect("it is there").parse::<i64>().expect("a number")
        };
        ok(&server, &["set", "a", "1", "--ttl", "2h"]);
        assert!((7140..=7200).contains(&ttl("a")));
        // More than 30 days go as a moment.
        ok(&server, &["touch", "a", "--ttl", "40d"]);
        assert!((3_455_940..=3_456_001).contains(&ttl("a")));
        ok(&server, &["get", "a", "--touch", "0"]);
        assert_eq!(ttl("a"), -1);
    }
}

#[test]
fn files_are_stored_under_their_names() {
    let folder = Folder::create();
    for server in both() {
        let path = folder.arg("photo.png");
        fs::write(&path, [0, 255, 10]).expect("the temporary directory can be written");
        ok(&server, &["cp", &path]);
        let cat = command(&server.address().to_string(), &["cat", "photo.png"]).output();
        assert_eq!(cat.expect("larder runs").stdout, [0, 255, 10]);
        ok(&server, &["cp", "--prefix", "v1:", &path]);
        ok(&server, &["exist", "v1:photo.png"]);
        ok(&server, &["cp", "--absolute", &path]);
        ok(&server, &["exist", &path]);
        assert_eq!(larder(&server, &["cp", "--mode", "add", &path]).code, 1);
        let told = larder(&server, &["cp", "/nonexistent", &path, "--prefix", "x"]);
        assert!(told.code == 1 && told.err.contains("/nonexistent"), "{told:?}");
        ok(&server, &["exist", "xphoto.png"]);
    }
}

#[test]
fn keys_are_spread_as_libmemcached_does_it() {
    let (a, b) = (start_memcached(&[]), start_larderd(&[]));
    let list = format!("{},{}", a.address(), b.address());
    for n in 0..20 {
        let set = command(&list, &["set", &format!("key:{n}"), "x"]).output().expect("larder runs");
        assert!(set.status.success());
    }
    let count =
        |server| (0..20).filter(|n| larder(server, &["exist", &format!("key:{n}")]).code == 0).count();
    let (on_a, on_b) = (count(&a), count(&b));
    assert!(on_a > 0 && on_b > 0 && on_a + on_b == 20, "{on_a} {on_b}");
}

#[test]
fn one_namespace_is_flushed_alone() {
    let folder = Folder::create();
    folder.write("namespaces.toml", "[namespace.\"a:\"]\n");
    let server = start_larderd(&["--namespaces", &folder.arg("namespaces.toml")]);
    for protocol in ["text", "meta"] {
        for key in ["a:1", "b"] {
            ok(&server, &["set", key, "x"]);
        }
        ok(&server, &["flush", "--prefix", "a:", "--protocol", protocol]);
        assert_eq!((larder(&server, &["exist", "a:1"]).code, larder(&server, &["exist", "b"]).code), (1, 0));
        ok(&server, &["flush", "--prefix", "<null>", "--protocol", protocol]);
        assert_eq!(larder(&server, &["exist", "b"]).code, 1);
    }
    let missing = larder(&server, &["flush", "--prefix", "b:"]);
    assert!(missing.code == 1 && missing.err.contains("there is no namespace \"b:\""), "{missing:?}");
    // memcached takes a delay of more than 30 days for a time that is past, or flushes nothing.
    for wrong in [
        &["flush", "--prefix", "a:", "--protocol", "binary"][..],
        &["flush", "--prefix", "a b"],
        &["flush", "--delay", "2592001"],
    ] {
        assert_eq!(larder(&server, wrong).code, 64, "{wrong:?}");
    }
}

#[test]
fn whoever_cannot_be_reached_is_named() {
    for (args, code) in [
        (&["get", "a"][..], 69),
        (&["set", "a", "b"], 69),
        (&["cat", "a"], 69),
        (&["ping"], 69),
        (&["stat"], 69),
        (&["version"], 69),
        (&["dump"], 69),
        (&["capable"], 69),
        (&["top", "--once"], 69),
        (&["flush"], 69),
    ] {
        let told = ended(&command("127.0.0.1:1", args).output().expect("larder runs"));
        assert_eq!(told.code, code, "{args:?}: {told:?}");
        assert!(format!("{}{}", told.out, told.err).contains("127.0.0.1:1"), "{args:?}: {told:?}");
        assert!(format!("{}{}", told.out, told.err).contains("refused"), "{args:?}: {told:?}");
    }
    let told = ended(&command("", &["ping"]).output().expect("larder runs"));
    assert_eq!(told.code, 64);
}

/// Wherever a server is named: by option, argument and variable.
#[test]
fn a_bad_port_is_refused() {
    for bad in ["127.0.0.1:99999", "127.0.0.1:abc", "127.0.0.1:0", "127.0.0.1:", "a:1,127.0.0.1:65536:2"] {
        let wrong = bad.rsplit(',').next().expect("there is one").trim_end_matches(":2");
        let refused = format!("{wrong}: the port must be a number from 1 to 65535");
        for args in [
            &["get", "a", "-s", bad][..],
            &["ping", "-s", bad],
            &["dump", bad],
            &["dump", "127.0.0.1:1", "--to", bad],
            &["load", bad],
            &["top", "--once", bad],
            &["slab", bad],
            &["capable", bad],
            &["shell", bad],
            &["latency", bad],
            &["hotkeys", bad],
            &["watch", "-s", bad],
            &["parse", bad],
        ] {
            let told = ended(&command("127.0.0.1:1", args).output().expect("larder runs"));
            assert_eq!(told.code, 64, "{args:?}: {told:?}");
            assert!(told.err.contains(&refused), "{args:?}: {told:?}");
        }
        let told = ended(&command(bad, &["get", "a"]).output().expect("larder runs"));
        assert!(told.code == 64 && told.err.contains(&refused), "{told:?}");
    }
}

#[test]
fn logins_work() {
    let folder = Folder::create();
    let (users, right, wrong) = (folder.arg("users"), folder.arg("right"), folder.arg("wrong"));
    for (file, text) in [(&users, "ann:secret\n"), (&right, "secret\n"), (&wrong, "guess\n")] {
        fs::write(file, text).expect("the temporary directory can be written");
    }
    for server in [start_memcached(&["-Y", &users]), start_larderd(&["-Y", &users])] {
        let with = |file: &str| larder(&server, &["set", "a", "b", "--user", "ann", "--password-file", file]);
        assert_eq!(with(&right).code, 0);
        assert_eq!(with(&wrong).code, 77);
        assert_eq!(larder(&server, &["get", "a"]).code, 77);
        let dump = ["dump", "-q", "--user", "ann", "--password-file", &right];
        assert!(ok(&server, &dump).ends_with("item a 0 0 1\nb\nend 1\n"));
    }
}

#[test]
fn unix_sockets_work() {
    let folder = Folder::create();
    let path = folder.arg("socket");
    let program = larder_conformance::server::any().expect("it builds");
    // A server on a unix socket names no port that could be waited for.
    let mut server =
        std::process::Command::new(program).args(["-u", "root", "-s", &path]).spawn().expect("it starts");
    let larder = |args: &[&str]| ended(&command(&path, args).output().expect("larder runs"));
    let answers = (0..6000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        larder(&["ping"]).code == 0
    });
    let (set, get, dump) = (larder(&["set", "a", "b"]), larder(&["get", "a"]), larder(&["dump", "-q"]));
    let _ = server.kill();
    let _ = server.wait();
    assert!(answers && set.code == 0, "{set:?}");
    assert_eq!((&get.out[..], &dump.out[..]), ("b\n", "larder-dump 1\nitem a 0 0 1\nb\nend 1\n"));
}
