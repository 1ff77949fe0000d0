//! A server without listeners, and clients whose input arrives in any pieces. The fuzz targets use it as well.

use std::io::IoSlice;
use std::sync::Arc;

use larder_engine::{Engine, Now};
use larder_server::clock::Clock;
use larder_server::conn::client;
use larder_server::conn::output::{Output, Pieces as _};
use larder_server::conn::session::{Context, Next, OUTPUT_BYTES_MAX, Session, Window};
use larder_server::conn::waiter::Turns;
use larder_server::namespaces::{self, Handles, Namespaces, NamespacesFile, Plan, WarmCaches};
use larder_server::observe::measure::Recorder;
use larder_server::shared::Shared;
use larder_server::startup::settings::Settings;

/// A server without listeners.
pub(crate) struct Server {
    pub(crate) shared: Shared,
    pub(crate) handles: Handles,
    pub(crate) recorder: Recorder,
    /// Requests that are executed at once.
    pub(crate) requests_max: u32,
    /// The time, if the clock stands still.
    pub(crate) now: Option<Now>,
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

impl Server {
    pub(crate) fn new(settings: Settings) -> Self {
        let config = settings.engine_config([1, 2]);
        let namespaces = match NamespacesFile::read(&settings).unwrap() {
            None => Namespaces::single(Engine::new(config).unwrap()),
            file => {
                let plan = Plan::new(file, &settings, &config).unwrap();
                namespaces::build(plan, &settings, None, WarmCaches::default()).unwrap()
            }
        };
        let shared = Shared::new(namespaces, settings, Arc::new(Clock::start())).unwrap();
        let handles = shared.namespaces.handles_of(0).unwrap();
        Self { recorder: shared.recorder(0), shared, handles, requests_max: 20, now: None }
    }

    fn now(&self) -> Now {
        self.now.unwrap_or_else(|| self.shared.clock.now())
    }

    /// One piece of input arrives.
    pub(crate) fn receive(&mut self, client: &mut Client, mut piece: &[u8]) {
        let now = self.now();
        while client.uses_windows && client.unconsumed.is_empty() && !piece.is_empty() && !client.is_closed {
            let guards = self.handles.pin(now);
            match client.session.window(&guards) {
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
        for _ in 0..FEEDS_MAX {
            let now = self.now();
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
            let guards = self.handles.pin(now);
            let mut output = Output::default();
            let fed = client.session.feed(
                &context,
                &guards,
                &client.unconsumed,
                None,
                &mut output,
                self.requests_max,
            );
            let item_bytes_max = self.shared.settings.item_bytes_max as usize;
            assert!(output.len_bytes() <= OUTPUT_BYTES_MAX + 2 * item_bytes_max, "too much at once");
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
        assert!(bytes.len() > before, "nothing of what is left");
    }
    bytes
}

const FEEDS_MAX: u32 = 100_000;
