//! Calls that fail, a disk that is full or slow, a clock that is set: what a real larderd with a store answers then,
//! and what it has when it is started again.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use larder_conformance::crash::power_loss::Recorder;
use larder_conformance::server::{self, Server};
use larder_conformance::{Error, Result};
use rustix::process::Signal;

const SEGMENTS: [&str; 4] = ["-t", "1", "--store-segment-kib", "16"];

/// By key: the values of which it has one.
type MayHold = HashMap<String, Vec<Vec<u8>>>;

/// A client that knows what each key may hold.
struct Client {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
    may_hold: MayHold,
}

impl Client {
    fn connect(server: &Server) -> Result<Self> {
        Ok(Self { address: server.address(), stream: connect(server.address())?, may_hold: HashMap::new() })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| format!("{line:?} is no reply").into())
    }

    /// Stores a value. Returns the reply: one that is an error leaves open whether it is there after a restart.
    fn set(&mut self, key: &str, value: Vec<u8>) -> Result<String> {
        let request = [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
        let may_hold = self.may_hold.entry(key.to_owned()).or_default();
        may_hold.push(value);
        self.stream.get_mut().write_all(&request)?;
        let reply = self.line().map_err(|error| format!("{error} to set {key}"))?;
        let may_hold = self.may_hold.entry(key.to_owned()).or_default();
        if reply == "STORED" {
            may_hold.drain(..may_hold.len() - 1);
        } else if !reply.starts_with("SERVER_ERROR store ") {
            return Err(format!("{reply:?} to set {key}").into());
        } else {
            // Where a change was lost on its way, the connection is closed behind the error.
            self.stream = connect(self.address)?;
        }
        Ok(reply)
    }

    /// Reads a key: it must hold what it may hold. `allows_errors`: or it cannot be told.
    fn get(&mut self, key: &str, was_stored: bool, allows_errors: bool) -> Result<()> {
        self.stream.get_mut().write_all(format!("get {key}\r\n").as_bytes())?;
        let line = self.line().map_err(|error| format!("{error} to get {key}"))?;
        if line.starts_with("SERVER_ERROR store ") && allows_errors {
            // What it depends on was lost: then the connection is closed behind the error, too.
            self.stream = connect(self.address)?;
            return Ok(());
        }
        if line == "END" && !was_stored {
            return Ok(());
        }
        let bytes = line.rsplit(' ').next().and_then(|bytes| bytes.parse().ok());
        let bytes: usize =
            bytes.filter(|_| line.starts_with("VALUE ")).ok_or_else(|| format!("{line:?} to get {key}"))?;
        let mut value = vec![0; bytes + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(bytes);
        let end = self.line()?;
        if end != "END" || !self.may_hold.get(key).is_some_and(|may_hold| may_hold.contains(&value)) {
            let begins = value[..bytes.min(20)].escape_ascii().to_string();
            return Err(format!("{key} has {bytes} bytes that begin with {begins}").into());
        }
        Ok(())
    }
}

fn connect(address: SocketAddr) -> Result<BufReader<TcpStream>> {
    let stream = server::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(BufReader::new(stream))
}

/// What no other write has.
fn value(nth: usize) -> Vec<u8> {
    format!("{nth}.").into_bytes().into_iter().cycle().take(500 + 700 * nth).collect()
}

/// Stores values until all is done, or the server has ended. Returns what each key may hold, and which keys were
/// acknowledged.
fn script(server: &mut Server) -> Result<(MayHold, Vec<String>)> {
    let mut stored = Vec::new();
    let Ok(mut client) = Client::connect(server) else { return Ok((HashMap::new(), stored)) };
    for nth in 0..10 {
        let key = format!("key{}", nth % 4);
        match client.set(&key, value(nth)) {
            Ok(reply) if reply == "STORED" => stored.push(key.clone()),
            Ok(_) => {}
            // It could not start, and said so.
            Err(_) if nth == 0 => {
                server::eventually(|| !server.is_running());
                break;
            }
            Err(error) => return Err(error),
        }
        client.get(&key, stored.contains(&key), true)?;
    }
    Ok((client.may_hold, stored))
}

/// Runs the script while this call fails; then the server is killed, and started again. False: there are fewer calls.
fn survives(what: &str, nth: usize) -> Result<bool> {
    let recorder = Recorder::new()?;
    let larderd = server::larderd()?;
    let fails = format!("{what}:{nth}");
    let (may_hold, stored) = match recorder.start(&larderd, &SEGMENTS, &[("RECORD_FAIL", &fails)]) {
        Ok(mut server) => {
            let outcome = script(&mut server)?;
            server.kill()?;
            outcome
        }
        // It could not start, and said so.
        Err(_) => (HashMap::new(), Vec::new()),
    };
    let (writes, syncs) = recorder.counts()?;
    let server = recorder.start(&larderd, &SEGMENTS, &[])?;
    let mut client = Client::connect(&server)?;
    client.may_hold = may_hold;
    for nth in 0..4 {
        let key = format!("key{nth}");
        client.get(&key, stored.contains(&key), false)?;
    }
    if client.set("key0", value(9))? != "STORED" {
        return Err("nothing can be stored after the restart".into());
    }
    Ok(nth <= if what == "write" { writes } else { syncs })
}

fn at_each(what: &str) -> Result<()> {
    let mut nth = 1;
    while survives(what, nth).map_err(|error| Error::from(format!("EIO at {what} {nth}: {error}")))? {
        nth += 1;
    }
    println!("EIO at each of {} calls: {what}", nth - 1);
    assert!(nth > 10, "{nth} calls only");
    Ok(())
}

#[test]
fn a_write_that_fails_loses_no_more_than_its_own_change() -> Result<()> {
    at_each("write")
}

#[test]
fn a_sync_that_fails_loses_nothing_that_was_acknowledged() -> Result<()> {
    at_each("sync")
}

/// After a failed sync nothing is written any more, and that is said; reads go on.
#[test]
fn a_failed_sync_makes_the_store_read_only() -> Result<()> {
    let recorder = Recorder::new()?;
    // Behind those of the start.
    let server = recorder.start(&server::larderd()?, &SEGMENTS, &[("RECORD_FAIL", "sync:25")])?;
    let mut client = Client::connect(&server)?;
    let mut replies = Vec::new();
    for nth in 0..60 {
        replies.push(client.set(&format!("key{nth}"), value(1))?);
    }
    let failed = replies.iter().position(|reply| reply != "STORED").ok_or("no sync failed")?;
    assert!(failed > 0, "{replies:?}");
    let read_only = "SERVER_ERROR store is read-only after a failed write";
    assert!(replies[failed..].iter().all(|reply| reply == read_only), "{replies:?}");
    for nth in 0..failed {
        client.get(&format!("key{nth}"), true, false)?;
    }
    Ok(())
}

/// At each change of a script there is no room from then on, until there is.
#[test]
fn a_full_disk_refuses_until_there_is_room() -> Result<()> {
    let larderd = server::larderd()?;
    let mut refused = 0;
    for full_at in 0..8 {
        let recorder = Recorder::new()?;
        let server = recorder.start(&larderd, &SEGMENTS, &[])?;
        let mut client = Client::connect(&server)?;
        // It has started once it answers.
        client.get("key0", false, false)?;
        let mut stored = Vec::new();
        for nth in 0..30 {
            if nth == full_at {
                fs::write(recorder.full(), "")?;
            }
            let key = format!("key{nth}");
            match client.set(&key, value(nth % 10))?.as_str() {
                "STORED" => stored.push(key),
                "SERVER_ERROR store is full" => refused += 1,
                other => return Err(other.into()),
            }
            for key in &stored {
                client.get(key, true, false)?;
            }
        }
        fs::remove_file(recorder.full())?;
        let mut failed = None;
        server::eventually(|| match client.set("again", value(3)) {
            Ok(reply) => reply == "STORED",
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        stored.push("again".to_owned());
        server.kill()?;
        let server = recorder.start(&larderd, &SEGMENTS, &[])?;
        (client.address, client.stream) = (server.address(), connect(server.address())?);
        for nth in 0..30 {
            let key = format!("key{nth}");
            client.get(&key, stored.contains(&key), false)?;
        }
        client.get("again", true, false)?;
    }
    assert!(refused > 50, "{refused} refused");
    Ok(())
}

/// While the disk takes its time, a cache is served, and what memory has of the store.
#[test]
fn a_slow_disk_keeps_only_those_waiting_who_write_to_it() -> Result<()> {
    let recorder = Recorder::new()?;
    let folder = larder_conformance::folder::Folder::create();
    let namespaces = folder.write("namespaces.toml", "[namespace.\"kept:\"]\nkeep = \"store\"\n");
    let namespaces = namespaces.to_str().ok_or("a path that is not UTF-8")?;
    let args = ["-t", "1", "--store-segment-kib", "16", "--namespaces", namespaces];
    let server = recorder.start(&server::larderd()?, &args, &[])?;
    let mut writer = Client::connect(&server)?;
    let mut other = Client::connect(&server)?;
    assert_eq!(other.set("kept:old", value(1))?, "STORED");
    // The committer may be in the middle of nothing else.
    fs::write(recorder.hold(), "")?;
    writer.stream.get_mut().write_all(b"set kept:new 0 0 3\r\nabc\r\n")?;
    for nth in 0..200 {
        let key = format!("key{}", nth % 7);
        assert_eq!(other.set(&key, value(nth % 10))?, "STORED");
        other.get(&key, true, false)?;
        other.get("kept:old", true, false)?;
    }
    writer.stream.get_mut().set_nonblocking(true)?;
    let early = writer.line();
    assert!(early.is_err(), "{early:?} before the sync");
    writer.stream.get_mut().set_nonblocking(false)?;
    fs::remove_file(recorder.hold())?;
    assert_eq!(writer.line()?, "STORED");
    Ok(())
}

/// A clock that is years ahead, and is set back: CAS values go on rising, and items stay.
#[test]
fn cas_values_rise_whatever_the_clock_does() -> Result<()> {
    let recorder = Recorder::new()?;
    let larderd = server::larderd()?;
    let mut highest: u64 = 0;
    for (nth, ahead_years) in [0i64, 10, 0, -1, 20, 0].into_iter().enumerate() {
        let ahead = (ahead_years * 365 * 86_400).to_string();
        let server = recorder.start(&larderd, &SEGMENTS, &[("RECORD_CLOCK", &ahead)])?;
        let mut client = Client::connect(&server)?;
        if nth > 0 {
            client.stream.get_mut().write_all(b"mg key v c\r\n")?;
            assert_eq!(client.line()?, format!("VA 1 c{highest}"), "after {ahead_years} years");
            assert_eq!(client.line()?, (nth - 1).to_string());
        }
        for _ in 0..3 {
            client.stream.get_mut().write_all(format!("ms key 1 c T100000\r\n{nth}\r\n").as_bytes())?;
            let reply = client.line()?;
            let cas = reply.strip_prefix("HD c").and_then(|cas| cas.parse().ok()).ok_or(reply)?;
            assert!(cas > highest, "{cas} after {highest}, {ahead_years} years");
            highest = cas;
        }
        assert!(highest < 1 << 53, "a program that keeps numbers as floating point reads it");
        // The last TTL must not be over after the clock was set: it counts from the clock that was.
        client.stream.get_mut().write_all(format!("ms key 1 c\r\n{nth}\r\n").as_bytes())?;
        let reply = client.line()?;
        highest = reply.strip_prefix("HD c").and_then(|cas| cas.parse().ok()).ok_or(reply)?;
        if nth % 2 == 0 { server.kill()? } else { server.stop().map(drop)? }
    }
    Ok(())
}

/// A process that is stopped and goes on has forgotten nothing.
#[test]
fn a_stopped_process_goes_on() -> Result<()> {
    let recorder = Recorder::new()?;
    let larderd = server::larderd()?;
    let server = recorder.start(&larderd, &SEGMENTS, &[])?;
    let mut stream = connect(server.address())?;
    for round in 0..5 {
        let sets: String = (0..20).map(|nth| format!("set key{nth} 0 0 1\r\n{round}\r\n")).collect();
        stream.get_mut().write_all(sets.as_bytes())?;
        server.signal(Signal::STOP)?;
        stream.get_mut().write_all(sets.as_bytes())?;
        server.signal(Signal::CONT)?;
        let mut line = String::new();
        for _ in 0..40 {
            line.clear();
            stream.read_line(&mut line)?;
            assert_eq!(line, "STORED\r\n");
        }
    }
    server.signal(Signal::STOP)?;
    server.kill()?;
    let server = recorder.start(&larderd, &SEGMENTS, &[])?;
    let mut client = Client::connect(&server)?;
    for nth in 0..20 {
        client.may_hold.insert(format!("key{nth}"), vec![b"4".to_vec()]);
        client.get(&format!("key{nth}"), true, false)?;
    }
    let mut rest = [0];
    client.stream.get_mut().set_nonblocking(true)?;
    assert_eq!(client.stream.read(&mut rest).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    Ok(())
}

/// A packet of the binary protocol: opcode, extras, key, value; the opaque is its number.
fn packet(opcode: u8, number: u8, extras: &[u8], key: &str, value: &[u8]) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut packet = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
    packet.extend(body.to_be_bytes());
    packet.extend([0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0, 0]);
    [packet.as_slice(), extras, key.as_bytes(), value].concat()
}

/// Opcode, status and opaque of the next reply.
fn reply(stream: &mut BufReader<TcpStream>) -> Result<(u8, u16, u8)> {
    let mut head = [0; 24];
    stream.read_exact(&mut head)?;
    let body = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    stream.read_exact(&mut vec![0; body as usize])?;
    Ok((head[1], u16::from_be_bytes([head[6], head[7]]), head[15]))
}

/// Pipelined requests, one of which finds no room: each gets its own answer in its place, and the connection stays
/// open. A removal that was acknowledged holds.
#[test]
fn on_a_full_disk_each_request_has_its_own_answer() -> Result<()> {
    let recorder = Recorder::new()?;
    let args = ["-t", "1", "--store-segment-kib", "64"];
    let server = recorder.start(&server::larderd()?, &args, &[])?;
    let mut client = Client::connect(&server)?;
    let small: Vec<String> = (0..4).map(|nth| format!("small{nth}")).collect();
    let mut round = |requests: &dyn Fn(&str) -> Vec<u8>| -> Result<BufReader<TcpStream>> {
        let _ = fs::remove_file(recorder.full());
        // The server may still refuse at once, without trying the disk: repeat until it accepts.
        for key in &small {
            server::eventually(|| client.set(key, b"abc".to_vec()).is_ok_and(|reply| reply == "STORED"));
        }
        fs::write(recorder.full(), "")?;
        let mut stream = connect(server.address())?;
        stream.get_mut().write_all(&requests(&"v".repeat(70_000)))?;
        Ok(stream)
    };
    let told = |mut stream: BufReader<TcpStream>, expected: &str| -> Result<()> {
        stream.get_mut().write_all(b"mn\r\n")?;
        let expected = format!("{expected}MN\r\n");
        let mut got = vec![0; expected.len()];
        let read = stream.read_exact(&mut got);
        assert_eq!(String::from_utf8_lossy(&got), expected, "{read:?}");
        Ok(())
    };

    // Nothing follows it in the pipeline.
    let stream = round(&|large| format!("set large 0 0 70000\r\n{large}\r\n").into())?;
    told(stream, "SERVER_ERROR store is full\r\n")?;

    let stream = round(&|large| {
        let set = format!("set large 0 0 70000\r\n{large}\r\n");
        let quiet = format!("set large 0 0 70000 noreply\r\n{large}\r\n");
        let gets = "get small0 large small1\r\nget small1\r\ndelete small0\r\nget small0\r\n";
        format!("get small0\r\n{set}{quiet}get small1\r\n{gets}").into()
    })?;
    let value = |key| format!("VALUE {key} 0 3\r\nabc\r\n");
    let (zero, one) = (value("small0"), value("small1"));
    let mut lines = String::new();
    let mut stream = stream;
    while !lines.ends_with("DELETED\r\nEND\r\n") && stream.read_line(&mut lines)? > 0 {}
    let head = format!("{zero}END\r\nSERVER_ERROR store is full\r\n{one}END\r\n{zero}");
    let tail = format!("{one}END\r\nDELETED\r\nEND\r\n");
    // The large value is refused as lost, or is not found once the loss is known.
    let refused = format!("{head}SERVER_ERROR store is full\r\n{tail}");
    let missed = format!("{head}{one}END\r\n{tail}");
    assert!(lines == refused || lines == missed, "{lines}");
    told(stream, "")?;

    let stream = round(&|large| {
        let sets = format!("ms large 70000 O2\r\n{large}\r\nms large 70000 q O3\r\n{large}\r\n");
        format!("mg small1 v O1\r\n{sets}mg small1 v O4\r\nmd small1 q\r\nmg small1 v q\r\n").into()
    })?;
    let full = "SERVER_ERROR store is full\r\n".repeat(2);
    told(stream, &format!("VA 3 O1\r\nabc\r\n{full}VA 3 O4\r\nabc\r\n"))?;

    let mut stream = round(&|large| {
        let (get, set, set_quietly, delete, delete_quietly, noop) = (0, 1, 0x11, 4, 0x14, 10);
        [
            packet(get, 1, &[], "small2", b""),
            packet(set, 2, &[0; 8], "large", large.as_bytes()),
            packet(set_quietly, 3, &[0; 8], "large", large.as_bytes()),
            packet(get, 4, &[], "small2", b""),
            packet(delete, 5, &[], "small2", b""),
            packet(delete_quietly, 6, &[], "small3", b""),
            packet(get, 7, &[], "small3", b""),
            packet(noop, 8, &[], "", b""),
        ]
        .concat()
    })?;
    let replies: Vec<_> = (0..7).map(|_| reply(&mut stream)).collect::<Result<_>>()?;
    let expected = [(0, 0, 1), (1, 0x82, 2), (0x11, 0x82, 3), (0, 0, 4), (4, 0, 5), (0, 1, 7), (10, 0, 8)];
    assert_eq!(replies, expected);
    Ok(())
}

/// Room is set aside for deletions, so they are taken even while other changes are refused.
#[test]
fn a_full_disk_refuses_no_deletion() -> Result<()> {
    let recorder = Recorder::new()?;
    let server = recorder.start(&server::larderd()?, &["-t", "1", "--store-segment-kib", "64"], &[])?;
    let mut client = Client::connect(&server)?;
    for nth in 0..200 {
        assert_eq!(client.set(&format!("key{nth}"), b"abc".to_vec())?, "STORED");
    }
    fs::write(recorder.full(), "")?;
    let mut other = connect(server.address())?;
    for nth in 0..200 {
        // The server may try the disk now, or refuse at once.
        let large = format!("set large 0 0 70000\r\n{}\r\n", "v".repeat(70_000));
        other.get_mut().write_all(large.as_bytes())?;
        client.stream.get_mut().write_all(format!("delete key{nth}\r\n").as_bytes())?;
        assert_eq!(client.line()?, "DELETED", "{nth}");
        let mut line = String::new();
        other.read_line(&mut line)?;
        assert_eq!(line, "SERVER_ERROR store is full\r\n");
    }
    Ok(())
}
