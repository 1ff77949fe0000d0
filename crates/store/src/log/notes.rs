//! Notes of the caller: the newest of each name. In the manifest too, so that cleaning need not carry their records.

use std::collections::BTreeMap;

/// Notes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NoteTable {
    notes: BTreeMap<Vec<u8>, Note>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) sequence: u64,
    pub(super) value: Vec<u8>,
}

impl NoteTable {
    /// A note, in any order: one that is older than what is there changes nothing.
    pub(super) fn set(&mut self, name: &[u8], note: Note) {
        if self.notes.get(name).is_none_or(|known| known.sequence <= note.sequence) {
            self.notes.insert(name.to_vec(), note);
        }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Note> {
        self.notes.get(name)
    }

    pub(super) fn len(&self) -> usize {
        self.notes.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &Note)> {
        self.notes.iter().map(|(name, note)| (&name[..], note))
    }
}
