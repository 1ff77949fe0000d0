//! Operations that change items.
//!
//! Those that need a new item go through [`Guard::change`]; those that need none work under the bucket's lock. These
//! are all fields that change in an item that can be found:
//!
//! | field | changed by | under the bucket's lock |
//! |---|---|---|
//! | CAS value | [`Guard::invalidate`] | yes |
//! | expiry, where the item has the field | `invalidate`, [`Guard::touch`], [`Guard::fetch`] | yes |
//! | STALE, TOKEN | `invalidate`; TOKEN also `fetch` | yes |
//! | DEAD | unlinking or moving it | yes |
//! | FETCHED, time of the last use | every read that is noticed | no: an update lost costs nothing |

use crate::handle::Guard;
use crate::index::hash::Hash;
use crate::log::item::{FETCHED, ItemRef, STALE, Shape, TOKEN, accounted_bytes};
use crate::log::offset::Offset;
use crate::ops::backing::{Filled, Kept, Position, Replaced};
use crate::ops::change::{Body, Intent, New, NewCas, NewExpiry, Outcome, Plan, Written};
use crate::ops::digits::{Digits, parse_number};
use crate::ops::get::{Item, Lookup};
use crate::ops::prefetch::LookupHint;
use crate::ops::upload::Upload;
use crate::request::{
    Arith, Compare, Counted, Deleted, Expiry, FetchError, Fetched, Invalidate, Miss, Mode, Store, Stored,
    Token, WriteError,
};

/// Larger items are not numbers, whatever they begin with: memcached keeps them in chunks (`slab_chunk_max`), and does
/// not parse those.
const NUMBER_BYTES_MAX: u32 = 512 << 10;

