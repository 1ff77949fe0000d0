//! TLS: two clients of one worker. One is honest: whatever the other sends, and however the bytes are split, the text
//! that it sends and receives is complete. The other sends random bytes, or bytes that are changed on their way.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::{env, fs, process};

use larder_server::net::tls::harness::{ReadResult, TlsHarness, WorkerBuffers};
use larder_server::net::tls::{ClientCertificates, Tls, TlsSettings};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// A sequence of steps. The first byte selects the clients, each of the others a step.
pub fn tls(input: &[u8]) {
    let mut script = Script(input);
    let kind = script.byte();
    let mut lent = WorkerBuffers::new();
    let mut honest = Peer::connect(kind & 0x0f);
    let mut hostile = Peer::connect(kind >> 4);
    let mut others_bytes = 0;
    while let Some(step) = script.next() {
        match step % 16 {
            // Any bytes.
            0 => {
                let bytes = usize::from(script.byte());
                hostile.put(script.take(bytes));
            }
            // Its own bytes, as far as any position.
            1 => {
                let bytes = script.short();
                hostile.deliver(bytes);
            }
            // One of its bytes is changed.
            2 => {
                let (at, change) = (script.short(), script.byte());
                if let Some(byte) = hostile.pending.get_mut(at) {
                    *byte ^= change;
                    hostile.is_honest = false;
                }
            }
            // Some of its bytes are missing, or sent twice.
            3 => {
                let (at, bytes) = (script.short(), usize::from(script.byte()));
                let from = at.min(hostile.pending.len());
                hostile.pending.drain(from..(from + bytes).min(hostile.pending.len()));
                hostile.is_honest = false;
            }
            4 => {
                let bytes = script.short().min(hostile.pending.len());
                let twice = hostile.pending[..bytes].to_vec();
                hostile.put(&twice);
            }
            // A record of any kind and length, complete or not.
            5 => {
                let (kind, length, bytes) = (script.byte(), script.short(), script.short());
                let [high, low] = (length as u16).to_be_bytes();
                hostile.put(&[kind, 3, 3, high, low]);
                hostile.put(&vec![script.byte(); bytes]);
            }
            // The beginning of a handshake message, in records of any size.
            6 => {
                let (kind, high, length) = (script.byte(), script.byte() & 1, script.short() as u16);
                let (bytes, record_bytes) = (script.short(), script.short().clamp(1, 1 << 14));
                let [middle, low] = length.to_be_bytes();
                let message = [&[kind, high, middle, low], &vec![0; bytes][..]].concat();
                for part in message.chunks(record_bytes) {
                    hostile.put(&record(part));
                }
            }
            // Single bytes of a handshake message, each received separately.
            7 => {
                for byte in record(&[0]).into_iter().cycle().take(script.byte().into()) {
                    hostile.put(&[byte]);
                    hostile.receive_all(&mut lent, others_bytes);
                }
            }
            8 => hostile.write(script.short()),
            9 => hostile.server_write(&mut lent, script.short()),
            10 => hostile.change_keys(),
            11 => hostile.end(),
            // Another client connects.
            12 => {
                if let Some(harness) = &mut hostile.harness {
                    harness.close_notify();
                }
                hostile = Peer::connect(script.byte());
            }
            13 => {
                honest.write(script.short());
                honest.deliver(script.short());
            }
            14 => honest.server_write(&mut lent, script.short()),
            _ => others_bytes = script.short() % (WorkerBuffers::OTHERS_BYTES_MAX + 1),
        }
        for peer in [&mut hostile, &mut honest] {
            peer.receive_all(&mut lent, others_bytes);
        }
        assert!(honest.harness.is_some(), "the honest client stays connected");
    }
    // All text of the honest client arrives.
    for _ in 0..ROUNDS_MAX {
        honest.deliver(usize::MAX);
        honest.receive_all(&mut lent, others_bytes);
        if honest.is_served() {
            return;
        }
    }
    panic!("the honest client is not served: {} bytes have not arrived", honest.to_server.len());
}

/// The steps that are left; zeros after the end.
struct Script<'i>(&'i [u8]);

impl<'i> Script<'i> {
    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    fn short(&mut self) -> usize {
        u16::from_be_bytes([self.byte(), self.byte()]).into()
    }

