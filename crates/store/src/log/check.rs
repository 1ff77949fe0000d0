//! Verifying every checksum of a store that is not open, and cutting out what is broken.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::append::tombstone_of;
use super::digest::Secret;
use super::manifest::{MANIFEST, ManifestImage, ROCKSDB_FILE, SegmentImage};
use super::open::{DroppedTail, FlushRecord, NoteRecord, OpenLog, lock, open_file};
use super::record::{ALIGN_BYTES, Header, Kind, pad};
use super::segment::{
    FooterEntry, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, Stream, create_file, segment_name,
    segment_number, take_number,
};
use super::window::Window;
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::flushes::FlushTable;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files of the log that were read.
    pub segments: u64,
    /// Whole records in them.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that a crash has left behind the last whole batch: the next start drops them.
    pub dropped: Vec<DroppedTail>,
    /// What is broken.
    pub damages: Vec<Damage>,
    /// What a repair lost, a sentence each. Empty without one.
    pub lost: Vec<String>,
    /// There was no manifest, or a damaged one: all segments count as damaged, since nothing says how far they went.
    pub has_lost_manifest: bool,
    /// The store can be opened now.
    pub is_repaired: bool,
}

/// A broken place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// Reads everything. With `repair`, writes what is whole in damaged files to new ones, and keeps the damaged ones under
/// names that begin with `damaged-`.
///
/// Errors: those of calls of the system; `Locked`; `NewerFormat`. Damage is no error.
pub fn check(files: &dyn Files, repair: bool) -> Result<Report> {
    let _lock = lock(files)?;
    let mut report = Report::default();
    let mut image = match ManifestImage::read(files) {
        Ok(Some(image)) => image,
        Ok(None) => rebuild(files, "the file is missing", repair, &mut report)?,
        Err(Error::Corrupt { what, .. }) => rebuild(files, &what, repair, &mut report)?,
        Err(error) => return Err(error),
    };
    report.has_lost_manifest = !report.damages.is_empty();
    let mut open_log = OpenLog::default();
    let (mut kept, mut damaged, mut open) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_open_damaged = false;
    for segment in image.segments.clone() {
        let before = report.damages.len();
        let contents = read_segment(files, &image, &segment, &mut open_log, &mut report)?;
        let is_damaged = report.damages.len() > before;
        if segment.stream == Stream::Log && !segment.sealed {
            is_open_damaged |= is_damaged;
            open.push((segment, contents));
        } else if is_damaged {
            damaged.push((segment, contents));
        } else {
            kept.push(segment);
        }
    }
    // An open one goes on where the one before ends, which a repair changes.
    match is_open_damaged {
        true => damaged.extend(open),
        false => kept.extend(open.into_iter().map(|(segment, _)| segment)),
    }
    let changed = report.has_lost_manifest || !damaged.is_empty();
    for (segment, contents) in damaged.into_iter().filter(|_| repair) {
        kept.extend(rescue(files, &mut image, &segment, contents, &mut report)?);
    }
    kept.sort_unstable_by_key(|segment: &SegmentImage| segment.number);
    image.segments = kept;
    if changed && repair {
        // The log is not what others have read of it.
        image.incarnation = fastrand::u64(1..);
        image.log_start = image.last_sequence + 1;
        // A snapshot of the index is of what was before.
        image.snapshot = None;
        super::manifest::sync_dir(files).map_err(|error| Error::io("fsync of the directory", error))?;
        image.write(files).map_err(|failure| failure.error)?;
        for damage in &report.damages {
            if segment_number(&damage.file).is_some() {
                match files.rename(&damage.file, &format!("damaged-{}", damage.file)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(Error::io(format!("renaming {}", damage.file), error));
                    }
                    _ => {}
                }
            }
        }
        report.is_repaired = true;
    }
    Ok(report)
}

