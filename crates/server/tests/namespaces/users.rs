//! Users: who may read and write which namespace.

use std::io::{Read, Write};

use larder_conformance::server::eventually;

use crate::server::Larderd;

const FILE: &str = r#"
[default]
users.write = ["root"]

[namespace."a:"]
users = { read = ["anna", "root"], write = ["root"] }
"#;
const REFUSED: &str = "CLIENT_ERROR not allowed in this namespace\r\n";

fn login(user: &str) -> String {
    let token = format!("{user} pw");
    format!("set x 0 0 {}\r\n{token}\r\n", token.len())
}

fn start(scheme: &str) -> (larder_conformance::folder::Folder, Larderd) {
    let folder = larder_conformance::folder::Folder::create();
    folder.write("passwords", "root:pw\nanna:pw\nben:pw\n");
    let passwords = folder.arg("passwords");
    let larderd = match scheme {
        "-Y" => Larderd::start(FILE, &["-Y", &passwords]),
        _ => Larderd::start_with(FILE, &["-S"], &[("MEMCACHED_SASL_PWDB", &passwords)]),
    };
    (folder, larderd)
}

#[test]
fn users_do_what_the_lists_allow() {
    let (_folder, larderd) = start("-Y");
    let ask = |user: &str, commands: &str| {
        let answer = larderd.ask(&(login(user) + commands));
        answer.strip_prefix("STORED\r\n").unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    assert_eq!(ask("root", "set a:1 0 0 1\r\n1\r\nset c 0 0 1\r\n2\r\n"), "STORED\r\n".repeat(2));
    let (a, c) = ("VALUE a:1 0 1\r\n1\r\n", "VALUE c 0 1\r\n2\r\n");
    for (user, commands, answer) in [
        ("anna", "get a:1 c\r\n", format!("{a}{c}END\r\n")),
        ("anna", "set a:1 0 0 1\r\n1\r\n", REFUSED.to_owned()),
        ("anna", "set c 0 0 1\r\n1\r\n", REFUSED.to_owned()),
        ("anna", "incr a:1 1\r\n", REFUSED.to_owned()),
        ("anna", "gat 1 a:1\r\n", REFUSED.to_owned()),
        ("anna", "mg a:1 v\r\n", "VA 1\r\n1\r\n".to_owned()),
        ("anna", "mg a:1 T1\r\n", REFUSED.to_owned()),
        ("anna", "flush_prefix a:\r\n", REFUSED.to_owned()),
        ("anna", "flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n".to_owned()),
        // A user that may not write everything may not read everything at once either.
        (
            "anna",
            "stats store backup x\r\n",
            "CLIENT_ERROR backups need the right to everything or the backup token\r\n".to_owned(),
        ),
        (
            "anna",
            "stats replication compare\r\n",
            "CLIENT_ERROR comparisons need the right to everything\r\n".to_owned(),
        ),
        ("root", "stats replication compare\r\n", "ERROR\r\n".to_owned()),
        ("root", "stats store backup x\r\n", "CLIENT_ERROR backups not enabled\r\n".to_owned()),
        ("ben", "get a:1\r\n", REFUSED.to_owned()),
        ("ben", "get c\r\n", format!("{c}END\r\n")),
        // What comes before the refusal in a list is told.
        ("ben", "get c a:1 c\r\nmn\r\n", format!("{c}{REFUSED}MN\r\n")),
        ("ben", "get c\r\nget a:1\r\nget c\r\n", format!("{c}END\r\n{REFUSED}{c}END\r\n")),
        ("ben", "me a:1\r\n", REFUSED.to_owned()),
        ("root", "incr a:1 1\r\n", "2\r\n".to_owned()),
        ("root", "flush_all\r\n", "OK\r\n".to_owned()),
    ] {
        assert_eq!(ask(user, commands), answer, "{user}: {commands}");
    }
    assert_eq!(ask("root", "set a:1 0 0 1\r\n1\r\n"), "STORED\r\n");
    // A dump shows no keys of what the user may not read.
    assert!(!ask("ben", "lru_crawler metadump all\r\n").contains("key=a"));
    assert!(ask("anna", "lru_crawler metadump all\r\n").contains("key=a%3A1 "));
    // A new list holds for who is logged in already.
    let mut stream = larderd.connect();
    stream.write_all(login("ben").as_bytes()).expect("larderd reads");
    let mut stored = [0; 8];
    stream.read_exact(&mut stored).expect("larderd answers");
    larderd.reload(&FILE.replace("\"anna\", ", "\"anna\", \"ben\", "));
    eventually(|| ask("ben", "get a:1\r\n").starts_with("VALUE"));
    stream.write_all(b"get a:1\r\nquit me\r\n").expect("larderd reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("larderd answers");
    assert_eq!(answer, format!("{a}END\r\n"));
}

#[test]
fn the_backup_token_stands_for_the_right_to_everything() {
    let folder = larder_conformance::folder::Folder::create();
    folder.write("passwords", "root:pw\nanna:pw\n");
    folder.write("token", "correct-horse-battery\n");
    let [passwords, store, backups, token, log] =
        ["passwords", "store", "backups", "token", "log"].map(|name| folder.arg(name));
    let options = [
        &["-Y", &passwords, "--store", &store, "--backup-dir", &backups, "-vv"][..],
        &["--backup-token-file", &token],
    ]
    .concat();
    let larderd = Larderd::start_logging(FILE, &options, &log);
    let begin = |user: &str, words: &str| {
        let answer = larderd.ask(&format!("{}stats store backup {words}\r\n", login(user)));
        answer.strip_prefix("STORED\r\n").unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let done = |name: &str| {
        let is_done = || {
            let stats = larderd.ask(&format!("{}stats store\r\n", login("anna")));
            stats.contains(&format!("STAT backup {name}\r\n")) && stats.contains("STAT backup_state done\r\n")
        };
        eventually(is_done);
    };
    let refused = "CLIENT_ERROR backups need the right to everything or the backup token\r\n";
    for words in [
        "a",
        "a b",
        "a token=",
        "a token=correct-horse-batter",
        "a token=correct-horse-battery-",
        "a token=Correct-horse-battery",
        "a correct",
        "token=correct-horse-battery a",
    ] {
        assert_eq!(begin("anna", words), refused, "{words}");
    }
    assert_eq!(begin("anna", "a token=correct-horse-battery"), "OK\r\n");
    done("a");
    assert_eq!(begin("anna", "b a token=correct-horse-battery"), "OK\r\n");
    done("b");
    // Who has the right needs no token.
    assert_eq!(begin("root", "c"), "OK\r\n");
    done("c");
    // The file is read again.
    folder.write("token", "another-secret-word\n");
    larderd.reload(FILE);
    eventually(|| begin("anna", "d token=another-secret-word") == "OK\r\n");
    done("d");
    assert_eq!(begin("anna", "e token=correct-horse-battery"), refused);
    let log = std::fs::read_to_string(&log).expect("larderd has written it");
    assert!(log.contains("stats store backup a token=..."), "{log}");
    assert!(!log.contains("horse") && !log.contains("another-secret"), "{log}");
}

/// Everything that a watcher received up to the line about this key.
fn watched(watcher: &mut impl Read, last: &str) -> String {
    let mut lines = Vec::new();
    while !String::from_utf8_lossy(&lines).contains(last) {
        let mut piece = [0; 4096];
        let n = watcher.read(&mut piece).expect("larderd tells");
        assert!(n > 0, "the watcher was dropped");
        lines.extend_from_slice(&piece[..n]);
    }
    String::from_utf8(lines).expect("it is text")
}

#[test]
fn nobody_is_told_of_keys_that_he_may_not_read() {
    let (_folder, larderd) = start("-Y");
    let watch = |user: &str| {
        let mut stream = larderd.connect();
        let commands = format!("{}watch fetchers mutations deletions\r\n", login(user));
        stream.write_all(commands.as_bytes()).expect("larderd reads");
        assert_eq!(watched(&mut stream, "OK\r\n"), "STORED\r\nOK\r\n");
        stream
    };
    let ask = |user: &str, commands: &str| larderd.ask(&(login(user) + commands));
    let (mut anna, mut ben) = (watch("anna"), watch("ben"));
    ask("root", "stats detail on\r\n");
    // These requests cause events of all streams, by all families of commands.
    let of_a = "set a:1 0 0 1\r\n1\r\nget a:1\r\nmg a:1 v\r\ndelete a:1\r\n";
    ask("root", &format!("{of_a}get c:1\r\nget last1\r\n"));
    let (of_anna, of_ben) = (watched(&mut anna, "last1"), watched(&mut ben, "last1"));
    for stream in ["item_store", "item_get", "deleted"] {
        let is_of_a = |line: &str| line.contains(stream) && line.contains("key=a%3A1 ");
        let (anna_sees, ben_sees) = (of_anna.lines().any(is_of_a), of_ben.lines().any(is_of_a));
        assert_eq!((anna_sees, ben_sees), (true, false), "{stream}\n{of_anna}\n{of_ben}");
    }
    assert!(of_ben.contains("key=c%3A1 "), "{of_ben}");
    let dump = |user: &str| ask(user, "stats detail dump\r\n");
    assert!(dump("anna").contains("PREFIX a get 1 hit 1 set 1 del 1\r\nPREFIX c get 1 "), "{}", dump("anna"));
    assert!(!dump("ben").contains("PREFIX a") && dump("ben").contains("PREFIX c get 1 "), "{}", dump("ben"));
    let namespaces = |user: &str| ask(user, "stats namespaces\r\n");
    assert!(namespaces("anna").contains(":a::keep") && namespaces("anna").contains(":<null>:keep"));
    assert!(!namespaces("ben").contains(":a:") && namespaces("ben").contains(":<null>:keep"));
    // A new list also applies to clients that are already watching.
    larderd.reload(&FILE.replace("\"anna\", ", "\"ben\", "));
    eventually(|| ask("ben", "get a:1\r\n").ends_with("STORED\r\nEND\r\n"));
    ask("root", "get a:2\r\nget last2\r\n");
    assert!(watched(&mut ben, "last2").contains("key=a%3A2 "));
    assert!(!watched(&mut anna, "last2").contains("key=a%3A2 "));
}

#[test]
fn users_who_log_in_by_sasl_are_known_too() {
    let (_folder, larderd) = start("-S");
    // doc/protocol-binary.txt: sasl-auth is 0x21, get 0x00; status at 6, 0x20 is an authentication error.
    let statuses = |user: &str| {
        let mut stream = larderd.connect();
        [(0x21, "PLAIN", format!("\0{user}\0pw")), (0x00, "a:1", String::new())].map(
            |(opcode, key, value)| {
                let mut packet = vec![0x80, opcode, 0, key.len() as u8, 0, 0, 0, 0];
                packet.extend(((key.len() + value.len()) as u32).to_be_bytes());
                packet.extend([0; 12]);
                packet.extend([key.as_bytes(), value.as_bytes()].concat());
                stream.write_all(&packet).expect("larderd reads");
                let mut head = [0; 24];
                stream.read_exact(&mut head).expect("larderd answers");
                let mut body = vec![0; u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize];
                stream.read_exact(&mut body).expect("larderd answers");
                u16::from_be_bytes([head[6], head[7]])
            },
        )
    };
    assert_eq!(statuses("anna"), [0x00, 0x01]);
    assert_eq!(statuses("ben"), [0x00, 0x20]);
}
