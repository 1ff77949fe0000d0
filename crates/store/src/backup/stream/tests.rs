use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tar::{EntryType, Header};

use super::*;
use crate::entry::{Entry, Marks, VecSink};
use crate::files::sim::SimDisk;
use crate::log::LogStore;
use crate::{Change, Error, LogOptions};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
