//! `larder dump` and `larder load`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use larder_conformance::server::Server;

use crate::{Folder, command, ended, larder, larder_fed, ok, start_larderd, start_memcached};

const ITEMS: usize = 100_000;

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
    for n in 0..items {
        let (key, flags, _, value) = item(n, now_secs);
        write!(stream.get_mut(), "get {key}\r\n").expect("it reads");
        line.clear();
        stream.read_line(&mut line).expect("it answers");
        assert_eq!(line, format!("VALUE {key} {flags} {}\r\n", value.len()));
        let mut found = vec![0; value.len() + 7];
        stream.read_exact(&mut found).expect("it answers");
        assert_eq!(found, [&value[..], b"\r\nEND\r\n"].concat(), "{key}");
    }
    let expiries = expiries(server);
    assert_eq!(expiries.len(), items);
    for n in 0..items {
        let (key, _, expires, _) = item(n, now_secs);
        let listed = expiries[&key.replace('%', "%25").replace('/', "%2F")];
        // A server keeps time in seconds since it began, of which each began at a moment of its own.
        let is_right = if expires == 0 { listed == -1 } else { (listed - expires as i64).abs() <= 1 };
        assert!(is_right, "{key}: {listed} instead of {expires}");
    }
}

/// Expiry by key, as the server lists them.
fn expiries(server: &Server) -> BTreeMap<String, i64> {
    let mut stream: TcpStream = server.connect().expect("it listens");
    stream.write_all(b"lru_crawler metadump all\r\n").expect("it reads");
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
    let now_secs = now_secs();
    let old = start_memcached(&["-m", "256"]);
    fill(&old, ITEMS, now_secs);
    let folder = Folder::new("dump");
    let file = folder.path("dump");
    let dump = larder(&old, &["dump", "--file", &file]);
    assert_eq!((dump.code, dump.err), (0, format!("larder dump: {ITEMS} items\n")));

    let new = start_larderd(&["-m", "256"]);
    ok(&new, &["load", "--file", &file, "--timeout", "30"]);
    expect_filled(&new, ITEMS, now_secs);

    let back = start_memcached(&["-m", "256"]);
    ok(&new, &["dump", "--to", &back.address().to_string(), "--timeout", "30"]);
    expect_filled(&back, ITEMS, now_secs);
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
    let folder = Folder::new("resume");
    let file = folder.path("dump");
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
fn a_move_that_was_killed_goes_on_and_moves_nothing_twice() {
    const MOVED: usize = 50_000;
    let now_secs = now_secs();
    let from = start_memcached(&["-m", "256"]);
    fill(&from, MOVED, now_secs);
    let to = start_larderd(&["-m", "256"]);
    let folder = Folder::new("move");
    let progress = folder.path("progress");
    let address = to.address().to_string();
    let args = ["dump", "-q", "--to", &address, "--progress", &progress];
    let mut child = command(&from.address().to_string(), &args).spawn().expect("larder runs");
    while fs::metadata(&progress).map_or(0, |file| file.len()) < 100_000 {
        assert!(child.try_wait().expect("it is ours").is_none(), "too quick to be killed in time");
        std::thread::yield_now();
    }
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    // Where a crash of the machine may have cut it.
    let noted = fs::read(&progress).expect("it is there");
    fs::write(&progress, &noted[..noted.len() - 3]).expect("the folder is ours");
    let stored = |server: &Server| {
        let told = ok(server, &["stat", "--grep", "cmd_set"]);
        told.trim().rsplit(' ').next().and_then(|n| n.parse::<usize>().ok()).expect("a number")
    };
    let first = stored(&to);
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
    let all = stored(&to) - 1;
    assert!((MOVED..MOVED + first - lines + 2).contains(&all), "{all} for {MOVED}, {lines} of {first}");
}

#[test]
fn the_file_of_progress_is_no_other_file() {
    let (from, to) = (start_memcached(&[]), start_memcached(&[]));
    ok(&from, &["set", "a", "b"]);
    let folder = Folder::new("progress");
    let file = folder.path("progress");
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
    let folder = Folder::new("kill");
    let file = folder.path("dump");
    let mut child =
        command(&from.address().to_string(), &["dump", "-q", "--file", &file]).spawn().expect("larder runs");
    while fs::metadata(&file).map_or(0, |file| file.len()) < 100_000
        && child.try_wait().expect("it is ours").is_none()
    {
        std::thread::yield_now();
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
    assert_eq!(told.err, "larder load: 1 stored, 1 kept as they were, 1 had expired, 0 refused\n");
    assert_eq!(ok(&to, &["cat", "a", "c"]), "newy");
    assert_eq!(larder_fed(&to, &["load", "-q"], dump).code, 0);
    assert_eq!(ok(&to, &["cat", "a"]), "old");
    ok(&to, &["flush"]);
    assert_eq!(larder_fed(&to, &["load", "-q", "--skip", "2"], dump).code, 0);
    assert_eq!(larder(&to, &["exist", "a"]).code, 1);
    ok(&to, &["exist", "c"]);
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
