//! The keys in the file of an interrupted dump, so that the dump can continue.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufReader, Seek as _, SeekFrom};

use siphasher::sip128::SipHasher13;

use super::record::{Reader, Unreadable};
use crate::Failure;

/// The keys that need not be requested again. Takes 16 bytes for each.
pub(crate) struct Kept {
    secrets: (u64, u64),
    fingerprints: HashSet<u128>,
    pub records: u64,
    pub is_complete: bool,
}

impl Kept {
    /// For a new dump.
    pub(crate) fn nothing() -> Self {
        let secret = || RandomState::new().hash_one(0);
        Self { secrets: (secret(), secret()), fingerprints: HashSet::new(), records: 0, is_complete: false }
    }

    /// Reads a file, removes an incomplete record, and leaves the file at the position for the next one.
    pub(crate) fn read(name: &str, file: &mut File) -> Result<Self, Failure> {
        let refuse = |unreadable| match unreadable {
            Unreadable::Malformed(why) => Failure::Data(format!("{name}: {why}")),
            Unreadable::Io(error) => Failure::Failed(format!("{name}: {error}")),
            Unreadable::Cut => Failure::Data(format!("{name}: there is nothing to go on with")),
        };
        let mut kept = Self::nothing();
        let mut reader = Reader::begin(BufReader::new(&mut *file)).map_err(refuse)?;
        loop {
            match reader.read() {
                Ok(Some(record)) => kept.add(&record.key),
                Ok(None) | Err(Unreadable::Cut) => break,
                Err(unreadable) => return Err(refuse(unreadable)),
            }
        }
        kept.is_complete = reader.is_complete;
        let position_bytes = reader.position_bytes;
        let cut = file.set_len(position_bytes).and_then(|()| file.seek(SeekFrom::Start(position_bytes)));
        cut.map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
        Ok(kept)
    }

    pub(crate) fn add(&mut self, key: &[u8]) {
        self.fingerprints.insert(self.fingerprint(key));
        self.records += 1;
    }

    /// True if this key is one of them.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        !self.fingerprints.is_empty() && self.fingerprints.contains(&self.fingerprint(key))
    }

    /// 128 bits, with a secret key: a collision is not expected, even if a client tries to make one.
    fn fingerprint(&self, key: &[u8]) -> u128 {
        SipHasher13::new_with_keys(self.secrets.0, self.secrets.1).hash(key).as_u128()
    }
}
