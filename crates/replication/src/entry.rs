//! Entries: what one site tells another about its data.
//!
//! An entry is a resulting state, never an operation: what `incr` made of a value, not that it was called. The site
//! that made a change is part of its version.

use crate::bytes::{Reader, push_short_bytes};
use crate::flushes::FlushMark;
use crate::state::{Expiry, Item, Register, State};
use crate::version::{VERSION_MAX, is_version, site_of};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;
/// The most exceptions of a flush.
pub const EXCEPTIONS_MAX: usize = 4096;

/// What one site tells another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The key has this item.
    Put(Put<'a>),
    /// The key was deleted.
    Delete {
        /// Not empty.
        key: &'a [u8],
        /// Of the deletion.
        version: u64,
        /// See [`Register::base_version`](crate::state::Register).
        base_version: u64,
    },
    /// The key's item expires at another time.
    Touch {
        /// Not empty.
        key: &'a [u8],
        /// Of a value.
        expiry: Expiry,
    },
    /// What is below this version is gone.
    Flush {
        /// Empty: all keys.
        prefix: &'a [u8],
        /// Longer prefixes that keep their items.
        exceptions: Vec<&'a [u8]>,
        /// Of the flush.
        version: u64,
    },
    /// How far its origin is.
    Beat(Beat),
}

/// An item, with both of its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put<'a> {
    /// Not empty.
    pub key: &'a [u8],
    /// Of the value.
    pub version: u64,
    /// See [`Register::base_version`](crate::state::Register).
    pub base_version: u64,
    /// Of this value, or of a newer one that the sender still waits for.
    pub expiry: Expiry,
    /// The client's flags.
    pub client_flags: u32,
    /// Marks of the meta dialect, as bits.
    pub marks: u8,
    /// The value.
    pub value: &'a [u8],
}

/// A site's note in its own log of how far it is. All numbers are versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// Every change that this site makes after this beat is above it. The wall clock when it was made, or the last
    /// beat's clock if that is higher.
    pub clock: u64,
    /// The site has every change that any site made up to here.
    pub stable: u64,
    /// Every site has them, as far as this site knows: what is gone up to here may be forgotten.
    pub horizon: u64,
}

/// Why bytes are no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub(crate) &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

