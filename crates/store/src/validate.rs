//! What every driver refuses.

use crate::entry::{Entry, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::error::{Error, Result};

/// An error if the entry cannot be kept.
pub(crate) fn validate(entry: &Entry<'_>) -> Result<()> {
    if entry.key().len() > KEY_BYTES_MAX {
        return Err(Error::Invalid { what: "its key has more than 65,535 bytes" });
    }
    if matches!(entry, Entry::Put(_) | Entry::Delete { .. }) && entry.key().is_empty() {
        return Err(Error::Invalid { what: "its key is empty" });
    }
    if let Entry::Put(put) = entry
        && put.value_bytes() > VALUE_BYTES_MAX
    {
        return Err(Error::Invalid { what: "its value has more than 1 GiB" });
    }
    Ok(())
}
