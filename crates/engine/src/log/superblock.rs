//! The first page of a file that a cache is kept in: what the next process has to know of it.
//!
//! ```text
//! word
//!    0  the letters "larderwm"
//!    1  format version (32) | size of a segment's metadata (16) | size of a counter of CAS values (16)
//!    2  bytes of a segment
//!    3  segments of the log proper
//!    4  segments of the address space of runs
//!  5-6  key of the hash
//!    7  seed of the items' checksums
//!   15  checksum of words 0 to 14
//!
//!   16  state: 0 or 1, in use; 2: kept by an orderly stop
//!   17  Unix time of second 0
//!   18  the last second in which the cache was in use
//!   19  the flush mark
//!   20  a flush to come: the flush mark when it was asked for (32) | its second (32); 0: none
//!   21  no CAS value from here on was given by an earlier process
//!   22  counters of CAS values in use
//!   23  segments that have metadata
//!   24  units of runs that have metadata
//!   25  items, as a hint
//!   26  the family that the file belongs to, as whoever opens it says; 0: nobody has said it
//!   31  checksum of words 16 to 30, in state 2
//! ```
//!
//! The other parts of the file begin at multiples of a page: the counters of CAS values, the metadata of the segments,
//! the log. Words from 16 on change while the cache is in use, each by itself and in an order in which a process that
//! ends at any moment leaves a state that the next one can go on from. Numbers are as this machine writes them; on one
//! that writes them differently the first words are not what they should be.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::index::buckets::LOG_BYTES_MAX;
use crate::log::segment::{Segment, run_unit_bytes};
use crate::mem::cache_padded::CachePadded;
use crate::mem::file::BackingFile;
use crate::mem::region::{LARGE_PAGE_BYTES, PAGE_BYTES};
use crate::mem::table::{FilePart, Table};

/// Changes with the meaning of anything in the file, the layout of an item included.
/// Version 2 added expiry times by the wall clock, version 3 units of runs.
const FORMAT_VERSION: u64 = 3;
const MAGIC: u64 = u64::from_ne_bytes(*b"larderwm");
const CONSTANT_WORDS: usize = 16;
const WORDS: usize = PAGE_BYTES / size_of::<u64>();
const CLEAN: u64 = 2;
const FAMILY_WORD: usize = 26;

/// Counters of CAS values that the file has room for: one for each handle.
pub(crate) const CAS_COUNTERS_MAX: usize = 8192;

/// A counter of CAS values.
pub(crate) type CasCounter = CachePadded<crate::sync::AtomicU64>;

/// How the log is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// A power of two.
    pub(crate) segment_bytes: usize,
    /// Segments with address space: more than the initial memory is enough for, so that the limit can be raised.
    pub(crate) segments: u32,
    /// Address space for runs, in segments.
    pub(crate) run_segments: u32,
}

impl Geometry {
    pub(crate) fn log_bytes(&self) -> usize {
        (self.segments as usize + self.run_segments as usize) * self.segment_bytes
    }

    /// Address space for runs, in their units.
    pub(crate) fn run_units(&self) -> u32 {
        self.run_segments * (self.segment_bytes / run_unit_bytes(self.segment_bytes)) as u32
    }

    fn is_possible(&self) -> bool {
        let segments_max = LOG_BYTES_MAX / self.segment_bytes.max(1);
        self.segment_bytes.is_power_of_two()
            && (crate::engine::SEGMENT_BYTES_MIN..=crate::engine::SEGMENT_BYTES_MAX)
                .contains(&self.segment_bytes)
            && self.segments > 0
            && self.segments as usize + self.run_segments as usize <= segments_max
    }

    const CAS_OFFSET: u64 = PAGE_BYTES as u64;
    const SEGMENTS_OFFSET: u64 =
        Self::CAS_OFFSET + (CAS_COUNTERS_MAX * size_of::<CasCounter>()).next_multiple_of(PAGE_BYTES) as u64;

    fn log_offset(&self) -> u64 {
        let metadata = (self.segments as usize + self.run_units() as usize) * size_of::<Segment>();
        (Self::SEGMENTS_OFFSET + metadata as u64).next_multiple_of(LARGE_PAGE_BYTES as u64)
    }

    /// The length of the file. Most of it has no memory.
    fn file_bytes(&self) -> u64 {
        self.log_offset() + self.log_bytes() as u64
    }
}

/// What does not change as long as the contents are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Constants {
    pub(crate) geometry: Geometry,
    pub(crate) hash_key: [u64; 2],
    /// Secret, as the hash key is: a client cannot store what looks like an item with the right checksum.
    pub(crate) checksum_seed: u32,
}

/// What a file contains, by its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Nothing yet.
    Nothing,
    /// A cache, perhaps.
    Cache(Constants),
    /// Larder's file, but nothing that this version can go on with.
    Unusable(Unusable),
    /// Not larder's.
    Foreign,
}

