//! TLS, with a real larderd and rustls's client. That other TLS libraries get along with larderd is for the real
//! clients to show (conformance/clients).

mod authority;
mod client;
mod handshake;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::CipherSuite;
use rustls::version::{TLS12, TLS13};

use authority::Authority;
use client::{Client, config};

/// A larderd with certificates.
struct Kit {
    server: Server,
    folder: Folder,
    authority: Authority,
}

impl Kit {
    /// `options`: of `-o`, beside the certificate; `CLIENTS` in them is the file of authorities.
    fn new(options: &str, args: &[&str]) -> Self {
        Self::saying(options, args, Stdio::inherit())
    }

    /// The same; `stderr`: where it is to say what it has to say.
    fn saying(options: &str, args: &[&str], stderr: Stdio) -> Self {
        let (folder, authority) = (Folder::create(), Authority::new());
        let chain = folder.write("server.pem", authority.server().pem());
        let clients = folder.write("clients.pem", authority.pem());
        let options = options.replace("CLIENTS", &clients.display().to_string());
        let mut command = server::command(Path::new(env!("CARGO_BIN_EXE_larderd")));
        command.arg("-Z").arg("-o").arg(format!("ssl_chain_cert={}", chain.display()));
        if !options.is_empty() {
            command.args(["-o", &options]);
        }
        command.args(args).stderr(stderr);
        let server = Server::start_command(command).expect("larderd starts");
        Self { server, folder, authority }
    }

    fn client(&self) -> Client {
        let config = config(&self.authority, None, &[&TLS13, &TLS12]);
        Client::connect(self.server.address(), &config).expect("larderd listens")
    }
}

#[test]
fn both_versions_carry_values_of_all_sizes() {
    let kit = Kit::new("", &["-I", "8m"]);
    for version in [&TLS12, &TLS13] {
        let config = config(&kit.authority, None, &[version]);
        let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
        for bytes in [0, 1, 5000, 16 << 10, 100_000, 1 << 20, 7 << 20] {
            let value = value(bytes);
            client
                .ask(&[format!("set k 0 0 {bytes}\r\n").as_bytes(), &value, b"\r\n"].concat(), b"STORED\r\n");
            let reply = [format!("VALUE k 0 {bytes}\r\n").as_bytes(), &value, b"\r\nEND\r\n"].concat();
            client.ask(b"get k\r\n", &reply);
            // More than sockets hold, so that the server has to wait for us.
            let times = if bytes > 5000 { 8 } else { 500 };
            client.send(&b"get k\r\n".repeat(times));
            thread::sleep(Duration::from_millis(50));
            client.expect(&reply.repeat(times)).expect("all replies come");
        }
    }
}

#[test]
fn requests_may_be_cut_into_records_anywhere() {
    let kit = Kit::new("", &[]);
    let mut client = kit.client();
    client.ask(b"mn\r\n", b"MN\r\n");
    let requests = b"set k 1 0 5\r\nhello\r\nget k\r\nms m 2\r\nhi\r\nmg m v\r\nincr n 1\r\nmn\r\n";
    let replies = b"STORED\r\nVALUE k 1 5\r\nhello\r\nEND\r\nHD\r\nVA 2\r\nhi\r\nNOT_FOUND\r\nMN\r\n";
    for cut in 0..requests.len() {
        let (head, tail) = requests.split_at(cut);
        let records = client.records(&[head, tail]);
        client.socket().write_all(&records).expect("larderd reads");
        client.expect(replies).expect("larderd answers");
    }
    let each_byte: Vec<&[u8]> = requests.chunks(1).collect();
    let records = client.records(&each_byte);
    client.socket().write_all(&records).expect("larderd reads");
    client.expect(replies).expect("larderd answers");
}

