//! `larder passwd`: edits a password file for `larderd -Y` and `-S`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use larder_auth::{
    ENTRIES_MAX, Entry, ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN, LINE_BYTES_MAX, Password,
    SALT_BYTES, Verifier,
};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::Failure;

/// Set or delete a user's password in a password file
///
/// Sets the user's password in a password file of larderd (-Y, MEMCACHED_SASL_PWDB), and creates the file if there is
/// none. The password is read from the terminal, or else as the first line of standard input. It is kept as a
/// SCRAM-SHA-256 verifier, from which it cannot be read, and which every way to log in takes. The file is replaced in
/// one step, readable by its owner only; larderd reads it again on SIGHUP.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The password file
    file: PathBuf,
    /// 1 to 128 characters, without colon, space and control characters
    user: OsString,
    /// Delete the user
    #[arg(long)]
    delete: bool,
    /// Store the password as plain text (memcached reads no other files)
    #[arg(long)]
    plain: bool,
    /// Hashes that a guess costs; a login may cost them, too
    #[arg(long, value_name = "N", default_value_t = ITERATIONS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(i64::from(ITERATIONS_MIN)..=i64::from(ITERATIONS_MAX)))]
    iterations: u32,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let Args { file, user, delete, plain, iterations } = args;
    let user = user.into_encoded_bytes();
    if !delete && !larder_auth::is_user(&user) {
        let message = "a user has 1 to 128 characters, without colon, space and control characters";
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut entries = read_file(&file)?;
    let position = entries.iter().position(|entry| entry.user == user);
    entries.retain(|entry| entry.user != user);
    if delete {
        if position.is_none() {
            return Err(Failure::Failed(format!("{}: no such user", file.display())));
        }
    } else {
        let password = read_password()?;
        let password = match plain {
            true => Password::Plain(password),
            false => Password::Hashed(Verifier::derive(&password, &salt()?, iterations)),
        };
        // At the position of the old one.
        entries.insert(position.unwrap_or(entries.len()).min(entries.len()), Entry { user, password });
    }
    if entries.len() > ENTRIES_MAX {
        return Err(Failure::Failed(format!("larderd reads at most {ENTRIES_MAX} entries")));
    }
    let bytes = larder_auth::render(&entries);
    // larderd would refuse the file: a plain password that looks like a verifier, or a line that is too long.
    if !entries.is_empty() && larder_auth::parse(&bytes).as_ref() != Ok(&entries) {
        return Err(Failure::Failed("this password cannot stand in a password file".to_owned()));
    }
    replace(&file, &bytes).map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))
}

/// The entries of the file; none if it does not exist or is empty.
fn read_file(path: &Path) -> Result<Vec<Entry>, Failure> {
    let refuse = |error: &dyn std::fmt::Display| Failure::Failed(format!("{}: {error}", path.display()));
    match fs::read(path) {
        Ok(bytes) if bytes.is_empty() => Ok(Vec::new()),
        Ok(bytes) => larder_auth::parse(&bytes).map_err(|malformed| refuse(&malformed)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(refuse(&error)),
    }
}

/// Twice from the terminal without echo, or once from standard input.
fn read_password() -> Result<Vec<u8>, Failure> {
    let refuse = |error: io::Error| Failure::Failed(format!("the password cannot be read: {error}"));
    let stdin = io::stdin();
    let password = if rustix::termios::isatty(&stdin) {
        let unseen = Unseen::start(stdin.as_fd()).map_err(refuse)?;
        let password = ask("Password: ").map_err(refuse)?;
        let again = ask("Once more: ").map_err(refuse)?;
        drop(unseen);
        if password != again {
            return Err(Failure::Failed("these were two passwords".to_owned()));
        }
        password
    } else {
        read_line().map_err(refuse)?
    };
    if password.is_empty() {
        return Err(Failure::Failed("the password is empty".to_owned()));
    }
    Ok(password)
}

fn ask(question: &str) -> io::Result<Vec<u8>> {
    eprint!("{question}");
    io::stderr().flush()?;
    let answer = read_line();
    eprintln!();
    answer
}

fn read_line() -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    io::stdin().lock().take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        line.pop_if(|byte| *byte == b'\r');
    }
    Ok(line)
}

/// The terminal does not echo until this is dropped.
struct Unseen<'f> {
    terminal: std::os::fd::BorrowedFd<'f>,
    before: Termios,
}

impl<'f> Unseen<'f> {
    fn start(terminal: std::os::fd::BorrowedFd<'f>) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut unseen = before.clone();
        unseen.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &unseen)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Unseen<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

fn salt() -> Result<[u8; SALT_BYTES], Failure> {
    let mut salt = [0; SALT_BYTES];
    match rustix::rand::getrandom(&mut salt, rustix::rand::GetRandomFlags::empty()) {
        Ok(SALT_BYTES) => Ok(salt),
        _ => Err(Failure::Failed("the system gives no random numbers".to_owned())),
    }
}

/// Replaces the file by renaming a new one, so that larderd reads either the old or the new one completely. The mode of
/// an existing file is kept, so that a server's group can still read it. A new file is readable by its owner only.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.tmp", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let replaced = (|| {
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(bytes)?;
        if let Ok(old) = fs::metadata(path) {
            // Its owner and group, if we may change them; then its mode.
            let (uid, gid) =
                (std::os::unix::fs::MetadataExt::uid(&old), std::os::unix::fs::MetadataExt::gid(&old));
            let is_given = std::os::unix::fs::fchown(&file, Some(uid), Some(gid)).is_ok();
            if is_given {
                file.set_permissions(fs::Permissions::from_mode(old.permissions().mode() & 0o660))?;
            }
        }
        file.sync_all()?;
        fs::rename(&unfinished, path)
    })();
    if replaced.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    replaced
}
