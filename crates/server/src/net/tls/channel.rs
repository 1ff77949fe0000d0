//! The TLS of one connection.

use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustls::HandshakeKind;
use rustls::server::{ServerConfig, ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeTlsData, UnbufferedStatus};

use crate::conn::buffer_budget::{BufferBudget, BufferCharge};
use crate::conn::session::CloseReason;
use crate::heap;
use crate::net::socket::{self, ROOM_BYTES_MIN, Received};
use crate::observe::counters::Counters;

/// A connection's keys, and the bytes that it keeps between two events.
pub(crate) struct Channel {
    tls: UnbufferedServerConnection,
    /// The beginning of a record or of a handshake message: at most [`INCOMING_BYTES_MAX`].
    incoming: Vec<u8>,
    /// For `incoming`.
    charge: BufferCharge,
    buffers: Arc<BufferBudget>,
    /// Records that the socket did not take.
    outgoing: Vec<u8>,
    /// How many bytes of those the socket took.
    sent: usize,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    Established,
    /// The client will send no more.
    Ended,
    /// Not usable any more.
    Failed,
}

/// What a worker lends to the channel that it is serving.
pub(crate) struct Buffers {
    /// Records, as received or to be sent.
    records: Vec<u8>,
    /// The plain text of one record, where it has to be gathered from parts.
    text: Vec<u8>,
}

impl Buffers {
    /// The buffers of a worker; empty without TLS.
    pub(crate) fn new(is_needed: bool) -> Self {
        let bytes = |bytes| if is_needed { vec![0; bytes] } else { Vec::new() };
        Self { records: bytes(RECORDS_MAX * RECORD_BYTES_MAX), text: bytes(TEXT_BYTES_MAX) }
    }
}

impl Channel {
    /// A new channel. Errors: none that a client could cause.
    pub(crate) fn new(context: Arc<ServerConfig>, buffers: Arc<BufferBudget>) -> Result<Self, rustls::Error> {
        Ok(Self {
            tls: UnbufferedServerConnection::new(context)?,
            incoming: Vec::new(),
            charge: BufferCharge::default(),
            buffers,
            outgoing: Vec::new(),
            sent: 0,
            phase: Phase::Handshake,
        })
    }

    /// The client will send no more, and everything that it sent was handed out.
    pub(crate) fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// True if there are records that the socket did not take.
    pub(crate) fn is_holding(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Reads once and decrypts whole records into `plain`, which has at least [`ROOM_BYTES_MIN`] bytes; or continues
    /// the handshake.
    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        buffers: &mut Buffers,
        plain: &mut [u8],
        counters: &Counters,
    ) -> Received {
        if self.is_ended() {
            return Received::End(CloseReason::Normal);
        }
        let received = if self.incoming.len() < RECORD_BYTES_MAX {
            self.receive_records(fd, buffers, plain)
        } else {
            self.receive_message(fd, buffers, plain)
        };
        let Opened { plain_bytes, is_last, .. } = match received {
            Ok(opened) => opened,
            Err(Stop::Socket(Received::End(_))) if self.phase == Phase::Handshake => {
                return self.fail(fd, counters);
            }
            Err(Stop::Socket(received)) => return received,
            Err(Stop::Refused) => return self.fail(fd, counters),
        };
        if self.phase == Phase::Handshake && !self.tls.is_handshaking() {
            self.phase = Phase::Established;
            if self.tls.handshake_kind() != Some(HandshakeKind::Resumed) {
                counters.ssl_new_sessions.add(1);
            }
        }
        if is_last {
            self.phase = Phase::Ended;
        }
        match self.flush(fd) {
            Err(_) => Received::End(CloseReason::Error),
            Ok(_) if plain_bytes > 0 => Received::Bytes(plain_bytes),
            Ok(_) if is_last => Received::End(CloseReason::Normal),
            Ok(_) => Received::Nothing,
        }
    }