impl Guard<'_> {
    /// Stores a whole value. Panics if the hash belongs to another key or engine.
    pub fn store(&self, hash: Hash, store: &Store<'_>) -> Stored {
        self.store_hinted(hash, store, LookupHint::default())
    }

    /// The same for a key of a batch, with its hint from [`Guard::hint_changes`] under this guard.
    pub fn store_hinted<'t>(&'t self, hash: Hash, store: &Store<'_>, hint: LookupHint<'t>) -> Stored {
        if accounted_bytes(store.key.len(), store.value.len(), store.client_flags)
            > u64::from(self.engine().item_bytes_max())
        {
            return Stored::TooLarge;
        }
        if store.mode == Mode::Set && store.compare.is_none() {
            // Most stores replace unconditionally.
            let plan = |_| Plan::Write(replacing(store, Body::Join(store.value, b"")));
            let outcome = self.change_hinted(store.key, hash, hint, &mut None, Intent::Replace, plan);
            return stored(outcome, store.mode);
        }
        self.store_body(hash, store, Body::Join(store.value, b""), &mut None)
    }

    /// Whether a value of this size would be refused whatever it contains (`store.value` is ignored). Allocates
    /// nothing.
    pub fn admit_value(&self, store: &Store<'_>, value_bytes: u32) -> Result<(), WriteError> {
        self.admit_shape(&self.upload_shape(store, value_bytes)?, store.key)
    }

    /// Allocates memory for a value of which at least [`crate::UPLOAD_BYTES_MIN`] have arrived (`store.value` is
    /// ignored). Memory is charged as it fills. Errors: also if other uploads have a stronger claim to the memory.
    pub fn reserve(&self, store: &Store<'_>, value_bytes: u32) -> Result<Upload, WriteError> {
        let shape = self.upload_shape(store, value_bytes)?;
        let first_bytes = Upload::first_step_bytes(&shape);
        let missing_bytes = shape.size().saturating_sub(first_bytes);
        if !self.engine().arena.admit_step(None, first_bytes as u64, missing_bytes as u64, self.now()) {
            return Err(WriteError::OutOfMemory);
        }
        let mut upload = self.start_upload(shape, store.key, first_bytes, missing_bytes)?;
        upload.lease(self.now().secs);
        Ok(upload)
    }

    fn upload_shape(&self, store: &Store<'_>, value_bytes: u32) -> Result<Shape, WriteError> {
        let value_bytes = value_bytes as usize;
        if accounted_bytes(store.key.len(), value_bytes, store.client_flags)
            > u64::from(self.engine().item_bytes_max())
        {
            return Err(WriteError::TooLarge);
        }
        Ok(Shape {
            key_bytes: store.key.len(),
            value_bytes,
            client_flags: store.client_flags,
            has_expiry: true,
            binary_key: store.binary_key,
            large: true,
            has_checksum: self.engine().arena.has_checksums(),
        })
    }

    /// The next piece of the upload, to be filled from the socket under this guard. Empty only if the value is
    /// complete. Errors: `OutOfMemory` also if the upload was revoked because others needed its memory. Panics if the
    /// upload belongs to another engine.
    pub fn window<'u>(&'u self, upload: &'u mut Upload) -> Result<&'u mut [u8], WriteError> {
        assert!(upload.is_of(&self.handle.engine), "an upload is filled where it was reserved");
        if upload.is_revoked() {
            return Err(WriteError::OutOfMemory);
        }
        let step = upload.next_step_bytes();
        if step > 0 {
            let (id, missing_bytes) = (Some(upload.run().id()), u64::from(upload.missing_bytes()));
            if !self.engine().arena.admit_step(id, step as u64, missing_bytes, self.now()) {
                return Err(WriteError::OutOfMemory);
            }
            let charged_bytes = upload.charged_bytes();
            self.charge(upload.run(), charged_bytes, step)?;
            if !upload.note_step(step) {
                return Err(WriteError::OutOfMemory);
            }
        }
        upload.window(self).ok_or(WriteError::OutOfMemory)
    }

    /// The value of a complete upload. `None`: it was revoked because others needed its memory. Panics if it is not
    /// complete, or belongs to another engine.
    pub fn uploaded<'u>(&'u self, upload: &'u Upload) -> Option<&'u [u8]> {
        assert!(upload.missing_bytes() == 0, "only a complete upload has a value");
        upload.item(self).map(|item| item.value())
    }

    /// Stores a complete upload with the terms of `store` (same key, flags and binary_key as in `reserve`;
    /// `store.value` is ignored). Takes the upload unless the result is `TryAgain`. Panics if there is none, it is not
    /// complete, or it was reserved for another key or engine.
    pub fn commit(&self, hash: Hash, store: &Store<'_>, upload: &mut Option<Upload>) -> Stored {
        let whole = upload.as_mut().expect("commit takes an upload");
        assert!(whole.is_of(&self.handle.engine), "commit takes what was reserved here");
        if !whole.keep() {
            *upload = None;
            return stored(Outcome::WriteError(WriteError::OutOfMemory), store.mode);
        }
        assert!(whole.missing_bytes() == 0, "commit takes a complete upload");
        let raw = whole.item(self).expect("it is kept");
        assert!(raw.key() == store.key, "commit takes the key that was reserved");
        let stored = if !whole.is_large() || matches!(store.mode, Mode::Append | Mode::Prepend) {
            // A small item, or a piece of a value: copied, and the upload is freed.
            let value = raw.value();
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
        let plan = |old| self.plan_store(store, &body, old);
        let is_plain = store.mode == Mode::Set && store.compare.is_none();
        let intent = if is_plain { Intent::Replace } else { Intent::Update };
        let outcome = self.change_hinted(store.key, hash, LookupHint::default(), upload, intent, plan);
        stored(outcome, store.mode)
    }

    fn plan_store<'a>(
        &self,
        store: &Store<'a>,
        body: &Body<'a>,
        old: Result<Lookup<'a>, Miss>,
    ) -> Plan<'a, Stored> {
        let piece = match body {
            Body::Join(piece, _) => piece,
            _ => &b""[..],
        };
        let body = if let Body::Join(..) = body { Body::Join(piece, b"") } else { Body::Uploaded };
        let mut new = replacing(store, body);
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
            // Counts as a use for eviction, but not as a fetch.
            old.found.note_use();
            return Plan::Answer(Stored::NotStored);
        }
        let (Some(Compare::Equal(given)) | Some(Compare::EqualOrStale(given))) = store.compare else {
            return Plan::Write(if extends { extended(store, piece, old.raw, new) } else { new });
        };
        let cas = old.raw.cas();
        if given != cas || given == 0 {
            let or_stale = matches!(store.compare, Some(Compare::EqualOrStale(_))) && !extends;
            if !or_stale || given == 0 || (given > cas && !self.engine().cas_values.has_given(given)) {
                return Plan::Answer(Stored::Exists);
            }
            new.expiry = NewExpiry::Keep;
            new.marks = STALE;
            new.marks_kept = TOKEN;
        }
        Plan::Write(if extends { extended(store, piece, old.raw, new) } else { new })
    }

    /// Puts an item of the store into memory, unless its key was changed since `position`: see `ops/backing.rs`.
    pub fn fill(&self, hash: Hash, kept: &Kept<'_>, position: Position) -> Filled {
        self.fill_body(hash, kept, position, Body::Join(kept.value, b""), &mut None)
    }

    /// The same with the value in a complete upload, reserved for the same key and flags (`kept.value` is ignored).
    /// Takes the upload unless the result is `TryAgain`. Panics if there is none, or it is not complete.
    pub fn fill_upload(
        &self,
        hash: Hash,
        kept: &Kept<'_>,
        position: Position,
        upload: &mut Option<Upload>,
    ) -> Filled {
        let whole = upload.as_mut().expect("fill_upload takes an upload");
        if !whole.keep() {
            *upload = None;
            return Filled::OutOfMemory;
        }
        assert!(whole.missing_bytes() == 0, "fill_upload takes a complete upload");
        let filled = if whole.is_large() {
            self.fill_body(hash, kept, position, Body::Uploaded, upload)
        } else {
            let value = whole.item(self).expect("it is kept").value();
            self.fill_body(hash, kept, position, Body::Join(value, b""), &mut None)
        };
        if filled != Filled::TryAgain {
            *upload = None;
        }
        filled
    }

    fn fill_body(
        &self,
        hash: Hash,
        kept: &Kept<'_>,
        position: Position,
        body: Body<'_>,
        upload: &mut Option<Upload>,
    ) -> Filled {
        self.assume_absent(hash, position);
        let outcome = self.change_hinted(
            kept.key,
            hash,
            LookupHint::default(),
            upload,
            Intent::Fill,
            |old| match old {
                // What is in memory is newer, also if it has expired.
                Ok(_) | Err(Miss::Expired) => Plan::Answer(()),
                Err(Miss::Absent | Miss::Flushed) => Plan::Write(New {
                    body: match body {
                        Body::Join(value, _) => Body::Join(value, b""),
                        _ => Body::Uploaded,
                    },
                    client_flags: kept.client_flags,
                    expiry: NewExpiry::Set(kept.expiry),
                    cas: NewCas::Given(kept.version),
                    marks: (u32::from(kept.is_stale) * STALE) | (u32::from(kept.is_token_held) * TOKEN),
                    marks_kept: 0,
                    binary_key: kept.is_binary_key,
                }),
            },
        );
        // The store has the item: once it is out of memory again, nothing is proven.
        self.forget_absent();
        match outcome {
            Outcome::Written(_) => Filled::Filled,
            Outcome::Answer(()) => Filled::Changed,
            Outcome::WriteError(_) if self.take_unproven() => Filled::Changed,
            Outcome::WriteError(WriteError::TryAgain) => Filled::TryAgain,
            Outcome::WriteError(_) => Filled::OutOfMemory,
        }
    }

    /// Deletes an item.
    pub fn delete(&self, key: &[u8], hash: Hash, compare: Option<u64>) -> Deleted {
        let bucket = self.engine().index.lock(self.pinned(), hash);
        self.note_shown(hash);
        let Some(found) = self.find_locked(&bucket, key, hash) else {
            self.note_absent(hash);
            return Deleted::NotFound(Miss::Absent);
        };
        let raw = self.item_ref(&found);
        let alive = self.engine().liveness(found.entry.offset(), raw, self.now());
        match alive {
            Ok(()) if compare.is_some_and(|cas| cas != raw.cas()) => return Deleted::Exists,
            Ok(()) => {}
            Err(_) => self.count_reclaimed(found.entry.offset(), raw),
        }
        self.unlink(&bucket, found);
        match alive {
            Ok(()) => {
                let unsubmitted = self.sequence_delete(hash, raw);
                drop(bucket);
                self.submit(unsubmitted);
                Deleted::Deleted
            }
            Err(miss) => {
                self.note_dead(hash, miss);
                Deleted::NotFound(miss)
            }
        }
    }

    /// Marks an item stale or blanks it, see [`Invalidate`]. Errors: the change needs memory, and there is none.
    pub fn invalidate(&self, key: &[u8], hash: Hash, how: &Invalidate) -> Result<Deleted, WriteError> {
        let needs_new_item = |raw: ItemRef<'_>| {
            how.blank.is_some()
                || how.expiry.is_some_and(|new| new != Expiry::NEVER && !raw.has_expiry_field())
        };
        {
            let bucket = self.engine().index.lock(self.pinned(), hash);
            let found = self.find_locked(&bucket, key, hash);
            self.note_shown(hash);
            let Some(found) = found else {
                self.note_absent(hash);
                return Ok(Deleted::NotFound(Miss::Absent));
            };
            let (offset, raw) = (found.entry.offset(), self.item_ref(&found));
            if let Err(miss) = self.engine().liveness(offset, raw, self.now()) {
                self.note_dead(hash, miss);
                return Ok(Deleted::NotFound(miss));
            }
            if how.compare.is_some_and(|cas| cas != raw.cas()) {
                return Ok(Deleted::Exists);
            }
            if !needs_new_item(raw) {
                let replaced = Replaced::of(raw);
                match NewCas::given_or_fresh(how.cas) {
                    NewCas::Given(cas) => raw.set_cas(cas),
                    _ if how.stale => raw.set_cas(self.fresh_cas(hash, raw.cas())),
                    _ => {}
                }
                if how.stale {
                    raw.mark(STALE, TOKEN);
                }
                if let (Some(expiry), true) = (how.expiry, raw.has_expiry_field()) {
                    raw.set_expiry(expiry);
                    self.engine()
                        .arena
                        .segments
                        .get(self.engine().arena.segments.id_at(offset))
                        .note_expiry(self.engine().counted(expiry));
                }
                let unsubmitted = self.sequence(&bucket, hash, Some(replaced), || Some(found));
                drop(bucket);
                self.submit(unsubmitted);
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
                    // It is a new item.
                    (true, _) => 0,
                    // The token may be given again.
                    (false, true) => FETCHED,
                    (false, false) => FETCHED | STALE | TOKEN,
                },
                binary_key: old.is_binary_key(),
            })
        });
        match outcome {
            Outcome::Answer(deleted) => Ok(deleted),
            Outcome::Written(_) => Ok(Deleted::Deleted),
            Outcome::WriteError(error) => Err(error),
        }
    }

    /// Adds to or subtracts from a decimal value: optional leading white space or `+`, digits, then nothing or white
    /// space and anything. The result has the length of the old value, padded with spaces, unless it needs more digits.
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
            // Not a number, whatever the CAS value: as in memcached.
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
                // A number written over the old one leaves the item as it was; a longer one is a new item.
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
            Outcome::WriteError(WriteError::TryAgain) => Counted::TryAgain,
            Outcome::WriteError(_) => Counted::OutOfMemory,
        }
    }

    /// Creates an empty item and gives its creator the token. `None` if the key exists by now.
    pub(crate) fn vivify(
        &self,
        key: &[u8],
        hash: Hash,
        expiry: Expiry,
        how: &crate::request::Fetch,
    ) -> Result<Option<Fetched<'_>>, FetchError> {
        let outcome = self.change(key, hash, &mut None, |old| match old {
            Ok(_) => Plan::Answer(()),
            Err(_) => Plan::Write(New {
                body: Body::Join(b"", b""),
                client_flags: 0,
                expiry: NewExpiry::Set(how.touch.unwrap_or(expiry)),
                cas: NewCas::given_or_fresh(how.vivify_cas),
                // The creator has seen it.
                marks: if how.unnoticed { TOKEN } else { TOKEN | FETCHED },
                marks_kept: 0,
                binary_key: how.binary_key,
            }),
        });
        match outcome {
            Outcome::Answer(()) => Ok(None),
            Outcome::WriteError(error) => Err(error.into()),
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

    /// Adds an expiry field to an item by writing a new one. Returns its place. `None`: the item has changed.
    pub(crate) fn rewrite_with_expiry(
        &self,
        key: &[u8],
        hash: Hash,
        offset: Offset,
        expiry: Expiry,
    ) -> Result<Option<(Offset, ItemRef<'_>)>, FetchError> {
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
            Outcome::WriteError(error) => Err(error.into()),
        }
    }
}

