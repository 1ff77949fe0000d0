//! A backup as a stream: from the server's HTTP for operators to standard output.

use std::io::{self, IsTerminal as _, Read, StdoutLock, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use larder_client::{Address, Stream};
use larder_store::{Error, verify_stream};

use super::token_of;
use crate::Failure;
use crate::admin::{Request, judge, read_head};
use crate::target::Target;
use crate::transfer::progress;

pub(super) fn run(admin: &Address, token_file: &Path, target: &Target) -> Result<(), Failure> {
    let output = io::stdout();
    if output.is_terminal() {
        return Err(Failure::Usage("a backup is no text: send it to a file, or to a program".into()));
    }
    let token = token_of(token_file)?;
    let of_io = |error: &io::Error| Failure::of_io(admin, error);
    let tls = target.tls()?;
    let mut stream =
        Stream::connect(admin, tls.as_ref(), Some(target.timeout())).map_err(|error| of_io(&error))?;
    stream.set_timeout(Some(target.timeout())).map_err(|error| of_io(&error))?;
    let request = Request { method: "GET", path: "/api/backup", token: Some(&token) };
    request.send(&mut stream, admin).map_err(|error| of_io(&error))?;
    let (head, rest) = read_head(&mut stream).map_err(|error| of_io(&error))?;
    judge(admin, &head, &rest, "--backup-token-file")?;

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

/// A server that says nothing for so long has failed; so has one whose client takes nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);
