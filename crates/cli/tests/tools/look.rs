//! Tools that look at servers, and tools that need none.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, reference, version};
use serde_json::Value;

use crate::{both, command, ended, larder, ok, start_memcached};

#[test]
fn statistics_are_printed_as_memstat_prints_them() {
    for server in both() {
        let (host, port) = (server.address().ip(), server.address().port());
        let out = ok(&server, &["stat"]);
        assert!(
            out.starts_with(&format!("Server: {host} ({port})\n\tpid: {}\n\tuptime: ", server.pid())),
            "{out}"
        );
        assert!(ok(&server, &["stat", "settings"]).contains("\n\tmaxbytes: "));
        let json: Value = serde_json::from_str(&ok(&server, &["stat", "--json"])).expect("it is JSON");
        assert_eq!(json[server.address().to_string()]["pid"], server.pid());
        assert!(json[server.address().to_string()]["version"].is_string());
        for group in ["items", "slabs", "sizes", "conns"] {
            ok(&server, &["stat", group]);
        }
        assert_eq!(larder(&server, &["stat", "nothing"]).code, 1);
        assert_eq!(ok(&server, &["stat", "--grep", "curr_conn"]).lines().count(), 2);
    }
}

#[test]
fn keys_and_prefixes_are_statistics_as_well() {
    for server in both() {
        ok(&server, &["stat", "detail", "on"]);
        ok(&server, &["set", "user:1", "abc"]);
        ok(&server, &["get", "user:1"]);
        assert!(ok(&server, &["stat", "detail", "dump"]).ends_with("\n\tuser: get 1 hit 1 set 1 del 0\n"));
        ok(&server, &["stat", "detail", "off"]);
        // memcached shows what its maintainer thread has moved to the class's cold queue.
        let deadline = Instant::now() + Duration::from_secs(60);
        let items = loop {
            let items = ok(&server, &["stat", "cachedump", "1", "10"]);
            if items.contains("user:1") || Instant::now() > deadline {
                break items;
            }
            thread::sleep(Duration::from_millis(50));
        };
        assert!(items.contains("\n\tuser:1: [3 b; "), "{items}");
        let conns = ok(&server, &["stat", "conns"]);
        assert!(conns.contains(&format!(":listen_addr: tcp:{}\n", server.address())), "{conns}");
    }
}

