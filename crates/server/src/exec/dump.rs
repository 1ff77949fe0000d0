//! Replies that walk all items: dumps of keys, and the table of sizes. They are given piece by piece: a worker serves
//! other connections between pieces, and memory stays bounded however many items there are. While a client does not
//! read, its walk stands still.
//!
//! Keys of namespaces that are kept in a store are listed from there, by another thread
//! ([`crate::persistence::key_dumps`]); sizes and `stats cachedump` are of memory alone.

use std::collections::BTreeMap;

use larder_engine::{Fetched, IndexScan, Now};
use larder_protocol::admin::{self, Classes};
use larder_protocol::dump::{self, Dumped};
use larder_protocol::{Form, Reply, Sink as _};

use crate::conn::output::Output;
use crate::conn::session::OUTPUT_BYTES_MAX;
use crate::conn::waiter::{Waiter, Waiting};
use crate::exec::Executor;
use crate::persistence::key_dumps::{self, KeyDump};
use crate::shared::Shared;

/// A long reply in progress.
#[derive(Debug)]
pub struct Dump {
    /// Of the namespace whose items are being walked.
    number: u8,
    walk: IndexScan,
    what: What,
    is_begun: bool,
    /// Of the keys in the store.
    stored: Stored,
}

/// How far the list of the keys in the store is. They are listed from there alone: memory has copies.
#[derive(Debug)]
enum Stored {
    /// Begins once this position, which was the latest when the dump began, is applied.
    From(larder_engine::Position),
    Listing(KeyDump),
}

/// How a piece ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// There are more.
    More,
    /// The reply is complete.
    Last,
    /// The next one is not there yet.
    Wait(Waiting),
}

/// What the reply contains.
#[derive(Debug)]
enum What {
    /// lru_crawler metadump, mgdump.
    Keys { format: admin::Dump, classes: Classes },
    /// stats cachedump: at most this many items and bytes.
    Cached { class: usize, items_left: u64, bytes_left: usize },
    /// stats sizes: the number of items of each size, by the upper bound of the size.
    Sizes { counts: BTreeMap<u32, u64>, form: Form<'static> },
}

impl Dump {
    /// The keys in some classes.
    pub fn keys(format: admin::Dump, classes: Classes) -> Self {
        Self::of(What::Keys { format, classes })
    }

    /// Up to `items_max` keys of one class, with the sizes of their values; 0: as many as fit into 2 MiB.
    pub fn cached(class: usize, items_max: u32) -> Self {
        let items_left = if items_max == 0 { u64::MAX } else { items_max.into() };
        Self::of(What::Cached { class, items_left, bytes_left: CACHED_BYTES_MAX })
    }

    /// The sizes of all items.
    pub fn sizes(form: &Form<'_>) -> Self {
        Self::of(What::Sizes { counts: BTreeMap::new(), form: form.without_request() })
    }

    fn of(what: What) -> Self {
        Self { number: 0, walk: IndexScan::default(), what, is_begun: false, stored: Stored::From(0) }
    }

    /// Writes the next piece.
    pub(crate) fn write_piece(&mut self, executor: &mut Executor<'_, '_, '_, '_>) -> Piece {
        let (shared, guards, now) = (executor.cx.shared, executor.guards, executor.guards.now());
        let out = &mut *executor.out;
        if !self.is_begun {
            self.is_begun = true;
            let journal = shared.persistence.as_ref().map(|persistence| &persistence.journal);
            self.stored = Stored::From(journal.map_or(0, |journal| journal.last_given()));
            if let What::Keys { .. } = self.what {
                out.bytes(b"OK\r\n");
            }
        }
        for _ in 0..BUCKETS_PER_PIECE {
            // Who may not read a namespace sees no keys of it.
            let is_passed = self.walk.is_done()
                || !executor.rights.may_read(self.number)
                || self.what.is_of_keys() && guards.guard(self.number).is_backed();
            if self.what.is_full() || is_passed && self.number + 1 >= guards.count() {
                return self.write_stored(executor);
            }
            if is_passed {
                self.number += 1;
                self.walk = IndexScan::default();
                continue;
            }
            if out.len_bytes() >= OUTPUT_BYTES_MAX {
                break;
            }
            let Self { number, walk, what, .. } = self;
            guards.guard(*number).scan(walk, |fetched| what.tell(shared, now, &fetched, out));
        }
        Piece::More
    }

