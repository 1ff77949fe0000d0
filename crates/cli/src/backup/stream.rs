//! A backup as a stream: from the server's HTTP for operators to standard output.

use std::fs;
use std::io::{self, IsTerminal as _, Read, StdoutLock, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use larder_client::{Address, Stream};
use larder_store::{Error, verify_stream};

use crate::Failure;
use crate::target::Target;
use crate::transfer::progress;

pub(super) fn run(admin: &Address, token_file: &Path, target: &Target) -> Result<(), Failure> {
    let output = io::stdout();
    if output.is_terminal() {
        return Err(Failure::Usage("a backup is no text: send it to a file, or to a program".into()));
    }
    let token = read_token(token_file)
        .map_err(|error| Failure::Usage(format!("{}: {error}", token_file.display())))?;
    let of_io = |error: &io::Error| Failure::of_io(admin, error);
    let tls = target.tls()?;
    let mut stream =
        Stream::connect(admin, tls.as_ref(), Some(target.timeout())).map_err(|error| of_io(&error))?;
    stream.set_timeout(Some(target.timeout())).map_err(|error| of_io(&error))?;
    ask(&mut stream, admin, token.trim()).map_err(|error| of_io(&error))?;
    let (head, rest) = read_head(&mut stream).map_err(|error| of_io(&error))?;
    judge(admin, &head, &rest)?;

    // The server waits for its disk, and it may have to wait for ours.
    stream.set_timeout(Some(SILENCE_MAX.max(target.timeout()))).map_err(|error| of_io(&error))?;
    let bar = progress::bytes(None, false);
    let mut tee = Tee { input: rest.chain(stream), output: output.lock(), bar: &bar, failure: None };
    let verified = verify_stream(&mut tee);
    bar.finish_and_clear();
    if let Some(failure) = tee.failure {
        return Err(failure);
    }
    let report = verified.map_err(|error| match error {
        Error::Corrupt { offset, what, .. } => Failure::Failed(format!(
            "{admin}: the backup is not complete: byte {offset}: {what}; its log may say why"
        )),
        Error::Io { source, .. } => of_io(&source),
        error => Failure::Failed(format!("{admin}: {error}")),
    })?;
    tee.output.flush().map_err(Failure::of_output)?;
    eprintln!("larder backup: {} files, {} bytes", report.files, report.bytes);
    Ok(())
}

/// HTTP/1.0: the response ends with the connection. Whether it is whole, the stream itself says.
fn ask(stream: &mut Stream, admin: &Address, token: &str) -> io::Result<()> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a token is one word of printable ASCII"));
    }
    let host = match admin {
        Address::Inet { host, port } if host.contains(':') => format!("[{host}]:{port}"),
        Address::Inet { host, port } => format!("{host}:{port}"),
        Address::Unix(_) => "localhost".to_owned(),
    };
    let request =
        format!("GET /api/backup HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()
}

fn read_token(file: &Path) -> io::Result<String> {
    let mut token = String::new();
    fs::File::open(file)?.take(TOKEN_FILE_BYTES_MAX + 1).read_to_string(&mut token)?;
    if token.len() as u64 > TOKEN_FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large for a token"));
    }
    Ok(token)
}

/// The head of the response, and the bytes behind it that came with it.
fn read_head(stream: &mut Stream) -> io::Result<(String, io::Cursor<Vec<u8>>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), io::Cursor::new(rest)));
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP"));
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// What the response means.
fn judge(admin: &Address, head: &str, rest: &io::Cursor<Vec<u8>>) -> Result<(), Failure> {
    let mut words = head.split(' ');
    let (version, status) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !version.starts_with("HTTP/1.") {
        return Err(Failure::Failed(format!("{admin} does not speak HTTP: is it --admin-listen?")));
    }
    let text = String::from_utf8_lossy(rest.get_ref());
    let why = text.trim();
    match status {
        "200" => Ok(()),
        "401" => Err(Failure::Denied(format!("{admin}: the token is not that of --backup-token-file"))),
        "403" => Err(Failure::Denied(format!("{admin}: {why}"))),
        _ => Err(Failure::Failed(format!("{admin}: {status} {why}"))),
    }
}

/// Passes on what it reads.
struct Tee<'b, R> {
    input: R,
    output: StdoutLock<'b>,
    bar: &'b ProgressBar,
    /// Of the output: what was read is in order.
    failure: Option<Failure>,
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        if let Err(error) = self.output.write_all(&buffer[..count]) {
            self.failure = Some(Failure::of_output(error));
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.bar.inc(count as u64);
        Ok(count)
    }
}

/// As larderd reads its own.
const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;
const HEAD_BYTES_MAX: usize = 16 << 10;
/// A server that says nothing for so long has failed; so has one whose client takes nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);
