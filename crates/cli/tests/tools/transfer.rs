//! `larder dump` and `larder load`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, eventually, free_port};
use larder_conformance::sites::link::{Link, Proxy};

use crate::{command, ended, fed, larder, larder_fed, ok, start_larderd, start_memcached};

/// With which the keys begin of clients that go on while items are moved.
const BUSY: &str = "busy-";

/// Item `n`, made by arithmetic alone: its key, flags, expiry (Unix time, 0: never), value.
fn item(n: usize, now_secs: u64) -> (String, u32, u64, Vec<u8>) {
    let flags = (n as u32).wrapping_mul(2_654_435_761);
    let expires = if n.is_multiple_of(3) { 0 } else { now_secs + 1_000 + (n as u64 * 7_919) % 5_000_000 };
    let byte = (n % 256) as u8;
    let value = (0..n % 97).map(|at| byte.wrapping_add(at as u8)).chain(n.to_string().bytes()).collect();
    (format!("item/{n}%{}", n % 7), flags, expires, value)
}

fn now_secs() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("it is later than 1970").as_secs()
}

fn fill(server: &Server, items: usize, now_secs: u64) {
    let mut stream = server.connect().expect("it listens");
    let mut request = Vec::new();
    for n in 0..items {
        let (key, flags, expires, value) = item(n, now_secs);
        write!(request, "set {key} {flags} {expires} {} noreply\r\n", value.len())
            .expect("memory can be written");
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
    }
    stream.write_all(&request).and_then(|()| stream.write_all(b"mn\r\n")).expect("it reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("it answers");
    assert_eq!(line, "MN\r\n");
}

/// Compares every value, flag and expiry, asked for without larder's help.
#[track_caller]
fn expect_filled(server: &Server, items: usize, now_secs: u64) {
    let mut stream = BufReader::new(server.connect().expect("it listens"));
    let mut line = String::new();
    let numbers: Vec<usize> = (0..items).collect();
    for batch in numbers.chunks(100) {
        let gets: String = batch.iter().map(|&n| format!("get {}\r\n", item(n, now_secs).0)).collect();
        stream.get_mut().write_all(gets.as_bytes()).expect("it reads");
        for &n in batch {
            let (key, flags, _, value) = item(n, now_secs);
            line.clear();
            stream.read_line(&mut line).expect("it answers");
            assert_eq!(line, format!("VALUE {key} {flags} {}\r\n", value.len()));
            let mut found = vec![0; value.len() + 7];
            stream.read_exact(&mut found).expect("it answers");
            assert_eq!(found, [&value[..], b"\r\nEND\r\n"].concat(), "{key}");
        }
    }
    let mut expiries = expiries(server);
    expiries.retain(|key, _| !key.starts_with(BUSY));
    assert_eq!(expiries.len(), items);
    for n in 0..items {
        let (key, _, expires, _) = item(n, now_secs);
        let listed = expiries[&key.replace('%', "%25").replace('/', "%2F")];
        // A server keeps time in seconds since it began, of which each began at a moment of its own.
        let is_right = if expires == 0 { listed == -1 } else { (listed - expires as i64).abs() <= 1 };
        assert!(is_right, "{key}: {listed} instead of {expires}");
    }
}

/// Expiry by key, as the server lists them. By the hash table: memcached's walk over the LRU misses what its maintainer
/// moves meanwhile, and the maintainer moves what has been asked for.
fn expiries(server: &Server) -> BTreeMap<String, i64> {
    let mut stream: TcpStream = server.connect().expect("it listens");
    stream.write_all(b"lru_crawler metadump hash\r\n").expect("it reads");
    let mut all = BTreeMap::new();
    for line in BufReader::new(stream).lines() {
        let line = line.expect("it is text");
        match &line[..] {
            "END" => break,
            // So begins memcached 1.6.45, and larderd.
            "OK" => continue,
            _ => {}
        }
        let word =
            |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)).expect("it is there");
        all.insert(word("key=").to_owned(), word("exp=").parse().expect("a number"));
    }
    all
}

#[test]
fn every_item_moves_from_memcached_to_larderd_and_back() {
    moves(100_000, "256");
}

