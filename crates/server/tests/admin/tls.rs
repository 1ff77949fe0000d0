//! `--admin-tls`: the same, for those who speak TLS and for nobody else.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use larder_conformance::folder::Folder;
use larder_conformance::server::eventually;
use rcgen::generate_simple_self_signed;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::server::{Larderd, Reply, converse};

#[test]
fn with_tls_there_is_no_way_around_it() {
    let folder = Folder::create();
    let (text, certificate) = identity();
    let file = folder.write("server.pem", text);
    let certificates = format!("ssl_chain_cert={}", file.display());
    let server = Larderd::start(&["-Z", "-o", &certificates, "--admin-tls"]);
    let ask = |trusted: &CertificateDer<'static>| metrics(&server, trusted).ok();
    let reply = ask(&certificate).expect("it is trusted");
    assert_eq!(reply.status, 200);
    assert!(reply.body.contains("\nmemcached_up 1\n"));
    assert_eq!(server.get("/metrics").status, 0);

    // New certificates are for new connections, as at the doors of clients.
    let (text, new_certificate) = identity();
    assert!(ask(&new_certificate).is_none());
    folder.write("server.pem", text);
    server.reload();
    eventually(|| ask(&new_certificate).is_some_and(|reply| reply.status == 200));
    assert!(ask(&certificate).is_none());
}

/// A certificate of `localhost`, as a file with it and its key has it, and as it goes over the wire.
pub(crate) fn identity() -> (String, CertificateDer<'static>) {
    let identity = generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    (identity.cert.pem() + &identity.signing_key.serialize_pem(), identity.cert.der().clone())
}

/// Errors: the certificate that is shown is not the one that is trusted.
fn metrics(server: &Larderd, trusted: &CertificateDer<'static>) -> io::Result<Reply> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("it is a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = TcpStream::connect(server.admin).expect("larderd listens");
    while client.is_handshaking() {
        client.complete_io(&mut stream)?;
    }
    let mut stream = StreamOwned::new(client, stream);
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    Ok(converse(&mut stream, request))
}
