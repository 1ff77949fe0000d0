//! Commands that read before they write, where one site is the home of the keys.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use larder_conformance::server::eventually;

use larder_replication::wire::Side;
use rustix::process::Signal;

use crate::client::Client;
use crate::peer::Peer;
use crate::site::{Cluster, ENGINES};
use larder_conformance::sites::link::Link;

const NAMESPACES: &str = r#"
[namespace."home:"]
keep = "store"
durability = "sync"
replicate = true
rmw = "home"
home = 1
"#;

const AWAY: &str = "SERVER_ERROR home site of this key is away";
const SILENT: &str = "SERVER_ERROR home site did not answer and may have run this";

fn await_home(client: &mut Client) {
    eventually(|| client.figures().contains("1:home_connected yes"));
}

/// The expected replies are memcached's, doc/protocol.txt.
#[test]
fn the_home_answers_as_if_it_were_asked_itself() {
    for engine in ENGINES {
        let cluster = Cluster::with_namespaces(2, engine, NAMESPACES);
        let (mut home, mut away) = (cluster.client(0), cluster.client(1));
        await_home(&mut away);
        // The home asks nobody, and keeps no thread for that.
        assert_eq!([0, 1].map(|site| threads(&cluster, site, "larder-ask")), [0, 2]);
        for (request, reply) in [
            ("replace home:a 7 0 1\r\nx\r\n", "NOT_STORED"),
            ("append home:a 0 0 1\r\nx\r\n", "NOT_STORED"),
            ("incr home:a 1\r\n", "NOT_FOUND"),
            ("cas home:a 0 0 1 5\r\nx\r\n", "NOT_FOUND"),
            ("add home:a 7 0 1\r\nx\r\n", "STORED"),
            ("add home:a 7 0 1\r\ny\r\n", "NOT_STORED"),
            ("incr home:a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
            ("append home:a 0 0 2\r\nyz\r\n", "STORED"),
            ("prepend home:a 0 0 1\r\nw\r\n", "STORED"),
            ("cas home:a 0 0 1 1\r\nx\r\n", "EXISTS"),
            ("ma home:n N0 J40 t v\r\n", "VA 2 t-1"),
        ] {
            assert_eq!(away.ask(request), reply, "{request}");
        }
        assert_eq!(away.line(), "40");
        for (request, reply) in [
            ("incr home:n 5\r\n", "45"),
            ("decr home:n 3\r\n", "42"),
            ("ms home:m 2 ME k F9\r\nxy\r\n", "HD khome:m"),
            ("ms home:m 2 ME k\r\nxy\r\n", "NS khome:m"),
            ("ms aG9tZTpi 1 b k ME\r\nx\r\n", "HD kaG9tZTpi b"),
            ("ms home:v 1 MA\r\nx\r\n", "NS"),
            ("ms home:v 1 MA N60\r\nx\r\n", "HD"),
        ] {
            assert_eq!(away.ask(request), reply, "{request}");
        }
        // It was the home that did it.
        assert_eq!(home.ask("mg home:a v f\r\n"), "VA 4 f7");
        assert_eq!(home.line(), "wxyz");
        assert_eq!(home.ask("mg home:n v\r\n"), "VA 2");
        assert_eq!(home.line(), "42");
        eventually(|| away.ask("mg home:n v\r\n") == "VA 2" && away.line() == "42");
        // The CAS value is the same at all sites.
        eventually(|| home.ask("mg home:a c\r\n") == away.ask("mg home:a c\r\n"));
        let cas = away.ask("mg home:a c\r\n").strip_prefix("HD c").expect("it is there").to_owned();
        assert_eq!(away.ask(&format!("cas home:a 0 0 1 {cas}\r\nz\r\n")), "STORED");
        assert_eq!(away.ask(&format!("cas home:a 0 0 1 {cas}\r\nz\r\n")), "EXISTS");
        // The home itself asks nobody, and a set is one anywhere.
        assert_eq!(home.ask("incr home:n 1\r\n"), "43");
        assert_eq!(away.ask("set home:s 0 0 1\r\n1\r\n"), "STORED");
        eventually(|| home.ask("mg home:s\r\n") == "HD");
        assert_eq!((home.stat("home_answered"), home.stat("home_run")), (0, away.stat("home_answered")));
    }
}

#[test]
fn what_cannot_go_home_is_refused_and_the_rest_goes_on() {
    let mut cluster = Cluster::with_namespaces(2, "log", NAMESPACES);
    let mut away = cluster.client(1);
    await_home(&mut away);
    let large = "x".repeat((1 << 20) + 1);
    // memcached's words.
    let refused = "SERVER_ERROR object too large for cache";
    assert_eq!(away.ask(&format!("add home:l 0 0 {}\r\n{large}\r\n", large.len())), refused);
    cluster.set_links(Link::Cut);
    // One of its two connections may be gone before the other.
    eventually(|| away.figures().contains("1:home_connected no"));
    eventually(|| away.ask("incr home:n 1\r\n") == AWAY);
    for request in
        ["incr home:n 1\r\n", "add home:a 0 0 1\r\nx\r\n", "ms home:a 1 ME\r\nx\r\n", "ma home:n N0\r\n"]
    {
        assert_eq!(away.ask(request), AWAY, "{request}");
    }
    for request in ["set home:a 0 0 1\r\nx\r\n", "add other 0 0 1\r\nx\r\n"] {
        assert_eq!(away.ask(request), "STORED", "{request}");
    }
    cluster.set_links(Link::Open);
    await_home(&mut away);
    assert_eq!(away.ask("ma home:n N0 J1 v\r\n"), "VA 1");
    assert_eq!(away.line(), "1");
    cluster.kill(0);
    eventually(|| away.figures().contains("1:home_connected no"));
    eventually(|| away.ask("incr home:n 1\r\n") == AWAY);
    cluster.start_again(0);
    await_home(&mut away);
    assert_eq!(away.ask("incr home:n 1\r\n"), "2");
}

/// Values are as large as an item may be, also with little memory, and however they are cut into packets.
#[test]
fn the_home_takes_what_an_item_may_have() {
    let cluster = Cluster::with_namespaces(2, "log", NAMESPACES);
    let (mut home, mut away) = (cluster.client(0), cluster.client(1));
    await_home(&mut away);
    for (nth, bytes) in [9_000, 65_537, 1_000_000].into_iter().enumerate() {
        let value: String = (0..bytes).map(|at| char::from(b'a' + (at * 7 % 23) as u8)).collect();
        let request = format!("add home:{nth} 0 0 {bytes}\r\n{value}\r\n");
        for piece in request.as_bytes().chunks([usize::MAX, 100_000, 30_000][nth]) {
            away.send(std::str::from_utf8(piece).expect("it is ASCII"));
        }
        assert_eq!(away.line(), "STORED", "{bytes} bytes");
        assert_eq!(away.ask(&request), "NOT_STORED", "{bytes} bytes");
        assert_eq!(home.ask(&format!("mg home:{nth} v\r\n")), format!("VA {bytes}"));
        assert_eq!(home.line(), value);
        eventually(|| {
            away.ask(&format!("mg home:{nth} v\r\n")) == format!("VA {bytes}") && away.line() == value
        });
    }
}

/// Of two homes one is not heard, and the other one stands still, with much on its way to it. Who asked them learns
/// that within the same 5 s, before anything else takes them for gone; others are served meanwhile.
#[test]
fn a_home_that_says_nothing_keeps_nobody_but_those_who_asked_it() {
    let namespaces =
        format!("{NAMESPACES}{}", NAMESPACES.replace("home:", "still:").replace("home = 1", "home = 2"));
    let cluster = Cluster::with_namespaces(3, "memory", &namespaces);
    let (mut away, mut others) = (cluster.client(2), Vec::new());
    eventually(|| away.figures().matches(":home_connected yes").count() == 2);
    // One of each worker, at least.
    others.extend((0..8).map(|_| cluster.client(2)));
    assert_eq!(away.ask("ma home:n N0\r\n"), "HD");
    assert_eq!(away.ask("ma still:n N0\r\n"), "HD");
    let since = Instant::now();
    cluster.link(2, 0).set(Link::Deaf);
    cluster.server(1).signal(Signal::STOP).expect("it runs");
    away.send("ma home:n v\r\n");
    let mut askers: Vec<_> = (0..12).map(|_| cluster.client(2)).collect();
    let value = "x".repeat(900_000);
    for (nth, asker) in askers.iter_mut().enumerate() {
        asker.send(&format!("add still:{nth} 0 0 {}\r\n{value}\r\n", value.len()));
    }
    let mut last = cluster.client(2);
    last.send("ma still:n v\r\n");
    for other in &mut others {
        assert_eq!(other.ask("set key 0 0 1\r\nx\r\n"), "STORED");
        assert_eq!(other.ask("mg key\r\n"), "HD");
    }
    // A slow machine may be late itself.
    let silent = others[0].stat("home_silent");
    assert!(silent == 0 || since.elapsed().as_secs() >= 5, "they were served before it was given up");
    assert_eq!(away.line(), SILENT);
    // Some had not left this site.
    let is_refused =
        |line: &str| [SILENT, AWAY, "SERVER_ERROR home site of this key is busy"].contains(&line);
    for asker in askers.iter_mut().chain([&mut last]) {
        let line = asker.line();
        assert!(is_refused(&line), "{line}");
    }
    let figures = others[0].figures();
    let are_connected = figures.matches(":connected yes").count() == 2;
    assert!(are_connected || since.elapsed().as_secs() >= 10, "that takes 10 s of silence:\n{figures}");
    // A connection is given up with its oldest command. Those that came after it have time left, and a home that goes
    // on within it may still run them: each of them is late once this has passed since its answer.
    std::thread::sleep(Duration::from_secs(5));
    cluster.link(2, 0).set(Link::Open);
    cluster.server(1).signal(Signal::CONT).expect("it is there");
    eventually(|| away.figures().matches(":home_connected yes").count() == 2);
    // The one had it.
    assert_eq!(away.ask("ma home:n v\r\n"), "VA 1");
    assert_eq!(away.line(), "2");
    // The other one has run nothing of what it found: it was told how long each was wanted.
    let mut still = cluster.client(1);
    assert_eq!(still.ask("ma still:n v\r\n"), "VA 1");
    assert_eq!(still.line(), "1");
    assert_eq!(still.ask("mg still:0\r\n"), "EN");
}

/// Over a link that needs far longer for large values than a command may take: what is short is answered in time.
#[test]
fn large_values_on_their_way_hold_up_nothing_short() {
    let cluster = Cluster::with_namespaces(2, "memory", NAMESPACES);
    let mut away = cluster.client(1);
    await_home(&mut away);
    assert_eq!(away.ask("ma home:n N0\r\n"), "HD");
    cluster.set_links(Link::Narrow);
    // 9 s of the link, however they are compressed: there are 6 bits in each byte.
    let mut rng = fastrand::Rng::with_seed(1);
    let value: String = (0..1_000_000).map(|_| rng.alphanumeric()).collect();
    let mut askers: Vec<_> = (0..3).map(|_| cluster.client(1)).collect();
    for (nth, asker) in askers.iter_mut().enumerate() {
        asker.send(&format!("add home:{nth} 0 0 {}\r\n{value}\r\n", value.len()));
    }
    eventually(|| {
        let stats = away.report("stats");
        let read = stats.lines().find_map(|line| line.strip_prefix("STAT bytes_read "));
        read.and_then(|read| read.parse::<usize>().ok()).is_some_and(|read| read > 3 * value.len())
    });
    for number in 1..=10 {
        assert_eq!(away.ask("incr home:n 1\r\n"), number.to_string());
    }
    cluster.set_links(Link::Open);
    // On a busy machine they may have taken too long.
    for asker in &mut askers {
        let line = asker.line();
        assert!(["STORED", SILENT].contains(&line.as_str()), "{line}");
    }
    // What a client sends one after the other is run so, long or short.
    let mut client = cluster.client(1);
    let long = "y".repeat(100_000);
    client.send("add home:o 0 0 1 noreply\r\na\r\n");
    client.send(&format!("append home:o 0 0 {} noreply\r\n{long}\r\n", long.len()));
    assert_eq!(client.ask("append home:o 0 0 1\r\nz\r\n"), "STORED");
    let mut home = cluster.client(0);
    assert_eq!(home.ask("mg home:o v\r\n"), "VA 100002");
    assert_eq!(home.line(), format!("a{long}z"));
}

/// A peer of our own that asks: what it says is in time is run, and what is late is not.
#[test]
fn what_is_late_is_not_run() {
    let mut cluster = Cluster::with_namespaces(2, "memory", NAMESPACES);
    cluster.stop(1);
    let mut client = cluster.client(0);
    assert_eq!(client.ask("ma home:n N0\r\n"), "HD");
    let mut peer = Peer::connect(cluster.listen(0), 2, Side::OpenHome);
    let Side::HomeClock { clock_micros, .. } = peer.next().0 else { panic!("the clock comes first") };
    // As `home/codec.rs` has it: an incr of 1.
    let mut incr = vec![1, 2, 0, 6, 0];
    incr.extend_from_slice(b"home:n\x01\0\0\0\0\0\0\0");
    incr.extend_from_slice(&[0; 1 + 8 + 8 + 8 + 8]);
    let mut ask = |number, until_micros| {
        peer.say(Side::Ask { number, until_micros }, &incr);
        loop {
            match peer.next() {
                (Side::HomeClock { clock_micros: later, .. }, _) => assert!(later > clock_micros),
                (Side::Answer { number: answered }, body) => {
                    assert_eq!(answered, number);
                    return body[0];
                }
                other => panic!("{other:?}"),
            }
        }
    };
    // A number, and an error.
    assert_eq!((ask(1, clock_micros + 60_000_000), ask(2, clock_micros), ask(3, 0)), (5, 6, 6));
    assert_eq!((client.stat("home_run"), client.stat("home_late")), (1, 2));
    assert_eq!(client.ask("ma home:n v\r\n"), "VA 1");
    assert_eq!(client.line(), "2");
}

/// The threads of a site that have this name.
fn threads(cluster: &Cluster, site: usize, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", cluster.server(site).pid())).expect("it runs");
    let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.filter(|comm| comm.as_ref().is_ok_and(|comm| comm.trim_end() == name)).count()
}

/// Two sites count at full speed, over links that fail: nothing that was answered is lost, and nothing is counted that
/// was refused.
#[test]
fn no_answered_increment_is_lost() {
    for engine in ENGINES {
        let cluster = Cluster::with_namespaces(2, engine, NAMESPACES);
        let mut home = cluster.client(0);
        assert_eq!(home.ask("set home:sum 0 0 1\r\n0\r\n"), "STORED");
        await_home(&mut cluster.client(1));
        let (is_over, answered, silent) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let answered_away = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for client in [0, 0, 1, 1, 1, 1] {
                let (site, mut client) = (client, cluster.client(client));
                let (is_over, answered, silent, answered_away) =
                    (&is_over, &answered, &silent, &answered_away);
                scope.spawn(move || {
                    while !is_over.load(SeqCst) {
                        match client.ask("incr home:sum 1\r\n").as_str() {
                            AWAY => std::thread::sleep(Duration::from_millis(1)),
                            SILENT => drop(silent.fetch_add(1, SeqCst)),
                            number => {
                                assert!(number.parse::<u64>().is_ok(), "{number}");
                                answered.fetch_add(1, SeqCst);
                                answered_away.fetch_add(site as u64, SeqCst);
                            }
                        }
                    }
                });
            }
            let mut rng = fastrand::Rng::with_seed(7);
            for link in [Link::Open, Link::Cut, Link::Open, Link::Slow, Link::Cut, Link::Open] {
                cluster.set_links(link);
                std::thread::sleep(Duration::from_millis(rng.u64(200..500)));
            }
            let before = answered_away.load(SeqCst);
            eventually(|| answered_away.load(SeqCst) > before + 20);
            is_over.store(true, SeqCst);
        });
        let sum = |client: &mut Client| {
            assert!(client.ask("mg home:sum v\r\n").starts_with("VA "));
            client.line().parse::<u64>().expect("a number")
        };
        let (at_home, answered, silent) = (sum(&mut home), answered.load(SeqCst), silent.load(SeqCst));
        println!("{engine}: {at_home} at the home, {answered} answered, {silent} not");
        assert!(
            (answered..=answered + silent).contains(&at_home),
            "{at_home}: {answered} answered, {silent} not"
        );
        assert!(silent <= 16, "at most those under way at each cut: {silent}");
        eventually(|| sum(&mut cluster.client(1)) == at_home);
    }
}