impl<'a> Entry<'a> {
    /// The entries that tell a state to a site which may know nothing of it.
    pub fn of_state(key: &'a [u8], state: &State<&'a [u8]>) -> impl Iterator<Item = Self> + use<'a> {
        let expiry = state.expiry;
        let change = state.value.map(|Register { version, base_version, item }| match item {
            Some(Item { client_flags, marks, value }) => {
                Entry::Put(Put { key, version, base_version, expiry, client_flags, marks, value })
            }
            None => Entry::Delete { key, version, base_version },
        });
        let has_touch = expiry.version != 0 && !matches!(change, Some(Entry::Put(_)));
        let touch = Entry::Touch { key, expiry };
        change.into_iter().chain(has_touch.then_some(touch))
    }

    /// Those of them that are about registers which a site has written itself. So nothing comes back to where it came
    /// from.
    pub fn own_of_state(
        key: &'a [u8],
        state: &State<&'a [u8]>,
        site: u8,
    ) -> impl Iterator<Item = Self> + use<'a> {
        let value = state.value.filter(|register| site_of(register.version) == site);
        Self::of_state(key, &State { value, ..*state }).filter(move |entry| entry.is_of(site))
    }

    /// The entries that a site publishes at the place of a record of its log: the registers that it has written itself,
    /// and that the key still has. `newest`: the state of the key by all records and flushes that are durable; if that
    /// is not known, the record's.
    ///
    /// A later record repeats what it does not replace: one of a touch repeats the value. It does not stand in for this
    /// one, since a beat between the two says that everything older is before it.
    pub fn own_of_record<W>(
        key: &'a [u8],
        record: &State<&'a [u8]>,
        newest: &State<W>,
        site: u8,
    ) -> impl Iterator<Item = Self> + use<'a, W> {
        let is_own = |register: &Register<&[u8]>| site_of(register.version) == site;
        let value = record.value.filter(|register| is_own(register) && register.version == newest.version());
        // A put has an expiry with it. Of an older one, the newer one stays.
        let has_put = value.is_some_and(|register| register.item.is_some());
        let expiry =
            if has_put || record.expiry == newest.expiry { record.expiry } else { Expiry::default() };
        Self::own_of_state(key, &State { value, expiry }, site)
    }

    /// The key and the state that the entry stands for. `None`: it does not speak of a key.
    pub fn state(&self) -> Option<(&'a [u8], State<&'a [u8]>)> {
        Some(match *self {
            Self::Put(put) => {
                let item = Item { client_flags: put.client_flags, marks: put.marks, value: put.value };
                let state = State::set(put.version, put.base_version, 0, item);
                (put.key, State { expiry: put.expiry, ..state })
            }
            Self::Delete { key, version, base_version } => (key, State::deleted(version, base_version)),
            Self::Touch { key, expiry } => (key, State::touched(expiry)),
            Self::Flush { .. } | Self::Beat(_) => return None,
        })
    }

    /// The flush that the entry stands for.
    pub fn flush(&self) -> Option<FlushMark> {
        let Self::Flush { prefix, exceptions, version } = self else { return None };
        let exceptions = exceptions.iter().map(|exception| exception.to_vec()).collect();
        FlushMark::new(prefix.to_vec(), exceptions, *version)
    }

    /// True if the site made this change. A beat is always its sender's.
    pub fn is_of(&self, site: u8) -> bool {
        match *self {
            Self::Put(Put { version, .. }) | Self::Delete { version, .. } | Self::Flush { version, .. } => {
                site_of(version) == site
            }
            Self::Touch { expiry, .. } => site_of(expiry.version) == site,
            Self::Beat(_) => true,
        }
    }

    /// True if a site needs the entry that keeps the keys which begin with one of these prefixes; with none: all keys.
    pub fn concerns(&self, prefixes: &[Vec<u8>]) -> bool {
        let is_kept = |key: &[u8]| prefixes.iter().any(|prefix| key.starts_with(prefix));
        prefixes.is_empty()
            || match self {
                Self::Put(Put { key, .. }) | Self::Delete { key, .. } | Self::Touch { key, .. } => {
                    is_kept(key)
                }
                Self::Flush { prefix: flushed, .. } => {
                    is_kept(flushed) || prefixes.iter().any(|prefix| prefix.starts_with(flushed))
                }
                Self::Beat(_) => true,
            }
    }

    /// The highest version in it.
    pub fn highest_version(&self) -> u64 {
        match *self {
            Self::Put(Put { version, expiry, .. }) => version.max(expiry.version),
            Self::Delete { version, .. } | Self::Flush { version, .. } => version,
            Self::Touch { expiry, .. } => expiry.version,
            Self::Beat(Beat { clock, stable, horizon }) => clock.max(stable).max(horizon),
        }
    }

    /// Appends the entry as it goes over the wire. Keys and values are within the bounds of this module.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, marks: u8, key: &[u8], numbers: &[u64]| {
            out.extend_from_slice(&[kind, marks]);
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        };
        match self {
            Self::Put(put) => {
                let [value_version, version, exptime_secs] = numbers_of(&put.expiry);
                let numbers = [put.version, put.base_version, value_version, version, exptime_secs];
                head(PUT, put.marks, put.key, &numbers);
                out.extend_from_slice(&put.client_flags.to_le_bytes());
                out.extend_from_slice(&(put.value.len() as u32).to_le_bytes());
                out.extend_from_slice(put.key);
                out.extend_from_slice(put.value);
            }
            Self::Delete { key, version, base_version } => {
                head(DELETE, 0, key, &[*version, *base_version]);
                out.extend_from_slice(key);
            }
            Self::Touch { key, expiry } => {
                head(TOUCH, 0, key, &numbers_of(expiry));
                out.extend_from_slice(key);
            }
            Self::Flush { prefix, exceptions, version } => {
                head(FLUSH, 0, prefix, &[*version]);
                out.extend_from_slice(&(exceptions.len() as u16).to_le_bytes());
                out.extend_from_slice(prefix);
                exceptions.iter().for_each(|exception| push_short_bytes(out, exception));
            }
            Self::Beat(Beat { clock, stable, horizon }) => head(BEAT, 0, b"", &[*clock, *stable, *horizon]),
        }
    }
}

