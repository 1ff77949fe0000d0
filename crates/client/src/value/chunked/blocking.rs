//! Values in pieces, by a client that waits.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::{error, fmt};

use super::{Head, HeadError, KEY_BYTES_MAX};
use crate::client::Item;
use crate::codec::Store;
use crate::value::{Encoded, Transcoder};
use crate::{Client, Error as ClientError};

/// Stores and gets values of any size.
#[derive(Debug)]
pub struct Chunked<'a> {
    client: &'a mut Client,
    piece_bytes: usize,
    value_bytes_max: usize,
}

/// Why there is no reply. A failure between two requests leaves pieces without a head, which expire or are evicted as
/// any item.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A request failed.
    Client(ClientError),
    /// The value is too large, or its head is damaged.
    Head(HeadError),
}

impl<'a> Chunked<'a> {
    /// Pieces of up to [`PIECE_BYTES`](Self::PIECE_BYTES), values of up to [`Transcoder::VALUE_BYTES_MAX`].
    pub fn new(client: &'a mut Client) -> Self {
        Self { client, piece_bytes: Self::PIECE_BYTES, value_bytes_max: Transcoder::VALUE_BYTES_MAX }
    }

    /// Fits in an item of 1 MiB, which is what servers take by default, with its key and the server's own data.
    pub const PIECE_BYTES: usize = 1_000_000;

    /// How many bytes a piece has, and a value that is not in pieces at most.
    #[must_use]
    pub fn piece_bytes(self, piece_bytes: usize) -> Self {
        Self { piece_bytes, ..self }
    }

    /// How many bytes a value may have.
    #[must_use]
    pub fn value_bytes_max(self, value_bytes_max: usize) -> Self {
        Self { value_bytes_max, ..self }
    }

    /// The value of a key. `None`: not found, or a piece of it is not.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Encoded>, Error> {
        let key = key.as_ref();
        let mut generation = None;
        // Once more if somebody wrote meanwhile, and deleted the pieces.
        for _ in 0..2 {
            let Some(Item { value, client_flags, .. }) = self.client.get(key)? else { return Ok(None) };
            let Some(head) = Head::parse(&value, self.value_bytes_max)? else {
                return Ok(Some(Encoded { bytes: value, client_flags }));
            };
            if generation == Some(head.generation()) {
                break;
            }
            generation = Some(head.generation());
            if let Some(bytes) = self.get_pieces(key, &head)? {
                return Ok(Some(Encoded { bytes, client_flags }));
            }
        }
        Ok(None)
    }

    fn get_pieces(&mut self, key: &[u8], head: &Head) -> Result<Option<Vec<u8>>, Error> {
        let keys: Vec<_> = head.plan_pieces(key).map(|(key, _)| key).collect();
        let mut failure = None;
        // A few at a time, or all would be in memory twice.
        let pieces = keys.chunks(PIECES_AT_ONCE).flat_map(|keys| {
            let mut got = self.client.multi_get(keys);
            failure = failure.take().or_else(|| got.failures.pop());
            got.items.into_iter().map(|item| item.map(|item| item.value))
        });
        match (head.assemble(pieces), failure) {
            (Some(value), _) => Ok(Some(value)),
            (None, Some((_, error))) => Err(error.into()),
            (None, None) => Ok(None),
        }
    }

    /// Stores a value, and deletes the pieces of the one before: so it first reads the item that is there, all of it if
    /// it is not in pieces. Of two that write a key at the same time, the pieces of one may stay without a head, until
    /// they expire or are evicted.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: &Encoded, exptime: i64) -> Result<(), Error> {
        let key = key.as_ref();
        let Encoded { bytes, client_flags } = value;
        if bytes.len() > self.value_bytes_max {
            return Err(HeadError::TooLarge.into());
        }
        let head = Head::plan(bytes, self.piece_bytes, random())?;
        if head.is_some() && key.len() > KEY_BYTES_MAX {
            return Err(ClientError::InvalidKey.into());
        }
        let replaced = self.stored_head(key)?;
        let client_flags = *client_flags;
        let stored = match &head {
            Some(head) => self.store_pieces(key, head, bytes, exptime).and_then(|()| {
                let line = head.to_bytes();
                self.client.store(&Store { key, value: &[&line], client_flags, exptime, ..Store::default() })
            }),
            None => {
                self.client.store(&Store { key, value: &[bytes], client_flags, exptime, ..Store::default() })
            }
        };
        match (stored, &head) {
            (Ok(_), _) => {
                self.delete_pieces(key, replaced.as_ref());
                Ok(())
            }
            // The server said that it has no such item; in doubt the pieces stay.
            (Err(error @ ClientError::Refused { .. }), Some(_)) => {
                self.delete_pieces(key, head.as_ref());
                Err(error.into())
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    fn store_pieces(
        &mut self,
        key: &[u8],
        head: &Head,
        value: &[u8],
        exptime: i64,
    ) -> Result<(), ClientError> {
        for (key, range) in head.plan_pieces(key) {
            let store = Store { key: &key, value: &[&value[range]], exptime, ..Store::default() };
            self.client.store(&store)?;
        }
        Ok(())
    }

    /// Deletes a value and its pieces. `false`: there is none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        let head = self.stored_head(key)?;
        let is_deleted = self.client.delete(key)?;
        self.delete_pieces(key, head.as_ref());
        Ok(is_deleted)
    }

    /// The head that a key has now, if it is one that can be read.
    fn stored_head(&mut self, key: &[u8]) -> Result<Option<Head>, Error> {
        let item = self.client.get(key)?;
        Ok(item.and_then(|item| Head::parse(&item.value, usize::MAX).ok().flatten()))
    }

    /// What cannot be deleted is never read again, and goes as any item does.
    fn delete_pieces(&mut self, key: &[u8], head: Option<&Head>) {
        for (key, _) in head.into_iter().flat_map(|head| head.plan_pieces(key)) {
            if self.client.delete(&key).is_err() {
                return;
            }
        }
    }
}

const PIECES_AT_ONCE: usize = 8;

/// A generation that no other write has.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<HeadError> for Error {
    fn from(error: HeadError) -> Self {
        Self::Head(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Head(error) => error.fmt(f),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::Head(error) => Some(error),
        }
    }
}
