//! The ways into a server: how it is started for each, and what a client must know to come in.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io::Write as _};

use larder_conformance::Result;
use larder_conformance::folder::Folder;
use larder_conformance::server::{self, Server};

use crate::shell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// TCP, either protocol.
    Plain,
    /// A login with SASL, and so the binary protocol (`-S`).
    Sasl,
    /// A login in the text protocol (`-Y`).
    Token,
    /// TLS with a certificate for 127.0.0.1 (`-Z`).
    Tls,
    /// UDP at the number of the TCP port (`-U`).
    Udp,
    /// HTTP (`--http-listen`), which memcached lacks.
    Http,
    /// The same, through an nginx that the client starts.
    Nginx,
}

/// Passwords and certificates for one run, in a folder that a server can read after it dropped its rights.
pub(crate) struct Doors {
    folder: Folder,
}

impl Doors {
    pub(crate) fn make() -> Result<Self> {
        let doors = Self { folder: Folder::create() };
        doors.make_passwords()?;
        doors.make_certificates()?;
        for entry in fs::read_dir(doors.folder.path())? {
            fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o644))?;
        }
        Ok(doors)
    }

    /// Starts a server that has this door.
    pub(crate) fn start(&self, program: &Path, door: Door) -> Result<Server> {
        let mut command = server::command(program);
        match door {
            Door::Plain => {}
            Door::Sasl => {
                // The first is for larderd and some builds of memcached, the second for those that ask Cyrus SASL.
                command
                    .env("MEMCACHED_SASL_PWDB", self.folder.file(PASSWORDS))
                    .env("SASL_CONF_PATH", self.folder.path());
                command.arg("-S");
            }
            Door::Token => {
                command.arg("-Y").arg(self.folder.file(PASSWORDS));
            }
            Door::Tls => {
                let chain = self.folder.file(SERVER_CERTIFICATE);
                let key = self.folder.file(SERVER_KEY);
                let files = format!("ssl_chain_cert={},ssl_key={}", chain.display(), key.display());
                command.args(["-Z", "-o", &files]);
            }
            Door::Http | Door::Nginx => {
                command.args(["--http-listen", "127.0.0.1:0"]);
            }
            Door::Udp => {
                let port = server::free_port().to_string();
                command.args(["-p", &port, "-U", &port]);
            }
        }
        Server::start_command(command)
    }

    /// The certificate of the authority that vouches for servers with TLS.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.file(AUTHORITY)
    }

    /// What a client is told after host and port.
    pub(crate) fn words(&self, door: Door) -> Vec<OsString> {
        match door {
            Door::Plain | Door::Udp | Door::Http => Vec::new(),
            Door::Nginx => vec!["nginx".into()],
            Door::Sasl => vec!["sasl".into(), USER.into(), PASSWORD.into()],
            Door::Token => vec!["token".into(), USER.into(), PASSWORD.into()],
            Door::Tls => vec!["tls".into(), self.authority().into()],
        }
    }

    fn make_passwords(&self) -> Result<()> {
        self.folder.write(PASSWORDS, format!("{USER}:{PASSWORD}\n"));

        // The same for Cyrus SASL, which files a user below the name of the host. libmemcached takes SCRAM where it is
        // offered, all other clients PLAIN.
        let database = self.folder.file("sasldb");
        let config = format!(
            "mech_list: plain scram-sha-256\npwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {}\n",
            database.display()
        );
        self.folder.write("memcached.conf", config);
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let mut child = Command::new("/usr/sbin/saslpasswd2")
            .args(["-p", "-c", "-a", "memcached", "-u", host.trim(), "-f"])
            .arg(database)
            .arg(USER)
            .stdin(Stdio::piped())
            .spawn()?;
        child.stdin.take().ok_or("saslpasswd2 takes no input")?.write_all(PASSWORD.as_bytes())?;
        if child.wait()?.success() { Ok(()) } else { Err("saslpasswd2 failed".into()) }
    }

    /// An authority that nobody knows but the clients that are told, and a certificate from it.
    fn make_certificates(&self) -> Result<()> {
        let file = |name| self.folder.file(name);
        let mut authority = shell::certificate("larder tests", &file(AUTHORITY), &file(AUTHORITY_KEY));
        shell::output(authority.args(["-addext", "basicConstraints=critical,CA:TRUE"]))?;

        let mut server = shell::certificate("localhost", &file(SERVER_CERTIFICATE), &file(SERVER_KEY));
        server.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        server.args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]);
        server.arg("-CA").arg(file(AUTHORITY)).arg("-CAkey").arg(file(AUTHORITY_KEY));
        shell::output(&mut server).map(drop)
    }
}

const USER: &str = "larder";
pub(super) const PASSWORD: &str = "secret";
const PASSWORDS: &str = "passwords";
const AUTHORITY: &str = "authority.pem";
const AUTHORITY_KEY: &str = "authority.key";
const SERVER_CERTIFICATE: &str = "server.pem";
const SERVER_KEY: &str = "server.key";