#[test]
fn records_may_be_cut_into_packets_anywhere() {
    let kit = Kit::new("", &[]);
    for version in [&TLS12, &TLS13] {
        let config = config(&kit.authority, None, &[version]);
        let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
        client.ask(b"mn\r\n", b"MN\r\n");
        let value = vec![b'v'; 40_000];
        let request = [b"set k 0 0 40000\r\n".as_slice(), &value, b"\r\nget k\r\n"].concat();
        let reply = [b"STORED\r\nVALUE k 0 40000\r\n".as_slice(), &value, b"\r\nEND\r\n"].concat();
        for _ in 0..20 {
            let records = client.records(&[&request]);
            let mut rest = &records[..];
            while !rest.is_empty() {
                let (head, tail) = rest.split_at(fastrand::usize(1..=rest.len().min(20_000)));
                client.socket().write_all(head).expect("larderd reads");
                rest = tail;
                thread::sleep(Duration::from_micros(200));
            }
            client.expect(&reply).expect("larderd answers");
        }
    }
}

#[test]
fn keys_may_change_on_the_way() {
    let kit = Kit::new("", &[]);
    let config = config(&kit.authority, None, &[&TLS13]);
    let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
    for round in 0..20 {
        client.ask(b"set k 0 0 1\r\nv\r\n", b"STORED\r\n");
        client.change_keys();
        // At times several in one go.
        if round % 3 == 0 {
            client.change_keys();
        }
        client.ask(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    }
}

#[test]
fn listeners_ask_for_certificates_as_they_are_told() {
    let stranger = Authority::new().client();
    let ca = "ssl_ca_cert=CLIENTS";
    // Prefix of the listener, options, and who gets in: without a certificate, with a good one, with a bad one. An
    // unwanted certificate is never asked for, so it cannot be bad.
    for (prefix, options, expected) in [
        ("", String::new(), [true, true, true]),
        ("", format!("{ca},ssl_verify_mode=0"), [true, true, true]),
        ("", format!("{ca},ssl_verify_mode=1"), [true, true, false]),
        ("", format!("{ca},ssl_verify_mode=2"), [false, true, false]),
        ("", format!("{ca},ssl_verify_mode=3"), [false, true, false]),
        ("btls:", format!("{ca},ssl_verify_mode=2"), [true, true, true]),
        ("mtls:", ca.to_owned(), [false, true, false]),
        // Without authorities no certificate is good (memcached 1.6.18 with OpenSSL 3.0).
        ("", "ssl_verify_mode=1".to_owned(), [true, false, false]),
        ("", "ssl_verify_mode=2".to_owned(), [false, false, false]),
        ("", "ssl_verify_mode=3".to_owned(), [false, false, false]),
        ("mtls:", String::new(), [false, false, false]),
    ] {
        let kit = Kit::new(&options, &["-l", &format!("{prefix}127.0.0.1:0")]);
        let good = kit.authority.client();
        for version in [&TLS12, &TLS13] {
            let let_in = [None, Some(&good), Some(&stranger)].map(|identity| {
                let config = config(&kit.authority, identity, &[version]);
                let client = Client::connect(kit.server.addresses()[1], &config);
                client.and_then(|mut client| client.try_ask(b"mn\r\n", b"MN\r\n")).is_ok()
            });
            assert_eq!(let_in, expected, "{prefix} {options} {version:?}");
        }
    }
}

#[test]
fn a_listener_that_nobody_can_pass_is_warned_of() {
    let warnings = |options: &str, listener: &str| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let listeners = format!("{listener},notls:127.0.0.1:0");
        let kit = Kit::saying(options, &["-l", &listeners], writer.into());
        // Whoever serves has said what there was to say.
        let mut plain = server::connect(kit.server.addresses()[2]).expect("larderd listens");
        plain.write_all(b"mn\r\n").expect("larderd reads");
        plain.read_exact(&mut [0; 4]).expect("larderd answers");
        drop(kit);
        let lines = BufReader::new(reader).lines().map(|line| line.expect("it is text"));
        lines.filter(|line| line.contains("ssl_ca_cert")).count()
    };
    // There is always a listener without a prefix beside it.
    assert_eq!(warnings("", "mtls:127.0.0.1:0"), 1);
    assert_eq!(warnings("ssl_verify_mode=2", "btls:127.0.0.1:0"), 1);
    assert_eq!(warnings("ssl_verify_mode=1", "mtls:127.0.0.1:0"), 2);
    assert_eq!(warnings("ssl_ca_cert=CLIENTS", "mtls:127.0.0.1:0"), 0);
}

