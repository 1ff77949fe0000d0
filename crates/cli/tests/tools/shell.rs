//! `larder shell`, from standard input and on a terminal.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use larder_conformance::folder::Folder;

use crate::screen::Tmux;
use crate::{both, command, ended, fed, larder_fed, ok, start_larderd, start_memcached};

#[test]
fn commands_of_a_script_are_executed_in_order() {
    for server in both() {
        let script =
            b"set a \"hello world\"\nset b 7 0 4\r\n\x00\xffok\r\nget a b c\nincr a 1\nstats nonsense\n";
        let told = larder_fed(&server, &["shell"], script);
        // The last two are errors: a value that is no number, and no such group.
        assert_eq!(told.code, 1, "{told:?}");
        let lines: Vec<&str> = told.out.lines().collect();
        assert_eq!(
            lines[..7],
            [
                "STORED",
                "STORED",
                "a 11 bytes, flags 0",
                "hello world",
                "b 4 bytes, flags 7",
                r"\x00\xffok",
                "c: not found",
            ],
            "{told:?}"
        );
        assert_eq!(lines[7], "CLIENT_ERROR cannot increment or decrement non-numeric value");
        assert_eq!(lines[8], "The value under this key is not a decimal number of 64 bits.");
        assert!(told.err.contains("the replies to 2 commands were errors"), "{told:?}");
        assert_eq!(ok(&server, &["get", "a"]), "hello world\n");
    }
}

#[test]
fn every_form_of_a_reply_is_read_to_its_end() {
    for server in both() {
        let script = "set n 1\nset q 1 noreply\nincr n 41\ngets n\nmg n v f\nmg none v\nmg none v q\nms m 2 T60\nhi\n\
                      stats\nstats settings\nlru_crawler metadump all\ndelete n noreply\nget n\nversion\nmn\n\
                      quit\nget n\n";
        // `set q 1 noreply` announces a value that is the next line, and so takes `incr n 41`.
        let script = script.replace("set q 1 noreply\n", "set q 0 0 1 noreply\nx\n");
        let told = larder_fed(&server, &["shell"], script.as_bytes());
        assert_eq!((told.code, &told.err[..]), (0, ""), "{told:?}");
        let lines: Vec<&str> = told.out.lines().collect();
        assert_eq!(lines[..2], ["STORED", "42"], "{told:?}");
        assert!(lines[2].starts_with("n 2 bytes, flags 0, cas "), "{told:?}");
        assert_eq!(lines[3..8], ["42", "VA 2 bytes f0", "42", "EN: not found", "HD"], "{told:?}");
        assert!(lines.iter().any(|line| line.starts_with("curr_items ")), "{told:?}");
        assert!(lines.iter().any(|line| line.starts_with("key=n ")), "{told:?}");
        let [.., missing, version, noop] = lines[..] else { panic!("{told:?}") };
        assert!(version.starts_with("VERSION "), "{told:?}");
        assert_eq!((missing, noop), ("n: not found", "MN"));
    }
}

/// A server that answers each line with this. It ends with the process.
fn answering(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || -> io::Result<()> {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream?);
            while stream.read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {
                stream.get_mut().write_all(reply)?;
            }
        }
        Ok(())
    });
    address
}

#[test]
fn a_server_that_makes_no_sense_is_survived() {
    for (line, reply, code, out) in [
        ("stats", &b"STAT\r\nSTAT \r\nSTAT a\r\nEND\r\n"[..], 0, "   \n   \na  \n"),
        ("get a", b"VALUE a 0 18446744073709551615\r\n", 1, ""),
        ("get a", b"VALUE a 0 5\r\nhello!\r\n", 1, ""),
        ("get a", b"VALUE\r\n", 0, "VALUE\n"),
        ("mg a v", b"VA x\r\n", 1, ""),
        ("mg a v", b"VA\r\n", 0, "VA\n"),
        ("version", b"VERSION \x1b[2J\r\n", 0, "VERSION \\x1b[2J\n"),
        ("version", b"\xff\r\n", 0, "\u{fffd}\n"),
    ] {
        let told = fed(&answering(reply), &["shell"], format!("{line}\n").as_bytes());
        assert_eq!((told.code, &told.out[..]), (code, out), "{line}: {told:?}");
    }
}