    fn take(&mut self, bytes: usize) -> &'i [u8] {
        let (head, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        head
    }
}

/// A client, and the server's end of its connection.
struct Peer {
    client: ClientConnection,
    /// Records that the client has not sent yet.
    pending: Vec<u8>,
    socket: UnixStream,
    /// `None`: closed.
    harness: Option<TlsHarness>,
    /// Text from the client that the server has not received yet.
    to_server: Vec<u8>,
    /// Text from the server that the client has not received yet.
    to_client: Vec<u8>,
    /// The value that the next text is made of.
    next: u8,
    /// None of its bytes was changed.
    is_honest: bool,
    /// The client has sent an alert: close_notify, or a refusal.
    has_sent_alert: bool,
}

impl Peer {
    fn connect(kind: u8) -> Self {
        let world = World::get();
        let (socket, server) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        server.set_nonblocking(true).unwrap();
        let certificates = match kind >> 2 & 3 {
            0 | 1 => ClientCertificates::Ignored,
            2 => ClientCertificates::Requested,
            _ => ClientCertificates::Required,
        };
        let config = &world.configs[usize::from(kind & 3)];
        let name = ServerName::try_from("localhost").unwrap();
        Self {
            client: ClientConnection::new(Arc::clone(config), name).unwrap(),
            pending: Vec::new(),
            socket,
            harness: Some(TlsHarness::new(&world.tls, certificates, server.into()).unwrap()),
            to_server: Vec::new(),
            to_client: Vec::new(),
            next: 0,
            is_honest: true,
            has_sent_alert: false,
        }
    }

    /// Sends bytes that the client did not make.
    fn put(&mut self, bytes: &[u8]) {
        self.is_honest = false;
        // Bytes that do not fit are lost.
        let _ = self.socket.write(bytes);
    }

    /// Sends pending records, up to so many bytes.
    fn deliver(&mut self, bytes: usize) {
        self.collect();
        let bytes = bytes.min(self.pending.len());
        match self.socket.write(&self.pending[..bytes]) {
            Ok(n) => drop(self.pending.drain(..n)),
            Err(error) => assert!(self.harness.is_none() || error.kind() == ErrorKind::WouldBlock, "{error}"),
        }
    }

    fn collect(&mut self) {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.pending).unwrap();
        }
    }

    fn write(&mut self, bytes: usize) {
        let text = self.text(bytes);
        let taken = self.client.writer().write(&text).unwrap_or(0);
        self.to_server.extend_from_slice(&text[..taken]);
        self.collect();
    }

    /// Text that differs from all text before it.
    fn text(&mut self, bytes: usize) -> Vec<u8> {
        self.next = self.next.wrapping_add(1);
        (0..bytes).map(|at| self.next.wrapping_mul(31).wrapping_add(at as u8)).collect()
    }

    fn change_keys(&mut self) {
        let _ = self.client.refresh_traffic_keys();
        self.collect();
    }

    fn end(&mut self) {
        self.client.send_close_notify();
        self.has_sent_alert = true;
        self.collect();
    }

    /// The server sends text.
    fn server_write(&mut self, lent: &mut WorkerBuffers, bytes: usize) {
        let text = self.text(bytes);
        // A worker sends nothing before the handshake is complete.
        if self.client.is_handshaking()
            || !self.harness.as_mut().is_some_and(|harness| harness.flush().unwrap_or(false))
        {
            return;
        }
        let Some(harness) = &mut self.harness else { return };
        let (head, tail) = text.split_at(bytes / 3);
        if let Ok(taken) = harness.send(lent, &[IoSlice::new(head), IoSlice::new(tail)]) {
            self.to_client.extend_from_slice(&text[..taken]);
        }
    }

    /// Both ends read what has arrived.
    fn receive_all(&mut self, lent: &mut WorkerBuffers, others_bytes: usize) {
        lent.others(others_bytes).fill(OTHERS);
        while let Some(harness) = &mut self.harness {
            if harness.flush().is_err() {
                self.harness = None;
                break;
            }
            match harness.receive(lent, others_bytes) {
                ReadResult::Text(text) => {
                    // The server only gets text that the client has sent.
                    assert!(self.to_server.starts_with(text), "{} bytes that were not sent", text.len());
                    self.to_server.drain(..text.len());
                }
                ReadResult::Nothing => break,
                ReadResult::End => {
                    harness.close_notify();
                    self.harness = None;
                }
            }
        }
        assert!(
            lent.others(others_bytes).iter().all(|byte| *byte == OTHERS),
            "the text of others is changed"
        );
        self.read();
    }

    fn read(&mut self) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(n @ 1..) = self.socket.read(&mut bytes) {
            let mut records = &bytes[..n];
            // A rustls client asserts that it refuses nothing after an alert of its own.
            while !records.is_empty() && (self.is_honest || !self.has_sent_alert) {
                if let Err(error) = self.take(&mut records) {
                    assert!(!self.is_honest || self.harness.is_none(), "the server speaks TLS: {error}");
                    self.has_sent_alert = true;
                    return;
                }
                let mut text = Vec::new();
                let _ = self.client.reader().read_to_end(&mut text);
                assert!(self.to_client.starts_with(&text));
                self.to_client.drain(..text.len());
            }
        }
    }

    fn take(&mut self, records: &mut &[u8]) -> io::Result<()> {
        self.client.read_tls(records)?;
        self.client.process_new_packets().map_err(io::Error::other)?;
        Ok(())
    }

    /// True if all text has arrived at both ends.
    fn is_served(&mut self) -> bool {
        self.collect();
        !self.client.is_handshaking()
            && self.pending.is_empty()
            && self.to_server.is_empty()
            && self.to_client.is_empty()
    }
}