#[test]
fn a_listener_without_tls_and_a_unix_socket_stay_plain() {
    let kit = Kit::new("", &["-l", "notls:127.0.0.1:0"]);
    let mut plain = server::connect(kit.server.addresses()[1]).expect("larderd listens");
    plain.write_all(b"mn\r\nquit\r\n").expect("larderd reads");
    let mut got = String::new();
    plain.read_to_string(&mut got).expect("larderd closes");
    assert_eq!(got, "MN\r\n");
    kit.client().ask(b"mn\r\n", b"MN\r\n");

    let path = kit.folder.file("socket");
    let mut command = server::command(Path::new(env!("CARGO_BIN_EXE_larderd")));
    // Whoever the server becomes shall be able to bind there.
    command.args(["-u", "root", "-Z", "-s"]).arg(&path).arg("-o");
    command.arg(format!("ssl_chain_cert={}", kit.folder.file("server.pem").display()));
    let mut child = command.stderr(Stdio::piped()).spawn().expect("larderd starts");
    // Its file is there before it listens.
    eventually(|| UnixStream::connect(&path).is_ok());
    let mut socket = UnixStream::connect(&path).expect("larderd listens");
    socket.write_all(b"mn\r\nquit\r\n").expect("larderd reads");
    let mut got = String::new();
    socket.read_to_string(&mut got).expect("larderd closes");
    assert_eq!(got, "MN\r\n");
    child.kill().expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("-Z has no effect: Unix sockets have no TLS"), "{told}");
}

#[test]
fn plain_text_where_tls_is_spoken_is_counted_and_closed() {
    let kit = Kit::new("", &[]);
    let mut judge = kit.client();
    assert_eq!(judge.stat("ssl_handshake_errors").as_deref(), Some("0"));
    for request in [b"get k\r\n".as_slice(), b"\x80\x0a\0\0", &[0; 24], &[0x16, 3, 1, 0xff, 0xff, 1]] {
        let mut socket = kit.server.connect().expect("larderd listens");
        socket.write_all(request).expect("larderd reads");
        socket.shutdown(std::net::Shutdown::Write).expect("a socket can be shut");
        let mut got = Vec::new();
        // However it ends: a reset is an end as well.
        let _ = socket.read_to_end(&mut got);
        assert!(got.is_empty() || got[0] == 21, "an alert or nothing: {got:?}");
    }
    eventually(|| judge.stat("ssl_handshake_errors").as_deref() == Some("4"));
    assert_eq!(judge.stat("ssl_proto_errors").as_deref(), Some("0"));

    let mut client = kit.client();
    client.ask(b"mn\r\n", b"MN\r\n");
    client.socket().write_all(b"get k\r\n").expect("larderd reads");
    // It may have been cut off by then.
    let _ = client.socket().write_all(b"get k\r\n");
    eventually(|| judge.stat("ssl_proto_errors").as_deref() == Some("1"));
    assert!(client.expect(b"?").is_err());
}

#[test]
fn every_byte_of_a_broken_handshake_ends_in_a_close() {
    let kit = Kit::new("", &["-t", "1"]);
    // A client's first flight, and then what no client sends.
    let config = config(&kit.authority, None, &[&TLS13, &TLS12]);
    let mut hello = Vec::new();
    let name = rustls::pki_types::ServerName::try_from("localhost").expect("a name");
    let mut tls = rustls::ClientConnection::new(config, name).expect("a client");
    tls.write_tls(&mut hello).expect("a Vec takes all");
    for at in 0..hello.len() {
        let mut broken = hello.clone();
        broken[at] ^= 0xff;
        let mut socket = kit.server.connect().expect("larderd listens");
        socket.write_all(&broken).expect("larderd reads");
        socket.shutdown(std::net::Shutdown::Write).expect("a socket can be shut");
        let _ = socket.read_to_end(&mut Vec::new());
    }
    kit.client().ask(b"mn\r\n", b"MN\r\n");
}

