//! Messages on a stream: four bytes of length, big-endian, the proof, and JSON.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::token::{Bytes32, Numbers, PROOF_BYTES, Side, Token, draw};
use crate::Error;

/// What this end says.
#[derive(Debug)]
pub(super) struct Sender {
    stream: TcpStream,
    key: Token,
    sequence: u64,
}

/// What the other end says.
#[derive(Debug)]
pub(super) struct Receiver {
    stream: TcpStream,
    key: Token,
    sequence: u64,
    message_bytes_max: usize,
}

/// Greets the other side; `Err` unless it knows the token. `message_bytes_max` is for what it says after that.
pub(super) fn greet(
    mut stream: TcpStream,
    side: Side,
    token: &Token,
    message_bytes_max: usize,
) -> Result<(Sender, Receiver), Error> {
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let numbers = match side {
        Side::Agent => greet_as_agent(&mut stream, token)?,
        Side::Collector => greet_as_collector(&mut stream, token)?,
    };
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let sender = Sender { stream: stream.try_clone()?, key: token.key(side, &numbers), sequence: 0 };
    let key = token.key(side.other(), &numbers);
    Ok((sender, Receiver { stream, key, sequence: 0, message_bytes_max }))
}

fn greet_as_agent(stream: &mut TcpStream, token: &Token) -> Result<Numbers, Error> {
    let agent = draw()?;
    stream.write_all(GREETING)?;
    stream.write_all(&agent)?;
    let collector = read_32(stream)?;
    let proof = read_32(stream)?;
    let numbers = Numbers { agent, collector };
    if !token.is_proof(&proof, Side::Collector, &numbers) {
        return Err("has another token".into());
    }
    stream.write_all(&token.proof(Side::Agent, &numbers))?;
    Ok(numbers)
}

fn greet_as_collector(stream: &mut TcpStream, token: &Token) -> Result<Numbers, Error> {
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).map_err(|error| format!("it says nothing: {error}"))?;
    if greeting != *GREETING {
        return Err("it is no agent of this version of larder".into());
    }
    let agent = read_32(stream)?;
    let numbers = Numbers { agent, collector: draw()? };
    stream.write_all(&numbers.collector)?;
    stream.write_all(&token.proof(Side::Collector, &numbers))?;
    // An agent hangs up on who has another token.
    let proof = read_32(stream).map_err(|_| "it does not accept the token")?;
    if !token.is_proof(&proof, Side::Agent, &numbers) {
        return Err("it has another token".into());
    }
    Ok(numbers)
}

fn read_32(stream: &mut TcpStream) -> io::Result<Bytes32> {
    let mut bytes = [0; PROOF_BYTES];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Sender {
    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).map_err(|_| "a message is too long to be sent")?;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + text.len());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&self.key.seal(self.sequence, &text));
        bytes.extend_from_slice(&text);
        self.sequence += 1;
        Ok(self.stream.write_all(&bytes)?)
    }

    /// Ends what this end says, and takes in for a moment what the other still says: closing with something unread
    /// would make the system throw away what was just sent.
    pub(super) fn hang_up_gently(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(LINGER));
        let mut rest = Read::take(&self.stream, LINGER_BYTES_MAX);
        let _ = io::copy(&mut rest, &mut io::sink());
    }

    /// Makes both ends see the end of the stream.
    pub(super) fn hang_up(&self) {
        // It may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Receiver {
    /// Waits for a message. Errors: the other end is gone, or silent for [`SILENCE_MAX`]; the message is longer than
    /// what is accepted, proven wrongly, or none that is known.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head).map_err(explain)?;
        let ([a, b, c, d], seal) = head.split_first_chunk().unwrap_or_else(|| unreachable!());
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        if length > self.message_bytes_max {
            return Err(format!(
                "a message of {length} bytes: at most {} are accepted",
                self.message_bytes_max
            )
            .into());
        }
        let mut text = vec![0; length];
        self.stream.read_exact(&mut text).map_err(explain)?;
        if !self.key.is_seal(seal, self.sequence, &text) {
            return Err("a message was changed on its way".into());
        }
        self.sequence += 1;
        serde_json::from_slice(&text).map_err(|error| format!("no message that is known: {error}").into())
    }
}

fn explain(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => "closed the connection".into(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("silent for {SILENCE_MAX:?}").into(),
        _ => error.into(),
    }
}

/// The first bytes of an agent: what it is, and the version of these messages.
const GREETING: &[u8; 22] = b"larder bench agent 1\r\n";
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: u64 = 16 << 20;
const HEAD_BYTES: usize = 4 + PROOF_BYTES;
/// How long an unknown end may take to prove itself.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Each end says something every [`BEAT_EVERY`], so one that says nothing for so long is gone.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(20);
/// See [`SILENCE_MAX`].
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(2);
