//! Backups as streams: whole, cut, damaged and hostile ones.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use tar::{EntryType, Header};

use super::driver::open_log;
use super::model::{Change, State, append};
use super::script::START_SECS;
use crate::files::Files;
use crate::files::sim::SimDisk;
use crate::log::manifest::ManifestImage;
use crate::{Error, Manifest, Marks, StreamReport, backup_stream, restore, restore_stream, verify_stream};

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream of a store with some segments, what the store has, and its keys.
fn stream() -> (Vec<u8>, State, Vec<Vec<u8>>) {
    let store = open_log(&SimDisk::new()).expect("opens");
    let mut state = State::default();
    let keys: Vec<Vec<u8>> = (0..60).map(|nth| format!("key:{nth}").into()).collect();
    for (nth, key) in keys.iter().enumerate() {
        let value = vec![nth as u8; 150];
        let (client_flags, exptime_secs) = (3, if nth % 2 == 0 { 0 } else { START_SECS + 1000 });
        let version = nth as u64 + 1;
        let put =
            Change::Put { key: key.clone(), value, client_flags, exptime_secs, version, marks: Marks::NONE };
        append(&store, std::slice::from_ref(&put)).expect("appends");
        state.apply(&[put]);
    }
    let delete = Change::Delete { key: keys[7].clone(), version: 100 };
    append(&store, std::slice::from_ref(&delete)).expect("appends");
    state.apply(&[delete]);
    let output = Output::default();
    let manifest = backup_stream(&store, output.clone(), 1_900_000_000).expect("is written");
    assert_eq!(manifest.last_sequence(), state.last_sequence);
    assert!(manifest.files().count() > 2, "several files");
    let bytes = std::mem::take(&mut *output.0.lock().expect("not poisoned"));
    (bytes, state, keys)
}

/// The error of a restore that must leave nothing.
fn refused(stream: &[u8]) -> Error {
    let target = SimDisk::new();
    let error = restore_stream(&mut &stream[..], &target).expect_err("it is refused");
    assert_eq!(target.list().expect("lists"), Vec::<String>::new(), "nothing is left");
    error
}

#[test]
fn a_stream_is_restored() {
    let (bytes, state, keys) = stream();
    let target = SimDisk::new();
    let manifest = restore_stream(&mut &bytes[..], &target).expect("restores");
    let StreamReport { files, .. } = verify_stream(&mut &bytes[..]).expect("is whole");
    assert_eq!(files, manifest.files().count() as u64 + 1);
    let again = restore_stream(&mut &bytes[..], &target);
    assert!(matches!(again, Err(Error::Invalid { .. })), "not over a store");
    let store = open_log(&target).expect("opens");
    assert_eq!(state.difference(&store, &keys, START_SECS), None);
    // Who packs an archive again fills it up to 10 KiB.
    let filled = [&bytes[..], &[0; 10 << 10]].concat();
    restore_stream(&mut &filled[..], &SimDisk::new()).expect("restores");
}

#[test]
fn a_cut_stream_leaves_nothing() {
    let (bytes, ..) = stream();
    let blocks = (0..bytes.len()).step_by(512).flat_map(|at| [at.saturating_sub(1), at, at + 1]);
    for length in blocks.chain((0..bytes.len()).step_by(211)).chain([bytes.len() - 1]) {
        let error = refused(&bytes[..length]);
        assert!(error.to_string().contains("it is cut"), "{length}: {error}");
    }
}

#[test]
fn a_damaged_stream_leaves_nothing() {
    let (bytes, ..) = stream();
    for at in (0..bytes.len()).step_by(89) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let error = refused(&damaged);
        assert!(matches!(error, Error::Corrupt { .. } | Error::NewerFormat { .. }), "{at}: {error}");
    }
    assert!(refused(&[&bytes[..], b"more"].concat()).to_string().contains("something follows"));
    assert!(refused(b"").to_string().contains("it is cut"));
    assert!(refused(&[b'x'; 4096]).to_string().contains("no backup of larder"));
}

/// A file of an archive.
fn entry(kind: EntryType, name: &[u8], content: &[u8], bytes: u64) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    if kind == EntryType::Symlink || kind == EntryType::Link {
        header.set_link_name("/etc/passwd").expect("a path");
    }
    header.set_size(bytes);
    header.set_entry_type(kind);
    header.set_cksum();
    let mut out = header.as_bytes().to_vec();
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

