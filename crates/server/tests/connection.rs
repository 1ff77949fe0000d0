//! A connection without its socket: bytes in, slices out. What the socket takes, and when, makes no difference to what
//! a client is told.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::folder::Folder;
use larder_engine::{Engine, UPLOAD_BYTES_MIN};
use larder_protocol::Dialect;
use larder_server::clock::Clock;
use larder_server::conn::authenticator::Authenticator;
use larder_server::conn::client::Client;
use larder_server::conn::connection::Connection;
use larder_server::conn::output::{Output, Pieces};
use larder_server::conn::session::{CloseReason, Context, Next, Session, Window};
use larder_server::conn::waiter::{Turns, Waiting};
use larder_server::namespaces::{Handles, Namespaces};
use larder_server::net::tls::{Tls, TlsSettings};
use larder_server::observe::measure::Recorder;
use larder_server::shared::Shared;
use larder_server::startup::settings::Settings;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// A server without sockets.
struct Server {
    shared: Arc<Shared>,
    engine: Arc<Engine>,
    handles: Handles,
    recorder: Recorder,
    client: Client,
    turns: Turns,
}

/// A connection to it, and what came out.
struct Peer {
    connection: Connection,
    sent: Vec<u8>,
}

impl Server {
    fn new(settings: Settings) -> Self {
        Self::at(settings, Clock::start())
    }

    fn at(settings: Settings, clock: Clock) -> Self {
        let engine = Engine::new(settings.engine_config([1, 2])).unwrap();
        let authenticator = Authenticator::new(&settings).unwrap();
        let tls = Tls::load(&settings.tls).unwrap();
        let shared = Shared::new(Namespaces::single(Arc::clone(&engine)), settings, clock).unwrap();
        let shared = Arc::new(shared.with_authenticator(authenticator).with_tls(tls));
        let (handles, recorder) = (shared.namespaces.handles_of(0).unwrap(), shared.recorder(0));
        Self {
            shared,
            engine,
            handles,
            recorder,
            client: Client::of_datagrams(),
            turns: Turns::new(u32::MAX),
        }
    }

    /// Gives the connection these bytes, and takes `taken` bytes of its replies; the rest is left to it.
    fn execute(&mut self, peer: &mut Peer, mut received: &[u8], requests_max: u32, taken: usize) {
        let context = Context {
            shared: &self.shared,
            counters: &self.shared.counters[0],
            recorder: &self.recorder,
            worker: 0,
            client: &self.client,
            turns: &self.turns,
        };
        let guards = self.handles.pin(self.shared.clock.now());
        let mut output = Output::default();
        let connection = &mut peer.connection;
        connection.on_bytes(&context, &guards, &mut received, None, &mut output, requests_max);
        let mut sent = 0;
        while sent < output.len_bytes().min(taken) {
            sent += take(&output, sent, taken - sent, &mut peer.sent);
        }
        connection.on_sent(&self.shared.buffers, &output, sent);
        assert!(connection.keep_input(&self.shared.buffers, received).is_ok());
    }
}

impl Peer {
    fn new() -> Self {
        Self { connection: Connection::new(Session::new(Some(Dialect::Text))), sent: Vec::new() }
    }

    /// Takes what was left to the connection, so many bytes at a time.
    fn drain(&mut self, server: &mut Server, bytes_max: usize) {
        while let Some(unsent) = self.connection.poll_output() {
            let guards = server.handles.pin(server.shared.clock.now());
            let sent = take(&unsent.guarded(&guards), 0, bytes_max, &mut self.sent);
            self.connection.on_output_sent(sent);
        }
    }
}

/// One send: as many bytes as the socket takes of what follows the first `from`.
fn take(pieces: &impl Pieces, from: usize, bytes_max: usize, to: &mut Vec<u8>) -> usize {
    let mut slices = [IoSlice::new(&[]); 2];
    let filled = pieces.slices(from, &mut slices).expect("the values are there");
    let before = to.len();
    slices[..filled].iter().for_each(|slice| to.extend_from_slice(slice));
    to.truncate(before.saturating_add(bytes_max));
    assert!(to.len() > before, "nothing of what is left");
    to.len() - before
}

fn small() -> Settings {
    Settings { memory_bytes: 8 << 20, item_bytes_max: 1 << 20, threads: 1, ..Settings::default() }
}

