//! Servers that do wrong: whatever they do, no answer is taken for another's.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use larder_client::codec::{ErrorKind, Mode, Protocol, Store, ViolationKind};
use larder_client::discovery::Discovery;
use larder_client::{Address, Client, Distribution, Error, FailurePolicy, Stream, Tls};

/// As long as tests wait on a busy machine.
const MINUTE: Duration = Duration::from_secs(60);

/// A client of a server that hands each connection, with its number from 0, to `serve`. It waits for a minute.
fn server(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Client {
    impatient(MINUTE, serve)
}

/// The address of a server that hands each connection, with its number from 0, to `serve`.
fn listen(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            serve(number, stream.expect("somebody connects"));
        }
    });
    address.parse().expect("an address")
}

/// The same, with a client that waits for so long.
fn impatient(timeout: Duration, serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Client {
    Client::builder().server(listen(serve)).timeout(Some(timeout)).build()
}

/// Reads a request of text, and answers.
fn answer(stream: &mut TcpStream, answer: &str) {
    let mut request = [0; 1000];
    let bytes = stream.read(&mut request).expect("the client asks");
    assert!(bytes > 0, "the client closed");
    stream.write_all(answer.as_bytes()).expect("the client listens");
}

/// The server closes it with the test, and answers nothing more.
fn stay_open(stream: TcpStream) {
    std::mem::forget(stream);
}

fn value(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
}

#[test]
fn a_late_answer_is_never_another_requests() {
    let (timed_out, is_timed_out) = mpsc::channel();
    let (sent, is_sent) = mpsc::channel();
    let is_timed_out = Mutex::new(is_timed_out);
    let first = Mutex::new(None);
    let mut client = impatient(Duration::from_millis(200), move |number, mut stream| match number {
        0 => {
            is_timed_out.lock().expect("nobody panicked").recv().expect("the client gives up");
            // The client may be gone.
            let _ = stream.write_all(value("secret", "of somebody").as_bytes());
            sent.send(()).expect("the test waits");
            // Stays open.
            first.lock().expect("nobody panicked").replace(stream);
        }
        _ => answer(&mut stream, &value("mine", "of mine")),
    });
    assert!(matches!(client.get("secret"), Err(Error::Timeout)));
    timed_out.send(()).expect("the server waits");
    is_sent.recv().expect("the server sends");
    // On a busy machine this answer may be late as well.
    let mine = (0..100).find_map(|_| client.get("mine").ok()).expect("another connection answers");
    assert_eq!(mine.map(|item| item.value), Some(b"of mine".to_vec()));
}

/// What came with the last reply would be the beginning of the next one.
#[test]
fn the_beginning_of_an_unasked_reply_is_nobodys() {
    let mut client = server(|number, mut stream| match number {
        0 => {
            answer(&mut stream, &(value("a", "of a") + "VALUE b 0 5\r"));
            let mut request = [0; 100];
            if stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                stream.write_all(b"\nwrong\r\nEND\r\n").expect("the client listens");
            }
        }
        _ => answer(&mut stream, &value("b", "of b")),
    });
    let mut found = |key| client.get(key).expect("it is answered").map(|item| item.value);
    assert_eq!((found("a"), found("b")), (Some(b"of a".to_vec()), Some(b"of b".to_vec())));
}

#[test]
fn a_trickle_does_not_stretch_the_time() {
    const BYTES: usize = 500;
    // Ten seconds in all: a client that waits for each piece anew gets the whole value.
    let mut client = impatient(Duration::from_millis(200), |_, mut stream| {
        let _ = write!(stream, "VALUE a 0 {BYTES}\r\n");
        for _ in 0..BYTES {
            let _ = stream.write_all(b"x");
            thread::sleep(Duration::from_millis(20));
        }
        let _ = stream.write_all(b"\r\nEND\r\n");
    });
    assert!(matches!(client.get("a"), Err(Error::Timeout)));
}