/// A manifest from the segments that are there.
fn rebuild(files: &dyn Files, what: &str, repair: bool, report: &mut Report) -> Result<ManifestImage> {
    report.damages.push(Damage { file: MANIFEST.to_owned(), offset: 0, what: what.to_owned() });
    let mut image = ManifestImage::new(Secret([0; 16]));
    for name in files.list().map_err(|error| Error::io("listing the directory", error))? {
        if name == ROCKSDB_FILE {
            return Err(Error::OfRocksDb);
        }
        let Some(number) = segment_number(&name) else { continue };
        let file = files.open_to_read(&name).map_err(|error| Error::io(format!("opening {name}"), error))?;
        let mut head = [0; SEGMENT_HEADER_BYTES];
        let count =
            file.read_at(&mut head, 0).map_err(|error| Error::io(format!("reading {name}"), error))?;
        let header = match SegmentHeader::decode(&head[..count], &name) {
            Ok(header) => header,
            Err(Error::Corrupt { offset, what, .. }) => {
                if repair {
                    report.lost.push(all_lost(&name));
                }
                report.damages.push(Damage { file: name, offset, what });
                continue;
            }
            Err(error) => return Err(error),
        };
        image.secret = header.secret;
        image.next_number = image.next_number.max(number + 1);
        image.segments.push(SegmentImage {
            number,
            stream: header.stream,
            sealed: false,
            data_bytes: 0,
            file_bytes: 0,
            min_sequence: u64::MAX,
            max_sequence: 0,
            expiry: Default::default(),
        });
    }
    if repair {
        report.lost.push(
            "MANIFEST: flushes and notes older than the segments that are left, so that items may be back that were \
             flushed; the highest CAS value of items that are gone"
                .to_owned(),
        );
    }
    Ok(image)
}

/// The whole records of a segment.
#[derive(Default)]
struct Contents {
    segment: Option<Arc<Segment>>,
    records: Vec<Record>,
    flushes: Vec<FlushRecord>,
    notes: Vec<(u64, NoteRecord)>,
    /// The highest sequence that a commit mark confirms.
    committed: u64,
}

struct Record {
    header: Header,
    key: Vec<u8>,
    offset: u64,
    /// The value's checksum does not match.
    is_broken: bool,
}

