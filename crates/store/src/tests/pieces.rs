//! A reader that takes a value in odd pieces.

use crate::{Meta, Sink};

#[derive(Default)]
pub(super) struct Pieces {
    pub(super) value: Vec<u8>,
}

impl Sink for Pieces {
    fn start(&mut self, meta: &Meta) -> bool {
        self.value = vec![0; meta.value_bytes];
        true
    }

    fn buffer(&mut self, remaining_bytes: usize) -> &mut [u8] {
        let done = self.value.len() - remaining_bytes;
        let end = (done + 70_001).min(self.value.len());
        &mut self.value[done..end]
    }
}
