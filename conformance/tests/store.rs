//! What larderd answers from a store, beside what it answers from memory: restarts, faults of the disk, limits.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_conformance::folder::Folder;
use larder_conformance::server::Server;
use larder_conformance::{Result, server};

#[path = "hostile/talk.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod talk;
use talk::{ask, connect, expect, hit, others_are_served, set};

/// Starts larderd with a store in `folder/store`.
fn start(folder: &Folder, more: &[&str]) -> Result<Server> {
    let store = folder.arg("store");
    let args: Vec<&str> = ["-t", "2", "--store", &store].iter().chain(more).copied().collect();
    Server::start(&server::larderd()?, &args)
}

/// A value of this length, of which no two parts are alike.
fn value(bytes: usize) -> Vec<u8> {
    (0..).flat_map(|nth: u32| format!("{nth:x}.").into_bytes()).take(bytes).collect()
}

/// Versions have steps of 125 microseconds, and an item may be gone sooner: by a time to live that is over, by a
/// deletion, by a flush. The binary dialect tells the CAS value of each.
#[test]
fn a_cas_value_does_not_come_back_with_the_next_item() -> Result<()> {
    const SET: u8 = 0x01;
    const DELETE: u8 = 0x04;
    const FLUSH: u8 = 0x08;
    let request = |opcode: u8, extras: &[u8], key: &[u8], value: &[u8]| {
        let body_bytes = (extras.len() + key.len() + value.len()) as u8;
        let mut bytes =
            vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0, 0, 0, 0, body_bytes];
        bytes.resize(24, 0);
        [&bytes[..], extras, key, value].concat()
    };
    // A second more than 30 days: a date in 1970.
    let over = request(SET, &[0, 0, 0, 0, 0x00, 0x27, 0x8d, 0x01], b"key", b"value");
    let set = request(SET, &[0; 8], b"key", b"value");
    let folder = Folder::create();
    let server = start(&folder, &["--durability", "os"])?;
    for gone in [
        over,
        [&set[..], &request(DELETE, &[], b"key", b"")].concat(),
        [&set[..], &request(FLUSH, &[], b"", b"")].concat(),
    ] {
        let mut stream = connect(&server)?;
        let mut highest = 0;
        for _ in 0..300 {
            // One pair at a time: many would run ahead of the clock, and no longer depend on it.
            stream.write_all(&[&gone[..], &set[..]].concat())?;
            for _ in 0..if gone.len() > set.len() { 3 } else { 2 } {
                let mut reply = [0; 24];
                stream.read_exact(&mut reply)?;
                assert_eq!(reply[6..8], [0, 0], "{reply:?}");
                let cas = u64::from_be_bytes(std::array::from_fn(|n| reply[16 + n]));
                if reply[1] == SET {
                    assert!(cas > highest, "{cas} after {highest}");
                    highest = cas;
                }
            }
        }
    }
    Ok(())
}

fn get(stream: &mut TcpStream, key: &str, value: &[u8]) -> Result<()> {
    ask(stream, format!("get {key}\r\n").as_bytes(), &hit(key, value))
}

/// Lengths around those at which a value is read, copied and kept in another way.
#[test]
fn values_of_every_length_come_back_from_the_disk() -> Result<()> {
    let folder = Folder::create();
    let lengths: Vec<usize> = [0, 1, 4 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 3 << 20]
        .into_iter()
        .flat_map(|length: usize| [length.saturating_sub(100), length, length + 1])
        .collect();
    let server = start(&folder, &["-I", "8m", "-m", "64"])?;
    let mut stream = connect(&server)?;
    for &length in &lengths {
        ask(&mut stream, &set(&format!("key{length}"), &value(length)), b"STORED\r\n")?;
    }
    server.kill()?;
    let server = start(&folder, &["-I", "8m", "-m", "64"])?;
    let mut stream = connect(&server)?;
    for &length in &lengths {
        get(&mut stream, &format!("key{length}"), &value(length))
            .map_err(|error| format!("{length}: {error}"))?;
    }
    Ok(())
}

/// What larderd says that does not start.
fn refusal(arguments: &[&str]) -> Result<String> {
    let output = server::command(&server::larderd()?).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(71) { Ok(said) } else { Err(format!("{}: {said}", output.status).into()) }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_second_process_is_refused() -> Result<()> {
    let folder = Folder::create();
    let server = start(&folder, &[])?;
    others_are_served(&server)?;
    let said = refusal(&["--store", &folder.arg("store")])?;
    assert!(said.contains("another process has this store open"), "{said}");
    others_are_served(&server)
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() -> Result<()> {
    let folder = Folder::create();
    fs::create_dir(folder.file("store"))?;
    fs::set_permissions(folder.file("store"), Permissions::from_mode(0o555))?;
    let said = refusal(&["--store", &folder.arg("store")])?;
    assert!(said.contains("LOCK: Permission denied"), "{said}");
    Ok(())
}

/// The first file of the log. The next one may be there already: it is prepared in the background, and empty.
fn segment(folder: &Folder) -> Result<PathBuf> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.file("store"))? {
        names.push(entry?.path());
    }
    names.retain(|path| path.to_string_lossy().contains("segment-"));
    names.into_iter().min().ok_or_else(|| "no segment".into())
}