    /// Writes the next piece of the keys in the store, or, if there are no more, the end.
    fn write_stored(&mut self, executor: &mut Executor<'_, '_, '_, '_>) -> Piece {
        let (shared, guards) = (executor.cx.shared, executor.guards);
        let is_stored = |number: &u8| executor.rights.may_read(*number) && guards.guard(*number).is_backed();
        let namespaces = (0..guards.count()).filter(is_stored).fold(0, |bits, number| bits | 1 << number);
        let (Some(persistence), What::Keys { format, classes }, 1..) =
            (&shared.persistence, &self.what, namespaces)
        else {
            return self.what.end(executor.out);
        };
        loop {
            // Read before what it is about.
            let progress = persistence.journal.progress();
            match &self.stored {
                Stored::From(position) if !persistence.journal.is_applied(*position) => {
                    return Piece::Wait(Waiting::Commit(progress));
                }
                Stored::From(_) => {
                    let connection = usize::try_from(executor.cx.client.fd).unwrap_or_default();
                    let waiter = Waiter { worker: executor.cx.worker, connection };
                    let wanted = key_dumps::Wanted { format: *format, classes: *classes, namespaces };
                    match persistence.key_dumps.begin(waiter, wanted) {
                        Ok(listing) => self.stored = Stored::Listing(listing),
                        Err(error) => return refuse(error, executor.out),
                    }
                }
                Stored::Listing(listing) => match listing.next() {
                    key_dumps::Next::Pending => return Piece::Wait(Waiting::Signal),
                    key_dumps::Next::End(Ok(())) => return self.what.end(executor.out),
                    key_dumps::Next::End(Err(error)) => return refuse(error, executor.out),
                    key_dumps::Next::Piece(piece) => {
                        executor.out.bytes(&piece);
                        return Piece::More;
                    }
                },
            }
        }
    }
}

/// Ends a list with an error.
fn refuse(error: larder_protocol::Error, out: &mut Output<'_>) -> Piece {
    out.bytes(error.line().as_bytes());
    out.bytes(b"\r\n");
    Piece::Last
}

impl What {
    fn is_of_keys(&self) -> bool {
        matches!(self, Self::Keys { .. })
    }

    fn is_full(&self) -> bool {
        matches!(self, Self::Cached { items_left: 0, .. } | Self::Cached { bytes_left: 0, .. })
    }

    fn tell(&mut self, shared: &Shared, now: Now, fetched: &Fetched<'_>, out: &mut Output<'_>) {
        let item = fetched.item;
        let class = item.queue() + 1;
        let dumped = || dumped(shared, now, fetched);
        match self {
            Self::Keys { classes, .. } if !classes.has(class) => {}
            Self::Keys { format: admin::Dump::Metadata, .. } => dump::metadata(&dumped(), out),
            Self::Keys { format: admin::Dump::Commands, .. } => dump::command(&dumped(), out),
            Self::Cached { class: wanted, items_left, bytes_left } => {
                let is_shown = !item.is_binary_key() && dump::is_word(item.key());
                if class == *wanted && *items_left > 0 && is_shown {
                    let before = out.len_bytes();
                    dump::cached(&dumped(), out);
                    *items_left -= 1;
                    *bytes_left = bytes_left.saturating_sub(out.len_bytes() - before);
                }
            }
            Self::Sizes { counts, .. } => {
                let size = item.accounted_bytes().next_multiple_of(SIZE_STEP_BYTES);
                *counts.entry(size).or_default() += 1;
            }
        }
    }

    /// Writes what follows the items.
    fn end(&mut self, out: &mut Output<'_>) -> Piece {
        match self {
            Self::Keys { format: admin::Dump::Metadata, .. } | Self::Cached { .. } => out.bytes(b"END\r\n"),
            Self::Keys { format: admin::Dump::Commands, .. } => out.bytes(b"EN\r\n"),
            Self::Sizes { counts, form } => {
                while let Some((size, count)) = counts.pop_first() {
                    form.encode(&Reply::Stat(&size.to_string(), &count.to_string()), out);
                    if out.len_bytes() >= OUTPUT_BYTES_MAX {
                        return Piece::More;
                    }
                }
                form.encode(&Reply::End, out);
            }
        }
        Piece::Last
    }
}

/// What dumps tell of an item in memory.
pub(crate) fn dumped<'t>(shared: &Shared, now: Now, fetched: &Fetched<'t>) -> Dumped<'t> {
    let item = fetched.item;
    Dumped {
        key: item.key(),
        is_binary_key: item.is_binary_key(),
        expiry_secs: shared.clock.unix_secs_of(item.expiry()),
        used_secs: shared.clock.wall_secs(now.secs.saturating_sub(fetched.idle_secs)),
        cas: if shared.settings.cas { item.cas() } else { 0 },
        is_fetched: fetched.hit_before,
        class: item.queue() + 1,
        item_bytes: item.accounted_bytes(),
        value_bytes: item.value().len(),
        client_flags: item.client_flags(),
    }
}

/// Buckets that are walked before the connection yields: some two thousand items, half a millisecond.
const BUCKETS_PER_PIECE: u32 = 256;
/// memcached: the longest answer to `stats cachedump`.
const CACHED_BYTES_MAX: usize = 2 << 20;
/// memcached: sizes are counted in steps of this many bytes.
const SIZE_STEP_BYTES: u32 = 32;
