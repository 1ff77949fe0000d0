//! What every driver refuses.

use crate::entry::{BATCH_BYTES_MAX, Entry, KEY_BYTES_MAX, VALUE_BYTES_MAX};
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
        let value_bytes = if let Entry::Put(put) = entry { put.value_bytes() } else { 0 };
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
