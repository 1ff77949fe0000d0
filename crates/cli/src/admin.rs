//! A request to a server's HTTP for operators (`--admin-listen`).

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use larder_client::{Address, Stream};

use crate::Failure;
use crate::target::Target;

/// A request without content.
pub(crate) struct Request<'r> {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// `None`: the server asks for none.
    pub(crate) token: Option<&'r str>,
}

impl Request<'_> {
    /// Sends it as HTTP/1.0: the response ends with the connection.
    pub(crate) fn send(&self, stream: &mut Stream, admin: &Address) -> io::Result<()> {
        let host = match admin {
            Address::Inet { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Inet { host, port } => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let authorization = match self.token {
            None => String::new(),
            Some(token) if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                format!("Authorization: Bearer {token}\r\n")
            }
            Some(_) => {
                let error = "a token is one word of printable ASCII";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
            }
        };
        let Self { method, path, .. } = self;
        let request =
            format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n{authorization}Content-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        stream.flush()
    }

    /// Sends it over a connection of its own. Returns the text of the response, which is short.
    pub(crate) fn ask(&self, admin: &Address, target: &Target) -> Result<String, Failure> {
        let of_io = |error: &io::Error| Failure::of_io(admin, error);
        let mut stream = Stream::connect(admin, target.tls()?.as_ref(), Some(target.timeout()))
            .map_err(|error| of_io(&error))?;
        stream.set_timeout(Some(target.timeout())).map_err(|error| of_io(&error))?;
        self.send(&mut stream, admin).map_err(|error| of_io(&error))?;
        let (head, rest) = read_head(&mut stream).map_err(|error| of_io(&error))?;
        let mut content = Vec::new();
        rest.chain(stream.take(CONTENT_BYTES_MAX))
            .read_to_end(&mut content)
            .map_err(|error| of_io(&error))?;
        let content = io::Cursor::new(content);
        judge(admin, &head, &content, "--admin-token-file")?;
        Ok(String::from_utf8_lossy(content.get_ref()).trim().to_owned())
    }
}

/// The content of a file with a token.
pub(crate) fn read_token(file: &Path) -> io::Result<String> {
    let mut token = String::new();
    fs::File::open(file)?.take(TOKEN_FILE_BYTES_MAX + 1).read_to_string(&mut token)?;
    if token.len() as u64 > TOKEN_FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large for a token"));
    }
    Ok(token.trim_start_matches(BYTE_ORDER_MARK).to_owned())
}

/// Some editors write it at the start of a file, where it is invisible.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// The head of the response, and the bytes behind it that came with it.
pub(crate) fn read_head(stream: &mut Stream) -> io::Result<(String, io::Cursor<Vec<u8>>)> {
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

/// What the response means. `token_option`: of the server.
pub(crate) fn judge(
    admin: &Address,
    head: &str,
    rest: &io::Cursor<Vec<u8>>,
    token_option: &str,
) -> Result<(), Failure> {
    let mut words = head.split(' ');
    let (version, status) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !version.starts_with("HTTP/1.") {
        return Err(Failure::Failed(format!("{admin} does not speak HTTP: is it --admin-listen?")));
    }
    let text = String::from_utf8_lossy(rest.get_ref());
    let why = text.trim();
    match status {
        "200" => Ok(()),
        "401" => Err(Failure::Denied(format!("{admin}: the token is not that of {token_option}"))),
        "403" => Err(Failure::Denied(format!("{admin}: {why}"))),
        _ => Err(Failure::Failed(format!("{admin}: {status} {why}"))),
    }
}

/// As larderd reads its own.
const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;
const HEAD_BYTES_MAX: usize = 16 << 10;
const CONTENT_BYTES_MAX: u64 = 64 << 10;