/// A lock that is set to live until 31 s from now by the wall clock lives for 31 s, whatever that clock showed before.
/// An item that a client was told has expired stays expired.
#[test]
fn unix_times_are_judged_by_the_wall_clock_of_now() {
    let nanos = Arc::new(AtomicU64::new(1_000_000_000));
    let clock = Clock::simulated(Duration::from_secs(1_800_000_000), Arc::clone(&nanos));
    let mut server = Server::at(small(), clock);
    let pass = |secs: u64| {
        nanos.fetch_add(secs * 1_000_000_000, Relaxed);
    };
    let set = |server: &Server, secs: i64| {
        server.shared.clock.set_simulated_wall(secs);
        server.shared.observe_wall();
    };
    let ask = |server: &mut Server, commands: &str| {
        let mut peer = Peer::new();
        server.execute(&mut peer, commands.as_bytes(), 20, usize::MAX);
        String::from_utf8(peer.sent).unwrap()
    };
    let until = |secs: i64| format!("ms lock 1 T{secs} ME\r\nx\r\n");

    set(&server, 3_600);
    assert_eq!(ask(&mut server, &until(1_800_003_631)), "HD\r\n");
    assert_eq!(ask(&mut server, "mg lock t\r\n"), "HD t31\r\n");
    pass(30);
    assert_eq!(ask(&mut server, &until(1_800_003_661)), "NS\r\n");
    pass(1);
    assert_eq!(ask(&mut server, &until(1_800_003_662)), "HD\r\n");

    // The clock is set while items wait: Unix times expire when it shows their time, and times to live are unaffected.
    ask(&mut server, "ms counted 1 T60\r\nx\r\nms unix 1 T1800003691\r\nx\r\n");
    assert_eq!(ask(&mut server, "mg counted t\r\nmg unix t\r\n"), "HD t60\r\nHD t60\r\n");
    set(&server, 50);
    assert_eq!(ask(&mut server, "mg counted t\r\nmg unix t\r\n"), "HD t60\r\nHD t10\r\n");
    set(&server, 10);
    assert_eq!(ask(&mut server, "mg counted t\r\nmg unix t\r\n"), "HD t60\r\nEN\r\n");
    set(&server, -3_660);
    assert_eq!(
        ask(&mut server, "mg counted t\r\nmg unix t\r\nmg lock t\r\n"),
        "HD t60\r\nEN\r\nHD t3631\r\n"
    );
    pass(60);
    assert_eq!(ask(&mut server, "mg counted\r\n"), "EN\r\n");
}

/// Its client may have a second to read the last reply, and many may have that second at once.
#[test]
fn a_connection_that_is_to_be_closed_keeps_no_input() {
    let mut server = Server::new(small());
    for reply_bytes in [usize::MAX, 5] {
        let mut peer = Peer::new();
        let asked = format!("version\r\nquit\r\n{}", "get a\r\n".repeat(5_000));
        server.execute(&mut peer, asked.as_bytes(), 20, reply_bytes);
        peer.drain(&mut server, 1_000);
        assert_eq!(peer.connection.next(), Next::Close(CloseReason::Normal));
        assert!(!peer.connection.has_requests(), "{reply_bytes}");
        assert!(peer.sent.starts_with(b"VERSION "));
    }
}

#[test]
fn replies_may_be_cut_anywhere() {
    let mut server = Server::new(small());
    // Sent from where it lies in the cache.
    let large = "l".repeat(5_000);
    let expected =
        format!("VALUE a 0 1\r\nx\r\nEND\r\nVALUE b 0 5000\r\n{large}\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    let request = b"get a\r\nget b a\r\n";
    let store = format!("set a 0 0 1\r\nx\r\nset b 0 0 5000\r\n{large}\r\n");
    let mut peer = Peer::new();
    server.execute(&mut peer, store.as_bytes(), 20, usize::MAX);
    assert_eq!(peer.sent, b"STORED\r\nSTORED\r\n");
    for cut in (0..64).chain(5_000..=expected.len()) {
        for piece in [1_000, 17] {
            let mut peer = Peer::new();
            server.execute(&mut peer, request, 20, cut);
            let is_all = cut >= expected.len();
            assert_eq!(peer.connection.next(), if is_all { Next::Read } else { Next::Send }, "cut at {cut}");
            peer.drain(&mut server, piece);
            assert_eq!(peer.connection.next(), Next::Read);
            assert_eq!(String::from_utf8_lossy(&peer.sent), expected, "cut at {cut}");
        }
    }
}

#[test]
fn requests_may_be_cut_anywhere() {
    let request = b"set a 0 0 3\r\nabc\r\nget a b\r\nget a\r\nincr a 1\r\n";
    let replies = "STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\nVALUE a 0 3\r\nabc\r\nEND\r\n\
                   CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    for cut in 0..=request.len() {
        let mut server = Server::new(small());
        let mut peer = Peer::new();
        server.execute(&mut peer, &request[..cut], 20, usize::MAX);
        assert_eq!(peer.connection.next(), Next::Read);
        server.execute(&mut peer, &request[cut..], 20, usize::MAX);
        assert_eq!(String::from_utf8_lossy(&peer.sent), replies, "cut at {cut}");
    }
}

