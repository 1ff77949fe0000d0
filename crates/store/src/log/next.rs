//! The next segment of the log, and the end of the one before.
//!
//! The next one is prepared in the background: its file is there, empty, and the manifest names it. So appending goes
//! on in it at once when the open one is full, and that one is sealed in the background. Only if none is prepared in
//! time does an append wait for the disk.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, MutexGuard};

use super::clean::RESERVE_TO_DELETE;
use super::segment::{
    SEGMENT_HEADER_BYTES, Segment, SegmentHeader, Stream, create_file, segment_name, take_log_number,
};
use super::sync::begin_sync;
use super::writer::{WriteError, Writer};
use super::{Appender, LogStore, ManifestState};
use crate::error::{Error, Result};
use crate::files::File;
use crate::files::memory::MemoryFile;

/// Makes sure that the open segment has room for so much, by opening the next one if need be. If that fails, the open
/// one stays open: what is smaller may still fit.
pub(super) fn make_room(
    store: &LogStore,
    appender: &mut Appender,
    bytes: u64,
    entries: usize,
    may_use_reserve: bool,
) -> Result<()> {
    let may_use = may_use_reserve || !appender.is_reserve;
    if may_use && appender.writer.as_ref().is_some_and(|writer| writer.has_room(bytes, entries)) {
        return Ok(());
    }
    let file_bytes = store.options.segment_bytes.max(Writer::file_bytes_for(bytes, entries));
    match open_next(store, appender, file_bytes) {
        // This also covers the case that the segment has room but the manifest that names it has not.
        Err(Error::Full { .. }) if may_use_reserve && store.files.remove(RESERVE_TO_DELETE).is_ok() => {
            open_next(store, appender, file_bytes)?;
            appender.is_reserve = true;
            Ok(())
        }
        other => other,
    }
}

/// Opens a segment whose file has this length.
fn open_next(store: &LogStore, appender: &mut Appender, file_bytes: u64) -> Result<()> {
    if switch(store, appender, file_bytes)? {
        return Ok(());
    }
    let mut manifest = store.manifest();
    // One may have become ready while this thread waited.
    if switch(store, appender, file_bytes)? {
        return Ok(());
    }
    let number = take_log_number(&mut manifest.next_number)?;
    let first_sequence = store.last_sequence.load(Relaxed) + 1;
    let file = SegmentFile::create(store, number, Stream::Log, first_sequence, file_bytes)?;
    let writer = file.open(store)?;
    let published = seal(store, appender).and_then(|()| {
        let image = store.capture(appender);
        store.publish(&mut manifest, image)
    });
    if let Err(error) = published {
        take_back(store, &writer, &error);
        return Err(error);
    }
    (appender.writer, appender.is_reserve) = (Some(writer), false);
    Ok(())
}

/// Goes on in the prepared segment without a sync, if there is one.
fn switch(store: &LogStore, appender: &mut Appender, file_bytes: u64) -> Result<bool> {
    let Some(mut next) = store.prepared().take() else { return Ok(false) };
    let switched = next
        .allocate(file_bytes)
        .map_err(|error| Error::io(format!("allocating {}", next.segment.name()), error))
        .and_then(|()| seal_before_switch(store, appender));
    if let Err(error) = switched {
        *store.prepared() = Some(next);
        return Err(error);
    }
    if let Some(mut full) = appender.writer.take() {
        full.trim();
        appender.full = Some(Arc::new(full));
    }
    (appender.writer, appender.is_reserve) = (Some(next), false);
    Ok(true)
}

/// At most one segment is sealed later, and none without records: these tell recovery where it begins.
fn seal_before_switch(store: &LogStore, appender: &mut Appender) -> Result<()> {
    if appender.writer.as_ref().is_some_and(|writer| !writer.segment.has_records()) {
        return seal(store, appender);
    }
    if let Some(full) = &appender.full {
        seal_one(store, full)?;
        appender.full = None;
    }
    Ok(())
}

/// Seals the segment that is full, and prepares the next one. One thread does so at a time: it holds the cleaner's
/// lock.
pub(super) fn roll(store: &LogStore) -> Result<()> {
    let (full, is_prepared) = {
        let appender = store.appender();
        (appender.full.clone(), store.prepared().is_some())
    };
    if let Some(full) = full {
        seal_one(store, &full)?;
        store.appender().full.take_if(|known| Arc::ptr_eq(known, &full));
    }
    if is_prepared {
        return Ok(());
    }
    match prepare(store) {
        Err(error @ Error::ReadOnly { .. }) => Err(error),
        // The append that needs it tries again, and tells.
        _ => Ok(()),
    }
}

