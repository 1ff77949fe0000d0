//! What every driver refuses.

use crate::entry::{BATCH_BYTES_MAX, Entry, FLUSH_EXCEPTIONS_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::error::{Error, Result};

/// An error if the batch cannot be kept.
pub(crate) fn validate_batch(entries: &[Entry<'_>]) -> Result<()> {
    let mut batch_bytes = 0;
    for entry in entries {
        if entry.key().len() > KEY_BYTES_MAX {
            return Err(Error::Invalid { what: "its key has more than 65,535 bytes" });
        }
        if matches!(entry, Entry::Put(_) | Entry::Delete { .. }) && entry.key().is_empty() {
            return Err(Error::Invalid { what: "its key is empty" });
        }
        let value_bytes = match entry {
            Entry::Put(put) => put.value_bytes(),
            Entry::Flush { prefix, except, .. } => {
                validate_exceptions(prefix, except)?;
                exceptions_bytes(except)
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
