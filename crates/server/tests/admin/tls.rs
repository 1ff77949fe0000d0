//! `--admin-tls`: the same, for those who speak TLS and for nobody else.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::generate_simple_self_signed;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::server::{Larderd, converse, temporary};

#[test]
fn with_tls_there_is_no_way_around_it() {
    let identity = generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let file = temporary("pem");
    fs::write(&file, identity.cert.pem() + &identity.signing_key.serialize_pem()).expect("a file");
    let certificates = format!("ssl_chain_cert={}", file.display());
    let server = Larderd::start(&["-Z", "-o", &certificates, "--admin-tls"]);
    let _ = fs::remove_file(file);

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
    let stream = TcpStream::connect(server.admin).expect("larderd listens");
    let mut stream = StreamOwned::new(client, stream);
    let reply =
        converse(&mut stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(reply.status, 200);
    assert!(reply.body.contains("\nmemcached_up 1\n"));

    assert_eq!(server.get("/metrics").status, 0);
}
