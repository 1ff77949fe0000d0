//! Every way into a server.

use std::io::{Read, Write};
use std::time::Duration;

use larder_client::codec::{ErrorKind, Event, Outcome, Protocol};
use larder_client::{Address, Client, Error, Login, Pipeline, Stream, Tls};
use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, any, command, larderd};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));

fn start_larderd(args: &[&str]) -> Server {
    Server::start(&larderd().expect("it builds"), args).expect("larderd starts")
}

fn address(server: &Server) -> Address {
    server.address().to_string().parse().expect("an address")
}

#[track_caller]
fn expect_service(mut stream: Stream) {
    stream.set_timeout(TIMEOUT).expect("it is a socket");
    stream.write_all(b"get a\r\n").and_then(|()| stream.flush()).expect("it reads");
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).expect("it answers");
    assert_eq!(&reply, b"END\r\n");
}

#[test]
fn tcp_and_unix_sockets_lead_to_memcached() {
    let server = Server::start(&any().expect("it builds"), &[] as &[&str]).expect("it starts");
    let by_name = format!("localhost:{}", server.address().port()).parse::<Address>().expect("an address");
    for address in [address(&server), by_name] {
        expect_service(Stream::connect(&address, None, TIMEOUT).expect("it listens"));
    }

    let folder = Folder::create();
    let path = folder.file("socket");
    // A server on a unix socket names no port that could be waited for.
    let program = any().expect("it builds");
    let mut server = std::process::Command::new(program)
        .args(["-u", "nobody", "-a", "777", "-s"])
        .arg(&path)
        .spawn()
        .expect("it starts");
    let address = path.display().to_string().parse::<Address>().expect("an address");
    let stream = (0..6000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        Stream::connect(&address, None, TIMEOUT).ok()
    });
    expect_service(stream.expect("it listens in the end"));
    let _ = server.kill();
    let _ = server.wait();
}

#[test]
fn connecting_fails_where_nobody_listens() {
    for text in ["127.0.0.1:1", "/nonexistent/socket"] {
        let address = text.parse::<Address>().expect("an address");
        assert!(Stream::connect(&address, None, TIMEOUT).is_err(), "{text}");
    }
}

#[test]
fn tls_trusts_whom_it_is_told_to() {
    let folder = Folder::create();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().expect("a key");
    let ca = params.self_signed(&ca_key).expect("a certificate");
    let issuer = Issuer::new(params, ca_key);
    let identity = |name: &str| {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.signed_by(&key, &issuer).expect("a certificate").pem() + &key.serialize_pem()
    };
    let ca_file = folder.write("ca", ca.pem());
    let server_file = folder.write("server", identity("cache.example"));
    let client_file = folder.write("client", identity("client"));
    let chain = format!("ssl_chain_cert={}", server_file.display());
    let server = start_larderd(&["-Z", "-o", &chain]);
    let address = address(&server);
    let connect = |tls: &Tls| Stream::connect(&address, Some(tls), TIMEOUT);

    let trusting = || Tls::trusting(&ca_file).expect("it is a certificate");
    let named = || trusting().server_name("cache.example").expect("it is a name");
    expect_service(connect(&named().anonymous()).expect("it is trusted"));
    expect_service(connect(&Tls::accepting_anything().expect("it can").anonymous()).expect("anybody is"));
    // A client's second request goes over the first one's connection, whatever TLS has said in between.
    let mut client = Client::builder().server(address.clone()).tls(named().anonymous()).build();
    let connections = |client: &mut Client| {
        let (_, stats) = client.stats("").pop().expect("there is a server");
        stats.expect("it answers").into_iter().find(|(name, _)| name == "total_connections")
    };
    let before = connections(&mut client);
    client.set("a", vec![b'x'; 100_000], 0).expect("it stores");
    assert_eq!(client.get("a").expect("it answers").map(|item| item.value.len()), Some(100_000));
    client.delete("a").expect("it answers");
    assert_eq!(connections(&mut client), before);

    let failure = connect(&trusting().anonymous()).expect_err("the certificate is not for 127.0.0.1");
    assert!(failure.to_string().contains("certificate"), "{failure}");
    assert!(connect(&trusting().server_name("other.example").expect("it is a name").anonymous()).is_err());

    let ca_option = format!("ssl_ca_cert={}", ca_file.display());
    let server = start_larderd(&["-Z", "-o", &chain, "-o", "ssl_verify_mode=2", "-o", &ca_option]);
    let address = server.address().to_string().parse::<Address>().expect("an address");
    let tls = named().with_certificate(&client_file, &client_file).expect("certificate and key");
    expect_service(Stream::connect(&address, Some(&tls), TIMEOUT).expect("both are trusted"));

    for wrong in [&folder.file("none"), &folder.write("empty", "")] {
        let error = Tls::trusting(wrong).err().expect("there is no certificate");
        assert!(error.to_string().contains(&wrong.display().to_string()), "{error}");
    }
}

#[test]
fn passwords_are_asked_for_in_every_protocol() {
    let folder = Folder::create();
    let file = folder.write("passwords", "ann:password\n");
    let file = file.to_str().expect("it is text");
    let mut with_sasl = command(&larderd().expect("it builds"));
    with_sasl.arg("-S").env("MEMCACHED_SASL_PWDB", file);
    let servers = [
        (Server::start(&any().expect("it builds"), &["-Y", file]).expect("it starts"), Protocol::Text),
        (start_larderd(&["-Y", file]), Protocol::Meta),
        (Server::start_command(with_sasl).expect("larderd starts"), Protocol::Binary),
    ];
    for (server, protocol) in &servers {
        let login = |password: &str| {
            let mut stream = Stream::connect(&address(server), None, TIMEOUT).expect("it listens");
            stream.set_timeout(TIMEOUT).expect("it is a socket");
            let login = Login { user: "ann".into(), password: password.into() };
            login.on(&mut stream, *protocol).map(|()| stream)
        };
        let mut stream = login("password").expect("the password is right");
        match protocol {
            Protocol::Text | Protocol::Meta => expect_service(stream),
            Protocol::Binary => {
                let mut pipeline = Pipeline::new(Protocol::Binary);
                let mut output = Vec::new();
                pipeline.noop(&mut output, ());
                stream.write_all(&output).expect("it reads");
                let mut reply = [0; 24];
                stream.read_exact(&mut reply).expect("it answers");
                let answer = pipeline.receive(&mut &reply[..]);
                assert_eq!(answer, Ok(Some(Event::Done((), Outcome::Ok))));
            }
        }
        let refusal = login("wrong").expect_err("the password is wrong");
        assert!(matches!(refusal, Error::Refused { kind: ErrorKind::Unauthenticated, .. }), "{refusal}");
    }
    let login = Login { user: "ann".into(), password: "secret".into() };
    assert!(!format!("{login:?}").contains("secret"));
}