/// A round has few turns for what may cost a thousand times as much as a get; what costs little goes on.
#[test]
fn commands_about_the_server_wait_for_a_round_with_a_turn() {
    let mut server = Server::new(small());
    server.turns = Turns::new(2);
    let mut peers: Vec<Peer> = (0..4).map(|_| Peer::new()).collect();
    for peer in &mut peers {
        server.execute(peer, b"mn\r\nstats cachedump 1 1\r\nmn\r\n", 20, usize::MAX);
    }
    let turn = Next::Wait(Waiting::Turn);
    let yielded = Next::Wait(Waiting::Yield);
    let nexts: Vec<_> = peers.iter().map(|peer| peer.connection.next()).collect();
    assert_eq!(nexts, [yielded, yielded, turn, turn]);
    server.execute(&mut peers[2], b"", 20, usize::MAX);
    assert_eq!(peers[2].connection.next(), turn);
    server.turns = Turns::new(1);
    for peer in &mut peers[..3] {
        server.execute(peer, b"", 20, usize::MAX);
    }
    assert_eq!(peers[0].sent, b"MN\r\nEND\r\nMN\r\n");
    assert_eq!(peers[2].connection.next(), yielded);
    assert_eq!((&peers[2].sent[..], &peers[3].sent[..]), (&b"MN\r\nEND\r\n"[..], &b"MN\r\n"[..]));
}

#[test]
fn its_share_used_up_it_yields_and_sends_first() {
    let mut server = Server::new(small());
    let mut peer = Peer::new();
    server.execute(&mut peer, b"mn\r\nmn\r\nmn\r\n", 1, 0);
    assert_eq!(peer.connection.next(), Next::Send);
    peer.drain(&mut server, 1);
    assert_eq!(peer.connection.next(), Next::Wait(Waiting::Yield));
    server.execute(&mut peer, b"", 1, usize::MAX);
    assert_eq!(peer.connection.next(), Next::Wait(Waiting::Yield));
    // What comes in the meantime is behind it.
    server.execute(&mut peer, b"version\r\n", 1, usize::MAX);
    server.execute(&mut peer, b"", 1, usize::MAX);
    assert_eq!(peer.connection.next(), Next::Read);
    assert!(peer.sent.starts_with(b"MN\r\nMN\r\nMN\r\nVERSION "), "{}", peer.sent.escape_ascii());
}

#[test]
fn it_is_closed_when_everything_is_sent() {
    let mut server = Server::new(small());
    let mut peer = Peer::new();
    server.execute(&mut peer, b"mn\r\nquit\r\nmn\r\n", 20, 1);
    assert_eq!(peer.connection.next(), Next::Send);
    peer.drain(&mut server, 1);
    assert_eq!(peer.connection.next(), Next::Close(CloseReason::Normal));
    assert_eq!(peer.sent, b"MN\r\n");
}

#[test]
fn what_a_watcher_was_not_sent_goes_with_it() {
    let mut server = Server::new(small());
    let mut peer = Peer::new();
    server.execute(&mut peer, b"mn\r\nwatch fetchers\r\n", 20, 0);
    assert!(matches!(peer.connection.next(), Next::Watch(_)));
    assert_eq!(peer.connection.poll_output().unwrap().to_bytes(), b"MN\r\nOK\r\n");
}

