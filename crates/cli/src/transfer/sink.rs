//! Servers that items are stored on: each key on its server.

use std::collections::HashMap;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_client::{Address, Client};

use super::receipt::Receipt;
use super::record::Record;
use super::{clock_skew_secs, speaks_meta};
use crate::Failure;
use crate::target::Target;
use crate::ttl::unix_now_secs;
use crate::wire::Wire;

/// Servers that are being filled.
pub(crate) struct Sink {
    target: Target,
    /// Finds the server of a key.
    client: Client,
    mode: Mode,
    endpoints: HashMap<Address, Endpoint>,
    /// Where stored keys are recorded.
    receipt: Option<Receipt>,
    pub counts: Counts,
}

/// What to do with existing keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Overwrite,
    Keep,
}

/// Numbers of items.
#[derive(Default)]
pub(crate) struct Counts {
    pub stored: u64,
    /// Existed already, and were kept.
    pub kept: u64,
    /// Had expired.
    pub expired: u64,
    /// Stored and kept items that expire sooner than recorded, because their time is later than servers can read.
    pub cut: u64,
    /// Items that were refused.
    pub refused: u64,
    /// The server's text for the first of these.
    pub first_refusal: Option<String>,
}

/// A server, and its requests without a reply.
struct Endpoint {
    wire: Wire,
    speaks_meta: bool,
    skew_secs: i64,
    request: Vec<u8>,
    /// Keys of `request`, to name a refused one.
    keys: Vec<Vec<u8>>,
    line: Vec<u8>,
}

impl Sink {
    pub(crate) fn open(target: &Target, mode: Mode) -> Result<Self, Failure> {
        let mut sink = Self {
            target: target.clone(),
            client: target.client()?,
            mode,
            endpoints: HashMap::new(),
            receipt: None,
            counts: Counts::default(),
        };
        // All at once, to fail before anything has been moved.
        for server in target.servers()? {
            sink.endpoints.insert(server.address.clone(), Endpoint::open(&sink.target, &server.address)?);
        }
        Ok(sink)
    }

    /// Records stored keys from now on.
    pub(crate) fn write_receipt(&mut self, receipt: Receipt) {
        self.receipt = Some(receipt);
    }

    /// Takes an item. It is sent later, with others.
    pub(crate) fn store(&mut self, record: &Record) -> Result<(), Failure> {
        let server = self.client.server_of(&record.key);
        let endpoint = server.and_then(|server| self.endpoints.get_mut(&server.address));
        let Some(endpoint) = endpoint else { return Err(Failure::Usage("there is no server".into())) };
        let now_secs = unix_now_secs();
        if record.expires_at_secs != 0 && record.expires_at_secs <= now_secs {
            self.counts.expired += 1;
            return Ok(());
        }
        if endpoint.moment_secs(record) > MOMENT_SECS_MAX {
            self.counts.cut += 1;
        }
        if !endpoint.request(record, self.mode) {
            self.counts
                .refuse(&format!("{}: a key that only the meta protocol can say", endpoint.wire.address()));
            return Ok(());
        }
        if endpoint.keys.len() >= BATCH_RECORDS_MAX || endpoint.request.len() >= BATCH_BYTES_MAX {
            endpoint.send(&mut self.counts, self.receipt.as_mut())?;
        }
        Ok(())
    }

    /// Sends the rest. All items have been answered then.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.endpoints
            .values_mut()
            .try_for_each(|endpoint| endpoint.send(&mut self.counts, self.receipt.as_mut()))
    }

    /// Sends the rest. `is_all`: there is nothing to continue, so the receipt is removed.
    pub(crate) fn finish(mut self, is_all: bool) -> Result<Counts, Failure> {
        self.flush()?;
        self.receipt.filter(|_| is_all).map_or(Ok(()), Receipt::discard)?;
        Ok(self.counts)
    }
}

impl Endpoint {
    fn open(target: &Target, address: &Address) -> Result<Self, Failure> {
        let mut wire = Wire::open(target, address)?;
        Ok(Self {
            speaks_meta: speaks_meta(&mut wire)?,
            skew_secs: clock_skew_secs(target, address)?,
            wire,
            request: Vec::new(),
            keys: Vec::new(),
            line: Vec::new(),
        })
    }

    /// Expiry by the server's clock in seconds; 0 means never.
    fn moment_secs(&self, record: &Record) -> i64 {
        match record.expires_at_secs {
            0 => 0,
            secs => secs.saturating_add(self.skew_secs),
        }
    }

    /// Appends a request; false if this key cannot be requested.
    fn request(&mut self, record: &Record, mode: Mode) -> bool {
        // An absolute time keeps the expiry exact.
        let exptime = self.moment_secs(record).min(MOMENT_SECS_MAX);
        let Record { key, client_flags, value, .. } = record;
        let is_text = key.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
        let request = &mut self.request;
        // Writing to memory does not fail.
        let _ = if is_text {
            request.extend_from_slice(if mode == Mode::Keep { b"add " } else { b"set " });
            request.extend_from_slice(key);
            write!(request, " {client_flags} {exptime} {}\r\n", value.len())
        } else if self.speaks_meta {
            let mode = if mode == Mode::Keep { " ME" } else { "" };
            let key = STANDARD.encode(key);
            write!(request, "ms {key} {} b F{client_flags} T{exptime}{mode}\r\n", value.len())
        } else {
            return false;
        };
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.keys.push(key.clone());
        true
    }

    /// Sends, and reads the replies: short lines, which fit into the buffers even if they are read late.
    fn send(&mut self, counts: &mut Counts, receipt: Option<&mut Receipt>) -> Result<(), Failure> {
        self.wire.send(&self.request)?;
        self.request.clear();
        self.request.shrink_to(2 * BATCH_BYTES_MAX);
        let mut stored = Vec::new();
        for key in self.keys.drain(..) {
            self.wire.line(&mut self.line)?;
            match &self.line[..] {
                b"STORED" | b"HD" => {
                    counts.stored += 1;
                    stored.push(key);
                }
                b"NOT_STORED" | b"NS" => {
                    counts.kept += 1;
                    stored.push(key);
                }
                // Only after these errors the server has read the value, and is ready for the next request.
                line if line.starts_with(b"SERVER_ERROR") => {
                    let (address, line) = (self.wire.address(), line.escape_ascii());
                    counts.refuse(&format!("{address}: {}: {line}", key.escape_ascii()));
                }
                line => return Err(self.wire.broken(line)),
            }
        }
        receipt.map_or(Ok(()), |receipt| receipt.note(stored.iter().map(Vec::as_slice)))
    }
}

impl Counts {
    fn refuse(&mut self, why: &str) {
        self.refused += 1;
        self.first_refusal.get_or_insert_with(|| why.to_owned());
    }
}

const BATCH_RECORDS_MAX: usize = 200;
const BATCH_BYTES_MAX: usize = 256 << 10;

/// Servers read a signed 32-bit number, as memcached does; a later time would be in the past.
const MOMENT_SECS_MAX: i64 = i32::MAX as i64;
