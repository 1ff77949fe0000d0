//! The time that an operation has, whatever its servers do with it.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use larder_client::codec::ViolationKind;
use larder_client::discovery::Discovery;
use larder_client::policy::CircuitBreaker;
use larder_client::{Address, Client, Error, FailurePolicy, Login, Stream, Tls};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

/// A server that serves each connection on a thread of its own.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (serve, stream) = (serve.clone(), stream.expect("somebody connects"));
            thread::spawn(move || serve(stream));
        }
    });
    address.parse().expect("an address")
}

/// Reads a request, and returns its second word.
fn hear(stream: &mut TcpStream) -> String {
    let mut request = [0; 1000];
    let bytes = stream.read(&mut request).expect("the client asks");
    assert!(bytes > 0, "the client closed");
    let request = String::from_utf8_lossy(&request[..bytes]);
    request.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

/// A key of this server.
fn key_of(client: &Client, server: &Address) -> String {
    let mut keys = (0..).map(|n| format!("key-{n}"));
    let is_of = |key: &String| client.server_of(key).is_some_and(|found| found.address == *server);
    keys.find(is_of).expect("each has some")
}

/// Sends bit by bit: 20 milliseconds for each byte.
fn trickle(stream: &mut impl Write, bytes: &[u8]) {
    for byte in bytes {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn login() -> Login {
    Login { user: "ann".into(), password: "password".into() }
}

/// Asserts that one server failed, since its time was over.
fn assert_late(failures: &[(Option<Address>, Error)], server: &Address) {
    assert!(matches!(failures, [(Some(at), Error::Timeout)] if at == server), "{failures:?}");
}

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(20);

/// A client that gave each of them the whole time, one after the other, would still be there when the last answers.
#[test]
fn servers_that_hang_take_their_time_together() {
    let mut servers: Vec<_> = (0..40).map(|_| listen(|_| thread::sleep(LONG))).collect();
    servers.push(listen(|mut stream| {
        let key = hear(&mut stream);
        thread::sleep(LONG / 2);
        // The client has gone.
        let _ = write!(stream, "VALUE {key} 0 1\r\nx\r\nEND\r\n");
    }));
    let builder = Client::builder().timeout(Some(Duration::from_millis(300)));
    let builder = servers.iter().fold(builder, |builder, server| builder.server(server.clone()));
    let mut client = builder.build();
    let keys: Vec<_> = servers.iter().map(|server| key_of(&client, server)).collect();
    let found = client.multi_get(&keys);
    assert!(found.items.iter().all(Option::is_none), "the last one was waited for");
    assert_eq!(found.failures.len(), servers.len());
    assert!(found.failures.iter().all(|(_, error)| matches!(error, Error::Timeout)), "{:?}", found.failures);
}

/// While the client waits in vain for the first server, the second answers.
#[test]
fn what_has_arrived_meanwhile_counts() {
    // More than a read takes, and less than a socket holds.
    const VALUE_BYTES: usize = 50_000;
    let hung = listen(|_| thread::sleep(LONG));
    let well = listen(|mut stream| {
        let key = hear(&mut stream);
        let value = "x".repeat(VALUE_BYTES);
        write!(stream, "VALUE {key} 0 {VALUE_BYTES}\r\n{value}\r\nEND\r\n").expect("the client listens");
        thread::sleep(LONG);
    });
    let builder = Client::builder().timeout(Some(Duration::from_secs(3)));
    let mut client = builder.server(hung.clone()).server(well.clone()).build();
    let keys = [&hung, &well].map(|server| key_of(&client, server));
    let found = client.multi_get(&keys);
    assert_eq!(found.items[1].as_ref().map(|item| item.value.len()), Some(VALUE_BYTES));
    assert_late(&found.failures, &hung);
}

/// Each sends a value without an end, so that there is always something that has arrived.
#[test]
fn what_has_arrived_meanwhile_is_read_in_a_time_for_all() {
    let (closed, is_closed) = mpsc::channel();
    let mut servers: Vec<_> = (0..20)
        .map(|_| {
            let closed = closed.clone();
            listen(move |mut stream| {
                let key = hear(&mut stream);
                let _ = write!(stream, "VALUE {key} 0 60000000\r\n");
                while stream.write_all(&[b'x'; 4096]).is_ok() {
                    thread::sleep(Duration::from_micros(400));
                }
                let _ = closed.send(());
            })
        })
        .collect();
    let is_closed = Mutex::new(is_closed);
    servers.push(listen(move |mut stream| {
        let key = hear(&mut stream);
        is_closed.lock().expect("nobody panicked").recv().expect("the client gives the first one up");
        thread::sleep(LONG / 2);
        // The client has gone.
        let _ = write!(stream, "VALUE {key} 0 1\r\nx\r\nEND\r\n");
    }));
    let builder = Client::builder().timeout(Some(Duration::from_millis(300)));
    let builder = servers.iter().fold(builder, |builder, server| builder.server(server.clone()));
    let mut client = builder.build();
    let keys: Vec<_> = servers.iter().map(|server| key_of(&client, server)).collect();
    let found = client.multi_get(&keys);
    assert!(found.items.iter().all(Option::is_none), "the last one was waited for");
    assert_eq!(found.failures.len(), servers.len());
}

/// It would have passed for the healthy server, which then would count as one that is away.
#[test]
fn no_time_passes_while_others_are_connected_to() {
    const VALUE_BYTES: usize = 16 << 20;
    let well = listen(|mut stream| {
        hear(&mut stream);
        stream.write_all(b"STORED\r\n").expect("the client logs in");
        let key = hear(&mut stream);
        let value = "x".repeat(VALUE_BYTES);
        // More than sockets hold: the client reads.
        let _ = write!(stream, "VALUE {key} 0 {VALUE_BYTES}\r\n{value}");
        thread::sleep(Duration::from_millis(300));
        let _ = stream.write_all(b"\r\nEND\r\n");
        thread::sleep(LONG);
    });
    let hung = listen(|_| thread::sleep(LONG));
    let builder = Client::builder().server(well.clone()).server(hung.clone()).login(login());
    let mut client = builder.timeout(Some(Duration::from_secs(3))).build();
    let keys = [&well, &hung].map(|server| key_of(&client, server));
    let found = client.multi_get(&keys);
    assert_eq!(found.items[0].as_ref().map(|item| item.value.len()), Some(VALUE_BYTES));
    assert_late(&found.failures, &hung);
}

/// With one probe after the other, those of before would be due again, and the request would never be made.
#[test]
fn a_request_waits_for_one_probe_at_most() {
    const AWAY: usize = 5;
    let connected = Arc::new(AtomicUsize::new(0));
    let away: Vec<_> = (0..AWAY)
        .map(|_| {
            let connected = connected.clone();
            listen(move |mut stream| {
                connected.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 1000]);
            })
        })
        .collect();
    let well = listen(|mut stream| {
        while stream.read(&mut [0; 1000]).is_ok_and(|bytes| bytes > 0) {
            stream.write_all(b"END\r\n").expect("the client listens");
        }
    });
    let retry_after = Duration::from_millis(1);
    let breaker = CircuitBreaker { failure_limit: 1, retry_after, retry_after_max: LONG };
    let builder = Client::builder().server(well.clone()).timeout(Some(LONG));
    let builder = away.iter().fold(builder, |builder, server| builder.server(server.clone()));
    let mut client = builder.failure_policy(FailurePolicy::Eject).circuit_breaker(breaker).build();
    let mine = key_of(&client, &well);
    let keys: Vec<_> = away.iter().map(|server| key_of(&client, server)).collect();
    assert_eq!(client.multi_get(&keys).failures.len(), AWAY);
    // All are due.
    thread::sleep(retry_after * 10);
    for probes in 1..=AWAY {
        client.get(&mine).expect("it answers");
        assert_eq!(connected.load(Ordering::SeqCst), AWAY + probes);
    }
}

/// Five seconds, if each piece were waited for anew.
#[test]
fn a_login_ends_in_time_as_a_whole() {
    let server = listen(|mut stream| {
        hear(&mut stream);
        trickle(&mut stream, &[b'x'; 1000]);
    });
    let builder = Client::builder().server(server.clone()).login(login());
    let mut client = builder.timeout(Some(Duration::from_millis(200))).build();
    let failed = client.get("k").expect_err("there is no login");
    assert!(matches!(failed, Error::Timeout), "{failed}");
    let failed = client.discover(&Discovery::Cluster(server)).expect_err("there is no login");
    assert!(matches!(failed, Error::Timeout), "{failed}");
}

#[test]
fn a_reply_to_a_login_has_an_end() {
    let kinds = [ViolationKind::Unasked, ViolationKind::Malformed];
    for (reply, name) in
        [("STORED\r\nEND\r\n".to_owned(), "more than a login"), ("x".repeat(1 << 20), "no end")]
    {
        let server = listen(move |mut stream| {
            hear(&mut stream);
            // The client may be gone.
            let _ = stream.write_all(reply.as_bytes());
            thread::sleep(LONG);
        });
        let mut client = Client::builder().server(server).login(login()).timeout(Some(LONG)).build();
        let failed = client.get("k").expect_err(name);
        assert!(
            matches!(&failed, Error::Violation(found) if kinds.contains(&found.kind)),
            "{name}: {failed}"
        );
    }
}

/// It would block for ever.
#[test]
fn without_time_nothing_is_looked_up() {
    let server = listen(|_| thread::sleep(LONG));
    let mut client = Client::builder().timeout(Some(Duration::ZERO)).build();
    let failed = client.discover(&Discovery::Cluster(server)).expect_err("nobody answers");
    assert!(matches!(failed, Error::Timeout), "{failed}");
}

#[test]
fn a_time_without_end_can_be_set() {
    let server = listen(|mut stream| {
        hear(&mut stream);
        let _ = stream.write_all(b"END\r\n");
        thread::sleep(LONG);
    });
    let forever = Some(Duration::MAX);
    let mut client = Client::builder().server(server).timeout(forever).connect_timeout(forever).build();
    assert_eq!(client.get("k").expect("it answers"), None);
}

/// The system waits anew for each part that it makes of what is sent at once.
#[test]
fn a_slow_reader_of_a_unix_socket_does_not_stretch_the_time() {
    const BYTES: usize = 8 << 20;
    let path = std::env::temp_dir().join(format!("larder-deadlines-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).expect("the path is free");
    let reader = thread::spawn(move || {
        let mut stream = listener.accept().expect("the client connects").0;
        let (mut part, mut total) = (vec![0; 64 << 10], 0);
        loop {
            match stream.read(&mut part) {
                Ok(0) | Err(_) => return total,
                Ok(bytes) => total += bytes,
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let builder = Client::builder().server(Address::Unix(path.clone()));
    let mut client = builder.timeout(Some(Duration::from_millis(200))).build();
    let failed = client.set("k", vec![b'x'; BYTES], 0).expect_err("it takes seconds");
    assert!(matches!(failed, Error::Timeout), "{failed}");
    let total = reader.join().expect("it reads");
    assert!(total < BYTES, "all was sent");
    let _ = std::fs::remove_file(path);
}

/// A server of TLS that serves each connection with its session on a thread of its own.
fn listen_tls(serve: impl Fn(TcpStream, ServerConnection) + Send + Sync + 'static) -> Address {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let secret = PrivateKeyDer::try_from(key.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], secret)
        .expect("a configuration");
    let config = Arc::new(config);
    listen(move |stream| serve(stream, ServerConnection::new(config.clone()).expect("a session")))
}

fn trusting() -> Tls {
    Tls::accepting_anything().expect("it is a configuration").anonymous()
}

/// A record of TLS that comes bit by bit: no byte of it can be read before the last has come.
#[test]
fn a_record_that_trickles_does_not_stretch_the_time() {
    let server = listen_tls(|mut stream, mut session| {
        let asked = rustls::Stream::new(&mut session, &mut stream).read(&mut [0; 100]);
        assert!(asked.is_ok_and(|bytes| bytes > 0), "the client asks");
        let reply = format!("VALUE k 0 1000\r\n{}\r\nEND\r\n", "x".repeat(1000));
        session.writer().write_all(reply.as_bytes()).expect("it is buffered");
        let mut records = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut records).expect("it is memory");
        }
        trickle(&mut stream, &records);
    });
    let builder = Client::builder().server(server).tls(trusting());
    let mut client = builder.timeout(Some(Duration::from_millis(500))).build();
    let failed = client.get("k").map(drop).expect_err("it takes 20 seconds");
    assert!(matches!(failed, Error::Timeout), "{failed}");
}

/// Values that need many records, and more room than TLS has for what is not sent.
#[test]
fn large_values_pass_through_tls() {
    const BYTES: usize = 3_000_000;
    let server = listen_tls(|mut stream, mut session| {
        let mut tls = rustls::Stream::new(&mut session, &mut stream);
        let mut request = vec![0; format!("set k 0 0 {BYTES}\r\n\r\n").len() + BYTES];
        tls.read_exact(&mut request).expect("the client sends all");
        tls.write_all(b"STORED\r\n").expect("the client listens");
        tls.read_exact(&mut [0; "get k\r\n".len()]).expect("the client asks");
        let value = "x".repeat(BYTES);
        write!(tls, "VALUE k 0 {BYTES}\r\n{value}\r\nEND\r\n").expect("the client listens");
        thread::sleep(LONG);
    });
    let builder = Client::builder().server(server).tls(trusting());
    let mut client = builder.timeout(Some(Duration::from_secs(60))).build();
    client.set("k", vec![b'x'; BYTES], 0).expect("it is stored");
    let found = client.get("k").expect("it is there");
    assert!(found.is_some_and(|item| item.value == vec![b'x'; BYTES]));
}

#[test]
fn a_look_whether_anything_has_come_waits_for_nothing_and_sets_nothing() {
    let server = listen_tls(|mut stream, mut session| {
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        session.complete_io(&mut stream).expect("the client shakes hands");
        // Until it has read one byte, it sends none.
        rustls::Stream::new(&mut session, &mut stream).read_exact(&mut [0]).expect("the client sends");
        rustls::Stream::new(&mut session, &mut stream).write_all(b"x").expect("the client listens");
        thread::sleep(LONG);
    });
    let mut stream = Stream::connect(&server, Some(&trusting()), None).expect("it listens");
    assert!(stream.is_silent());
    stream.set_nonblocking(true).expect("a socket");
    assert!(stream.is_silent());
    let read = stream.read(&mut [0]).expect_err("there is nothing");
    assert_eq!(read.kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).expect("a socket");
    stream.write_all(b"x").expect("it listens");
    while stream.is_silent() {
        thread::yield_now();
    }
    // It is still there.
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("it was sent");
    assert_eq!(byte, *b"x");
}