/// Where libmemcached's and memcached's own tools are installed, the same server looks the same through both.
#[test]
fn the_forms_are_those_of_the_tools_that_people_know() {
    let server = start_memcached(&[]);
    ok(&server, &["set", "a", "b"]);
    let address = server.address().to_string();
    if let Ok(memstat) = Command::new("memcstat").arg(format!("--servers={address}")).output() {
        let names = |text: &str| {
            text.lines()
                .map(|line| line.split_once(": ").map_or(line, |line| line.0).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&ok(&server, &["stat"])), names(&String::from_utf8_lossy(&memstat.stdout)));
    }
    let script = "/usr/share/memcached/scripts/memcached-tool";
    if fs::exists(script).is_ok_and(|exists| exists) {
        let display = Command::new(script).arg(&address).output().expect("it runs");
        let columns = |text: &str| {
            // But for the age of the oldest item.
            text.lines()
                .map(|line| {
                    line.split_whitespace()
                        .enumerate()
                        .filter(|(at, _)| *at != 2)
                        .map(|(_, word)| word.to_owned())
                        .collect::<Vec<_>>()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(columns(&ok(&server, &["slab"])), columns(&String::from_utf8_lossy(&display.stdout)));
    }
}

#[test]
fn every_server_is_asked() {
    let [a, b] = both();
    let list = format!("{},{},127.0.0.1:1", a.address(), b.address());
    for tool in ["ping", "version"] {
        let told = ended(&command(&list, &[tool]).output().expect("larder runs"));
        assert_eq!((told.code, told.out.lines().count()), (69, 2), "{told:?}");
        assert!(told.err.contains("127.0.0.1:1: cannot connect"), "{told:?}");
    }
    if let Some(version) = memcached_version() {
        assert_eq!(ok(&a, &["version"]).split(' ').next_back().map(str::trim), Some(&version[..]));
    }
    for server in [&a, &b] {
        ok(server, &["set", "k", "v"]);
    }
    let list = format!("{},{}", a.address(), b.address());
    assert!(command(&list, &["flush"]).status().expect("larder runs").success());
    for server in [&a, &b] {
        assert_eq!(larder(server, &["exist", "k"]).code, 1);
    }
    let top = ended(&command(&list, &["top", "--once", "--json"]).output().expect("larder runs"));
    let json: Value = serde_json::from_str(&top.out).expect("it is JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(2));
    assert_eq!(json[0]["limit_bytes"], 64 << 20);
    let table = ended(&command(&list, &["top", "--once"]).output().expect("larder runs"));
    assert_eq!(table.out.lines().count(), 4);
    assert!(table.out.lines().last().is_some_and(|line| line.starts_with("TOTAL ")), "{table:?}");
}

/// Runs the tool as on a terminal, where both streams are one.
fn as_shown(servers: &str, args: &[&str]) -> (i32, String) {
    let folder = Folder::create();
    let file = fs::File::create(folder.arg("shown")).expect("the folder is ours");
    let err = file.try_clone().expect("a descriptor is free");
    let status = command(servers, args).stdout(file).stderr(err).status().expect("larder runs");
    let shown = fs::read(folder.arg("shown")).expect("it was written");
    (status.code().unwrap_or(-1), String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn a_dead_server_hides_no_living_one_wherever_it_stands() {
    let [a, b] = both();
    for server in [&a, &b] {
        ok(server, &["set", "k", "v"]);
    }
    let (a, b) = (a.address().to_string(), b.address().to_string());
    let dead = "127.0.0.1:1";
    let orders = [format!("{dead},{a},{b}"), format!("{a},{dead},{b}"), format!("{a},{b},{dead}")];
    let quick: [&[&str]; 6] =
        [&["ping"], &["version"], &["stat"], &["slab"], &["slab", "--json"], &["dump", "-q"]];
    // These take a second each, so one order is enough.
    let slow: [&[&str]; 4] =
        [&["latency"], &["top", "--once"], &["hotkeys", "--secs", "1"], &["watch", "--secs", "1"]];
    for (at, list) in orders.iter().enumerate() {
        for args in quick.iter().chain(slow.iter().filter(|_| at == 0)) {
            let (code, shown) = as_shown(list, args);
            assert_eq!(code, 69, "{list} {args:?}: {shown}");
            let error = format!("larder {}: {dead}: cannot connect: ", args[0]);
            let (told, _) = shown.split_once(&error).unwrap_or_else(|| panic!("{list} {args:?}: {shown}"));
            match args[0] {
                // Their results are for all servers together, or come as events happen.
                "hotkeys" => assert!(told.contains("look-ups in "), "{list} {args:?}: {shown}"),
                "watch" => {}
                "dump" => assert_eq!(told.matches("item k ").count(), 2, "{list}: {shown}"),
                "stat" => assert_eq!(told.matches("\tpid: ").count(), 2, "{list} {args:?}: {shown}"),
                _ => assert!(told.contains(&a) && told.contains(&b), "{list} {args:?}: {shown}"),
            }
        }
    }
    let (code, shown) = as_shown(&format!("{a},{b}"), &["flush", "--prefix", "nobody's:"]);
    assert_eq!((code, shown.lines().count()), (1, 2), "{shown}");
}

/// A server that is not a site fails with 1, and a dead one with 69, which is the graver code.
#[test]
fn exit_codes_do_not_depend_on_the_order_of_servers() {
    let server = start_memcached(&[]);
    ok(&server, &["set", "k", "v"]);
    let (alive, dead) = (server.address().to_string(), "127.0.0.1:1".to_owned());
    for list in [format!("{alive},{dead}"), format!("{dead},{alive}")] {
        let sites = ended(&command(&list, &["sites"]).output().expect("larder runs"));
        assert_eq!((sites.code, sites.err.lines().count()), (69, 2), "{list}: {sites:?}");
        let (one, other) = list.split_once(',').expect("two");
        let status = ["read-only", "status", one, other, "--timeout", "1"];
        let status = ended(&command("", &status).output().expect("larder runs"));
        assert_eq!((status.code, status.err.lines().count()), (69, 2), "{list}: {status:?}");
        // These are keys of both servers, some of which do not exist.
        let keys: Vec<String> = (0..32).map(|n| format!("none-{n}")).collect();
        for tool in ["get", "cat", "exist", "rm"] {
            let args: Vec<&str> = [tool].into_iter().chain(keys.iter().map(String::as_str)).collect();
            let told = ended(&command(&list, &args).output().expect("larder runs"));
            assert_eq!(told.code, 69, "{list} {tool}: {told:?}");
        }
    }
}

#[test]
fn servers_are_named_once() {
    let [a, b] = both();
    let (address, other) = (a.address().to_string(), b.address().to_string());
    for tool in ["capable", "dump", "hotkeys", "latency", "load", "shell", "slab", "top"] {
        let told = ended(&command("", &[tool, &address, "-s", &other]).output().expect("larder runs"));
        assert!(told.code == 64 && told.err.contains("cannot be used with"), "{tool}: {told:?}");
    }
    // The variable is what counts if nothing else is given.
    for (args, asked) in [(&["slab", "--json"][..], &other), (&["slab", "--json", &address], &address)] {
        let told = ended(&command(&other, args).output().expect("larder runs"));
        let json: Value = serde_json::from_str(&told.out).expect("it is JSON");
        assert!(json.as_object().is_some_and(|servers| servers.keys().eq([asked])), "{args:?}: {told:?}");
    }
}

/// memcached does not tell how long requests take.
#[test]
fn top_tells_how_long_requests_took_since_the_last_look() {
    if reference().is_none() {
        return;
    }
    let [memcached, larderd] = both();
    let list = format!("{},{}", memcached.address(), larderd.address());
    let mut top = command(&list, &["top", "--once", "--json"]);
    let mut top = top.stdout(Stdio::piped()).spawn().expect("larder runs");
    while top.try_wait().expect("it is ours").is_none() {
        for server in [&memcached, &larderd] {
            ok(server, &["ping"]);
        }
    }
    let out = ended(&top.wait_with_output().expect("it ends")).out;
    let json: Value = serde_json::from_str(&out).expect("it is JSON");
    let of = |server: &Server| {
        let servers = json.as_array().expect("an array");
        let told = servers.iter().find(|told| told["server"] == server.address().to_string());
        let told = told.unwrap_or_else(|| panic!("{server} is not in {out}", server = server.address()));
        (told["p50_micros"].as_f64(), told["p99_micros"].as_f64())
    };
    assert_eq!(of(&memcached), (None, None));
    let (Some(p50), Some(p99)) = of(&larderd) else { panic!("{out}") };
    assert!(0.0 < p50 && p50 <= p99, "{out}");
}

/// What `version` says of memcached; `None` where it is not installed.
fn memcached_version() -> Option<String> {
    let version = version(&reference()?).expect("it tells");
    Some(version.trim_start_matches("memcached ").to_owned())
}

/// The texts are memcached_strerror's of libmemcached 1.1.4.
#[test]
fn errors_are_explained() {
    let error =
        |args: &[&str]| ended(&command("", &[&["error"], args].concat()).output().expect("larder runs"));
    assert_eq!(error(&["0"]).out, "SUCCESS\n");
    assert_eq!(error(&["16"]).out, "NOT FOUND\n");
    assert_eq!(error(&["48"]).out, "SERVER FAILED TO ALLOCATE OBJECT\n");
    assert!(error(&["SERVER_ERROR", "object", "too", "large", "for", "cache"]).out.contains("-I"));
    let line = |line: &str| error(&line.split(' ').collect::<Vec<_>>()).out;
    assert!(line("ERROR Too many open connections").contains("-c"));
    assert!(line("CLIENT_ERROR not over UDP").contains("TCP"));
    assert!(line("SERVER_ERROR too large for UDP").contains("docs/udp.md"));
    assert_eq!(error(&["49"]).code, 1);
    assert!(error(&[]).out.lines().count() > 49);
}

/// What memcparse of libmemcached 1.1.4 accepts and refuses.
#[test]
fn configurations_are_parsed() {
    let parse = |text: &str| ended(&command("", &["parse", text]).output().expect("larder runs"));
    let good = parse(
        "--SERVER=localhost:11211/?3 --SERVER=b --DISTRIBUTION=consistent --POLL-TIMEOUT=5 --TCP-KEEPIDLE",
    );
    assert_eq!(good.code, 0, "{good:?}");
    let json: Value = serde_json::from_str(&good.out).expect("it is JSON");
    assert_eq!(
        (&json["servers"][0]["server"], &json["servers"][0]["weight"]),
        (&"localhost:11211".into(), &3.into())
    );
    assert_eq!(json["options"]["--POLL-TIMEOUT"], 5);
    let share = json["servers"][0]["share_of_keys"].as_f64().expect("a number");
    assert!((0.6..0.9).contains(&share), "{share}");
    for wrong in [
        "--DEBUG",
        "--SERVER=a --POLL-TIMEOUT=x",
        "--SERVER=a --NUMBER-OF-REPLICAS",
        "--SERVER=a --TCP-KEEPIDLE=5",
        "a:1:0",
        "",
    ] {
        assert_eq!(parse(wrong).code, 64, "{wrong}");
    }
    assert_eq!(parse("a,b:2:7").code, 0);
}

#[test]
fn completions_and_man_pages_are_written() {
    let folder = Folder::create();
    let directory = folder.arg("man");
    let man = ended(&command("", &["man", &directory]).output().expect("larder runs"));
    assert_eq!(man.code, 0, "{man:?}");
    for page in ["larder.1", "larder-get.1", "larder-dump.1", "larder-bench.1"] {
        let text = fs::read_to_string(format!("{directory}/{page}")).expect("it was written");
        assert!(text.contains(".TH"), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = ended(&command("", &["completions", shell]).output().expect("larder runs"));
        assert!(script.code == 0 && script.out.contains("capable"), "{shell}");
    }
}
