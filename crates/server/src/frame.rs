//! Where one request ends and the next begins.

use larder_engine::Hash;
use larder_protocol::text::{self, Parsed};
use larder_protocol::{Command, Request};

/// A whole request of a batch.
pub(crate) struct Framed<'a> {
    pub(crate) request: Request<'a>,
    /// Its value with the CRLF after it, if it has one.
    pub(crate) value: &'a [u8],
    /// Of its key, if it has exactly one.
    pub(crate) hash: Option<Hash>,
    /// Where the next request starts.
    pub(crate) end: usize,
}

/// What the head of the input holds.
pub(crate) enum Frame<'a> {
    /// A request and the value that belongs to it.
    Whole { request: Request<'a>, value: &'a [u8], bytes: usize },
    /// A command line whose value has not arrived whole.
    Head { request: Request<'a>, line_bytes: usize },
    /// A part of a command line.
    NoLine,
    /// Nothing that can be served.
    Close,
}

impl<'a> Frame<'a> {
    pub(crate) fn of(input: &'a [u8], scanned_bytes: usize) -> Self {
        let (request, line_bytes) = match text::parse(input, scanned_bytes) {
            Parsed::Request { request, line_bytes } => (request, line_bytes),
            Parsed::NeedInput => return Frame::NoLine,
            Parsed::Close => return Frame::Close,
        };
        let block_bytes = match request.command {
            Command::Store(store) => text::block_bytes(store.value_bytes),
            Command::Malformed(malformed) => malformed.swallow_bytes as usize,
            _ => 0,
        };
        match input[line_bytes..].get(..block_bytes) {
            Some(value) => Frame::Whole { request, value, bytes: line_bytes + block_bytes },
            None => Frame::Head { request, line_bytes },
        }
    }
}

/// The key to fetch ahead: of commands with one plain key.
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

/// The value without the CRLF after it; `None` if there is none.
pub(crate) fn split_value(block: &[u8]) -> Option<&[u8]> {
    block.strip_suffix(b"\r\n")
}

/// Size of the LF or CRLF that a line ends in.
pub(crate) fn line_end_bytes(line: &[u8]) -> usize {
    if line.ends_with(b"\r\n") { 2 } else { 1 }
}
