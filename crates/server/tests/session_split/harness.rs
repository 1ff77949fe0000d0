//! A server without a door, and clients whose input arrives in any pieces.

use std::fmt::Write as _;
use std::io::IoSlice;
use std::sync::Arc;

use larder_engine::{Config, Engine, Handle, LargePages};
use larder_protocol::Dialect;
use larder_server::clock::Clock;
use larder_server::conn::client;
use larder_server::conn::output::{Output, Pieces as _};
use larder_server::conn::session::{Context, Next, Session, Window};
use larder_server::conn::waiter::Turns;
use larder_server::observe::measure::Recorder;
use larder_server::shared::Shared;
use larder_server::startup::settings::Settings;

/// A server without a door.
pub(crate) struct Server {
    pub(crate) shared: Shared,
    pub(crate) handle: Handle,
    pub(crate) recorder: Recorder,
}

/// A client of it, and what it was answered.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) unconsumed: Vec<u8>,
    pub(crate) replies: Vec<u8>,
    pub(crate) is_closed: bool,
    /// Read into windows, as a worker does.
    pub(crate) uses_windows: bool,
}

impl Client {
    pub(crate) fn speaking(dialect: Dialect) -> Self {
        Self { session: Session::new(Some(dialect)), ..Self::default() }
    }
}

impl Server {
    pub(crate) fn new(settings: Settings) -> Self {
        let engine = Engine::new(Config {
            memory_bytes: settings.memory_bytes,
            item_bytes_max: settings.item_bytes_max,
            evict: settings.evict,
            handles_max: 4,
            index_power: None,
            large_pages: LargePages::Filled,
            hash_key: [1, 2],
        })
        .unwrap();
        let handle = engine.handle().unwrap();
        let shared = Shared::new(Arc::clone(&engine), settings, Clock::start()).unwrap();
        Self { recorder: shared.recorder(0), shared, handle }
    }

    /// One piece of input arrives.
    pub(crate) fn receive(&mut self, client: &mut Client, mut piece: &[u8]) {
        while client.uses_windows && client.unconsumed.is_empty() && !piece.is_empty() && !client.is_closed {
            let guard = self.handle.pin(self.shared.clock.now());
            match client.session.window(&guard) {
                Window::Fill(window) => {
                    let n = window.len().min(piece.len());
                    window[..n].copy_from_slice(&piece[..n]);
                    client.session.filled(n);
                    piece = &piece[n..];
                }
                Window::TryAgain => {}
                Window::None => break,
            }
        }
        client.unconsumed.extend_from_slice(piece);
        for _ in 0..100_000 {
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
            let guard = self.handle.pin(self.shared.clock.now());
            let mut output = Output::default();
            let fed = client.session.feed(&context, &guard, &client.unconsumed, None, &mut output, 20);
            client.unconsumed.drain(..fed.consumed);
            client.replies.extend(bytes_of(&output));
            match fed.next {
                Next::Read | Next::Send => return,
                // A client that watches belongs to the control thread from then on.
                Next::Close(_) | Next::Watch(_) => client.is_closed = true,
                Next::Wait(_) => {}
            }
        }
        panic!("no end of work");
    }
}

fn bytes_of(output: &Output<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < output.len_bytes() {
        let mut slices = [IoSlice::new(&[]); 3];
        let filled = output.slices(bytes.len(), &mut slices).expect("the values are there");
        let before = bytes.len();
        slices[..filled].iter().for_each(|slice| bytes.extend_from_slice(slice));
        assert!(bytes.len() > before);
    }
    bytes
}

/// Plays a conversation in one piece, byte by byte and split at every point (of long ones: at some), each time with a
/// server of its own, and expects `replies` each time; `is_closed` at its end.
pub(crate) fn for_each_split(settings: &Settings, input: &[u8], replies: &[u8], is_closed: bool) {
    let told = |replies: &[u8]| replies.to_vec();
    for_each_split_told(settings, None, input, replies, is_closed, told);
}

/// The same in a dialect, for replies of which `told` is what does not depend on the pieces, nor on the run.
pub(crate) fn for_each_split_told(
    settings: &Settings,
    dialect: Option<Dialect>,
    input: &[u8],
    replies: &[u8],
    is_closed: bool,
    told: impl Fn(&[u8]) -> Vec<u8>,
) {
    let play = |pieces: &mut dyn Iterator<Item = &[u8]>, how: &str, uses_windows: bool| {
        let mut server = Server::new(settings.clone());
        let mut client = Client { uses_windows, session: Session::new(dialect), ..Client::default() };
        for piece in pieces {
            server.receive(&mut client, piece);
        }
        assert_same(&told(&client.replies), replies, how);
        assert_eq!(client.is_closed, is_closed, "{how}");
    };
    play(&mut std::iter::once(input), "whole", false);
    play(&mut input.chunks(input.len() / 20_000 + 1), "in small pieces", false);
    play(&mut input.chunks(16_000), "in windows", true);
    for at in (1..input.len()).step_by(input.len() / 100 + 1) {
        let (head, tail) = input.split_at(at);
        play(&mut [head, tail].into_iter(), &format!("split at {at}"), at % 2 == 0);
    }
}

/// Only what differs is made readable, which takes much longer than the comparison.
#[track_caller]
pub(crate) fn assert_same(replies: &[u8], expected: &[u8], how: &str) {
    assert!(replies == expected, "{how}: {}\ninstead of {}", show(replies), show(expected));
}

/// Replies, readable: runs of one byte shortened.
fn show(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        let send = run[0].escape_ascii().to_string();
        match run.len() {
            1..=9 => shown.push_str(&send.repeat(run.len())),
            n => write!(shown, "<{n}*{send}>").unwrap(),
        }
        if run.ends_with(b"\n") {
            shown.push('\n');
        }
    }
    shown
}
