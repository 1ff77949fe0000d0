//! The servers that a program asks for, and the words that tell it of them.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::script::Side;
use larder_conformance::server::{self, Server};

use crate::clients::doors::{Door, Doors};

/// What a program runs against.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// Nothing.
    Alone,
    /// So many servers.
    Servers(usize),
    /// One that is behind a door.
    Behind(Door),
    /// A socket of the file system.
    Socket,
}

/// Servers that run, and the words.
pub(super) struct Servers {
    pub(super) words: Vec<OsString>,
    _servers: Vec<Server>,
    _socket: Option<Socket>,
}

impl Place {
    pub(super) fn start(self, doors: &Doors, side: Side) -> Result<Servers> {
        let program = server::of(side)?;
        let (servers, socket) = match self {
            Self::Alone => (Vec::new(), None),
            Self::Servers(count) => {
                let servers: Result<_> = (0..count).map(|_| doors.start(&program, Door::Plain)).collect();
                (servers?, None)
            }
            Self::Behind(door) => (vec![doors.start(&program, door)?], None),
            Self::Socket => (Vec::new(), Some(Socket::listen(&program)?)),
        };
        let mut words: Vec<OsString> =
            servers.iter().map(|server| server.address().to_string().into()).collect();
        words.extend(socket.as_ref().map(|socket| socket.path.clone().into_os_string()));
        if let Self::Behind(Door::Sasl) = self {
            // The door's first word names it.
            words.extend(doors.words(Door::Sasl).into_iter().skip(1));
        }
        Ok(Servers { words, _servers: servers, _socket: socket })
    }
}

/// A server that listens at a path.
struct Socket {
    path: PathBuf,
    child: Child,
    _folder: Folder,
}

impl Socket {
    fn listen(program: &Path) -> Result<Self> {
        let folder = Folder::create();
        let path = folder.file("socket");
        let mut command = Command::new(program);
        command.arg("-s").arg(&path).args(["-a", "777", "-u", "nobody"]);
        let child = command.stdout(Stdio::null()).spawn()?;
        let socket = Self { path, child, _folder: folder };
        let deadline = Instant::now() + START_TIMEOUT;
        // Its file is there before it listens.
        while UnixStream::connect(&socket.path).is_err() {
            if Instant::now() > deadline {
                return Err(format!("{} does not listen at a socket", program.display()).into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const START_TIMEOUT: Duration = Duration::from_secs(30);