/// Reads all of a segment, and notes what is wrong with it.
fn read_segment(
    files: &dyn Files,
    image: &ManifestImage,
    segment_image: &SegmentImage,
    open_log: &mut OpenLog,
    report: &mut Report,
) -> Result<Contents> {
    let name = segment_name(segment_image.number);
    let mut contents = Contents::default();
    let damage_at = |offset, what: String| Damage { file: name.clone(), offset, what };
    let (header, file, file_bytes) = match open_file(files, image, segment_image, false) {
        Ok(opened) => opened,
        Err(Error::Corrupt { offset, what, .. }) => {
            report.damages.push(damage_at(offset, what));
            let file = match files.open_to_read(&name) {
                // Repairing gives up segments that cannot be opened, so only permanent errors count.
                Err(error) if Error::can_pass(&error) => {
                    return Err(Error::io(format!("opening {name}"), error));
                }
                Err(_) => return Ok(contents),
                Ok(file) => file,
            };
            let file_bytes = file.len().map_err(|error| Error::io(format!("reading {name}"), error))?;
            // The manifest knows enough to read its records.
            let SegmentImage { number, stream, .. } = *segment_image;
            (SegmentHeader { number, stream, first_sequence: 0, secret: image.secret }, file, file_bytes)
        }
        Err(error) => return Err(error),
    };
    let mut has_header = !report.damages.iter().any(|damage| damage.file == name);
    if report.has_lost_manifest {
        // So that a repair seals it.
        has_header = false;
        report.damages.push(damage_at(0, "no manifest names it".to_owned()));
    }
    let segment = Arc::new(Segment::new(&header, 1, file));
    if segment_image.sealed && file_bytes < segment_image.file_bytes {
        let what = format!("it has {file_bytes} bytes instead of {}", segment_image.file_bytes);
        report.damages.push(damage_at(file_bytes, what));
    }
    let end = if segment_image.sealed { segment_image.data_bytes.min(file_bytes) } else { file_bytes };
    let mut window = Window::new(segment.clone());
    let mut at = SEGMENT_HEADER_BYTES as u64;
    let mut is_in_gap = false;
    while at < end {
        let found = match window.record_at(at)? {
            Ok(found) => found,
            Err(super::record::BadHeader::Newer(kind)) => {
                return Err(segment.bad_header(at, super::record::BadHeader::Newer(kind)));
            }
            Err(_) => {
                if segment_image.sealed && !is_in_gap {
                    report.damages.push(damage_at(at, "no record begins here".to_owned()));
                }
                is_in_gap = true;
                at += ALIGN_BYTES as u64;
                continue;
            }
        };
        let (header, key) = (found.header, found.key.to_vec());
        let is_whole = window.verify_value(at, &header)?;
        is_in_gap = !is_whole;
        report.records += 1;
        report.bytes += header.padded_bytes() as u64;
        match header.kind {
            Kind::Commit => contents.committed = contents.committed.max(header.sequence),
            Kind::Footer => break,
            Kind::Put | Kind::Delete => {
                if !is_whole && segment_image.sealed {
                    let what = format!("the checksum of the value of {} does not match", key.escape_ascii());
                    report.damages.push(damage_at(at, what));
                }
                contents.records.push(Record { header, key, offset: at, is_broken: !is_whole });
            }
            Kind::Note => {
                let sequence = header.sequence;
                match NoteRecord::read(&mut window, at, &header, key)? {
                    Some(note) => contents.notes.push((sequence, note)),
                    None if segment_image.sealed => {
                        report.damages.push(damage_at(at, "a note is broken".to_owned()));
                    }
                    None => {}
                }
            }
            Kind::Flush | Kind::FlushAt | Kind::CancelFlushAt => {
                match FlushRecord::read(&mut window, at, header, key)? {
                    Some(flush) => contents.flushes.push(flush),
                    None if segment_image.sealed => {
                        report.damages.push(damage_at(at, "the exceptions of a flush are none".to_owned()));
                    }
                    None => {}
                }
            }
        }
        // A broken value may hide where it ends: go on behind it only if what follows is a record.
        at += if is_whole { header.padded_bytes() as u64 } else { ALIGN_BYTES as u64 };
    }
    if segment_image.sealed {
        segment.data_bytes.store(segment_image.data_bytes, Relaxed);
        segment.file_bytes.store(segment_image.file_bytes, Relaxed);
        let expected: Vec<FooterEntry> = (contents.records.iter())
            .map(|record| FooterEntry::of(&record.header, image.secret.digest(&record.key), record.offset))
            .collect();
        match segment.read_footer() {
            Ok(entries) if entries == expected => {}
            Ok(_) => {
                let what = "the footer names other records than there are".to_owned();
                report.damages.push(damage_at(segment_image.data_bytes, what));
            }
            Err(Error::Corrupt { offset, what, .. }) => report.damages.push(damage_at(offset, what)),
            Err(error) => return Err(error),
        }
    } else if has_header {
        match open_log.read(&segment, &header, segment_image, file_bytes, image) {
            Ok(tail) => report.dropped.extend(tail.dropped(&segment)),
            Err(Error::Corrupt { file, offset, what }) => report.damages.push(Damage { file, offset, what }),
            Err(error) => return Err(error),
        }
    }
    report.segments += 1;
    contents.segment = Some(segment);
    Ok(contents)
}