/// Whose a file is, by its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is empty.
    Nobody,
    /// Something else than larder made it.
    Other,
    /// Larder, for a cache, whether or not that can be kept.
    Larder {
        /// [`crate::CacheFile::family`] of whoever had it last; 0: that did not say it.
        family: u64,
    },
}

/// Why the contents of a file of larder's cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Another version of larder wrote it; the format's version.
    Version(u32),
    /// It was never finished: the process that made it ended first.
    Unfinished,
    /// Its description has changed since it was written.
    Corrupt,
    /// It is shorter than it was made.
    Truncated,
}

impl Constants {
    fn to_words(self) -> [u64; CONSTANT_WORDS] {
        let Geometry { segment_bytes, segments, run_segments } = self.geometry;
        let mut words = [0; CONSTANT_WORDS];
        let [hash_key_low, hash_key_high] = self.hash_key;
        let described = [
            MAGIC,
            layout_word(),
            segment_bytes as u64,
            segments.into(),
            run_segments.into(),
            hash_key_low,
            hash_key_high,
            self.checksum_seed.into(),
        ];
        words[..described.len()].copy_from_slice(&described);
        words[CONSTANT_WORDS - 1] = checksum(words[..CONSTANT_WORDS - 1].iter().copied());
        words
    }

    fn of_words(words: &[u64; CONSTANT_WORDS]) -> Result<Self, Unusable> {
        if words[1..].iter().all(|&word| word == 0) {
            return Err(Unusable::Unfinished);
        }
        if words[1] >> 32 != FORMAT_VERSION {
            return Err(Unusable::Version((words[1] >> 32) as u32));
        }
        let number = |word: u64| u32::try_from(word).map_err(|_| Unusable::Corrupt);
        let geometry = Geometry {
            segment_bytes: number(words[2])? as usize,
            segments: number(words[3])?,
            run_segments: number(words[4])?,
        };
        let is_whole = words[CONSTANT_WORDS - 1] == checksum(words[..CONSTANT_WORDS - 1].iter().copied());
        if !is_whole || words[1] != layout_word() || !geometry.is_possible() {
            return Err(Unusable::Corrupt);
        }
        Ok(Self { geometry, hash_key: [words[5], words[6]], checksum_seed: number(words[7])? })
    }
}

fn layout_word() -> u64 {
    FORMAT_VERSION << 32 | (size_of::<Segment>() as u64) << 16 | size_of::<CasCounter>() as u64
}

fn checksum(words: impl Iterator<Item = u64>) -> u64 {
    let mut checksum = crc32fast::Hasher::new();
    words.for_each(|word| checksum.update(&word.to_ne_bytes()));
    checksum.finalize().into()
}

/// What the words say that change while the cache is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// An orderly stop left the cache as it is.
    pub(crate) is_clean: bool,
    /// Unix time of second 0.
    pub(crate) zero_unix_secs: u64,
    pub(crate) used_secs: u32,
    pub(crate) flush_mark: u32,
    pub(crate) flush_at: u32,
    pub(crate) cas_end: u64,
    pub(crate) cas_counters: usize,
    pub(crate) segments_end: u32,
    pub(crate) runs_end: u32,
    /// A hint.
    pub(crate) items: u64,
}

/// The first page of the file of a cache that is in use.
pub(crate) struct Superblock {
    file: Arc<BackingFile>,
    words: Table<AtomicU64>,
    constants: Constants,
}

impl Superblock {
    /// Looks at a file.
    pub(crate) fn examine(file: &BackingFile) -> io::Result<Contents> {
        let file_bytes = file.len_bytes()?;
        if file_bytes == 0 {
            return Ok(Contents::Nothing);
        }
        let mut bytes = [0; CONSTANT_WORDS * 8];
        let read_bytes = file_bytes.min(bytes.len() as u64) as usize;
        file.read(&mut bytes[..read_bytes], 0)?;
        let mut words = [0; CONSTANT_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        if words[0] != MAGIC {
            return Ok(Contents::Foreign);
        }
        Ok(match Constants::of_words(&words) {
            _ if file_bytes < PAGE_BYTES as u64 => Contents::Unusable(Unusable::Truncated),
            Ok(constants) if file_bytes < constants.geometry.file_bytes() => {
                Contents::Unusable(Unusable::Truncated)
            }
            Ok(constants) => Contents::Cache(constants),
            Err(unusable) => Contents::Unusable(unusable),
        })
    }

    /// Whose a file is; nobody needs to have locked it. It is believed whatever else the first page says: its place is
    /// the same in all formats.
    pub(crate) fn owner(file: &File) -> io::Result<Owner> {
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(Owner::Other);
        }
        if found.len() == 0 {
            return Ok(Owner::Nobody);
        }
        let word = |number: usize| {
            let mut bytes = [0; 8];
            match file.read_exact_at(&mut bytes, number as u64 * 8) {
                // Somebody has made it shorter.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                read => read.map(|()| u64::from_ne_bytes(bytes)),
            }
        };
        Ok(if word(0)? == MAGIC { Owner::Larder { family: word(FAMILY_WORD)? } } else { Owner::Other })
    }

