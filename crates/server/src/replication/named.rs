//! The keys that a copy has named, in a file: what the copy lacks is what the taker sweeps.
//!
//! A key is kept as a digest of 96 bits, keyed at random, and a checksum of 32, so that the file has 16 bytes a key,
//! whatever its length. What a damaged one had named would be deleted everywhere. The digests are looked through in
//! parts, by their highest bits, so that memory is bounded however many there are.

use std::fs::{File, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::startup::random;

/// What a copy has named so far.
pub(super) struct Named {
    file: File,
    hash_key: [u8; DIGEST_BYTES],
    /// Digests in the file. A key that was named twice counts twice.
    count: u64,
}

/// Some of the digests: those that fall into one of so many parts. Sorted once the whole file is read.
pub(super) struct Part {
    digests: Vec<u128>,
    part: u64,
    parts: u64,
    /// Digests of the file that were read.
    read: u64,
}

impl Named {
    /// An empty file in place of what was there.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        let hash_key = random::bytes()?;
        file.write_all(&hash_key)?;
        file.sync_all()?;
        Ok(Self { file, hash_key, count: 0 })
    }

    /// The file with this [id](Self::id), which has to have so many digests. What is behind them is dropped: it is of a
    /// piece that comes again. Errors: it is another one, or has less.
    pub(super) fn open(path: &Path, id: u64, count: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut hash_key = [0; DIGEST_BYTES];
        file.read_exact(&mut hash_key)?;
        let found = (file.metadata()?.len() / DIGEST_BYTES as u64).saturating_sub(1);
        if found < count {
            return Err(io::Error::other("keys that the copy has named are missing"));
        }
        file.set_len((count + 1) * DIGEST_BYTES as u64)?;
        file.seek(SeekFrom::End(0))?;
        let named = Self { file, hash_key, count };
        if named.id() != id {
            return Err(io::Error::other("another copy has named these keys"));
        }
        Ok(named)
    }

    /// No other file has it.
    pub(super) fn id(&self) -> u64 {
        self.digest(b"") as u64
    }

    /// Digests in the file.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds keys, durably.
    pub(super) fn add<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> io::Result<()> {
        let digests: Vec<u8> = keys.flat_map(|key| self.digest(key).to_le_bytes()).collect();
        if digests.is_empty() {
            return Ok(());
        }
        self.file.write_all(&digests)?;
        self.file.sync_data()?;
        self.count += (digests.len() / DIGEST_BYTES) as u64;
        Ok(())
    }

    /// In how many parts to look through it, so that one has about so many digests.
    pub(super) fn parts(&self, digests_max: u64) -> u64 {
        self.count.div_ceil(digests_max.max(1)).max(1)
    }

    /// Reads on for a part, so many digests at most. False: it has all that belong to it. Errors: also if one is
    /// damaged.
    pub(super) fn read_on(&mut self, part: &mut Part, digests_max: u64) -> io::Result<bool> {
        let end = self.count.min(part.read.saturating_add(digests_max));
        self.file.seek(SeekFrom::Start((part.read + 1) * DIGEST_BYTES as u64))?;
        let mut reader = BufReader::with_capacity(1 << 20, &self.file);
        let mut bytes = [0; DIGEST_BYTES];
        while part.read < end {
            reader.read_exact(&mut bytes)?;
            part.read += 1;
            let digest = u128::from_le_bytes(bytes);
            if digest != self.with_checksum(digest >> CHECKSUM_BITS) {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "a key that the copy has named is damaged",
                ));
            }
            if part.has_place_for(digest) {
                part.digests.push(digest);
            }
        }
        if part.read < self.count {
            return Ok(true);
        }
        part.digests.sort_unstable();
        part.digests.dedup();
        Ok(false)
    }

    pub(super) fn digest(&self, key: &[u8]) -> u128 {
        self.with_checksum(self.hash(key) >> CHECKSUM_BITS)
    }

    fn with_checksum(&self, digest: u128) -> u128 {
        digest << CHECKSUM_BITS | self.hash(&digest.to_le_bytes()) >> (u128::BITS - CHECKSUM_BITS)
    }

    fn hash(&self, bytes: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.hash_key);
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }
}

impl Part {
    /// Of which nothing is read yet.
    pub(super) fn new(part: u64, parts: u64) -> Self {
        Self { digests: Vec::new(), part, parts, read: 0 }
    }

    /// The next one; `None`: it was the last.
    pub(super) fn next(&self) -> Option<Self> {
        let next = self.part + 1;
        (next < self.parts).then(|| Self::new(next, self.parts))
    }

    /// True if the key of this digest falls into this part, and was not named.
    pub(super) fn lacks(&self, digest: u128) -> bool {
        self.has_place_for(digest) && self.digests.binary_search(&digest).is_err()
    }

    fn has_place_for(&self, digest: u128) -> bool {
        ((digest >> 64) * u128::from(self.parts)) >> 64 == u128::from(self.part)
    }
}

const DIGEST_BYTES: usize = 16;
/// Of these, at the end.
const CHECKSUM_BITS: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_named_is_found_in_one_part_and_after_a_restart() {
        let path = std::env::temp_dir().join(format!("larder-named-{}", std::process::id()));
        let mut named = Named::create(&path).expect("is made");
        let id = named.id();
        let keys: Vec<String> = (0..1000).map(|number| format!("key{number}")).collect();
        named.add(keys[..600].iter().map(String::as_bytes)).expect("is written");
        drop(named);
        assert!(Named::open(&path, id, 601).is_err(), "some are missing");
        assert!(Named::open(&path, !id, 600).is_err(), "of another copy");
        let mut named = Named::open(&path, id, 500).expect("is there");
        named.add(keys[500..900].iter().map(String::as_bytes)).expect("is written");
        assert_eq!((named.count(), named.parts(300), named.parts(10_000)), (900, 3, 1));
        let mut lacking = Vec::new();
        for part in 0..3 {
            let mut found = Part::new(part, 3);
            let mut steps = 1;
            while named.read_on(&mut found, 100).expect("is read") {
                steps += 1;
            }
            assert_eq!((steps, found.next().is_some()), (9, part < 2));
            assert!(found.digests.len() < 400, "about a third: {}", found.digests.len());
            lacking.extend(keys.iter().filter(|key| found.lacks(named.digest(key.as_bytes()))));
        }
        lacking.sort();
        assert_eq!(lacking, keys[900..].iter().collect::<Vec<_>>());
        std::fs::remove_file(&path).expect("is there");
    }
}
