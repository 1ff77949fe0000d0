//! `larder bench` ends with 1 when a server does wrong, says what, and ends with 0 when it does not.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

/// What a server does wrong with its hundredth get.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Corrupt,
    Lose,
    AnswerTwice,
    Hang,
    Close,
    Refuse,
}

#[derive(Default)]
struct Cache {
    /// The line that announces a value, and the value.
    by_key: HashMap<String, (String, Vec<u8>)>,
    gets: u64,
}

/// A small server of `get` and `set`. It ends with the process.
fn start(fault: Fault) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let cache = Arc::new(Mutex::new(Cache::default()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let cache = cache.clone();
            // A client that goes is no trouble of ours.
            thread::spawn(move || serve(stream?, &cache, fault));
        }
    });
    address
}

fn serve(mut stream: TcpStream, cache: &Mutex<Cache>, fault: Fault) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["set", key, flags, _, bytes] => {
                let bytes = bytes.parse::<usize>().map_err(io::Error::other)?;
                let mut value = vec![0; bytes + 2];
                reader.read_exact(&mut value)?;
                let head = format!("VALUE {key} {flags} {bytes}\r\n");
                cache.lock().expect("no panic").by_key.insert(key.into(), (head, value));
                b"STORED\r\n".to_vec()
            }
            ["get", key] => match get(&mut cache.lock().expect("no panic"), key, fault) {
                Some(answer) => answer,
                None if fault == Fault::Close => return Ok(()),
                None => continue,
            },
            ["version"] => b"VERSION 0.1-faulty\r\n".to_vec(),
            _ => b"ERROR\r\n".to_vec(),
        };
        stream.write_all(&answer)?;
    }
}

/// `None`: no answer.
fn get(cache: &mut Cache, key: &str, fault: Fault) -> Option<Vec<u8>> {
    cache.gets += 1;
    let missing = b"END\r\n".to_vec();
    let Some((head, value)) = cache.by_key.get(key) else { return Some(missing) };
    let mut right = [head.as_bytes(), value, b"END\r\n"].concat();
    if cache.gets != 100 {
        return Some(right);
    }
    match fault {
        Fault::None => Some(right),
        Fault::Corrupt => {
            right[head.len() + value.len() / 2] ^= 1;
            Some(right)
        }
        Fault::Lose => Some(missing),
        Fault::AnswerTwice => Some(right.repeat(2)),
        Fault::Hang | Fault::Close => None,
        Fault::Refuse => Some(b"SERVER_ERROR I do not feel like it\r\n".to_vec()),
    }
}

#[test]
fn one_wrong_answer_ends_with_1_and_is_named() {
    for (fault, named) in [
        (Fault::None, ""),
        (Fault::Corrupt, "1 wrong value\n"),
        (Fault::Lose, "1 lost value\n"),
        (Fault::AnswerTwice, "1 answer to something else\n"),
        (Fault::Hang, "1 timeout\n"),
        (Fault::Close, "1 connection closed by the server\n"),
        (Fault::Refuse, "1 error reply\n"),
    ] {
        let address = start(fault);
        // A busy machine may be slow to give the other answers.
        let timeout_secs = if fault == Fault::Hang { 2 } else { 60 };
        let line = format!(
            "bench -s {address} --requests 500 -c 2 -t 1 --keys 50 --mix get=9,set=1 --fill --verify \
             --misses-fail --timeout {timeout_secs} --no-screen"
        );
        let output = Command::new(env!("CARGO_BIN_EXE_larder"))
            .args(line.split_whitespace())
            .env("HOME", "/nonexistent")
            .output()
            .expect("larder runs");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let said = said.concat();
        let expected = if fault == Fault::None { 0 } else { 1 };
        assert_eq!(output.status.code(), Some(expected), "{fault:?}: {said}");
        assert_eq!(said.contains("not all was well"), fault != Fault::None, "{fault:?}: {said}");
        assert!(said.contains(named), "{fault:?}: {said}");
    }
}
