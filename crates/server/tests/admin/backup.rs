//! A backup as a stream over the operators' HTTP.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use larder_conformance::folder::Folder;
use larder_conformance::server::eventually;
use larder_store::files::DiskFiles;
use larder_store::{restore_stream, verify_stream};

use crate::server::Larderd;

const TOKEN: &str = "Authorization: Bearer correct-horse-battery\r\n";
const ITEMS: usize = 4_000;

/// One with a store of [`ITEMS`] values of this length.
fn start(folder: &Folder, value_bytes: usize, options: &[&str]) -> Larderd {
    folder.write("token", "correct-horse-battery\n");
    let (store, token) = (folder.arg("store"), folder.arg("token"));
    let kept = ["--store", &store, "--durability", "interval", "--backup-token-file", &token];
    let server = Larderd::start(&[&kept, options].concat());
    let value = "v".repeat(value_bytes);
    let sets = (0..ITEMS)
        .map(|nth| format!("set key:{nth} 7 0 {value_bytes} noreply\r\n{value}\r\n"))
        .collect::<String>();
    assert!(server.cache(&format!("{sets}mn\r\n")).ends_with("MN\r\n"));
    server
}

/// The whole response to a request of this method, as HTTP/1.0 has it: up to the end of the connection.
fn ask(server: &Larderd, method: &str, headers: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.admin).expect("larderd listens");
    write!(stream, "{method} /api/backup HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n")
        .expect("larderd reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("it ends");
    let at = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    let body = response.split_off(at);
    (String::from_utf8_lossy(&response).into_owned(), body)
}

#[test]
fn who_has_the_token_takes_a_backup_while_others_are_served() {
    let folder = Folder::create();
    let server = start(&folder, 1000, &[]);
    let (head, body) = thread::scope(|scope| {
        let taken = scope.spawn(|| ask(&server, "GET", TOKEN));
        // Clients and probes are answered meanwhile.
        while !taken.is_finished() {
            assert_eq!(server.get("/healthz").status, 200);
            assert!(server.cache("get key:1\r\n").contains("VALUE key:1 7 1000"));
        }
        taken.join().expect("no panic")
    });
    assert!(head.starts_with("HTTP/1.0 200 "), "{head}");
    assert!(head.contains("content-type: application/x-tar"), "{head}");
    let restored = DiskFiles::open(folder.file("restored")).expect("a directory");
    restore_stream(&mut &body[..], &restored).expect("it is whole");
    let copy = Larderd::start(&["--store", &folder.arg("restored")]);
    let mut gets = (0..ITEMS).map(|nth| format!("get key:{nth}\r\n"));
    assert_eq!(copy.cache(&gets.by_ref().collect::<String>()).matches("VALUE").count(), ITEMS);
    // The last bytes go first.
    eventually(|| server.cache("stats store\r\n").contains("STAT backup_state done"));
}

#[test]
fn nobody_else_takes_one() {
    let folder = Folder::create();
    folder.write("admin", "another-secret-word\n");
    let server = start(&folder, 100, &["--admin-token-file", &folder.arg("admin")]);
    for (method, headers, status) in [
        ("GET", "".to_owned(), 401),
        // Who may read figures may not read all items.
        ("GET", "Authorization: Bearer another-secret-word\r\n".to_owned(), 401),
        ("HEAD", TOKEN.to_owned(), 405),
        ("POST", TOKEN.to_owned(), 405),
        ("GET", format!("{TOKEN}Sec-Fetch-Site: cross-site\r\n"), 403),
        ("GET", TOKEN.to_owned(), 200),
    ] {
        let (head, body) = ask(&server, method, &headers);
        assert!(head.starts_with(&format!("HTTP/1.0 {status} ")), "{method} {headers}: {head}");
        assert_eq!(verify_stream(&mut &body[..]).is_ok(), status == 200, "{method} {headers}");
    }
    let without = Larderd::start(&["--store", &folder.arg("other")]);
    assert!(ask(&without, "GET", TOKEN).0.starts_with("HTTP/1.0 403 "));
}

#[test]
fn a_client_that_goes_away_ends_its_backup_and_another_can_be_taken() {
    let folder = Folder::create();
    // More than the buffers of a connection hold.
    let server = start(&folder, 6000, &[]);
    let mut stream = TcpStream::connect(server.admin).expect("larderd listens");
    write!(stream, "GET /api/backup HTTP/1.0\r\nHost: localhost\r\n{TOKEN}\r\n").expect("larderd reads");
    stream.read_exact(&mut [0; 1000]).expect("it begins");
    let (head, _) = ask(&server, "GET", TOKEN);
    assert!(head.starts_with("HTTP/1.0 409 "), "one at a time: {head}");
    let client = stream.local_addr().expect("is connected");
    drop(stream);
    eventually(|| server.cache("stats store\r\n").contains("STAT backup_state failed"));
    // Why, and by whom.
    let said =
        format!(" WARN the backup was broken off: the client has gone name=\"-\" client=tcp:{client}\n");
    assert!(server.log().contains(&said), "{}", server.log());
    let (_, body) = ask(&server, "GET", TOKEN);
    verify_stream(&mut &body[..]).expect("it is whole");
}

/// As `nc -N` does: who has sent all may still read.
#[test]
fn a_client_that_sends_no_more_gets_its_backup() {
    let folder = Folder::create();
    let server = start(&folder, 6000, &[]);
    let asked = |path: &str, headers: &str| {
        let mut stream = TcpStream::connect(server.admin).expect("larderd listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").expect("larderd reads");
        stream.shutdown(Shutdown::Write).expect("is connected");
        let mut response = Vec::new();
        // It ends with the response, since nothing can follow.
        stream.read_to_end(&mut response).expect("it ends");
        String::from_utf8_lossy(&response).into_owned()
    };
    let probed = asked("/healthz", "");
    assert!(probed.starts_with("HTTP/1.1 200 ") && probed.ends_with("\r\n\r\nok\n"), "{probed}");
    let response = asked("/api/backup", TOKEN);
    assert!(response.starts_with("HTTP/1.1 200 "), "{}", &response[..response.len().min(200)]);
    // The last of its chunks.
    assert!(response.len() > ITEMS * 6000 && response.ends_with("\r\n0\r\n\r\n"), "{}", response.len());
    eventually(|| server.cache("stats store\r\n").contains("STAT backup_state done"));
}