/// The entries in the bytes of a batch. Ends after the first that is malformed.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: Reader<'a>,
}

impl<'a> Entries<'a> {
    /// Reads what [`Entry::encode`] wrote.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: Reader::new(bytes) }
    }

    fn decode(&mut self) -> Result<Entry<'a>, Malformed> {
        let rest = &mut self.rest;
        let head = |rest: &mut Reader<'_>| Some((rest.u8()?, rest.u8()?, usize::from(rest.u16()?)));
        let (kind, marks, key_bytes) = head(rest).ok_or(CUT)?;
        if key_bytes == 0 && matches!(kind, PUT | DELETE | TOUCH) {
            return Err(Malformed("a key is empty"));
        }
        if marks != 0 && kind != PUT {
            return Err(Malformed("an entry that is no put has marks"));
        }
        let entry = match kind {
            PUT => Entry::Put(put(rest, marks, key_bytes).ok_or(CUT)?),
            DELETE => delete(rest, key_bytes).ok_or(CUT)?,
            TOUCH => touch(rest, key_bytes).ok_or(CUT)?,
            FLUSH => flush(rest, key_bytes).ok_or(CUT)?,
            BEAT if key_bytes == 0 => beat(rest).ok_or(CUT)?,
            _ => return Err(Malformed("an entry has a kind that is not known")),
        };
        check(&entry)?;
        Ok(entry)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.decode();
        if entry.is_err() {
            self.rest = Reader::new(b"");
        }
        Some(entry)
    }
}

fn numbers_of(expiry: &Expiry) -> [u64; 3] {
    [expiry.value_version, expiry.version, expiry.exptime_secs]
}

fn expiry(rest: &mut Reader<'_>) -> Option<Expiry> {
    Some(Expiry { value_version: rest.u64()?, version: rest.u64()?, exptime_secs: rest.u64()? })
}

fn put<'a>(rest: &mut Reader<'a>, marks: u8, key_bytes: usize) -> Option<Put<'a>> {
    let (version, base_version, expiry) = (rest.u64()?, rest.u64()?, expiry(rest)?);
    let (client_flags, value_bytes) = (rest.u32()?, rest.u32()?);
    let (key, value) = (rest.bytes(key_bytes)?, rest.bytes(value_bytes as usize)?);
    Some(Put { key, version, base_version, expiry, client_flags, marks, value })
}

fn delete<'a>(rest: &mut Reader<'a>, key_bytes: usize) -> Option<Entry<'a>> {
    let (version, base_version) = (rest.u64()?, rest.u64()?);
    Some(Entry::Delete { key: rest.bytes(key_bytes)?, version, base_version })
}

fn touch<'a>(rest: &mut Reader<'a>, key_bytes: usize) -> Option<Entry<'a>> {
    let expiry = expiry(rest)?;
    Some(Entry::Touch { key: rest.bytes(key_bytes)?, expiry })
}

fn flush<'a>(rest: &mut Reader<'a>, prefix_bytes: usize) -> Option<Entry<'a>> {
    let (version, count) = (rest.u64()?, usize::from(rest.u16()?));
    let prefix = rest.bytes(prefix_bytes)?;
    let exceptions = (0..count).map(|_| rest.short_bytes()).collect::<Option<_>>()?;
    Some(Entry::Flush { prefix, exceptions, version })
}