#[test]
fn new_certificates_are_for_new_connections() {
    let kit = Kit::new("", &[]);
    let mut before = kit.client();
    before.ask(b"mn\r\n", b"MN\r\n");
    let first = before.server_certificate();

    let renewed = kit.authority.server();
    kit.folder.write("server.pem", renewed.pem());
    let mut unaware = kit.client();
    unaware.ask(b"mn\r\n", b"MN\r\n");
    assert_eq!(unaware.server_certificate(), first, "nobody has asked for a reload");

    // Both figures of one answer: how slow this machine is makes no difference.
    let loaded_at = |client: &mut Client| {
        let lines = client.stats("stats\r\n");
        let [uptime, since_load] = ["uptime", "time_since_server_cert_refresh"].map(|name| {
            let prefix = format!("STAT {name} ");
            let secs = lines.iter().find_map(|line| line.strip_prefix(&prefix)).expect("it is counted");
            secs.parse::<u64>().expect("a number")
        });
        (uptime - since_load, since_load)
    };
    eventually(|| loaded_at(&mut before).1 >= 2);
    let first_load = loaded_at(&mut before).0;
    before.ask(b"refresh_certs\r\n", b"OK\r\n");
    assert!(loaded_at(&mut before).0 > first_load);
    let mut after = kit.client();
    after.ask(b"mn\r\n", b"MN\r\n");
    assert_eq!(after.server_certificate(), Some(renewed.certificate().to_vec()));
    before.ask(b"mn\r\n", b"MN\r\n");

    kit.folder.write("server.pem", "no certificate");
    after.ask(b"refresh_certs\r\n", b"Error loading certificates: the old ones stay in use\r\n");
    kit.client().ask(b"mn\r\n", b"MN\r\n");

    let renewed = kit.authority.server();
    kit.folder.write("server.pem", renewed.pem());
    let pid = Pid::from_raw(kit.server.pid().try_into().expect("a process id"));
    kill(pid, Signal::SIGHUP).expect("it runs");
    eventually(|| {
        let mut client = kit.client();
        client.ask(b"mn\r\n", b"MN\r\n");
        client.server_certificate() == Some(renewed.certificate().to_vec())
    });
    before.ask(b"mn\r\n", b"MN\r\n");
}

/// Replaces the folder that holds the files by another one, as a Kubernetes volume does.
#[test]
fn certificates_that_are_replaced_are_read_again_without_a_word() {
    let kit = Kit::new("", &["--reload-secs", "1"]);
    let mut before = kit.client();
    before.ask(b"mn\r\n", b"MN\r\n");
    for _ in 0..2 {
        let renewed = kit.authority.server();
        let aside = kit.folder.write("aside.pem", renewed.pem());
        std::fs::rename(aside, kit.folder.file("server.pem")).expect("it takes its place");
        eventually(|| {
            let mut client = kit.client();
            client.ask(b"mn\r\n", b"MN\r\n");
            client.server_certificate() == Some(renewed.certificate().to_vec())
        });
    }
    before.ask(b"mn\r\n", b"MN\r\n");
}

#[test]
fn metrics_tell_when_the_certificate_ends() {
    let folder = Folder::create();
    let admin = folder.file("admin");
    let kit = Kit::new("", &["--admin-listen", &admin.display().to_string()]);
    let now_secs = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs() as i64;
    let before = now_secs();
    let mut stream = UnixStream::connect(&admin).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("it answers");
    let secs = said.lines().find_map(|line| line.strip_prefix("larder_tls_certificate_validity_seconds "));
    let secs: i64 = secs.expect("it is told").parse().expect("a number");
    // rcgen's certificates expire at the end of the year 4095.
    assert!((END_OF_4095 - now_secs()..=END_OF_4095 - before).contains(&secs), "{secs}");
    drop(kit);
}

