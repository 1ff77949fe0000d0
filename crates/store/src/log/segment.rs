//! One file of the log.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use super::bytes::Bytes;
use super::digest::{Digest, SHARD_BITS, Secret, TAG_BITS};
use super::index::{Location, SLOTS_MAX, START_BYTES_MAX, SizeClass};
use super::manifest::{FORMAT, SegmentImage, refuse_newer};
use super::record::{
    BadHeader, FRONT_BYTES_MAX, HEADER_BYTES, Header, Kind, SEQUENCE_MAX, pad, padded, u16_at, u32_at, u64_at,
};
use crate::entry::VALUE_BYTES_MAX;
use crate::error::{Error, Result};
use crate::files::{File, Files};

/// Of a segment's own header; the first record follows.
pub(super) const SEGMENT_HEADER_BYTES: usize = 64;
/// Records that begin where an entry can say: more than that have no place.
const ENTRIES_MAX: usize = START_BYTES_MAX as usize / HEADER_BYTES;
pub(super) const FOOTER_BYTES_MAX: u64 = footer_bytes(ENTRIES_MAX);
/// An entry of a footer.
pub(super) const FOOTER_ENTRY_BYTES: usize = 24;
pub(super) const MAGIC: &[u8; 8] = b"LARDRSEG";
const PREFIX: &str = "segment-";
/// The highest number of a file: names have 16 digits.
pub(crate) const NUMBER_MAX: u64 = 10_u64.pow(16) - 1;
/// The most bytes of data in a segment: records up to where the last one may begin, and that one.
pub(super) const DATA_BYTES_MAX: u64 =
    START_BYTES_MAX + padded(FRONT_BYTES_MAX + VALUE_BYTES_MAX) as u64 + HEADER_BYTES as u64;

/// Which records a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Stream {
    /// Appended ones, dense in sequence, in batches.
    Log = 0,
    /// Copied by cleaning: items that never expire, and tombstones.
    Cold = 1,
    /// Copied by cleaning: items that expire.
    ColdExpiring = 2,
}

impl Stream {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Log, Self::Cold, Self::ColdExpiring].into_iter().find(|&stream| stream as u8 == byte)
    }
}

const QUANTILES_MAX: u8 = 16;

/// When the records of a segment expire, in sixteenths of those that do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Expiry {
    /// In rising order; at most [`QUANTILES_MAX`].
    quantiles: Vec<u32>,
    /// Of 1,000 records, how many expire at all.
    share: u16,
}

impl Expiry {
    pub(super) fn of(entries: &[FooterEntry]) -> Self {
        let mut times: Vec<u32> =
            entries.iter().map(|entry| entry.exptime_secs).filter(|&time| time != 0).collect();
        if times.is_empty() {
            return Self::default();
        }
        times.sort_unstable();
        let count = times.len().min(usize::from(QUANTILES_MAX));
        Self {
            quantiles: (1..=count).map(|nth| times[times.len() * nth / count - 1]).collect(),
            share: (times.len() * 1_000 / entries.len()) as u16,
        }
    }

    /// About which part of the records has expired.
    pub(super) fn expired_share(&self, now_unix_secs: u64) -> f64 {
        if self.quantiles.is_empty() {
            return 0.0;
        }
        let expired = self.quantiles.partition_point(|&time| u64::from(time) <= now_unix_secs);
        f64::from(self.share) / 1_000.0 * expired as f64 / self.quantiles.len() as f64
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.share.to_le_bytes());
        out.push(self.quantiles.len() as u8);
        out.extend(self.quantiles.iter().flat_map(|time| time.to_le_bytes()));
    }

    pub(super) fn decode(bytes: &mut Bytes<'_>) -> Option<Self> {
        let share = bytes.u16()?;
        let count = bytes.u8().filter(|&count| count <= QUANTILES_MAX)?;
        let quantiles = (0..count).map(|_| bytes.u32()).collect::<Option<_>>()?;
        Some(Self { quantiles, share })
    }
}

/// What a footer says of a record that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FooterEntry {
    pub(super) digest: Digest,
    pub(super) is_put: bool,
    pub(super) class: SizeClass,
    /// Below [`START_BYTES_MAX`].
    pub(super) offset: u64,
    pub(super) sequence: u64,
    /// Of a put, rounded down to 32 bits; 0: never.
    pub(super) exptime_secs: u32,
}