#[test]
fn an_answer_that_comes_twice_spoils_its_connection_alone() {
    let (answered, is_answered) = mpsc::channel();
    let (sent, is_sent) = mpsc::channel();
    let is_answered = Mutex::new(is_answered);
    let first = Mutex::new(None);
    let mut client = server(move |number, mut stream| match number {
        0 => {
            answer(&mut stream, &value("a", "once"));
            is_answered.lock().expect("nobody panicked").recv().expect("the client has it");
            // Would do for the next request.
            let _ = stream.write_all(value("b", "stray").as_bytes());
            sent.send(()).expect("the test waits");
            // Stays open.
            first.lock().expect("nobody panicked").replace(stream);
        }
        _ => answer(&mut stream, &value("b", "asked for")),
    });
    let mut get = |key| client.get(key).expect("it answers").map(|item| item.value);
    assert_eq!(get("a"), Some(b"once".to_vec()));
    answered.send(()).expect("the server waits");
    is_sent.recv().expect("the server sends");
    assert_eq!(get("b"), Some(b"asked for".to_vec()));

    let mut client = server(|_, mut stream| answer(&mut stream, "STORED\r\nSTORED\r\n"));
    let error = client.set("a", "x", 0).expect_err("one answer is too many");
    assert!(
        matches!(&error, Error::Violation(violation) if violation.kind == ViolationKind::Unasked),
        "{error}"
    );
}

#[test]
fn a_connection_that_ends_early_is_no_miss() {
    for partial in ["", "VALUE a 0 5\r\nhel", "VALUE a 0 5\r\nhello\r\n", "EN"] {
        let mut client = server(move |_, mut stream| answer(&mut stream, partial));
        assert!(matches!(client.get("a"), Err(Error::Closed)), "{partial}");
    }
}

#[test]
fn after_an_error_about_the_request_the_connection_is_not_used_again() {
    let mut client = server(|number, mut stream| match number {
        0 => {
            answer(&mut stream, "CLIENT_ERROR bad data chunk\r\n");
            stay_open(stream);
        }
        _ => {
            answer(&mut stream, "SERVER_ERROR out of memory storing object\r\n");
            answer(&mut stream, "STORED\r\n");
        }
    });
    let kind = |result: Result<(), Error>| match result {
        Err(Error::Refused { kind, .. }) => Some(kind),
        _ => None,
    };
    assert_eq!(kind(client.set("a", "x", 0)), Some(ErrorKind::Client));
    assert_eq!(kind(client.set("a", "x", 0)), Some(ErrorKind::OutOfMemory));
    client.set("a", "x", 0).expect("on the same connection");
}

/// memcached reads on after it, and takes the value for a command.
#[test]
fn after_a_request_without_a_login_the_connection_is_not_used_again() {
    let mut client = server(|number, mut stream| match number {
        0 => {
            answer(&mut stream, "CLIENT_ERROR unauthenticated\r\n");
            stay_open(stream);
        }
        _ => answer(&mut stream, "STORED\r\n"),
    });
    let refused = client.set("a", "x", 0).expect_err("there is no login");
    assert!(matches!(refused, Error::Refused { kind: ErrorKind::Unauthenticated, .. }), "{refused}");
    client.set("a", "x", 0).expect("on another connection");
}

/// The first server sends a value, and not the end of its reply; the next one has nothing.
#[test]
fn what_a_server_sent_before_it_failed_is_no_answer() {
    let half = listen(|_, mut stream| answer(&mut stream, "VALUE k 0 5\r\ngreen\r\n"));
    let whole = listen(|_, mut stream| answer(&mut stream, "END\r\n"));
    let builder = Client::builder().failure_policy(FailurePolicy::Failover).timeout(Some(MINUTE));
    for servers in [[&half, &whole], [&whole, &half]] {
        let builder =
            servers.iter().fold(builder.clone(), |builder, server| builder.server((*server).clone()));
        assert_eq!(builder.build().get("k").expect("the other answers"), None);
    }
}

