//! `--admin-peers`: what a server shows of others, and how little a bad one can do to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use larder_conformance::folder::Folder;
use larder_conformance::server::{eventually, free_port};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;

use crate::server::{Larderd, Reply};

#[test]
fn a_peer_shows_its_figures_and_then_why_it_does_not() {
    let peer = Larderd::start(&["-m", "48"]);
    peer.cache("set a 0 0 1\r\nx\r\nget a\r\n");
    let server = Larderd::start(&["--admin-peers", &peer.admin.to_string()]);
    eventually(|| first(&server)["figures"].is_object());
    let row = first(&server);
    assert_eq!((&row["address"], &row["is_own"]), (&peer.admin.to_string().into(), &false.into()));
    assert_eq!(row["url"], format!("http://{}/", peer.admin));
    let figures = &row["figures"];
    assert_eq!((&figures["items"], &figures["memory"]["limit_bytes"]), (&1.into(), &(48 << 20).into()));
    assert_eq!(figures["is_ready"], true);
    drop(peer);
    eventually(|| reason(&server).contains("Connection refused"));
    assert_eq!(first(&server)["figures"], Value::Null);
}

/// All servers may have the same list, with their own addresses in it.
#[test]
fn peers_that_name_each_other_and_themselves_ask_each_other_once() {
    // Each has to know the other's address before it starts.
    let free = || format!("127.0.0.1:{}", free_port());
    let (a, b) = (free(), free());
    let list = format!("{a},{b}");
    let listen = |address: &str| Larderd::start(&["--admin-listen", address, "--admin-peers", &list]);
    let (server, other) = (listen(&a), listen(&b));
    let rows = |server: &Larderd| json(server)["peers"].as_array().expect("a list").clone();
    for (server, own) in [(&server, 0), (&other, 1)] {
        eventually(|| rows(server).iter().all(|row| row["figures"].is_object()));
        let is_own: Vec<_> = rows(server).iter().map(|row| row["is_own"] == true).collect();
        assert_eq!(is_own, [own == 0, own == 1]);
    }
}

/// A question to a peer brings no further questions, and none is sent unless somebody looks.
#[test]
fn a_peer_is_asked_for_its_overview_alone_and_only_while_somebody_looks() {
    let asked = Arc::new(AtomicUsize::new(0));
    let peer = scripted(&asked, |_| b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_vec());
    let server = Larderd::start(&["--admin-peers", &peer.to_string()]);
    server.get("/api/overview");
    server.get("/metrics");
    assert_eq!(asked.load(Relaxed), 0);
    eventually(|| reason(&server).contains("no figures"));
    assert!(asked.load(Relaxed) >= 1);
}

/// None of them is kept, and the server goes on serving.
#[test]
fn what_is_no_answer_is_refused() {
    let head = "HTTP/1.1 200 OK\r\n";
    // Both would be read to their ends without limits.
    let long = format!("{head}Content-Length: 100002\r\n\r\n{}{{}}", " ".repeat(100_000));
    let long_head = format!("{head}X: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(100_000));
    for (answer, why) in [
        (long, "no whole answer"),
        (long_head, "no HTTP"),
        (String::new(), "no HTTP"),
        ("220 mail\r\n".to_owned(), "no HTTP"),
        (format!("{head}Content-Length: 9\r\n\r\n{{}}"), "no whole answer"),
        (format!("{head}Content-Length: 2\r\n\r\n[]"), "no figures"),
        (
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "302",
        ),
        ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_owned(), "refuses this server's token"),
    ] {
        let peer = scripted(&Arc::default(), move |_| answer.clone().into_bytes());
        let server = Larderd::start(&["--admin-peers", &peer.to_string()]);
        eventually(|| !reason(&server).is_empty());
        assert!(reason(&server).contains(why), "{why}: {}", reason(&server));
        assert_eq!(server.get("/healthz").status, 200);
    }
}

#[test]
fn a_peer_that_says_nothing_delays_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it has one").to_string();
    let peer = Larderd::start(&[]);
    let server = Larderd::start(&["--admin-peers", &format!("{address},{}", peer.admin)]);
    eventually(|| json(&server)["peers"][1]["figures"].is_object());
    eventually(|| reason(&server) == "no answer within 3 seconds");
}

#[test]
fn peers_get_the_token_and_the_table_needs_it() {
    let folder = Folder::create();
    folder.write("token", "correct-horse-battery");
    folder.write("other", "battery-staple-horse");
    let peer = Larderd::start(&["--admin-token-file", &folder.arg("token")]);
    for (file, opens) in [("token", true), ("other", false)] {
        let options = ["--admin-token-file", &folder.arg(file), "--admin-peers", &peer.admin.to_string()];
        let server = Larderd::start(&options);
        assert_eq!(server.get("/api/peers").status, 401);
        let ask = || {
            let token = std::fs::read_to_string(folder.file(file)).expect("it is there");
            let head = format!("Host: any.example\r\nAuthorization: Bearer {token}\r\nConnection: close");
            parse(&server.ask(&format!("GET /api/peers HTTP/1.1\r\n{head}\r\n\r\n")))["peers"][0].clone()
        };
        // A busy peer may be too slow for the first look.
        let is_told = |row: Value| match opens {
            true => row["figures"].is_object(),
            false => row["reason"] == "it refuses this server's token",
        };
        eventually(|| is_told(ask()));
    }
}

