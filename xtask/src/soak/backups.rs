//! Backups of the soaked store, each restored and compared with what was true when it was taken.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};
use larder_store::files::{DiskFiles, Files};

use super::client::Shared;
use super::round::{Content, Known, State, hash};
use super::wire::Wire;

/// Takes backups until `is_over`.
pub(crate) struct Backups<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) program: &'s Path,
    pub(crate) folder: &'s Folder,
    pub(crate) admin: SocketAddr,
    pub(crate) clients: usize,
    pub(crate) is_over: &'s AtomicBool,
}

/// What was compared.
#[derive(Default)]
pub(crate) struct Compared {
    pub(crate) backups: u64,
    pub(crate) present: u64,
    pub(crate) absent: u64,
    pub(crate) bytes: u64,
}

/// How a backup is taken, in turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Full,
    /// On the full one before.
    Incremental,
    Stream,
}

impl Backups<'_> {
    /// Errors: the first backup that lacks something, or has something that was gone.
    pub(crate) fn run(&self) -> Result<Compared> {
        let mut compared = Compared::default();
        for way in [Way::Full, Way::Incremental, Way::Stream].into_iter().cycle() {
            // An incremental one takes little longer than what it follows.
            if self.is_over.load(SeqCst) && compared.backups > 0 {
                return Ok(compared);
            }
            let taken = self.take(way).and_then(|known| self.compare(way, &known, &mut compared));
            taken.map_err(|error| format!("backup {} ({}): {error}", compared.backups + 1, way.name()))?;
            compared.backups += 1;
            // What the next one does not need goes: the disk is bounded.
            let _ = fs::remove_dir_all(self.folder.file(RESTORED));
            match way {
                Way::Full => {}
                Way::Incremental => {
                    fs::remove_dir_all(self.directory(Way::Full))?;
                    fs::remove_dir_all(self.directory(Way::Incremental))?;
                }
                Way::Stream => fs::remove_file(self.folder.file(STREAM))?,
            }
            self.pause()?;
        }
        Ok(compared)
    }

    /// Takes one; what the clients know of the time.
    fn take(&self, way: Way) -> Result<Vec<Known>> {
        let wait = || {
            sleep(POLL);
            self.check()
        };
        self.shared.rounds.advance(self.clients, wait)?;
        match way {
            Way::Full => self.take_in_place("full")?,
            Way::Incremental => self.take_in_place("incremental full")?,
            Way::Stream => self.take_stream()?,
        }
        self.shared.rounds.advance(self.clients, wait)?;
        Ok(self.shared.rounds.take_known())
    }

    fn take_in_place(&self, names: &str) -> Result<()> {
        let mut wire = Wire::connect(self.shared.address)?;
        wire.send(format!("stats store backup {names}\r\n").as_bytes())?;
        let answer = wire.line()?;
        if answer != "OK" {
            return Err(format!("not begun: {answer}").into());
        }
        loop {
            sleep(POLL);
            self.check()?;
            wire.send(b"stats store\r\n")?;
            let mut state = String::new();
            loop {
                let line = wire.line()?;
                match line.strip_prefix("STAT backup_state ") {
                    Some(value) => value.clone_into(&mut state),
                    None if line == "END" => break,
                    None => {}
                }
            }
            let _ = wire.take_replies();
            match &state[..] {
                "running" => {}
                "done" => return Ok(()),
                state => return Err(format!("it {state}").into()),
            }
        }
    }

    fn take_stream(&self) -> Result<()> {
        let mut stream = TcpStream::connect(self.admin)?;
        write!(
            stream,
            "GET /api/backup HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        )?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        if !head.starts_with(b"HTTP/1.0 200 ") {
            return Err(format!("not begun: {}", head.escape_ascii()).into());
        }
        std::io::copy(&mut stream, &mut fs::File::create(self.folder.file(STREAM))?)?;
        Ok(())
    }

    fn compare(&self, way: Way, known: &[Known], compared: &mut Compared) -> Result<()> {
        let restored = self.folder.file(RESTORED);
        let target = DiskFiles::open(&restored)?;
        let manifest = match way {
            Way::Stream => {
                let mut stream = fs::File::open(self.folder.file(STREAM))?;
                larder_store::restore_stream(&mut stream, &target)?
            }
            _ => {
                let full = DiskFiles::open(self.directory(Way::Full))?;
                let incremental = (way == Way::Incremental)
                    .then(|| DiskFiles::open(self.directory(Way::Incremental)))
                    .transpose()?;
                let backups: Vec<&dyn Files> =
                    incremental.iter().chain([&full]).map(|files| files as &dyn Files).collect();
                larder_store::restore(&backups, &target)?
            }
        };
        compared.bytes += manifest.files().map(|file| file.bytes).sum::<u64>();
        let checked = larder_store::check(&target, false)?;
        if let Some(damage) = checked.damages.first() {
            return Err(format!("{}, byte {}: {}", damage.file, damage.offset, damage.what).into());
        }
        let (store, namespaces) = (self.folder.arg(RESTORED), self.folder.arg(super::NAMESPACES_FILE));
        let mut command = server::command(self.program);
        // The folder is ours, not nobody's.
        command.args(["-u", "root", "-m", "16", "-t", "1", "--namespaces", &namespaces, "--store", &store]);
        let copy = Server::start_command(command)?;
        let mut wire = Wire::connect(copy.address())?;
        for piece in known.chunks(PIPELINED) {
            self.check()?;
            let requests: String =
                piece.iter().map(|known| format!("mg {} v f c t\r\n", known.name)).collect();
            let sent = Instant::now();
            wire.send(requests.as_bytes())?;
            for known in piece {
                let judged = judge(known, sent, &mut wire, compared);
                judged.map_err(|error| format!("{}: {error}", known.name))?;
            }
            let _ = wire.take_replies();
        }
        copy.stop()?;
        Ok(())
    }

    /// Errors: a client has failed, whose error says more.
    fn check(&self) -> Result<()> {
        if self.shared.stop.load(SeqCst) { Err("the soak has ended".into()) } else { Ok(()) }
    }

    fn pause(&self) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < PAUSE && !self.is_over.load(SeqCst) {
            sleep(POLL);
            self.check()?;
        }
        Ok(())
    }

    fn directory(&self, way: Way) -> PathBuf {
        self.folder.file(DIRECTORY).join(way.name())
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Incremental => "incremental",
            Self::Stream => "stream",
        }
    }
}