#[test]
fn a_value_larger_than_is_accepted_is_refused() {
    const BYTES_MAX: usize = 100_000;
    for (announced, sent) in [(BYTES_MAX + 1, BYTES_MAX + 1), (1 << 29, 10)] {
        let serve = move |number, mut stream: TcpStream| match number {
            0 => {
                let reply = format!("VALUE k 0 {announced}\r\n{}", "x".repeat(sent));
                answer(&mut stream, &reply);
                // The rest, if the client waits for it.
                let _ = stream.write_all(b"\r\nEND\r\n");
                thread::sleep(Duration::from_millis(100));
            }
            _ => answer(&mut stream, &value("k", &"x".repeat(BYTES_MAX))),
        };
        let builder =
            Client::builder().server(listen(serve)).timeout(Some(MINUTE)).value_bytes_max(BYTES_MAX);
        let mut client = builder.build();
        let refused = client.get("k").expect_err("it is too large");
        assert!(
            matches!(refused, Error::ValueTooLarge { value_bytes } if value_bytes > BYTES_MAX),
            "{refused}"
        );
        let refused = client.set("k", vec![b'x'; BYTES_MAX + 1], 0).expect_err("it is too large");
        assert!(
            matches!(refused, Error::ValueTooLarge { value_bytes } if value_bytes > BYTES_MAX),
            "{refused}"
        );
        let found = client.get("k").expect("on another connection");
        assert_eq!(found.map(|item| item.value.len()), Some(BYTES_MAX));
    }
}

#[test]
fn a_server_of_another_protocol_is_found_out() {
    for (protocol, said) in [
        (Protocol::Text, "SSH-2.0-OpenSSH_9.2\r\n"),
        (Protocol::Meta, "HTTP/1.1 400 Bad Request\r\n"),
        (Protocol::Binary, "ERROR\r\n"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address =
            listener.local_addr().expect("it is bound").to_string().parse::<Address>().expect("an address");
        thread::spawn(move || answer(&mut listener.accept().expect("somebody connects").0, said));
        let mut client = Client::builder().server(address).protocol(protocol).build();
        let error = client.get("a").expect_err("that is no memcached");
        assert!(matches!(error, Error::Violation(_)), "{protocol:?} {error}");
    }
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Text, Protocol::Meta, Protocol::Binary];

/// A client of a server that does not listen: what it would send fails with another error than what it refuses to send.
fn of_nobody(protocol: Protocol) -> Client {
    let nobody = "127.0.0.1:1".parse::<Address>().expect("an address");
    Client::builder().server(nobody).protocol(protocol).build()
}

#[test]
fn what_could_be_a_command_is_not_sent() {
    for protocol in PROTOCOLS {
        let mut client = of_nobody(protocol);
        for group in ["x\r\nflush_all", "x\n", "\0", &"x".repeat(251)] {
            let (_, refused) = client.stats(group).pop().expect("there is a server");
            assert!(matches!(refused, Err(Error::Unsupported(_))), "{protocol:?} {group:?} {refused:?}");
        }
        let (_, sent) = client.stats("detail dump").pop().expect("there is a server");
        assert!(matches!(sent, Err(Error::Connect(_))), "{protocol:?} {sent:?}");
        for meta_flags in [&b"I\r\nflush_all"[..], b"\n", &[b'x'; 251]] {
            let refused = client.store(&Store { key: b"k", meta_flags, ..Store::default() });
            assert!(matches!(refused, Err(Error::Unsupported(_))), "{protocol:?} {meta_flags:?} {refused:?}");
        }
    }
}

/// The binary protocol would store whatever is there, the text protocol leave the comparison out.
#[test]
fn what_cannot_be_compared_is_not_stored() {
    for protocol in PROTOCOLS {
        let mut client = of_nobody(protocol);
        let refused = client.cas("k", "x", 0, 0);
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{protocol:?} {refused:?}");
        for mode in [Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend] {
            let refused = client.store(&Store { mode, key: b"k", compare: Some(1), ..Store::default() });
            assert!(matches!(refused, Err(Error::Unsupported(_))), "{protocol:?} {mode:?} {refused:?}");
        }
    }
}

/// Two GiB, of which a protocol with 32 bits for the length would announce a part, and send the rest as requests.
#[test]
fn a_value_too_large_for_the_protocol_is_not_sent() {
    let part = vec![b'x'; 1 << 20];
    let parts = vec![&part[..]; 2048];
    for protocol in PROTOCOLS {
        let mut client = of_nobody(protocol);
        let store = Store { key: b"key", value: &parts, ..Store::default() };
        assert!(matches!(client.store(&store), Err(Error::ValueTooLarge { value_bytes: 0x8000_0000 })));
    }
}

/// A server that accepts nobody: who finds no room is told at once, since no time limit would end the wait.
#[test]
fn a_full_unix_socket_is_an_error() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

    let path = std::env::temp_dir().join(format!("larder-full-{}", std::process::id()));
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("there are descriptors");
    bind(&listener, &SocketAddrUnix::new(&path).expect("a path")).expect("the path is free");
    listen(&listener, 0).expect("it is bound");
    let connect = || Stream::connect(&Address::Unix(path.clone()), None, None);
    let connected: Vec<_> = std::iter::repeat_with(connect).map_while(Result::ok).take(100).collect();
    let refused = connect().map(drop).expect_err("there is no room");
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock, "after {}", connected.len());
}