impl FooterEntry {
    pub(super) fn of(header: &Header, digest: Digest, offset: u64) -> Self {
        let is_put = header.kind == Kind::Put;
        Self {
            digest,
            is_put,
            class: SizeClass::of(header.record_bytes()),
            offset,
            sequence: header.sequence,
            exptime_secs: if is_put { u32::try_from(header.exptime_secs).unwrap_or(u32::MAX) } else { 0 },
        }
    }

    fn encode(&self, min_sequence: u64, out: &mut Vec<u8>) {
        // The tag has 60 bits, the shard 10: 64 and 6.
        let low = self.digest.tag | u64::from(self.digest.shard) << TAG_BITS;
        out.extend_from_slice(&low.to_le_bytes());
        out.extend_from_slice(&(self.digest.shard >> (64 - TAG_BITS)).to_le_bytes());
        out.extend_from_slice(&[u8::from(self.is_put), self.class.0]);
        out.extend_from_slice(&((self.offset >> 3) as u32).to_le_bytes());
        out.extend_from_slice(&((self.sequence - min_sequence) as u32).to_le_bytes());
        out.extend_from_slice(&self.exptime_secs.to_le_bytes());
    }

    /// `range`: the lowest and the highest sequence of the segment. `None`: this one is outside.
    fn decode(bytes: &[u8; FOOTER_ENTRY_BYTES], range: (u64, u64)) -> Option<Self> {
        let low = u64_at(bytes, 0);
        let shard = (low >> TAG_BITS) as u16 | u16_at(bytes, 8) << (64 - TAG_BITS);
        let sequence = range.0.checked_add(u64::from(u32_at(bytes, 16)))?;
        (sequence <= range.1).then_some(Self {
            digest: Digest { shard: shard & ((1 << SHARD_BITS) - 1), tag: low & ((1 << TAG_BITS) - 1) },
            is_put: bytes[10] == 1,
            class: SizeClass(bytes[11].min(SizeClass::LARGEST.0)),
            offset: u64::from(u32_at(bytes, 12)) << 3,
            sequence,
            exptime_secs: u32_at(bytes, 20),
        })
    }
}

/// How long a footer of so many entries is.
pub(super) const fn footer_bytes(entries: usize) -> u64 {
    padded(HEADER_BYTES + entries * FOOTER_ENTRY_BYTES) as u64
}

/// The bytes of a footer. Its sequence is the highest of the segment, its exptime the lowest.
pub(super) fn encode_footer(entries: &[FooterEntry], range: (u64, u64), seed: u32) -> Vec<u8> {
    let mut value = Vec::with_capacity(entries.len() * FOOTER_ENTRY_BYTES);
    for entry in entries {
        entry.encode(range.0, &mut value);
    }
    let header = Header {
        value_bytes: value.len(),
        value_checksum: crc32c::crc32c(&value),
        exptime_secs: range.0,
        ..Header::bare(Kind::Footer, range.1)
    };
    let mut out = Vec::with_capacity(header.padded_bytes());
    header.encode(&[], seed, &mut out);
    out.extend_from_slice(&value);
    pad(out.len(), &mut out);
    out
}

/// A footer's entries, with the lowest and the highest sequence. `None`: it is none, or says what no segment has.
pub(super) fn decode_footer(bytes: &[u8], seed: u32) -> Option<(Vec<FooterEntry>, (u64, u64))> {
    let header = Header::decode(bytes, seed).ok().filter(|header| header.kind == Kind::Footer)?;
    let value = bytes.get(HEADER_BYTES..header.record_bytes())?;
    if crc32c::crc32c(value) != header.value_checksum {
        return None;
    }
    let range = (header.exptime_secs, header.sequence);
    let (entries, rest) = value.as_chunks::<FOOTER_ENTRY_BYTES>();
    let decode = |entry| FooterEntry::decode(entry, range).filter(|entry| entry.offset < START_BYTES_MAX);
    let entries = entries.iter().map(decode).collect::<Option<_>>()?;
    rest.is_empty().then_some((entries, range))
}

/// The name of a segment's file.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{PREFIX}{number:016}")
}

/// The number in a name of a segment's file.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    (number <= NUMBER_MAX && segment_name(number) == name).then_some(number)
}

/// The next number of a file. Error: they are used up.
pub(super) fn take_number(next_number: &mut u64) -> Result<u64> {
    let number = *next_number;
    if number > NUMBER_MAX {
        return Err(Error::Full { doing: "making a file: the numbers of files are used up".to_owned() });
    }
    *next_number += 1;
    Ok(number)
}

