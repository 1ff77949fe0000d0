//! A TLS client: rustls's, over a blocking socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use crate::authority::{Authority, Identity};

pub(crate) struct Client(StreamOwned<ClientConnection, TcpStream>);

/// What clients are to trust and to show. Connections of one configuration resume each other's sessions.
pub(crate) fn config(
    authority: &Authority,
    identity: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions that exist")
        .with_root_certificates(roots);
    Arc::new(match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain(), identity.key())
            .expect("a certificate and its key"),
    })
}

/// A client that offers so many protocols that its first message is a little longer than `bytes`.
pub(crate) fn long_hello(authority: &Authority, bytes: usize) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(&config(authority, None, &[&TLS13, &TLS12]));
    config.alpn_protocols = vec![vec![b'p'; 255]; bytes / 256];
    Arc::new(config)
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Self(StreamOwned::new(tls, socket)))
    }

    /// Sends `request`, expects exactly `reply`. Errors: what the socket or TLS says.
    pub(crate) fn try_ask(&mut self, request: &[u8], reply: &[u8]) -> io::Result<()> {
        self.0.write_all(request)?;
        self.0.flush()?;
        self.expect(reply)
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, request: &[u8], reply: &[u8]) {
        self.try_ask(request, reply).expect("the server answers");
    }

    pub(crate) fn expect(&mut self, reply: &[u8]) -> io::Result<()> {
        let mut got = vec![0; reply.len()];
        self.0.read_exact(&mut got)?;
        assert!(got == reply, "{:?}", String::from_utf8_lossy(&got[..got.len().min(200)]));
        Ok(())
    }

    /// Sends without waiting.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
        self.0.flush().expect("the server reads");
    }

    /// Reads to the end, which has to be a proper one: close_notify, not just the end of the socket.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut got = Vec::new();
        self.0.read_to_end(&mut got).expect("the server says goodbye");
        got
    }

    /// Sends with new keys from now on, and asks the server to do so too.
    pub(crate) fn change_keys(&mut self) {
        self.0.conn.refresh_traffic_keys().expect("this is TLS 1.3");
    }

    /// Says that it will send no more. Its socket stays open.
    pub(crate) fn end(&mut self) {
        self.0.conn.send_close_notify();
        self.0.flush().expect("the server reads");
    }

    /// Puts each part into a record of its own, and gives all bytes of all records. The handshake has to be over.
    pub(crate) fn records(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        let mut records = Vec::new();
        for part in parts {
            self.0.conn.writer().write_all(part).expect("there is room");
            while self.0.conn.wants_write() {
                self.0.conn.write_tls(&mut records).expect("a Vec takes all");
            }
        }
        records
    }

    /// The socket, for bytes below TLS.
    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        &mut self.0.sock
    }

    /// The value of a line of `stats`.
    pub(crate) fn stat(&mut self, name: &str) -> Option<String> {
        let lines = self.stats("stats\r\n");
        let value = lines.iter().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        value.map(str::to_owned)
    }

    /// The lines of an answer that ends with END.
    pub(crate) fn stats(&mut self, request: &str) -> Vec<String> {
        self.send(request.as_bytes());
        let mut got = Vec::new();
        let mut part = [0; 4096];
        while !got.ends_with(b"END\r\n") {
            let n = self.0.read(&mut part).expect("the server answers");
            assert_ne!(n, 0, "closed after {:?}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&part[..n]);
        }
        String::from_utf8_lossy(&got).lines().map(str::to_owned).collect()
    }

    /// Of a connection that has asked something.
    pub(crate) fn was_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn cipher(&self) -> Option<CipherSuite> {
        self.0.conn.negotiated_cipher_suite().map(|suite| suite.suite())
    }

    pub(crate) fn server_certificate(&self) -> Option<Vec<u8>> {
        self.0.conn.peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }
}