/// Output of `date --utc --date 4096-01-01 +%s`.
const END_OF_4095: i64 = 67_090_118_400;

#[test]
fn sessions_are_resumed_only_if_that_is_on() {
    for (options, expected) in [("", [false, false]), ("ssl_session_cache", [false, true])] {
        let kit = Kit::new(options, &[]);
        for version in [&TLS12, &TLS13] {
            let config = config(&kit.authority, None, &[version]);
            let resumed = [(); 2].map(|()| {
                let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
                client.ask(b"mn\r\n", b"MN\r\n");
                client.was_resumed()
            });
            assert_eq!(resumed, expected, "{options} {version:?}");
        }
        let sessions = kit.client().stat("ssl_new_sessions");
        // One of each version, and the one that asks.
        assert_eq!(sessions.as_deref(), (!options.is_empty()).then_some("3"));
    }
}

/// A session says who its client is, so it must not go on where, or when, that would not do.
#[test]
fn a_session_does_not_open_another_door() {
    let listeners = "btls:127.0.0.1:0,mtls:127.0.0.1:0";
    let kit = Kit::new("ssl_session_cache,ssl_ca_cert=CLIENTS", &["-l", listeners]);
    let [_, open, closed] = *kit.server.addresses() else { panic!("three listeners") };
    let connect = |address, config: &_| Client::connect(address, config);
    for version in [&TLS12, &TLS13] {
        let nobody = config(&kit.authority, None, &[version]);
        for _ in 0..2 {
            connect(open, &nobody).expect("larderd listens").ask(b"mn\r\n", b"MN\r\n");
            let entered =
                connect(closed, &nobody).and_then(|mut client| client.try_ask(b"mn\r\n", b"MN\r\n"));
            assert!(entered.is_err(), "{version:?}");
        }

        let client = kit.authority.client();
        let known = config(&kit.authority, Some(&client), &[version]);
        let mut resumed = [(); 2].map(|()| {
            let mut client = connect(closed, &known).expect("larderd listens");
            client.ask(b"mn\r\n", b"MN\r\n");
            client
        });
        assert_eq!(resumed.each_ref().map(Client::was_resumed), [false, true]);

        // From now on another authority is trusted.
        let successor = Authority::new();
        kit.folder.write("clients.pem", successor.pem());
        resumed[0].ask(b"refresh_certs\r\n", b"OK\r\n");
        let entered = connect(closed, &known).and_then(|mut client| client.try_ask(b"mn\r\n", b"MN\r\n"));
        assert!(entered.is_err(), "{version:?}");
        kit.folder.write("clients.pem", kit.authority.pem());
        resumed[0].ask(b"refresh_certs\r\n", b"OK\r\n");
    }
}

#[test]
fn who_has_said_goodbye_is_answered_and_hears_it_too() {
    let kit = Kit::new("", &[]);
    let mut client = kit.client();
    client.send(b"mn\r\nquit\r\n");
    assert_eq!(client.read_to_end(), b"MN\r\n");

    for version in [&TLS12, &TLS13] {
        let config = config(&kit.authority, None, &[version]);
        let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
        client.send(&b"mn\r\n".repeat(1000));
        client.end();
        assert_eq!(client.read_to_end(), b"MN\r\n".repeat(1000), "{version:?}");
    }
}

#[test]
fn who_says_nothing_is_closed_when_idle() {
    let kit = Kit::new("idle_timeout=1", &[]);
    let mut silent = kit.server.connect().expect("larderd listens");
    let mut slow = kit.server.connect().expect("larderd listens");
    slow.write_all(&[0x16, 3, 1, 2, 0, 1]).expect("larderd reads");
    for socket in [&mut silent, &mut slow] {
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
        let mut got = Vec::new();
        socket.read_to_end(&mut got).expect("larderd closes");
    }
    assert_eq!(kit.client().stat("idle_kicks").as_deref(), Some("2"));
}

