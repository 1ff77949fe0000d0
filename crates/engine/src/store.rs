//! Everything that changes an item.
//!
//! All of it is one movement, [`Turn::change`]: look at what is there, decide, write the new item where nobody sees it, lock the
//! bucket, make sure that what was there still is, point the index to the new item. What needs no new item happens under the
//! lock alone. These are all the fields that change in an item that can be found:
//!
//! | field | changed by | under the bucket's lock |
//! |---|---|---|
//! | CAS value | [`Turn::invalidate`] | yes |
//! | expiry, where the item has the field | `invalidate`, [`Turn::touch`], [`Turn::fetch`] | yes |
//! | STALE, TOKEN | `invalidate`; TOKEN also `fetch` | yes |
//! | DEAD | whoever unlinks or moves it | yes |
//! | FETCHED, time of the last use | every read that is noticed | no: an update lost costs nothing |

use crate::handle::{Item, Seen, Turn};
use crate::hash::Hash;
use crate::index::{Bucket, Entry, Found};
use crate::item::{DEAD, FETCHED, Raw, STALE, Shape, TOKEN, accounted_bytes};
use crate::limbo::Retired;
use crate::request::{
    Arith, Compare, Counted, Deleted, Expiry, Fail, Fetched, Invalidate, Miss, Mode, NoRoom, Store, Stored,
    Token,
};
use crate::segment::{SMALL, WAITING};
use crate::upload::Upload;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Items larger than this are no numbers, whatever they begin with: memcached keeps them in chunks (`slab_chunk_max`), and
/// does not look into those.
const NUMBER_BYTES_MAX: u32 = 512 << 10;

/// What is to become of a key.
enum Plan<'a, R> {
    /// Nothing: this is the answer.
    Answer(R),
    /// A new item.
    Write(New<'a>),
}

/// The new item.
struct New<'a> {
    body: Body<'a>,
    client_flags: u32,
    expiry: NewExpiry,
    cas: NewCas,
    /// Marks to set, and those to take over from the old item.
    marks: u32,
    marks_kept: u32,
    binary_key: bool,
}

enum Body<'a> {
    Join(&'a [u8], &'a [u8]),
    Number(Digits),
    /// The value lies in the upload already.
    Uploaded,
}

#[derive(Clone, Copy, PartialEq)]
enum NewExpiry {
    Set(Expiry),
    /// That of the old item.
    Keep,
}

#[derive(Clone, Copy)]
enum NewCas {
    Fresh,
    Given(u64),
    Keep,
}

impl NewCas {
    fn given_or_fresh(cas: Option<u64>) -> Self {
        cas.filter(|&cas| cas != 0).map_or(Self::Fresh, Self::Given)
    }
}

/// What came of a change.
enum Outcome<R> {
    Answer(R),
    Written(Written),
    NoRoom(NoRoom),
}

struct Written {
    offset: usize,
    raw: Raw,
    expiry_before: Expiry,
}

/// A new item before it is published.
enum Draft {
    Small {
        offset: usize,
        raw: Raw,
    },
    /// And the queue it will wait in.
    Large(Upload, usize),
}

impl Draft {
    fn raw(&self) -> Raw {
        match self {
            Self::Small { raw, .. } => *raw,
            Self::Large(upload, _) => upload.raw,
        }
    }
}