#[test]
fn a_hostile_stream_makes_plain_files_of_its_directory_only() {
    let file = |name: &[u8], content: &[u8]| entry(EntryType::Regular, name, content, content.len() as u64);
    for name in [&b"../up"[..], b"/etc/cron.d/x", b"a/b", b".hidden", b"..", b"", b"a b", b"\xff", b"a\\b"] {
        assert!(refused(&file(name, b"x")).to_string().contains("whose name"), "{name:?}");
    }
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Directory,
        EntryType::Fifo,
        EntryType::Block,
        EntryType::Char,
        EntryType::GNULongName,
        EntryType::GNUSparse,
        EntryType::XHeader,
        EntryType::XGlobalHeader,
    ] {
        let error = refused(&entry(kind, b"segment-0000000000000001", b"x", 1));
        assert!(error.to_string().contains("no plain file"), "{kind:?}: {error}");
    }
    // What is announced and does not come takes neither memory nor room.
    let huge = entry(EntryType::Regular, b"MANIFEST", b"x", 1 << 32);
    assert!(refused(&huge).to_string().contains("too long"));
    let huge = entry(EntryType::Regular, b"segment-0000000000000001", b"x", 1 << 50);
    assert!(refused(&huge).to_string().contains("of a length"));
    // No file twice.
    let twice = [file(b"a", b"x"), file(b"a", b"y")].concat();
    assert!(matches!(refused(&twice), Error::Io { .. }));
    assert!(refused(&file(b"SHA256SUMS", b"")).to_string().contains("MANIFEST is missing"));
}

#[test]
fn a_manifest_that_is_about_other_files_is_refused() {
    let (bytes, ..) = stream();
    // Without the first file, and with the checksums of what is left, as sha256sum makes them.
    let first_bytes = Header::from_byte_slice(&bytes[..512]).size().expect("a length").next_multiple_of(512);
    let left = &bytes[512 + first_bytes as usize..];
    let sums_at =
        left.chunks(512).position(|block| block.starts_with(b"SHA256SUMS\0")).expect("is there") * 512;
    let sums_bytes =
        Header::from_byte_slice(&left[sums_at..sums_at + 512]).size().expect("a length") as usize;
    let sums = &left[sums_at + 512..sums_at + 512 + sums_bytes];
    let cut = sums.iter().position(|byte| *byte == b'\n').expect("lines") + 1;
    let sums = entry(EntryType::Regular, b"SHA256SUMS", &sums[cut..], (sums_bytes - cut) as u64);
    let forged = [&left[..sums_at], &sums, &[0; 1024]].concat();
    verify_stream(&mut &forged[..]).expect("it is whole");
    assert!(refused(&forged).to_string().contains("not about the files of this stream"));
}

/// A manifest that names one file twice would let in another file that it does not describe.
#[test]
fn a_manifest_that_names_a_file_twice_is_refused() {
    let backup = SimDisk::new();
    restore_stream(&mut &stream().0[..], &backup).expect("restores");
    let mut image = ManifestImage::read(&backup).expect("reads").expect("is there");
    let twice = image.segments[0].clone();
    image.segments.insert(0, twice);
    assert!(image.write(&backup).is_ok());
    let error = Manifest::read(&backup).expect_err("is refused");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test]
fn nothing_is_restored_beside_other_files() {
    let (bytes, ..) = stream();
    let backup = SimDisk::new();
    restore_stream(&mut &bytes[..], &backup).expect("restores");
    // Numbers that the backup does not have: of another store, and not to be lost when this one opens.
    for name in ["segment-0000000000999999", "index-0000000000999999", "precious"] {
        let target = SimDisk::new();
        target.create(name).expect("creates");
        let of_stream = restore_stream(&mut &bytes[..], &target);
        let in_place = restore(&[&backup], &target);
        for refused in [of_stream, in_place] {
            assert!(matches!(refused, Err(Error::NotEmpty { file }) if file == name), "{name}");
        }
        assert_eq!(target.list().expect("lists"), [name]);
    }
}

/// Looks at the directory while a stream is read.
struct Looking<'a> {
    stream: &'a [u8],
    target: &'a SimDisk,
    looked: usize,
}

impl Read for Looking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.looked += 1;
        assert!(matches!(open_log(self.target), Err(Error::Unrestored)), "nobody opens it before the end");
        self.stream.read(buffer)
    }
}

#[test]
fn a_directory_cannot_be_opened_before_its_restore_has_ended() {
    let (bytes, ..) = stream();
    let target = SimDisk::new();
    let mut looking = Looking { stream: &bytes, target: &target, looked: 0 };
    restore_stream(&mut looking, &target).expect("restores");
    assert!(looking.looked > 10);
    assert!(open_log(&target).is_ok());
}
