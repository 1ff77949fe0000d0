//! A server without listeners, and clients whose input arrives in any pieces. The fuzz targets use it as well.

use std::io::IoSlice;
use std::sync::Arc;

use larder_engine::{Engine, Now};
use larder_server::access::Hosts;
use larder_server::clock::Clock;
use larder_server::conn::client::{self, Peer};
use larder_server::conn::output::{Output, Pieces as _};
use larder_server::conn::session::{Context, Next, OUTPUT_BYTES_MAX, Session, Window};
use larder_server::conn::waiter::{Turns, Waiting};
use larder_server::namespaces::{self, BackingOf, Handles, Namespaces, NamespacesFile, Plan, WarmCaches};
use larder_server::observe::measure::Recorder;
use larder_server::persistence::Persistence;
use larder_server::shared::Shared;
use larder_server::startup::settings::Settings;
use larder_store::MemoryStore;
use larder_store::commit::JournalConfig;

/// A server without listeners.
pub(crate) struct Server {
    pub(crate) shared: Shared,
    pub(crate) handles: Handles,
    pub(crate) recorder: Recorder,
    /// Requests that are executed at once.
    pub(crate) requests_max: u32,
    /// The time, if the clock stands still.
    pub(crate) now: Option<Now>,
    /// What its clients are.
    pub(crate) peer: Peer,
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
        let clock = Arc::new(Clock::start());
        // A journal without a committer.
        let journal = JournalConfig {
            bytes_max: 1 << 20,
            changes_max: JOURNAL_CHANGES_MAX,
            site: 0,
            highest_version: 0,
            clock: Box::new(StillClock),
        };
        let store = settings.store.clone();
        let persistence =
            store.map(|store| Persistence::with_journal(1, &store, Arc::clone(&clock), journal));
        let backing = persistence
            .as_ref()
            .map(|persistence| |namespace: &namespaces::StoredNamespace| persistence.backing(namespace));
        let config = settings.engine_config([1, 2]);
        let namespaces = match NamespacesFile::read(&settings).unwrap() {
            None => Namespaces::single(Engine::new(config).unwrap()),
            file => {
                let plan = Plan::new(file, &settings, &config).unwrap();
                let backing = backing.as_ref().map(|backing| backing as BackingOf<'_>);
                namespaces::build(plan, &settings, backing, WarmCaches::default()).unwrap()
            }
        };
        let shared = Shared::new(namespaces, settings, clock).unwrap().with_persistence(persistence);
        if shared.persistence.is_some() {
            Persistence::open(&shared, Arc::new(MemoryStore::new())).unwrap();
        }
        let handles = shared.namespaces.handles_of(0).unwrap();
        Self { recorder: shared.recorder(0), shared, handles, requests_max: 20, now: None, peer: Peer::Udp }
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
                client: &client::Client::new(0, self.peer, 0, Hosts::Any, 0),
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
                // Nobody commits.
                Next::Wait(Waiting::Commit(_)) => return,
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

/// A clock of versions.
struct StillClock;

impl larder_store::commit::Clock for StillClock {
    fn unix_micros(&self) -> u64 {
        1_800_000_000_000_000
    }
}

const FEEDS_MAX: u32 = 100_000;
/// So many changes fill the journal.
pub(crate) const JOURNAL_CHANGES_MAX: usize = 64;