#[test]
fn large_values_are_received_into_their_place() {
    let mut server = Server::new(small());
    let mut peer = Peer::new();
    let value = vec![b'v'; 900_000];
    // The first of its bytes wait beside the command line.
    let (first, mut rest) = value.split_at(UPLOAD_BYTES_MIN + 1);
    server.execute(&mut peer, &[b"set v 0 0 900000\r\n", first].concat(), 20, usize::MAX);
    while peer.connection.is_receiving_value() {
        let guards = server.handles.pin(server.shared.clock.now());
        match peer.connection.window(&guards) {
            Window::Fill(window) => {
                let n = window.len().min(rest.len()).min(70_001);
                window[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                peer.connection.on_window_filled(n);
            }
            Window::None => break,
            Window::TryAgain => {}
        }
    }
    assert!(rest.len() < 16 << 10, "{} bytes did not go there", rest.len());
    server.execute(&mut peer, &[rest, b"\r\nget v\r\n"].concat(), 20, usize::MAX);
    let expected = [b"STORED\r\nVALUE v 0 900000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    assert!(peer.sent == expected);
}

#[test]
fn a_store_waits_for_memory_that_somebody_holds() {
    let mut server = Server::new(Settings { memory_bytes: 4 << 20, ..small() });
    let mut reader = server.engine.handle().unwrap();
    let mut peer = Peer::new();
    let value = "v".repeat(60_000);
    {
        // Whatever is evicted may still be read under this.
        let _guard = reader.pin(server.shared.clock.now());
        let mut stores = 0;
        while peer.connection.next() == Next::Read {
            stores += 1;
            assert!(stores < 1_000, "memory without end");
            peer.sent.clear();
            let store = format!("set {stores} 0 0 {}\r\n{value}\r\n", value.len());
            server.execute(&mut peer, store.as_bytes(), 20, usize::MAX);
        }
        assert_eq!(peer.connection.next(), Next::Wait(Waiting::Memory));
        // Woken too early, it waits on.
        server.execute(&mut peer, b"", 20, usize::MAX);
        assert_eq!((peer.connection.next(), &peer.sent[..]), (Next::Wait(Waiting::Memory), &b""[..]));
    }
    for _ in 0..100 {
        if peer.connection.next() == Next::Read {
            break;
        }
        server.execute(&mut peer, b"", 20, usize::MAX);
    }
    assert_eq!((peer.connection.next(), &peer.sent[..]), (Next::Read, &b"STORED\r\n"[..]));
}

#[test]
fn a_login_waits_until_it_may_be_checked() {
    let folder = Folder::create();
    let verifier = larder_auth::Verifier::derive(b"pencil", b"salt", 4_096);
    let password = larder_auth::Password::Hashed(verifier);
    let file = larder_auth::render(&[larder_auth::Entry { user: b"user".to_vec(), password }]);
    folder.write("passwords", String::from_utf8(file).unwrap());
    let mut server = Server::new(Settings { auth_file: Some(folder.arg("passwords").into()), ..small() });
    // A wrong one costs as much, and is not remembered. Most of them wait, however late this thread is at times.
    let wrong = "set x 0 0 8\r\nuser pen\r\n".repeat(5);
    let mut peer = Peer::new();
    let received = format!("{wrong}set x 0 0 11\r\nuser pencil\r\nmn\r\n");
    server.execute(&mut peer, received.as_bytes(), 20, usize::MAX);
    let mut waits = 0;
    while let Next::Wait(Waiting::Until(when)) = peer.connection.next() {
        let sent_bytes = peer.sent.len();
        thread::sleep(when.saturating_duration_since(Instant::now()));
        server.execute(&mut peer, b"", 20, usize::MAX);
        assert!(peer.sent.len() > sent_bytes, "it is not sent away again");
        waits += 1;
    }
    assert!(waits > 0, "they are served at once");
    let answers = format!("{}STORED\r\nMN\r\n", "CLIENT_ERROR authentication failure\r\n".repeat(5));
    assert_eq!((peer.connection.next(), String::from_utf8_lossy(&peer.sent)), (Next::Read, answers.into()));
}

/// A worker does not spin while another thread reads files.
#[test]
fn certificates_that_are_being_read_are_waited_for() {
    let folder = Folder::create();
    let mut server = Server::new(Settings { tls: certified(&folder), ..small() });
    let shared = Arc::clone(&server.shared);
    let reading = shared.tls.as_ref().map(Tls::hold_reading);

    let mut peer = Peer::new();
    for received in [&b"mn\r\nrefresh_certs\r\n"[..], b""] {
        let begin = Instant::now();
        server.execute(&mut peer, received, 20, usize::MAX);
        let next = peer.connection.next();
        assert!(matches!(next, Next::Wait(Waiting::Until(when)) if when > begin), "{next:?}");
        assert_eq!(peer.sent, b"MN\r\n");
    }
    drop(reading);
    server.execute(&mut peer, b"", 20, usize::MAX);
    assert_eq!(peer.sent, b"MN\r\nOK\r\n");
}

/// Nobody may ever write into a FIFO: a worker, and the thread that signals wait for, would be gone.
#[test]
fn nobody_waits_for_a_fifo_in_the_place_of_a_certificate() {
    let folder = Folder::create();
    let tls = certified(&folder);
    let chain_file = tls.chain_file.clone().unwrap();
    let mut server = Server::new(Settings { tls, ..small() });
    fs::remove_file(&chain_file).unwrap();
    mkfifo(&chain_file, Mode::S_IRWXU).unwrap();
    let refused = server.shared.tls.as_ref().map(Tls::reload).unwrap().unwrap_err();
    assert!(refused.to_string().ends_with("not a regular file"), "{refused}");
    let mut peer = Peer::new();
    server.execute(&mut peer, b"refresh_certs\r\n", 20, usize::MAX);
    let sent = String::from_utf8(peer.sent).unwrap();
    assert!(sent.contains("the old ones stay in use"), "{sent}");
}

/// TLS with a certificate and a key in this folder.
fn certified(folder: &Folder) -> TlsSettings {
    let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    TlsSettings {
        is_enabled: true,
        chain_file: Some(folder.write("chain.pem", identity.cert.pem())),
        key_file: Some(folder.write("key.pem", identity.signing_key.serialize_pem())),
        ..TlsSettings::default()
    }
}