/// Reads the reply of the restored store, and compares it with what a client knows.
fn judge(known: &Known, sent: Instant, wire: &mut Wire, compared: &mut Compared) -> Result<()> {
    let line = wire.line()?;
    let content = match (&known.state, line == "EN") {
        (State::Absent, true) => {
            compared.absent += 1;
            return Ok(());
        }
        (State::Absent, false) => return Err(format!("it was gone before, and is here: {line}").into()),
        (State::Present(content), true) => {
            let lives = content.death.is_none_or(|death| death.from > Instant::now());
            return if lives { Err("it was there before, and is missing".into()) } else { Ok(()) };
        }
        (State::Perhaps(_), true) => return Ok(()),
        (State::Present(content) | State::Perhaps(content), false) => content,
    };
    let words: Vec<&str> = line.split(' ').collect();
    let value_bytes: usize = match words[..] {
        ["VA", value_bytes, ..] => value_bytes.parse()?,
        _ => return Err(format!("unexpected: {line}").into()),
    };
    let value = wire.block(value_bytes)?;
    judge_content(known, sent, content, &words[2..], &value).map_err(|error| format!("{error}: {line}"))?;
    compared.present += 1;
    Ok(())
}

fn judge_content(
    known: &Known,
    sent: Instant,
    content: &Content,
    flags: &[&str],
    value: &[u8],
) -> Result<()> {
    let shown = if known.is_number { value.trim_ascii_end() } else { value };
    if (shown.len(), hash(shown)) != (content.value_bytes, content.value_hash) {
        return Err(format!("another value than the {} bytes that it had", content.value_bytes).into());
    }
    let flag = |letter| flags.iter().find_map(|word| word.strip_prefix(letter)).unwrap_or_default();
    if flag('f').parse() != Ok(content.client_flags) {
        return Err(format!("the client flags were {}", content.client_flags).into());
    }
    if content.cas.is_some_and(|cas| flag('c').parse() != Ok(cas)) {
        return Err(format!("the CAS value was {:?}", content.cas).into());
    }
    let ttl_secs: i64 = flag('t').parse()?;
    let left_secs = |until: Instant, at| until.saturating_duration_since(at).as_secs() as i64;
    let left =
        content.death.map(|death| (left_secs(death.from, Instant::now()), left_secs(death.by, sent) + 3));
    if left.map_or(ttl_secs == -1, |(least, most)| (least..=most).contains(&ttl_secs)) {
        Ok(())
    } else {
        Err(format!("its time should be about {left:?}").into())
    }
}

/// Below the soak's folder.
pub(crate) const DIRECTORY: &str = "backups";
const RESTORED: &str = "restored";
const STREAM: &str = "backup.tar";
pub(crate) const TOKEN: &str = "token-of-the-soak";
const POLL: Duration = Duration::from_millis(20);
/// Between two backups.
const PAUSE: Duration = Duration::from_secs(5);
const PIPELINED: usize = 32;