/// A server of TLS that announces a long message, and sends it bit by bit. It would take a minute.
#[test]
fn a_handshake_ends_in_time_as_a_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let sent = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client connects");
        let mut sent = stream.write(b"\x16\x03\x03\x40\x00").map_or(0, |_| 0);
        while sent < 1200 && stream.write_all(b"\x02").is_ok() {
            sent += 1;
            thread::sleep(Duration::from_millis(50));
        }
        sent
    });
    let tls = Tls::accepting_anything().expect("it is a configuration").anonymous();
    let timeout = Some(Duration::from_millis(200));
    let failed = Stream::connect(&address.parse().expect("an address"), Some(&tls), timeout);
    let failed = failed.map(drop).expect_err("there is no handshake");
    assert!(
        matches!(failed.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        "{failed}"
    );
    assert!(sent.join().expect("it does not panic") < 1200, "the client has waited for all");
}

/// PHP's memcache has points for each unit of weight: a name server could take all memory.
#[test]
fn a_list_whose_ring_is_too_large_is_refused() {
    const SERVERS: u16 = 27;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let name_server = socket.local_addr().expect("it is bound");
    thread::spawn(move || {
        let mut question = [0; 500];
        let (_, from) = socket.recv_from(&mut question).expect("the client asks");
        let question_end = 12 + b"\x05cache\x07example\0".len() + 4;
        let mut answer = [&question[..2], &[0x85, 0x80, 0, 1, 0, SERVERS as u8, 0, 0, 0, 0]].concat();
        answer.extend_from_slice(&question[12..question_end]);
        for port in 1..=SERVERS {
            // Of the same name, SRV, IN, a time to live, 9 bytes: priority, weight, port, name.
            answer.extend_from_slice(&[0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 1, 0, 9, 0, 1, 0xff, 0xff]);
            answer.extend_from_slice(&port.to_be_bytes());
            answer.extend_from_slice(b"\x01a\0");
        }
        socket.send_to(&answer, from).expect("it is sent");
    });
    let source = Discovery::Srv { name: "cache.example".into(), name_server: Some(name_server) };
    let mut client = Client::builder().distribution(Distribution::PhpMemcacheConsistent).build();
    let found = client.discover(&source);
    assert!(matches!(found, Err(Error::Unsupported(_))), "{found:?}");
    assert_eq!(client.servers().count(), 0);
}

/// More than 30 days would be a Unix time that is long past, for which memcached never flushes, or flushes at once.
#[test]
fn a_delay_of_a_flush_is_no_unix_time() {
    let (heard, is_heard) = mpsc::channel();
    let mut client = server(move |_, mut stream| {
        let mut request = [0; 100];
        let bytes = stream.read(&mut request).expect("the client asks");
        heard.send(String::from_utf8_lossy(&request[..bytes]).into_owned()).expect("the test listens");
        stream.write_all(b"OK\r\n").expect("the client listens");
    });
    client.flush_all(u32::MAX);
    assert_eq!(is_heard.recv().as_deref(), Ok("flush_all 2592000\r\n"));
    client.flush_prefix("p", 2_592_001);
    assert_eq!(is_heard.recv().as_deref(), Ok("flush_prefix p 2592000\r\n"));
}

/// `NOT_FOUND` is the reply of a namespace that is not there.
#[test]
fn a_flush_that_is_not_made_is_no_success() {
    let mut client = server(|_, mut stream| answer(&mut stream, "NOT_FOUND\r\n"));
    let flushed = client.flush_all(0).pop().map(|(_, flushed)| flushed);
    assert!(matches!(flushed, Some(Err(Error::Violation(_)))), "{flushed:?}");
    let flushed = client.flush_prefix("p", 0).pop().map(|(_, flushed)| flushed);
    assert!(matches!(flushed, Some(Ok(false))), "{flushed:?}");
}