/// Each unfinished hello keeps 96 KiB and more; the budget is a MiB.
#[test]
fn unfinished_hellos_keep_no_more_than_the_budget() {
    let kit = Kit::new("read_buf_mem_limit=1", &[]);
    let mut hello = vec![0x16, 3, 1, 0, 4, 1, 0, 0xff, 0xf0];
    hello.extend_from_slice(&[0x16, 3, 1, 0, 1, 0].repeat(20_000));
    let mut held = Vec::new();
    for _ in 0..40 {
        let mut socket = kit.server.connect().expect("larderd listens");
        // It may have been closed.
        let _ = socket.write_all(&hello);
        held.push(socket);
    }
    // A client with little data is accepted.
    kit.client().ask(b"mn\r\n", b"MN\r\n");
    let refused = || kit.client().stat("ssl_handshake_errors").and_then(|count| count.parse::<u32>().ok());
    server::eventually(|| refused() >= Some(28));
    assert!(refused() < Some(40), "some are held");
}

#[test]
fn an_idle_connection_has_no_buffers() {
    let kit = Kit::new("", &["-c", "4000"]);
    let config = config(&kit.authority, None, &[&TLS13]);
    let mut clients = Vec::new();
    let mut open = |count| {
        for _ in 0..count {
            let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
            client.ask(b"mn\r\n", b"MN\r\n");
            clients.push(client);
        }
        kit.server.resident_bytes().expect("it runs")
    };
    let before = open(100);
    let after = open(1000);
    let each_bytes = after.saturating_sub(before) / 1000;
    println!("{each_bytes} bytes for each idle connection");
    // A record buffer alone would be 16 KiB.
    assert!(each_bytes < 8 << 10, "{each_bytes} bytes");
}

#[test]
fn statistics_have_memcacheds_names() {
    let kit = Kit::new("no_lru_crawler,no_lru_maintainer", &[]);
    // memcached 1.6.45: 84 names with these options, 87 under TLS. END is a line as well.
    assert_eq!(kit.client().stats("stats\r\n").len(), 87 + 1);
    let lines = kit.client().stats("stats larder\r\n");
    let names: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(
        names,
        ["larder_memory_used_bytes", "larder_read_only", "larder_refused_read_only", "larder_version"]
    );

    let lines = kit.client().stats("stats settings\r\n");
    let names: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    let from = names.iter().position(|name| *name == "ssl_enabled").expect("ssl_enabled is there");
    // The order is that of memcached 1.6.18.
    let expected = "ssl_enabled ssl_chain_cert ssl_key ssl_verify_mode ssl_keyformat ssl_ciphers ssl_ca_cert \
                    ssl_wbuf_size ssl_session_cache ssl_kernel_tls ssl_min_version";
    assert_eq!(names[from..from + 11].join(" "), expected);
}

#[test]
fn ciphers_and_versions_can_be_narrowed() {
    let kit = Kit::new("ssl_min_version=3", &[]);
    let old = config(&kit.authority, None, &[&TLS12]);
    let refused = Client::connect(kit.server.address(), &old)
        .and_then(|mut client| client.try_ask(b"mn\r\n", b"MN\r\n"));
    assert!(refused.is_err());
    kit.client().ask(b"mn\r\n", b"MN\r\n");

    let kit = Kit::new("ssl_ciphers=ECDHE-ECDSA-CHACHA20-POLY1305:TLS_AES_128_GCM_SHA256", &[]);
    for (version, cipher) in [
        (&TLS12, CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
        (&TLS13, CipherSuite::TLS13_AES_128_GCM_SHA256),
    ] {
        let config = config(&kit.authority, None, &[version]);
        let mut client = Client::connect(kit.server.address(), &config).expect("larderd listens");
        client.ask(b"mn\r\n", b"MN\r\n");
        assert_eq!(client.cipher(), Some(cipher));
    }
}

/// Random, so that a piece in the wrong place would be noticed.
fn value(bytes: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(bytes).collect()
}