    /// Empties a file, and makes it ready for a cache. A process that ends meanwhile leaves a file that is known to be
    /// larder's, and unfinished.
    pub(crate) fn format(
        file: &Arc<BackingFile>,
        constants: Constants,
        zero_unix_secs: u64,
    ) -> io::Result<Self> {
        let mut page = [0; PAGE_BYTES];
        page[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        file.write(&page, 0)?;
        // What is cut off, and added again, is zeros.
        file.set_len_bytes(PAGE_BYTES as u64)?;
        file.set_len_bytes(constants.geometry.file_bytes())?;
        let superblock = Self::map(file, constants)?;
        superblock.set_zero(zero_unix_secs);
        for (number, word) in constants.to_words().into_iter().enumerate().skip(1) {
            superblock.words[number].store(word, Release);
        }
        Ok(superblock)
    }

    /// Maps the first page of a file that has a cache.
    pub(crate) fn map(file: &Arc<BackingFile>, constants: Constants) -> io::Result<Self> {
        let words = Table::map(&FilePart { file: Arc::clone(file), offset: 0 }, WORDS)?;
        if !words.commit(0..WORDS) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(Self { file: Arc::clone(file), words, constants })
    }

    pub(crate) fn constants(&self) -> &Constants {
        &self.constants
    }

    pub(crate) fn cas_part(&self) -> FilePart {
        FilePart { file: Arc::clone(&self.file), offset: Geometry::CAS_OFFSET }
    }

    pub(crate) fn segments_part(&self) -> FilePart {
        FilePart { file: Arc::clone(&self.file), offset: Geometry::SEGMENTS_OFFSET }
    }

    pub(crate) fn log_part(&self) -> FilePart {
        FilePart { file: Arc::clone(&self.file), offset: self.constants.geometry.log_offset() }
    }

    /// What the last process left. Numbers are within their bounds, whatever the file says.
    pub(crate) fn left(&self) -> Left {
        let geometry = &self.constants.geometry;
        let word = |number: usize| self.words[number].load(Acquire);
        let small = |number: usize| word(number).min(u32::MAX.into()) as u32;
        let (flush_mark, pending) = (small(19), word(20));
        Left {
            is_clean: word(16) == CLEAN && word(31) == self.state_checksum(),
            zero_unix_secs: word(17),
            used_secs: small(18),
            flush_mark,
            flush_at: if (pending >> 32) as u32 == flush_mark { pending as u32 } else { 0 },
            cas_end: word(21),
            cas_counters: (word(22) as usize).min(CAS_COUNTERS_MAX),
            segments_end: small(23).min(geometry.segments),
            runs_end: small(24).min(geometry.run_units()),
            items: word(25),
        }
    }

    fn state_checksum(&self) -> u64 {
        checksum((CONSTANT_WORDS..31).map(|number| self.words[number].load(Acquire)))
    }

    /// The file belongs to this family from now on.
    pub(crate) fn set_family(&self, family: u64) {
        self.words[FAMILY_WORD].store(family, Release);
    }

    /// The file is in use.
    pub(crate) fn set_in_use(&self) {
        self.words[16].store(1, SeqCst);
    }

    /// The cache is not changed any more, and its file may be taken as it is.
    pub(crate) fn set_clean(&self, items: u64) {
        self.words[25].store(items, Relaxed);
        self.words[16].store(CLEAN, Relaxed);
        self.words[31].store(self.state_checksum(), Release);
    }

    pub(crate) fn set_zero(&self, unix_secs: u64) {
        self.words[17].store(unix_secs, Release);
    }

    /// Notes that the cache is in use in this second, with about so many items.
    pub(crate) fn tick(&self, now_secs: u32, items: u64) {
        self.words[18].store(now_secs.into(), Relaxed);
        self.words[25].store(items, Relaxed);
    }

    /// A flush was carried out; a pending one is none any more.
    pub(crate) fn note_flush(&self, flush_mark: u32) {
        self.words[19].fetch_max(flush_mark.into(), AcqRel);
    }

    /// A flush is to come; 0: none.
    pub(crate) fn set_pending_flush(&self, flush_mark: u32, at: u32) {
        let word = if at == 0 { 0 } else { u64::from(flush_mark) << 32 | u64::from(at) };
        self.words[20].store(word, Release);
    }

    /// CAS values below `end` count as given; from there on they are counted by so many counters.
    pub(crate) fn set_cas(&self, end: u64, counters: usize) {
        self.words[21].fetch_max(end, AcqRel);
        self.words[22].fetch_max(counters as u64, AcqRel);
    }

    /// Segments below this number, or runs, have metadata.
    pub(crate) fn note_metadata(&self, is_run: bool, end: u32) {
        self.words[23 + usize::from(is_run)].fetch_max(end.into(), AcqRel);
    }
}
