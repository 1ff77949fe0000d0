//! Conversations: however the input is split, the replies are the same, and no longer than allowed.

use larder_engine::Now;
use larder_protocol::Dialect;
use larder_server::conn::session::Session;
use larder_server::startup::settings::Settings;

use crate::harness::{Client, Server};

/// A conversation. The first byte selects its kind, the next four where the input is split.
pub fn session(input: &[u8]) {
    let Some(([kind, cuts @ ..], input)) = input.split_first_chunk::<5>() else { return };
    let dialect = [None, None, Some(Dialect::Text), Some(Dialect::Binary)][usize::from(kind >> 6)];
    let whole = converse(*kind, dialect, &[input]);
    let cut = converse(*kind, dialect, &split(input, cuts));
    if !tells_statistics(input) && !has_long_line(input) {
        assert_eq!(whole.replies.escape_ascii().to_string(), cut.replies.escape_ascii().to_string());
        assert_eq!(whole.is_closed, cut.is_closed);
    }
}

/// A conversation over HTTP, split at four points. Whether a client is told to go on depends on them.
pub(crate) fn http(input: &[u8]) {
    let told = |client: Client| client.replies.escape_ascii().to_string().replace(CONTINUE, "");
    for kind in [0, 0b01_1011] {
        let whole = converse(kind, Some(Dialect::Http), &[input]);
        let cut = converse(kind, Some(Dialect::Http), &split(input, &[30, 90, 100, 200]));
        assert_eq!(whole.is_closed, cut.is_closed);
        assert_eq!(told(whole), told(cut));
    }
}

fn split<'i>(input: &'i [u8], cuts: &[u8]) -> Vec<&'i [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| (input.len() * usize::from(*cut)) >> 8).collect();
    ends.extend([0, input.len()]);
    ends.sort_unstable();
    ends.windows(2).map(|ends| &input[ends[0]..ends[1]]).collect()
}

fn converse(kind: u8, dialect: Option<Dialect>, pieces: &[&[u8]]) -> Client {
    let mut server = server(kind);
    let uses_windows = is_set(kind, 4);
    let mut client = Client { session: Session::new(dialect), uses_windows, ..Client::default() };
    for piece in pieces {
        server.receive(&mut client, piece);
    }
    client
}

/// A server whose clock stands still.
fn server(kind: u8) -> Server {
    let settings = Settings {
        memory_bytes: 4 << 20,
        item_bytes_max: 64 << 10,
        evict: !is_set(kind, 0),
        cas: !is_set(kind, 1),
        noreply_close_on_error: is_set(kind, 2),
        threads: 1,
        ..Settings::default()
    };
    let requests_max = if is_set(kind, 3) { 1 } else { 20 };
    Server { requests_max, now: Some(NOW), ..Server::new(settings) }
}

fn is_set(kind: u8, bit: u8) -> bool {
    kind & (1 << bit) != 0
}

/// True if there are statistics or times since the start: they differ from one run to the next.
fn tells_statistics(input: &[u8]) -> bool {
    let stat = &[0x80, 0x10];
    input.windows(5).any(|word| word == b"stats") || input.windows(2).any(|head| head == stat)
}

/// True if there is a line that is refused for its length, but only before its end arrives.
fn has_long_line(input: &[u8]) -> bool {
    input.split(|byte| *byte == b'\n').any(|line| line.len() > 2000)
}

/// As it is shown when it is compared.
const CONTINUE: &str = r"HTTP/1.1 100 Continue\r\n\r\n";
const NOW: Now = Now { secs: 100, micros: 1 << 40 };