    /// Reads into the worker's buffer, behind the beginning of a record.
    fn receive_records(
        &mut self,
        fd: BorrowedFd<'_>,
        buffers: &mut Buffers,
        plain: &mut [u8],
    ) -> Result<Opened, Stop> {
        // Plain text is shorter than its records, so what fits there as records fits as text.
        let room = buffers.records.len().min(plain.len());
        let (head, rest) =
            buffers.records[..room].split_at_mut_checked(self.incoming.len()).ok_or(Stop::Refused)?;
        head.copy_from_slice(&self.incoming);
        let received = head.len() + read(fd, rest)?;
        let records = &mut buffers.records[..received];
        let opened = self.open(records, plain).map_err(|_| Stop::Refused)?;
        self.incoming = heap::copy(&records[opened.records_bytes..]).ok_or(Stop::Refused)?;
        self.charge_incoming()?;
        Ok(opened)
    }

    /// Reads behind the beginning of a handshake message that is longer than a record, into a buffer of the
    /// connection's own: the worker's may have little room left, and copying the message there and back would cost the
    /// server more than a packet costs the client.
    fn receive_message(
        &mut self,
        fd: BorrowedFd<'_>,
        buffers: &mut Buffers,
        plain: &mut [u8],
    ) -> Result<Opened, Stop> {
        // Plain text may follow, of the record whose beginning is here and of what is read now.
        let room_max = INCOMING_BYTES_MAX.saturating_sub(self.incoming.len());
        let room = plain.len().saturating_sub(TEXT_BYTES_MAX).min(room_max);
        let records =
            buffers.records.get_mut(..room).filter(|records| !records.is_empty()).ok_or(Stop::Refused)?;
        let received = read(fd, records)?;
        let mut incoming = mem::take(&mut self.incoming);
        let wanted_bytes = incoming.len() + received;
        if wanted_bytes > incoming.capacity() {
            let bytes = wanted_bytes.max((2 * incoming.len()).min(INCOMING_BYTES_MAX));
            if !self.charge.resize(&self.buffers, bytes) || !heap::reserve_exact(&mut incoming, bytes) {
                return Err(Stop::Refused);
            }
        }
        incoming.extend_from_slice(&records[..received]);
        let opened = self.open(&mut incoming, plain).map_err(|_| Stop::Refused)?;
        // Frees what was consumed.
        self.incoming = match opened.records_bytes {
            0 => incoming,
            bytes => heap::copy(&incoming[bytes..]).ok_or(Stop::Refused)?,
        };
        self.charge_incoming()?;
        Ok(opened)
    }

    /// Charges what is kept. The beginning of one record is always kept; a message of several has to fit.
    fn charge_incoming(&mut self) -> Result<(), Stop> {
        let bytes = self.incoming.capacity();
        if bytes <= RECORD_BYTES_MAX {
            self.charge.force(&self.buffers, bytes);
            return Ok(());
        }
        self.charge.resize(&self.buffers, bytes).then_some(()).ok_or(Stop::Refused)
    }

    /// Encrypts from the head of `slices` as much as the buffers have room for, and sends it. Returns how many bytes of
    /// `slices` that was; records that the socket does not take are kept. 0: earlier records are still kept.
    pub(crate) fn write(
        &mut self,
        fd: BorrowedFd<'_>,
        buffers: &mut Buffers,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        self.settle()?;
        if !self.flush(fd)? {
            return Ok(0);
        }
        let UnbufferedStatus { state, .. } = self.tls.process_tls_records(&mut self.incoming);
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = state else {
            return Err(io::Error::other("TLS: nothing can be sent"));
        };
        let Buffers { records, text } = buffers;
        let (mut taken, mut sealed) = (0, 0);
        while records.len() - sealed >= RECORD_BYTES_MAX {
            let text = head(slices, taken, text);
            if text.is_empty() {
                break;
            }
            sealed += traffic.encrypt(text, &mut records[sealed..]).map_err(io::Error::other)?;
            taken += text.len();
        }
        let sent = socket::write(fd, &[IoSlice::new(&records[..sealed])])?;
        if sent < sealed {
            self.outgoing = heap::copy(&records[sent..sealed]).ok_or(io::ErrorKind::OutOfMemory)?;
        }
        Ok(taken)
    }