/// The result of a store.
#[inline]
fn stored(outcome: Outcome<'_, Stored>, mode: Mode) -> Stored {
    match outcome {
        Outcome::Answer(stored) => stored,
        Outcome::Written(Written { raw, is_new, .. }) => Stored::Stored {
            cas: raw.cas(),
            value_bytes: raw.value_bytes() as u32,
            expiry: raw.expiry(),
            is_new,
        },
        Outcome::WriteError(WriteError::TryAgain) => Stored::TryAgain,
        Outcome::WriteError(error) if matches!(mode, Mode::Append | Mode::Prepend) => {
            Stored::NotExtended(error)
        }
        Outcome::WriteError(WriteError::TooLarge) => Stored::TooLarge,
        Outcome::WriteError(WriteError::OutOfMemory) => Stored::OutOfMemory,
    }
}

/// A new item that takes nothing from the old one.
#[inline]
fn replacing<'a>(store: &Store<'a>, body: Body<'a>) -> New<'a> {
    New {
        body,
        client_flags: store.client_flags,
        expiry: NewExpiry::Set(store.expiry),
        cas: NewCas::given_or_fresh(store.cas),
        marks: 0,
        marks_kept: 0,
        binary_key: store.binary_key,
    }
}

/// The old value with a piece appended or prepended. Flags and expiry stay.
fn extended<'a>(store: &Store<'a>, piece: &'a [u8], old: ItemRef<'a>, new: New<'a>) -> New<'a> {
    let (head, tail) = if store.mode == Mode::Append { (old.value(), piece) } else { (piece, old.value()) };
    New {
        body: Body::Join(head, tail),
        client_flags: old.client_flags(),
        expiry: NewExpiry::Keep,
        binary_key: old.is_binary_key(),
        ..new
    }
}
