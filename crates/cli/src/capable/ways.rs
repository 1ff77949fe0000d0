//! UDP, TLS, logins, and the greatest size of a value.

use std::io::{Read as _, Write as _};
use std::net::{ToSocketAddrs as _, UdpSocket};

use larder_client::codec::{DatagramPipeline, Event, Outcome, Protocol};
use larder_client::{Address, Error, Stream, Tls};

use super::{Feature, Finding, Subject};
use crate::Failure;
use crate::wire::Wire;

pub(super) fn features() -> Vec<Feature> {
    let mut features = vec![
        Feature::new("ways", "UDP", udp),
        Feature::new("ways", "TLS", tls),
        Feature::new("ways", "without a login", without_login),
        Feature::new("ways", "SASL (binary)", sasl),
    ];
    for (name, value_bytes) in VALUES {
        features.push(Feature::new("large values", name, move |subject| large(subject, value_bytes)));
    }
    features
}

/// Around memcached's default for `-I`, and its largest.
const VALUES: [(&str, usize); 4] =
    [("512 KiB", 512 << 10), ("1 MiB", 1 << 20), ("8 MiB", 8 << 20), ("64 MiB", 64 << 20)];

/// The port is the TCP port.
fn udp(subject: &Subject) -> Result<Finding, Failure> {
    let Address::Inet { host, port } = &subject.address else { return Ok(Finding::no("a unix socket")) };
    let refuse = |error: std::io::Error| Failure::of_io(&subject.address, &error);
    let to = (&host[..], *port).to_socket_addrs().map_err(refuse)?.next();
    let Some(to) = to else { return Ok(Finding::no("the host has no address")) };
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).map_err(refuse)?;
    socket.connect(to).map_err(refuse)?;
    socket.set_read_timeout(Some(subject.patience())).map_err(refuse)?;
    let mut pipeline = DatagramPipeline::new(Protocol::Text);
    let mut datagram = Vec::new();
    pipeline.request(&mut datagram, |pipeline, output| pipeline.version(output, ()));
    socket.send(&datagram).map_err(refuse)?;
    let mut buffer = [0; 2000];
    let bytes = socket.recv(&mut buffer).map_err(refuse)?;
    let mut can = false;
    let received = pipeline.receive(&buffer[..bytes], |_, event| {
        can |= matches!(event, Event::Done((), Outcome::Version(_)));
    });
    Ok(if received.is_ok() && can { Finding::yes("") } else { Finding::no("the answer is wrong") })
}

fn tls(subject: &Subject) -> Result<Finding, Failure> {
    let tls = Tls::accepting_anything().map(larder_client::stream::TlsBuilder::anonymous);
    let tls = tls.map_err(|error| Failure::Failed(error.to_string()))?;
    let stream = Stream::connect(&subject.address, Some(&tls), Some(subject.patience()));
    stream.map_err(|error| Failure::of(&subject.address, &Error::Connect(error)))?;
    Ok(Finding::yes(""))
}

fn without_login(subject: &Subject) -> Result<Finding, Failure> {
    let mut wire = Wire::open_silently(&subject.target, &subject.address)?;
    wire.set_timeout(subject.patience())?;
    wire.send(b"get larder-capable-nokey\r\n")?;
    let mut line = Vec::new();
    wire.line(&mut line)?;
    let note = String::from_utf8_lossy(&line).into_owned();
    Ok(if line == b"END" { Finding::yes("") } else { Finding::no(note) })
}

/// Requests the mechanisms: memcached, doc/protocol-binary.txt and its wiki, "SASLAuthProtocol", opcode 0x20.
fn sasl(subject: &Subject) -> Result<Finding, Failure> {
    const HEADER_BYTES: usize = 24;
    let tls = subject.target.tls()?;
    let failed = |error| Failure::of_io(&subject.address, &error);
    let timeout = Some(subject.patience());
    let mut stream = Stream::connect(&subject.address, tls.as_ref(), timeout).map_err(failed)?;
    stream.set_timeout(timeout).map_err(failed)?;
    let mut request = [0; HEADER_BYTES];
    request[..2].copy_from_slice(&[0x80, 0x20]);
    stream.write_all(&request).and_then(|()| stream.flush()).map_err(failed)?;
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).map_err(failed)?;
    let mut body = vec![0; usize::from(u16::from_be_bytes([header[10], header[11]]))];
    stream.read_exact(&mut body).map_err(failed)?;
    let note = String::from_utf8_lossy(&body).into_owned();
    let is_success = header[0] == 0x81 && header[6..8] == [0, 0];
    Ok(if is_success { Finding::yes(note) } else { Finding::no(note) })
}

fn large(subject: &Subject, value_bytes: usize) -> Result<Finding, Failure> {
    let mut client = subject.target.client()?;
    let key = subject.key();
    let about = |error: Error| Failure::of(&subject.address, &error);
    let value = vec![b'x'; value_bytes];
    let found = client.set(&key, &value, 60).and_then(|()| client.get(&key));
    subject.forget(&key);
    Ok(match found.map_err(about)? {
        Some(item) if item.value == value => Finding::yes(""),
        Some(_) => Finding::no("another value came back"),
        None => Finding::no("it was stored and has gone"),
    })
}
