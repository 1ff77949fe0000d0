//! Every way into a server.

use std::time::Duration;

use larder_client::codec::ErrorKind;
use larder_client::{Address, Error, Login, Protocol, Tls};
use larder_conformance::folder::Folder;
use larder_conformance::server::{Server, any, command, larderd};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::servers::{MINUTE, PROTOCOLS, address, patient, start_each, start_larderd};

const WELL: &str = "all is well";

#[tokio::test]
async fn a_host_may_be_a_name() {
    for server in start_each(&[]) {
        let by_name =
            format!("localhost:{}", server.address().port()).parse::<Address>().expect("an address");
        let client = patient(Protocol::Meta).server(by_name).build();
        client.set("a", "x", MINUTE).await.expect(WELL);
        assert!(client.get("a").await.expect(WELL).is_some());
    }
}

#[tokio::test]
async fn unix_sockets_lead_to_servers() {
    let folder = Folder::create();
    for (name, program) in [("larderd", larderd()), ("any", any())] {
        let path = folder.file(name);
        let mut server = std::process::Command::new(program.expect("it builds"))
            .args(["-u", "nobody", "-a", "777", "-s"])
            .arg(&path)
            .spawn()
            .expect("it starts");
        let address = path.display().to_string().parse::<Address>().expect("an address");
        let client = patient(Protocol::Meta).server(address).build();
        // A server on a unix socket names no port that could be waited for.
        let mut stored = Err(Error::NoServers);
        for _ in 0..6000 {
            stored = client.set("a", "x", MINUTE).await;
            match &stored {
                Err(Error::Connect(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
                _ => break,
            }
        }
        stored.expect(WELL);
        assert!(client.get("a").await.expect(WELL).is_some());
        server.kill().expect("it runs");
        server.wait().expect("it ends");
    }
}

#[tokio::test]
async fn tls_trusts_whom_it_should() {
    let folder = Folder::create();
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().expect("a key");
    let ca = params.self_signed(&ca_key).expect("a certificate");
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["cache.example".to_owned()]).expect("a name");
    let identity = params.signed_by(&key, &issuer).expect("a certificate").pem() + &key.serialize_pem();
    let ca_file = folder.write("ca", ca.pem());
    let chain = format!("ssl_chain_cert={}", folder.write("server", identity).display());
    let server = start_larderd(&["-Z", "-o", &chain]);

    let trusting = || Tls::trusting(&ca_file).expect("it is a certificate");
    let named = |name| trusting().server_name(name).expect("it is a name").anonymous();
    for protocol in PROTOCOLS {
        let client = patient(protocol).server(address(&server)).tls(named("cache.example")).build();
        // More than a record, and more than the system takes at once.
        let large: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
        client.set("large", &large[..], MINUTE).await.expect(WELL);
        assert_eq!(client.get("large").await.expect(WELL).map(|item| item.value), Some(large));
        client.noreply().set("a", "x", MINUTE).await.expect(WELL);
        let keys: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
        for stored in client.set_many(keys.iter().map(|key| (key, &key[..])), MINUTE).await {
            stored.expect(WELL);
        }
        let found = client.get_many(&keys).collect().await;
        assert!(
            found
                .items
                .iter()
                .zip(&keys)
                .all(|(item, key)| { item.as_ref().is_some_and(|item| item.value == key.as_bytes()) })
        );
    }
    for wrong in [trusting().anonymous(), named("other.example")] {
        let client = patient(Protocol::Meta).server(address(&server)).tls(wrong).build();
        let error = client.get("a").await.expect_err("the certificate is for another name");
        assert!(matches!(&error, Error::Connect(_)) && error.to_string().contains("certificate"), "{error}");
    }
    // A client without TLS, whose request is no handshake.
    let client = patient(Protocol::Meta).server(address(&server)).build();
    assert!(client.get("a").await.is_err());
}

#[tokio::test]
async fn passwords_are_asked_for_in_every_protocol() {
    let folder = Folder::create();
    let file = folder.write("passwords", "ann:password\n");
    let file = file.to_str().expect("it is text");
    let mut with_sasl = command(&larderd().expect("it builds"));
    with_sasl.arg("-S").env("MEMCACHED_SASL_PWDB", file);
    let sasl = Server::start_command(with_sasl).expect("larderd starts");
    let mut servers = vec![(sasl, Protocol::Binary)];
    servers.extend(start_each(&["-Y", file]).into_iter().map(|server| (server, Protocol::Text)));
    servers.extend(start_each(&["-Y", file]).into_iter().map(|server| (server, Protocol::Meta)));
    for (server, protocol) in &servers {
        let login = |password: &str| {
            let login = Login { user: "ann".into(), password: password.into() };
            patient(*protocol).server(address(server)).login(login).build()
        };
        let client = login("password");
        client.set("a", "x", MINUTE).await.expect(WELL);
        assert!(client.get("a").await.expect(WELL).is_some());
        let refusal = login("wrong").set("a", "y", MINUTE).await.expect_err("the password is wrong");
        assert!(matches!(refusal, Error::Refused { kind: ErrorKind::Unauthenticated, .. }), "{refusal}");
        let refusal = patient(*protocol).server(address(server)).build().get("a").await;
        assert!(
            matches!(refusal, Err(Error::Refused { kind: ErrorKind::Unauthenticated, .. })),
            "{refusal:?}"
        );
        assert_eq!(client.get("a").await.expect(WELL).map(|item| item.value), Some(b"x".to_vec()));
    }
}