/// Prepares the next segment: without room for records, since the disk's bound has none for them yet.
fn prepare(store: &LogStore) -> Result<()> {
    let number = take_log_number(&mut store.manifest().next_number)?;
    let file = SegmentFile::create(store, number, Stream::Log, 0, SEGMENT_HEADER_BYTES as u64)?;
    let is_late = |_: &Appender| {
        let segments = store.segments.all();
        segments.iter().any(|segment| segment.stream == Stream::Log && segment.number > number)
    };
    if let Some((writer, _manifest)) = file.publish(store, is_late)? {
        *store.prepared() = Some(writer);
    }
    Ok(())
}

/// Seals the open segments, if there are any. Their data is durable then.
pub(super) fn seal(store: &LogStore, appender: &mut Appender) -> Result<()> {
    if let Some(full) = &appender.full {
        seal_one(store, full)?;
        appender.full = None;
    }
    let Some(writer) = &appender.writer else { return Ok(()) };
    seal_one(store, writer)?;
    appender.writer = None;
    store.durable_sequence.fetch_max(store.last_sequence.load(Relaxed), Release);
    Ok(())
}

fn seal_one(store: &LogStore, writer: &Writer) -> Result<()> {
    let _syncing = store.syncing();
    store.read_only.check()?;
    if writer.segment.sealed.load(Relaxed) {
        return Ok(());
    }
    store.counters.fsyncs.fetch_add(1, Relaxed);
    let name = writer.segment.name();
    writer.seal().map_err(|error| store.write_failed(format!("sealing {name}"), error))
}

/// Removes the prepared segment, which the next manifest does not name.
pub(super) fn drop_prepared(store: &LogStore, manifest: &mut ManifestState) {
    if let Some(prepared) = store.prepared().take() {
        store.segments.remove(prepared.segment.slot);
        manifest.garbage.push(prepared.segment.name());
    }
}

/// Removes a segment that no manifest names because of this error.
fn take_back(store: &LogStore, writer: &Writer, error: &Error) {
    store.segments.remove(writer.segment.slot);
    // After a failed fsync the manifest on the disk may be the one that names it.
    if !matches!(error, Error::ReadOnly { .. }) {
        let _ = store.files.remove(&writer.segment.name());
    }
}

/// The file of a segment that is not in the table yet.
pub(super) struct SegmentFile {
    header: SegmentHeader,
    file: Arc<dyn File>,
    file_bytes: u64,
}

impl SegmentFile {
    /// Creates the file. Its number is used up even if this fails, since the file may come back after a crash.
    pub(super) fn create(
        store: &LogStore,
        number: u64,
        stream: Stream,
        first_sequence: u64,
        file_bytes: u64,
    ) -> Result<Self> {
        let header = SegmentHeader { number, stream, first_sequence, secret: store.secret };
        store.counters.fsyncs.fetch_add(1, Relaxed);
        let file = create_file(&*store.files, &header, file_bytes).map_err(|(source, sync_failed)| {
            let doing = format!("making segment {number}");
            store.write_failed(doing, WriteError { source, sync_failed })
        })?;
        Ok(Self { header, file, file_bytes })
    }

    /// The file of a segment that keeps changes readable after a failed fsync.
    pub(super) fn in_memory(store: &LogStore, number: u64) -> Self {
        let header = SegmentHeader { number, stream: Stream::Log, first_sequence: 0, secret: store.secret };
        Self { header, file: Arc::<MemoryFile>::default(), file_bytes: 0 }
    }

    /// Puts the segment into the table: every manifest names it from now on.
    pub(super) fn open(self, store: &LogStore) -> Result<Writer> {
        let segment = store.segments.insert(|slot| Segment::new(&self.header, slot, self.file))?;
        Ok(Writer::new(segment, self.file_bytes))
    }

    /// Puts the segment into the table and a manifest that is durable, while appending goes on. `None`: it came too
    /// late, and is gone.
    pub(super) fn publish(
        self,
        store: &LogStore,
        is_late: impl FnOnce(&Appender) -> bool,
    ) -> Result<Option<(Writer, MutexGuard<'_, ManifestState>)>> {
        let appender = store.appender();
        if is_late(&appender) {
            let _ = store.files.remove(&segment_name(self.header.number));
            return Ok(None);
        }
        let mut manifest = store.manifest();
        let writer = self.open(store)?;
        let (image, sync) = (store.capture(&appender), begin_sync(store, &appender));
        drop(appender);
        if let Err(error) = sync.finish(store).and_then(|_| store.publish(&mut manifest, image)) {
            take_back(store, &writer, &error);
            return Err(error);
        }
        Ok(Some((writer, manifest)))
    }
}