/// To be asked for: `cargo test --release --package larder-cli --test tools -- --ignored a_million`.
#[test]
#[ignore = "takes minutes"]
fn a_million_items_move_from_memcached_to_larderd_and_back() {
    moves(1_000_000, "1024");
}

/// From memcached by a file to larderd, from there to another larderd, and from there to memcached, while all servers
/// serve.
fn moves(items: usize, memory_mib: &str) {
    let now_secs = now_secs();
    let options = ["-m", memory_mib];
    let first = start_memcached(&options);
    let (second, third) = (start_larderd(&options), start_larderd(&options));
    let last = start_memcached(&options);
    fill(&first, items, now_secs);
    let folder = Folder::create();
    let file = folder.arg("dump");

    serving([&first, &second], || {
        let dump = larder(&first, &["dump", "--file", &file, "--timeout", "60"]);
        assert_eq!(dump.code, 0, "{}", dump.err);
        // What the clients store meanwhile may be among them.
        let told = dump.err.strip_prefix("larder dump: ").and_then(|text| text.split_once(" items, "));
        let (number, rest) = told.expect("a summary");
        assert!(number.replace(',', "").parse::<usize>().is_ok_and(|n| n >= items), "{}", dump.err);
        assert!(rest.contains("of values in ") && rest.contains(" items/s, "), "{}", dump.err);
        ok(&second, &["load", "--file", &file, "--timeout", "60"]);
    });
    expect_filled(&second, items, now_secs);
    for [from, to] in [[&second, &third], [&third, &last]] {
        serving([from, to], || {
            ok(from, &["dump", "--to", &to.address().to_string(), "--timeout", "60"]);
        });
        expect_filled(to, items, now_secs);
    }
}

