//! The lines of a head after the first (RFC 9112, section 5).

use super::HttpRefusal;

/// The headers that mean something here. All others are checked for their form, and ignored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Headers<'a> {
    pub(super) host: Option<&'a [u8]>,
    pub(super) content_length: Option<&'a [u8]>,
    /// Several are one list (RFC 9110, section 5.3), which is no coding that is taken: an empty slice.
    pub(super) transfer_encoding: Option<&'a [u8]>,
    pub(super) content_encoding: Option<&'a [u8]>,
    pub(super) content_range: Option<&'a [u8]>,
    pub(super) authorization: Option<&'a [u8]>,
    pub(super) expect: Option<&'a [u8]>,
    pub(super) if_match: Option<&'a [u8]>,
    pub(super) if_none_match: Option<&'a [u8]>,
    pub(super) client_flags: Option<&'a [u8]>,
    pub(super) ttl: Option<&'a [u8]>,
    /// A browser says that a page of another site asks.
    pub(super) is_cross_site: bool,
    /// `Connection: close`.
    pub(super) closes: bool,
}

impl<'a> Headers<'a> {
    /// Reads the lines, each without its CR LF.
    pub(super) fn parse(lines: impl Iterator<Item = &'a [u8]>) -> Result<Self, HttpRefusal> {
        let mut headers = Self::default();
        for line in lines {
            let (name, value) = split(line)?;
            headers.set(name, value)?;
        }
        Ok(headers)
    }

    fn set(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), HttpRefusal> {
        let mut lower = [0; NAME_BYTES_MAX];
        let Some(lower) = lower.get_mut(..name.len()) else { return Ok(()) };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let place = match &*lower {
            b"host" => &mut self.host,
            b"content-length" => &mut self.content_length,
            b"content-encoding" => &mut self.content_encoding,
            b"content-range" => &mut self.content_range,
            b"authorization" => &mut self.authorization,
            b"expect" => &mut self.expect,
            b"if-match" => &mut self.if_match,
            b"if-none-match" => &mut self.if_none_match,
            b"larder-flags" => &mut self.client_flags,
            b"larder-ttl" => &mut self.ttl,
            b"transfer-encoding" => {
                self.transfer_encoding = Some(if self.transfer_encoding.is_some() { &[] } else { value });
                return Ok(());
            }
            b"connection" => {
                let mut options = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                self.closes |= options.any(|option| option.eq_ignore_ascii_case(b"close"));
                return Ok(());
            }
            b"origin" => {
                self.is_cross_site = true;
                return Ok(());
            }
            b"sec-fetch-site" => {
                self.is_cross_site |= ![&b"none"[..], b"same-origin"].contains(&value);
                return Ok(());
            }
            _ => return Ok(()),
        };
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err(HttpRefusal::RepeatedHeader),
        }
    }
}

/// The name and the value of a line.
fn split(line: &[u8]) -> Result<(&[u8], &[u8]), HttpRefusal> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(HttpRefusal::FoldedHeader);
    }
    let colon = memchr::memchr(b':', line).ok_or(HttpRefusal::BadHeader)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    // A space before the colon is no part of a name (RFC 9112, section 5.1).
    if name.is_empty() || !name.iter().all(|byte| is_token_byte(*byte)) {
        return Err(HttpRefusal::BadHeader);
    }
    if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(HttpRefusal::BadHeader);
    }
    Ok((name, value.trim_ascii()))
}

/// RFC 9110, section 5.6.2: tchar.
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The longest name above.
const NAME_BYTES_MAX: usize = b"transfer-encoding".len();

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<'a>(lines: &[&'a str]) -> Result<Headers<'a>, HttpRefusal> {
        Headers::parse(lines.iter().map(|line| line.as_bytes()))
    }

    #[test]
    fn names_have_any_case_and_values_are_trimmed() {
        let headers = parse(&["HOST:a", "content-LENGTH: \t 5 \t", "X-Other: \u{e9}", "If-Match:"]);
        let headers = headers.expect("they are well formed");
        assert_eq!(headers.host, Some(&b"a"[..]));
        assert_eq!(headers.content_length, Some(&b"5"[..]));
        assert_eq!(headers.if_match, Some(&b""[..]));
        assert!(!headers.closes && !headers.is_cross_site);
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for line in [
            "",
            "x",
            ":x",
            "Host : a",
            "Ho st: a",
            "Host\t: a",
            "Hos\u{f6}t: a",
            "X: a\0b",
            "X: a\rb",
            "X: \u{7f}",
        ] {
            assert_eq!(parse(&[line]).map(|_| ()), Err(HttpRefusal::BadHeader), "{line:?}");
        }
        for line in [" x", "\tx", " Host: a"] {
            assert_eq!(parse(&["Host: a", line]).map(|_| ()), Err(HttpRefusal::FoldedHeader), "{line:?}");
        }
        for name in ["Host", "content-length", "Authorization", "Larder-TTL"] {
            let line = format!("{name}: 1");
            assert_eq!(parse(&[&line, &line]).map(|_| ()), Err(HttpRefusal::RepeatedHeader), "{name}");
        }
    }

    #[test]
    fn connections_and_sites() {
        assert!(parse(&["Connection: keep-alive, Close"]).is_ok_and(|headers| headers.closes));
        assert!(parse(&["Connection: keep-alive", "Connection: TE"]).is_ok_and(|headers| !headers.closes));
        for line in ["Origin: null", "Origin:", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"] {
            assert!(parse(&[line]).is_ok_and(|headers| headers.is_cross_site), "{line}");
        }
        for line in ["Sec-Fetch-Site: none", "Sec-Fetch-Site: same-origin"] {
            assert!(parse(&[line]).is_ok_and(|headers| !headers.is_cross_site), "{line}");
        }
        let twice = parse(&["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"]);
        assert!(twice.is_ok_and(|headers| headers.transfer_encoding == Some(b"")));
    }
}