#[test]
fn a_script_that_ends_inside_a_value_fails() {
    let server = start_larderd(&[]);
    for script in ["set a 0 0 5\r\nhel", "set a 0 0 5\r\n", "set a 7 60\n"] {
        let told = larder_fed(&server, &["shell"], script.as_bytes());
        assert_eq!(told.code, 1, "{script}: {told:?}");
        assert!(told.err.contains("standard input ended inside a value"), "{script}: {told:?}");
    }
    // The end of the input ends the line.
    let told = larder_fed(&server, &["shell"], b"set a 0 0 5\r\nhello");
    assert_eq!((told.code, &told.out[..]), (0, "STORED\n"), "{told:?}");
}

#[test]
fn a_line_without_measure_is_not_cut_into_commands() {
    let server = start_larderd(&[]);
    let mut script = vec![b' '; 1 << 20];
    script.extend_from_slice(b"set a 1\n");
    let told = larder_fed(&server, &["shell"], &script);
    assert_eq!((told.code, &told.out[..]), (1, ""), "{told:?}");
    assert!(told.err.contains("a line of more than 1048576 bytes"), "{told:?}");
}

#[test]
fn a_server_that_shuts_down_as_told_is_no_failure() {
    for server in [start_memcached(&["-A"]), start_larderd(&["-A"])] {
        let told = larder_fed(&server, &["shell"], b"shutdown\n");
        assert_eq!(
            (told.code, &told.out[..], &told.err[..]),
            (0, "the server closed the connection\n", ""),
            "{told:?}"
        );
    }
    // Without -A it refuses.
    for server in both() {
        let told = larder_fed(&server, &["shell"], b"shutdown\nversion\n");
        assert!(told.out.contains("ERROR: shutdown not enabled") && told.out.contains("VERSION"), "{told:?}");
    }
}

#[test]
fn a_script_ends_where_the_server_cannot_be_reached() {
    let told = ended(&command("127.0.0.1:1", &["shell"]).output().expect("larder runs"));
    assert_eq!(told.code, 69, "{told:?}");
    let told = ended(&command("127.0.0.1:1,127.0.0.1:2", &["shell"]).output().expect("larder runs"));
    assert_eq!(told.code, 64, "{told:?}");
}

#[test]
fn a_terminal_has_completion_history_and_help() {
    let Some(terminal) = Tmux::new(80, 24) else { return };
    let (server, state) = (start_larderd(&[]), Folder::create());
    let address = server.address().to_string();
    let home = format!("XDG_STATE_HOME={}", state.path().display());
    let shell = command("", &["shell", &address]);
    terminal.run_in(&[&home], &shell);
    let prompt = format!("{address}> ");
    terminal.until("the shell greets", |screen| {
        screen.contains("Ctrl-D ends") && screen.contains(prompt.trim_end())
    });
    // Tab completes `verb` to `verbosity `.
    for keys in ["set", "Space", "a", "Space", "hello", "Enter", "get", "Space", "a", "Enter"] {
        terminal.keys(keys);
    }
    terminal.until("the value is shown", |screen| screen.contains("a 5 bytes, flags 0\nhello\n"));
    // Ctrl-C at the value drops the command, not the shell.
    for keys in ["set", "Space", "a", "Space", "0", "Space", "0", "Space", "2", "Enter"] {
        terminal.keys(keys);
    }
    terminal.until("the value is asked for", |screen| screen.contains("value>"));
    terminal.keys("C-c");
    for keys in ["verb", "Tab", "0", "Enter"] {
        terminal.keys(keys);
    }
    terminal
        .until("the command was completed", |screen| screen.contains(&format!("{prompt}verbosity 0\nOK")));
    for keys in ["help", "Space", "touch", "Enter"] {
        terminal.keys(keys);
    }
    terminal.until("help is shown", |screen| screen.contains("touch KEY EXPTIME   set a new expiry"));
    terminal.keys("C-d");
    terminal.until_over();
    let history = std::fs::read_to_string(state.file("larder/history")).expect("it was written");
    assert!(history.contains("get a\nset a 0 0 2\nverbosity 0\n"), "{history}");
}