impl Turn<'_> {
    /// Stores a value that is all there. Panics if the hash is that of another key or engine.
    pub fn store(&self, hash: Hash, store: &Store<'_>) -> Stored {
        if accounted_bytes(store.key.len(), store.value.len(), store.client_flags)
            > u64::from(self.engine().item_bytes_max)
        {
            return Stored::TooLarge;
        }
        self.store_body(hash, store, Body::Join(store.value, b""), &mut None)
    }

    /// Room for a value that is still arriving (`store.value` is ignored). Memory is charged as it fills.
    pub fn reserve(&self, store: &Store<'_>, value_bytes: u32) -> Result<Upload, NoRoom> {
        let value_bytes = value_bytes as usize;
        if accounted_bytes(store.key.len(), value_bytes, store.client_flags)
            > u64::from(self.engine().item_bytes_max)
        {
            return Err(NoRoom::TooLarge);
        }
        let shape = Shape {
            key_bytes: store.key.len(),
            value_bytes,
            client_flags: store.client_flags,
            has_expiry: true,
            binary_key: store.binary_key,
            large: true,
        };
        self.start_upload(shape, store.key, Upload::first_step_bytes(&shape))
    }

    /// The next piece of the upload to be filled from the socket; empty only when the value is complete. Panics if the upload
    /// is of another engine.
    pub fn window<'u>(&self, upload: &'u mut Upload) -> Result<&'u mut [u8], NoRoom> {
        assert!(upload.is_of(&self.handle.engine), "an upload is filled where it was reserved");
        let step = upload.next_step_bytes();
        if step > 0 {
            self.charge(step)?;
            upload.charge(step);
        }
        Ok(upload.window())
    }

    /// Stores a complete upload under the terms of the `store` (same key, flags and binary_key as at `reserve`; `store.value` is
    /// ignored). Takes the upload unless the answer is `TryAgain`. Panics if there is none, not all of it has arrived, or it was
    /// reserved for another key or engine.
    pub fn commit(&self, hash: Hash, store: &Store<'_>, upload: &mut Option<Upload>) -> Stored {
        let whole = upload.as_ref().expect("commit takes an upload");
        assert!(whole.missing_bytes() == 0, "commit takes a complete upload");
        assert!(whole.is_of(&self.handle.engine), "commit takes what was reserved here");
        assert!(whole.raw.key() == store.key, "commit takes the key that was reserved");
        let stored = if matches!(store.mode, Mode::Append | Mode::Prepend) {
            // The pieces must lie together: a copy, and the upload goes.
            let value = whole.raw.value();
            self.store_body(hash, store, Body::Join(value, b""), &mut None)
        } else {
            self.store_body(hash, store, Body::Uploaded, upload)
        };
        if stored != Stored::TryAgain {
            *upload = None;
        }
        stored
    }

    fn store_body(
        &self,
        hash: Hash,
        store: &Store<'_>,
        body: Body<'_>,
        upload: &mut Option<Upload>,
    ) -> Stored {
        let outcome = self.change(store.key, hash, upload, |old| self.plan_store(store, &body, old));
        match outcome {
            Outcome::Answer(stored) => stored,
            Outcome::Written(written) => {
                Stored::Stored { cas: written.raw.cas(), value_bytes: written.raw.value_bytes() as u32 }
            }
            Outcome::NoRoom(NoRoom::TryAgain) => Stored::TryAgain,
            Outcome::NoRoom(_) if matches!(store.mode, Mode::Append | Mode::Prepend) => Stored::NotStored,
            Outcome::NoRoom(NoRoom::TooLarge) => Stored::TooLarge,
            Outcome::NoRoom(NoRoom::OutOfMemory) => Stored::OutOfMemory,
        }
    }

    fn plan_store<'a>(
        &self,
        store: &Store<'a>,
        body: &Body<'a>,
        old: Result<Seen<'a>, Miss>,
    ) -> Plan<'a, Stored> {
        let piece = match body {
            Body::Join(piece, _) => piece,
            _ => &b""[..],
        };
        let mut new = New {
            body: if let Body::Join(..) = body { Body::Join(piece, b"") } else { Body::Uploaded },
            client_flags: store.client_flags,
            expiry: NewExpiry::Set(store.expiry),
            cas: NewCas::given_or_fresh(store.cas),
            marks: 0,
            marks_kept: 0,
            binary_key: store.binary_key,
        };
        let extends = matches!(store.mode, Mode::Append | Mode::Prepend);
        let Ok(old) = old else {
            return match (store.mode, store.compare) {
                (Mode::Set, None) | (Mode::Add, _) => Plan::Write(new),
                (Mode::Set | Mode::Replace, Some(_)) => Plan::Answer(Stored::NotFound),
                (Mode::Append | Mode::Prepend, _) if store.vivify.is_some() => {
                    new.expiry = NewExpiry::Set(store.vivify.unwrap_or(Expiry::NEVER));
                    Plan::Write(new)
                }
                (Mode::Replace | Mode::Append | Mode::Prepend, _) => Plan::Answer(Stored::NotStored),
            };
        };
        if store.mode == Mode::Add {
            // A use for the order of eviction, but not a fetch.
            old.found.note_use();
            return Plan::Answer(Stored::NotStored);
        }
        let (Some(Compare::Equal(given)) | Some(Compare::EqualOrStale(given))) = store.compare else {
            return Plan::Write(if extends { extended(store, piece, old.raw, new) } else { new });
        };
        if given == 0 || given > old.raw.cas() {
            return Plan::Answer(Stored::Exists);
        }
        if given < old.raw.cas() {
            if !matches!(store.compare, Some(Compare::EqualOrStale(_))) || extends {
                return Plan::Answer(Stored::Exists);
            }
            new.expiry = NewExpiry::Keep;
            new.marks = STALE;
            new.marks_kept = TOKEN;
        }
        Plan::Write(if extends { extended(store, piece, old.raw, new) } else { new })
    }

    /// Deletes.
    pub fn delete(&self, key: &[u8], hash: Hash, compare: Option<u64>) -> Deleted {
        let bucket = self.engine().index.lock(hash);
        let Some(found) = self.find_locked(&bucket, key, hash) else {
            return Deleted::NotFound(Miss::Absent);
        };
        let raw = self.engine().item(found.entry);
        let alive = self.engine().liveness(found.entry.offset(), raw, self.now());
        match alive {
            Ok(()) if compare.is_some_and(|cas| cas != raw.cas()) => return Deleted::Exists,
            Ok(()) => {}
            Err(_) => self.count_reclaimed(found.entry.offset(), raw),
        }
        self.unlink(&bucket, &found);
        match alive {
            Ok(()) => Deleted::Deleted,
            Err(miss) => Deleted::NotFound(miss),
        }
    }

    /// Marks stale or blanks, see [`Invalidate`]. Errors: the change needed memory, and there is none.
    pub fn invalidate(&self, key: &[u8], hash: Hash, how: &Invalidate) -> Result<Deleted, NoRoom> {
        let needs_new_item = |raw: Raw| {
            how.blank.is_some()
                || how.expiry.is_some_and(|new| new != Expiry::NEVER && !raw.has_expiry_field())
        };
        {
            let bucket = self.engine().index.lock(hash);
            let found = self.find_locked(&bucket, key, hash);
            let Some(found) = found else { return Ok(Deleted::NotFound(Miss::Absent)) };
            let (offset, raw) = (found.entry.offset(), self.engine().item(found.entry));
            if let Err(miss) = self.engine().liveness(offset, raw, self.now()) {
                return Ok(Deleted::NotFound(miss));
            }
            if how.compare.is_some_and(|cas| cas != raw.cas()) {
                return Ok(Deleted::Exists);
            }
            if !needs_new_item(raw) {
                match NewCas::given_or_fresh(how.cas) {
                    NewCas::Given(cas) => raw.set_cas(cas),
                    _ if how.stale => raw.set_cas(self.fresh_cas(raw.cas())),
                    _ => {}
                }
                if how.stale {
                    raw.mark(STALE, TOKEN);
                }
                if let (Some(expiry), true) = (how.expiry, raw.has_expiry_field()) {
                    raw.set_expiry(expiry);
                    self.engine().segments.get(self.engine().segments.id_at(offset)).note_expiry(expiry);
                }
                return Ok(Deleted::Deleted);
            }
        }
        let outcome = self.change(key, hash, &mut None, |old| {
            let old = match old {
                Err(miss) => return Plan::Answer(Deleted::NotFound(miss)),
                Ok(old) if how.compare.is_some_and(|cas| cas != old.raw.cas()) => {
                    return Plan::Answer(Deleted::Exists);
                }
                Ok(old) => old.raw,
            };
            let blank = how.blank.is_some();
            Plan::Write(New {
                body: Body::Join(if blank { b"" } else { old.value() }, b""),
                client_flags: how.blank.unwrap_or_else(|| old.client_flags()),
                expiry: match how.expiry {
                    Some(expiry) => NewExpiry::Set(expiry),
                    None if blank => NewExpiry::Set(Expiry::NEVER),
                    None => NewExpiry::Keep,
                },
                cas: match NewCas::given_or_fresh(how.cas) {
                    NewCas::Fresh if !how.stale => NewCas::Keep,
                    cas => cas,
                },
                marks: if how.stale { STALE } else { 0 },
                marks_kept: match (blank, how.stale) {
                    // A new item.
                    (true, _) => 0,
                    // The token is to be had again.
                    (false, true) => FETCHED,
                    (false, false) => FETCHED | STALE | TOKEN,
                },
                binary_key: old.is_binary_key(),
            })
        });
        match outcome {
            Outcome::Answer(deleted) => Ok(deleted),
            Outcome::Written(_) => Ok(Deleted::Deleted),
            Outcome::NoRoom(no_room) => Err(no_room),
        }
    }

    /// Adds to or subtracts from a decimal value: optional leading white space or `+`, digits, then nothing or white space
    /// and anything. The result is as long as the old value, padded with spaces, unless it needs to be longer.
    pub fn arith(&self, key: &[u8], hash: Hash, how: &Arith) -> Counted {
        let mut result = (0, false);
        let outcome = self.change(key, hash, &mut None, |old| {
            let cas = NewCas::given_or_fresh(how.cas);
            let old = match (old, how.initial) {
                (Ok(old), _) => old.raw,
                (Err(miss), None) => return Plan::Answer(Counted::NotFound(miss)),
                (Err(_), Some((number, expiry))) => {
                    result = (number, true);
                    return Plan::Write(New {
                        body: Body::Number(Digits::new(number, 0)),
                        client_flags: 0,
                        expiry: NewExpiry::Set(expiry),
                        cas,
                        marks: 0,
                        marks_kept: 0,
                        binary_key: how.binary_key,
                    });
                }
            };
            // No number, whatever its CAS value: as memcached has it.
            if old.value_bytes() == 0 || old.accounted_bytes() > NUMBER_BYTES_MAX {
                return Plan::Answer(Counted::NonNumeric);
            }
            if how.compare.is_some_and(|cas| cas != 0 && cas != old.cas()) {
                return Plan::Answer(Counted::Exists);
            }
            let Some(number) = parse_number(old.value()) else { return Plan::Answer(Counted::NonNumeric) };
            let number =
                if how.decrement { number.saturating_sub(how.delta) } else { number.wrapping_add(how.delta) };
            result = (number, false);
            let digits = Digits::new(number, old.value_bytes());
            let grows = digits.len() > old.value_bytes();
            Plan::Write(New {
                body: Body::Number(digits),
                client_flags: old.client_flags(),
                expiry: how.expiry.map_or(NewExpiry::Keep, NewExpiry::Set),
                cas,
                marks: 0,
                // A number written over the old one leaves the item what it was; a longer one is a new item.
                marks_kept: if grows { 0 } else { FETCHED | STALE | TOKEN },
                binary_key: old.is_binary_key(),
            })
        });
        match outcome {
            Outcome::Answer(counted) => counted,
            Outcome::Written(written) => Counted::Number {
                number: result.0,
                cas: written.raw.cas(),
                expiry_before: if result.1 { written.raw.expiry() } else { written.expiry_before },
                expiry: written.raw.expiry(),
                created: result.1,
            },
            Outcome::NoRoom(NoRoom::TryAgain) => Counted::TryAgain,
            Outcome::NoRoom(_) => Counted::OutOfMemory,
        }
    }

    /// Creates an empty item and gives its creator the token. `None` if the key is there meanwhile.
    pub(crate) fn vivify(
        &self,
        key: &[u8],
        hash: Hash,
        expiry: Expiry,
        how: &crate::request::Fetch,
    ) -> Result<Option<Fetched<'_>>, Fail> {
        let outcome = self.change(key, hash, &mut None, |old| match old {
            Ok(_) => Plan::Answer(()),
            Err(_) => Plan::Write(New {
                body: Body::Join(b"", b""),
                client_flags: 0,
                expiry: NewExpiry::Set(how.touch.unwrap_or(expiry)),
                cas: NewCas::given_or_fresh(how.vivify_cas),
                // Its creator has seen it.
                marks: if how.unnoticed { TOKEN } else { TOKEN | FETCHED },
                marks_kept: 0,
                binary_key: how.binary_key,
            }),
        });
        match outcome {
            Outcome::Answer(()) => Ok(None),
            Outcome::NoRoom(no_room) => Err(no_room.into()),
            Outcome::Written(written) => Ok(Some(Fetched {
                item: Item::new(written.raw, written.offset, &self.handle.engine),
                expiry_before: expiry,
                hit_before: false,
                idle_secs: 0,
                stale: false,
                token: Token::Won,
                vivified: true,
            })),
        }
    }

    /// Gives an item that has no expiry field one, by writing it anew. Returns the new place; `None` if the item has changed.
    pub(crate) fn rewrite_with_expiry(
        &self,
        key: &[u8],
        hash: Hash,
        offset: usize,
        expiry: Expiry,
    ) -> Result<Option<(usize, Raw)>, Fail> {
        let outcome = self.change(key, hash, &mut None, |old| match old {
            Ok(old) if old.offset == offset => Plan::Write(New {
                body: Body::Join(old.raw.value(), b""),
                client_flags: old.raw.client_flags(),
                expiry: NewExpiry::Set(expiry),
                cas: NewCas::Keep,
                marks: 0,
                marks_kept: FETCHED | STALE | TOKEN,
                binary_key: old.raw.is_binary_key(),
            }),
            _ => Plan::Answer(()),
        });
        match outcome {
            Outcome::Answer(()) => Ok(None),
            Outcome::Written(written) => Ok(Some((written.offset, written.raw))),
            Outcome::NoRoom(no_room) => Err(no_room.into()),
        }
    }

    /// The one movement: look, decide, write, lock, make sure, publish.
    fn change<'t, 'a, R>(
        &'t self,
        key: &[u8],
        hash: Hash,
        upload: &mut Option<Upload>,
        mut plan: impl FnMut(Result<Seen<'t>, Miss>) -> Plan<'a, R>,
    ) -> Outcome<R>
    where
        't: 'a,
    {
        loop {
            let old = self.look(key, hash);
            // Changes when the item does, even where it stays in its place.
            let cas_of = |old: Option<Seen<'_>>| old.map(|old| old.raw.cas());
            let cas_seen = cas_of(old);
            let alive = match old {
                None => Err(Miss::Absent),
                Some(old) => self.engine().liveness(old.offset, old.raw, self.now()).map(|()| old),
            };
            let new = match plan(alive) {
                Plan::Answer(answer) => return Outcome::Answer(answer),
                Plan::Write(new) => new,
            };
            if old.is_none() {
                // An entry where nobody looks for it would outlive its item: whoever empties a segment hashes its keys.
                assert!(self.engine().hash_key.hash(key) == hash, "a key is stored with its own hash");
            }
            let queue = self.queue_for(hash, old.as_ref());
            let draft = match self.draft(key, &new, queue, alive.ok().map(|old| old.raw), upload) {
                Ok(draft) => draft,
                Err(no_room) => return Outcome::NoRoom(no_room),
            };
            let bucket = self.engine().index.lock(hash);
            let found = self.find_locked(&bucket, key, hash);
            let is_as_seen = found.map(|found| found.entry.offset()) == old.map(|old| old.offset)
                && cas_of(old) == cas_seen
                && old.is_none_or(|old| {
                    alive.is_ok() == self.engine().liveness(old.offset, old.raw, self.now()).is_ok()
                });
            if !is_as_seen {
                drop(bucket);
                self.discard(draft, &new, upload);
                continue;
            }
            let expiry_before = alive.map_or(Expiry::NEVER, |old| old.raw.expiry());
            if let (Some(old), Err(_)) = (old, alive) {
                self.count_reclaimed(old.offset, old.raw);
            }
            return match self.publish(&bucket, hash, &new, draft, found, alive.ok().map(|old| old.raw)) {
                Some((offset, raw)) => Outcome::Written(Written { offset, raw, expiry_before }),
                None => Outcome::NoRoom(NoRoom::OutOfMemory),
            };
        }
    }

    /// New keys enter the small queue, unless they were evicted from it not long ago; others stay where they are.
    fn queue_for(&self, hash: Hash, old: Option<&Seen<'_>>) -> usize {
        let segments = &self.engine().segments;
        match old {
            Some(old) => usize::from(segments.get(segments.id_at(old.offset)).queue.load(Relaxed)) & 1,
            None if self.engine().evict => self.queue_of_new(hash),
            None => SMALL,
        }
    }

    /// Writes the new item where nobody sees it.
    #[allow(unsafe_code)]
    fn draft(
        &self,
        key: &[u8],
        new: &New<'_>,
        queue: usize,
        old: Option<Raw>,
        upload: &mut Option<Upload>,
    ) -> Result<Draft, NoRoom> {
        let (head, tail, digits) = match &new.body {
            Body::Join(head, tail) => (*head, *tail, None),
            Body::Number(digits) => (digits.text(), &b""[..], Some(digits)),
            Body::Uploaded => {
                return upload.take().map(|upload| Draft::Large(upload, queue)).ok_or(NoRoom::OutOfMemory);
            }
        };
        let padding = digits.map_or(0, |digits| digits.padding);
        let expiry = match new.expiry {
            NewExpiry::Set(expiry) => expiry,
            NewExpiry::Keep => old.map_or(Expiry::NEVER, Raw::expiry),
        };
        let keeps_field = new.expiry == NewExpiry::Keep && old.is_some_and(Raw::has_expiry_field);
        let mut shape = Shape {
            key_bytes: key.len(),
            value_bytes: head.len() + tail.len() + padding,
            client_flags: new.client_flags,
            has_expiry: keeps_field || expiry != Expiry::NEVER,
            binary_key: new.binary_key,
            large: false,
        };
        if accounted_bytes(shape.key_bytes, shape.value_bytes, shape.client_flags)
            > u64::from(self.engine().item_bytes_max)
        {
            return Err(NoRoom::TooLarge);
        }
        let fill = |value: &mut [u8]| {
            let (first, rest) = value.split_at_mut(head.len());
            first.copy_from_slice(head);
            let (second, spaces) = rest.split_at_mut(tail.len());
            second.copy_from_slice(tail);
            spaces.fill(b' ');
        };
        if shape.size() > self.engine().large_item_bytes() {
            shape.large = true;
            shape.has_expiry = true;
            let mut upload = self.start_upload(shape, key, shape.size())?;
            fill(upload.window());
            upload.advance(shape.value_bytes);
            return Ok(Draft::Large(upload, queue));
        }
        let offset = self.append(queue, expiry, shape.size())?;
        // SAFETY: `append` gave us these bytes alone.
        let raw = unsafe {
            let raw = Raw::write(&self.engine().log, offset, &shape, key, expiry, self.now().secs);
            fill(raw.value_mut());
            raw
        };
        self.engine().log.prefetch_range(offset + shape.size(), shape.size());
        Ok(Draft::Small { offset, raw })
    }

    fn start_upload(&self, shape: Shape, key: &[u8], first_bytes: usize) -> Result<Upload, NoRoom> {
        if shape.size() as u64 > self.engine().budget.limit_bytes() {
            // Else it would find out step by step, and evict everything on the way.
            return Err(NoRoom::OutOfMemory);
        }
        let run = self.take_run(shape.size(), first_bytes)?;
        Ok(Upload::new(&self.handle.engine, run, shape, key, self.now().secs))
    }

    /// Undoes `draft`: an upload goes back to whom it came from.
    fn discard(&self, draft: Draft, new: &New<'_>, upload: &mut Option<Upload>) {
        match draft {
            Draft::Small { offset, .. } => self.handle.writer.borrow_mut().take_back(self.engine(), offset),
            Draft::Large(large, _) if matches!(new.body, Body::Uploaded) => *upload = Some(large),
            Draft::Large(..) => {}
        }
    }

    /// Completes the new item's header and points the index to it. `None`: the index has no room.
    fn publish(
        &self,
        bucket: &Bucket<'_>,
        hash: Hash,
        new: &New<'_>,
        draft: Draft,
        found: Option<Found<'_>>,
        old: Option<Raw>,
    ) -> Option<(usize, Raw)> {
        let engine = self.engine();
        let raw = draft.raw();
        // The old item's expiry and marks may have changed until the bucket was locked.
        let expiry = match new.expiry {
            NewExpiry::Set(expiry) => expiry,
            NewExpiry::Keep => old.map_or(Expiry::NEVER, Raw::expiry),
        };
        let old_cas = old.map_or(0, Raw::cas);
        raw.set_cas(match new.cas {
            NewCas::Fresh => self.fresh_cas(old_cas),
            NewCas::Given(cas) => cas,
            NewCas::Keep => old_cas,
        });
        raw.mark(new.marks | old.map_or(0, Raw::marks) & new.marks_kept, 0);
        if let Some(old) = old.filter(|_| new.marks_kept & FETCHED != 0) {
            // The same item in another place: its last use stays what it was.
            raw.set_used_secs(old.used_secs());
        }
        if raw.has_expiry_field() {
            raw.set_expiry(expiry);
        }
        let offset = match &draft {
            Draft::Small { offset, .. } => *offset,
            Draft::Large(upload, queue) => {
                let (id, now) = (upload.id, self.now());
                let segment = engine.segments.get(id);
                let (memory_bytes, group) = (
                    segment.filled_bytes.load(Relaxed),
                    crate::segment::group_of(expiry, now, engine.groups),
                );
                segment.open(*queue, group, engine.flush_mark.load(Relaxed), now);
                segment.filled_bytes.store(memory_bytes, Relaxed);
                engine.segments.start(id)
            }
        };
        let id = engine.segments.id_at(offset);
        engine.segments.get(id).note_expiry(expiry);
        let entry = Entry::new(hash, offset, found.map_or(0, |found| found.entry.uses()));
        let is_run = matches!(draft, Draft::Large(..));
        if is_run {
            // In its queue before it can be found, so that whoever replaces it can take it out.
            engine.segments.seal(id);
        }
        match found {
            Some(found) => bucket.replace(&found, entry),
            None if bucket.insert(entry, &engine.budget) => {}
            None => {
                match draft {
                    // Somebody is emptying the run already, will find it unlinked, and retire it.
                    Draft::Large(upload, _) if !engine.segments.withdraw(id) => upload.release(),
                    draft => self.discard(draft, new, &mut None),
                }
                return None;
            }
        }
        if let Draft::Large(upload, _) = draft {
            upload.release();
        }
        self.count_linked(id, raw);
        match found {
            Some(found) => self.bury(found.entry.offset(), engine.item(found.entry)),
            None => self.count_item(1),
        }
        Some((offset, raw))
    }

    /// Removes an item that has expired or was flushed, if it is still where it was seen.
    pub(crate) fn reap(&self, hash: Hash, offset: usize) {
        let bucket = self.engine().index.lock(hash);
        let Some(found) = bucket.find(hash, |entry| entry.offset() == offset) else { return };
        let raw = self.engine().item(found.entry);
        if self.engine().liveness(offset, raw, self.now()).is_err() {
            self.count_reclaimed(offset, raw);
            self.unlink(&bucket, &found);
        }
    }

    /// Takes an entry out of the index, and its item out of the books.
    pub(crate) fn unlink(&self, bucket: &Bucket<'_>, found: &Found<'_>) {
        bucket.remove(found, |overflow| self.engine().retire(Retired::Overflow(overflow)));
        self.bury(found.entry.offset(), self.engine().item(found.entry));
        self.count_item(-1);
    }

    /// The books of an item that the index no longer points to.
    fn bury(&self, offset: usize, raw: Raw) {
        let engine = self.engine();
        let id = engine.segments.id_at(offset);
        raw.mark(DEAD, 0);
        let queue = &self.counters().queues[engine.queue_of(id)];
        queue.items.add(-1);
        queue.live_bytes.add(-(raw.size() as i64));
        self.counters().bytes.add(-i64::from(raw.accounted_bytes()));
        let segment = engine.segments.get(id);
        // Whoever takes away the last byte knows that all others' items are unlinked as well.
        let before = segment.live_bytes.fetch_sub(raw.size() as u64, AcqRel);
        let left = before.wrapping_sub(raw.size() as u64);
        if engine.segments.is_run(id) {
            // Unless somebody is at it already, and will find it unlinked.
            if engine.segments.withdraw(id) {
                engine.retire(Retired::Run(id));
            }
        } else if segment.state.load(Acquire) == WAITING {
            let half = engine.segments.segment_bytes as u64 / 2;
            if left == 0 {
                engine.retire_dead(id);
            } else if before >= half && left < half {
                engine.segments.note_sparse(id);
            }
        }
    }

    /// The books of an item that the index now points to.
    pub(crate) fn count_linked(&self, id: crate::segment::Id, raw: Raw) {
        let queue = &self.counters().queues[self.engine().queue_of(id)];
        queue.items.add(1);
        queue.live_bytes.add(raw.size() as i64);
        self.counters().bytes.add(i64::from(raw.accounted_bytes()));
        self.counters().items_total.add(1);
        self.engine().segments.get(id).live_bytes.fetch_add(raw.size() as u64, Relaxed);
    }

    /// The books of an item that was copied to another place.
    pub(crate) fn count_moved(&self, from: usize, old: Raw, to: usize, new: Raw) {
        let engine = self.engine();
        old.mark(DEAD, 0);
        let bytes = new.size() as u64;
        engine.segments.get(engine.segments.id_at(from)).live_bytes.fetch_sub(bytes, Relaxed);
        engine.segments.get(engine.segments.id_at(to)).live_bytes.fetch_add(bytes, Relaxed);
        let (from, to) = (engine.queue_at(from), engine.queue_at(to));
        self.counters().queues[from].items.add(-1);
        self.counters().queues[from].live_bytes.add(-(bytes as i64));
        self.counters().queues[to].items.add(1);
        self.counters().queues[to].live_bytes.add(bytes as i64);
    }

    pub(crate) fn count_reclaimed(&self, offset: usize, raw: Raw) {
        let unfetched = i64::from(raw.marks() & FETCHED == 0);
        let queue = &self.counters().queues[self.engine().queue_at(offset)];
        self.counters().reclaimed.add(1);
        queue.reclaimed.add(1);
        self.counters().expired_unfetched.add(unfetched);
        queue.expired_unfetched.add(unfetched);
    }

    /// For `report_items`.
    fn count_item(&self, change: i64) {
        self.handle.writer.borrow_mut().unreported_items += change;
    }

    fn find_locked<'i>(&self, bucket: &Bucket<'i>, key: &[u8], hash: Hash) -> Option<Found<'i>> {
        bucket.find(hash, |entry| self.engine().item(entry).key() == key)
    }

    /// The next CAS value: a hybrid clock (Kulkarni et al., OPODIS 2014) of microseconds << 4 | handle, above the value that it
    /// replaces. Below 2^53 for the next decades, so that clients that keep it in a double are safe.
    fn fresh_cas(&self, above: u64) -> u64 {
        const HANDLE_BITS: u32 = 4;
        let mut writer = self.handle.writer.borrow_mut();
        let tick = self.now().micros.max((writer.last_cas >> HANDLE_BITS) + 1);
        let handle = self.handle.id as u64 & 15;
        writer.last_cas = tick << HANDLE_BITS | handle;
        if writer.last_cas > above {
            return writer.last_cas;
        }
        // A client installed a value of its own (`E`) from the future: above it, but the clock stays.
        above.checked_add(1).unwrap_or(writer.last_cas)
    }
}