/// Numbers that are left below that of each segment of the log, for the cold segments that are opened while it is the
/// open one.
const COLD_NUMBERS: u64 = 1_000_000;

/// The number of a segment of the log. The first one has no cold segments below it: there is nothing to copy yet.
pub(super) fn take_log_number(next_number: &mut u64) -> Result<u64> {
    if *next_number > 1 {
        *next_number = next_number.saturating_add(COLD_NUMBERS);
    }
    take_number(next_number)
}

/// The number of a cold segment, below that of the log's open one: a scan goes through the segments in the order of
/// their numbers, and what it has not visited yet may be overwritten meanwhile. `last` is the last such number.
pub(super) fn cold_number_below(open: u64, last: u64) -> Result<u64> {
    let number = (last + 1).max(open.saturating_sub(COLD_NUMBERS));
    if number >= open {
        return Err(Error::Full { doing: "making a file: the log's next one comes first".to_owned() });
    }
    Ok(number)
}

/// A segment's own header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) number: u64,
    pub(super) stream: Stream,
    /// The sequence of a log segment's first record; 0: it was prepared before that was known.
    pub(super) first_sequence: u64,
    pub(super) secret: Secret,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..10].copy_from_slice(&FORMAT.0.to_le_bytes());
        out[10..12].copy_from_slice(&FORMAT.1.to_le_bytes());
        out[12] = self.stream as u8;
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.first_sequence.to_le_bytes());
        out[32..48].copy_from_slice(&self.secret.0);
        let checksum = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let damaged = |what: &str| Error::corrupt(name, 0, what);
        let Some(head) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else {
            return Err(damaged("it is too short for a segment"));
        };
        if head[..8] != *MAGIC {
            return Err(damaged("it does not begin as a segment does"));
        }
        if u32_at(head, 60) != crc32c::crc32c(&head[..60]) {
            return Err(damaged("the checksum of its header does not match"));
        }
        refuse_newer(name, (u16_at(head, 8), u16_at(head, 10)))?;
        let stream = Stream::from_byte(head[12]).ok_or_else(|| damaged("it is of no known stream"))?;
        if u64_at(head, 24) > SEQUENCE_MAX {
            return Err(damaged("its sequence number is out of range"));
        }
        let mut secret = [0; 16];
        secret.copy_from_slice(&head[32..48]);
        Ok(Self {
            number: u64_at(head, 16),
            stream,
            first_sequence: u64_at(head, 24),
            secret: Secret(secret),
        })
    }
}

/// One file of the log, open.
pub(super) struct Segment {
    pub(super) number: u64,
    /// In the table; index entries name it.
    pub(super) slot: u32,
    pub(super) stream: Stream,
    pub(super) file: Arc<dyn File>,
    /// Of the checksums of its records.
    pub(super) seed: u32,
    /// Where its data ends: up to here its records are whole, and may be read.
    pub(super) data_bytes: AtomicU64,
    /// Number of bytes that are durable, and number of writes covered by the last sync of the segment.
    pub(super) durable_bytes: AtomicU64,
    pub(super) synced_writes: AtomicU64,
    pub(super) file_bytes: AtomicU64,
    /// The number of an open segment's records with keys, each of which has an entry in the footer.
    pub(super) entry_count: AtomicU64,
    pub(super) sealed: AtomicBool,
    /// It is no longer part of the store; its file goes as soon as the manifest says so.
    pub(super) retired: AtomicBool,
    /// Cleaning met damage in it, and leaves it alone.
    pub(super) damaged: AtomicBool,
    /// Of its records with keys. `u64::MAX` and 0 if it has none.
    pub(super) min_sequence: AtomicU64,
    pub(super) max_sequence: AtomicU64,
    /// Sums of the size classes: of all its records with keys, and of those that the index names.
    pub(super) all_class_bytes: AtomicU64,
    pub(super) live_class_bytes: AtomicI64,
    /// The newest prefix flush up to which its flushed records are known.
    pub(super) counted_flush: AtomicU64,
    /// Up to which second its expired records are known; 0: nobody has looked.
    pub(super) swept_secs: AtomicU64,
    /// Of a replicated store: no tombstone that the index names here has a higher version; 0: there is none to look at.
    pub(super) tombstone_version: AtomicU64,
    /// Of a replicated store: expired items that were copied here, since others may ask for them, have at most this.
    pub(super) kept_version: AtomicU64,
    pub(super) expiry: Mutex<Expiry>,
}

impl Segment {
    pub(super) fn name(&self) -> String {
        segment_name(self.number)
    }