    /// Sends the records that are kept. True once there are none.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        while self.sent < self.outgoing.len() {
            match socket::write(fd, &[IoSlice::new(&self.outgoing[self.sent..])])? {
                0 => return Ok(false),
                n => self.sent += n,
            }
        }
        self.outgoing = Vec::new();
        self.sent = 0;
        Ok(true)
    }

    /// Sends close_notify, if the socket takes it at once.
    pub(crate) fn close_notify(&mut self, fd: BorrowedFd<'_>) {
        let is_up = matches!(self.phase, Phase::Established | Phase::Ended);
        if !is_up || self.settle().is_err() || !self.flush(fd).is_ok_and(|is_all| is_all) {
            return;
        }
        let UnbufferedStatus { state, .. } = self.tls.process_tls_records(&mut self.incoming);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
            let mut alert = [0; ALERT_BYTES_MAX];
            if let Ok(n) = traffic.queue_close_notify(&mut alert) {
                // An error is ignored: the client has gone.
                let _ = socket::write(fd, &[IoSlice::new(&alert[..n])]);
            }
        }
    }

    /// Decrypts records until no whole one is left. After an error `outgoing` ends with the alert.
    fn open(&mut self, records: &mut [u8], plain: &mut [u8]) -> Result<Opened, rustls::Error> {
        let mut opened = Opened::default();
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(&mut records[opened.records_bytes..]);
            let mut is_done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        let end = opened.plain_bytes + record.payload.len();
                        let place = plain.get_mut(opened.plain_bytes..end);
                        place.ok_or(rustls::Error::DecryptError)?.copy_from_slice(record.payload);
                        opened.plain_bytes = end;
                        discard += record.discard;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => hold(data, &mut self.outgoing)?,
                // `outgoing` is sent before anything else.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => opened.is_last = true,
                Ok(_) => is_done = true,
                Err(error) => {
                    // rustls processes no records while it has something to write.
                    while self.tls.wants_write() {
                        let UnbufferedStatus { state, .. } = self.tls.process_tls_records(&mut []);
                        let Ok(ConnectionState::EncodeTlsData(alert)) = state else { break };
                        hold(alert, &mut self.outgoing)?;
                    }
                    return Err(error);
                }
            }
            opened.records_bytes += discard;
            if is_done {
                return Ok(opened);
            }
        }
    }

    /// Moves what rustls has to send (new keys) to `outgoing`.
    fn settle(&mut self) -> io::Result<()> {
        if self.phase == Phase::Failed {
            return Err(io::Error::other("TLS: failed before"));
        }
        let mut incoming = mem::take(&mut self.incoming);
        match self.open(&mut incoming, &mut []) {
            Ok(opened) => {
                incoming.drain(..opened.records_bytes);
                self.incoming = incoming;
                Ok(())
            }
            Err(error) => {
                self.phase = Phase::Failed;
                Err(io::Error::other(error))
            }
        }
    }

    /// Counts a failure, and sends the client an alert if the socket takes it at once.
    fn fail(&mut self, fd: BorrowedFd<'_>, counters: &Counters) -> Received {
        if self.phase == Phase::Handshake {
            counters.ssl_handshake_errors.add(1);
        } else {
            counters.ssl_proto_errors.add(1);
        }
        self.phase = Phase::Failed;
        let _ = self.flush(fd);
        Received::End(CloseReason::Error)
    }
}

/// The result of decrypting records.
#[derive(Default)]
struct Opened {
    /// Bytes of records that were consumed.
    records_bytes: usize,
    /// Bytes of plain text in them.
    plain_bytes: usize,
    /// The client has announced that these are the last.
    is_last: bool,
}