/// The old value with the new piece at one end; flags and expiry stay.
fn extended<'a>(store: &Store<'a>, piece: &'a [u8], old: Raw, new: New<'a>) -> New<'a> {
    let (head, tail) = if store.mode == Mode::Append { (old.value(), piece) } else { (piece, old.value()) };
    New {
        body: Body::Join(head, tail),
        client_flags: old.client_flags(),
        expiry: NewExpiry::Keep,
        binary_key: old.is_binary_key(),
        ..new
    }
}

/// The decimal text of a number, to be padded with spaces.
#[derive(Clone, Copy)]
struct Digits {
    text: [u8; 20],
    start: usize,
    padding: usize,
}

impl Digits {
    fn new(mut number: u64, pad_to: usize) -> Self {
        let mut digits = Self { text: [0; 20], start: 20, padding: 0 };
        loop {
            digits.start -= 1;
            digits.text[digits.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        digits.padding = pad_to.saturating_sub(digits.len());
        digits
    }

    fn len(&self) -> usize {
        20 - self.start
    }

    fn text(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

/// A stored number, as C's `strtoull` would read it.
fn parse_number(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().position(|byte| !is_space(byte))?;
    let value = value[start..].strip_prefix(b"+").unwrap_or_else(|| &value[start..]);
    let end = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    let is_ended = value.get(end).is_none_or(is_space);
    if end == 0 || !is_ended {
        return None;
    }
    value[..end].iter().try_fold(0u64, |sum, byte| sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')))
}