    /// Which part of its records is live, as far as is known without reading it.
    pub(super) fn live_share(&self) -> f64 {
        let all = self.all_class_bytes.load(Relaxed);
        if all == 0 {
            return 0.0;
        }
        (self.live_class_bytes.load(Relaxed).max(0) as f64 / all as f64).min(1.0)
    }

    pub(super) fn live_bytes(&self) -> u64 {
        (self.record_bytes() as f64 * self.live_share()) as u64
    }

    /// A batch was written to it.
    pub(super) fn has_records(&self) -> bool {
        self.min_sequence.load(Relaxed) <= self.max_sequence.load(Relaxed)
    }

    /// Its data, without its own header.
    pub(super) fn record_bytes(&self) -> u64 {
        self.data_bytes.load(Relaxed).saturating_sub(SEGMENT_HEADER_BYTES as u64)
    }

    /// The length of the file of an open segment if it were sealed now.
    pub(super) fn filled_bytes(&self) -> u64 {
        self.data_bytes.load(Relaxed) + footer_bytes(self.entry_count.load(Relaxed) as usize)
    }

    /// The index names one record more, or one fewer.
    pub(super) fn count_live(&self, class: SizeClass, sign: i64) {
        self.live_class_bytes.fetch_add(sign * class.bytes() as i64, Relaxed);
    }

    pub(super) fn location(&self, offset: u64) -> Location {
        Location { slot: self.slot, offset }
    }

    pub(super) fn expired_share(&self, now_unix_secs: u64) -> f64 {
        self.expiry.lock().unwrap_or_else(PoisonError::into_inner).expired_share(now_unix_secs)
    }

    /// Have records of it expired since somebody looked, as far as is known without reading it?
    pub(super) fn may_have_expired_since_sweep(&self, now_unix_secs: u64) -> bool {
        let expiry = self.expiry.lock().unwrap_or_else(PoisonError::into_inner);
        // If the clock has been set back since the last sweep, records may expire again from the present time on.
        let swept_secs = self.swept_secs.fetch_min(now_unix_secs, Relaxed).min(now_unix_secs);
        !self.sealed.load(Relaxed) || expiry.expired_share(swept_secs) < expiry.expired_share(now_unix_secs)
    }