/// Writes the whole records of a damaged segment to a new one. Of a record whose value is broken, a tombstone stays, so
/// that no older value comes back.
fn rescue(
    files: &dyn Files,
    image: &mut ManifestImage,
    damaged: &SegmentImage,
    contents: Contents,
    report: &mut Report,
) -> Result<Option<SegmentImage>> {
    let name = segment_name(damaged.number);
    let Contents { segment, mut records, flushes, notes, committed } = contents;
    let Some(segment) = segment else {
        report.lost.push(all_lost(&name));
        return Ok(None);
    };
    let is_confirmed =
        |sequence: u64| damaged.sealed || damaged.stream != Stream::Log || sequence <= committed;
    records.retain(|record| is_confirmed(record.header.sequence));
    let mut table: FlushTable = std::mem::take(&mut image.flushes);
    for flush in flushes {
        if is_confirmed(flush.header.sequence) {
            image.last_sequence = image.last_sequence.max(flush.header.sequence);
            image.highest_version = image.highest_version.max(flush.header.highest_version());
            flush.apply_if_newer(&mut table);
        }
    }
    image.flushes = table;
    for (sequence, note) in notes.iter().filter(|(sequence, _)| is_confirmed(*sequence)) {
        image.last_sequence = image.last_sequence.max(*sequence);
        note.apply(&mut image.notes);
    }
    for record in records.iter().filter(|record| record.is_broken) {
        let key = record.key.escape_ascii();
        report.lost.push(format!("{name}: the value of {key} (sequence {})", record.header.sequence));
    }
    if let Ok(entries) = segment.read_footer() {
        // Both are in order of their offsets.
        let is_there = |offset| records.binary_search_by_key(&offset, |record| record.offset).is_ok();
        let gone = entries.iter().filter(|entry| !is_there(entry.offset)).count();
        if gone > 0 {
            report.lost.push(format!(
                "{name}: {gone} records without their keys; older values of these may be back"
            ));
        }
    } else if report.damages.iter().any(|damage| damage.file == name) {
        report.lost.push(format!(
            "{name}: perhaps records that cannot be counted; older values of them may be back"
        ));
    }
    if records.is_empty() {
        return Ok(None);
    }
    let failed = |what: &str, error| Error::io(format!("{what} what is left of {name}"), error);
    let number = take_number(&mut image.next_number)?;
    let header = SegmentHeader { number, stream: Stream::Cold, first_sequence: 0, secret: image.secret };
    let data_bytes = records.iter().map(|record| record.header.padded_bytes() as u64).sum();
    let file_bytes = Writer::file_bytes_for(data_bytes, records.len());
    let file =
        create_file(files, &header, file_bytes).map_err(|(error, _)| failed("making a file for", error))?;
    let copy = Arc::new(Segment::new(&header, 1, file));
    let mut writer = Writer::new(copy.clone(), file_bytes);
    let mut window = Window::new(segment);
    for record in &records {
        let header = if record.is_broken { tombstone_of(&record.header) } else { record.header };
        let mut head = Vec::new();
        header.encode(&record.key, copy.seed, &mut head);
        let mut ahead = 0;
        let mut put = |piece: &[u8]| {
            writer
                .write_ahead(&[io::IoSlice::new(piece)], &mut ahead)
                .map_err(|error| failed("writing", error))
        };
        put(&head)?;
        if header.kind == Kind::Put {
            window.copy_value(record.offset, &header, &mut put)?;
        }
        let mut padding = Vec::new();
        pad(header.record_bytes(), &mut padding);
        put(&padding)?;
        let entry = FooterEntry::of(&header, image.secret.digest(&record.key), writer.end);
        let sequence = header.sequence;
        writer.accept(header.padded_bytes() as u64, &[entry], Some((sequence, sequence)));
        image.last_sequence = image.last_sequence.max(sequence);
        image.highest_version = image.highest_version.max(header.highest_version());
    }
    writer.seal().map_err(|error| failed("sealing", error.source))?;
    Ok(Some(copy.image()))
}

fn all_lost(name: &str) -> String {
    format!("{name}: all of it; older values of its keys may be back")
}