/// While the work is done, a client of each server stores values of its own, and finds each of them.
fn serving(servers: [&Server; 2], work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let (is_over, rounds) = (&is_over, AtomicUsize::new(0));
    thread::scope(|scope| {
        for server in servers {
            let rounds = &rounds;
            scope.spawn(move || {
                let mut stream = BufReader::new(server.connect().expect("it listens"));
                for number in 0_usize.. {
                    let key = format!("{BUSY}{}", number % 1000);
                    let request = format!("set {key} 0 0 9\r\n{number:09}\r\nget {key}\r\n");
                    stream.get_mut().write_all(request.as_bytes()).expect("it reads");
                    let expected = format!("STORED\r\nVALUE {key} 0 9\r\n{number:09}\r\nEND\r\n");
                    let mut reply = vec![0; expected.len()];
                    stream.read_exact(&mut reply).expect("it answers");
                    // What the move brings has been stored before, and may be found instead.
                    let (head, tail) = (&reply[..expected.len() - 16], &reply[expected.len() - 7..]);
                    let expected = expected.as_bytes();
                    assert!(expected.starts_with(head) && expected.ends_with(tail), "{key}");
                    rounds.fetch_add(1, Relaxed);
                    if is_over.load(Relaxed) {
                        break;
                    }
                    // There are others who want the processors.
                    thread::sleep(Duration::from_micros(200));
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(rounds.into_inner() > 100, "hardly anything was served meanwhile");
}

#[test]
fn a_pipe_carries_a_dump() {
    let now_secs = now_secs();
    let (from, to) = (start_larderd(&[]), start_memcached(&[]));
    fill(&from, 1000, now_secs);
    let dump = command(&from.address().to_string(), &["dump", "-q"]).output().expect("larder runs");
    assert_eq!(larder_fed(&to, &["load", "-q"], &dump.stdout).code, 0);
    expect_filled(&to, 1000, now_secs);
}

#[test]
fn an_interrupted_dump_goes_on_and_is_whole_in_the_end() {
    let now_secs = now_secs();
    let from = start_memcached(&[]);
    fill(&from, 5000, now_secs);
    let folder = Folder::create();
    let file = folder.arg("dump");
    ok(&from, &["dump", "-q", "--file", &file]);
    let whole = fs::read(&file).expect("it was written");
    // Where a kill can leave it: within the heading, between records, in the middle of one, before the end line.
    for length in [14, whole.len() / 3, whole.len() / 2, whole.len() - 5] {
        fs::write(&file, &whole[..length]).expect("the temporary directory can be written");
        let cut = larder(&start_memcached(&[]), &["load", "-q", "--file", &file]);
        assert!(cut.code == 65 && cut.err.contains("not complete"), "{length}: {cut:?}");
        ok(&from, &["dump", "-q", "--resume", "--file", &file]);
        let to = start_memcached(&[]);
        ok(&to, &["load", "-q", "--file", &file]);
        expect_filled(&to, 5000, now_secs);
        let again = larder(&from, &["dump", "--resume", "--file", &file]);
        assert!(again.code == 64 && again.err.contains("complete"), "{again:?}");
    }
}

#[test]
fn a_dump_without_one_of_its_servers_goes_on_when_that_is_back() {
    let port = free_port().to_string();
    let (alive, to) = (start_memcached(&[]), start_memcached(&[]));
    ok(&alive, &["set", "here", "1"]);
    let list = format!("127.0.0.1:{port},{}", alive.address());
    let folder = Folder::create();
    let (file, progress) = (folder.arg("dump"), folder.arg("progress"));
    let address = to.address().to_string();
    let dump = ["dump", "--file", &file];
    let moved = ["dump", "--to", &address, "--progress", &progress];
    let run = |args: &[&str]| ended(&command(&list, args).output().expect("larder runs"));

    let (dumped, sent) = (run(&dump), run(&moved));
    assert!(dumped.code == 69 && dumped.err.contains("1 item,"), "{dumped:?}");
    assert!(dumped.err.contains("the dump is not complete: run it again with --resume"), "{dumped:?}");
    assert!(sent.code == 69 && sent.err.contains("1 stored"), "{sent:?}");
    assert_eq!(ok(&to, &["get", "here"]), "1\n");
    let cut = larder(&start_memcached(&[]), &["load", "-q", "--file", &file]);
    assert!(cut.code == 65 && cut.err.contains("not complete"), "{cut:?}");

    let back = start_memcached(&["-p", &port]);
    ok(&back, &["set", "there", "2"]);
    assert_eq!((run(&[&dump[..], &["--resume"]].concat()).code, run(&moved).code), (0, 0));
    assert_eq!(ok(&to, &["get", "there"]), "2\n");
    assert!(!fs::exists(&progress).expect("the folder is ours"));
    let loaded = start_memcached(&[]);
    ok(&loaded, &["load", "-q", "--file", &file]);
    assert_eq!(ok(&loaded, &["cat", "here", "there"]), "12");
}

#[test]
fn a_move_that_was_killed_goes_on_and_moves_nothing_twice() {
    const MOVED: usize = 50_000;
    let now_secs = now_secs();
    let from = start_memcached(&["-m", "256"]);
    fill(&from, MOVED, now_secs);
    let to = start_larderd(&["-m", "256"]);
    // So slow that it can be killed in time.
    let link = Proxy::to(to.address()).expect("a port is free");
    link.set(Link::Narrow);
    let folder = Folder::create();
    let progress = folder.arg("progress");
    let address = link.address().to_string();
    let args = ["dump", "-q", "--to", &address, "--progress", &progress];
    let mut child = command(&from.address().to_string(), &args).spawn().expect("larder runs");
    while fs::metadata(&progress).map_or(0, |file| file.len()) < 100_000 {
        assert!(child.try_wait().expect("it is ours").is_none(), "too quick to be killed in time");
        thread::yield_now();
    }
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    link.reset();
    link.set(Link::Open);
    // Where a crash of the machine may have cut it.
    let noted = fs::read(&progress).expect("it is there");
    fs::write(&progress, &noted[..noted.len() - 3]).expect("the folder is ours");
    let figure = |name: &str| {
        let told = ok(&to, &["stat", "--grep", name]);
        told.trim().rsplit(' ').next().and_then(|n| n.parse::<usize>().ok()).expect("a number")
    };
    let stored = || figure("cmd_set");
    // The server may have something of it still to read.
    eventually(|| figure("curr_connections") == 1);
    let first = stored();
    let lines = noted.iter().filter(|byte| **byte == b'\n').count() - 1;
    assert!(lines <= first && first < MOVED, "{lines} of {first}");
    // What a client has stored since on the new server is not overwritten.
    let text = String::from_utf8_lossy(&noted).into_owned();
    let moved = text.lines().nth(1).expect("more than nothing").to_owned();
    let key = moved.replace("%2F", "/").replace("%25", "%");
    ok(&to, &["set", &key, "of a client"]);

    assert_eq!(larder(&from, &args).code, 0);
    assert!(!fs::exists(&progress).expect("the folder is ours"));
    assert_eq!(ok(&to, &["cat", &key]), "of a client");
    // Once each, but for what was on its way when it was killed.
    let all = stored() - 1;
    assert!((MOVED..MOVED + first - lines + 2).contains(&all), "{all} for {MOVED}, {lines} of {first}");
}

#[test]
fn the_file_of_progress_is_no_other_file() {
    let (from, to) = (start_memcached(&[]), start_memcached(&[]));
    ok(&from, &["set", "a", "b"]);
    let folder = Folder::create();
    let file = folder.arg("progress");
    let address = to.address().to_string();
    let args = ["dump", "-q", "--to", &address, "--progress", &file];
    let heading = format!("larder-progress 1 {address}\n");
    for (content, code) in [
        ("precious\n", 65),
        ("precious", 65),
        ("larder-progress 1 elsewhere\n", 64),
        (&format!("{heading}%zz\n")[..], 65),
        (&heading, 0),
        (&heading[..20], 0),
        ("", 0),
    ] {
        fs::write(&file, content).expect("the folder is ours");
        let told = larder(&from, &args);
        assert_eq!(told.code, code, "{content:?}: {told:?}");
        match code {
            0 => assert!(!fs::exists(&file).expect("the folder is ours")),
            _ => assert_eq!(fs::read_to_string(&file).expect("it is kept"), content),
        }
    }
    fs::write(&file, format!("{heading}a\n")).expect("the folder is ours");
    ok(&to, &["flush"]);
    assert_eq!((larder(&from, &args).code, larder(&to, &["exist", "a"]).code), (0, 1));
}

#[test]
fn a_process_that_was_killed_can_be_resumed() {
    let now_secs = now_secs();
    let from = start_memcached(&["-m", "256"]);
    fill(&from, 50_000, now_secs);
    let folder = Folder::create();
    let file = folder.arg("dump");
    let mut child =
        command(&from.address().to_string(), &["dump", "-q", "--file", &file]).spawn().expect("larder runs");
    while fs::metadata(&file).map_or(0, |file| file.len()) < 100_000
        && child.try_wait().expect("it is ours").is_none()
    {
        thread::yield_now();
    }
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    let resumed = larder(&from, &["dump", "-q", "--resume", "--file", &file]);
    // It may have been too quick to be killed in time.
    assert!(resumed.code == 0 || resumed.err.contains("complete"), "{resumed:?}");
    let to = start_larderd(&["-m", "256"]);
    ok(&to, &["load", "-q", "--file", &file]);
    expect_filled(&to, 50_000, now_secs);
}

#[test]
fn keys_of_any_bytes_move() {
    for (from, to) in [(start_memcached(&[]), start_larderd(&[])), (start_larderd(&[]), start_memcached(&[]))]
    {
        let ask = |server: &Server, request: &[u8], answer: &[u8]| {
            let mut stream = server.connect().expect("it listens");
            stream.write_all(request).expect("it reads");
            let mut found = vec![0; answer.len()];
            stream.read_exact(&mut found).expect("it answers");
            assert_eq!(found, answer, "{:?}", String::from_utf8_lossy(&found));
        };
        ask(&from, b"ms AAEgCg== 2 b F5\r\nhi\r\n", b"HD\r\n");
        ok(&from, &["dump", "-q", "--to", &to.address().to_string()]);
        ask(&to, b"mg AAEgCg== b v f t\r\n", b"VA 2 f5 t-1\r\nhi\r\n");
    }
}

#[test]
fn what_is_there_is_kept_if_wanted_and_what_has_expired_is_left_out() {
    let to = start_memcached(&[]);
    ok(&to, &["set", "a", "new"]);
    let dump = b"larder-dump 1\nitem a 0 0 3\nold\nitem b 0 1000000000 1\nx\nitem c 1 0 1\ny\nend 3\n";
    let told = larder_fed(&to, &["load", "--add"], dump);
    let (summary, counts) = told.err.split_once('\n').expect("two lines");
    assert!(summary.starts_with("larder load: 3 items, "), "{told:?}");
    assert_eq!(counts, "larder load: 1 stored, 1 kept as they were, 1 had expired, 0 refused\n");
    assert_eq!(ok(&to, &["cat", "a", "c"]), "newy");
    assert_eq!(larder_fed(&to, &["load", "-q"], dump).code, 0);
    assert_eq!(ok(&to, &["cat", "a"]), "old");
    ok(&to, &["flush"]);
    assert_eq!(larder_fed(&to, &["load", "-q", "--skip", "2"], dump).code, 0);
    assert_eq!(larder(&to, &["exist", "a"]).code, 1);
    ok(&to, &["exist", "c"]);
}

#[test]
fn times_that_no_server_reads_are_told() {
    let to = start_larderd(&[]);
    let (last, beyond) = (i32::MAX, i64::from(i32::MAX) + 1);
    let dump = format!(
        "larder-dump 1\nitem a 0 {last} 1\nx\nitem b 0 {beyond} 1\ny\nitem c 0 4294967297 1\nz\nend 3\n"
    );
    let warning = "larder load: 2 expire on 2038-01-19 instead of later: servers read 32 bits of a time";
    let told = larder_fed(&to, &["load"], dump.as_bytes());
    assert!(told.err.contains("3 stored") && told.err.contains(warning), "{told:?}");
    let quiet = larder_fed(&to, &["load", "-q"], dump.as_bytes());
    assert_eq!((quiet.code, quiet.err.trim_end()), (0, warning));
    let expiries: Vec<_> = expiries(&to).into_values().collect();
    assert!(expiries.iter().all(|secs| (secs - i64::from(last)).abs() <= 1), "{expiries:?}");
}

#[test]
fn refused_items_are_told_and_the_others_loaded() {
    let to = start_memcached(&[]);
    let mut dump = b"larder-dump 1\nitem big 0 0 2000000\n".to_vec();
    dump.extend(vec![b'x'; 2_000_000]);
    dump.extend(b"\nitem small 0 0 1\ny\nend 2\n");
    let told = larder_fed(&to, &["load"], &dump);
    assert_eq!(told.code, 1);
    assert!(
        told.err.contains("1 stored") && told.err.contains("big: SERVER_ERROR object too large"),
        "{told:?}"
    );
    for (wrong, code) in
        [(&b"REDIS"[..], 65), (b"larder-dump 1\nitem\n", 65), (b"", 65), (b"larder-dump 1\nend 5\n", 65)]
    {
        assert_eq!(larder_fed(&to, &["load"], wrong).code, code);
    }
}

#[test]
fn a_load_that_loses_its_server_says_where_to_continue() {
    // It takes a connection and goes at the first item.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            thread::spawn(move || {
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    let reply = match line.trim_end() {
                        "mn" => "MN\r\n",
                        "stats" => "END\r\n",
                        _ => break,
                    };
                    stream.get_mut().write_all(reply.as_bytes()).expect("it is read");
                    line.clear();
                }
            });
        }
    });
    let dump = b"larder-dump 1\nitem a 0 0 1\nx\nitem b 0 0 1\ny\nend 2\n";
    for (args, skip) in [(&["load", "-q"][..], 0), (&["load", "-q", "--skip", "1"], 1)] {
        let told = fed(&address, args, dump);
        assert_eq!(told.code, 69, "{told:?}");
        assert!(told.err.contains(&format!("continue with --skip {skip}\n")), "{told:?}");
    }
}

#[test]
fn a_fleet_is_dumped_and_spread_anew() {
    let now_secs = now_secs();
    let (a, b, c) = (start_memcached(&[]), start_larderd(&[]), start_larderd(&[]));
    fill(&a, 3000, now_secs);
    let to = format!("{},{}", b.address(), c.address());
    ok(&a, &["dump", "-q", "--to", &to]);
    let (on_b, on_c) = (expiries(&b).len(), expiries(&c).len());
    assert!(on_b > 1000 && on_c > 1000 && on_b + on_c == 3000, "{on_b} {on_c}");
    // A client finds them where it looks.
    let key = item(2999, now_secs).0;
    assert_eq!(ended(&command(&to, &["exist", &key]).output().expect("larder runs")).code, 0);
    let dump = command(&to, &["dump", "-q"]).output().expect("larder runs");
    assert!(dump.stdout.ends_with(b"end 3000\n"));
}