    /// The log is synced before an image of it is published ([`LogStore::capture`](super::LogStore)).
    pub(super) fn image(&self) -> SegmentImage {
        let sealed = self.sealed.load(Acquire);
        let is_durable = sealed || self.stream == Stream::Log;
        let data = if is_durable { &self.data_bytes } else { &self.durable_bytes };
        SegmentImage {
            number: self.number,
            stream: self.stream,
            sealed,
            data_bytes: data.load(Relaxed),
            file_bytes: if sealed { self.file_bytes.load(Relaxed) } else { 0 },
            min_sequence: self.min_sequence.load(Relaxed),
            max_sequence: self.max_sequence.load(Relaxed),
            expiry: self.expiry.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// The entries of a sealed segment, from its footer.
    pub(super) fn read_footer(&self) -> Result<Vec<FooterEntry>> {
        let start = self.data_bytes.load(Relaxed);
        let length = self.file_bytes.load(Relaxed).saturating_sub(start);
        if length > FOOTER_BYTES_MAX {
            return Err(Error::corrupt(&self.name(), start, "the footer is too long"));
        }
        let mut bytes = vec![0; length as usize];
        let count = self.read(&mut bytes, start)?;
        match decode_footer(&bytes[..count], self.seed) {
            Some((entries, _)) => Ok(entries),
            None => Err(Error::corrupt(&self.name(), start, "the footer does not match its checksum")),
        }
    }

    /// Without waiting for the disk; `None`: that cannot be, or an error, which a read that waits will meet again.
    pub(super) fn try_read(&self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        self.file.try_read_at(buffer, offset).ok()
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        (self.file.read_at(buffer, offset))
            .map_err(|error| Error::io(format!("reading {} at byte {offset}", self.name()), error))
    }

    /// An error that says why a header is none.
    pub(super) fn bad_header(&self, offset: u64, bad: BadHeader) -> Error {
        match bad {
            BadHeader::Newer(kind) => {
                Error::NewerFormat { file: self.name(), format: format!("1 with records of kind {kind}") }
            }
            BadHeader::Zeros => Error::corrupt(&self.name(), offset, "there is no record"),
            BadHeader::Sequence => Error::corrupt(&self.name(), offset, "a sequence number is out of range"),
            BadHeader::Checksum => {
                Error::corrupt(&self.name(), offset, "the checksum of a record's header does not match")
            }
        }
    }
}

/// All segments by slot.
#[derive(Default)]
pub(super) struct SegmentTable {
    /// Slot 0 is none.
    slots: RwLock<Vec<Option<Arc<Segment>>>>,
}

impl SegmentTable {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Vec<Option<Arc<Segment>>>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The segment that an index entry names. Its entry's shard is locked, so it is there.
    pub(super) fn get(&self, slot: u32) -> Option<Arc<Segment>> {
        self.read().get(slot as usize).cloned().flatten()
    }

    /// All, in order of their numbers.
    pub(super) fn all(&self) -> Vec<Arc<Segment>> {
        let mut all: Vec<_> = self.read().iter().flatten().cloned().collect();
        all.sort_unstable_by_key(|segment| segment.number);
        all
    }

    /// The one with the lowest number from `number` on, as of now: a scan asks anew after each, since there may be new
    /// ones.
    pub(super) fn first_from(&self, number: u64) -> Option<Arc<Segment>> {
        let all = self.read();
        let later = all.iter().flatten().filter(|segment| segment.number >= number);
        later.min_by_key(|segment| segment.number).cloned()
    }

    /// Puts a segment into a free slot, which it is made with.
    pub(super) fn insert(&self, make: impl FnOnce(u32) -> Segment) -> Result<Arc<Segment>> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if slots.is_empty() {
            slots.push(None);
        }
        let slot = (1..slots.len()).find(|&slot| slots[slot].is_none()).unwrap_or(slots.len());
        if slot >= SLOTS_MAX {
            return Err(Error::Full { doing: "making a segment: there are a million already".to_owned() });
        }
        let segment = Arc::new(make(slot as u32));
        if slot == slots.len() {
            slots.push(None);
        }
        slots[slot] = Some(segment.clone());
        Ok(segment)
    }

    /// Puts a segment into the slot that it had before.
    pub(super) fn insert_at(&self, segment: Segment) -> Option<Arc<Segment>> {
        let slot = segment.slot as usize;
        if slot == 0 || slot >= SLOTS_MAX {
            return None;
        }
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        if slots[slot].is_some() {
            return None;
        }
        slots[slot] = Some(Arc::new(segment));
        slots[slot].clone()
    }

    pub(super) fn remove(&self, slot: u32) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = slots.get_mut(slot as usize) {
            *place = None;
        }
    }
}

impl Segment {
    /// A segment around an open file.
    pub(super) fn new(header: &SegmentHeader, slot: u32, file: Arc<dyn File>) -> Self {
        Self {
            number: header.number,
            slot,
            stream: header.stream,
            file,
            seed: header.secret.checksum_seed(header.number),
            data_bytes: AtomicU64::new(SEGMENT_HEADER_BYTES as u64),
            durable_bytes: AtomicU64::new(SEGMENT_HEADER_BYTES as u64),
            synced_writes: AtomicU64::new(0),
            file_bytes: AtomicU64::new(0),
            entry_count: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            min_sequence: AtomicU64::new(u64::MAX),
            max_sequence: AtomicU64::new(0),
            all_class_bytes: AtomicU64::new(0),
            live_class_bytes: AtomicI64::new(0),
            counted_flush: AtomicU64::new(0),
            swept_secs: AtomicU64::new(0),
            tombstone_version: AtomicU64::new(0),
            kept_version: AtomicU64::new(0),
            expiry: Mutex::new(Expiry::default()),
        }
    }
}

/// Makes the file of a segment: allocated, its header written, all of it durable, its name too.
pub(super) fn create_file(
    files: &dyn Files,
    header: &SegmentHeader,
    file_bytes: u64,
) -> std::result::Result<Arc<dyn File>, (io::Error, bool)> {
    let name = segment_name(header.number);
    let made = files.create(&name).map_err(|error| (error, false)).and_then(|file| {
        file.allocate(file_bytes).map_err(|error| (error, false))?;
        file.write_at(&[IoSlice::new(&header.encode())], 0).map_err(|error| (error, false))?;
        // No manifest names the file yet, and the next attempt makes another one.
        let failed = |error: io::Error| {
            let is_final = !Error::can_pass(&error);
            (error, is_final)
        };
        file.sync().map_err(failed)?;
        super::manifest::sync_dir(files).map_err(failed)?;
        Ok(file)
    });
    if made.is_err() {
        let _ = files.remove(&name);
    }
    made
}
