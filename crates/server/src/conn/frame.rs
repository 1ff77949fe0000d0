//! Where one request ends and the next begins.

use larder_engine::Hash;
use larder_protocol::{Command, Dialect, Parsed, Request};

/// A key of the input whose memory is being fetched already.
#[derive(Clone, Copy)]
pub struct Prefetched<'i> {
    /// Where it lies in the input.
    pub(crate) key: &'i [u8],
    pub(crate) hash: Hash,
}

/// What the head of the input holds.
pub(crate) enum Frame<'a> {
    /// A request and the value that belongs to it.
    Whole { request: Request<'a>, value: &'a [u8], bytes: usize },
    /// A request whose value has not arrived whole; what comes before that does.
    Head { request: Request<'a>, head_bytes: usize },
    /// Not even that.
    NoHead,
    /// Nothing that can be served.
    Close,
}

impl<'a> Frame<'a> {
    pub(crate) fn of(dialect: Dialect, input: &'a [u8], scanned_bytes: usize) -> Self {
        let (request, head_bytes) = match dialect.parse(input, scanned_bytes) {
            Parsed::Request { request, head_bytes } => (request, head_bytes),
            Parsed::NeedInput => return Frame::NoHead,
            Parsed::Close => return Frame::Close,
        };
        let block_bytes = match request.command {
            Command::Store(store) => request.form.block_bytes(store.value_bytes),
            Command::Malformed(malformed) => malformed.swallow_bytes as usize,
            _ => 0,
        };
        match input[head_bytes..].get(..block_bytes) {
            Some(value) => Frame::Whole { request, value, bytes: head_bytes + block_bytes },
            None => Frame::Head { request, head_bytes },
        }
    }
}

/// The key to fetch ahead, and to be counted: of commands with one plain key.
pub(crate) fn single_key<'a>(command: &Command<'a>) -> Option<&'a [u8]> {
    let key = match command {
        Command::Get(get) => {
            let mut keys = get.keys;
            keys.next().filter(|_| keys.rest().is_empty())?
        }
        Command::Fetch(fetch) => fetch.key,
        Command::Store(store) => store.key,
        Command::Delete(delete) => delete.key,
        Command::Touch(touch) => touch.key,
        Command::Arith(arith) => arith.key,
        _ => return None,
    };
    (!key.is_base64()).then(|| key.written())
}

/// Size of the LF or CRLF that a line ends in.
pub(crate) fn line_end_bytes(line: &[u8]) -> usize {
    if line.ends_with(b"\r\n") { 2 } else { 1 }
}
