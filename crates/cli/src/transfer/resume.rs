//! What an interrupted dump has done already: the keys that a file has, so that a dump can go on behind it.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufReader, Seek as _, SeekFrom};

use siphasher::sip128::SipHasher13;

use super::record::{Reader, Unreadable};
use crate::Failure;

/// The keys that need not be asked for again. Holds 16 bytes for each.
pub(crate) struct Kept {
    secrets: (u64, u64),
    fingerprints: HashSet<u128>,
    pub records: u64,
    pub is_complete: bool,
}

impl Kept {
    /// Of a dump that begins.
    pub(crate) fn nothing() -> Self {
        let secret = || RandomState::new().hash_one(0);
        Self { secrets: (secret(), secret()), fingerprints: HashSet::new(), records: 0, is_complete: false }
    }

    /// Reads a file, cuts off a record that is not whole, and leaves the file so that the next can be written.
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

    /// Whether this key is one of them.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        !self.fingerprints.is_empty() && self.fingerprints.contains(&self.fingerprint(key))
    }

    /// 128 bits, keyed: that two keys share one is not to be expected, even if somebody wanted it.
    fn fingerprint(&self, key: &[u8]) -> u128 {
        SipHasher13::new_with_keys(self.secrets.0, self.secrets.1).hash(key).as_u128()
    }
}