/// Inverts a bit of the value of `key2`.
fn damage(path: &Path) -> Result<()> {
    let mut bytes = fs::read(path)?;
    let key = bytes.windows(4).position(|four| four == b"key2").ok_or("no such key")?;
    bytes[key + 1_000] ^= 4;
    Ok(fs::write(path, bytes)?)
}

/// A damaged value: after a clean stop its key has an error for an answer, and all others are served. After a crash,
/// when the log is read, the start is refused with file and place.
#[test]
fn a_damaged_value_is_never_served() -> Result<()> {
    for is_clean in [true, false] {
        let folder = Folder::create();
        let server = start(&folder, &[])?;
        let mut stream = connect(&server)?;
        for nth in 1..=3 {
            ask(&mut stream, &set(&format!("key{nth}"), &value(5_000)), b"STORED\r\n")?;
        }
        if is_clean {
            server.stop().map(drop)?
        } else {
            server.kill()?
        }
        damage(&segment(&folder)?)?;
        if !is_clean {
            let said = refusal(&["--store", &folder.arg("store")])?;
            assert!(said.contains("segment-0000000000000001 is damaged at byte "), "{said}");
            continue;
        }
        let server = start(&folder, &[])?;
        let mut stream = connect(&server)?;
        get(&mut stream, "key1", &value(5_000))?;
        ask(&mut stream, b"get key2\r\n", b"SERVER_ERROR store cannot read this item\r\n")?;
        get(&mut stream, "key3", &value(5_000))?;
        // Replaced, it is well again.
        ask(&mut stream, &set("key2", b"new"), b"STORED\r\n")?;
        get(&mut stream, "key2", b"new")?;
    }
    Ok(())
}

#[test]
fn a_missing_file_is_named() -> Result<()> {
    let folder = Folder::create();
    let server = start(&folder, &[])?;
    others_are_served(&server)?;
    server.kill()?;
    fs::remove_file(segment(&folder)?)?;
    let said = refusal(&["--store", &folder.arg("store")])?;
    assert!(said.contains("segment-0000000000000001") && said.contains("the file is missing"), "{said}");
    Ok(())
}

/// A file system of its own, which root may have.
struct Mount(Folder);

impl Mount {
    /// `None`: this machine does not let us.
    fn create(size: &str) -> Option<Self> {
        let mount = Self(Folder::create());
        let options = format!("size={size},mode=777");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &options, "larder"]).arg(mount.0.path());
        let is_mounted = is_root() && command.output().is_ok_and(|output| output.status.success());
        if !is_mounted {
            eprintln!("not run: no file system may be mounted here");
        }
        is_mounted.then_some(mount)
    }

    fn remount(&self, options: &str) -> Result<()> {
        let mut command = Command::new("mount");
        let status = command.args(["-o", &format!("remount,{options}")]).arg(self.0.path()).status()?;
        if status.success() { Ok(()) } else { Err("mount fails".into()) }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_read_only_file_system_is_refused() -> Result<()> {
    let Some(mount) = Mount::create("1m") else { return Ok(()) };
    mount.remount("ro")?;
    let said = refusal(&["--store", &mount.0.arg("")])?;
    assert!(said.contains("Read-only file system"), "{said}");
    Ok(())
}

/// A disk that is really full: writes are refused, reads go on, and once there is room so do writes; nothing that was
/// acknowledged is lost.
#[test]
fn a_full_disk_refuses_writes_and_recovers() -> Result<()> {
    let Some(mount) = Mount::create("2m") else { return Ok(()) };
    let small = ["--store-segment-kib", "64"];
    let server = start(&mount.0, &small)?;
    let mut stream = connect(&server)?;
    let mut stored = 0;
    let mut refused = 0;
    while refused < 20 {
        stream.write_all(&set(&format!("key{}", stored + refused), &value(10_000)))?;
        let mut reply = [0; 8];
        stream.read_exact(&mut reply)?;
        if reply == *b"STORED\r\n" {
            stored += 1;
            continue;
        }
        refused += 1;
        assert_eq!(reply, *b"SERVER_E");
        expect(&mut stream, b"RROR store is full\r\n")?;
        // Where a change was lost on its way, the connection is closed behind the error.
        stream = connect(&server)?;
    }
    assert!(stored > 100, "{stored} stored");
    get(&mut stream, "key0", &value(10_000))?;
    mount.remount("size=8m")?;
    server::eventually(|| {
        let Ok(mut stream) = connect(&server) else { return false };
        ask(&mut stream, &set("again", &value(10_000)), b"STORED\r\n").is_ok()
    });
    server.kill()?;
    let server = start(&mount.0, &small)?;
    let mut stream = connect(&server)?;
    get(&mut stream, "again", &value(10_000))?;
    // Refusals came one after the other, behind what was stored.
    for nth in 0..stored.min(100) {
        get(&mut stream, &format!("key{nth}"), &value(10_000))?;
    }
    Ok(())
}