/// Certificates and configurations. Made once.
struct World {
    tls: Tls,
    /// TLS 1.2 and 1.3; both with a long first message and a long chain.
    configs: [Arc<ClientConfig>; 4],
}

impl World {
    fn get() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let authority = params.self_signed(&key).unwrap();
            let issuer = Issuer::new(params, key);
            let sign = |name: &str, purpose| {
                let mut params = CertificateParams::new([name.to_owned()]).unwrap();
                params.extended_key_usages = vec![purpose];
                let key = KeyPair::generate().unwrap();
                (params.signed_by(&key, &issuer).unwrap(), key)
            };
            let (server, server_key) = sign("localhost", ExtendedKeyUsagePurpose::ServerAuth);
            let (client, client_key) = sign("client", ExtendedKeyUsagePurpose::ClientAuth);

            let dir = env::temp_dir().join(format!("larder-fuzz-{}", process::id()));
            fs::create_dir_all(&dir).unwrap();
            let write = |name: &str, content: String| {
                let path = dir.join(name);
                fs::write(&path, content).unwrap();
                Some(path)
            };
            let settings = TlsSettings {
                is_enabled: true,
                chain_file: write("server.pem", server.pem() + &server_key.serialize_pem()),
                ca_file: write("clients.pem", authority.pem()),
                session_cache: true,
                ..TlsSettings::default()
            };
            let tls = Tls::load(&settings).unwrap().unwrap();
            fs::remove_dir_all(&dir).unwrap();

            let long = ballast(&client_key);
            let configs = [(&TLS12, false), (&TLS13, false), (&TLS12, true), (&TLS13, true)];
            let configs = configs.map(|(version, is_long)| {
                let mut roots = RootCertStore::empty();
                roots.add(authority.der().clone()).unwrap();
                let mut chain = vec![client.der().clone()];
                chain.extend(is_long.then(|| long.clone()));
                let key = PrivateKeyDer::Pkcs8(client_key.serialize_der().into());
                let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                    .with_protocol_versions(&[version])
                    .unwrap()
                    .with_root_certificates(roots)
                    .with_client_auth_cert(chain, key)
                    .unwrap();
                if is_long {
                    config.alpn_protocols = vec![vec![b'p'; 255]; 230];
                }
                Arc::new(config)
            });
            Self { tls, configs }
        })
    }
}

/// A certificate of some 60 kB.
fn ballast(key: &KeyPair) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.custom_extensions =
        vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 1], vec![0; 60_000])];
    params.self_signed(key).unwrap().der().clone()
}

/// A record with part of a handshake message.
fn record(part: &[u8]) -> Vec<u8> {
    [&[22, 3, 1], &(part.len() as u16).to_be_bytes()[..], part].concat()
}

/// Text of other connections in the same round.
const OTHERS: u8 = b'o';
/// For a handshake, and for all that may be pending at the end of a script.
const ROUNDS_MAX: usize = 1000;
