//! What every driver refuses.

use crate::entry::{
    BATCH_BYTES_MAX, Entry, FLUSH_EXCEPTIONS_BYTES_MAX, KEY_BYTES_MAX, NOTE_BYTES_MAX, NOTE_NAME_BYTES_MAX,
    NOTES_MAX, Put, VALUE_BYTES_MAX,
};
use crate::error::{Error, Result};

/// An error if the batch cannot be kept.
pub(crate) fn validate_batch(entries: &[Entry<'_>]) -> Result<()> {
    let mut batch_bytes = 0;
    for entry in entries {
        if entry.key().len() > KEY_BYTES_MAX {
            return Err(Error::Invalid { what: "its key has more than 65,535 bytes" });
        }
        if entry.has_key() && entry.key().is_empty() {
            return Err(Error::Invalid { what: "its key is empty" });
        }
        validate_expiry(entry)?;
        let value_bytes = match entry {
            Entry::Put(put) => put.value_bytes(),
            Entry::Flush { prefix, except, .. } => {
                validate_exceptions(prefix, except)?;
                exceptions_bytes(except)
            }
            Entry::Note { name, value } => {
                validate_note(name, value)?;
                value.len()
            }
            _ => 0,
        };
        if value_bytes > VALUE_BYTES_MAX {
            return Err(Error::Invalid { what: "its value has more than 1 GiB" });
        }
        batch_bytes += value_bytes + entry.key().len() + 64;
    }
    if entries.len() > 1 && batch_bytes > BATCH_BYTES_MAX {
        return Err(Error::Invalid { what: "it is in a batch of several that has more than 32 MiB" });
    }
    Ok(())
}

fn validate_expiry(entry: &Entry<'_>) -> Result<()> {
    let (version, of_value, of_expiry) = match *entry {
        Entry::Put(Put { version, expiry_value_version, expiry_version, .. }) => {
            let or_own = |other| if other == 0 { version } else { other };
            (version, or_own(expiry_value_version), or_own(expiry_version))
        }
        Entry::Touch { version, expiry_value_version, expiry_version, .. } => {
            (version.max(1), expiry_value_version, expiry_version)
        }
        _ => return Ok(()),
    };
    if of_value < version || of_expiry < of_value {
        return Err(Error::Invalid { what: "its expiry is older than its value" });
    }
    Ok(())
}

fn validate_note(name: &[u8], value: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NOTE_NAME_BYTES_MAX {
        return Err(Error::Invalid { what: "it is a note whose name has not 1 to 64 bytes" });
    }
    if value.len() > NOTE_BYTES_MAX {
        return Err(Error::Invalid { what: "it is a note of more than 1 KiB" });
    }
    Ok(())
}

/// An error if the notes of this batch would be too many, beside those that are there.
pub(crate) fn validate_notes(
    entries: &[Entry<'_>],
    is_there: impl Fn(&[u8]) -> bool,
    count: usize,
) -> Result<()> {
    let mut new: Vec<&[u8]> = (entries.iter())
        .filter_map(|entry| match entry {
            Entry::Note { name, .. } if !is_there(name) => Some(*name),
            _ => None,
        })
        .collect();
    new.sort_unstable();
    new.dedup();
    if count + new.len() > NOTES_MAX && !new.is_empty() {
        return Err(Error::Invalid { what: "there are 1,024 notes of other names already" });
    }
    Ok(())
}

/// What the exceptions of a flush take: their bytes, and 2 for the length of each.
pub(crate) fn exceptions_bytes(except: &[Vec<u8>]) -> usize {
    except.iter().map(|prefix| 2 + prefix.len()).sum()
}

fn validate_exceptions(prefix: &[u8], except: &[Vec<u8>]) -> Result<()> {
    if !except.iter().all(|longer| is_exception(prefix, longer)) {
        return Err(Error::Invalid { what: "it is a flush with an exception that is not below its prefix" });
    }
    if exceptions_bytes(except) > FLUSH_EXCEPTIONS_BYTES_MAX {
        return Err(Error::Invalid { what: "it is a flush with more than 64 KiB of exceptions" });
    }
    Ok(())
}

/// Can a flush of `prefix` leave this alone?
pub(crate) fn is_exception(prefix: &[u8], longer: &[u8]) -> bool {
    longer.len() > prefix.len() && longer.len() <= KEY_BYTES_MAX && longer.starts_with(prefix)
}
