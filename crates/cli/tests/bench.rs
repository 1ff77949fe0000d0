//! `larder bench` as a process. What is asked here is the floor server, which answers everything and keeps nothing.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use larder_conformance::folder::Folder;

fn larder(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    // A configuration of memaslap in the home directory would be read.
    command.arg("bench").args(args).env("HOME", "/nonexistent").env_remove("MEMCACHED_SERVERS");
    command
}

fn bench(args: &[&str]) -> Output {
    larder(args).output().expect("larder runs")
}

fn words(output: &[u8]) -> &str {
    std::str::from_utf8(output).expect("it is text")
}

/// A floor server, killed when dropped.
struct Floor {
    child: Child,
    address: String,
}

impl Floor {
    fn start() -> Self {
        let mut child = larder(&["--floor", "-p", "0"]).stdout(Stdio::piped()).spawn().expect("larder runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it tells");
        let address = line.split([' ', ',']).find(|word| word.starts_with("127.0.0.1:"));
        Self { address: address.expect("it tells where it listens").to_owned(), child }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_trace_is_played_to_its_end() {
    let floor = Floor::start();
    let folder = Folder::create();
    folder.write("trace.txt", "0 get a\n5 set b 3\n9 get c\n");
    let trace = folder.arg("trace.txt");
    let output = bench(&["-s", &floor.address, "--trace", &trace, "-c", "1", "-t", "1", "--look-aside"]);
    assert!(output.status.success(), "{}", words(&output.stderr));
    let line = |name| words(&output.stdout).lines().find(|line| line.starts_with(name)).map(str::to_owned);
    let requests =
        |line: Option<String>| line.and_then(|line| Some(line.split_whitespace().nth(1)?.to_owned()));
    assert_eq!(requests(line("get ")), Some("2".into()));
    assert_eq!(requests(line("set ")), Some("1".into()));
}

#[test]
fn words_that_are_not_understood_end_with_64() {
    for (args, message) in [
        (&["--sec", "5"][..], "--secs"),
        (&["--mix", "got=1"], "got"),
        (&["--value-bytes", "20-10"], "20 is more than 10"),
        (&["--preset", "chache"], "there is no preset chache"),
        (&["--preset", "cache", "--scenario", "x"], "cannot be used with"),
        (&["--login", "ann"], "USER:PASSWORD"),
        (&["--popularity", "zip"], "zipf:0.99"),
        (&["--ramp", "5"], "--rate"),
        (&["more"], "more"),
        (&["memaslap"], "MEMCACHED_SERVERS"),
        (&["memaslap", "-s", "a", "--winsize=1k"], "--win_size?"),
        (&["memslap", "-s", "a", "--test=put"], "get, mget and set"),
        (&["mc-crusher"], "--conf"),
        (&["brutis", "-x", "a", "-R", "5"], "-R 5"),
        (&["sweep", "size=1", "floor"], "value-bytes"),
        (&["search", "p99"], "p99<1ms"),
        (&["compare"], "SERVER"),
        (&["compare", "a:99999", "floor"], "a:99999: the port must be"),
        (&["-s", "a:99999"], "a:99999: the port must be"),
        (&["a:x"], "a:x: the port must be"),
        (&["memaslap", "-s", "a:99999"], "a:99999: the port must be"),
        (&["brutis", "-x", "a:99999"], "a:99999: the port must be"),
        (&[","], "the list of servers is empty"),
        (&["-s", ""], "the list of servers is empty"),
        (&["a:1:0"], "the weight must be a number from 1"),
        (&["colect"], "no sub-command of larder bench"),
    ] {
        let output = bench(args);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {}", words(&output.stderr));
        assert!(words(&output.stderr).contains(message), "{args:?}: {}", words(&output.stderr));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn help_is_no_error() {
    for args in [
        &["--help"][..],
        &["compare", "--help"],
        &["memaslap", "--help"],
        &["memcslap", "-h"],
        &["brutis", "-h"],
    ] {
        let output = bench(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn what_cannot_be_done_is_told_by_the_exit_code() {
    for (code, args) in [
        (69, &["-s", "127.0.0.1:1"][..]),
        (69, &["127.0.0.1:1"]),
        (69, &["search", "p99<1ms", "127.0.0.1:1"]),
        (69, &["compare", "127.0.0.1:1", "127.0.0.1:2"]),
        (69, &["memaslap", "-s", "127.0.0.1:1", "-t", "1s"]),
        (1, &["--scenario", "/nonexistent"]),
        (1, &["mc-crusher", "--conf", "/nonexistent"]),
        (1, &["127.0.0.1:1", "--json", "/nonexistent/run.json"]),
    ] {
        let output = bench(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", words(&output.stderr));
        assert!(words(&output.stderr).contains("larder bench: "), "{args:?}");
    }
}

#[test]
fn servers_are_named_by_argument_option_or_variable() {
    let servers = |args: &[&str]| {
        let mut command = larder(&[args, &["--print-scenario"]].concat());
        let output = command.env("MEMCACHED_SERVERS", "a,b:5:3,/run/c.sock").output().expect("larder runs");
        assert!(output.status.success(), "{}", words(&output.stderr));
        let text = words(&output.stdout).replace(['\n', ' '], "");
        let (_, list) = text.split_once("servers=[").expect("servers");
        list.split_once(']').expect("an end").0.trim_end_matches(',').to_owned()
    };
    assert_eq!(servers(&[]), r#""a:11211","b:5","/run/c.sock""#);
    assert_eq!(servers(&["-s", "d"]), r#""d:11211""#);
    assert_eq!(servers(&["d:1,e"]), r#""d:1","e:11211""#);
    // Weights have no effect.
    assert_eq!(servers(&["-s", "d:1:2,unix:e"]), r#""d:1","unix:e""#);
    assert_eq!(servers(&["d:1:2"]), r#""d:1""#);
    // A file says what it means.
    let folder = Folder::create();
    folder.write("scenario.toml", "target.servers = [\"f:1\"]\n");
    assert_eq!(servers(&["--scenario", &folder.arg("scenario.toml")]), r#""f:1""#);
}

#[test]
fn a_report_on_standard_output_is_alone_there() {
    let floor = Floor::start();
    let output =
        bench(&[&floor.address, "--requests", "2000", "-c", "2", "-t", "1", "--keys", "100", "--json", "-"]);
    assert!(output.status.success(), "{}", words(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(json["scenario"]["until"]["requests"], 2000);
    let title = format!("{} at {}\n", json["servers"][0]["software"].as_str().expect("text"), floor.address);
    assert!(words(&output.stderr).contains(&title), "{}", words(&output.stderr));
    let both = bench(&[&floor.address, "--json", "-", "--csv", "-"]);
    assert_eq!(both.status.code(), Some(64));
}

#[test]
fn an_old_report_stays_until_there_is_a_new_one() {
    let folder = Folder::create();
    folder.write("old.json", "old");
    let (old, new) = (folder.arg("old.json"), folder.arg("new.csv"));
    let failed = bench(&["127.0.0.1:1", "--json", &old, "--csv", &new]);
    assert_eq!(failed.status.code(), Some(69));
    assert_eq!(fs::read_to_string(&old).expect("it is there"), "old");
    assert!(!fs::exists(&new).expect("a folder"));
    // Nothing is asked if a report could not be written.
    let floor = Floor::start();
    let page = folder.arg("none/page.html");
    let refused = bench(&[&floor.address, "--secs", "1", "--no-screen", "--html", &page]);
    assert_eq!(refused.status.code(), Some(1), "{}", words(&refused.stderr));
    assert_eq!(words(&refused.stderr).lines().count(), 1, "{}", words(&refused.stderr));
}

#[test]
fn a_comparison_has_units_and_no_colours_in_a_pipe() {
    let floor = Floor::start();
    let server = format!("one={}", floor.address);
    let again = format!("two={}", floor.address);
    let output =
        bench(&["compare", &server, &again, "--rounds", "2", "--secs", "0.2", "-c", "2", "--keys", "100"]);
    assert!(output.status.success(), "{}", words(&output.stderr));
    let text = words(&output.stdout);
    for part in [" k/s", " µs", " MiB", "p50  ", " to "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains('\x1b'), "{text:?}");
}

#[test]
fn options_change_what_a_file_says() {
    let folder = Folder::create();
    let printed = bench(&["--preset", "olio-2048", "--print-scenario"]);
    assert!(printed.status.success());
    folder.write("scenario.toml", &printed.stdout);
    let path = &folder.arg("scenario.toml");
    let again = bench(&["--scenario", path, "--print-scenario"]);
    assert_eq!(words(&again.stdout), words(&printed.stdout));

    let changed = bench(&[
        "--scenario",
        path,
        "-s",
        "a,b:5,/run/c.sock",
        "-c",
        "7",
        "-P",
        "3",
        "--rate",
        "5k",
        "--ramp",
        "9k",
        "--even",
        "--mix",
        "get=9,set=1",
        "--multiget",
        "8",
        "--noreply",
        "--ttl",
        "60",
        "--keys",
        "1k",
        "--zipf",
        "0.8",
        "--verify=0.5",
        "--secs",
        "2m",
        "--tls-name",
        "x",
        "--login",
        "ann:secret",
        "--no-fill",
        "--print-scenario",
    ]);
    let text = words(&changed.stdout);
    for line in [
        "servers = [",
        "\"a:11211\"",
        "\"b:5\"",
        "\"/run/c.sock\"",
        "connections = 7",
        "pipeline = 3",
        "rate_per_sec = 5000.0",
        "rate_end_per_sec = 9000.0",
        "spacing = \"even\"",
        "keys = 8",
        "noreply = true",
        "secs = 60",
        "count = 1000",
        "exponent = 0.8",
        "verify = 0.5",
        "secs = 120.0",
        "server_name = \"x\"",
        "fill = false",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("secret"));
}

#[test]
fn presets_are_listed_and_shown() {
    let list = bench(&["presets"]);
    for name in [
        "memaslap",
        "olio-100",
        "spy-whalin",
        "brutis",
        "noreply",
        "etc",
        "kvcache",
        "cache",
        "pages",
        "chunks",
    ] {
        assert!(words(&list.stdout).lines().any(|line| line.split(' ').next() == Some(name)), "{name}");
    }
    assert!(words(&bench(&["presets", "etc"]).stdout).contains("SIGMETRICS 2012"));
}

#[test]
fn a_run_is_told_and_written() {
    let floor = Floor::start();
    let folder = Folder::create();
    let path = &folder.arg("run.json");
    let output = bench(&[
        "-s",
        &floor.address,
        "--requests",
        "2000",
        "-c",
        "2",
        "-t",
        "1",
        "--keys",
        "100",
        "--json",
        path,
        "--no-screen",
    ]);
    assert!(output.status.success(), "{}", words(&output.stderr));
    assert!(words(&output.stdout).contains("latency"));
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(path).expect("it was written")).expect("it is JSON");
    assert_eq!(json["scenario"]["until"]["requests"], 2000);
    let quiet =
        bench(&["-s", &floor.address, "--requests", "100", "-c", "1", "-t", "1", "--keys", "10", "--quiet"]);
    assert!(quiet.status.success() && quiet.stdout.is_empty() && quiet.stderr.is_empty());
}

#[test]
fn a_server_that_makes_up_values_is_caught() {
    let floor = Floor::start();
    let output = bench(&[
        "-s",
        &floor.address,
        "--requests",
        "500",
        "-c",
        "2",
        "-t",
        "1",
        "--keys",
        "100",
        "--verify",
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(words(&output.stderr).contains("not all was well"), "{}", words(&output.stderr));
}

/// The command lines of an article on memaslap, under the name it has there. Only their length is ours.
#[test]
fn memaslap_s_command_lines_run_as_typed() {
    let floor = Floor::start();
    for more in ["-U", "", "-d 8", "-U -d 8"] {
        let line = format!("memcslap --servers {} -S 1s -T 2 -c 8 --win_size=1k -t 1s {more}", floor.address);
        let output = bench(&line.split_whitespace().collect::<Vec<_>>());
        assert!(output.status.success(), "{more}: {}", words(&output.stderr));
        let text = words(&output.stdout);
        for part in [
            "threads count: 2",
            "concurrency: 8",
            "run time: 1s",
            "windows size: 1k",
            "set_prop=0.10",
            "cmd_get: ",
        ] {
            assert!(text.contains(part), "{more}: {part} in {text}");
        }
        assert_eq!(text.contains("packet_drop: "), more.contains("-U"), "{more}");
        let note = "-S is an option of memaslap";
        assert!(words(&output.stderr).contains(note), "{more}: {}", words(&output.stderr));
    }
}

#[test]
fn an_interrupt_ends_a_run_with_its_tables() {
    let floor = Floor::start();
    let mut child =
        larder(&["-s", &floor.address, "--secs", "1h", "-c", "1", "-t", "1", "--keys", "10", "--no-screen"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("larder runs");
    // The first period is over.
    let mut errors = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    while !line.contains("/s ") {
        line.clear();
        assert!(errors.read_line(&mut line).expect("it is text") > 0, "it ended by itself");
    }
    let killed =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("there is kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(words(&output.stdout).contains("latency"));
}
