//! `--http-tls`.

use std::io::BufReader;
use std::net::TcpStream;
use std::sync::Arc;

use larder_conformance::folder::Folder;
use rcgen::generate_simple_self_signed;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::server::{Client, Larderd, request};

#[test]
fn with_tls_there_is_no_way_around_it() {
    let folder = Folder::create();
    let identity = generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let file = folder.write("server.pem", identity.cert.pem() + &identity.signing_key.serialize_pem());
    let certificates = format!("ssl_chain_cert={}", file.display());
    let server = Larderd::start(&["-u", "root", "-Z", "-o", &certificates, "--http-tls"]);

    let mut roots = RootCertStore::empty();
    roots.add(identity.cert.der().clone()).expect("it is a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let stream = StreamOwned::new(client, TcpStream::connect(server.http).expect("larderd listens"));
    let mut client = Client(BufReader::new(stream));
    let value = "v".repeat(300_000);
    client.send(&request("PUT /v1/items/a", "", &value));
    assert_eq!(client.receive().expect("an answer").status, 201);
    client.send(&request("GET /v1/items/a", "", ""));
    assert_eq!(client.receive().expect("an answer").content, value.into_bytes());

    let mut plain = server.connect();
    plain.send(&request("GET /v1/items/a", "", ""));
    assert!(plain.receive().is_none());
}
