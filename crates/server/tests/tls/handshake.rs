//! Handshakes that are large, that come in crumbs, and that never end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection};

use crate::Kit;
use crate::client::{Client, config, long_hello};

/// A message that is announced as long as can be and comes a byte at a time in the end, heard in one round with clients
/// that say much, so that little room is left in what the round shares.
#[test]
fn a_handshake_without_end_harms_nobody() {
    let kit = Kit::new("", &["-t", "1", "-l", "notls:127.0.0.1:0"]);
    let connect = || {
        let socket = TcpStream::connect(kit.server.addresses()[1]).expect("larderd listens");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
        socket
    };
    let mut others = [(); 3].map(|()| connect());
    let (requests, mut replies) = (b"mn\r\n".repeat(2000), vec![0; 2000 * 4]);
    for _ in 0..2 {
        let mut socket = kit.server.connect().expect("larderd listens");
        socket.set_nodelay(true).expect("a socket can be told so");
        let message = [&[1, 0, 0xff, 0xff], &[0; 65_000][..]].concat();
        let records: Vec<u8> = message.chunks(16 << 10).flat_map(record).collect();
        socket.write_all(&records).expect("larderd reads");
        for byte in record(&[0]).into_iter().cycle().take(60) {
            for other in &mut others {
                other.write_all(&requests).expect("larderd reads");
            }
            // It may have had enough.
            let _ = socket.write_all(&[byte]);
            for other in &mut others {
                other.read_exact(&mut replies).expect("larderd answers");
                assert!(replies.chunks(4).all(|reply| reply == b"MN\r\n"));
            }
        }
    }
    kit.client().ask(b"mn\r\n", b"MN\r\n");
}

#[test]
fn handshakes_as_long_as_they_may_be_are_served_however_they_are_cut() {
    let kit = Kit::new("", &["-t", "1"]);
    let config = long_hello(&kit.authority, 60_000);
    let whole = hello(&config);
    assert!(whole.len() > 60_000);
    let handshake = handshake_of(&whole);
    // Cut into packets, and into records.
    for cut in (0..whole.len()).step_by(4999).chain([1, 5, 6, 16_388, 16_389, 16_390, whole.len() - 1]) {
        assert_answered(&kit, &[&whole[..cut], &whole[cut..]]);
    }
    for record_bytes in [64, 100, 511, 512, 4096, 16_383] {
        let records: Vec<u8> = handshake.chunks(record_bytes).flat_map(record).collect();
        assert_answered(&kit, &[&records]);
    }
    // A short one in crumbs.
    let short = hello(&crate::client::config(&kit.authority, None, &[&TLS13, &TLS12]));
    let crumbs: Vec<u8> = handshake_of(&short).chunks(1).flat_map(record).collect();
    assert_answered(&kit, &[&crumbs]);
    let packets: Vec<&[u8]> = short.chunks(1).collect();
    assert_answered(&kit, &packets);

    let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
    client.ask(b"mn\r\n", b"MN\r\n");
}

#[test]
fn chains_of_certificates_may_be_as_long_as_a_message() {
    let kit = Kit::new("ssl_ca_cert=CLIENTS,ssl_verify_mode=2", &["-t", "1"]);
    for version in [&TLS12, &TLS13] {
        for chain_bytes in [10_000, 33_000, 50_000, 64_000] {
            let chain = kit.authority.client().with_ballast(chain_bytes);
            let config = crate::client::config(&kit.authority, Some(&chain), &[version]);
            let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
            // A request that may come in one packet with the end of the handshake.
            let value = vec![b'v'; 40_000];
            let request = [b"set k 0 0 40000\r\n".as_slice(), &value, b"\r\n"].concat();
            client.ask(&request, b"STORED\r\n");
            client.ask(b"mn\r\n", b"MN\r\n");
        }
    }
}

/// Plain records where encrypted ones belong.
/// A session holds its client's chain, so it can be longer than a ticket may be.
#[test]
fn sessions_of_long_chains_are_not_kept() {
    let kit = Kit::new("ssl_ca_cert=CLIENTS,ssl_verify_mode=2,ssl_session_cache", &["-t", "1"]);
    for version in [&TLS12, &TLS13] {
        for (chain_bytes, is_resumed) in [(65_500, false), (64_000, false), (17_000, false), (3000, true)] {
            let chain = kit.authority.client().with_ballast(chain_bytes);
            let config = crate::client::config(&kit.authority, Some(&chain), &[version]);
            let resumed = [(); 2].map(|()| {
                let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
                client.ask(b"mn\r\n", b"MN\r\n");
                client.was_resumed()
            });
            assert_eq!(resumed, [false, is_resumed], "{version:?}, {chain_bytes} bytes");
        }
    }
}

#[test]
fn a_handshake_begun_again_is_refused() {
    let kit = Kit::new("", &["-t", "1"]);
    for version in [&TLS12, &TLS13] {
        let mut client = Client::connect(kit.server.address(), &config(&kit.authority, None, &[version]))
            .expect("larderd listens");
        client.ask(b"mn\r\n", b"MN\r\n");
        // Not encrypted, so refused at once.
        let message = [&[1, 0, 0xff, 0xff], &[0; 65_000][..]].concat();
        let records: Vec<u8> = message.chunks(16 << 10).flat_map(record).collect();
        let _ = client.socket().write_all(&records);
        assert!(client.expect(b"?").is_err());
    }
    kit.client().ask(b"mn\r\n", b"MN\r\n");
}

/// Sends a first flight in packets, and expects a ServerHello.
fn assert_answered(kit: &Kit, packets: &[&[u8]]) {
    let mut socket = kit.server.connect().expect("larderd listens");
    socket.set_nodelay(true).expect("a socket can be told so");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    for packet in packets {
        socket.write_all(packet).expect("larderd reads");
    }
    let mut head = [0; 6];
    socket.read_exact(&mut head).expect("larderd answers");
    assert_eq!((head[0], head[5]), (22, 2), "a ServerHello");
}

/// A client's first flight.
fn hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let mut hello = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut hello).expect("a Vec takes all");
    }
    hello
}

/// The handshake messages in records.
fn handshake_of(mut records: &[u8]) -> Vec<u8> {
    let mut handshake = Vec::new();
    while let Some((head, rest)) = records.split_first_chunk::<5>() {
        let (payload, rest) = rest.split_at(u16::from_be_bytes([head[3], head[4]]).into());
        handshake.extend_from_slice(payload);
        records = rest;
    }
    handshake
}

/// A record with part of a handshake (RFC 8446, section 5.1).
fn record(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("at most 16 KiB");
    [&[22, 3, 1], &length.to_be_bytes()[..], payload].concat()
}
