//! Servers that do wrong: whatever they do, no answer is taken for another's.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use larder_client::codec::{ErrorKind, Protocol, ViolationKind};
use larder_client::{Address, Client, Error};

/// A server that hands each connection, with its number from 0, to `serve`.
fn server(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let Ok(address) = listener.local_addr().expect("it is bound").to_string().parse::<Address>();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            serve(number, stream.expect("somebody connects"));
        }
    });
    Client::builder().server(address).timeout(Some(Duration::from_millis(200))).build()
}

/// Reads a request of text, and answers.
fn answer(stream: &mut TcpStream, answer: &str) {
    let mut request = [0; 1000];
    let bytes = stream.read(&mut request).expect("the client asks");
    assert!(bytes > 0, "the client closed");
    stream.write_all(answer.as_bytes()).expect("the client listens");
}

fn value(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
}

#[test]
fn a_late_answer_is_never_another_requests() {
    let mut client = server(|number, mut stream| match number {
        0 => {
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(300));
                // The client is gone.
                let _ = stream.write_all(value("secret", "of somebody").as_bytes());
                thread::sleep(Duration::from_secs(2));
            });
        }
        _ => answer(&mut stream, &value("mine", "of mine")),
    });
    let start = Instant::now();
    assert!(matches!(client.get("secret"), Err(Error::Timeout)));
    assert!(start.elapsed() >= Duration::from_millis(190));
    thread::sleep(Duration::from_millis(200));
    assert_eq!(
        client.get("mine").expect("the second connection answers").map(|item| item.value),
        Some(b"of mine".to_vec())
    );
}

#[test]
fn a_trickle_does_not_stretch_the_time() {
    let mut client = server(|_, mut stream| {
        let _ = stream.write_all(b"VALUE a 0 100000\r\n");
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let start = Instant::now();
    assert!(matches!(client.get("a"), Err(Error::Timeout)));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn an_answer_that_comes_twice_spoils_its_connection_alone() {
    let mut client = server(|number, mut stream| match number {
        0 => {
            answer(&mut stream, &value("a", "once"));
            thread::sleep(Duration::from_millis(50));
            // Would do for the next request.
            let _ = stream.write_all(value("b", "stray").as_bytes());
            thread::spawn(move || (thread::sleep(Duration::from_secs(2)), stream));
        }
        _ => answer(&mut stream, &value("b", "asked for")),
    });
    let mut get = |key| client.get(key).expect("it answers").map(|item| item.value);
    assert_eq!(get("a"), Some(b"once".to_vec()));
    thread::sleep(Duration::from_millis(150));
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
        0 => answer(&mut stream, "CLIENT_ERROR bad data chunk\r\n"),
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

#[test]
fn a_server_of_another_protocol_is_found_out() {
    for (protocol, said) in [
        (Protocol::Text, "SSH-2.0-OpenSSH_9.2\r\n"),
        (Protocol::Meta, "HTTP/1.1 400 Bad Request\r\n"),
        (Protocol::Binary, "ERROR\r\n"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let Ok(address) = listener.local_addr().expect("it is bound").to_string().parse::<Address>();
        thread::spawn(move || answer(&mut listener.accept().expect("somebody connects").0, said));
        let mut client = Client::builder().server(address).protocol(protocol).build();
        let error = client.get("a").expect_err("that is no memcached");
        assert!(matches!(error, Error::Violation(_)), "{protocol:?} {error}");
    }
}