fn beat<'a>(rest: &mut Reader<'a>) -> Option<Entry<'a>> {
    Some(Entry::Beat(Beat { clock: rest.u64()?, stable: rest.u64()?, horizon: rest.u64()? }))
}

/// What no site writes.
fn check(entry: &Entry<'_>) -> Result<(), Malformed> {
    let is_expiry = |expiry: &Expiry| {
        let Expiry { value_version, version, .. } = *expiry;
        is_version(value_version) && is_version(version) && version >= value_version
    };
    let are_versions = match entry {
        Entry::Put(Put { version, base_version, expiry, .. }) => {
            is_version(*version)
                && is_expiry(expiry)
                && expiry.value_version >= *version
                && *base_version <= VERSION_MAX
        }
        Entry::Delete { version, base_version, .. } => is_version(*version) && *base_version <= VERSION_MAX,
        Entry::Touch { expiry, .. } => is_expiry(expiry),
        Entry::Flush { version, .. } => is_version(*version),
        Entry::Beat(Beat { clock, stable, horizon }) => *clock.max(stable).max(horizon) <= VERSION_MAX,
    };
    if !are_versions {
        return Err(Malformed("an entry has a version that no site gives"));
    }
    match entry {
        Entry::Put(put) if put.value.len() > VALUE_BYTES_MAX => Err(Malformed("a value has more than 1 GiB")),
        Entry::Flush { exceptions, .. } if exceptions.len() > EXCEPTIONS_MAX => {
            Err(Malformed("a flush has too many exceptions"))
        }
        _ => Ok(()),
    }
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const TOUCH: u8 = 3;
const FLUSH: u8 = 4;
const BEAT: u8 = 5;
const CUT: Malformed = Malformed("an entry is cut short");

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u8 = 1;

    /// A version of this site, or of another one.
    fn version(moment: u64, site: u8) -> u64 {
        moment << 8 | u64::from(site)
    }

    fn set(version: u64) -> State<&'static [u8]> {
        State::set(version, 0, 0, Item { client_flags: 0, marks: 0, value: b"value" })
    }

    fn touched(state: State<&'static [u8]>, version: u64) -> State<&'static [u8]> {
        let expiry = Expiry { value_version: state.version(), version, exptime_secs: 9 };
        state.join(State::touched(expiry)).0
    }

    fn published(record: State<&'static [u8]>, newest: State<&'static [u8]>) -> State<&'static [u8]> {
        let entries = Entry::own_of_record(b"key", &record, &newest, HERE);
        let states = entries.filter_map(|entry| Some(entry.state()?.1));
        states.fold(State::default(), |all, state| all.join(state).0)
    }

    #[test]
    fn a_record_is_published_until_it_is_replaced() {
        let (ours, theirs) = (set(version(10, HERE)), set(version(10, 2)));
        let nothing = State::default();
        assert_eq!((published(ours, ours), published(theirs, theirs)), (ours, nothing));
        for site in [HERE, 2] {
            assert_eq!(published(ours, touched(ours, version(20, site))), ours, "a touch repeats the value");
            assert_eq!(published(ours, set(version(20, site))), nothing);
            assert_eq!(published(ours, ours.flushed(version(20, site))), nothing);
            let touch = touched(theirs, version(20, HERE));
            assert_eq!(published(touch, touch), State::touched(touch.expiry), "the value is another site's");
            assert_eq!(published(touch, touched(touch, version(30, site))), nothing);
            assert_eq!(published(touch, set(version(30, site))), nothing);
        }
        let deleted = State::deleted(version(10, HERE), 0);
        let later = Expiry { value_version: version(20, 2), version: version(21, 2), exptime_secs: 9 };
        assert_eq!(published(deleted, deleted.join(State::touched(later)).0), deleted, "the touch waits");
    }
}