/// A page of another site, under a name of its own for this machine.
#[test]
fn another_host_name_does_not_open_the_table() {
    let server = Larderd::start(&["--admin-peers", "127.0.0.1:9"]);
    let reply = server.ask("GET /api/peers HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert_eq!(reply.status, 421);
}

/// With certificates for clients, too: each server shows its own.
#[test]
fn peers_are_asked_over_tls_and_must_be_of_our_authorities() {
    let folder = Folder::create();
    let (ours, theirs) = (Authority::new(), Authority::new());
    for (name, authority) in [("ours", &ours), ("theirs", &theirs)] {
        folder.write(&format!("{name}.ca"), &authority.pem);
        folder.write(&format!("{name}.pem"), authority.identity());
    }
    let options = |name: &str| {
        let files = format!("ssl_chain_cert={}", folder.arg(&format!("{name}.pem")));
        let ca = format!("ssl_verify_mode=0,ssl_ca_cert={}", folder.arg(&format!("{name}.ca")));
        ["-Z", "--admin-tls", "-o"].map(str::to_owned).into_iter().chain([format!("{files},{ca}")])
    };
    let start = |name: &str, more: &[&str]| {
        let options: Vec<_> = options(name).chain(more.iter().map(|option| (*option).to_owned())).collect();
        Larderd::start(&options.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let known = start("ours", &["-o", "ssl_verify_mode=2"]);
    let stranger = start("theirs", &[]);
    let list = format!("{},{}", known.admin, stranger.admin);
    // The table itself is asked for without TLS, at a Unix socket.
    let socket = folder.arg("socket");
    let server = start("ours", &["--admin-peers", &list, "--admin-listen", &socket]);
    let ask = || {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("larderd listens");
        let request = "GET /api/peers HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        parse(&crate::server::converse(&mut stream, request))["peers"].clone()
    };
    eventually(|| ask()[0]["figures"].is_object() && ask()[1]["reason"].is_string());
    let said = ask()[1]["reason"].as_str().expect("a text").to_owned();
    assert!(said.starts_with("no TLS"), "{said}");
    assert!(ask()[0]["url"].as_str().is_some_and(|url| url.starts_with("https://")));
    drop(server);
}

#[test]
fn peers_that_could_not_be_asked_refuse_the_start() {
    let folder = Folder::create();
    folder.write("pem", Authority::new().identity());
    let certificate = format!("ssl_chain_cert={}", folder.arg("pem"));
    let listen = ["--admin-listen", "127.0.0.1:0"];
    let peers = ["--admin-peers", "127.0.0.1:9"];
    let tls = ["-Z", "-o", &certificate, "--admin-tls"];
    for (options, named) in [
        (vec![&peers[..]], "--admin-listen"),
        (vec![&listen[..], &peers, &["-o", "drop_privileges"]], "-o drop_privileges"),
        (vec![&listen[..], &peers, &tls], "ssl_ca_cert"),
        (vec![&listen[..], &["--admin-peers", "nobody"]], "a port is missing"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larderd"));
        command.args(["-l", "127.0.0.1", "-p", "-1", "-v"]).args(options.concat()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("larderd is built");
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let said = lines.take_while(|line| !line.contains("Serving pid=")).collect::<Vec<_>>().join("\n");
        // One that serves would not end.
        let _ = child.kill();
        let code = child.wait().expect("it ends").code();
        assert!(code == Some(64) && said.contains(named), "{named}: {said}");
    }
}

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("no names are names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate of 127.0.0.1 and its key.
    fn identity(&self) -> String {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address");
        params.signed_by(&key, &self.issuer).expect("a certificate").pem() + &key.serialize_pem()
    }
}

/// A peer that gives each connection this answer to its request, and counts them.
fn scripted(asked: &Arc<AtomicUsize>, answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has one");
    let asked = Arc::clone(asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 4096];
            let bytes = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..bytes]);
            assert!(request.starts_with("GET /api/overview HTTP/1.1\r\n"), "{request}");
            asked.fetch_add(1, Relaxed);
            let _ = stream.write_all(&answer(&request));
        }
    });
    address
}

fn json(server: &Larderd) -> Value {
    parse(&server.get("/api/peers"))
}

fn parse(reply: &Reply) -> Value {
    serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{}: {error}", reply.body))
}

fn first(server: &Larderd) -> Value {
    json(server)["peers"][0].clone()
}

/// Why the first peer has no figures; empty: it has, or has not been asked.
fn reason(server: &Larderd) -> String {
    first(server)["reason"].as_str().unwrap_or_default().to_owned()
}
