//! What servers say reaches neither the terminal's commands nor the tools' limits. The servers of these tests answer a
//! line by what it begins with.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use crate::screen::Tmux;
use crate::{command, ended, fed, ok, start_larderd};

/// `OSC 0`: sets the title of the terminal.
const TITLE: &str = "\x1b]0;evil\x07";

/// A server with these answers, each after the beginning of its request. It ends with the process.
fn answering(answers: &[(&'static str, String)]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let answers = answers.to_vec();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answers = answers.clone();
            thread::spawn(move || -> io::Result<()> {
                let mut stream = BufReader::new(stream?);
                let mut line = String::new();
                while stream.read_line(&mut line)? > 0 {
                    let answer = answers.iter().find(|(begin, _)| line.starts_with(begin));
                    stream
                        .get_mut()
                        .write_all(answer.map_or("ERROR\r\n", |(_, answer)| answer).as_bytes())?;
                    line.clear();
                }
                Ok(())
            });
        }
    });
    address
}

#[test]
fn no_server_commands_the_terminal() {
    let server = answering(&[
        (
            "stats latency",
            format!("STAT get{TITLE}:tcp:buckets 1000=5\r\nSTAT get{TITLE}:tcp:sum_nanos 5000\r\nEND\r\n"),
        ),
        ("stats", format!("STAT larder_version 1\r\nSTAT a{TITLE} {TITLE}\u{9b}2J\r\nEND\r\n")),
        ("version", format!("VERSION {TITLE}\r\n")),
        ("delete", format!("SERVER_ERROR {TITLE}\r\n")),
        ("watch", format!("OK\r\nkey=a{TITLE}\r\n")),
        ("get", format!("VALUE a 0{TITLE} 2 1\r\nhi\r\nEND\r\n")),
        ("mg a", format!("NF {TITLE}\r\n")),
        ("mg", format!("VA 2 f{TITLE}\r\nhi\r\n")),
    ]);
    for args in [
        &["stat"][..],
        &["stat", "--json"],
        &["version"],
        &["version", "--json"],
        &["latency"],
        &["latency", "--json"],
        &["rm", "a"],
        &["watch", "-n", "1"],
        &["hotkeys", "--secs", "1"],
        &["top", "--once"],
        &["bench", "--secs", "1", "--keys", "1"],
    ] {
        let told = ended(&command(&server, args).output().expect("larder runs"));
        let text = told.out + &told.err;
        assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{args:?}: {text:?}");
    }
    let told = fed(&server, &["shell"], b"get a\nmg a v\nmg b v\n").out;
    for line in
        ["flags 0\\x1b]0;evil\\x07, cas 1", "NF \\x1b]0;evil\\x07: not found", "2 bytes f\\x1b]0;evil\\x07"]
    {
        assert!(told.contains(line), "{line}: {told:?}");
    }
}

#[test]
fn values_are_shown_with_escapes_on_a_terminal_and_as_they_are_elsewhere() {
    let server = start_larderd(&[]);
    ok(&server, &["set", "a", TITLE]);
    assert_eq!(ok(&server, &["get", "a"]), format!("{TITLE}\n"));
    let Some(terminal) = Tmux::new(80, 10) else { return };
    let get = command("", &["get", "a", "--servers", &server.address().to_string()]);
    let mut waiting = std::process::Command::new("sh");
    waiting.args(["-c", "\"$@\"; sleep 60", "sh"]).arg(get.get_program()).args(get.get_args());
    terminal.run_in(&[], &waiting);
    terminal.until("the value has escapes", |screen| screen.contains("\\x1b]0;evil\\x07"));
}

#[test]
fn numbers_without_measure_are_survived() {
    let most = u64::MAX;
    let listed = [1, most, 1].map(|size| format!("key=a exp={} cls=1 size={size}\r\n", i64::MAX)).concat();
    let server = answering(&[
        (
            "stats latency",
            format!(
                "STAT get:tcp:buckets 1={most},2={most}\r\nSTAT get:tcp:sum_nanos {most}\r\n\
                 STAT store:tcp:buckets 1={most}\r\nSTAT store:tcp:sum_nanos {most}\r\nEND\r\n"
            ),
        ),
        (
            "stats",
            format!("STAT larder_version 1\r\nSTAT time {}\r\nSTAT curr_items {most}\r\nEND\r\n", i64::MIN),
        ),
        ("watch", format!("OK\r\nskipped={most}\r\nskipped={most}\r\n")),
        ("mn", "MN\r\n".to_owned()),
        ("lru_crawler", format!("OK\r\n{listed}END\r\n")),
        ("mg", format!("VA 2 f0 t{}\r\nhi\r\n", i64::MAX)),
    ]);
    for args in
        [&["latency"][..], &["top", "--once"], &["hotkeys", "--secs", "1"], &["watch", "-n", "2"], &["dump"]]
    {
        let told = ended(&command(&server, args).output().expect("larder runs"));
        assert!(told.code == 0 && !told.err.contains("panicked"), "{args:?}: {told:?}");
    }
    let two = format!("{server},{}", server.replace("127.0.0.1", "localhost"));
    let told = ended(&command(&two, &["top", "--once"]).output().expect("larder runs"));
    assert!(told.code == 0 && told.out.contains("TOTAL"), "{told:?}");
}

#[test]
fn more_values_than_keys_are_no_answer() {
    let server = answering(&[("get", "VALUE a 0 2\r\nhi\r\n".repeat(3))]);
    let told = fed(&server, &["shell"], b"get a b\n");
    assert!(told.code == 1 && told.err.contains("an answer that cannot be"), "{told:?}");
}

/// Each byte comes within the timeout, and the end of the line never does.
#[test]
fn a_line_has_a_time_however_it_drips() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || -> io::Result<()> {
                let mut stream = stream?;
                loop {
                    stream.write_all(b"x")?;
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    for args in [&["hotkeys", "--secs", "1"][..], &["watch"], &["dump"]] {
        let told = ended(&command(&address, args).args(["--timeout", "0.2"]).output().expect("larder runs"));
        assert!(told.code == 69 && told.err.contains("no answer in time"), "{args:?}: {told:?}");
    }
}