/// Why nothing was read.
enum Stop {
    /// The socket has nothing, at the moment or for good.
    Socket(Received),
    /// The channel is to be closed.
    Refused,
}

/// Reads once.
fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Stop> {
    match socket::read(fd, buffer) {
        Received::Bytes(n) => Ok(n),
        other => Err(Stop::Socket(other)),
    }
}

/// Appends a record of TLS itself to the output.
fn hold(
    mut data: EncodeTlsData<'_, ServerConnectionData>,
    outgoing: &mut Vec<u8>,
) -> Result<(), rustls::Error> {
    use rustls::unbuffered::{EncodeError, InsufficientSizeError};
    let from = outgoing.len();
    // This call fails, and tells the size.
    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = data.encode(&mut [])
    {
        outgoing.resize(from + required_size, 0);
        data.encode(&mut outgoing[from..]).map_err(|error| rustls::Error::General(error.to_string()))?;
    }
    Ok(())
}

/// The text of one record: what follows the first `skip` bytes of the slices. Borrowed where it lies if that is enough
/// for a record, else gathered.
fn head<'a>(slices: &'a [IoSlice<'_>], mut skip: usize, gathered: &'a mut [u8]) -> &'a [u8] {
    let mut filled = 0;
    for (index, slice) in slices.iter().enumerate() {
        let part = &slice[skip.min(slice.len())..];
        skip -= slice.len() - part.len();
        let n = part.len().min(TEXT_BYTES_MAX - filled);
        if filled == 0 && (n == TEXT_BYTES_MAX || index + 1 == slices.len()) {
            return &part[..n];
        }
        gathered[filled..filled + n].copy_from_slice(&part[..n]);
        filled += n;
    }
    &gathered[..filled]
}

/// Plain text in one record at most (RFC 8446, section 5.1).
const TEXT_BYTES_MAX: usize = 16 << 10;
/// The largest record: text, header and encryption overhead (RFC 8446, section 5.2: at most 256 bytes).
const RECORD_BYTES_MAX: usize = TEXT_BYTES_MAX + 5 + 256;
/// The longest beginning of a handshake message that is kept, including the headers of its records. rustls refuses
/// messages of more than 65,535 bytes (OpenSSL: 131,396 of a ClientHello, 102,400 of certificates), so this is enough
/// for encrypted records of 22 bytes of text and more; no honest client uses shorter ones for so long a message.
const INCOMING_BYTES_MAX: usize = 128 << 10;
/// There is always room for more than what is kept, and for the text of two records.
const _: () = assert!(ROOM_BYTES_MIN > RECORD_BYTES_MAX && ROOM_BYTES_MIN >= 2 * TEXT_BYTES_MAX);
/// Records that are sent at once.
const RECORDS_MAX: usize = 4;
/// An alert is two bytes of text.
const ALERT_BYTES_MAX: usize = 5 + 2 + 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_gathered_only_where_it_has_to_be() {
        let (small, large) = (vec![b's'; 10], vec![b'l'; 20 << 10]);
        let slices = [IoSlice::new(&small), IoSlice::new(&large), IoSlice::new(&small)];
        let mut gathered = vec![0; TEXT_BYTES_MAX];
        let first = head(&slices, 0, &mut gathered);
        assert_eq!((first.len(), &first[..11]), (TEXT_BYTES_MAX, b"ssssssssssl".as_slice()));
        let second = head(&slices, TEXT_BYTES_MAX, &mut gathered);
        assert_eq!(second.len(), 10 + (20 << 10) + 10 - TEXT_BYTES_MAX);
        assert_eq!(second.last(), Some(&b's'));
        let within = head(&slices, 10, &mut gathered);
        assert_eq!(within.as_ptr(), large.as_ptr());
        assert!(head(&slices, 20 + (20 << 10), &mut gathered).is_empty());
    }
}
