//! Conversations: however the input is split, the replies are the same, and no longer than allowed.

use std::io::IoSlice;
use std::sync::Arc;

use larder_engine::{Config, Engine, Handle, LargePages, Now};
use larder_protocol::Dialect;
use larder_server::clock::Clock;
use larder_server::conn::client;
use larder_server::conn::output::{Output, Pieces as _};
use larder_server::conn::session::{Context, Next, OUTPUT_BYTES_MAX, Session, Window};
use larder_server::conn::waiter::Turns;
use larder_server::observe::measure::Recorder;
use larder_server::shared::Shared;
use larder_server::startup::settings::Settings;

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

/// A conversation by HTTP, split at four points. Whether a client is told to go on depends on them.
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

/// A client, and the replies to it.
struct Client {
    session: Session,
    unconsumed: Vec<u8>,
    replies: Vec<u8>,
    is_closed: bool,
}

/// A server without listeners, whose clock stands still.
struct Server {
    shared: Shared,
    handle: Handle,
    recorder: Recorder,
    requests_max: u32,
    uses_windows: bool,
}

fn converse(kind: u8, dialect: Option<Dialect>, pieces: &[&[u8]]) -> Client {
    let mut server = Server::new(kind);
    let session = Session::new(dialect);
    let mut client = Client { session, unconsumed: Vec::new(), replies: Vec::new(), is_closed: false };
    for piece in pieces {
        server.receive(&mut client, piece);
    }
    client
}

impl Server {
    fn new(kind: u8) -> Self {
        let is = |bit: u8| kind & (1 << bit) != 0;
        let settings = Settings {
            memory_bytes: 4 << 20,
            item_bytes_max: ITEM_BYTES_MAX,
            evict: !is(0),
            cas: !is(1),
            noreply_close_on_error: is(2),
            threads: 1,
            ..Settings::default()
        };
        let engine = Engine::new(Config {
            memory_bytes: settings.memory_bytes,
            item_bytes_max: settings.item_bytes_max,
            evict: settings.evict,
            handles_max: 2,
            index_power: None,
            large_pages: LargePages::Filled,
            hash_key: [1, 2],
        })
        .unwrap();
        let handle = engine.handle().unwrap();
        let shared = Shared::new(Arc::clone(&engine), settings, Clock::start()).unwrap();
        Self {
            recorder: shared.recorder(0),
            shared,
            handle,
            requests_max: if is(3) { 1 } else { 20 },
            uses_windows: is(4),
        }
    }

    /// One piece of input arrives.
    fn receive(&mut self, client: &mut Client, mut piece: &[u8]) {
        while self.uses_windows && client.unconsumed.is_empty() && !piece.is_empty() && !client.is_closed {
            let guard = self.handle.pin(NOW);
            match client.session.window(&guard) {
                Window::Fill(window) => {
                    let filled = window.len().min(piece.len());
                    window[..filled].copy_from_slice(&piece[..filled]);
                    client.session.filled(filled);
                    piece = &piece[filled..];
                }
                Window::TryAgain => {}
                Window::None => break,
            }
        }
        client.unconsumed.extend_from_slice(piece);
        for _ in 0..FEEDS_MAX {
            if client.is_closed {
                return;
            }
            let context = Context {
                shared: &self.shared,
                counters: &self.shared.counters[0],
                recorder: &self.recorder,
                worker: 0,
                client: &client::Client::of_datagrams(),
                turns: &Turns::new(u32::MAX),
            };
            let guard = self.handle.pin(NOW);
            let mut output = Output::default();
            let fed = client.session.feed(
                &context,
                &guard,
                &client.unconsumed,
                None,
                &mut output,
                self.requests_max,
            );
            assert!(output.len_bytes() <= OUTPUT_BYTES_MAX + 2 * ITEM_BYTES_MAX as usize, "too much at once");
            client.unconsumed.drain(..fed.consumed);
            let mut written = 0;
            while written < output.len_bytes() {
                let mut slices = [IoSlice::new(&[]); 3];
                let filled = output.slices(written, &mut slices).expect("the values are there");
                let from = client.replies.len();
                slices[..filled].iter().for_each(|slice| client.replies.extend_from_slice(slice));
                assert!(client.replies.len() > from, "nothing of what is left");
                written += client.replies.len() - from;
            }
            match fed.next {
                Next::Read | Next::Send => return,
                // The control thread serves a watcher from then on.
                Next::Close(_) | Next::Watch(_) => client.is_closed = true,
                Next::Wait(_) => {}
            }
        }
        panic!("no end of work");
    }
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
const ITEM_BYTES_MAX: u32 = 64 << 10;
const FEEDS_MAX: u32 = 100_000;
